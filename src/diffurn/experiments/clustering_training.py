"""Trains a stack of VaDE models side by side: blocks of steps, models that stop, checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from diffurn.estimators import ExponentialAnnealing
from diffurn.models.pretraining import as_pixels, fused_adam
from diffurn.models.stacked import Batches, Replayed
from diffurn.models.vade import VaDE

# Steps between two looks at the clock, at the schedules and for models that broke down.
BLOCK = 128


@dataclass(frozen=True)
class Schedule:
    """Learning rate and temperature, by step.

    Args:
        learning_rate: at the start.
        decay: factor every `decay_steps` steps; 1 keeps it constant.
        decay_steps: see there.
        smallest_rate: where the decay ends.
        temperature: of the Gumbel-Softmax.
    """

    learning_rate: float
    decay: float
    decay_steps: int
    smallest_rate: float
    temperature: ExponentialAnnealing

    def rate(self, step: int) -> float:
        return max(self.learning_rate * self.decay ** (step // self.decay_steps), min(self.smallest_rate, self.learning_rate))


class Training:
    """The state of a stack in training.

    A model whose loss or parameters are no longer finite is stopped: its parameters and moments become zero and its loss is left out, so
    that nothing moves it again. The models beside it do not notice. So it is with a model that has had all its epochs, whose parameters
    are left alone: they still drift by what momentum is left, which concerns nobody once its results are taken.

    Args:
        model: the stack, on its device.
        images: training data, (N, pixels) bytes, on the same device.
        batches: which of them each model sees.
        schedule: of learning rate and temperature.
        compiled: whether ``torch.compile`` fuses the many small operations of a step.
    """

    def __init__(self, model: VaDE, images: Tensor, batches: Batches, schedule: Schedule, compiled: bool = False) -> None:
        device = images.device
        self.model, self.images, self.batches, self.schedule = model, images, batches, schedule
        self.optimizer = fused_adam(list(model.parameters()), schedule.learning_rate)
        models = len(model.means)
        self.active = torch.ones(models, dtype=torch.bool, device=device)
        self.loss_sum = torch.zeros(models, device=device)
        self.temperature = torch.ones((), device=device)
        self.step = 0
        self._elbo = torch.compile(model.elbo, fullgraph=True, dynamic=False) if compiled else model.elbo
        self._replayed = Replayed(self._train_step, device)

    def _train_step(self) -> None:
        """One step of every model, on tensors that stay in place and without a word to the host."""
        numbers, normal, gumbel = self.batches.next()
        loss = -self._elbo(as_pixels(self.images[numbers]), normal, gumbel, self.temperature)
        torch.where(self.active, loss, 0.0).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss_sum += loss.detach()

    def advance(self, goal: int) -> tuple[Tensor, list[int]]:
        """Trains up to step `goal`, at most a block away; returns mean losses (S,) and the models that broke down on the way."""
        steps = goal - self.step
        self.batches.refill(steps)
        self.model.retilt()
        self.temperature.fill_(self.schedule.temperature(self.step))
        for group in self.optimizer.param_groups:
            group["lr"].fill_(self.schedule.rate(self.step))
        self.loss_sum.zero_()
        self._replayed.run(steps)
        self.step = goal
        return self.loss_sum / steps, self._stop_broken()

    def _stop_broken(self) -> list[int]:
        finite = self.loss_sum.isfinite()
        for parameter in self.model.parameters():
            finite &= parameter.detach().flatten(1).sum(1).isfinite()
        broken: list[int] = (self.active & ~finite).nonzero().squeeze(1).tolist()
        self.stop(broken)
        with torch.no_grad():
            for model in broken:
                for parameter in self.model.parameters():
                    for values in (parameter, *(self.optimizer.state[parameter][name] for name in ("exp_avg", "exp_avg_sq"))):
                        values[model].zero_()
        return broken

    def stop(self, models: Sequence[int]) -> None:
        for model in models:
            self.active[model] = False

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "batches": self.batches.state(),
            "active": self.active,
            "step": self.step,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.batches.load_state(state["batches"])
        self.active.copy_(state["active"])
        self.step = state["step"]


@contextmanager
def tensor_cores(device: torch.device) -> Iterator[None]:
    """Matrix products in TensorFloat-32 on CUDA devices; elsewhere nothing changes."""
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@torch.no_grad()
def assigned_clusters(model: VaDE, images: Tensor, chunk: int = 1000) -> Tensor:
    """The likeliest cluster of every image by q(c|x) at the mean of q(z|x): (S, N)."""
    model.retilt()
    laws = model.laws()
    pieces = []
    for piece in images.split(chunk):
        mean, _ = model.encode(as_pixels(piece).expand(len(model.means), -1, -1))
        pieces.append(model.log_responsibilities(mean, laws).argmax(-1))
    return torch.cat(pieces, 1)
