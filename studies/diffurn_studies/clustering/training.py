"""One step of training of a stack of VaDE models, with its schedules."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call

from diffurn.estimators import ExponentialAnnealing
from diffurn_studies.clustering.pretraining import as_pixels
from diffurn_studies.clustering.vade import VaDE
from diffurn_studies.stacked.modules import half_copies
from diffurn_studies.stacked.steps import Batches, StackedAdam
from diffurn_studies.stacked.training import StackTraining


@dataclass(frozen=True)
class Schedule:
    """Learning rate, temperature and held cluster weights, by step.

    Args:
        learning_rate: at the start.
        decay: factor every `decay_steps` steps; 1 keeps it constant.
        decay_steps: steps between two factors.
        smallest_rate: where the decay ends.
        temperature: of the Gumbel-Softmax.
        held_steps: the cluster weights do not move during these first steps.
    """

    learning_rate: float
    decay: float
    decay_steps: int
    smallest_rate: float
    temperature: ExponentialAnnealing
    held_steps: int = 0

    def rate(self, step: int) -> float:
        return max(
            self.learning_rate * self.decay ** (step // self.decay_steps),
            min(self.smallest_rate, self.learning_rate),
        )


class Training(StackTraining):
    """The state of a stack of VaDE models in training.

    Args:
        model: the stack, on its device.
        images: training data, (N, pixels) bytes, on the same device.
        batches: the batches of each model.
        schedule: of learning rate, temperature and cluster weights.
        compiled: whether ``torch.compile`` fuses the many small operations of a step.
        half: whether the networks compute in bfloat16; parameters and their updates stay in
            float32.
    """

    model: VaDE

    def __init__(
        self,
        model: VaDE,
        images: Tensor,
        batches: Batches,
        schedule: Schedule,
        compiled: bool = False,
        half: bool = False,
    ) -> None:
        self._copies = half_copies(model) if half else {}
        names, parameters = zip(*model.named_parameters(), strict=True)
        rates = torch.full((len(model.means),), schedule.learning_rate, device=images.device)
        optimizer = StackedAdam(
            parameters, rates, compiled, [self._copies.get(name) for name in names]
        )
        super().__init__(model, batches, optimizer, measures=1, compiled=compiled)
        self.images, self.schedule = images, schedule
        self.temperature, self.weights_move = (
            torch.ones((), device=images.device) for _ in range(2)
        )

    def _measures(self, own: Tensor, normal: Tensor, gumbel: Tensor) -> Tensor:
        inputs = as_pixels(self.images[own]), normal, gumbel, self.temperature
        elbo: Tensor = functional_call(
            self.model, {**self._copies, "log_weights": self._log_weights()}, inputs
        )
        return -elbo.unsqueeze(-1)

    def _log_weights(self) -> Tensor:
        """The log-weights, without a gradient while they are held. CUDA graphs cannot branch, so
        holding multiplies the gradient by 0.
        """
        moving = self.model.log_weights
        return moving.detach() + self.weights_move * (moving - moving.detach())

    def _follow_schedules(self) -> None:
        self.model.retilt()
        self.temperature.fill_(self.schedule.temperature(self.step))
        self.weights_move.fill_(self.step >= self.schedule.held_steps)
        self.optimizer.rates.fill_(self.schedule.rate(self.step))
        self.optimizer.renew_copies()


@torch.no_grad()
def assigned_clusters(model: VaDE, images: Tensor, chunk: int = 1000) -> Tensor:
    """The likeliest cluster of every image by q(c|x) at the mean of q(z|x): (S, N)."""
    laws = model.laws()
    pieces = []
    for piece in images.split(chunk):
        mean, _ = model.encode(as_pixels(piece).expand(len(model.means), -1, -1))
        pieces.append(model.log_responsibilities(mean, laws).argmax(-1))
    return torch.cat(pieces, 1)
