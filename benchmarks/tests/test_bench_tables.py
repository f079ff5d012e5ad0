"""Tables and figures of a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bench_fakes import CPU, Fake, along_m, cell, records_of

from benchmarks.agreement import Judge
from benchmarks.cells import Case, Problem, Sweep
from benchmarks.contenders import within_torch
from benchmarks.figure import STYLES, scaling
from benchmarks.growth import exponents, fitted_exponent, growths
from benchmarks.tables import all_tables, as_markdown, exceptions, ratios
from diffurn_studies.harness.tables import text


def test_exponents_of_power_laws_are_found_exactly_and_fixed_costs_are_left_behind() -> None:
    sizes = [10**k for k in range(9)]
    assert fitted_exponent("m", sizes, [2e-6 * size**0.5 for size in sizes]) == 0.5
    assert fitted_exponent("B", sizes, [1e-3 + 1e-6 * size for size in sizes]) == pytest.approx(
        1.0, abs=0.03
    )
    assert fitted_exponent("c", sizes[:2], [1.0, 2.0]) is None
    assert fitted_exponent("m", [1, 2, 3, 4], [None, 1.0, None, 1.0]) is None


def test_ratios_are_ours_over_theirs_per_item() -> None:
    ours = Fake("diffurn", "ours", lambda case, items: 0.01)
    peer = Fake("peer", "peer", lambda case, items: 0.04 * items / 100, most=50)
    table = next(ratios(records_of(ours, peer)))
    assert list(table.columns) == ["c", "m", "B", "diffurn, per item", "peer"]
    assert [text(each) for each in table.rows[0]] == ["3", "10", "100", "100 µs", "0.25"]


def test_cells_say_what_is_wrong_with_a_result_and_why_one_is_missing() -> None:
    grid = along_m("moments", (10,))
    exact = Judge(Problem(grid.cases[0], CPU)).reference
    ours = Fake("diffurn", "ours", lambda case, items: 0.01)
    off = Fake("off", "peer", lambda case, items: 0.01, lambda case, items: exact * 1.01)
    broken = Fake(
        "broken",
        "peer",
        lambda case, items: 0.01,
        lambda case, items: np.where(np.arange(100)[:, None] < 3, np.nan, exact),
    )
    refusing = Fake("refusing", "peer", lambda case, items: 0.01, most=0)
    table = next(ratios(records_of(ours, off, broken, refusing, grid=grid)))
    assert cell(table, 0, "off") == "1 [differs by 1e-02]"
    assert cell(table, 0, "broken") == "1 [nan at 3 of 100]"
    assert cell(table, 0, "refusing") == "not my business"


def test_every_faster_peer_of_the_same_accuracy_is_an_exception_with_a_reason() -> None:
    grid = Sweep("B", tuple(Case("gradient", "fisher", 3, 10, size) for size in (1, 10, 1000)))
    ours = Fake("diffurn", "ours", lambda case, items: 0.01 + 1e-4 * items)
    table = exceptions(
        records_of(ours, Fake("peer", "peer", lambda case, items: 2.02e-4 * items), grid=grid)
    )
    assert [row[3] for row in table.rows] == ["1", "10"]
    assert cell(table, 0, "ours / theirs") == "50"
    assert cell(table, 0, "why") == "the fixed cost of a call, 10.1 ms"
    work = exceptions(
        records_of(ours, Fake("peer", "peer", lambda case, items: 1e-5 * items), grid=grid)
    )
    assert cell(work, 2, "why") == "the work itself, 110 ms; a call costs 10.1 ms whatever B"
    assert exceptions(records_of(ours)).notes == ["Nowhere."]


def test_designed_exponents_are_checked_for_ours_alone() -> None:
    flat = Fake("diffurn", "ours", lambda case, items: 0.01)
    growing = Fake("peer", "peer", lambda case, items: 1e-4 * case.group_size)
    table = exponents(growths(records_of(flat, growing)))
    assert [[text(each) for each in row[2:]] for row in table.rows] == [
        ["diffurn", "m^0.00", "m^0.00", "≤ m^0", "yes"],
        ["peer", "m^1.00", "m^0.00", "–", "–"],
    ]
    worse = exponents(
        growths(records_of(replace(flat, seconds=lambda case, items: 1e-4 * case.group_size)))
    )
    assert cell(worse, 0, "holds") == "no"


def test_figures_have_a_panel_for_every_sweep_and_a_style_for_every_contender() -> None:
    ours = Fake("diffurn", "ours", lambda case, items: 0.01)
    found = growths(records_of(ours, Fake("another", "peer", lambda case, items: 0.02)))
    figure = scaling(found, "fisher", "time", "a machine")
    assert figure is not None
    assert [panel.get_title() for panel in figure.axes] == ["gradient: c = 3, B = 100"]
    assert scaling(found, "wallenius", "time", "a machine") is None
    styles = {
        (style["marker"], style["color"], style.get("linestyle")) for style in STYLES.values()
    }
    assert len(styles) == len(STYLES)
    assert {contender.name for contender in within_torch()} < STYLES.keys()


def test_markdown_has_every_table() -> None:
    tables = all_tables(
        records_of(Fake("diffurn", "ours", lambda case, items: 0.01)),
        [],
        ["SciPy is left out: it is not installed"],
    )
    page = as_markdown(tables)
    assert all(f"## {table.title}" in page for table in tables)
    assert "| 3 | 10 | 100 | 100 µs |" in page
    assert "SciPy is left out" in page
