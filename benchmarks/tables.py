"""What `diffurn bench` found, as tables: ratios, exceptions and how cost grows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from benchmarks.cells import LAWS, OPERATIONS, Case, short
from diffurn_studies.harness.tables import Cell, Table, text

Record = dict[str, Any]
# Exponents that the algorithms were designed for, by axis and operation; sampling may look up
# tables √m wide.
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
# What noise may add to an exponent.
_SLACK = 0.1
_FEWEST_POINTS = 3


def case_of(record: Record) -> Case:
    return Case(**{field.name: record[field.name] for field in fields(Case)})


def is_measured(record: Record) -> bool:
    return bool(record["status"] == "measured")


def duration(seconds: float) -> str:
    """Seconds with a unit.

    Example:
        >>> duration(2.5e-7), duration(0.0123), duration(4.0)
        ('250 ns', '12.3 ms', '4 s')
    """
    for unit, length in {"s": 1.0, "ms": 1e-3, "µs": 1e-6}.items():
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def quotient(ours: float, theirs: float) -> str:
    """Two digits.

    Example:
        >>> quotient(1.0, 3.0), quotient(1234.0, 1.0), quotient(1.0, 1e5)
        ('0.33', '1,200', '1e-05')
    """
    digits = f"{ours / theirs:.2g}"
    return f"{float(digits):,.0f}" if ours / theirs >= 10 else digits


def ratios(records: Sequence[Record]) -> Iterator[Table]:
    """One table an operation and law: a row for each case, a column for each contender."""
    for (operation, law), group in _grouped(records, "operation", "law").items():
        rivals = list(
            dict.fromkeys(record["contender"] for record in group if record["role"] != "ours")
        )
        rows: dict[tuple[str, Case], dict[str, Record]] = {}
        for record in group:
            rows.setdefault((record["axis"], case_of(record)), {})[
                record["contender"] if record["role"] != "ours" else ""
            ] = record
        cells = [
            [
                *_sizes(case),
                _own(row.get("")),
                *(_ratio(row.get(""), row.get(rival)) for rival in rivals),
            ]
            for (_, case), row in rows.items()
        ]
        yield Table(
            f"{OPERATIONS[operation]}, {LAWS[law]}",
            ["c", "m", "B", "diffurn, per item", *rivals],
            cells,
        )


def _sizes(case: Case) -> list[Cell]:
    precision = "" if case.dtype == "float64" else f" {case.dtype}"
    return [short(case.groups), short(case.group_size), short(case.items) + precision]


def _own(ours: Record | None) -> Cell:
    if ours is None or not is_measured(ours):
        return ours["reason"] if ours else None
    return _with(duration(ours["per_item"]), ours)


def _ratio(ours: Record | None, theirs: Record | None) -> Cell:
    """Our time over theirs, per item, and what is wrong with theirs; their own time where there is
    none of ours.
    """
    if theirs is None:
        return None
    if not is_measured(theirs):
        return str(theirs["reason"])
    if ours is None or not is_measured(ours):
        return _with(duration(theirs["per_item"]), theirs)
    return _with(quotient(ours["per_item"], theirs["per_item"]), theirs)


def _with(figure: str, record: Record) -> str:
    return f"{figure} [{record['words']}]" if record.get("words") else figure


def exceptions(records: Sequence[Record]) -> Table:
    """Every cell in which a peer does the same job to the same accuracy in less time."""
    ours = {
        (record["axis"], case_of(record)): record
        for record in records
        if record["role"] == "ours" and is_measured(record)
    }
    rows: list[list[Cell]] = []
    for record in records:
        own = ours.get((record["axis"], case_of(record)))
        if (
            own
            and record["role"] == "peer"
            and is_measured(record)
            and record.get("same", True)
            and own["per_item"] > record["per_item"]
        ):
            place = f"{record['operation']}, {LAWS[record['law']]}"
            ratio = quotient(own["per_item"], record["per_item"])
            rows.append(
                [
                    place,
                    *_sizes(case_of(record)),
                    record["contender"],
                    ratio,
                    _reason(own, list(ours.values())),
                ]
            )
    columns = ["operation", "c", "m", "B", "peer", "ours / theirs", "why"]
    return Table(
        "Where a peer of the same accuracy is faster", columns, rows, [] if rows else ["Nowhere."]
    )


def _reason(own: Record, ours: Sequence[Record]) -> str:
    same = own["operation"], own["law"], 1, "float64"
    single = [
        r["median"] for r in ours if (r["operation"], r["law"], r["items"], r["dtype"]) == same
    ]
    call = min(single, default=0.0)
    if own["median"] < 2 * call:
        # small urns have one of their own
        return f"the fixed cost of a call, {duration(min(call, own['median']))}"
    if own["law"] == "wallenius" and own["operation"] == "moments":
        return "ours is an integral over Fisher's moments; theirs a sum that grows with m"
    return f"the work itself, {duration(own['median'])}" + (
        f"; a call costs {duration(call)} whatever B" if call else ""
    )


@dataclass(frozen=True)
class Growth:
    """A power law through the points of a sweep.

    Attributes:
        axis, operation, law, fixed, contender, role: which sweep of whom.
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
    """The slope of log value in log size by least squares: along m over all points, else over the
    upper half, where the fixed cost of a call is behind; None with fewer than three points.

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
    """Every sweep of every contender that has two points at least."""
    found = []
    swept = [
        {**record, "fixed": case_of(record).words(without=record["axis"])}
        for record in records
        if record["axis"] in DESIGNED
    ]
    for key, group in _grouped(
        swept, "axis", "operation", "law", "fixed", "contender", "role"
    ).items():
        measured = [record for record in group if is_measured(record)]
        if len(measured) > 1:
            axis = key[0]
            sizes = tuple(case_of(record).size(axis) for record in measured)
            seconds = tuple(record["per_item"] * record["items"] for record in measured)
            # Memory of a part of the batch says nothing about the whole.
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
    """Fitted exponents, beside the designed ones where there are such."""
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


def all_tables(records: Sequence[Record], missing: Sequence[str]) -> list[Table]:
    tables = list(ratios(records))
    notes = [
        "Ratios are our time over theirs, per item: below 1 ours is faster.",
        "In brackets: what keeps a result from being the same to the promised accuracy.",
        *missing,
    ]
    if tables:
        last = tables[-1]
        tables[-1] = Table(last.title, last.columns, last.rows, notes)
    return [*tables, exceptions(records), exponents(growths(records))]


def as_markdown(tables: Sequence[Table]) -> str:
    """All tables as a page."""
    parts = []
    for table in tables:
        lines = [
            table.columns,
            ["---"] * len(table.columns),
            *([text(cell) for cell in row] for row in table.rows),
        ]
        rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        parts.append("\n\n".join([f"## {table.title}", rows, *table.notes]))
    return "\n\n".join(parts) + "\n"


def _grouped(records: Sequence[Record], *names: str) -> dict[tuple[Any, ...], list[Record]]:
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in names), []).append(record)
    return groups
