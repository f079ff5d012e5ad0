"""How the cost of each contender grows along the sweeps of the grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.attempt import Record, is_measured
from benchmarks.cells import LAWS, OPERATIONS
from benchmarks.records import case_of, grouped
from diffurn_studies.harness.tables import Cell, Table

# Exponents of the algorithms by design; tables of samplers are √m wide.
DESIGNED = {
    "m": {
        "log_prob": 0.0,
        "moments": 0.0,
        "many-draws": 0.5,
        "one-draw-each": 0.5,
        "gradient": 0.0,
        "fit": 0.0,
    },
    "c": {
        "log_prob": 1.0,
        "moments": 1.0,
        "many-draws": 1.0,
        "one-draw-each": 1.0,
        "gradient": 1.0,
    },
    "B": dict.fromkeys(OPERATIONS, 1.0),
}
# Noise may add this much to an exponent.
_SLACK = 0.1
_FEWEST_POINTS = 3


@dataclass(frozen=True)
class Growth:
    """A power law through the points of a sweep.

    Attributes:
        axis, operation, law, fixed, contender, role: of the sweep.
        sizes, seconds, peaks: the points; seconds of the whole job, bytes or None.
        exponent: of the time.
        peak_exponent: of the memory.
    """

    axis: str
    operation: str
    law: str
    fixed: str
    contender: str
    role: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    peaks: tuple[float | None, ...]
    exponent: float | None
    peak_exponent: float | None

    @property
    def designed(self) -> float | None:
        asked = self.role == "ours" and self.law != "wallenius"
        return DESIGNED[self.axis].get(self.operation) if asked else None


def fitted_exponent(
    axis: str, sizes: Sequence[float], values: Sequence[float | None]
) -> float | None:
    """The slope of log value in log size by least squares; None with fewer than three points.

    Along m all points count; along c and B those of the upper half, where the fixed cost of a call
    no longer matters.

    Example:
        >>> fitted_exponent("m", [1, 10, 100], [3.0, 30.0, 300.0])
        1.0
    """
    points = [
        (math.log(size), math.log(value))
        for size, value in zip(sizes, values, strict=True)
        if value
    ]
    if axis != "m":
        points = points[-max(_FEWEST_POINTS, (len(points) + 1) // 2) :]
    if len(points) < _FEWEST_POINTS:
        return None
    x, y = ([point[i] for point in points] for i in (0, 1))
    centre, level = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - centre) * (b - level) for a, b in points) / sum((a - centre) ** 2 for a in x)
    return round(slope, 2) + 0.0  # no negative zero


def growths(records: Sequence[Record]) -> list[Growth]:
    """Every sweep of every contender with at least two points."""
    found = []
    swept = [
        {**record, "fixed": case_of(record).words(without=record["axis"])}
        for record in records
        if record["axis"] in DESIGNED
    ]
    for key, group in grouped(
        swept, "axis", "operation", "law", "fixed", "contender", "role"
    ).items():
        measured = [record for record in group if is_measured(record)]
        if len(measured) > 1:
            axis = key[0]
            sizes = tuple(case_of(record).size(axis) for record in measured)
            seconds = tuple(record["per_item"] * record["items"] for record in measured)
            # The memory of a part of the batch is not that of the whole.
            peaks = tuple(
                record["peak_bytes"] if record["measured_items"] == record["items"] else None
                for record in measured
            )
            exponents = fitted_exponent(axis, sizes, seconds), fitted_exponent(axis, sizes, peaks)
            _, operation, law, fixed, contender, role = key
            found.append(
                Growth(
                    axis, operation, law, fixed, contender, role, sizes, seconds, peaks, *exponents
                )
            )
    return found


def exponents(found: Sequence[Growth]) -> Table:
    """Fitted exponents, with those of the design where there are such."""
    rows: list[list[Cell]] = []
    for growth in found:
        if growth.exponent is not None:
            holds = None if growth.designed is None else growth.exponent <= growth.designed + _SLACK
            place = f"{growth.operation}, {LAWS[growth.law]}"
            power = f"{growth.axis}^{growth.exponent:.2f}"
            memory = (
                None
                if growth.peak_exponent is None
                else f"{growth.axis}^{growth.peak_exponent:.2f}"
            )
            limit = None if growth.designed is None else f"≤ {growth.axis}^{growth.designed:g}"
            rows.append([place, growth.fixed, growth.contender, power, memory, limit, holds])
    notes = [
        f"Designed exponents hold with {_SLACK:g} to spare for noise. Fitted along m over all "
        "sizes, along c and B over the upper half."
    ]
    return Table(
        "How cost grows",
        ["operation", "urns", "contender", "time", "memory", "designed", "holds"],
        rows,
        notes,
    )
