"""Forecasts of time and memory along a sweep, so that jobs that would take too long are skipped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.cells import Case
from benchmarks.limits import CannotDoError, Limits
from benchmarks.measure import Measured

# A job of ours is tried unless its forecast is this many times the limit.
_DOUBT = 5
_YEAR, _DAY, _HOUR = 365 * 86400, 86400, 3600


@dataclass
class Forecast:
    """The measurements of one contender so far along one sweep.

    Along B, times are those of the whole job; along m and c, of one item.

    Attributes:
        axis: the size that grows.
        seconds, peaks: pairs of a size and its time or memory.
        stopped_at: the case that ran out of time.
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
        """How many of the items can be done in time; raises `CannotDoError` if none.

        Args:
            case: the job.
            items: at most so many.
            limits: of time.
            free_bytes: half of them may be used.
            divisible: whether a part of the items may be done instead of all.
        """
        if self.stopped_at is not None:
            raise CannotDoError(
                f"over {limits.longest_run:g} s at {self.stopped_at.words()} already"
            )
        size, share = self._size(case, items)
        growth = 0.0 if self.axis == "m" else 1.0
        seconds = extrapolated(self.seconds, size, growth) * share
        peak = extrapolated(self.peaks, size, growth) * share
        if divisible and seconds > limits.seconds:
            fewer = max(1, int(items * limits.seconds / seconds))
            items, seconds, peak = fewer, seconds * fewer / items, peak * fewer / items
        if peak > free_bytes / 2:
            raise CannotDoError(f"would need about {peak / 2**30:.2g} GiB")
        if seconds > limits.longest_run * (1 if divisible else _DOUBT):
            raise CannotDoError(f"would take {roughly(seconds)}")
        return items

    def _size(self, case: Case, items: int) -> tuple[int, int]:
        """The size along the axis, and the number that times are divided by."""
        return (case.size(self.axis), items) if self.axis in ("m", "c") else (items, 1)


def extrapolated(points: Sequence[tuple[float, float]], size: float, growth: float) -> float:
    """The value at a size by the power law through the last two points.

    With one point the exponent is `growth`; with none the value is zero.

    Example:
        >>> round(extrapolated([(1, 2.0), (10, 20.0)], 100, 0)), extrapolated([(10, 3.0)], 100, 0)
        (200, 3.0)
    """
    known = [(x, y) for x, y in points if y > 0]
    if not known:
        return 0.0
    x, y = known[-1]
    if len(known) > 1:
        growth = max(0.0, math.log(y / known[-2][1]) / math.log(x / known[-2][0]))
    return y * math.exp(min(700.0, growth * math.log(size / x)))


def roughly(seconds: float) -> str:
    """A long duration in words.

    Example:
        >>> roughly(50), roughly(7300), roughly(1e9)
        ('about 50 s', 'about 2 hours', 'years')
    """
    if seconds > _YEAR:
        return "years"
    for unit, length in {"days": _DAY, "hours": _HOUR}.items():
        if seconds > 2 * length:
            return f"about {seconds / length:.0f} {unit}"
    return f"about {seconds:.0f} s"
