"""Standard errors beyond the model's, tests between fits, residuals and indices: against formulas
written out row by row, SciPy, and the textbook.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from diffurn import FisherHypergeometric, clogit
from diffurn._numerics.beta import f_tail, student_quantile, student_tail
from diffurn.data import example_counts
from diffurn.inference import FitResult, anova, fit, interactions
from support import fit_oracles as oracle
from support.fit_oracles import COUNTS, SIZES, assert_close

FREQUENCIES = [3, 1, 2, 4]
CLUSTERS = ["x", "y", "x", "z"]


# --- Student's t and F


@pytest.mark.parametrize("degrees", [1, 2, 3.5, 10, 47, 1e4, 1e6, 1e9, math.inf])
def test_tails_and_quantiles_of_student_s_t_are_those_of_scipy(degrees: float) -> None:
    t = torch.tensor([0.0, 1e-8, 0.1, 1.0, 2.0, 5.0, 20.0], dtype=torch.float64)
    expected = torch.tensor(2 * stats.t.sf(t.numpy(), degrees))
    found = student_tail(t, torch.full_like(t, degrees))
    torch.testing.assert_close(found, expected, rtol=1e-5 if degrees == 1e6 else 1e-8, atol=0)
    for level in (0.5, 0.95, 0.999):
        quantile = student_quantile(level, torch.tensor([degrees], dtype=torch.float64))
        assert_close(quantile / stats.t.ppf((1 + level) / 2, degrees), [1.0], 1e-9)


@pytest.mark.parametrize("below", [1, 4, 50, 1e4])
def test_tails_of_f_are_those_of_scipy(below: float) -> None:
    ratio = torch.tensor([0.01, 0.5, 1.0, 3.0, 30.0], dtype=torch.float64)
    for above in (1, 2, 7):
        found = f_tail(ratio, torch.tensor(above), torch.tensor(below))
        expected = torch.tensor(stats.f.sf(ratio.numpy(), above, below))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)
    limit = f_tail(ratio, torch.tensor(3), torch.tensor(math.inf))
    assert_close(limit, stats.chi2.sf(3 * ratio.numpy(), 3), 1e-14)


# --- sandwich, dispersion


def by_hand(result: FitResult, features: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """The inverse information, the score of each row, and Pearson's statistic, from lists of all
    outcomes.
    """
    beta = result.coefficients.numpy()
    inverse = np.linalg.inv(
        np.einsum(
            "r,rij->ij",
            np.array(FREQUENCIES),
            np.stack(
                [
                    oracle.information([x], [m], z[None], beta)
                    for x, m, z in zip(COUNTS, SIZES, features, strict=True)
                ]
            ),
        )
    )
    scores, pearson = [], 0.0
    for x, m, z, f in zip(COUNTS, SIZES, features, FREQUENCIES, strict=True):
        mean, covariance = oracle.moments(m, sum(x), z @ beta)
        scores.append(z.T @ (np.array(x) - mean))
        deviation = np.array(x) - mean
        pearson += f * float(deviation @ np.linalg.pinv(covariance) @ deviation)
    return inverse, np.stack(scores), pearson


@pytest.mark.parametrize("kind", ["scaled", "HC0", "HC1", "cluster"])
def test_covariances_are_those_written_out_row_by_row(kind: str) -> None:
    features = oracle.indicators(4, 3, 2)
    labels = CLUSTERS if kind == "cluster" else None
    options: dict[str, Any] = {"covariance": kind, "cluster": labels, "interval": "wald"}
    result = fit(COUNTS, SIZES, covariates=features, frequencies=FREQUENCIES, **options)
    inverse, scores, pearson = by_hand(result, features)
    f = np.array(FREQUENCIES)
    number, k = 10, 2
    if kind == "scaled":
        degrees = 10 * 2 - 2  # two free counts in each row
        expected = inverse * pearson / degrees
    elif kind == "cluster":
        totals = np.stack(
            [
                sum(f[i] * scores[i] for i in range(4) if CLUSTERS[i] == name)
                for name in ("x", "y", "z")
            ]
        )
        degrees, expected = 2, 3 / 2 * inverse @ totals.T @ totals @ inverse
    else:
        meat = scores.T @ (f[:, None] * scores)
        factor = number / (number - k) if kind == "HC1" else 1.0
        degrees = number - k if kind == "HC1" else math.inf
        expected = factor * inverse @ meat @ inverse
    assert_close(result.covariance, expected, 1e-9)
    errors = np.sqrt(np.diag(expected))
    half = stats.t.ppf(0.975, degrees) * errors
    assert_close(result.upper, result.coefficients.numpy() + half, 1e-8)
    z = result.coefficients.numpy() / errors
    assert_close(result.p_values, 2 * stats.t.sf(np.abs(z), degrees), 1e-8)
    # with a weight for each group the ratios are the same
    groups = fit(COUNTS, SIZES, frequencies=FREQUENCIES, reference=2, **options)
    assert_close(groups.coefficients[:2], result.coefficients, 1e-9)
    assert_close(groups.standard_errors[:2], errors, 1e-9)


def test_a_dispersion_stretches_profile_intervals_and_their_test() -> None:
    result = fit(COUNTS, SIZES, reference=0, covariance="scaled", interval="profile")
    phi = float(result.goodness_of_fit().dispersion)
    degrees = int(result.goodness_of_fit().degrees_of_freedom)
    level = stats.chi2.cdf(stats.t.ppf(0.975, degrees) ** 2 * phi, 1)
    plain = fit(COUNTS, SIZES, reference=0, interval="profile", level=level)
    assert_close(result.lower, plain.lower, 1e-7)
    assert_close(result.upper, plain.upper, 1e-7)
    test = result.equality_test()
    ratio = float(result.likelihood_ratio_test().statistic)
    assert_close(test.p_value, stats.f.sf(ratio / 2 / phi, 2, degrees), 1e-10)


def test_robust_errors_of_a_limit_distribution_are_those_of_its_parts() -> None:
    # c was never drawn: a and b are fitted as if c were not there
    counts, sizes = [[3, 1, 0], [1, 2, 0], [2, 3, 0]], [[5, 4, 3], [4, 4, 2], [5, 5, 2]]
    whole = fit(counts, sizes, reference=1, covariance="HC0")
    part = fit([x[:2] for x in counts], [m[:2] for m in sizes], reference=1, covariance="HC0")
    assert_close(whole.standard_errors[:2], part.standard_errors, 1e-10)
    assert_close(whole.coefficients[2], -math.inf, 0)


def test_a_batch_has_the_errors_of_its_data_sets() -> None:
    other = [[1, 2, 3], [2, 1, 2], [2, 1, 1], [1, 1, 4]]
    for options in ({"covariance": "scaled"}, {"covariance": "HC1"}, {"cluster": CLUSTERS}):
        batch = fit([COUNTS, other], SIZES, interval="wald", **options)  # type: ignore[arg-type]
        for d, counts in enumerate((COUNTS, other)):
            single = fit(counts, SIZES, interval="wald", **options)  # type: ignore[arg-type]
            assert_close(batch[d].standard_errors, single.standard_errors, 1e-10)
            assert_close(batch.lower[d], single.lower, 1e-9)
            assert_close(batch[d].degrees_of_freedom, single.degrees_of_freedom, 0)


# --- bootstrap


def overdispersed(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    effects = torch.randn(rows, 1)
    log_weights = torch.cat([effects + 0.5, torch.zeros(rows, 1)], -1)
    return FisherHypergeometric([20, 30], 15, log_weights=log_weights).sample().long(), (
        torch.tensor([20, 30])
    )


def test_the_bootstrap_repeats_with_its_seed_and_agrees_with_the_sandwich() -> None:
    counts, sizes = overdispersed(40, 3)
    options: dict[str, Any] = {"reference": 1, "interval": "bootstrap", "resamples": 499}
    state = torch.get_rng_state()
    first, second = (fit(counts, sizes, **options, seed=7) for _ in range(2))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(first.lower, second.lower)
    assert not torch.equal(first.lower, fit(counts, sizes, **options, seed=8).lower)
    assert first.covariance_kind == "HC1"
    assert first.bootstrap is not None
    spread = first.bootstrap.values[0, :, 0].std()
    # the spread of 499 repetitions has a Monte Carlo error of 3.2 %; 4 of them
    assert abs(float(spread / first.standard_errors[0]) - 1) < 0.13
    wald_width = 2 * stats.t.ppf(0.975, 39) * float(first.standard_errors[0])
    assert abs(float(first.upper[0] - first.lower[0]) / wald_width - 1) < 0.2
    contrast = first.contrasts()
    assert_close(contrast.lower[0], first.lower[0], 0)


def test_clusters_are_drawn_whole_in_the_bootstrap() -> None:
    # two rows of each cluster are equal, so clusters of two are like single rows twice as often
    counts, sizes = overdispersed(25, 4)
    twice = counts.repeat_interleave(2, 0)
    labels = torch.arange(25).repeat_interleave(2)
    options: dict[str, Any] = {"reference": 1, "interval": "bootstrap", "resamples": 199}
    clustered = fit(twice, sizes, cluster=labels, **options)
    weighted = fit(counts, sizes, cluster=torch.arange(25), **options)
    assert_close(clustered.lower, weighted.lower, 1e-9)
    assert_close(clustered.standard_errors, weighted.standard_errors, 1e-9)


def test_resamples_without_a_bound_give_one_sided_intervals() -> None:
    # b was drawn in one row only: many resamples do not hold it, and have ω_b = 0
    counts = [[3, 0], [2, 0], [3, 1], [2, 0]]
    result = fit(counts, [5, 4], reference=0, interval="bootstrap", resamples=199)
    assert math.isfinite(float(result.coefficients[1]))
    assert_close(result.lower[1], -math.inf, 0)
    assert math.isfinite(float(result.upper[1]))
    centred = fit(counts, [5, 4], interval="bootstrap", resamples=199)
    assert any("say nothing about the mean" in note for note in centred.notes)


def test_intervals_of_a_bootstrap_fit_are_percentiles_at_any_level() -> None:
    counts, sizes = overdispersed(40, 3)
    result = fit(counts, sizes, reference=1, interval="bootstrap", resamples=499)
    assert_close(result.confidence_interval()[0], result.lower, 0)
    low, high = result.confidence_interval(0.5)
    assert result.bootstrap is not None
    ordered = np.sort(result.bootstrap.values[0, :, 0].numpy())
    # the percentiles are those of Student's t, widened by √(40 / 39), and the next one outwards
    outside = float(stats.norm.cdf(-stats.t.ppf(0.75, 39) * math.sqrt(40 / 39)))
    assert_close(low[0], ordered[math.floor(500 * outside) - 1], 0)
    assert_close(high[0], ordered[math.ceil(500 * (1 - outside)) - 1], 0)


def test_percentiles_are_refused_where_nothing_was_repeated() -> None:
    with pytest.raises(ValueError, match="no resamples: fit with"):
        fit([3, 2], [5, 4]).confidence_interval(method="bootstrap")
    case, x, stratum = [1, 0, 0, 1, 1, 0], [2.1, 0.3, 2.6, 1.9, 0.2, 0.8], [1, 1, 1, 2, 2, 2]
    with pytest.raises(ValueError, match="the result has no resamples"):
        clogit(case, {"x": x}, stratum).confidence_interval(method="bootstrap")


# --- anova

UCB = example_counts("ucb")
FEATURES, NAMES = interactions([[1.0]] + 5 * [[0.0]], UCB.groups, ["A"])


def small_and_large(**options: Any) -> tuple[FitResult, FitResult]:
    small = fit(
        UCB.counts, UCB.group_sizes, covariates=FEATURES[..., :1], names=NAMES[:1], **options
    )
    large = fit(UCB.counts, UCB.group_sizes, covariates=FEATURES, names=NAMES, **options)
    return small, large


def test_anova_is_the_likelihood_ratio_in_either_order() -> None:
    small, large = small_and_large()
    own = fit(UCB.counts, UCB.group_sizes)  # the same model as `small`
    for one, other in ((small, large), (large, small), (own, large)):
        found = anova(one, other)
        ratio = 2 * float(large.log_likelihood - small.log_likelihood)
        assert_close(found.statistic, ratio, 1e-9)
        assert int(found.degrees_of_freedom) == 1
        assert_close(found.p_value, stats.chi2.sf(ratio, 1), 1e-12)
    assert "Does Women:A improve the fit? Likelihood ratio: χ² = " in str(anova(small, large))


def test_anova_of_scaled_fits_is_an_f_test() -> None:
    small, large = small_and_large(covariance="scaled")
    found = anova(small, large)
    goodness = large.goodness_of_fit()
    ratio = 2 * float(large.log_likelihood - small.log_likelihood)
    f = ratio / float(goodness.dispersion)
    assert_close(found.statistic, f, 1e-9)
    assert_close(found.p_value, stats.f.sf(f, 1, 4), 1e-10)


def test_anova_of_robust_fits_tests_the_extra_coefficients() -> None:
    small, large = small_and_large(covariance="HC1")
    found = anova(small, large)
    z = float(large.coefficients[1] / large.standard_errors[1])
    assert_close(found.statistic, z * z, 1e-8)
    assert_close(found.p_value, large.p_values[1], 1e-10)


def test_anova_refuses_fits_that_cannot_be_compared() -> None:
    small, large = small_and_large()
    cases = {
        "neither is nested": (small, small),
        "different models": (small, fit(UCB.counts, UCB.group_sizes, model="wallenius")),
        "different standard errors": (small, small_and_large(covariance="HC1")[1]),
        "has a firth penalty": (small, fit(UCB.counts, UCB.group_sizes, penalty="firth")),
        "5 and 6 rows": (fit(UCB.counts[1:], UCB.group_sizes[1:]), large),
        "different counts": (fit(UCB.counts // 2, UCB.group_sizes), large),
    }
    z = interactions([[1.0], [2.0], [4.0], [8.0]], ["a", "b", "c"])[0]
    cases["does not contain"] = (fit(COUNTS, SIZES, covariates=z[..., [1]]), fit(COUNTS, SIZES))
    for message, (one, other) in cases.items():
        with pytest.raises(ValueError, match=message):
            anova(one, other)


# --- residuals and indices


def test_residuals_add_up_to_the_goodness_of_fit() -> None:
    result = fit(COUNTS, SIZES, reference=0)
    residuals = result.residuals()
    for row, (x, m) in enumerate(zip(COUNTS, SIZES, strict=True)):
        mean, covariance = oracle.moments(m, sum(x), result.coefficients.numpy())
        deviation = np.array(x) - mean
        assert_close(residuals.expected[row], mean, 1e-9)
        assert_close(residuals.pearson[row], deviation / np.sqrt(np.diag(covariance)), 1e-8)
        distance = deviation @ np.linalg.pinv(covariance) @ deviation
        assert_close(residuals.statistic[row], distance, 1e-8)
    assert_close(residuals.statistic.sum(), result.goodness_of_fit().statistic, 1e-9)
    assert_close(residuals.degrees_of_freedom, [2.0] * 4, 0)
    frame = residuals.to_frame()
    assert frame.shape == (12, 8)
    assert frame["row"].tolist()[:4] == ["0", "0", "0", "1"]
    assert len(result.plot_residuals().axes) == 2


def test_selection_ratios_and_manly_s_alpha_have_their_errors() -> None:
    result = fit([[203, 118, 178, 212]], [[325, 285, 706, 885]], reference=3)
    found = result.selection()
    share = 711 / 2201
    expected = torch.tensor([203, 118, 178, 212]) / (share * torch.tensor([325, 285, 706, 885]))
    assert_close(found.ratio, expected, 1e-6)
    weights = result.weights
    assert weights is not None
    assert_close(found.alpha, weights / weights.sum(), 1e-12)
    # the delta method by finite differences of α in log ω
    step = 1e-6
    jacobian = torch.stack(
        [
            (
                torch.softmax(result.coefficients + step * direction, -1)
                - torch.softmax(result.coefficients - step * direction, -1)
            )
            / (2 * step)
            for direction in torch.eye(4, dtype=torch.float64)
        ],
        -1,
    )
    variance = (jacobian @ result.covariance @ jacobian.mT).diagonal()
    assert_close(found.alpha_error, variance.sqrt(), 1e-8)
    urn = result.urn([325, 285, 706, 885], 711)
    assert_close(found.ratio_error * share * torch.tensor([325, 285, 706, 885]), urn.stddev, 1e-4)


def test_robust_selection_ratios_vary_as_the_rows_do() -> None:
    # Manly et al. (2002), design III: Var(w) = n / (n - 1) Σ (u - w π u₊)² / (Σ π u₊)²
    result = fit(COUNTS, SIZES, covariance="HC1")
    x, m = torch.tensor(COUNTS).double(), torch.tensor(SIZES).double()
    alike = m * (x.sum(-1) / m.sum(-1)).unsqueeze(-1)
    ratio = x.sum(0) / alike.sum(0)
    variance = 4 / 3 * ((x - ratio * alike) ** 2).sum(0) / alike.sum(0) ** 2
    assert_close(result.selection().ratio, ratio, 1e-12)
    assert_close(result.selection().ratio_error, variance.sqrt(), 1e-12)


def test_contrasts_have_the_intervals_of_a_fit_with_that_reference() -> None:
    for method in ("wald", "profile"):
        pairs = fit(COUNTS, SIZES, groups="abc", interval=method).contrasts()
        relative = fit(COUNTS, SIZES, groups="abc", interval=method, reference="c")
        place = pairs.pairs.index(("a", "c"))
        assert_close(pairs.lower[place], relative.lower[0], 1e-7)
        assert_close(pairs.upper[place], relative.upper[0], 1e-7)
    record = pairs.to_list()[place]
    assert record["groups"] == ["a", "c"]
    assert record["ratio_lower"] == pytest.approx(math.exp(record["log_ratio_lower"]))


# --- words


def test_overdispersion_comes_with_remedies_until_one_is_taken() -> None:
    counts, sizes = overdispersed(40, 1)
    advice = "Remedies for overdispersion"
    assert any(advice in note for note in fit(counts, sizes).notes)
    remedied = fit(counts, sizes, covariance="scaled")
    assert not any(advice in note for note in remedied.notes)
    assert "times √dispersion" in " ".join(str(remedied).split())
    assert "G = 4 clusters" in " ".join(
        str(fit(counts, sizes, cluster=torch.arange(40) % 4)).split()
    )


def test_the_set_behind_a_mean_is_stated_with_a_reference_instead() -> None:
    counts, sizes = [[5, 0, 3], [4, 0, 5], [3, 0, 2]], [9, 6, 8]
    names = ["vole", "bat", "mouse"]
    plain = fit(counts, sizes, groups=names)
    assert plain.baseline == ("vole", "mouse")
    assert "relative to the geometric mean of vole and mouse" in " ".join(str(plain).split())
    text = " ".join(plain.notes)
    assert "mean is over vole and mouse only" in text
    assert 'penalty="firth", with reference="vole" to keep the figures comparable,' in text
    firth = fit(counts, sizes, groups=names, penalty="firth")
    assert any('reference="vole" makes the two comparable' in note for note in firth.notes)
    # and with the reference they are
    ratios = [
        fit(counts, sizes, groups=names, penalty=penalty, reference="vole").coefficients[2]
        for penalty in (None, "firth")
    ]
    assert abs(float(ratios[0] - ratios[1])) < 0.1
    assert not fit(counts, sizes, groups=names, reference="vole", penalty="firth").notes
    assert not fit(COUNTS, SIZES, penalty="firth").notes


def test_small_fits_have_profile_intervals_by_default() -> None:
    assert fit(COUNTS, SIZES).interval == "profile"
    assert fit(COUNTS * 278, SIZES * 278).interval == "wald"  # 1112 · 9 > 10,000
    assert fit([COUNTS] * 278, SIZES).interval == "wald"
    assert fit(COUNTS, SIZES, covariance="HC1").interval == "wald"
    assert fit(COUNTS, SIZES, covariance="scaled").interval == "profile"
