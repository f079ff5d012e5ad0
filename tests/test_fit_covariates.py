"""Fits with covariates: conditional logistic regression by another name, so statsmodels and brute
force are the oracles.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, root
from scipy.special import gammaln, logsumexp
from scipy.stats import norm
from statsmodels.discrete.conditional_models import ConditionalLogit

from diffurn.inference import fit, interactions
from support import fit_oracles as oracle
from support.fit_oracles import assert_close

INF = math.inf
# UC Berkeley, 1973, departments A to F: applicants and admitted, men and women (Bickel et al. 1975)
APPLIED = [[825, 108], [560, 25], [325, 593], [417, 375], [191, 393], [373, 341]]
ADMITTED = [[512, 89], [353, 17], [120, 202], [138, 131], [53, 94], [22, 24]]


def conditional_logit(
    counts: np.ndarray, sizes: np.ndarray, features: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and standard errors by statsmodels, from one record per ball."""
    drawn, exposure, stratum = [], [], []
    for row, (x, m, z) in enumerate(zip(counts, sizes, features, strict=True)):
        for j in range(len(m)):
            drawn += [1] * int(x[j]) + [0] * int(m[j] - x[j])
            exposure += [z[j]] * int(m[j])
            stratum += [row] * int(m[j])
    model = ConditionalLogit(np.array(drawn), np.array(exposure), groups=np.array(stratum))
    beta = root(
        model.score, np.zeros(features.shape[-1]), tol=1e-12
    ).x  # its own optimiser stops at 1e-4
    return beta, np.sqrt(np.diag(np.linalg.inv(-model.hessian(beta))))


def test_the_common_odds_ratio_of_berkeley_is_the_conditional_one() -> None:
    # statsmodels sums over subsets too slowly for strata of 900; the conditional likelihood of a 2
    # × 2 table is one sum
    def slopes(log_odds: float) -> tuple[float, float]:
        score = information = 0.0
        for (m1, m2), (x, y) in zip(APPLIED, ADMITTED, strict=True):
            n = x + y
            k = np.arange(max(0, n - m2), min(m1, n) + 1)
            logs = (
                -gammaln(k + 1)
                - gammaln(m1 - k + 1)
                - gammaln(n - k + 1)
                - gammaln(m2 - n + k + 1)
                + k * log_odds
            )
            p = np.exp(logs - logsumexp(logs))
            score += x - p @ k
            information += p @ k**2 - (p @ k) ** 2
        return score, information

    log_odds = brentq(lambda b: slopes(b)[0], -1, 1, xtol=1e-14)
    result = fit(ADMITTED, APPLIED, groups=["men", "women"], reference="women")
    assert_close(result.coefficients[0], log_odds, 1e-9)
    assert_close(result.standard_errors[0], slopes(log_odds)[1] ** -0.5, 1e-9)
    same = fit(ADMITTED, APPLIED, covariates=[[1.0], [0.0]], names=["male"])
    assert_close(same.coefficients[0], log_odds, 1e-9)
    assert int(result.goodness_of_fit().degrees_of_freedom) == 5


def test_small_strata_agree_with_statsmodels() -> None:
    random = np.random.default_rng(3)
    sizes = random.integers(1, 4, (25, 4))
    features = np.round(random.standard_normal((25, 4, 3)), 2)
    counts = np.stack([random.multivariate_hypergeometric(m, int(m.sum()) // 2) for m in sizes])
    result = fit(counts, sizes, covariates=features, names=["a", "b", "c"])
    beta, errors = conditional_logit(counts, sizes, features)
    assert_close(result.coefficients, beta, 1e-6)
    assert_close(result.standard_errors, errors, 1e-5)
    assert result.names == ("a", "b", "c")
    assert result.log_weights is None
    value = oracle.log_likelihood(counts.tolist(), sizes.tolist(), features)
    assert_close(result.log_likelihood, value(result.coefficients.numpy()), 1e-10)
    expected = sum(
        oracle.moments(m.tolist(), int(x.sum()), z @ result.coefficients.numpy())[0]
        for x, m, z in zip(counts, sizes, features, strict=True)
    )
    assert_close(result.expected, expected, 1e-9)


def test_group_weights_of_stratified_tables_agree_with_statsmodels() -> None:
    random = np.random.default_rng(5)
    sizes = random.integers(2, 6, (12, 3))
    counts = np.stack([random.multivariate_hypergeometric(m, int(m.sum()) // 3) for m in sizes])
    beta, errors = conditional_logit(counts, sizes, oracle.indicators(12, 3, 2))
    result = fit(counts, sizes, reference=2)
    assert_close(result.coefficients[:2], beta, 1e-6)
    assert_close(result.standard_errors[:2], errors, 1e-5)


def test_indicators_of_groups_are_the_plain_model() -> None:
    counts, sizes = [[3, 1, 2], [2, 2, 4]], [[5, 4, 6], [3, 6, 7]]
    plain = fit(counts, sizes, reference=2, interval="profile")
    same = fit(counts, sizes, covariates=np.eye(3)[:, :2], interval="profile")
    for name in ("coefficients", "standard_errors", "lower", "upper"):
        assert_close(getattr(same, name), getattr(plain, name)[:2], 1e-8)
    assert_close(same.log_likelihood, plain.log_likelihood, 1e-10)
    firth = fit(counts, sizes, covariates=np.eye(3)[:, :2], penalty="firth")
    assert_close(
        firth.coefficients, fit(counts, sizes, reference=2, penalty="firth").coefficients[:2], 1e-7
    )


def test_features_of_rows_act_through_the_groups() -> None:
    years = np.array([[0.0], [1.0], [2.0], [3.0]])
    counts, sizes = (
        [[5, 3, 2], [5, 4, 3], [4, 6, 2], [3, 5, 5]],
        [[9, 8, 7], [9, 9, 8], [8, 9, 7], [7, 8, 9]],
    )
    features, names = interactions(
        pd.DataFrame(years, columns=["year"]), ["a", "b", "c"], reference="b"
    )
    assert names == ("a", "a:year", "c", "c:year")
    result = fit(counts, sizes, covariates=features, names=names)
    by_hand = np.zeros((4, 3, 4))
    by_hand[:, 0, 0] = by_hand[:, 2, 2] = 1
    by_hand[:, 0, 1] = by_hand[:, 2, 3] = years[:, 0]
    beta, value = oracle.maximum(oracle.log_likelihood(counts, sizes, by_hand), np.zeros(4))
    assert_close(result.coefficients, beta, 1e-5)
    assert_close(result.log_likelihood, value, 1e-9)
    assert_close(
        result.predict(sizes[1], sum(counts[1]), features[1]),
        oracle.moments(sizes[1], sum(counts[1]), by_hand[1] @ beta)[0],
        1e-4,
    )


def test_data_frames_of_covariates_serve_fits_and_predictions() -> None:
    frame = pd.DataFrame({"price": [1.0, 0.0, 2.0]}, index=["a", "b", "c"])
    result = fit([[1, 2, 1], [1, 1, 1]], [4, 4, 4], covariates=frame, groups=["a", "b", "c"])
    assert_close(
        result.predict([4, 4, 4], 5, frame), result.predict([4, 4, 4], 5, frame.to_numpy()), 0
    )


def test_a_batch_with_features_equals_separate_fits() -> None:
    sizes, features = torch.randint(2, 9, (6, 3)), torch.randn(6, 3, 2)
    counts = torch.stack(
        [torch.minimum(torch.randint(1, 9, (6, 3)), sizes) for _ in range(4)]
    ).reshape(2, 2, 6, 3)
    batch = fit(counts, sizes, covariates=features, interval="profile")
    assert batch.coefficients.shape == (2, 2, 2)
    alone = fit(counts[1, 0], sizes, covariates=features, interval="profile")
    for name in ("coefficients", "covariance", "lower", "upper", "log_likelihood"):
        assert_close(getattr(batch[1, 0], name), getattr(alone, name), 1e-9)


# --- precision

DATES = [[20240115], [20240117], [20240118]]
DATED = ([[3, 2, 1], [2, 3, 4], [1, 2, 5]], [[5, 9, 7]] * 3)
CONTAINERS: dict[str, Any] = {
    "list": DATES,
    "list-of-floats": [[float(date) for date in row] for row in DATES],
    "array-of-int64": np.array(DATES),
    "array-of-int32": np.array(DATES, dtype=np.int32),
    "array-of-objects": np.array(DATES, dtype=object),
    "tensor-of-integers": torch.tensor(DATES),
    "tensor-of-float64": torch.tensor(DATES, dtype=torch.float64),
    "data-frame": pd.DataFrame(DATES, columns=["date"]),
    "data-frame-of-nullable-integers": pd.DataFrame(DATES, columns=["date"], dtype="Int64"),
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_dates_are_not_rounded_in_any_container(container: str) -> None:
    counts, sizes = DATED
    features = np.broadcast_to(np.array(DATES, dtype=float) - 20240117, (3, 3, 1))
    beta, value = oracle.maximum(oracle.log_likelihood(counts, sizes, features), np.zeros(1))
    result = fit(counts, sizes, covariates=CONTAINERS[container])
    assert_close(result.coefficients, beta, 1e-7)
    assert_close(
        result.standard_errors, oracle.information(counts, sizes, features, beta)[0] ** -0.5, 1e-7
    )
    assert_close(result.log_likelihood, value, 1e-10)
    assert bool(result.converged)
    expected = oracle.moments(sizes[0], 6, features[0] @ beta)[0]
    assert_close(result.predict(sizes[0], 6, CONTAINERS[container]), expected, 1e-6)


@pytest.mark.parametrize("offset", [2e7, 1.7e12])
@pytest.mark.parametrize(
    ("model", "penalty"),
    [("fisher", None), ("fisher", "ridge"), ("fisher", "firth"), ("wallenius", None)],
)
def test_an_offset_of_a_whole_row_changes_nothing(
    model: str, penalty: str | None, offset: float
) -> None:
    random = np.random.default_rng(11)
    features = np.round(random.standard_normal((4, 3, 2)), 1)
    features = np.ldexp(np.round(np.ldexp(features, 8)), -8)  # such that adding an offset is exact
    plain, moved = (
        fit(
            oracle.COUNTS,
            oracle.SIZES,
            covariates=z,
            model=model,
            penalty=penalty,
            interval="profile",
        )
        for z in (features, features + offset * np.arange(1, 5)[:, None, None])
    )
    for name in ("coefficients", "covariance", "lower", "upper", "log_likelihood", "expected"):
        assert_close(getattr(moved, name), getattr(plain, name), 1e-9)


def test_separation_is_seen_beside_a_large_offset() -> None:
    features = np.array([[[1.0], [0.0]], [[0.5], [2.0]], [[3.0], [2.5]]]) + 1e9
    assert_close(
        fit([[1, 0], [0, 1], [1, 0]], [[1, 1]] * 3, covariates=features).coefficients, [INF], 0
    )


@pytest.mark.parametrize("placeholder", [0.0, -999.0, 1e300])
def test_features_of_absent_groups_do_not_matter(placeholder: float) -> None:
    features = np.array(
        [
            [[1.0], [2.0], [placeholder]],
            [[3.0], [1.0], [placeholder]],
            [[1.0], [1.5], [placeholder]],
        ]
    )
    result = fit([[1, 2, 0], [3, 1, 0], [2, 2, 0]], [[4, 5, 0]] * 3, covariates=features)
    without = fit([[1, 2], [3, 1], [2, 2]], [[4, 5]] * 3, covariates=features[:, :2])
    assert_close(result.coefficients, without.coefficients, 1e-12)
    assert_close(result.log_likelihood, without.log_likelihood, 1e-12)


# --- separation


def test_complete_separation_is_reported_as_infinite() -> None:
    # the ball with the larger feature was drawn every time
    features = np.array([[[1.0], [0.0]], [[0.5], [2.0]], [[3.0], [2.5]]])
    counts, sizes = [[1, 0], [0, 1], [1, 0]], [[1, 1]] * 3
    result = fit(counts, sizes, covariates=features, names=["size"])
    assert_close(result.coefficients, [INF], 0)
    assert_close(result.standard_errors, [INF], 0)
    assert_close(result.log_likelihood, 0.0, 1e-9)
    value = oracle.log_likelihood(counts, sizes, features)
    end = brentq(lambda b: value(np.array([b])) + norm.ppf(0.975) ** 2 / 2, -10, 10, xtol=1e-12)
    assert_close(result.lower, [end], 1e-7)
    assert_close(result.upper, [INF], 0)
    assert "no finite estimate of size" in " ".join(result.notes)
    assert "firth" in " ".join(result.notes)
    mirrored = fit(counts, sizes, covariates=-features)
    assert_close(mirrored.coefficients, [-INF], 0)
    assert_close(mirrored.upper, [-end], 1e-7)


def test_partial_separation_leaves_the_other_coefficients_alone() -> None:
    # a group never drawn, told by an indicator; the numeric feature has a finite estimate
    counts, sizes = [[2, 0, 3], [1, 0, 2], [3, 0, 1]], [[4, 3, 5], [2, 2, 6], [4, 4, 2]]
    feature = np.array([[0.3, 1.0, -0.5], [1.2, -0.4, 0.1], [-0.7, 0.2, 0.9]])
    features = np.stack([np.broadcast_to([0.0, 1.0, 0.0], (3, 3)), feature], -1)
    result = fit(counts, sizes, covariates=features, names=["second", "z"])
    rest = [[0, 2], [0, 2], [0, 2]]
    reduced = fit(
        np.take_along_axis(np.array(counts), np.array(rest), 1),
        np.take_along_axis(np.array(sizes), np.array(rest), 1),
        covariates=feature[:, [0, 2]][..., None],
    )
    assert_close(result.coefficients, [-INF, float(reduced.coefficients[0])], 1e-7)
    assert_close(result.standard_errors[1], reduced.standard_errors[0], 1e-7)
    assert_close(result.log_likelihood, reduced.log_likelihood, 1e-9)
    value = oracle.log_likelihood(counts, sizes, features)
    target = float(result.log_likelihood) - norm.ppf(0.975) ** 2 / 2
    assert_close(
        result.upper[0], oracle.profile_end(value, np.array([1.0, 0.0]), target, -15.0, 5.0), 1e-6
    )


def test_a_coefficient_on_which_nothing_depends_in_the_limit_is_nan() -> None:
    # the first feature alone separates, so every value of the second is as good
    features = np.array(
        [
            [[2.0, 1.0], [1.0, 0.0], [0.0, 0.0]],
            [[0.0, 0.0], [2.0, 1.0], [1.0, 0.0]],
            [[2.0, 1.0], [1.0, 0.0], [3.0, 0.0]],
        ]
    )
    counts, sizes = [[1, 0, 0], [0, 1, 0], [1, 0, 1]], [[1, 1, 1]] * 3
    result = fit(counts, sizes, covariates=features)
    assert_close(result.coefficients, [INF, math.nan], 0)
    value = oracle.log_likelihood(counts, sizes, features)
    target = float(result.log_likelihood) - norm.ppf(0.975) ** 2 / 2
    end = brentq(
        lambda b: max(value(np.array([b, other])) for other in np.linspace(-10, 40, 2501)) - target,
        -5,
        5,
        xtol=1e-12,
    )
    assert_close(result.lower[0], end, 1e-4)


@st.composite
def tables_with_features(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]], np.ndarray]:
    groups, rows = draw(st.integers(2, 3)), draw(st.integers(2, 5))
    sizes = [[draw(st.integers(1, 2)) for _ in range(groups)] for _ in range(rows)]
    counts = [[draw(st.integers(0, m)) for m in row] for row in sizes]
    for x in counts:
        x[0] = max(x[0], 1 if not any(x) else 0)
    features = np.array(
        [
            [[draw(st.integers(-3, 3)) for _ in range(2)] for _ in range(groups)]
            for _ in range(rows)
        ],
        dtype=float,
    )
    return counts, sizes, features


def separated(counts: oracle.Rows, sizes: oracle.Rows, features: np.ndarray) -> bool:
    """Whether some direction of β has no row with an outcome better than the observed one, by
    linear programming.
    """
    differences = np.concatenate(
        [
            (oracle.support(tuple(m), sum(x)) - np.array(x, dtype=float)) @ z
            for x, m, z in zip(counts, sizes, features, strict=True)
        ]
    )
    solution = oracle.linprog(
        differences.sum(0), A_ub=differences, b_ub=np.zeros(len(differences)), bounds=(-1, 1)
    )
    return -solution.fun > 1e-6


@settings(max_examples=50)
@given(tables_with_features())
def test_an_estimate_is_infinite_exactly_if_covariates_separate(
    table: Any,
) -> None:
    counts, sizes, features = table
    centred = [
        z - z.mean(0) for z, x, m in zip(features, counts, sizes, strict=True) if sum(x) < sum(m)
    ]
    if not centred or np.linalg.matrix_rank(np.concatenate(centred)) < 2:
        with pytest.raises(ValueError, match="covariates column"):
            fit(counts, sizes, covariates=features)
        return
    result = fit(counts, sizes, covariates=features)
    finite = bool(result.coefficients.isfinite().all())
    assert finite != separated(counts, sizes, features)
    if finite:
        beta = result.coefficients.numpy()
        score = sum(
            z.T @ (np.array(x) - oracle.moments(m, sum(x), z @ beta)[0])
            for x, m, z in zip(counts, sizes, features, strict=True)
        )
        np.testing.assert_allclose(score, 0, atol=1e-7)


# --- bad input

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "constant": (
        {"covariates": np.ones((3, 1)), "names": ["one"]},
        "column 'one' has one value for all groups of a row",
    ),
    "constant-in-rows": (
        {"covariates": np.broadcast_to(np.arange(2.0)[:, None, None], (2, 3, 1))},
        "column 'z1' has one value",
    ),
    "collinear": (
        {"covariates": [[1.0, 2.0], [0.0, 0.0], [2.0, 4.0]]},
        "column 'z2' is, up to rounding, a linear",
    ),
    "collinear-given-the-row": (
        {"covariates": [[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]]},
        "column 'z3' is, up to rounding, a linear",
    ),
    "collinear-but-for-an-offset": (
        {"covariates": interactions([[20240115], [20240117]], ["a", "b", "c"])[0]},
        "column 'z2' is, up to rounding, .* subtract a typical one from all",
    ),
    "words": (
        {"covariates": [["young"], ["old"], ["old"]]},
        "covariates cannot be read as real numbers",
    ),
    "shape": ({"covariates": np.ones((4, 1))}, r"covariates has shape \(4, 1\), but must be"),
    "rows": ({"covariates": np.ones((5, 3, 1))}, r"covariates has shape \(5, 3, 1\), but must be"),
    "features-of-rows": (
        {"covariates": np.ones((2, 1))},
        "go through diffurn.inference.interactions",
    ),
    "nan": ({"covariates": [[1.0], [math.nan], [0.0]]}, r"no row is left: 2 have missing values"),
    "infinite": (
        {"covariates": [[1.0], [math.inf], [0.0]]},
        r"covariates at index \(1, 0\) is inf, but every feature must be a finite number",
    ),
    "names": (
        {"covariates": [[1.0], [0.0], [2.0]], "names": ["a", "b"]},
        "names has 2 entries, but covariates has 1 columns",
    ),
    "reference": ({"covariates": [[1.0], [0.0], [2.0]], "reference": 0}, "leave it out"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_covariates_are_named(case: str) -> None:
    arguments, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        fit([[1, 2, 1], [1, 1, 1]], [4, 4, 4], **arguments)


def test_a_fit_with_covariates_has_no_group_weights() -> None:
    result = fit([[1, 2, 1], [1, 1, 1]], [4, 4, 4], covariates=[[1.0], [0.0], [2.0]])
    with pytest.raises(ValueError, match="contrasts compare groups"):
        result.contrasts()
    with pytest.raises(ValueError, match="their values are needed"):
        result.predict([4, 4, 4], 5)
    with pytest.raises(ValueError, match="last dimension must be the 1 features"):
        result.predict([4, 4, 4], 5, [[1.0, 2.0]] * 3)
    with pytest.raises(ValueError, match="the fit had none"):
        fit([1, 2, 1], [4, 4, 4]).predict([4, 4, 4], 5, [[1.0]] * 3)
    with pytest.raises(ValueError, match="names has 2 entries"):
        interactions([[1.0]], ["a", "b"], ["x", "y"])
