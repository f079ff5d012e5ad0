"""As fast as what one would use instead? Ours against every peer that is installed, in one process
and one run.

Every case of the grid (`bench_cells`) goes to every contender that offers it (`bench_contenders`,
`bench_scipy`, `bench_biasedurn`). Each cell is measured in rounds after a warm-up, within a time
limit (`bench_measure`), and its result compared with ours (`bench_agreement`). What would take too
long or too much memory is skipped, with the reason on record; contenders that work item by item are
given fewer items instead, and times are compared per item.

Run it with ``diffurn bench``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from benchmarks.agreement import Judge
from benchmarks.biasedurn import MissingError, RProcess, biased_urns
from benchmarks.cells import OPERATIONS, Case, Problem, Sweep, sweeps
from benchmarks.contenders import Contender, within_torch
from benchmarks.limits import CannotDoError, Limits, OutOfTimeError
from benchmarks.measure import Measured, available_bytes, expected
from diffurn_studies.harness.environment import environment, usable_device

# A forecast must be this far beyond the limit before ours is not even tried.
_DOUBT = 5
Progress = Callable[[int, int], None]
Record = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What `run` measures.

    Attributes:
        quick: a coarse grid.
        seconds: per cell, for all its rounds; a first run of ours may take thirty times as long,
            one of others ten times.
        only: operations; all if empty.
        device: where torch computes. Contenders outside torch use the CPU.
    """

    quick: bool = False
    seconds: float = 1.0
    only: tuple[str, ...] = ()
    device: str = "cpu"

    def __post_init__(self) -> None:
        unknown = [name for name in self.only if name not in OPERATIONS]
        if unknown:
            raise ValueError(
                f"there is no operation {unknown[0]!r} to measure; choose among "
                f"{', '.join(OPERATIONS)}"
            )
        if not self.seconds > 0:
            raise ValueError(f"seconds is {self.seconds}, but must be above 0")
        usable_device(self.device)


@dataclass
class Company:
    """Who takes part, the versions, and a sentence for everyone who is not installed."""

    contenders: list[Contender]
    versions: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def company(stack: ExitStack) -> Company:
    """Every contender that is installed here; what was started ends with the stack."""
    found = Company(within_torch())
    try:
        from benchmarks.with_scipy import VERSION, SciPy

        found.contenders.append(SciPy())
        found.versions["scipy"] = VERSION
    except ImportError:
        found.missing.append("SciPy is left out: it is not installed")
    try:
        process = RProcess()
        stack.callback(process.close)
        found.contenders += biased_urns(process)
        found.versions |= {"R": process.r_version, "BiasedUrn": process.version}
    except MissingError as reason:
        found.missing.append(str(reason))
    return found


@dataclass
class _Trend:
    """What a contender did so far along a sweep, to foresee what it can do next; along B in all,
    along m and c per item.
    """

    axis: str
    seconds: list[tuple[float, float]] = field(default_factory=list)
    peaks: list[tuple[float, float]] = field(default_factory=list)
    stopped_at: Case | None = None

    def note(self, case: Case, items: int, measured: Measured) -> None:
        size, share = self._size(case, items)
        if not self.seconds or self.seconds[-1][0] < size:
            self.seconds.append((size, measured.median / share))
            self.peaks.append((size, (measured.peak_bytes or 0) / share))

    def affordable(
        self, case: Case, items: int, limits: Limits, free_bytes: float, divisible: bool
    ) -> int:
        """How many of the items can be done in time, all of them unless `divisible`; raises
        `CannotDoError` where it is too much.
        """
        if self.stopped_at is not None:
            raise CannotDoError(
                f"over {limits.longest_run:g} s at {self.stopped_at.words()} already"
            )
        size, share = self._size(case, items)
        growth = 0.0 if self.axis == "m" else 1.0
        seconds, peak = (
            expected(points, size, growth) * share for points in (self.seconds, self.peaks)
        )
        if divisible and seconds > limits.seconds:
            fewer = max(1, int(items * limits.seconds / seconds))
            items, seconds, peak = fewer, seconds * fewer / items, peak * fewer / items
        if peak > free_bytes / 2:
            raise CannotDoError(f"would need about {peak / 2**30:.2g} GiB")
        if seconds > limits.longest_run * (1 if divisible else _DOUBT):
            raise CannotDoError(f"would take {_duration(seconds)}")
        return items

    def _size(self, case: Case, items: int) -> tuple[int, int]:
        return (
            (items, 1)
            if self.axis == "B"
            else (case.group_size if self.axis == "m" else case.groups, items)
        )


def _duration(seconds: float) -> str:
    """Roughly.

    Example:
        >>> _duration(50), _duration(7300), _duration(1e9)
        ('about 50 s', 'about 2 hours', 'years')
    """
    for unit, length in {"days": 86400, "hours": 3600}.items():
        if seconds > 365 * 86400:
            return "years"
        if seconds > 2 * length:
            return f"about {seconds / length:.0f} {unit}"
    return f"about {seconds:.0f} s"


def selected(options: Options) -> list[Sweep]:
    """The part of the grid that was asked for."""
    return [
        sweep
        for sweep in sweeps(options.quick)
        if not options.only or sweep.cases[0].operation in options.only
    ]


def run(
    options: Options,
    contenders: Sequence[Contender],
    grid: Sequence[Sweep],
    progress: Progress | None = None,
) -> Iterator[Record]:
    """A record for every cell of the grid."""
    device = torch.device(options.device)
    done, total = (
        0,
        sum(
            contender.offers(case)
            for sweep in grid
            for case in sweep.cases
            for contender in contenders
        ),
    )
    for sweep in grid:
        trends = {contender.name: _Trend(sweep.axis) for contender in contenders}
        for case in sweep.cases:
            judge = Judge(Problem(case, device))
            for contender in contenders:
                if contender.offers(case):
                    yield {
                        "axis": sweep.axis,
                        **_cell(judge, contender, trends[contender.name], options.seconds),
                    }
                    done += 1
                    if progress is not None:
                        progress(done, total)


def _cell(judge: Judge, contender: Contender, trend: _Trend, seconds: float) -> Record:
    problem, case = judge.problem, judge.problem.case
    asked = {
        **asdict(case),
        "draws": case.draws,
        "contender": contender.name,
        "role": contender.role,
    }
    try:
        divisible = contender.role != "ours"
        limits = Limits(seconds, patience=10.0 if divisible else 30.0)
        most = min(case.items, contender.most_items(case))
        items = trend.affordable(case, most, limits, available_bytes(problem.device), divisible)
        measured, items = _measured(problem, contender, items, limits, divisible)
        trend.note(case, items, measured)
        return {
            **asked,
            "status": "measured",
            **_figures(measured, items),
            **_judged(judge, contender, measured),
        }
    except CannotDoError as reason:
        if isinstance(reason, OutOfTimeError):
            trend.stopped_at = case
        return {**asked, "status": "skipped", "reason": str(reason)}
    except (MemoryError, torch.OutOfMemoryError):
        return {**asked, "status": "skipped", "reason": "out of memory"}
    except (
        Exception
    ) as problem_there:  # that a contender breaks is a finding, not the end of the run
        sentence = " ".join(str(problem_there).split())[:200]
        return {
            **asked,
            "status": "failed",
            "reason": f"{type(problem_there).__name__}: {sentence}",
        }


def _measured(
    problem: Problem, contender: Contender, items: int, limits: Limits, divisible: bool
) -> tuple[Measured, int]:
    """The measurement and of how many items; where many took too long, a hundredth of them gets a
    second chance.
    """
    torch.manual_seed(0)
    try:
        return contender.job(problem, items).measure(limits), items
    except OutOfTimeError:
        if not divisible or items == 1:
            raise
        fewer = max(1, items // 100)
        return contender.job(problem, fewer).measure(limits), fewer


def _figures(measured: Measured, items: int) -> Record:
    return {
        "measured_items": items,
        "seconds": list(measured.rounds),
        "repeats": measured.repeats,
        "median": measured.median,
        "spread": measured.spread,
        "per_item": measured.median / items,
        "peak_bytes": measured.peak_bytes,
    }


def _judged(judge: Judge, contender: Contender, measured: Measured) -> Record:
    case = judge.problem.case
    is_the_reference = (
        contender.role == "ours" and case.dtype == "float64" and not case.draws_counts
    )
    judged = None if contender.role == "floor" or is_the_reference else judge(measured.value)
    return {} if judged is None else asdict(judged)


def report(options: Options, members: Company, records: list[Record]) -> dict[str, Any]:
    """All that was found, with the command and where it ran."""
    chosen = "".join(f" --only {name}" for name in options.only)
    quick = " --quick" * options.quick
    return {
        "command": f"diffurn bench{quick} --device {options.device} --seconds "
        f"{options.seconds:g}{chosen}",
        "environment": environment(torch.device(options.device)) | members.versions,
        "missing": members.missing,
        "records": records,
    }
