"""Bad input of `clogit` and of `diffurn clogit`: one clear sentence, and nothing written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from diffurn import clogit
from diffurn.cli import app

COLUMNS: dict[str, list[Any]] = {
    "case": [1, 0, 0, 1, 0, 1, 0, 0],
    "age": [30.0, 40.0, 50.0, 20.0, 60.0, 35.0, 44.0, 22.0],
    "smoker": ["no", "yes", "no", "no", "yes", "yes", "no", "yes"],
    "set": [1, 1, 1, 2, 2, 3, 3, 3],
}
FORMULA = "case ~ age + smoker"

# what is wrong, the columns that differ, the formula, and words of the sentence
FAULTS: list[tuple[str, dict[str, list[Any]], str, str]] = [
    ("no informative stratum", {"case": [0] * 8}, FORMULA, "no stratum has both a case and a"),
    ("constant", {"k": [1, 1, 1, 2, 2, 5, 5, 5]}, "case ~ age + k", "'k' has one value within ev"),
    ("collinear", {"k": [2 * a for a in COLUMNS["age"]]}, "case ~ age + k", "'k' is, up to roundi"),
    ("words among numbers", {"age": [1, 2, "x", 3, 4, 5, 6, 7]}, FORMULA, "'x'"),
    ("unknown covariate", {}, "case ~ agee", "agee"),
    ("unknown stratum", {}, "case ~ age + strata(sett)", "'sett'"),
    ("outcome of two", {"case": [1, 2] * 4}, FORMULA, "must be 1 for a case and 0 for a control"),
    ("outcome of text", {"case": ["y", "n"] * 4}, FORMULA, "is text"),
    ("no covariates", {}, "case ~ strata(set)", "there are no covariates"),
    ("no left side", {}, "~ age", "has no left side"),
    ("unfinished formula", {}, "case ~ age +", "cannot be read"),
    ("factor of one level", {"smoker": ["no"] * 8}, FORMULA, "two levels or more"),
    ("logarithm of zero", {"age": [0.0, *COLUMNS["age"][1:]]}, "case ~ log(age)", "is -inf in"),
    ("all missing", {"age": [None] * 8}, FORMULA, "every row has a missing value"),
    ("interaction with strata", {}, "case ~ age*strata(set)", "terms of their own"),
]
NAMES = [name for name, *_ in FAULTS]


@pytest.mark.parametrize(("name", "columns", "formula", "words"), FAULTS, ids=NAMES)
def test_a_fault_of_a_frame_is_one_sentence(
    name: str, columns: dict[str, list[Any]], formula: str, words: str
) -> None:
    frame = pd.DataFrame({**COLUMNS, **columns})
    strata = None if "strata(" in formula else "set"
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        clogit(formula, data=frame, strata=strata)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "columns", "formula", "words"), FAULTS, ids=NAMES)
def test_a_fault_of_a_file_ends_with_status_two_and_writes_nothing(
    name: str, columns: dict[str, list[Any]], formula: str, words: str, tmp_path: Path
) -> None:
    path, figure = tmp_path / "data.csv", tmp_path / "figure.png"
    pd.DataFrame({**COLUMNS, **columns}).to_csv(path, index=False)
    options = [] if "strata(" in formula else ["--strata", "set"]
    done = CliRunner().invoke(
        app, ["clogit", str(path), formula, *options, "--figure", str(figure), "--json"]
    )
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("diffurn: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert not figure.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "the file is empty"),
        ("case,age,set\n", "no row below it"),
        ("case,age,set\n1,2,1\n0,inf,1\n", "line 3, column 'age': 'inf' is not a number"),
        ("case,age,set\n1,2,1\n0,x,1\n0,3,1\n", "line 3, column 'age': 'x' is not a number"),
        ("case,age,set\n1,2\n", "line 2: too few cells"),
        ("PK\x03\x04", "ZIP archive"),
    ],
)
def test_a_file_that_is_no_table_is_refused(content: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(content)
    done = CliRunner().invoke(app, ["clogit", str(path), "case ~ age", "--strata", "set"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--level", "1.5"], "--level 1.5"),
        (["--ridge", "2"], "--penalty ridge"),
        (["--figure", "x.bmp"], "must end in .png"),
        (["--robust", "--cluster", "set"], "give one of the two"),
        (["--offset", "nope"], "there is no column 'nope'"),
        (["--interval", "profile", "--robust"], "interval"),
        (["--weights", "age"], "differs within a stratum"),
        (["--model", "wallenius", "--penalty", "firth"], "wallenius"),
    ],
)
def test_options_that_cannot_be_are_refused(options: list[str], words: str, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    pd.DataFrame(COLUMNS).to_csv(path, index=False)
    done = CliRunner().invoke(app, ["clogit", str(path), FORMULA, "--strata", "set", *options])
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert words in done.stderr


CASE, SETS = COLUMNS["case"], COLUMNS["set"]
AGE = np.array(COLUMNS["age"])


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (([1, 0], [[1.0], [2.0], [3.0]], [1, 1, 1]), {}, "y has 2 rows, but strata has 3"),
        (([1, 0],), {}, "there are no covariates"),
        (("case ~ age",), {}, "so data is needed"),
        ((CASE, np.where(AGE == 50, np.inf, AGE), SETS), {}, "x1 is inf in row 2"),
        ((CASE, torch.zeros(8, 1, 1), SETS), {}, "must be (rows, columns)"),
        ((CASE, AGE, SETS), {"weights": [1, 2] * 4}, "weights differs within a stratum"),
        ((CASE, AGE, SETS), {"weights": [0.5] * 8}, "an integer from 0 to 2^53"),
        ((CASE, AGE, SETS), {"cluster": [1, 2] * 4}, "cluster differs within a stratum"),
        ((CASE, AGE, SETS), {"offset": ["a"] * 8}, "offset is text"),
        ((CASE, AGE, "set"), {}, "there is no data"),
        ((CASE, AGE, SETS), {"names": ["a", "b"]}, "names has 2 entries"),
        ((CASE, AGE, SETS), {"model": "urn"}, "model is 'urn'"),
        ((CASE, AGE, SETS), {"na": "omit"}, "na is 'omit'"),
        ((CASE, AGE, SETS), {"covariance": "scaled"}, "covariance is 'scaled'"),
        ((CASE, AGE, SETS), {"level": 95}, "level is 95"),
        ((CASE, AGE, SETS), {"interval": "profile", "covariance": "HC0"}, 'interval="wald"'),
    ],
)
def test_arguments_that_cannot_be_raise_one_sentence(
    arguments: tuple[Any, ...], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        clogit(*arguments, **options)
