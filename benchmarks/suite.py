"""Compares this package with its peers: every case of the grid goes to every contender that offers
it, in one process.

Each cell is measured in rounds after a warm-up, within a time limit (`benchmarks.measure`), and its
result is compared with ours (`benchmarks.agreement`). Jobs that would take too long or too much
memory are skipped, and the reason is recorded. Contenders that work item by item get fewer items
instead; times are compared per item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.agreement import Judge
from benchmarks.attempt import Progress, Record, attempt, times_of
from benchmarks.cells import OPERATIONS, Case, Problem, Sweep
from benchmarks.contenders import Contender
from benchmarks.forecast import Forecast
from benchmarks.limits import Limits, OutOfTimeError
from benchmarks.measure import Measured
from benchmarks.memory import available_bytes
from diffurn_studies.harness.machine import usable_device

# Chooses the cells that no peer offers.
ALONE = "alone"
CHOICES = (*OPERATIONS, ALONE)


@dataclass(frozen=True)
class Options:
    """Options of `python -m benchmarks`.

    Attributes:
        quick: a coarse grid.
        seconds: per cell, for all its rounds. A first run of ours may take thirty times as long,
            one of other contenders ten times.
        only: operations of the grid, or "alone"; all if empty.
        device: where torch computes. Contenders outside torch use the CPU.
    """

    quick: bool = False
    seconds: float = 1.0
    only: tuple[str, ...] = ()
    device: str = "cpu"

    def __post_init__(self) -> None:
        unknown = [name for name in self.only if name not in CHOICES]
        if unknown:
            raise ValueError(
                f"there is no operation {unknown[0]!r} to measure; choose among "
                f"{', '.join(CHOICES)}"
            )
        if not self.seconds > 0:
            raise ValueError(f"seconds is {self.seconds}, but must be above 0")
        usable_device(self.device)

    def of_grid(self, grid: Sequence[Sweep]) -> list[Sweep]:
        """The sweeps that were chosen."""
        return [sweep for sweep in grid if not self.only or sweep.cases[0].operation in self.only]

    @property
    def has_alone(self) -> bool:
        """Whether the cells that no peer offers were chosen; quick runs leave them out."""
        return ALONE in self.only if self.only else not self.quick

    @property
    def command(self) -> str:
        chosen = "".join(f" --only {name}" for name in self.only)
        quick = " --quick" * self.quick
        return (
            f"python -m benchmarks{quick} --device {self.device} --seconds {self.seconds:g}{chosen}"
        )


def run(
    options: Options,
    contenders: Sequence[Contender],
    grid: Sequence[Sweep],
    progress: Progress | None = None,
    free_bytes: Callable[[torch.device], float] = available_bytes,
) -> Iterator[Record]:
    """A record for every cell of the grid."""
    device = torch.device(options.device)
    done, total = 0, _number_of_cells(contenders, grid)
    for sweep in grid:
        forecasts = {contender.name: Forecast(sweep.axis) for contender in contenders}
        for case in sweep.cases:
            cell = _Measurement(Judge(Problem(case, device)), options.seconds, free_bytes)
            for contender in contenders:
                if contender.offers(case):
                    yield {"axis": sweep.axis, **cell.record(contender, forecasts[contender.name])}
                    done += 1
                    if progress is not None:
                        progress(done, total)


def _number_of_cells(contenders: Sequence[Contender], grid: Sequence[Sweep]) -> int:
    cases = [case for sweep in grid for case in sweep.cases]
    return sum(contender.offers(case) for case in cases for contender in contenders)


@dataclass(frozen=True)
class _Measurement:
    """The measurement of one case."""

    judge: Judge
    seconds: float
    free_bytes: Callable[[torch.device], float]

    @property
    def case(self) -> Case:
        return self.judge.problem.case

    def record(self, contender: Contender, forecast: Forecast) -> Record:
        return {
            **asdict(self.case),
            "draws": self.case.draws,
            "contender": contender.name,
            "role": contender.role,
            **attempt(lambda: self._measure(contender, forecast)),
        }

    def _measure(self, contender: Contender, forecast: Forecast) -> Record:
        problem, case = self.judge.problem, self.case
        divisible = contender.role != "ours"
        limits = Limits(self.seconds, patience=10.0 if divisible else 30.0)
        most = min(case.items, contender.most_items(case))
        free_bytes = self.free_bytes(problem.device)
        items = forecast.affordable(case, most, limits, free_bytes, divisible)
        try:
            measured, items = _in_time(problem, contender, items, limits, divisible)
        except OutOfTimeError:
            forecast.stopped_at = case
            raise
        forecast.note(case, items, measured)
        times = {**times_of(measured, items), "peak_bytes": measured.peak_bytes}
        return {**times, **self._agreement(contender, measured)}

    def _agreement(self, contender: Contender, measured: Measured) -> Record:
        case = self.case
        is_the_reference = (
            contender.role == "ours" and case.dtype == "float64" and not case.draws_counts
        )
        if contender.role == "floor" or is_the_reference:
            return {}
        agreement = self.judge(measured.value)
        return {} if agreement is None else asdict(agreement)


def _in_time(
    problem: Problem, contender: Contender, items: int, limits: Limits, divisible: bool
) -> tuple[Measured, int]:
    """The measurement and its number of items; a hundredth of them if all take too long."""
    torch.manual_seed(0)
    try:
        return contender.job(problem, items).measure(limits), items
    except OutOfTimeError:
        if not divisible or items == 1:
            raise
        fewer = max(1, items // 100)
        return contender.job(problem, fewer).measure(limits), fewer


def report(
    options: Options,
    environment: dict[str, str],
    missing: Sequence[str],
    records: Sequence[Record],
    alone: Sequence[Record],
) -> dict[str, Any]:
    """All records, with the command and the environment."""
    return {
        "command": options.command,
        "environment": environment,
        "missing": list(missing),
        "records": list(records),
        "alone": list(alone),
    }
