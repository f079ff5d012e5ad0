"""`diffurn fit` and `diffurn sample`: their output, their files and their refusals."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from diffurn import FisherHypergeometric
from diffurn.cli import app
from diffurn.cli.output import replacing
from diffurn.cli.sample import write_draws
from diffurn.data import example_counts, read_counts
from diffurn.inference import fit, fit_by
from diffurn.inference.results.words import as_options
from test_counts import FAULTS, LONG, WIDE

runner = CliRunner()
SAMPLE = ["sample", "--group-sizes", "30,50,40", "--draws", "50", "--weights", "1,2,0.5"]


def run(*arguments: object, stdin: str | bytes | None = None) -> Result:
    return runner.invoke(app, [str(argument) for argument in arguments], input=stdin)


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Relative paths begin in the folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def assert_refused(result: Result, *words: str) -> None:
    """Exit status 2, nothing on standard output, one sentence on standard error."""
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.startswith("diffurn: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


def fit_as_json(*arguments: object, stdin: str | None = None) -> dict[str, Any]:
    result = run("fit", *arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.output
    record: dict[str, Any] = json.loads(result.stdout)
    return record


# --- the report


def test_fit_prints_the_table_the_tests_and_the_notes() -> None:
    result = run("fit", "--example", "titanic", "--reference", "Crew")
    assert result.exit_code == 0, result.output
    line = next(line for line in result.stdout.splitlines() if "1st class" in line).split()
    assert line[2:6] == [
        "325",
        "203",
        "105.0",
        "5.278",
    ]  # 325 · 711 / 2201 = 104.99; ω as by an independent maximisation
    assert "χ² = 180.81 with 3 df" in result.stdout  # 2 (99.394 - 8.988)
    assert "profile" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(("columns", "widest"), [(None, 80), ("70", 70), ("110", 110)])
def test_tables_of_fit_are_as_wide_as_columns_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str | None, widest: int
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    names = [f"a long name with many words, of the group that has number {j}" for j in range(5)]
    header = ",".join(f'"m_{name}","x_{name}"' for name in names)
    path = write(tmp_path / "counts.csv", header + "\n" + ",".join(["123456", "23456"] * 5) + "\n")
    result = run("fit", path, "--interval", "wald")
    assert result.exit_code == 0, result.output
    assert widest - 10 < max(map(len, result.stdout.splitlines())) <= widest
    assert "…" not in result.stdout


def test_brackets_in_names_are_not_markup(tmp_path: Path) -> None:
    path = write(tmp_path / "counts.csv", "m_[red],x_[red],m_[/b],x_[/b]\n5,3,9,2\n")
    result = run("fit", path)
    assert result.exit_code == 0, result.output
    assert "[red]" in result.stdout
    assert "[/b]" in result.stdout


def test_a_group_never_drawn_is_explained(tmp_path: Path) -> None:
    result = run("fit", write(tmp_path / "counts.csv", "m_a,x_a,m_b,x_b,m_c,x_c\n5,0,9,4,8,5\n"))
    assert result.exit_code == 0, result.output
    assert "a was never drawn" in " ".join(result.stdout.split())
    assert "--penalty" in result.stdout
    assert 'penalty="' not in result.stdout


def test_overdispersion_is_put_in_words(tmp_path: Path) -> None:
    alternating = "m_a,x_a,m_b,x_b\n" + "20,18,20,2\n20,2,20,18\n" * 5
    result = run("fit", write(tmp_path / "counts.csv", alternating))
    assert "overdispersion" in result.stdout


def test_intervals_are_profiles_unless_the_table_is_large(tmp_path: Path) -> None:
    few, many = (
        write(tmp_path / f"{rows}.csv", "m_a,x_a,m_b,x_b\n" + "5,3,9,2\n" * rows)
        for rows in (2500, 2501)
    )
    assert [fit_as_json(path)["interval"] for path in (few, many)] == ["profile", "wald"]
    assert fit_as_json(few, "--interval", "wald")["interval"] == "wald"


def test_covariates_show_their_coefficients(tmp_path: Path) -> None:
    path = write(
        tmp_path / "counts.csv", "age,m_a,x_a,m_b,x_b\n30,15,6,19,7\n40,16,9,19,5\n50,16,9,19,4\n"
    )
    result = run("fit", path, "--covariate", "age", "--reference", "a")
    assert result.exit_code == 0, result.output
    assert "b:age" in result.stdout
    assert "Coefficients that name a group compare it with a." in " ".join(result.stdout.split())
    expected = fit(read_counts(path, ["age"]), covariates=["age"], reference="a")
    assert fit_as_json(path, "--covariate", "age", "--reference", "a") == {
        **expected.to_dict(),
        "available": [47.0, 57.0],
        "central_expected": pytest.approx(
            [13 * 15 / 34 + 14 * 16 / 35 + 13 * 16 / 35, 13 * 19 / 34 + 14 * 19 / 35 + 13 * 19 / 35]
        ),
    }


DATED = "date_a,date_b,date_c,m_a,x_a,m_b,x_b,m_c,x_c\n" + "".join(
    f"20240115,20240117,20240118,5,{a},9,{b},7,{c}\n"
    for a, b, c in ((3, 2, 1), (2, 3, 4), (1, 2, 5))
)


def test_covariates_that_are_dates_keep_all_their_digits(tmp_path: Path) -> None:
    (dated,) = fit_as_json(write(tmp_path / "dated.csv", DATED), "--covariate", "date")[
        "coefficients"
    ]
    (moved,) = fit_as_json(
        write(tmp_path / "moved.csv", DATED.replace("202401", "")), "--covariate", "date"
    )["coefficients"]
    assert dated.pop("name") == moved.pop("name") == "date"
    assert dated == pytest.approx(moved, rel=1e-9)
    assert dated["beta"] == pytest.approx(
        0.0679057462, abs=1e-9
    )  # by an independent maximisation over all outcomes


def test_dates_of_rows_are_refused_with_a_way_out(tmp_path: Path) -> None:
    path = write(
        tmp_path / "dated.csv",
        "date,m_a,x_a,m_b,x_b\n20240115,15,6,19,7\n20240117,16,9,19,5\n20240118,16,9,19,4\n",
    )
    assert_refused(
        run("fit", path, "--covariate", "date"),
        "'b:date' is, up to rounding, a linear combination",
        "subtract a typical one",
    )


# --- JSON equals the library


def test_json_holds_the_numbers_of_the_library_at_full_precision() -> None:
    table = example_counts("ucb")
    result = fit(
        table.counts,
        table.group_sizes,
        groups=table.groups,
        reference="Men",
        level=0.9,
        interval="profile",
    )
    record = fit_as_json("--example", "ucb", "--reference", "Men", "--level", "0.9", "--contrasts")
    pairs = record.pop("contrasts")
    assert record["available"] == [2691, 1835]
    assert sum(record["central_expected"]) == pytest.approx(1755)
    assert record == result.to_dict()
    contrasts = result.contrasts()
    assert pairs == contrasts.to_list()
    assert pairs[0]["groups"] == ["Men", "Women"]
    assert pairs[0]["log_ratio"] == contrasts.estimate.item()
    assert pairs[0]["ratio_upper"] == pytest.approx(math.exp(contrasts.upper.item()))
    assert pairs[0]["p_holm"] == contrasts.adjusted_p_value.item()


def test_json_writes_infinities_as_strings_and_no_value_as_null(tmp_path: Path) -> None:
    path = write(tmp_path / "counts.csv", "m_a,x_a,m_b,x_b,m_c,x_c\n5,0,9,4,8,5\n")
    record = json.loads(
        run("fit", path, "--json", "--contrasts").stdout, parse_constant=pytest.fail
    )
    assert record["coefficients"][0]["log_weight"] == "-inf"
    assert record["contrasts"][0]["log_ratio"] == "-inf"
    assert record["contrasts"][0]["z"] is None


@pytest.mark.parametrize(
    "options", [["--penalty", "firth"], ["--penalty", "ridge", "--ridge", "3"], ["--level", "0.5"]]
)
def test_options_reach_the_fit(options: list[str]) -> None:
    table = example_counts("titanic")
    given = {
        option.removeprefix("--"): value
        for option, value in zip(options[::2], options[1::2], strict=True)
    }
    chosen = {
        name: float(value) if name in ("ridge", "level") else value for name, value in given.items()
    }
    expected = fit(
        table.counts, table.group_sizes, groups=table.groups, interval="wald", **chosen
    ).to_dict()  # type: ignore[arg-type]
    record = fit_as_json("--example", "titanic", "--interval", "wald", *options)
    assert record["coefficients"] == expected["coefficients"]


# --- tables as they are

HABITATS = "row;habitat;site;had_vole;ate_vole;had_bat;ate_bat\n" + "".join(
    f"p{k};{('wood', 'field')[k % 2]};s{k // 2};{9 - k % 3};{2 + k % 3};8;{1 + (k * k) % 4}\n"
    for k in range(10)
)
RENAMED = ["--columns", "m_=had_,x_=ate_"]


def test_the_command_prints_the_words_of_python(tmp_path: Path) -> None:
    path = write(tmp_path / "counts.csv", HABITATS)
    table = read_counts(path, ["habitat", "site"], {"m_": "had_", "x_": "ate_"})
    for options, arguments in (
        ({}, []),
        ({"covariates": "habitat"}, ["--covariate", "habitat"]),
        ({"formula": "~ habitat"}, ["--formula", "~ habitat"]),
        ({"cluster": "site", "reference": "bat"}, ["--cluster", "site", "--reference", "bat"]),
        ({"covariance": "scaled"}, ["--covariance", "scaled"]),
    ):
        result = run("fit", path, *RENAMED, *arguments)
        assert result.exit_code == 0, result.output
        expected = fit(table, **options)  # type: ignore[arg-type]
        assert result.stdout == as_options(str(expected)) + "\n"
        assert fit_as_json(path, *RENAMED, *arguments) == expected.to_dict()
        assert max(map(len, result.stdout.splitlines())) <= 80


def test_one_fit_for_each_value_of_a_column(tmp_path: Path) -> None:
    path, figure = write(tmp_path / "counts.csv", HABITATS), tmp_path / "figure.png"
    arguments = ["fit", path, *RENAMED, "--by", "habitat", "--reference", "bat"]
    result = run(*arguments, "--figure", figure)
    assert result.exit_code == 0, result.output
    table = read_counts(path, ["habitat"], {"m_": "had_", "x_": "ate_"})
    fits = fit_by(table, "habitat", reference="bat")
    assert result.stdout == as_options(str(fits)) + f"\nFigure: {figure}\n"
    assert figure.read_bytes().startswith(b"\x89PNG")
    record = json.loads(run(*arguments, "--json").stdout)
    assert record == fits.to_dict()


def test_selection_and_residuals_are_written_with_the_labels_of_rows(tmp_path: Path) -> None:
    path, residuals = write(tmp_path / "counts.csv", HABITATS), tmp_path / "residuals.csv"
    result = run("fit", path, *RENAMED, "--selection", "--residuals", residuals, "--json")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    expected = fit(read_counts(path, columns={"m_": "had_", "x_": "ate_"}))
    assert record["coefficients"][0]["alpha"] == expected.selection().alpha[0].item()
    rows = list(csv.DictReader(residuals.read_text(encoding="utf-8").splitlines()))
    assert [row["row"] for row in rows[::2]] == [f"p{k}" for k in range(10)]
    assert record["residuals"][1]["pearson"] == float(rows[1]["pearson"])
    text = " ".join(run("fit", path, *RENAMED, "--selection").stdout.split())
    assert "Selection ratio std. error Manly's α std. error" in text
    drawn = tmp_path / "residuals.png"
    assert run("fit", path, *RENAMED, "--residuals", drawn).exit_code == 0
    assert drawn.read_bytes().startswith(b"\x89PNG")


def test_bootstrap_intervals_repeat_with_their_seed(tmp_path: Path) -> None:
    path = write(tmp_path / "counts.csv", HABITATS)
    arguments = [path, *RENAMED, "--interval", "bootstrap", "--resamples", "99"]
    first, same, other = (fit_as_json(*arguments, "--seed", seed) for seed in (1, 1, 2))
    assert first == same != other
    text = " ".join(run("fit", *arguments).stdout.split())
    assert "percentiles of 99 fits to 10 rows drawn with replacement, seed 0" in text


def test_gaps_are_noted_or_refused(tmp_path: Path) -> None:
    gaps = HABITATS.replace("p3;field;s1;9", "p3;NA;s1;9").replace(
        "p4;wood;s2;8;3", "p4;wood;s2;;3"
    )
    path = write(tmp_path / "counts.csv", gaps)
    arguments = ["fit", path, *RENAMED, "--covariate", "habitat"]
    text = " ".join(run(*arguments).stdout.split())
    assert "Note: 2 rows with missing values are left out." in text
    assert_refused(run(*arguments, "--na", "raise"), "habitat is missing in row 'p3'; repair it")


def test_a_spoilt_covariate_or_formula_is_refused_and_nothing_written(tmp_path: Path) -> None:
    path = write(tmp_path / "counts.csv", HABITATS)
    for arguments, words in (
        (["--formula", "~ mass"], "there is neither a column 'mass'"),
        (["--formula", "~ log(habitat)"], "cannot be evaluated"),
        (["--cluster", "m"], "differs between the groups of row"),
        (["--by", "m"], "differs between the groups of row"),
    ):
        figure = tmp_path / "figure.png"
        spoilt = run("fit", path, *RENAMED, *arguments, "--figure", figure)
        assert_refused(spoilt, words)
        assert not figure.exists()


# --- formats


def test_both_formats_and_standard_input_give_the_same_fit(tmp_path: Path) -> None:
    wide, long = write(tmp_path / "wide.csv", WIDE), write(tmp_path / "long.csv", LONG)
    assert fit_as_json(wide) == fit_as_json(long) == fit_as_json("-", stdin=WIDE)


def test_frequencies_equal_repeated_rows(tmp_path: Path) -> None:
    rows = {"15,6,19,7": 3, "16,9,19,5": 1, "12,2,19,9": 4, "12,3,19,9": 0}
    counted = write(
        tmp_path / "counted.csv",
        "m_a,x_a,m_b,x_b,frequency\n" + "".join(f"{row},{f}\n" for row, f in rows.items()),
    )
    repeated = write(
        tmp_path / "repeated.csv",
        "m_a,x_a,m_b,x_b\n" + "".join(f"{row}\n" * f for row, f in rows.items()),
    )
    first, second = fit_as_json(counted), fit_as_json(repeated)
    assert first["rows"] == second["rows"] == 8
    for key in ("log_likelihood", "aic", "available", "observed", "central_expected"):
        assert first[key] == pytest.approx(second[key], rel=1e-12)
    for one, other in zip(first["coefficients"], second["coefficients"], strict=True):  # type: ignore[call-overload]
        assert one.pop("name") == other.pop("name")
        assert one == pytest.approx(other, rel=1e-7)
    assert first["goodness_of_fit"] == pytest.approx(second["goodness_of_fit"], rel=1e-9)


# --- figures


@pytest.mark.parametrize(
    ("suffix", "beginning"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")]
)
def test_the_figure_is_an_image(suffix: str, beginning: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"figure{suffix}"
    result = run("fit", "--example", "titanic", "--figure", path)
    assert result.exit_code == 0, result.output
    assert path.read_bytes().startswith(beginning)
    assert path.stat().st_size > 5_000
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert str(path) in result.stdout.replace("\n", "")


AWKWARD = {
    "never and always drawn": "m_a,x_a,m_b,x_b,m_c,x_c,m_d,x_d\n5,0,9,4,8,5,3,3\n",
    "not comparable": "m_a,x_a,m_b,x_b,m_c,x_c,m_d,x_d\n5,2,9,4,0,0,0,0\n0,0,0,0,4,2,5,1\n",
    "a group without balls": "m_a,x_a,m_b,x_b,m_c,x_c\n5,2,9,4,0,0\n",
    "everything drawn": "m_a,x_a,m_b,x_b\n5,5,9,9\n",
    "formulas, quotes and foreign letters in names": 'm_$x_{,x_$x_{,m_$y$,x_$y$,"m_""","x_"""\n'
    "5,2,9,4,3,1\n",
    "letters no font has": "m_\U00012345,x_\U00012345,m_漢字,x_漢字\n5,2,9,4\n",
    "counts that differ by a factor of 10^12": "m_a,x_a,m_b,x_b\n5,2,9000000000000,4000000000000\n",
    "a coefficient of a million": "z,m_a,x_a,m_b,x_b\n1e-6,9,4,9,5\n2e-6,9,5,9,4\n3e-6,9,7,9,1\n",
    "covariates that separate": "z,m_a,x_a,m_b,x_b\n1,9,9,9,0\n2,9,0,9,9\n",
}


@pytest.mark.parametrize("content", AWKWARD.values(), ids=AWKWARD.keys())
def test_awkward_tables_are_printed_and_drawn(content: str, tmp_path: Path) -> None:
    path, figure = write(tmp_path / "counts.csv", content), tmp_path / "figure.png"
    result = run(
        "fit", path, "--figure", figure, *(["--covariate", "z"] if content.startswith("z") else [])
    )
    assert result.exit_code == 0, result.output
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_a_batch_has_no_single_figure() -> None:
    batch = fit(torch.tensor([[[3, 2]], [[4, 1]]]), [[5, 9]])
    with pytest.raises(ValueError, match=r"result\[0\]"):
        batch.plot()
    assert len(batch[0].plot().axes) == 2


# --- refusals


@pytest.mark.parametrize(("content", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_every_faulty_table_is_refused_and_nothing_written(
    content: str | bytes, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "counts.csv", content)
    figure = write(tmp_path / "figure.png", "old content")
    covariates = (
        ["--covariate", "z"] if isinstance(content, str) and content.startswith("z") else []
    )
    assert_refused(run("fit", path, "--json", "--figure", figure, *covariates), message)
    assert figure.read_text(encoding="utf-8") == "old content"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give the name of a CSV file"),
        (["counts.csv", "--example", "titanic"], "only one of these"),
        (["none.csv"], "none.csv: there is no such file"),
        (["."], "this is a folder"),
        (
            ["counts.csv", "--reference", "green"],
            "--reference green: there is no such group; the groups are red, blue",
        ),
        (["counts.csv", "--level", "95"], "--level 95: it must lie between 0 and 1"),
        (["counts.csv", "--level", "nan"], "--level nan"),
        (["counts.csv", "--ridge", "2"], "--ridge 2: it is the strength of --penalty ridge"),
        (
            ["counts.csv", "--penalty", "ridge", "--ridge", "-1"],
            "--ridge -1: it must be a finite number above 0",
        ),
        (["counts.csv", "--covariate", "age"], "covariate 'age'"),
        (["counts.csv", "--covariate", "age", "--contrasts"], "--contrasts: with covariates"),
        (["--example", "ucb", "--covariate", "age"], "the examples have no other columns"),
        (["--example", "ucb", "--by", "age"], "--by age: the examples have no other columns"),
        (["--example", "ucb", "--columns", "group=g"], "the examples have the usual names"),
        (["counts.csv", "--covariate", "a", "--formula", "~ a"], "covariates or a formula, not"),
        (["counts.csv", "--formula", "~ a +"], "--formula: formula '~ a +' cannot be read"),
        (["counts.csv", "--formula", "y ~ a"], "has a left side, but the counts are those of the"),
        (["counts.csv", "--formula", "~ strata(a)"], "has strata(), which fit does not know"),
        (["counts.csv", "--formula", "~ age"], "covariate 'age' there is neither a column 'age'"),
        (["counts.csv", "--cluster", "site"], "neither a column 'site'"),
        (["counts.csv", "--by", "site"], "neither a column 'site'"),
        (["counts.csv", "--cluster", "a", "--covariance", "HC1"], "give one of the two"),
        (["counts.csv", "--cluster", "a", "--interval", "profile"], "use wald or bootstrap"),
        (["counts.csv", "--covariance", "HC0", "--interval", "profile"], "--interval profile: it"),
        (["counts.csv", "--resamples", "9"], "--resamples 9: it must be a whole number from 99"),
        (["counts.csv", "--columns", "group"], "'group' is not of this form"),
        (["counts.csv", "--columns", "kind=red"], "columns has 'kind'='red', but can rename only"),
        (["counts.csv", "--columns", "row=plot"], "no column is called 'plot'"),
        (["counts.csv", "--columns", "x_=ate_"], "no column begins with 'ate_'"),
        (["counts.csv", "--columns", "row=a,group=a"], "columns gives 'a' two meanings"),
        (["counts.csv", "--columns", "row=a,row=b"], "row is given twice"),
        (["counts.csv", "--selection", "--covariate", "a"], "--selection: with covariates"),
        (["counts.csv", "--covariate", "a", "--covariate", "a"], "--covariate a: it was asked for"),
        (["counts.csv", "--residuals", "r.txt"], "the name must end in .csv, .png, .svg or .pdf"),
        (["counts.csv", "--residuals", "no/r.csv"], "the folder no does not exist"),
        (["counts.csv", "--residuals", "r.csv", "--by", "a"], "with --by there is no single fit"),
        (["counts.csv", "--residuals", "f.png", "--figure", "f.png"], "give two names"),
        (
            ["counts.csv", "--figure", "figure.jpg"],
            "--figure figure.jpg: the name must end in .png, .svg or .pdf",
        ),
        (
            ["counts.csv", "--figure", "nowhere/figure.png"],
            "--figure nowhere/figure.png: the folder nowhere does not exist",
        ),
        (["counts.csv", "--figure", "folder.png"], "--figure folder.png: this is a folder"),
    ],
)
def test_bad_options_are_refused_with_one_sentence(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    write(tmp_path / "counts.csv", WIDE)
    (tmp_path / "folder.png").mkdir()
    with inside(tmp_path):
        assert_refused(run("fit", *arguments), words)
    assert {entry.name for entry in tmp_path.iterdir()} == {"counts.csv", "folder.png"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model", "normal"],
        ["--interval", "bayes"],
        ["--penalty", "lasso"],
        ["--level", "high"],
        ["--covariance", "robust"],
        ["--na", "ignore"],
        ["--seed", "x"],
    ],
)
def test_unknown_choices_end_with_status_2(arguments: list[str]) -> None:
    result = run("fit", "--example", "titanic", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert arguments[0] in result.stderr


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Writing more bytes to a file fails, as on a full disk."""
    resource = pytest.importorskip("resource")  # not on Windows
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("option", "name", "arguments"),
    [
        ("--figure", "figure.png", ["fit", "--example", "titanic"]),
        ("--out", "draws.csv", SAMPLE),
    ],
)
def test_a_write_that_fails_leaves_the_old_file(
    option: str, name: str, arguments: list[str], tmp_path: Path
) -> None:
    path = write(tmp_path / name, "old content")
    fit([1, 2], [3, 3]).plot()  # so that matplotlib has written its cache of fonts
    with files_limited_to(1000):
        outcome = run(*arguments, option, path)
    assert_refused(outcome, f"{option} {path}: cannot be written (File too large)")
    assert path.read_text(encoding="utf-8") == "old content"
    assert len(list(tmp_path.iterdir())) == 1


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = write(tmp_path / "draws.csv", "old content")

    def interrupted() -> None:
        with replacing("--out", path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text(encoding="utf-8") == "old content"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_hundred_thousand_columns_are_refused(tmp_path: Path) -> None:
    path = write(
        tmp_path / "counts.csv",
        ",".join(f"m_{j},x_{j}" for j in range(50_000)) + "\n" + ",".join(["1"] * 100_000),
    )
    assert_refused(run("fit", path), "50,000 groups")


def test_too_many_pairs_are_refused(tmp_path: Path) -> None:
    path = write(
        tmp_path / "counts.csv",
        ",".join(f"m_{j},x_{j}" for j in range(101)) + "\n" + ",".join(["2,1"] * 101),
    )
    assert_refused(run("fit", path, "--contrasts"), "--contrasts: 101 groups")


@settings(max_examples=40)
@given(
    st.sampled_from([WIDE, LONG, "frequency," + WIDE.replace("\n", "\n1,").removesuffix("1,")]),
    st.lists(
        st.tuples(
            st.integers(0, 80), st.integers(0, 3), st.text(',;"\n 0123456789.-em_x\0å', max_size=4)
        ),
        max_size=3,
    ),
    st.binary(max_size=3),
)
def test_corrupted_tables_never_give_a_traceback(
    content: str, changes: list[tuple[int, int, str]], end: bytes
) -> None:
    for at, removed, inserted in changes:
        content = content[:at] + inserted + content[at + removed :]
    result = run("fit", "-", "--interval", "wald", "--json", stdin=content.encode() + end)
    assert result.exit_code in (0, 2), result.exception
    if result.exit_code == 2:
        assert_refused(result)
    else:
        json.loads(result.stdout)


# --- sample


def test_fit_recovers_the_weights_of_sample(tmp_path: Path) -> None:
    path = tmp_path / "draws.csv"
    result = run(*SAMPLE, "--groups", 'a,"b, c",d', "--number", 400, "--out", path)
    assert (result.exit_code, result.output) == (0, "")
    table = read_counts(path)
    assert table.groups == ("a", "b, c", "d")
    assert table.counts.shape == (400, 3)
    assert bool((table.counts.sum(-1) == 50).all())
    assert table.group_sizes.unique(dim=0).tolist() == [[30, 50, 40]]
    estimated = fit_as_json(path, "--reference", "a", "--interval", "wald")["coefficients"]
    for coefficient, weight in zip(estimated, (1, 2, 0.5), strict=True):  # type: ignore[call-overload]
        # within 5 standard errors: a false alarm in 2 million seeds, and the seed is fixed
        error = coefficient["log_weight_se"]
        assert abs(coefficient["log_weight"] - math.log(weight)) <= 5 * error


def test_both_commands_know_wallenius_law(tmp_path: Path) -> None:
    path = tmp_path / "draws.csv"
    options = [
        "--group-sizes",
        "30,20",
        "--draws",
        25,
        "--weights",
        "3,1",
        "--number",
        300,
        "--seed",
        1,
        "--out",
        path,
    ]
    assert run("sample", "--model", "wallenius", *options).exit_code == 0
    found = {
        model: fit_as_json(path, "--model", model, "--reference", "2", "--interval", "wald")[
            "coefficients"
        ][0]  # type: ignore[index]
        for model in ("wallenius", "fisher")
    }
    # 300 rows tell the two laws' weights apart by far: 3 under the law that drew (covered for 95 of
    # 100 seeds), above 4 otherwise
    assert found["wallenius"]["weight_lower"] < 3 < found["wallenius"]["weight_upper"]
    assert found["fisher"]["weight_lower"] > 3.5


def test_sample_writes_the_draws_of_the_library_to_standard_output() -> None:
    result = run(*SAMPLE, "--number", 5, "--seed", 3)
    header, *rows = csv.reader(result.stdout.splitlines())
    assert header == ["m_1", "m_2", "m_3", "x_1", "x_2", "x_3"]
    torch.manual_seed(3)
    drawn = (
        FisherHypergeometric([30, 50, 40], 50, weights=torch.tensor([1.0, 2.0, 0.5]))
        .sample((5,))
        .long()
        .tolist()
    )
    assert rows == [["30", "50", "40", *map(str, counts)] for counts in drawn]


def test_sample_leaves_the_generator_alone() -> None:
    before = torch.get_rng_state()
    run(*SAMPLE, "--number", 5)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_seed_decides() -> None:
    first, again, other = (
        run(*SAMPLE, "--number", 20, "--seed", seed).stdout for seed in (1, 1, 2)
    )
    assert first == again != other


def test_blocks_of_draws_are_joined() -> None:
    urn = FisherHypergeometric([30, 50, 40], 50, weights=torch.tensor([1.0, 2.0, 0.5]))
    file, done = io.BytesIO(), list[tuple[int, int]]()
    write_draws(file, urn, "abc", 20, lambda *numbers: done.append(numbers), cells_at_once=9)
    header, *rows = csv.reader(file.getvalue().decode().splitlines())
    assert header == ["m_a", "m_b", "m_c", "x_a", "x_b", "x_c"]
    assert len(rows) == 20
    assert done == [(min(rows, 20), 20) for rows in range(3, 24, 3)]
    for row in rows:
        assert row[:3] == ["30", "50", "40"]
        assert sum(map(int, row[3:])) == 50


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"--group-sizes": "30,fifty,40"}, "--group-sizes, item 2: 'fifty' is not a number"),
        ({"--group-sizes": "30,-5,40"}, "--group-sizes, item 2: '-5' is negative"),
        ({"--group-sizes": "30"}, "--group-sizes: 1 groups; there must be from 2 to 1,000"),
        ({"--group-sizes": "30,,40"}, "--group-sizes, item 2: '' is not a number"),
        ({"--draws": "121"}, "draws is 121, but cannot exceed the number of balls, 120"),
        ({"--weights": "1,2"}, "--weights: 2 weights for 3 groups"),
        ({"--weights": "1,-2,3"}, "--weights, item 2: '-2' is negative"),
        ({"--weights": "1,inf,3"}, "--weights, item 2: 'inf' is not a number"),
        ({"--weights": "0,0,1"}, "cannot exceed the number of balls with positive weight, 40"),
        ({"--groups": "a,b"}, "--groups: 2 names for 3 groups"),
        ({"--groups": "a,b,a"}, "--groups, item 3: 'a' cannot name a group"),
        ({"--groups": "a,,c"}, "--groups, item 2: '' cannot name a group"),
        ({"--groups": 'a,"b,c'}, "--groups: "),
        (
            {"--out": "nowhere/draws.csv"},
            "--out nowhere/draws.csv: the folder nowhere does not exist",
        ),
        ({"--out": "."}, "--out .: this is a folder"),
    ],
)
def test_bad_urns_are_refused_with_one_sentence(
    changes: dict[str, str], words: str, tmp_path: Path
) -> None:
    options = dict(zip(SAMPLE[1::2], SAMPLE[2::2], strict=True)) | changes
    with inside(tmp_path):
        outcome = run("sample", *(part for option in options.items() for part in option))
    assert_refused(outcome, words)
    assert list(tmp_path.iterdir()) == []


def test_links_stay_links_and_devices_stay_devices(tmp_path: Path) -> None:
    link, target = tmp_path / "link.csv", tmp_path / "target.csv"
    link.symlink_to(target)
    for out in (link, Path("/dev/null")):
        assert run(*SAMPLE, "--number", 5, "--out", out).exit_code == 0
    assert link.is_symlink()
    assert len(target.read_text(encoding="utf-8").splitlines()) == 6
    assert Path("/dev/null").is_char_device()


def test_a_figure_goes_through_a_link(tmp_path: Path) -> None:
    link, target = tmp_path / "link.svg", tmp_path / "target.svg"
    link.symlink_to(target)
    assert run("fit", "--example", "titanic", "--figure", link).exit_code == 0
    assert link.is_symlink()
    assert b"<svg" in target.read_bytes()


@pytest.mark.parametrize(
    "changes", [["--draws", "0"], ["--number", "0"], ["--seed", "-1"], ["--model", "normal"]]
)
def test_numbers_out_of_range_end_with_status_2(changes: list[str]) -> None:
    result = run(*SAMPLE, *changes)
    assert (result.exit_code, result.stdout) == (2, "")
    assert changes[0] in result.stderr
