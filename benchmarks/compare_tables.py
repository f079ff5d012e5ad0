"""Tables of a comparison of two source trees."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.compare import SLOWER, Comparison, NotCompared, Outcome
from benchmarks.tables import duration
from diffurn_studies.harness.tables import Table


def compare_tables(outcomes: Sequence[Outcome]) -> list[Table]:
    """Ratios, the largest first, and the cells without one; of two outcomes of a cell the later
    counts.
    """
    latest = {outcome.cell: outcome for outcome in outcomes}.values()
    found = [outcome for outcome in latest if isinstance(outcome, Comparison)]
    found.sort(key=lambda comparison: comparison.ratio, reverse=True)
    tables = [
        Table(
            "Time after / time before",
            ["cell", "before", "after", "ratio", "quartiles", "of the best", "rounds"],
            [_row(comparison) for comparison in found],
            [summary(found)],
        )
    ]
    missing = [outcome for outcome in latest if isinstance(outcome, NotCompared)]
    if missing:
        rows = [[outcome.cell, outcome.before or "–", outcome.after or "–"] for outcome in missing]
        tables.append(Table("Not compared", ["cell", "before", "after"], rows))
    return tables


def _row(comparison: Comparison) -> list[str | int]:
    seconds = (statistics.median(side) for side in (comparison.before, comparison.after))
    low, high = quartiles(comparison.ratios)
    spread = f"{low:.2f} to {high:.2f}"
    ratios = f"{comparison.ratio:.3f}", spread, f"{comparison.ratio_of_best:.3f}"
    return [comparison.cell, *map(duration, seconds), *ratios, len(comparison.before)]


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The lower and the upper one.

    Example:
        >>> quartiles([1.0, 2.0, 3.0, 4.0, 5.0])
        (2.0, 4.0)
    """
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def summary(found: Sequence[Comparison]) -> str:
    """How many cells are slower and faster, in a sentence."""
    if not found:
        return "No cell was compared."
    slower = sum(comparison.ratio > SLOWER for comparison in found)
    faster = sum(comparison.ratio < 1 / SLOWER for comparison in found)
    median = statistics.median(comparison.ratio for comparison in found)
    return (
        f"{len(found)} cells: {slower} slower by more than {SLOWER - 1:.0%}, {faster} faster by "
        f"more than that; the median ratio is {median:.3f}."
    )
