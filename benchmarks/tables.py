"""Tables of a run: ratios, cells in which a peer is faster, growth, and the cells without peers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.attempt import Record, is_measured
from benchmarks.cells import LAWS, OPERATIONS, Case, short
from benchmarks.growth import exponents, growths
from benchmarks.records import case_of, grouped
from diffurn_studies.harness.tables import Cell, Table, text


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


def size(number: int) -> str:
    """Bytes with a unit.

    Example:
        >>> size(58), size(12_345), size(3_100_000_000)
        ('58 B', '12 kB', '3.1 GB')
    """
    for unit, length in {"GB": 1e9, "MB": 1e6, "kB": 1e3}.items():
        if number >= length:
            return f"{_two_digits(number / length):g} {unit}"
    return f"{number} B"


def quotient(ours: float, theirs: float) -> str:
    """Two digits.

    Example:
        >>> quotient(1.0, 3.0), quotient(1234.0, 1.0), quotient(1.0, 1e5)
        ('0.33', '1,200', '1e-05')
    """
    digits = f"{ours / theirs:.2g}"
    return f"{float(digits):,.0f}" if ours / theirs >= 10 else digits


def ratios(records: Sequence[Record]) -> Iterator[Table]:
    """A table for each operation and law: rows are cases, columns are contenders."""
    for (operation, law), group in grouped(records, "operation", "law").items():
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
    """Our time over theirs, per item, and how their result differs; their time if there is none of
    ours.
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
    """Every cell in which a peer of the same accuracy is faster."""
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
        # The fixed cost of small urns is lower.
        return f"the fixed cost of a call, {duration(min(call, own['median']))}"
    if own["law"] == "wallenius" and own["operation"] == "moments":
        return "ours is an integral over Fisher's moments; theirs a sum that grows with m"
    return f"the work itself, {duration(own['median'])}" + (
        f"; a call costs {duration(call)} whatever B" if call else ""
    )


def without_peers(records: Sequence[Record]) -> Table:
    """The cells that no peer offers."""
    rows: list[list[Cell]] = []
    for record in records:
        if not is_measured(record):
            rows.append([record["cell"], record["reason"], None, None, None])
            continue
        rate = f"{_two_digits(1 / record['per_item']):,.0f}"
        peak = record.get("peak_bytes")
        memory = None if peak is None else size(peak)
        operations = record.get("operations")
        rows.append([record["cell"], duration(record["median"]), rate, memory, operations])
    return Table(
        "Jobs without a peer",
        ["cell", "time of a run", "items per second", "peak memory", "operations"],
        rows,
        ["Operations are those of torch, forward and backward, without views."],
    )


def _two_digits(number: float) -> float:
    return float(f"{number:.2g}")


def all_tables(
    records: Sequence[Record], alone: Sequence[Record], missing: Sequence[str]
) -> list[Table]:
    tables = list(ratios(records))
    notes = [
        "Ratios are our time over theirs, per item: below 1 ours is faster.",
        "In brackets: the difference of a result that is not equal to the promised accuracy.",
        *missing,
    ]
    if tables:
        last = tables[-1]
        tables[-1] = Table(last.title, last.columns, last.rows, notes)
        tables += [exceptions(records), exponents(growths(records))]
    return [*tables, without_peers(alone)] if alone else tables


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
