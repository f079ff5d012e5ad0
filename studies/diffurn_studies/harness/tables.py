"""Tables as plain data: studies fill them, the terminal and the report show them."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diffurn_studies.harness.kinds import CELL, TEXT, entries, list_of

Cell = str | int | float | bool | None
_LOOKS_LIKE_A_NUMBER = re.compile(r"[-−+±<>≤≥~≈]?\s*[\d.]")


@dataclass(frozen=True)
class Table:
    """A titled table.

    Args:
        title: of the table.
        columns: headings; the report sets columns called ``paper`` and ``difference`` apart.
        rows: one cell per column; a string is shown as it is, a float with four digits, None as a
            dash.
        notes: sentences below the table.

    Example:
        >>> rows, notes = [["fair", 0.50213, 0.5]], ["A thousand tosses."]
        >>> table = Table("Heads", ["coin", "ours", "paper"], rows, notes)
        >>> [text(cell) for cell in table.rows[0]]
        ['fair', '0.5021', '0.5']
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"a row of table {self.title!r} has {len(row)} cells for {len(self.columns)} "
                    f"columns: {list(row)}"
                )

    def is_numeric(self, column: int) -> bool:
        """Whether a column holds numbers, which are aligned to the right."""
        cells = [text(row[column]) for row in self.rows if not _is_empty(row[column])]
        return bool(cells) and all(_LOOKS_LIKE_A_NUMBER.match(cell) for cell in cells)

    def as_json(self) -> dict[str, Any]:
        rows = [[text(cell) if _is_unbounded(cell) else cell for cell in row] for row in self.rows]
        return {
            "title": self.title,
            "columns": list(self.columns),
            "rows": rows,
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, content: Any) -> Table:
        """The table that `as_json` wrote; a ValueError if the content is anything else."""
        return cls(
            *entries(
                content,
                title=TEXT,
                columns=list_of(TEXT),
                rows=list_of(list_of(CELL)),
                notes=list_of(TEXT),
            )
        )


def text(cell: Cell) -> str:
    """A cell as it is shown."""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if _is_empty(cell):
        return "–"
    if _is_unbounded(cell):
        return "∞" if cell == math.inf else "−∞"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    Example:
        >>> counted(1, "seed"), counted(5, "seed")
        ('1 seed', '5 seeds')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time in the unit that reads best.

    Example:
        >>> duration(42.0), duration(600.0), duration(9000.0)
        ('42 seconds', '10.0 minutes', '2.5 hours')
    """
    for size, unit in ((3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"


def mean_and_deviation(values: Sequence[float], digits: int = 2, tight: bool = False) -> str | None:
    """The mean with the standard deviation of a sample; `tight` is for tables of many columns.

    Example:
        >>> mean_and_deviation([1.0, 2.0, 3.0]), mean_and_deviation([1.0], digits=1)
        ('2.00 ± 1.00', '1.0')
    """
    if len(values) < 2:
        return f"{values[0]:.{digits}f}" if values else None
    return with_deviation(statistics.fmean(values), statistics.stdev(values), digits, tight)


def with_deviation(mean: float, deviation: float, digits: int, tight: bool = False) -> str:
    return f"{mean:.{digits}f}{'±' if tight else ' ± '}{deviation:.{digits}f}"


def _is_empty(cell: Cell) -> bool:
    return cell is None or cell == "–" or (isinstance(cell, float) and math.isnan(cell))


def _is_unbounded(cell: Cell) -> bool:
    """Whether JSON has no number for this float."""
    return isinstance(cell, float) and not math.isfinite(cell)
