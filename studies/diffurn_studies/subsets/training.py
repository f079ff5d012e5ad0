"""Trains a task with every contender: tuning, seeds, the variance of gradients, and time."""

from __future__ import annotations

import itertools
import json
import math
import time
from typing import Any

import torch
from torch import Tensor

from diffurn_studies.harness.records import RunError
from diffurn_studies.harness.workspace import Workspace
from diffurn_studies.stacked.steps import Replayed
from diffurn_studies.subsets.contenders import CONTENDERS, Contender
from diffurn_studies.subsets.options import TrainingOptions
from diffurn_studies.subsets.tasks import Parts, Task, parts_of, task_of

SPEED = "speed"
# The first of the seeds that choose rates and temperatures, none of which is reported.
_TUNING_SEED = 90_000
_MARKS = 10
# Steps whose rows are drawn at once.
_BLOCK = 100
_CHOICE = "choice.json"


def stages(options: TrainingOptions) -> list[list[str]]:
    """First the choice of a rate and a temperature, then the seeds."""
    return [
        [f"tune-{name}" for name in options.contenders],
        [f"{name}-seed{seed}" for name in options.contenders for seed in range(options.seeds)],
        [SPEED],
    ]


def run_unit(options: TrainingOptions, unit: str, workspace: Workspace) -> dict[str, Any]:
    parts = parts_of(options).to(workspace.device)
    if unit == SPEED:
        return _speeds(options, parts, workspace.device)
    if unit.startswith("tune-"):
        return _tuned(options, unit.removeprefix("tune-"), parts, workspace)
    name, _, seed = unit.rpartition("-seed")
    choice = _choice(workspace, name)
    contender = CONTENDERS[name](choice["temperature"])
    training = Training(options, contender, choice["rate"], int(seed), parts, workspace.device)
    record: dict[str, Any] = {**choice, "variance at the start": training.variance()}
    record["steps"], record["validation"] = [], []
    for mark in range(1, _MARKS + 1):
        training.advance(mark * options.steps // _MARKS - training.step)
        losses = training.scores("validation")
        record["steps"].append(training.step)
        record["validation"].append(losses["loss"])
        workspace.scalars(training.step, loss=losses["loss"] or math.nan)
    record["variance at the end"] = training.variance()
    return {**record, "test": training.scores("test")}


def _tuned(
    options: TrainingOptions, name: str, parts: Parts, workspace: Workspace
) -> dict[str, Any]:
    """The rate and the temperature of the smallest validation loss, and all losses."""
    temperatures = options.temperatures if CONTENDERS[name].tempered else (1.0,)
    tried = []
    for rate, temperature in itertools.product(options.rates, temperatures):
        contender = CONTENDERS[name](temperature)
        losses = []
        for seed in range(_TUNING_SEED, _TUNING_SEED + options.tuning_seeds):
            training = Training(options, contender, rate, seed, parts, workspace.device)
            training.advance(options.tuning_steps)
            losses.append(training.scores("validation")["loss"])
        finite = [loss for loss in losses if loss is not None]
        mean = math.fsum(finite) / len(finite) if len(finite) == len(losses) else None
        tried.append({"rate": rate, "temperature": temperature, "loss": mean})
    best = min(tried, key=lambda each: math.inf if each["loss"] is None else each["loss"])
    choice = {"rate": best["rate"], "temperature": best["temperature"]}
    (workspace.directory / _CHOICE).write_text(json.dumps(choice), encoding="utf-8")
    return {**choice, "tried": tried}


def _choice(workspace: Workspace, name: str) -> dict[str, float]:
    file = workspace.directory.parent / f"tune-{name}" / _CHOICE
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {key: float(content[key]) for key in ("rate", "temperature")}
    except (OSError, KeyError, ValueError) as error:
        raise RunError(
            f"{file}, the chosen rate, cannot be read: {error}; delete the record of the unit "
            f"tune-{name} to choose again"
        ) from error


class Training:
    """A task in training.

    Args:
        options: of the study.
        contender: that draws.
        rate: of Adam.
        seed: of weights, batches and draws. Weights and batches are those of all contenders.
        parts: the data.
        device: where they are.
    """

    def __init__(
        self,
        options: TrainingOptions,
        contender: Contender,
        rate: float,
        seed: int,
        parts: Parts,
        device: torch.device,
    ) -> None:
        torch.manual_seed(options.seed * 100_003 + seed)
        self.options, self.contender, self.step = options, contender, 0
        self.task: Task = task_of(options, parts).to(device)
        self.adam = torch.optim.Adam(self.task.parameters(), rate, capturable=device.type == "cuda")
        self._generator = torch.Generator().manual_seed(options.seed * 100_003 + seed)
        self._items = len(parts.train.inputs)
        taken = options.batch_size + self.task.besides
        self._rows = torch.zeros(_BLOCK, taken, dtype=torch.int64, device=device)
        self._place = torch.zeros(1, dtype=torch.int64, device=device)
        self._replayed = Replayed(self._train_step, device)

    def _train_step(self) -> None:
        rows = self._rows.index_select(0, self._place).squeeze(0)
        self._place.add_(1)
        self.adam.zero_grad()
        self.task.loss(self.contender, rows).backward()
        self.adam.step()

    def advance(self, steps: int) -> None:
        """Trains some steps; on a GPU they are replayed as a CUDA graph."""
        while steps:
            block = min(steps, _BLOCK)
            self._rows[:block] = self._drawn(block)
            self._place.zero_()
            self._replayed.run(block)
            self.step, steps = self.step + block, steps - block

    def _drawn(self, steps: int) -> Tensor:
        size = (steps, self._rows.shape[1])
        return torch.randint(self._items, size, generator=self._generator).to(self._rows.device)

    def variance(self) -> float | None:
        """The variance of the gradient of one batch over the draws, divided by the squared length
        of its mean. The batch is the same for all contenders.
        """
        size, generator = (self._rows.shape[1],), torch.Generator().manual_seed(self.options.seed)
        rows = torch.randint(self._items, size, generator=generator).to(self._rows.device)
        parameters, found = self.task.selector(), []
        for _ in range(self.options.repeats):
            slopes = torch.autograd.grad(self.task.loss(self.contender, rows), parameters)
            found.append(torch.cat([slope.flatten() for slope in slopes]))
        gradients = torch.stack(found)
        return _finite(float(gradients.var(0).sum() / gradients.mean(0).square().sum()))

    @torch.no_grad()
    def scores(self, part: str) -> dict[str, float | None]:
        found = self.task.scores(getattr(self.task.parts, part))
        return {name: _finite(value) for name, value in found.items()}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _speeds(options: TrainingOptions, parts: Parts, device: torch.device) -> dict[str, Any]:
    """Milliseconds of a step of each contender, the contenders in turns."""
    trainings = {
        name: Training(options, CONTENDERS[name](), options.rates[0], 0, parts, device)
        for name in options.contenders
    }
    times: dict[str, list[float]] = {name: [] for name in trainings}
    for training in trainings.values():
        training.advance(Replayed.WARM_UP + 2)
    for _ in range(3):
        for name, training in trainings.items():
            _wait_for(device)
            start = time.perf_counter()
            training.advance(options.timed_steps)
            _wait_for(device)
            times[name].append(1000 * (time.perf_counter() - start) / options.timed_steps)
    return {"milliseconds": {name: round(min(each), 4) for name, each in times.items()}}


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
