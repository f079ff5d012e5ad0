"""Trains a stack of models: blocks of steps, models that break down, a budget of time,
checkpoints.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from diffurn_studies.harness.records import RunError
from diffurn_studies.stacked.steps import Blocks, Replayed, StackedAdam

# Steps between two checks of the clock, the schedules and the models.
BLOCK = 128
CHECKPOINT_SECONDS = 600.0
# A budget of time applies to the whole process, not to a unit.
PROCESS_STARTED = time.monotonic()


class StackTraining:
    """The state of a stack in training.

    A model whose measures or parameters are no longer finite is stopped: its parameters and moments
    are set to zero, and its loss no longer counts. This does not change the other models.

    Args:
        model: the stack, on its device; every parameter has a leading dimension of models.
        batches: the random draws of every step.
        optimizer: of the model's parameters.
        measures: how many numbers a step returns for each model.
        compiled: whether ``torch.compile`` fuses the operations of a step.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Blocks,
        optimizer: StackedAdam,
        measures: int,
        compiled: bool,
    ) -> None:
        self.model, self.batches, self.optimizer = model, batches, optimizer
        models, device = len(optimizer.rates), optimizer.rates.device
        self.active = torch.ones(models, dtype=torch.bool, device=device)
        self.sums = torch.zeros(models, measures, device=device)
        self.step = 0
        self._summed = 0
        self._measured = (
            torch.compile(self._measures, fullgraph=True, dynamic=False)
            if compiled
            else self._measures
        )
        self._replayed = Replayed(self._train_step, device)

    def _measures(self, own: Tensor, normal: Tensor, gumbel: Tensor) -> Tensor:
        """The measures of every model for its draws, (S, measures), the loss first."""
        raise NotImplementedError

    def _follow_schedules(self) -> None:
        """Updates temperatures and similar values before a block of steps."""
        raise NotImplementedError

    def _train_step(self) -> None:
        """One step of every model, in place and without CPU–GPU synchronisation."""
        measures = self._measured(*self.batches.next())
        self.optimizer.step(torch.where(self.active, measures[:, 0], 0.0).sum())
        self.sums += measures.detach()

    def advance(self, goal: int) -> list[int]:
        """Trains up to step `goal`, at most one block further; returns the models that broke
        down.
        """
        steps = goal - self.step
        self.batches.refill(steps)
        self._follow_schedules()
        self._replayed.run(steps)
        self.step, self._summed = goal, self._summed + steps
        return self._stop_broken()

    def read_measures(self) -> Tensor:
        """Means over the steps since the last call, (S, measures)."""
        means = self.sums / max(1, self._summed)
        self.sums.zero_()
        self._summed = 0
        return means

    def _stop_broken(self) -> list[int]:
        finite = self.sums.isfinite().all(1)
        for parameter in self.model.parameters():
            finite &= parameter.detach().flatten(1).sum(1).isfinite()
        broken: list[int] = (self.active & ~finite).nonzero().squeeze(1).tolist()
        with torch.no_grad():
            for model in broken:
                self.active[model] = False
                self.sums[model].zero_()
                for parameter in self.model.parameters():
                    for values in (parameter, *self.optimizer.moments(parameter)):
                        values[model].zero_()
        return broken

    def state(self) -> dict[str, Any]:
        parts = {
            "model": self.model.state_dict(),
            "batches": self.batches.state(),
            "optimizer": self.optimizer.state(),
        }
        return {
            **parts,
            "active": self.active,
            "sums": self.sums,
            "summed": self._summed,
            "step": self.step,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.batches.load_state(state["batches"])
        self.optimizer.load_state(state["optimizer"])
        self.active.copy_(state["active"])
        self.sums.copy_(state["sums"])
        self.step, self._summed = state["step"], state["summed"]


class Clock:
    """Reports the progress of a long unit, and whether its time is used up.

    Args:
        budget_seconds: for the whole process; None means no limit.
    """

    def __init__(self, budget_seconds: float | None) -> None:
        self.budget_seconds = budget_seconds
        self.started = self.last_told = time.monotonic()
        self.last_step = 0

    def tell(self, sentence: str) -> None:
        print(f"[{time.monotonic() - self.started:7.1f} s] {sentence}", file=sys.stderr, flush=True)

    def speed(self, step: int) -> str:
        """The speed since the last call, evaluations included."""
        steps, seconds = step - self.last_step, time.monotonic() - self.last_told
        self.last_step, self.last_told = step, time.monotonic()
        return f"; {1000 * seconds / steps:,.1f} ms a step" if steps else ""

    def out_of_time(self) -> bool:
        return (
            self.budget_seconds is not None
            and time.monotonic() - PROCESS_STARTED > self.budget_seconds
        )


def train(
    training: StackTraining,
    steps: int,
    mark_every: int,
    clock: Clock,
    at_mark: Callable[[], None],
    on_broken: Callable[[list[int]], None],
    save: Callable[[], None],
) -> None:
    """Trains from the current step to the last one. If the budget is used up, saves a checkpoint
    and raises a RunError.

    Args:
        training: the stack.
        steps: total number of steps.
        mark_every: steps between two marks; the last step is a mark, too.
        clock: reports progress and knows the budget.
        at_mark: called at every mark.
        on_broken: called with the models that broke down.
        save: writes a checkpoint.
    """
    saved_at = time.monotonic()
    clock.speed(training.step)  # starts the measurement
    while training.step < steps:
        mark = min(steps, training.step - training.step % mark_every + mark_every)
        if broken := training.advance(min(mark, training.step + BLOCK)):
            on_broken(broken)
        if training.step == mark:
            at_mark()
        if clock.out_of_time() or time.monotonic() - saved_at > CHECKPOINT_SECONDS:
            save()
            saved_at = time.monotonic()
        if clock.out_of_time() and training.step < steps:
            raise RunError(
                f"the {clock.budget_seconds:g} seconds are used up after {training.step} of "
                f"{steps} steps: everything is saved, and the same command goes on"
            )


@contextmanager
def tensor_cores(device: torch.device) -> Iterator[None]:
    """Allows TensorFloat-32 in matrix products on CUDA devices; elsewhere it does nothing."""
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
