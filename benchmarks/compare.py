"""Is one revision of the library slower than another? Ratios of times, cell by cell.

Two worker processes (`benchmarks.worker`) stay alive, one for each source tree, and take turns of a
few milliseconds, so that other load on the machine hits both. Every cell is timed in rounds of
several turns; the least processor times of a round give one ratio. The ratio of a cell is the
median over its rounds. Cells that seem slower are measured again, with more rounds and in new
processes, and those rounds count.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.workers import Timed, Worker, WorkerError

# Beyond this ratio a cell is slower; beyond the other, it is measured again.
SLOWER, SUSPECT = 1.10, 1.05
# How often suspects are measured again: where a process happens to keep its memory changes its
# speed by some percent, so one pair of processes cannot tell.
_AGAIN = 2
# Seconds below which several runs are timed together.
_SHORTEST = 0.002
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Effort:
    """How carefully a cell is measured.

    Attributes:
        rounds: how many ratios.
        seconds: in each round, of each tree; at least one run.
        turns: the largest number of turns in a round, of which the least time counts.
        longest: cells with longer runs are left out.
    """

    rounds: int = 5
    seconds: float = 0.06
    turns: int = 12
    longest: float = 3.0

    @property
    def more(self) -> Effort:
        """For cells that seem slower."""
        return Effort(3 * self.rounds, 2 * self.seconds, 2 * self.turns, self.longest)


@dataclass(frozen=True)
class Comparison:
    """The rounds of one cell: seconds of one run of each tree."""

    cell: str
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        return [after / before for before, after in zip(self.before, self.after, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def ratio_of_best(self) -> float:
        """Of the least times over all rounds: what a quiet machine would show."""
        return min(self.after) / min(self.before)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


@dataclass(frozen=True)
class NotCompared:
    """A cell that at least one tree cannot do, with the error of each; empty if it can."""

    cell: str
    before: str
    after: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


Outcome = Comparison | NotCompared


def compared(before: Timed, after: Timed, cell: str, effort: Effort) -> Outcome:
    """Measures one cell."""
    times, errors = [], []
    for worker in (before, after):
        try:
            times.append(worker.seconds(cell=cell, longest=effort.longest))
            errors.append("")
        except WorkerError as error:
            errors.append(str(error))
    if any(errors):
        return NotCompared(cell, *errors)
    slowest = max(*times, 1e-7)
    if slowest > effort.longest:
        return NotCompared(cell, *(f"a run takes {seconds:.1f} s" for seconds in times))
    runs = max(1, round(_SHORTEST / slowest))
    turns = max(1, min(effort.turns, int(effort.seconds / (runs * slowest))))
    try:
        rounds = [_round(before, after, runs, turns, index) for index in range(effort.rounds)]
    except WorkerError as error:
        return NotCompared(cell, str(error), str(error))
    return Comparison(cell, *zip(*rounds, strict=True))


def _round(before: Timed, after: Timed, runs: int, turns: int, index: int) -> tuple[float, float]:
    """The least seconds of each tree. The trees begin by turns, in every round and turn."""
    least = [math.inf, math.inf]
    for turn in range(index, index + turns):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            seconds = (before, after)[side].seconds(runs=runs)
            least[side] = min(least[side], seconds)
    return least[0], least[1]


def run(
    sources: tuple[Path, Path],
    cells: Sequence[str],
    effort: Effort,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Iterator[Outcome]:
    """Every cell once, then up to twice again those that seem slower, in new processes each time;
    of several outcomes of one cell the last counts.
    """
    with tempfile.TemporaryDirectory(prefix="diffurn-") as folder:
        suspects: list[str] = []
        for outcome in _pass(sources, cells, effort, device, Path(folder), progress):
            suspects += [outcome.cell] * is_suspect(outcome)
            yield outcome
        again: dict[str, Comparison] = {}
        for _ in range(_AGAIN):
            found = _pass(sources, suspects, effort.more, device, Path(folder), progress)
            suspects = []
            for outcome in found:
                if isinstance(outcome, Comparison):
                    outcome = again[outcome.cell] = pooled(again.get(outcome.cell), outcome)
                suspects += [outcome.cell] * is_suspect(outcome)
                yield outcome


def is_suspect(outcome: Outcome) -> bool:
    return isinstance(outcome, Comparison) and outcome.ratio > SUSPECT


def pooled(earlier: Comparison | None, later: Comparison) -> Comparison:
    """The rounds of both."""
    if earlier is None:
        return later
    return Comparison(later.cell, earlier.before + later.before, earlier.after + later.after)


def _pass(
    sources: tuple[Path, Path],
    cells: Sequence[str],
    effort: Effort,
    device: str,
    inputs: Path,
    progress: Progress | None,
) -> Iterator[Outcome]:
    if not cells:
        return
    with (
        Worker(sources[0], inputs, device) as before,
        Worker(sources[1], inputs, device) as after,
    ):
        for done, cell in enumerate(cells, 1):
            yield compared(before, after, cell, effort)
            if progress is not None:
                progress(done, len(cells))
