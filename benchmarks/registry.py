"""All cells of this package by name: the grid that it shares with its peers, and its own."""

from __future__ import annotations

from benchmarks import alone
from benchmarks.cells import sweeps
from benchmarks.ours import Cell, of_case


def cells_of_ours() -> dict[str, Cell]:
    cases = dict.fromkeys(case for sweep in sweeps() for case in sweep.cases)
    found = [*map(of_case, cases), *alone.cells()]
    named = {cell.name: cell for cell in found}
    assert len(named) == len(found), "two cells have the same name"
    return named
