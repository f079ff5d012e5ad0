"""Real tables in `fit`: data frames, other names, text, gaps, formulas, clusters and one fit for
each value of a column. The same numbers come from arrays made by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from diffurn.data import CountTable, read_counts
from diffurn.inference import FitResult, anova, fit, fit_by
from support.fit_oracles import assert_close

WIDE = pd.DataFrame(
    {
        "row": ["p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8"],
        "habitat": ["wood", "field", "wood", "field", "wood", "field", "wood", "field"],
        "age": [1.0, 2.0, 4.0, 3.0, 2.5, 5.0, 6.0, 1.5],
        "site": [1, 1, 2, 2, 3, 3, 4, 4],
        "m_vole": [9, 8, 9, 7, 6, 9, 8, 7],
        "x_vole": [5, 2, 4, 1, 4, 2, 3, 3],
        "m_bat": [8, 8, 6, 9, 7, 7, 9, 8],
        "x_bat": [2, 3, 4, 6, 3, 4, 3, 2],
        "m_fly": [5, 6, 5, 4, 8, 6, 7, 9],
        "x_fly": [1, 2, 2, 2, 2, 1, 2, 3],
    }
)
GROUPS = ["vole", "bat", "fly"]
X = WIDE[[f"x_{g}" for g in GROUPS]].to_numpy()
M = WIDE[[f"m_{g}" for g in GROUPS]].to_numpy()


def long_of(frame: pd.DataFrame, names: dict[str, str]) -> pd.DataFrame:
    """A long table with columns of other names."""
    lines = [
        {
            names["row"]: row["row"],
            names["group"]: group,
            names["available"]: row[f"m_{group}"],
            names["drawn"]: row[f"x_{group}"],
            "habitat": row["habitat"],
            "age": row["age"],
        }
        for _, row in frame.iterrows()
        for group in GROUPS
        if row[f"m_{group}"] > 0
    ]
    return pd.DataFrame(lines)


USUAL = {name: name for name in ("row", "group", "available", "drawn")}
THEIRS = {"row": "plot", "group": "species", "available": "there", "drawn": "used"}


def assert_same(found: FitResult, expected: FitResult) -> None:
    assert_close(found.coefficients, expected.coefficients, 1e-9)
    assert_close(found.standard_errors, expected.standard_errors, 1e-9)
    assert_close(found.log_likelihood, expected.log_likelihood, 1e-9)


def polars_frame(frame: pd.DataFrame) -> Any:
    polars = pytest.importorskip("polars")
    return polars.DataFrame({name: frame[name].tolist() for name in frame.columns})


# --- where tables come from


@pytest.mark.parametrize("kind", ["pandas", "dictionary", "polars", "file", "long", "renamed"])
def test_every_container_gives_the_fit_of_its_arrays(kind: str, tmp_path: Path) -> None:
    data: Any = WIDE
    columns = None
    if kind == "dictionary":
        data = {name: WIDE[name].tolist() for name in WIDE.columns}
    elif kind == "polars":
        data = polars_frame(WIDE)
    elif kind == "file":
        WIDE.to_csv(tmp_path / "counts.csv", index=False)
        data = read_counts(tmp_path / "counts.csv")
    elif kind == "long":
        data = long_of(WIDE, USUAL)
    elif kind == "renamed":
        data, columns = long_of(WIDE, THEIRS), THEIRS
    result = fit(data, reference="fly", columns=columns)
    assert_same(result, fit(X, M, groups=GROUPS, reference="fly"))
    assert result.groups == tuple(GROUPS)
    assert result.row_labels == tuple(WIDE["row"])
    assert result.residuals().to_frame()["row"].tolist()[::3] == list(WIDE["row"])


def test_beginnings_of_names_can_be_others(tmp_path: Path) -> None:
    renamed = WIDE.rename(columns=lambda name: name.replace("m_", "had ").replace("x_", "ate "))
    columns = {"m_": "had ", "x_": "ate "}
    renamed.to_csv(tmp_path / "counts.csv", index=False)
    for data in (renamed, read_counts(tmp_path / "counts.csv", columns=columns)):
        given = None if isinstance(data, CountTable) else columns
        assert_same(fit(data, columns=given), fit(X, M))


def test_a_group_without_a_line_in_a_frame_was_not_available() -> None:
    without = long_of(WIDE, USUAL).drop(index=2)  # fly in p1
    sizes, counts = M.copy(), X.copy()
    sizes[0, 2] = counts[0, 2] = 0
    assert_same(fit(without), fit(counts, sizes))


def test_an_index_of_a_data_frame_labels_the_rows() -> None:
    frame = WIDE.set_index("row")
    assert fit(frame).row_labels == tuple(WIDE["row"])
    arrays = fit(frame[[f"x_{g}" for g in GROUPS]].set_axis(GROUPS, axis=1), M)
    assert arrays.row_labels == tuple(WIDE["row"])
    assert fit(WIDE.drop(columns="row")).row_labels is None


# --- gaps


def test_rows_with_gaps_or_nothing_drawn_are_left_out_and_counted(tmp_path: Path) -> None:
    frame = WIDE.astype({"m_bat": float, "x_fly": float}).copy()
    frame.loc[1, "m_bat"] = np.nan
    frame.loc[3, "x_fly"] = np.nan
    frame.loc[5, [f"x_{g}" for g in GROUPS]] = 0
    kept = [0, 2, 4, 6, 7]
    expected = fit(X[kept], M[kept], groups=GROUPS)
    note = "2 rows with missing values and 1 row with nothing drawn are left out."
    frame.to_csv(tmp_path / "counts.csv", index=False)
    x = frame[[f"x_{g}" for g in GROUPS]].to_numpy()
    m = frame[[f"m_{g}" for g in GROUPS]].to_numpy()
    results = [
        fit(frame),
        fit(polars_frame(frame.replace({np.nan: None}))) if _has_polars() else fit(frame),
        fit(read_counts(tmp_path / "counts.csv")),
        fit(x, m, groups=GROUPS),
        fit(torch.tensor(x), torch.tensor(m), groups=GROUPS),
    ]
    for result in results:
        assert_same(result, expected)
        assert result.notes[0] == note
        assert result.left_out.tolist() == [2, 1]
    assert results[0].row_labels == ("p1", "p3", "p5", "p7", "p8")
    assert results[3].row_labels == ("0", "2", "4", "6", "7")
    with pytest.raises(ValueError, match=r"missing in row 'p2'; repair it"):
        fit(frame, na="raise")
    with pytest.raises(ValueError, match=r"counts.csv: a value of the counts is missing in row"):
        read_counts(tmp_path / "counts.csv", na="raise")
    with pytest.raises(ValueError, match=r"group_sizes has a missing value in row 1"):
        fit(x, m, na="raise")


def _has_polars() -> bool:
    try:
        import polars  # noqa: F401
    except ImportError:
        return False
    return True


def test_gaps_in_covariates_and_clusters_leave_their_rows_out() -> None:
    frame = WIDE.astype({"site": object}).copy()
    frame.loc[2, "habitat"] = None
    frame.loc[4, "site"] = None
    kept = [0, 1, 3, 5, 6, 7]
    found = fit(frame, covariates="habitat", cluster="site")
    expected = fit(WIDE.loc[kept], covariates="habitat", cluster="site")
    assert_same(found, expected)
    assert found.left_out.tolist() == [2, 0]
    arrays = fit(X, M, cluster=[1, 1, 2, 2, None, 3, 4, 4])
    assert_same(arrays, fit(X[[0, 1, 2, 3, 5, 6, 7]], M[[0, 1, 2, 3, 5, 6, 7]],
                            cluster=[1, 1, 2, 2, 3, 4, 4]))  # fmt: skip


def test_a_gap_in_one_data_set_of_a_batch_leaves_the_others_alone() -> None:
    x = torch.tensor(X).double().expand(2, -1, -1).clone()
    x[1, 3, 0] = torch.nan
    x[1, 5] = 0
    batch = fit(x, M)
    others = [0, 1, 2, 4, 6, 7]
    assert_same(batch[0], fit(X, M, interval="wald"))
    assert_same(batch[1], fit(X[others], M[others], interval="wald"))
    assert batch.left_out.tolist() == [[0, 0], [1, 1]]
    assert "1 row with missing values and 1 row with nothing drawn" in batch[1].notes[0]


# --- covariates and formulas


def by_hand(*columns: np.ndarray) -> np.ndarray:
    """Features (R, 3, 2 + …): own weights of bat and fly, then each column times these."""
    own = np.eye(3)[:, 1:]
    parts = [np.broadcast_to(own, (8, 3, 2))]
    return np.concatenate([*parts, *(own * column[:, None, None] for column in columns)], -1)


def test_text_becomes_a_factor_that_acts_through_the_groups(tmp_path: Path) -> None:
    wood = (WIDE["habitat"] == "wood").to_numpy().astype(float)
    expected = fit(X, M, covariates=by_hand(wood))
    WIDE.to_csv(tmp_path / "counts.csv", index=False)
    table = read_counts(tmp_path / "counts.csv", ["habitat"])
    assert table.variable("habitat").levels == ("field", "wood")
    for data in (WIDE, long_of(WIDE, USUAL), table):
        result = fit(data, covariates=["habitat"])
        assert_same(result, expected)
        assert result.names == ("bat", "fly", "bat:habitat[T.wood]", "fly:habitat[T.wood]")
        assert result.reference == "vole"
        assert "compare it with vole" in " ".join(str(result).split())


def test_a_formula_has_the_terms_that_it_names() -> None:
    wood = (WIDE["habitat"] == "wood").to_numpy().astype(float)
    age = np.log(WIDE["age"].to_numpy())
    expected = fit(X, M, covariates=by_hand(wood, age))
    assert_same(fit(WIDE, formula="~ habitat + np.log(age)"), expected)
    named = fit(WIDE, formula="~ group * (habitat + np.log(age))")
    assert_close(named.log_likelihood, expected.log_likelihood, 1e-9)
    assert named.names[:2] == ("group[T.bat]", "group[T.fly]")
    assert fit(WIDE, formula="~ group * age", reference="fly").names[0] == "group[T.vole]"
    assert_close(fit(WIDE, formula="~ group").log_likelihood, fit(X, M).log_likelihood, 1e-9)


def test_a_property_of_groups_says_that_it_replaces_their_weights() -> None:
    frame = WIDE.assign(mass_vole=30.0, mass_bat=20.0, mass_fly=0.1)
    result = fit(frame, covariates=["mass"])
    assert_same(result, fit(X, M, covariates=[[30.0], [20.0], [0.1]]))
    assert "mass is a property of the groups, the same in all rows" in result.notes[0]
    assert result.reference is None
    assert result.baseline == ()
    kind = WIDE.assign(kind_vole="beast", kind_bat="beast", kind_fly="insect")
    assert fit(kind, covariates=["kind"]).names == ("kind[T.insect]",)


def test_nested_fits_of_tables_are_compared_by_anova() -> None:
    small, large = fit(WIDE, covariates=["age"]), fit(WIDE, covariates=["age", "habitat"])
    found = anova(small, large)
    assert int(found.degrees_of_freedom) == 2
    assert_close(found.statistic, 2 * (large.log_likelihood - small.log_likelihood), 1e-10)
    assert int(anova(fit(WIDE), small).degrees_of_freedom) == 2


def test_a_cluster_is_a_column_or_labels() -> None:
    assert_same(fit(WIDE, cluster="site"), fit(X, M, cluster=WIDE["site"]))
    assert_same(fit(WIDE, cluster="site"), fit(X, M, cluster=list("aabbccdd")))


# --- one fit for each value


def test_fits_by_a_column_are_those_of_its_rows(tmp_path: Path) -> None:
    WIDE.to_csv(tmp_path / "counts.csv", index=False)
    table = read_counts(tmp_path / "counts.csv", ["habitat"])
    for data in (WIDE, table):
        fits = fit_by(data, "habitat", reference="fly")
        assert list(fits) == ["wood", "field"]
        for k, value in enumerate(fits):
            assert_same(fits[value], fit(X[k::2], M[k::2], reference=2))
        test = fits.difference_test()
        assert test is not None
        gain = sum(float(r.log_likelihood) for r in fits.values())
        pooled = float(fit(X, M).log_likelihood)
        assert_close(test.statistic, 2 * (gain - pooled), 1e-9)
        assert int(test.degrees_of_freedom) == 2
    assert list(fits.to_frame().index.names) == ["habitat", "coefficient"]
    assert "habitat: field\n══════════════\nFisher's law" in str(fits)
    assert "Do the fits differ by habitat? Likelihood ratio" in str(fits)
    assert set(fits.to_dict()["fits"]) == {"wood", "field"}
    assert len(fits.plot().axes) == 1


def test_a_value_that_cannot_be_fitted_is_a_note() -> None:
    frame = WIDE.copy()
    frame.loc[frame["habitat"] == "field", ["m_fly", "x_fly"]] = 0
    fits = fit_by(frame, "habitat", reference="fly")
    assert list(fits) == ["wood"]
    assert fits.notes == [
        "habitat field cannot be fitted: reference 'fly' has no ball in any row; choose a group "
        "that has."
    ]
    assert fits.difference_test() is None


# --- bad input

BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no counts": (WIDE[["row", "age"]], {}, "columns of data are row, age, but a count table has"),
    "no drawn": (WIDE.drop(columns="x_bat"), {}, "column 'm_bat' of data has no column 'x_bat'"),
    "one group": (WIDE[["m_bat", "x_bat"]], {}, "only one group, 'bat', in data"),
    "text": (WIDE.assign(m_bat="many"), {}, r"column 'm_bat' of data holds text \(many\)"),
    "fraction": (WIDE.assign(x_bat=1.5), {}, "column 'x_bat' of data is 1.5 in row 0, but a count"),
    "negative": (WIDE.assign(x_bat=-1), {}, "column 'x_bat' of data is -1 in row 0"),
    "too many": (WIDE.assign(x_bat=99), {}, "counts in row 0, group 'bat' is 99, but only 8"),
    "unknown covariate": (WIDE, {"covariates": ["mass"]}, "neither a column 'mass' nor one"),
    "unknown cluster": (WIDE, {"cluster": "plot"}, "neither a column 'plot' nor one 'plot_vole'"),
    "cluster of groups": (WIDE, {"cluster": "m"}, "m differs between the groups of row 0"),
    "unknown reference": (
        WIDE,
        {"covariates": ["age"], "reference": "cow"},
        "reference 'cow' is not a group; the groups are vole, bat, fly",
    ),
    "unknown column": (WIDE, {"columns": {"row": "plot"}}, "no column is called 'plot'"),
    "unknown meaning": (WIDE, {"columns": {"kind": "row"}}, "can rename only row, group,"),
    "both": (WIDE, {"covariates": ["age"], "formula": "~ age"}, "covariates or a formula, not bo"),
    "formula": (WIDE, {"formula": "~ age +"}, r"formula '~ age \+' cannot be read"),
    "unknown in a formula": (WIDE, {"formula": "~ mass"}, "neither a column 'mass'"),
    "left side": (WIDE, {"formula": "y ~ age"}, "has a left side, but the counts are those of"),
    "constant": (WIDE.assign(k=1), {"covariates": ["k"]}, "'k' is the same everywhere"),
    "one level": (WIDE.assign(k="a"), {"covariates": ["k"]}, "k is 'a' in every row; a factor"),
    "numbers and text": (
        WIDE.assign(k=["1", "2", "3", "4", "x", "5", "6", "7"]),
        {"covariates": ["k"]},
        "k is 'x' in row 'p5', group 'vole', but numbers elsewhere",
    ),
    "infinite": (
        WIDE.assign(k=np.inf),
        {"covariates": ["k"]},
        "k is inf in row 'p1', group 'vole'",
    ),
    "groups": (WIDE, {"groups": ["a"]}, "groups is given, but a table has its own"),
    "array covariates": (WIDE, {"covariates": [[1.0]]}, "covariates are names of its columns"),
    "group twice": (
        pd.concat([long_of(WIDE, USUAL)] * 2),
        {},
        "row 'p1' has two lines for group 'vole'",
    ),
    "long without row": (
        long_of(WIDE, USUAL).drop(columns="row"),
        {},
        "data has no column 'row'; a long count table has the columns row, group",
    ),
    "collinear": (WIDE.assign(k=WIDE["age"] * 2), {"covariates": ["age", "k"]}, "linear combin"),
    "nothing": ([1, 2], {}, "group_sizes is missing"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_get_one_clear_sentence(case: str) -> None:
    data, options, message = BAD[case]
    with pytest.raises(ValueError, match=message) as caught:
        fit(data, **options)
    assert "\n" not in str(caught.value)
