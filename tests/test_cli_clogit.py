"""`diffurn clogit`: its output and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from diffurn import clogit
from diffurn.cli import app
from support.strata import study

FRAME = pd.DataFrame(study().columns())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    FRAME.to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


def run(*arguments: Any, stdin: bytes | None = None) -> Result:
    done = CliRunner().invoke(app, ["clogit", *map(str, arguments)], input=stdin)
    assert done.exit_code == 0, done.output
    return done


def test_the_report_is_that_of_python_in_eighty_columns(path: Path) -> None:
    done = run(path, "case ~ x + C(group)", "--strata", "stratum")
    result = clogit("case ~ x + C(group)", data=FRAME, strata="stratum")
    assert done.stdout.splitlines() == str(result).splitlines()
    assert max(map(len, done.stdout.splitlines())) <= 80


def to_ten_digits(number: str) -> float:
    """The last digits depend on where a process keeps its tensors."""
    return float(f"{float(number):.10g}")


def test_options_are_those_of_python(path: Path) -> None:
    options = ["--offset", "offset", "--level", "0.9", "--interval", "wald", "--penalty", "firth"]
    done = run(path, "case ~ x + w + strata(stratum)", *options, "--json")
    record = json.loads(done.stdout, parse_float=to_ten_digits)
    result = clogit(
        "case ~ x + w + strata(stratum)",
        data=FRAME,
        offset="offset",
        level=0.9,
        interval="wald",
        penalty="firth",
    )
    assert record == json.loads(json.dumps(result.to_dict()), parse_float=to_ten_digits)
    assert record["penalty"] == "firth"


def test_robust_and_clustered_errors_are_named(path: Path) -> None:
    done = run(path, "case ~ x", "--strata", "stratum", "--robust")
    assert "robust standard errors (HC0) from 4" in done.stdout
    FRAME.assign(pair=(FRAME["stratum"] + 1) // 2).to_csv(path, index=False)
    done = run(path, "case ~ x", "--strata", "stratum", "--cluster", "pair")
    assert "G = 2 clusters" in " ".join(done.stdout.split())


def test_missing_cells_are_left_out_with_a_note(path: Path) -> None:
    frame = FRAME.astype({"x": object})
    frame.loc[[2, 7], "x"] = ["NA", ""]
    frame.to_csv(path, index=False)
    done = run(path, "case ~ x", "--strata", "stratum")
    assert "Note: 2 of 50 rows have missing values and are left out" in done.stdout


def test_a_figure_is_written_and_named(path: Path) -> None:
    figure = path.with_name("odds.svg")
    done = run(path, "case ~ x + w", "--strata", "stratum", "--figure", figure)
    assert figure.read_bytes().startswith(b"<?xml")
    assert done.stdout.rstrip().endswith(f"Figure: {figure}")


def test_the_standard_input_is_read(path: Path) -> None:
    stdin = path.read_bytes()
    done = run("-", "case ~ x", "--strata", "stratum", stdin=stdin)
    assert "23 cases among 50 rows" in done.stdout


def test_labels_of_strata_may_be_of_any_kind(path: Path) -> None:
    """Numbers and text in one column name strata, but would be no covariate."""
    frame = FRAME.assign(stratum=FRAME["stratum"].map({1: "1", 2: "A2", 3: "3", 4: "04"}))
    frame.to_csv(path, index=False)
    done = run(path, "case ~ x + w", "--strata", "stratum", "--json")
    expected = clogit("case ~ x + w", data=FRAME, strata="stratum")
    found = [row["beta"] for row in json.loads(done.stdout)["coefficients"]]
    assert found == pytest.approx(expected.coefficients.tolist(), abs=1e-12)
