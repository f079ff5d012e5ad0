"""Fitting ω from counts: against published figures, brute force, SciPy and statsmodels."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import chi2, norm
from statsmodels.stats.multitest import multipletests

from diffurn import FisherHypergeometric
from diffurn.inference import FitResult, fit
from diffurn.inference.reading.counts import read_rows
from diffurn.inference.solving.likelihood import MODELS, Objective
from diffurn.inference.solving.solution import solve_sample
from support import fit_oracles as oracle
from support.fit_oracles import CHAIN, COUNTS, SIZES, assert_close

NAN = math.nan
ABOARD, SAVED, CLASSES = (
    [325, 285, 706, 885],
    [203, 118, 178, 212],
    ["first", "second", "third", "crew"],
)


def oracle_fit(counts: oracle.Rows, sizes: oracle.Rows, reference: int) -> tuple[np.ndarray, float]:
    features = oracle.indicators(len(counts), len(counts[0]), reference)
    return oracle.maximum(
        oracle.log_likelihood(counts, sizes, features), np.zeros(features.shape[-1])
    )


# --- the estimate


def test_the_titanic_gives_the_published_weights() -> None:
    result = fit(SAVED, ABOARD, groups=CLASSES, reference="crew")
    assert_close(result.weights, [5.278, 2.242, 1.070, 1.0], 5e-4)
    assert_close(-result.log_likelihood, 8.988, 5e-4)
    assert_close(-result.central_log_likelihood, 99.394, 5e-4)
    assert bool(result.converged)


def test_log_prob_score_and_information_are_those_of_the_listed_outcomes() -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        sizes = random.integers(0, 5, 4)
        sizes[0] += 1
        log_weights = 2 * random.standard_normal(4)
        draws = int(random.integers(1, sizes.sum() + 1))
        outcomes = oracle.support(tuple(sizes.tolist()), draws)
        counts = outcomes[random.integers(len(outcomes))]
        mean, covariance = oracle.moments(sizes.tolist(), draws, log_weights)
        value, score, information = MODELS["fisher"].derivatives(
            *(torch.as_tensor(v, dtype=torch.float64) for v in (log_weights, sizes, counts))
        )
        assert_close(
            value,
            oracle.row_log_prob(counts.astype(int).tolist(), sizes.tolist(), log_weights),
            1e-12,
        )
        assert_close(score, counts - mean, 1e-12)
        assert_close(information, covariance, 1e-12)


@pytest.mark.parametrize("reference", [0, 2])
def test_the_estimate_and_its_errors_are_those_of_a_general_optimiser(reference: int) -> None:
    result = fit(COUNTS, SIZES, reference=reference, interval="wald")
    beta, value = oracle_fit(COUNTS, SIZES, reference)
    free = [j for j in range(3) if j != reference]
    features = oracle.indicators(4, 3, reference)
    covariance = np.linalg.inv(
        oracle.information(COUNTS, SIZES, features, result.coefficients[free].numpy())
    )
    assert_close(result.coefficients[free], beta, 1e-6)
    assert_close(result.log_likelihood, value, 1e-10)
    assert_close(result.covariance[free][:, free], covariance, 1e-9)
    assert_close(result.standard_errors[free], np.sqrt(np.diag(covariance)), 1e-9)
    assert float(result.standard_errors[reference]) == 0
    assert_close(
        result.upper[free] - result.coefficients[free],
        norm.ppf(0.975) * np.sqrt(np.diag(covariance)),
        1e-9,
    )


def test_a_centred_fit_has_geometric_mean_one_and_the_same_ratios() -> None:
    centred, relative = fit(COUNTS, SIZES), fit(COUNTS, SIZES, reference=0)
    assert_close(centred.coefficients.sum(), 0.0, 1e-12)
    assert_close(centred.coefficients - centred.coefficients[0], relative.coefficients, 1e-12)
    assert_close(centred.covariance.sum(-1), [0.0, 0.0, 0.0], 1e-12)


def test_one_row_is_fitted_exactly() -> None:
    result = fit(SAVED, ABOARD)
    assert_close(result.expected, SAVED, 1e-9)
    assert_close(result.predict(ABOARD, 711), SAVED, 1e-9)


def test_populations_of_billions_are_fitted() -> None:
    sizes = torch.tensor([10**9, 2 * 10**9, 5 * 10**8])
    log_weights = torch.tensor([0.0, 1.0, -0.5])
    counts = FisherHypergeometric(sizes, 10**9, log_weights=log_weights).mean.round()
    counts[0] += 10**9 - counts.sum()
    result = fit(counts, sizes, reference=0)
    assert bool(result.converged)
    assert_close(result.coefficients, log_weights, 1e-8)


def test_the_wallenius_fit_maximises_the_ball_by_ball_likelihood() -> None:
    # the oracle: outcomes built up ball by ball
    def log_prob(counts: list[int], sizes: list[int], log_weights: np.ndarray) -> float:
        states = {(0,) * len(sizes): 1.0}
        for _ in range(sum(counts)):
            following: dict[tuple[int, ...], float] = {}
            for state, p in states.items():
                rates = np.exp(log_weights) * (np.array(sizes) - np.array(state))
                for j in np.flatnonzero(rates):
                    after = tuple(s + (k == j) for k, s in enumerate(state))
                    following[after] = following.get(after, 0.0) + p * rates[j] / rates.sum()
            states = following
        return math.log(states[tuple(counts)])

    result = fit(COUNTS, SIZES, model="wallenius", reference=2)
    beta, value = oracle.maximum(
        lambda b: sum(
            log_prob(x, m, np.array([*b, 0.0])) for x, m in zip(COUNTS, SIZES, strict=True)
        ),
        np.zeros(2),
    )
    assert_close(result.coefficients[:2], beta, 1e-6)
    assert_close(result.log_likelihood, value, 1e-9)


# --- many rows, many data sets


def test_a_batch_of_data_sets_equals_separate_fits() -> None:
    sizes = torch.tensor([[30, 20, 40], [10, 25, 15]])
    counts = FisherHypergeometric(
        sizes, torch.tensor([40, 20]), log_weights=torch.tensor([0.0, 1.0, -1.0])
    ).sample((2, 3))
    counts[1, 2, :, 0] = torch.tensor([0.0, 0.0])  # one of them separated
    batch = fit(counts, sizes, interval="profile")
    assert batch.coefficients.shape == (2, 3, 3)
    assert batch.covariance.shape == (2, 3, 3, 3)
    assert batch.log_likelihood.shape == batch.parameters.shape == (2, 3)
    for index in ((0, 0), (0, 2), (1, 2)):
        alone, picked = fit(counts[index], sizes, interval="profile"), batch[index]
        for name in (
            "coefficients",
            "standard_errors",
            "covariance",
            "lower",
            "upper",
            "log_likelihood",
            "central_log_likelihood",
            "expected",
        ):
            assert_close(getattr(picked, name), getattr(alone, name), 1e-9)
        assert str(picked) == str(alone)
    assert_close(batch.goodness_of_fit().statistic[1], batch[1].goodness_of_fit().statistic, 1e-12)
    assert str(batch) == repr(batch)
    assert "result[0, 0] is the first data set" in str(batch)
    with pytest.raises(ValueError, match=r"notes is for a single data set, but .* \(2, 3\)"):
        _ = batch.notes
    with pytest.raises(IndexError):
        batch[0, 0][0]


@pytest.mark.parametrize("model", ["fisher", "wallenius"])
def test_frequencies_stand_for_repeated_rows(model: str) -> None:
    times = torch.tensor([3, 0, 1, 5])
    short = fit(COUNTS, SIZES, frequencies=times, model=model)
    long = fit(
        torch.tensor(COUNTS).repeat_interleave(times, 0),
        torch.tensor(SIZES).repeat_interleave(times, 0),
        model=model,
    )
    for name in (
        "coefficients",
        "covariance",
        "log_likelihood",
        "central_log_likelihood",
        "observed",
    ):
        assert_close(getattr(short, name), getattr(long, name), 1e-9)
    assert int(short.rows) == int(long.rows) == 9
    assert int(short.draws) == int(long.draws)
    if model == "wallenius":  # whose moments are expensive
        return
    assert_close(short.expected, long.expected, 1e-9)
    assert_close(short.goodness_of_fit().statistic, long.goodness_of_fit().statistic, 1e-9)
    assert torch.equal(
        short.goodness_of_fit().degrees_of_freedom, long.goodness_of_fit().degrees_of_freedom
    )


def test_merged_rows_give_the_same_likelihood_and_tests() -> None:
    sizes, log_weights = torch.tensor([6, 4, 5]), torch.tensor([0.0, 0.7, -0.7])
    counts = FisherHypergeometric(sizes, 7, log_weights=log_weights).sample((50,))
    result = fit(counts, sizes)
    assert result.solution.objective.sample.counts.shape[1] == 1
    rows = [[int(v) for v in row] for row in counts.tolist()]
    features = oracle.indicators(50, 3, 0)
    beta = (result.coefficients - result.coefficients[0])[1:].numpy()
    assert_close(
        result.log_likelihood,
        oracle.log_likelihood(rows, [sizes.tolist()] * 50, features)(beta),
        1e-10,
    )
    mean, covariance = oracle.moments(sizes.tolist(), 7, result.coefficients.numpy())
    deviation = counts.numpy() - mean
    assert_close(
        result.goodness_of_fit().statistic,
        (deviation @ np.linalg.pinv(covariance) * deviation).sum(),
        1e-8,
    )


def test_very_many_rows_start_from_a_subsample() -> None:
    sizes = torch.randint(3, 40, (3_000, 3))
    draws = (sizes.sum(-1) * torch.rand(3_000)).long() + 1
    counts = FisherHypergeometric(sizes, draws, log_weights=torch.tensor([0.0, 0.5, 1.0])).sample()
    cold = fit(counts, sizes)
    sample = read_rows(counts, sizes).sample
    objective = replace(Objective.of("fisher", sample), many_rows=1_000, subsample=500)
    state = torch.get_rng_state()
    warm = FitResult.of(solve_sample(objective), sample)
    assert torch.equal(state, torch.get_rng_state())
    assert_close(warm.coefficients, cold.coefficients, 1e-12)
    assert int(warm.iterations) <= 2


def test_the_start_from_one_row_errs_by_the_square_of_its_size() -> None:
    for size in (30, 300, 3_000):
        sizes = torch.tensor([size, 2 * size, 3 * size])
        counts = torch.tensor([size // 2, size // 3, size])
        sample = read_rows(counts, sizes).sample
        start, found = sample.estimate_from_one_row()[0], fit(counts, sizes)
        assert_close(start - start.mean(), found.coefficients, 2 / size**2)


def test_a_row_of_a_large_population_needs_no_second_evaluation() -> None:
    result = fit([4_000_000, 7_000_000], [10_000_000, 20_000_000], interval="wald")
    assert int(result.iterations) == 0
    assert bool(result.converged)


def test_counts_that_require_a_gradient_give_results_without_one() -> None:
    result = fit(torch.tensor([4.0, 7.0], requires_grad=True), [10, 20], interval="wald")
    for found in (result.coefficients, result.standard_errors, result.lower, result.p_values):
        assert not found.requires_grad


def test_progress_counts_every_row_of_a_pass() -> None:
    seen: list[tuple[int, int]] = []
    fit(COUNTS, SIZES, interval="wald", progress=lambda done, total: seen.append((done, total)))
    assert seen
    assert set(seen) == {(4, 4)}


def test_tensors_arrays_lists_and_frames_are_read_alike() -> None:
    expected = fit(COUNTS, SIZES).coefficients
    names = ["a", "b", "c"]
    frame = fit(
        pd.DataFrame(COUNTS, columns=names), pd.DataFrame(SIZES, columns=names), reference="b"
    )
    assert frame.groups == frame.names == ("a", "b", "c")
    assert frame.reference == "b"
    assert_close(frame.coefficients, expected - expected[1], 1e-12)
    assert_close(
        fit(np.array(COUNTS), torch.tensor(SIZES, dtype=torch.int32)).coefficients, expected, 1e-12
    )
    series = fit(pd.Series(SAVED, index=CLASSES), ABOARD)
    assert series.groups == tuple(CLASSES)


def test_a_fit_runs_where_its_counts_are(device: torch.device) -> None:
    here = fit(torch.tensor(COUNTS), torch.tensor(SIZES), interval="profile")
    there = fit(
        torch.tensor(COUNTS, device=device), torch.tensor(SIZES, device=device), interval="profile"
    )
    assert there.coefficients.device.type == device.type
    for name in ("coefficients", "covariance", "lower", "upper", "expected", "p_values"):
        assert_close(getattr(there, name), getattr(here, name), 1e-9)
    assert str(there) == str(here)
    chain = [torch.tensor(values, device=device) for values in CHAIN]
    assert_close(fit(*chain).coefficients, fit(*CHAIN).coefficients, 1e-9)
    assert_close(
        fit(*chain, penalty="firth").coefficients, fit(*CHAIN, penalty="firth").coefficients, 1e-7
    )
    features = torch.randn(4, 4, 2)
    assert_close(
        fit(*chain, covariates=features.to(device)).coefficients,
        fit(*CHAIN, covariates=features).coefficients,
        1e-7,
    )


def test_an_urn_of_one_group_has_weight_one() -> None:
    result = fit([3], [5])
    assert_close(result.coefficients, [0.0], 0)
    assert int(result.parameters) == 0
    assert_close(result.goodness_of_fit().statistic, 0.0, 0)
    assert "saturated" in str(result)


# --- intervals, penalties, tests


def test_profile_intervals_end_half_a_quantile_below_the_maximum() -> None:
    result = fit(COUNTS, SIZES, reference=2, interval="profile", level=0.9)
    value = oracle.log_likelihood(COUNTS, SIZES, oracle.indicators(4, 3, 2))
    target = float(result.log_likelihood) - norm.ppf(0.95) ** 2 / 2
    for j in range(2):
        middle, contrast = float(result.coefficients[j]), np.eye(2)[j]
        assert_close(
            result.lower[j], oracle.profile_end(value, contrast, target, middle, middle - 5), 1e-6
        )
        assert_close(
            result.upper[j], oracle.profile_end(value, contrast, target, middle, middle + 5), 1e-6
        )
    assert_close(result.lower[2], 0.0, 0)
    for mine, other in zip(
        result.confidence_interval(0.9, "profile"), (result.lower, result.upper), strict=True
    ):
        assert_close(mine, other, 1e-12)


def test_a_ridge_pulls_the_centred_log_weights_together() -> None:
    strength = 0.7
    result = fit(COUNTS, SIZES, penalty="ridge", ridge=strength)
    plain = oracle.log_likelihood(COUNTS, SIZES, oracle.indicators(4, 3, 2))

    def penalised(b: np.ndarray) -> float:
        centred = np.append(b, 0.0) - np.append(b, 0.0).mean()
        return plain(b) - strength / 2 * float(centred @ centred)

    beta, _ = oracle.maximum(penalised, np.zeros(2))
    assert_close((result.coefficients - result.coefficients[2])[:2], beta, 1e-6)
    assert_close(result.log_likelihood, plain(beta), 1e-6)


@pytest.mark.parametrize(
    ("counts", "sizes"),
    [
        (COUNTS, SIZES),
        ([[1, 0], [1, 0], [1, 0]], [[1, 1], [1, 1], [1, 1]]),  # always the first of two balls
        ([[1, 0, 1], [1, 0, 1], [0, 0, 1]], [[1, 1, 1]] * 3),
        ([[4, 0, 2]], [[4, 3, 5]]),
    ],
)
def test_firth_s_penalty_is_half_the_log_determinant(
    counts: list[list[int]], sizes: list[list[int]]
) -> None:
    groups = len(counts[0])
    features = oracle.indicators(len(counts), groups, groups - 1)
    plain = oracle.log_likelihood(counts, sizes, features)
    result = fit(counts, sizes, penalty="firth", reference=groups - 1, interval="profile")
    beta, _ = oracle.maximum(
        lambda b: (
            plain(b) + 0.5 * np.linalg.slogdet(oracle.information(counts, sizes, features, b))[1]
        ),
        np.zeros(groups - 1),
    )
    assert bool(result.converged)
    assert_close(result.coefficients[:-1], beta, 1e-5)
    assert bool((result.lower[:-1] < result.coefficients[:-1]).all())
    assert bool((result.upper[:-1] > result.coefficients[:-1]).all())


def test_likelihood_ratio_and_pearson_are_those_of_the_textbook() -> None:
    result = fit(COUNTS, SIZES)
    ratio, pearson = result.likelihood_ratio_test(), result.goodness_of_fit()
    central = sum(
        oracle.row_log_prob(x, m, np.zeros(3)) for x, m in zip(COUNTS, SIZES, strict=True)
    )
    assert_close(ratio.statistic, 2 * (float(result.log_likelihood) - central), 1e-9)
    assert int(ratio.degrees_of_freedom) == 2
    assert_close(ratio.p_value, chi2.sf(float(ratio.statistic), 2), 1e-12)
    statistic, rank = 0.0, 0
    for x, m in zip(COUNTS, SIZES, strict=True):
        mean, covariance = oracle.moments(m, sum(x), result.coefficients.numpy())
        statistic += (x - mean) @ np.linalg.pinv(covariance) @ (x - mean)
        rank += np.linalg.matrix_rank(covariance)
    assert_close(pearson.statistic, statistic, 1e-9)
    assert int(pearson.degrees_of_freedom) == rank - 2
    assert_close(pearson.p_value, chi2.sf(statistic, rank - 2), 1e-10)
    assert_close(pearson.dispersion, statistic / (rank - 2), 1e-9)
    assert_close(result.aic, 4 - 2 * float(result.log_likelihood), 1e-12)


def test_a_single_row_is_saturated() -> None:
    result = fit(SAVED, ABOARD)
    assert int(result.goodness_of_fit().degrees_of_freedom) == 0
    assert_close(result.goodness_of_fit().p_value, NAN, 0)
    assert "saturated" in str(result)


@pytest.mark.parametrize(
    ("correction", "theirs"),
    [("holm", "holm"), ("bonferroni", "bonferroni"), ("benjamini-hochberg", "fdr_bh")],
)
def test_contrasts_compare_all_pairs_with_corrected_p_values(correction: str, theirs: str) -> None:
    result = fit(SAVED, ABOARD, groups=CLASSES)
    pairs = result.contrasts(correction)
    assert len(pairs.pairs) == 6
    assert pairs.pairs[2] == ("first", "crew")
    relative = fit(SAVED, ABOARD, groups=CLASSES, reference="crew")
    assert_close(pairs.estimate[2], relative.coefficients[0], 1e-12)
    assert_close(pairs.standard_error[2], relative.standard_errors[0], 1e-12)
    assert_close(pairs.p_value, 2 * norm.sf(pairs.z.abs().numpy()), 1e-14)
    assert_close(
        pairs.adjusted_p_value, multipletests(pairs.p_value.numpy(), method=theirs)[1], 1e-14
    )


# --- reports


@pytest.mark.parametrize(
    ("table", "options"),
    [
        ((SAVED, ABOARD), {"groups": CLASSES, "reference": "crew"}),
        (CHAIN, {"groups": ["a" * 60, "b", "c", "d"], "reference": 0}),
        ((SAVED, [9 * 10**14] * 4), {"penalty": "ridge", "model": "wallenius", "level": 0.999}),
    ],
)
def test_a_summary_fits_80_columns(table: Any, options: dict[str, Any]) -> None:
    result = fit(*table, **options)
    text = str(result)
    assert max(map(len, text.splitlines())) <= 80
    assert f"{int(result.draws)} of" in text


@pytest.mark.parametrize("model", ["fisher", "wallenius"])
def test_print_shows_the_summary_and_repr_one_line(model: str) -> None:
    result = fit([[2, 1], [1, 2]], [[4, 3], [3, 4]], groups=["a", "b"], reference="b", model=model)
    weight = f"{float(result.coefficients[0].exp()):.4g}"
    assert repr(result) == f"FitResult(model={model!r}, rows=2, weights={{a: {weight}, b: 1}})"
    lines = str(result).splitlines()
    assert lines[0].endswith("6 of 14 drawn, in 2 rows.")
    assert lines[2].split() == [
        *("Group", "Available", "Drawn", "If", "ω", "=", "1", "ω", "95%", "interval", "p")
    ]
    assert lines[4].split()[:4] == ["a", "7", "3", "3.0"]
    assert f"{float(result.coefficients[0].exp()):#.4g}" in lines[4]
    assert lines[5].split()[-2:] == ["1.000", "reference"]
    assert "relative to b. p tests ω = 1, the ω of b." in lines[7]
    assert f"log-likelihood {float(result.log_likelihood):.3f} (all alike" in lines[-1]
    many = fit([[1] * 8, [2] * 8], [3] * 8)
    assert repr(many).endswith("6: 1, …})")
    linear = fit([[2, 1], [1, 2]], [[4, 3], [3, 4]], covariates=[[1.0], [0.0]], names=["z"])
    assert f"coefficients={{z: {float(linear.coefficients):.4g}}}" in repr(linear)


def test_a_frame_and_a_dictionary_hold_the_table() -> None:
    result = fit(SAVED, ABOARD, groups=CLASSES, reference="crew")
    frame = result.to_frame()
    assert list(frame.index) == CLASSES
    assert list(frame.columns) == [
        *("log_weight", "log_weight_se", "log_weight_lower", "log_weight_upper"),
        *("weight", "weight_lower", "weight_upper", "z", "p"),
    ]
    assert frame.attrs["relative_to"] == "crew"
    np.testing.assert_allclose(frame["weight"], result.weights.numpy())
    np.testing.assert_allclose(np.log(frame["weight_upper"]), result.upper.numpy())
    np.testing.assert_allclose(frame["log_weight_upper"], result.upper.numpy())
    data = json.loads(
        json.dumps(fit(*CHAIN, groups="abcd", reference="a").to_dict(), allow_nan=False)
    )
    assert data["coefficients"][2]["log_weight"] == "-inf"
    assert data["coefficients"][0]["z"] is None
    assert data["goodness_of_fit"]["degrees_of_freedom"] >= 0


def test_the_fitted_urn_draws_and_predicts() -> None:
    result = fit(SAVED, ABOARD, groups=CLASSES)
    urn = result.urn([10, 10, 10, 10], 12)
    assert isinstance(urn, FisherHypergeometric)
    assert_close(urn.mean, result.predict([10, 10, 10, 10], 12), 0)
    with pytest.raises(ValueError, match="penalty"):
        fit(*CHAIN, reference=3).predict([2, 2, 2, 2], 3)


# --- bad input

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "shapes": (
        {"counts": [[1, 2]], "group_sizes": [[3, 3, 3]]},
        r"shapes do not broadcast: counts \(1, 2\), group_sizes \(1, 3\)",
    ),
    "no-groups": ({"counts": 3, "group_sizes": 4}, "last dimension of groups"),
    "more-than-there-are": (
        {"counts": [[1, 2, 1], [1, 7, 1]]},
        r"counts in row 1, group '2' is 7, but only 4 balls were in the urn",
    ),
    "negative": (
        {"counts": [[1, 2, -1], [1, 1, 1]]},
        r"counts in row 0, group '3' is -1, but a count must be an integer",
    ),
    "fraction": ({"group_sizes": [4, 4.5, 4]}, r"group_sizes in row 0, group '2' is 4.5"),
    "nan": (
        {"group_sizes": [[4, 4, 4], [4, NAN, 4]], "na": "raise"},
        r"group_sizes has a missing value in row 1; repair it, or leave such rows out",
    ),
    "nan-everywhere": (
        {"group_sizes": [4, NAN, 4]},
        r"no row is left: 2 have missing values, and in 0 nothing is drawn",
    ),
    "na": ({"na": "ignore"}, r"na is 'ignore', but must be one of 'drop', 'raise'"),
    "nothing-drawn": (
        {"counts": [[0, 0, 0], [0, 0, 0]]},
        r"no row is left: 0 have missing values, and in 2 nothing is drawn",
    ),
    "nothing-drawn-in-a-data-set": (
        {"counts": [[[1, 1, 1]], [[0, 0, 0]]]},
        r"no row of data set 1 is left",
    ),
    "covariance": (
        {"covariance": "robust"},
        r"covariance is 'robust', but must be one of 'model', 'scaled', 'HC0', 'HC1', 'cluster'",
    ),
    "cluster-missing": ({"covariance": "cluster"}, r"'cluster' needs cluster=, a label per row"),
    "cluster-unused": (
        {"covariance": "HC1", "cluster": [1, 2]},
        r"'HC1' does not use cluster=",
    ),
    "cluster-length": ({"cluster": [1, 2, 3]}, r"cluster has 3 labels, but there are 2 rows"),
    "one-cluster": ({"cluster": ["a", "a"]}, r"cluster is the same in all rows"),
    "robust-profile": (
        {"covariance": "HC0", "interval": "profile"},
        r'interval "profile" needs the likelihood to be right',
    ),
    "resamples": (
        {"interval": "bootstrap", "resamples": 10},
        r"resamples is 10, but must be a whole number from 99 to 100,000",
    ),
    "formula-without-table": ({"formula": "~ age"}, r"formula is for tables"),
    "columns-without-table": ({"columns": {"group": "g"}}, r"columns is for tables"),
    "no-group-sizes": ({"group_sizes": None}, r"group_sizes is missing: give counts and"),
    "in-a-batch": ({"counts": [[[1, 1, 1]], [[1, 5, 1]]]}, r"data set 1, row 0, group '2' is 5"),
    "unknown-reference": (
        {"reference": "x"},
        r"reference 'x' is not a group; the groups are 1, 2, 3",
    ),
    "reference-index": ({"reference": 3}, r"reference 3 is not a group"),
    "level": ({"level": 95}, r"level is 95, but must lie between 0 and 1"),
    "interval": (
        {"interval": "bayes"},
        r"interval is 'bayes', but must be one of 'wald', 'profile'",
    ),
    "model": ({"model": "polya"}, r"model is 'polya', but must be one of 'fisher', 'wallenius'"),
    "penalty": (
        {"penalty": "lasso"},
        r"penalty is 'lasso', but must be one of None, 'ridge', 'firth'",
    ),
    "ridge": ({"penalty": "ridge", "ridge": 0}, r"ridge is 0, but must be a finite number above 0"),
    "negative-frequency": (
        {"frequencies": [1, -2]},
        r"frequencies in row 1 is -2, but a frequency must be an integer from 0 to 2\^53",
    ),
    "frequency-shape": ({"frequencies": [1, 2, 3]}, r"frequencies"),
    "no-frequency": ({"frequencies": [0, 0]}, r"frequencies are all zero"),
    "names-of-groups": (
        {"groups": ["a", "b"]},
        r"groups has 2 names, but counts and group_sizes have 3 groups",
    ),
    "names-twice": ({"groups": ["a", "b", "a"]}, r"'a' occurs twice"),
    "names-without-covariates": (
        {"names": ["z"]},
        r"names \['z'\] are given, but there are no covariates",
    ),
    "absent-reference": (
        {"counts": [[1, 0, 1]], "group_sizes": [[2, 0, 2]], "reference": 1},
        r"reference '2' has no ball in any row",
    ),
    "firth-and-wallenius": ({"penalty": "firth", "model": "wallenius"}, r"needs model \"fisher\""),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_with_its_place(case: str) -> None:
    changed, message = BAD[case]
    arguments = {"counts": [[1, 2, 1], [1, 1, 1]], "group_sizes": [4, 4, 4]} | changed
    with pytest.raises(ValueError, match=message):
        fit(arguments.pop("counts"), arguments.pop("group_sizes"), **arguments)


def test_frames_of_different_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="same, in one order"):
        fit(pd.DataFrame([[1, 2]], columns=["a", "b"]), pd.DataFrame([[3, 3]], columns=["b", "a"]))


def test_an_unknown_correction_or_level_is_named() -> None:
    result = fit(SAVED, ABOARD)
    with pytest.raises(ValueError, match="correction is 'tukey'"):
        result.contrasts("tukey")
    with pytest.raises(ValueError, match="level is 2"):
        result.confidence_interval(2)
    with pytest.raises(ValueError, match="method is 'exact'"):
        result.confidence_interval(method="exact")
