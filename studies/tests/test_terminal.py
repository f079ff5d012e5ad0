"""Tables in a terminal: whole words and numbers at any width."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from diffurn_studies.harness.runner import read_published
from diffurn_studies.harness.tables import Table, text
from diffurn_studies.harness.terminal import show

RESULTS = Path(__file__).parents[2] / "results"
RUNS = sorted(path.parent for path in RESULTS.glob("*/tables.json"))
SETTINGS = "covariance, log1p, once, lr 1e-3"
METHODS = Table(
    "Errors",
    ["s", "method", *(f"error of the estimate {number}" for number in range(9))],
    [
        [shared, f"HGVAE ({SETTINGS}, log ω₀ {prior})", *("12.34 ± 0.56",) * 9]
        for shared in (1, 5)
        for prior in (-6, "learned")
    ],
    ["Means and deviations."],
)


def shown(table: Table, width: int) -> list[str]:
    file = io.StringIO()
    show(Console(file=file, width=width), table)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("run", RUNS, ids=[run.name for run in RUNS])
def test_no_word_of_a_committed_table_is_broken(run: Path, width: int) -> None:
    for table in read_published(run).tables:
        lines = shown(table, width)
        assert max(map(cell_len, lines)) <= width
        printed = " ".join(lines)
        for cell in [*table.columns, *(text(cell) for row in table.rows for cell in row)]:
            for word in cell.replace("(", " ").replace(")", " ").split():
                assert word in printed, f"{word!r} of {table.title!r} at {width} columns"


def test_a_wide_table_comes_in_parts_that_name_their_rows() -> None:
    lines = shown(METHODS, 80)
    numbers = [line for line in lines if "12.34 ± 0.56" in line]
    assert sum(line.count("12.34 ± 0.56") for line in numbers) == 4 * 9
    assert all(" HGVAE a " in line or " HGVAE b " in line for line in numbers)
    assert f"HGVAE b: {SETTINGS}, log ω₀ learned." in lines


def test_a_table_that_fits_is_shown_as_it_is() -> None:
    few = Table("Errors", METHODS.columns[:3], [row[:3] for row in METHODS.rows])
    lines = shown(few, 120)
    assert sum(f"HGVAE ({SETTINGS}, log ω₀ -6)" in line for line in lines) == 2
    assert not any(" HGVAE a " in line for line in lines)


def test_the_papers_figures_stay_beside_ours() -> None:
    columns = ["data", *(name for number in range(8) for name in (f"accuracy{number}", "paper"))]
    table = Table("Accuracy", columns, [["uniform", *("12.34 ± 0.56",) * 16]])
    heads = [line.split() for line in shown(table, 80) if "accuracy" in line]
    assert len(heads) > 1
    assert all(len(head) % 2 == 1 and head[2::2] == ["paper"] * (len(head) // 2) for head in heads)


@pytest.mark.parametrize("rows", [[], [["", None]], [[None, "a" * 200]]])
def test_empty_and_endless_cells_are_shown(rows: list[list[str | None]]) -> None:
    assert any("Empty" in line for line in shown(Table("Empty", ["one", "two"], rows), 40))
