"""`clogit`: estimates, errors, tests, intervals and predictions against R and brute force."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import brentq, minimize
from statsmodels.discrete.conditional_models import ConditionalLogit

from diffurn import ClogitResult, clogit
from diffurn.inference import anova, fit
from support.strata import in_forty_digits, listed, one_by_one, study

FRAME = pd.DataFrame(study().columns())


def with_factor(extra: str = "", **options: Any) -> ClogitResult:
    return clogit(f"case ~ x + w + group{extra}", data=FRAME, strata="stratum", **options)


def assert_near(actual: Any, expected: Any, tolerance: float = 1e-8) -> None:
    torch.testing.assert_close(
        torch.as_tensor(actual).double(),
        torch.as_tensor(expected).double(),
        rtol=tolerance,
        atol=tolerance,
    )


# --- R; the code is in support/strata.py


# y ~ x + w + g + strata(id): coef(r), sqrt(diag(vcov(r)))
R_BETA = [0.3707307640903728, -0.3047053602747454, 0.2958064485331771, 0.2080341381937802]
R_ERRORS = [0.3930133720748011, 0.4227711302152303, 0.7226345840767751, 0.7016034138958895]


def test_estimates_errors_and_tests_equal_those_of_r() -> None:
    result = with_factor()
    assert result.names == ("x", "w", "group[T.b]", "group[T.c]")
    assert_near(result.coefficients, R_BETA)
    assert_near(result.standard_errors, R_ERRORS)
    # r$loglik, r$score, r$wald.test
    assert_near(result.null_log_likelihood, -28.3969554791837098)
    assert_near(result.log_likelihood, -27.6408510928257201)
    assert_near(result.score_test().statistic, 1.5021121969710880)
    assert_near(result.wald_test().statistic, 1.4674592665569040)


def test_an_offset_gives_the_numbers_of_r() -> None:
    # y ~ x + w + g + offset(off) + strata(id): coef(r), r$loglik, r$score
    for result in (with_factor(offset="offset"), with_factor(" + offset(offset)")):
        assert_near(result.coefficients[:2], [0.3992688342136319, -0.3253110484840889])
        assert_near(result.coefficients[2:], [0.3280195617889244, 0.2455346077633731])
        assert_near(result.null_log_likelihood, -28.0649637634628419)
        assert_near(result.log_likelihood, -27.2066780954442464)
        assert_near(result.score_test().statistic, 1.7008477612607280)


def test_an_interaction_gives_the_numbers_of_r() -> None:
    # y ~ x*w + strata(id): coef(r)
    result = clogit("case ~ x*w + strata(stratum)", data=FRAME)
    assert result.names == ("x", "w", "x:w")
    expected = [1.7945692852397621, -0.2741921134726887, 2.6719222776004958]
    assert_near(result.coefficients, expected)


def test_one_binary_covariate_is_the_test_of_mantel_and_haenszel() -> None:
    # m <- table(g == "a", y, id); mantelhaen.test(m, correct = FALSE)$statistic
    binary = (study().group == "a").astype(float)
    result = clogit(study().case, binary, study().stratum)
    assert_near(result.score_test().statistic, 0.0645245141067681)


def test_redundant_columns_of_an_interaction_are_left_out_as_in_r() -> None:
    """Within strata, the indicators of all groups times a number of the stratum add up to it."""
    frame = FRAME.assign(size=FRAME.groupby("stratum")["x"].transform("size").astype(float))
    result = clogit("case ~ group + group:size", data=frame, strata="stratum")
    assert result.names == ("group[T.b]", "group[T.c]", "group[a]:size", "group[b]:size")
    assert "group[c]:size is left out" in result.notes[0]


# The data sets that come with R are not copied here. The names are those of R's help pages.
R_SCRIPT = """
library(survival)
control <- coxph.control(eps = 1e-14)
if (name == "infert") {
  d <- infert
  r <- clogit(case ~ spontaneous + induced + strata(stratum), d, method = "exact",
              control = control)
} else {
  jobs <- levels(logan$occupation); n <- nrow(logan); i <- rep(1:n, length(jobs))
  d <- data.frame(logan[i, ], id = i, tocc = factor(rep(jobs, each = n)))
  d$case <- as.integer(d$occupation == d$tocc)
  r <- clogit(case ~ tocc + tocc:education + strata(id), d, method = "exact", control = control)
}
write.csv(d, file.path(folder, "data.csv"), row.names = FALSE)
estimates <- coef(r)[!is.na(coef(r))]
cat(format(c(estimates, r$loglik), digits = 17), "\\n")
"""


@pytest.mark.needs("survival")
@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("infert", "case ~ spontaneous + induced + strata(stratum)"),
        ("logan", "case ~ tocc + tocc:education + strata(id)"),
    ],
)
def test_data_sets_of_r_give_the_numbers_of_r(name: str, formula: str, tmp_path: Path) -> None:
    script = f"name <- {name!r}; folder <- {str(tmp_path)!r}\n{R_SCRIPT}"
    done = subprocess.run(
        ["Rscript", "--vanilla", "-"], input=script, capture_output=True, text=True, check=True
    )
    *estimates, null, best = map(float, done.stdout.split())
    result = clogit(formula, data=pd.read_csv(tmp_path / "data.csv"))
    assert_near(result.coefficients, estimates)
    assert_near(result.null_log_likelihood, null)
    assert_near(result.log_likelihood, best)


# --- statsmodels and brute force


def test_estimates_equal_those_of_statsmodels_within_its_tolerance() -> None:
    s = study()
    theirs = ConditionalLogit(s.case, s.X, groups=s.stratum).fit(disp=0)
    mine = clogit(s.case, s.X, s.stratum)
    assert_near(mine.coefficients, theirs.params, 1e-4)
    assert_near(mine.standard_errors, theirs.bse, 1e-4)
    assert_near(mine.log_likelihood, theirs.llf, 1e-6)


def by_brute_force(rows: Any) -> tuple[float, np.ndarray, np.ndarray]:
    """A function of β for the strata with at most 14 rows."""

    def total(beta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        parts = []
        for k in np.unique(rows.stratum):
            mine = rows.stratum == k
            design = rows.X[mine]
            parts.append(listed(design @ beta + rows.offset[mine], rows.case[mine], design))
        return tuple(sum(part) for part in zip(*parts, strict=True))

    return total


def small() -> Any:
    kept = study().stratum < 4
    return type(study())(*(values[kept] for values in study()))


def test_the_maximum_equals_that_of_listed_subsets() -> None:
    rows = small()
    total = by_brute_force(rows)
    best = minimize(
        lambda beta: -total(beta)[0], np.zeros(2), jac=lambda beta: -total(beta)[1], tol=1e-12
    )
    result = clogit(rows.case, rows.X, rows.stratum, offset=rows.offset)
    assert_near(result.coefficients, best.x, 1e-6)
    value, _, information = total(result.coefficients.numpy())
    assert_near(result.log_likelihood, value, 1e-11)
    assert_near(result.covariance, np.linalg.inv(information), 1e-9)


def test_firth_maximises_the_penalised_likelihood() -> None:
    rows = small()
    total = by_brute_force(rows)

    def penalised(beta: np.ndarray) -> float:
        value, _, information = total(beta)
        return -value - 0.5 * np.linalg.slogdet(information)[1]

    best = minimize(penalised, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-8})
    options = {"offset": rows.offset, "penalty": "firth", "interval": "wald"}
    result = clogit(rows.case, rows.X, rows.stratum, **options)
    assert_near(result.coefficients, best.x, 1e-5)


def test_ridge_shrinks_to_the_maximum_with_its_penalty() -> None:
    rows = small()
    result = clogit(rows.case, rows.X, rows.stratum, penalty="ridge", ridge=2.5)
    slope = by_brute_force(rows)(result.coefficients.numpy())[1]
    without = clogit(rows.case, rows.X, rows.stratum, offset=rows.X @ result.coefficients.numpy())
    assert without.penalty is None
    # With the offset of the listed likelihood taken away, its slope is balanced by the penalty.
    mine = type(rows)(*rows[:4], np.zeros_like(rows.offset), rows.stratum)
    slope = by_brute_force(mine)(result.coefficients.numpy())[1]
    assert_near(slope, 2.5 * result.coefficients, 1e-9)


def test_wallenius_equals_all_orders_of_the_cases() -> None:
    rows = small()
    kept = np.isin(rows.stratum, [1, 2])

    def value(beta: np.ndarray) -> float:
        return sum(
            one_by_one(rows.X[rows.stratum == k] @ beta, rows.case[rows.stratum == k])
            for k in (1, 2)
        )

    best = minimize(lambda beta: -value(beta), np.zeros(2), tol=1e-10)
    arguments = rows.case[kept], rows.X[kept], rows.stratum[kept]
    result = clogit(*arguments, model="wallenius")
    assert_near(result.log_likelihood, value(result.coefficients.numpy()), 1e-9)
    assert_near(result.coefficients, best.x, 1e-4)
    assert "Wallenius" in str(result)


def test_a_large_stratum_agrees_with_forty_digits_at_the_estimate() -> None:
    """R gives NA from about this size on."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 1))
    case = (rng.random(1000) < 1 / (1 + np.exp(-x[:, 0]))).astype(int)
    result = clogit(case, x)

    def value(beta: float) -> float:
        return float(in_forty_digits(beta * x[:, 0], case))

    beta, step = float(result.coefficients), 1e-3
    assert_near(result.log_likelihood, value(beta), 1e-11)
    slope = (value(beta + step) - value(beta - step)) / (2 * step)
    curvature = -(value(beta + step) - 2 * value(beta) + value(beta - step)) / step**2
    assert abs(slope / curvature) < 1e-5
    assert_near(1 / result.covariance.item(), curvature, 1e-4)


# --- rows, strata, weights


def test_the_order_of_rows_and_the_names_of_strata_do_not_matter() -> None:
    expected = with_factor()
    moved = FRAME.sample(frac=1, random_state=1)
    moved["stratum"] = "set " + moved["stratum"].astype(str)
    result = clogit("case ~ x + w + group", data=moved, strata="stratum")
    assert_near(result.coefficients, expected.coefficients, 1e-12)
    probabilities = result.predict().numpy()
    assert_near(probabilities, expected.predict().numpy()[moved.index], 1e-12)


def test_adding_a_number_to_a_stratum_changes_nothing() -> None:
    s = study()
    shifted = s.X + 1e6 * s.stratum[:, None]
    result = clogit(s.case, shifted, s.stratum)
    assert_near(result.coefficients, clogit(s.case, s.X, s.stratum).coefficients, 1e-7)


def test_a_weight_repeats_a_stratum() -> None:
    s = study()
    weights = np.array([0, 3, 1, 2, 0])[s.stratum]
    rows = np.concatenate([np.flatnonzero(s.stratum == k) for k in (1, 1, 1, 2, 3, 3)])
    labels = np.repeat([1, 2, 3, 4, 5, 6], [np.sum(s.stratum == k) for k in (1, 1, 1, 2, 3, 3)])
    weighted = clogit(s.case, s.X, s.stratum, weights=weights)
    repeated = clogit(s.case[rows], s.X[rows], labels)
    for name in ("coefficients", "covariance", "log_likelihood", "null_log_likelihood", "cases"):
        assert_near(getattr(weighted, name), getattr(repeated, name), 1e-10)
    assert int(weighted.rows) == int(repeated.rows) == 6


def test_missing_values_and_strata_without_information_are_counted() -> None:
    frame = FRAME.copy()
    frame.loc[3, "x"] = np.nan
    frame.loc[4, "group"] = None
    frame.loc[frame["stratum"] == 4, "case"] = 0
    result = clogit("case ~ x + w + group", data=frame, strata="stratum")
    assert result.notes[:2] == [
        "2 of 50 rows have missing values and are left out (missing: group, x).",
        "1 of 4 strata has no case or no control and is left out.",
    ]
    expected = clogit("case ~ x + w + group", data=frame.dropna(), strata="stratum")
    assert_near(result.coefficients, expected.coefficients, 1e-12)
    assert result.predict().isnan().nonzero().flatten().tolist() == [3, 4]
    assert bool((result.predict()[torch.tensor(frame["stratum"] == 4)] == 0).all())
    with pytest.raises(ValueError, match=r'missing in row 3; .*na="drop"'):
        clogit("case ~ x + w + group", data=frame, strata="stratum", na="raise")


def test_arrays_tensors_frames_and_dictionaries_give_the_same_fit() -> None:
    s, expected = study(), clogit(study().case, study().X, study().stratum).coefficients
    as_frame = pd.DataFrame({"x": s.x, "w": s.w})
    for result in (
        clogit(torch.tensor(s.case), torch.tensor(s.X), torch.tensor(s.stratum)),
        clogit(s.case.tolist(), s.X.tolist(), s.stratum.tolist()),
        clogit(FRAME["case"], as_frame, FRAME["stratum"]),
        clogit("case ~ x + w + strata(stratum)", data=study().columns()),
        clogit(s.case, {"x": s.x, "w": s.w}, s.stratum),
    ):
        assert_near(result.coefficients, expected, 1e-13)


def test_polars_gives_the_fit_of_pandas() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(study().columns())
    result = clogit("case ~ x + w + group", data=frame, strata="stratum")
    assert_near(result.coefficients, with_factor().coefficients, 1e-13)
    ordered = frame.with_columns(polars.col("group").cast(polars.Enum(["c", "a", "b"])))
    result = clogit("case ~ x + group", data=ordered, strata="stratum")
    assert result.names == ("x", "group[T.a]", "group[T.b]")


def test_several_columns_name_the_strata() -> None:
    frame = FRAME.assign(half=(FRAME["stratum"] > 2).astype(int), part=FRAME["stratum"] % 2)
    expected = with_factor().coefficients
    result = clogit("case ~ x + w + group", data=frame, strata=["half", "part"])
    assert_near(result.coefficients, expected, 1e-12)
    result = clogit("case ~ x + w + group + strata(half, part)", data=frame)
    assert_near(result.coefficients, expected, 1e-12)


def test_a_fit_of_counts_is_the_same_model() -> None:
    """Fisher's urn with one ball per row."""
    s = study()
    mine = s.stratum == 4
    features = torch.tensor(s.X[mine]).unsqueeze(0)
    urn = fit(s.case[mine][None], np.ones((1, mine.sum())), covariates=features)
    result = clogit(s.case[mine], s.X[mine])
    assert_near(result.coefficients, urn.coefficients, 1e-8)
    assert_near(result.covariance, urn.covariance, 1e-8)


# --- intervals, tests, robust errors


def test_profile_intervals_end_where_the_likelihood_has_fallen() -> None:
    s = study()
    result = clogit(s.case, s.X, s.stratum, interval="profile")
    for end in (result.lower[0], result.upper[0]):
        held = clogit(s.case, s.w, s.stratum, offset=float(end) * s.x, interval="wald")
        fall = float(result.log_likelihood - held.log_likelihood)
        assert fall == pytest.approx(3.841458820694124 / 2, abs=1e-7)


def test_robust_errors_are_the_sandwich_of_stratum_scores() -> None:
    result, robust = with_factor(), with_factor(covariance="HC0", interval="wald")
    scores = result.stratum_residuals.score
    assert_near(scores.sum(0), torch.zeros(4), 1e-9)
    expected = result.covariance @ scores.mT @ scores @ result.covariance
    assert_near(robust.covariance, expected, 1e-10)
    assert robust.degrees_of_freedom.isinf()


def test_clustered_errors_add_the_scores_of_a_cluster() -> None:
    pairs = (FRAME["stratum"] + 1) // 2
    result = with_factor()
    clustered = with_factor(cluster=pairs, interval="wald")
    scores = result.stratum_residuals.score.reshape(2, 2, 4).sum(1)
    expected = 2 * result.covariance @ scores.mT @ scores @ result.covariance
    assert_near(clustered.covariance, expected, 1e-10)
    assert float(clustered.degrees_of_freedom) == 1
    assert "cluster-robust" in str(clustered)


def test_anova_is_the_likelihood_ratio_of_nested_fits() -> None:
    larger = with_factor()
    smaller = clogit("case ~ x + w", data=FRAME, strata="stratum")
    test = anova(larger, smaller)
    expected = 2 * (larger.log_likelihood - smaller.log_likelihood)
    assert_near(test.statistic, expected, 1e-9)
    assert int(test.degrees_of_freedom) == 2
    other = clogit("case ~ I(x**3)", data=FRAME, strata="stratum")
    with pytest.raises(ValueError, match="not nested"):
        anova(larger, other)


# --- separation


def separated() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    case = np.array([1, 0, 0, 1, 0, 1, 1, 0, 0, 0])
    noise = np.array([0.3, -0.2, 0.5, 0.1, 0.4, 0.2, -0.7, 0.3, 0.0, 0.6])
    return case, np.stack([case + 0.0, noise], 1), np.repeat([1, 2, 3], [3, 3, 4])


def test_a_separating_covariate_has_an_interval_with_one_end() -> None:
    case, x, stratum = separated()
    result = clogit(case, x[:, 0], stratum)
    assert (float(result.coefficients), float(result.upper)) == (math.inf, math.inf)
    assert float(result.log_likelihood) == pytest.approx(0, abs=1e-12)

    def profile(beta: float) -> float:
        return sum(
            listed(beta * x[stratum == k, 0], case[stratum == k], x[stratum == k, :1])[0]
            for k in (1, 2, 3)
        )

    end = brentq(lambda beta: profile(beta) + 3.841458820694124 / 2, 0.1, 20)
    assert float(result.lower) == pytest.approx(end, abs=1e-6)
    ratio = -2 * profile(0.0)
    assert float(result.p_values) == pytest.approx(math.erfc(math.sqrt(ratio / 2)), rel=1e-6)
    assert "no finite estimate of x1" in result.notes[-1]


def test_the_other_coefficients_are_those_of_the_limit() -> None:
    """Half of the strata are separated by the first covariate, and tell nothing then."""
    rng = np.random.default_rng(2)
    stratum, z = np.repeat(np.arange(8), 5), rng.normal(size=40)
    exposed = np.zeros(40)
    case = np.zeros(40, dtype=int)
    for k in range(8):
        rows = np.flatnonzero(stratum == k)
        case[rows[:2]] = 1
        if k < 4:
            exposed[rows[0]] = 1  # one exposed person, a case, in each of these strata
    result = clogit(case, np.stack([exposed, z], 1), stratum)
    assert result.coefficients[0] == math.inf
    # In the limit the exposed case is certain, and the others of its stratum compete.
    kept = exposed == 0
    limit = clogit(case[kept], z[kept], stratum[kept], interval="wald")
    assert_near(result.coefficients[1], limit.coefficients[0], 1e-8)
    assert_near(result.log_likelihood, limit.log_likelihood, 1e-9)
    assert_near(result.standard_errors[1], limit.standard_errors[0], 1e-7)
    firth = clogit(case, np.stack([exposed, z], 1), stratum, penalty="firth", interval="wald")
    assert bool(firth.coefficients.isfinite().all())


# --- predictions and reports


def test_probabilities_are_those_of_listed_subsets_and_sum_to_the_cases() -> None:
    s, result = study(), clogit(study().case, study().X, study().stratum)
    probability = result.predict()
    for k in (1, 2):
        mine = s.stratum == k
        design = s.X[mine]
        log_weights = design @ result.coefficients.numpy()
        # With V = identity the score is the case less its probability.
        residual = listed(log_weights, s.case[mine], np.eye(mine.sum()))[1]
        assert_near(probability[torch.tensor(mine)], s.case[mine] - residual, 1e-11)
        assert_near(result.residuals()[torch.tensor(mine)], residual, 1e-11)
    again = result.predict(s.X, s.stratum, cases=np.array([0, 2, 5, 7, 9])[s.stratum])
    assert_near(again, probability, 1e-12)
    variance = probability * (1 - probability)
    assert_near(result.residuals("pearson") * variance.sqrt(), result.residuals(), 1e-12)


def test_probabilities_of_other_rows_use_the_same_factors() -> None:
    result = with_factor()
    other = pd.DataFrame({"x": [0.1, 0.2], "w": [0.0, 1.0], "group": ["c", "a"], "stratum": [9, 9]})
    found = result.predict(data=other)
    b = result.coefficients
    expected = torch.softmax(torch.stack([0.1 * b[0] + b[3], 0.2 * b[0] + b[1]]), 0)
    assert_near(found, expected, 1e-12)
    with pytest.raises(ValueError, match="level 'd', which the fit did not see; it saw a, b, c"):
        result.predict(data=other.assign(group=["c", "d"]))


def test_the_influence_of_a_stratum_is_about_its_effect() -> None:
    rng = np.random.default_rng(4)
    stratum = np.repeat(np.arange(200), 4)
    x = rng.normal(size=800)
    case = (np.arange(800) % 4 < 2).astype(int)
    result = clogit(case, x, stratum, interval="wald")
    without = clogit(case[4:], x[4:], stratum[4:], interval="wald")
    change = float(result.coefficients - without.coefficients)
    assert float(result.stratum_residuals.influence[0, 0]) == pytest.approx(change, rel=0.05)
    assert result.stratum_residuals.first_row[:3].tolist() == [0, 4, 8]
    total = float(result.stratum_residuals.deviance.sum())
    assert total == pytest.approx(-2 * float(result.log_likelihood), abs=1e-9)


def test_reports_fit_eighty_columns_and_name_their_scale() -> None:
    result = with_factor()
    assert max(map(len, str(result).splitlines())) <= 80
    assert "23 cases among 50 rows, in 4 strata of 5\nto 22 rows" in str(result)
    frame = result.to_frame()
    assert list(frame.columns)[:1] == ["beta"]
    assert_near(frame["odds_ratio"].tolist(), result.coefficients.exp(), 1e-15)
    record = result.to_dict()
    assert record["coefficients"][2]["name"] == "group[T.b]"
    assert record["tests_that_all_beta_are_zero"]["Wald"]["statistic"] == pytest.approx(1.46745926)
    assert repr(result).startswith("ClogitResult(model='fisher', strata=4")


def test_the_plot_shows_every_odds_ratio() -> None:
    figure = with_factor().plot()
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == ["x", "w", "group[T.b]", "group[T.c]"]


def test_progress_reaches_all_of_the_work() -> None:
    seen: list[tuple[int, int]] = []
    with_factor(progress=lambda done, total: seen.append((done, total)), interval="wald")
    assert max(done for done, _ in seen) == seen[0][1]
