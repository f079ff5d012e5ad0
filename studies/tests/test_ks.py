"""The Kolmogorov-Smirnov study: its exact null distribution, the merged chain's law, the remark
about ω̃, and the tables.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from diffurn import FisherHypergeometric
from diffurn_studies.harness.runner import run
from diffurn_studies.harness.study import Results
from diffurn_studies.ks import kolmogorov
from diffurn_studies.ks import study as ks
from diffurn_studies.ks.comparisons import level_record, remark_record
from diffurn_studies.ks.laws import joint_laws, marginals
from diffurn_studies.ks.options import Options
from diffurn_studies.ks.urns import Setting, draw_by_scipy, histograms, settings
from diffurn_studies.merged_chain import merged_log_prob
from diffurn_studies.newton import minimiser

TINY = Options(
    samples=300, second_weights=(1.0, 5.0), draws=(60,), second_sizes=(40,), level_seeds=3
)
SMALL_URN = Setting("weight", 4.0, (6, 5, 7), 8, (1.0, 4.0, 0.5))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ks") / "run"


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return run(ks, TINY, folder)


# --------------------------------------------------------------------------------------------------
# the discrete null distribution


def p_value_by_enumeration(observed: float, mass: list[float], number: int) -> float:
    """Sums the multinomial probability of every histogram at least as far away."""
    total = 0.0
    for histogram in itertools.product(range(number + 1), repeat=len(mass)):
        if sum(histogram) == number:
            far = max(
                abs(sum(histogram[: k + 1]) / number - sum(mass[: k + 1])) for k in range(len(mass))
            )
            if far >= observed - 1e-9:
                total += stats.multinomial.pmf(histogram, number, mass)
    return total


@pytest.mark.parametrize("mass", [[0.5, 0.5], [0.2, 0.3, 0.5], [0.05, 0.6, 0.1, 0.25]])
@pytest.mark.parametrize("number", [1, 4, 9])
def test_p_values_are_those_of_all_histograms(mass: list[float], number: int) -> None:
    for seen in itertools.combinations_with_replacement(range(len(mass)), number):
        distance = kolmogorov.distance(np.bincount(seen, minlength=len(mass)), np.array(mass))
        assert kolmogorov.p_value(distance, np.array(mass), number) == pytest.approx(
            p_value_by_enumeration(distance, mass, number), abs=1e-9
        )


def test_p_values_of_many_draws_are_those_of_a_simulation() -> None:
    mass, number, repetitions = stats.binom.pmf(np.arange(31), 30, 0.3), 5_000, 40_000
    found = np.random.default_rng(0).multinomial(number, mass, repetitions).cumsum(-1) / number
    distances = np.abs(found - mass.cumsum()).max(-1)
    for quantile in (0.1, 0.5, 0.9, 0.99):
        distance = float(np.quantile(distances, quantile))
        share = float(np.mean(distances >= distance - 1e-9))
        # four and a half standard errors: a false alarm once in 30,000 runs, over four quantiles
        assert kolmogorov.p_value(distance, mass, number) == pytest.approx(
            share, abs=4.5 * math.sqrt(share * (1 - share) / repetitions)
        )


def test_discrete_p_values_approach_continuous_ones_from_below() -> None:
    number, distance = 2_000, 0.03
    continuous = stats.kstwo.sf(distance, number)
    fine, coarse = np.full(1_000, 1e-3), np.full(5, 0.2)
    assert (
        kolmogorov.p_value(distance, coarse, number)
        < kolmogorov.p_value(distance, fine, number)
        < continuous
    )
    assert kolmogorov.p_value(distance, fine, number) == pytest.approx(continuous, rel=0.15)


def test_hopeless_distances_get_a_bound() -> None:
    assert kolmogorov.p_value(0.5, np.full(10, 0.1), 10_000) == 2 * math.exp(-2 * 10_000 * 0.25)


def test_the_critical_distance_is_rejected_at_no_more_than_the_level() -> None:
    mass = stats.binom.pmf(np.arange(21), 20, 0.4)
    critical, level = kolmogorov.critical_distance(mass, 1_000, 0.05)
    assert 0.04 < level <= 0.05
    assert kolmogorov.p_value(critical - 1e-3, mass, 1_000) > 0.05


def test_two_sample_tests_are_scipys() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.binomial(30, 0.3, 4_000), rng.binomial(30, 0.31, 4_000)
    theirs = stats.ks_2samp(first, second, method="asymp")
    distance = kolmogorov.two_sample_distance(
        np.bincount(first, minlength=31), np.bincount(second, minlength=31)
    )
    assert distance == pytest.approx(theirs.statistic, abs=1e-12)
    assert kolmogorov.two_sample_p_value(distance, 4_000, 4_000) == pytest.approx(
        theirs.pvalue, rel=1e-9
    )


# --------------------------------------------------------------------------------------------------
# the merged chain


def merged_law_by_hand(setting: Setting) -> dict[tuple[int, int, int], float]:
    """Two binomial coefficients a step, as in equation 5 of the paper; the second step has nothing
    left to merge.
    """
    (m1, m2, m3), n, (w1, w2, w3) = setting.group_sizes, setting.draws, setting.weights
    rest, size = (w2 * m2 + w3 * m3) / (m2 + m3), m2 + m3
    first = {
        x: math.comb(m1, x) * w1**x * math.comb(size, n - x) * rest ** (n - x)
        for x in range(max(0, n - size), min(m1, n) + 1)
    }
    law = {}
    for x, weight in first.items():
        left = n - x
        second = {
            y: math.comb(m2, y) * w2**y * math.comb(m3, left - y) * w3 ** (left - y)
            for y in range(max(0, left - m3), min(m2, left) + 1)
        }
        for y, other in second.items():
            law[x, y, left - y] = weight / sum(first.values()) * other / sum(second.values())
    return law


def test_the_merged_law_is_the_one_written_by_hand() -> None:
    outcomes, exact, merged = joint_laws(SMALL_URN)
    law = merged_law_by_hand(SMALL_URN)
    assert len(law) == len(outcomes)
    expected = torch.tensor([law[tuple(int(x) for x in row)] for row in outcomes])
    torch.testing.assert_close(merged.exp(), expected, rtol=1e-11, atol=1e-300)
    assert (exact - merged).abs().max() > 0.1


def test_the_merged_law_is_fishers_where_merged_weights_are_equal() -> None:
    _, exact, merged = joint_laws(Setting("weight", 1.0, (6, 5, 7), 8, (3.0, 1.0, 1.0)))
    torch.testing.assert_close(merged, exact, rtol=1e-10, atol=1e-10)


def test_a_batch_of_weights_gives_a_batch_of_laws() -> None:
    outcomes, _, _ = joint_laws(SMALL_URN)
    log_weights = torch.randn(3, 2, 3)
    arguments = outcomes, torch.tensor(SMALL_URN.group_sizes), SMALL_URN.draws
    together = merged_log_prob(*arguments, log_weights)
    assert together.shape == (3, 2, len(outcomes))
    torch.testing.assert_close(together[2, 1], merged_log_prob(*arguments, log_weights[2, 1]))


def test_marginals_sum_the_joint_laws() -> None:
    exact, merged = marginals(SMALL_URN)
    law = merged_law_by_hand(SMALL_URN)
    for group in range(3):
        by_hand = [
            sum(p for x, p in law.items() if x[group] == count)
            for count in range(SMALL_URN.group_sizes[group] + 1)
        ]
        np.testing.assert_allclose(merged[group], by_hand, rtol=1e-10, atol=1e-15)
        counts = torch.arange(SMALL_URN.group_sizes[group] + 1.0)
        theirs = SMALL_URN.urn.marginals.log_prob(
            counts.unsqueeze(-1).expand(-1, 3).clamp(max=torch.tensor(SMALL_URN.group_sizes))
        )[:, group]
        np.testing.assert_allclose(exact[group], theirs.exp(), rtol=1e-10, atol=1e-15)


def test_scipys_reference_draws_from_the_merged_law() -> None:
    drawn = draw_by_scipy(SMALL_URN, 20_000, np.random.default_rng(0))
    assert (drawn.sum(-1) == SMALL_URN.draws).all()
    law = merged_law_by_hand(SMALL_URN)
    likely = [x for x, p in law.items() if p * 20_000 >= 10]
    observed = [int((drawn == x).all(-1).sum()) for x in likely]
    expected = [20_000 * law[x] for x in likely]
    rest = 20_000 - sum(observed), 20_000 - sum(expected)
    assert (
        stats.chisquare([*observed, rest[0]], [*expected, rest[1]]).pvalue > 1e-4
    )  # fails by chance once in 10,000 seeds


# --------------------------------------------------------------------------------------------------
# the remark about ω̃


def test_the_best_weights_are_those_scipy_finds() -> None:
    law = merged_law_by_hand(SMALL_URN)
    exact = SMALL_URN.urn.log_prob(torch.tensor(list(law), dtype=torch.float64)).exp().numpy()

    def divergence(log_weights: np.ndarray) -> float:
        weights = (1.0, *np.exp(log_weights))
        merged = merged_law_by_hand(
            Setting("weight", 0.0, SMALL_URN.group_sizes, SMALL_URN.draws, weights)
        )
        return float(exact @ np.log(exact / np.array(list(merged.values()))))

    best = optimize.minimize(
        divergence,
        np.zeros(2),
        method="Nelder-Mead",
        options={"xatol": 1e-8, "fatol": 1e-14, "maxiter": 2_000},
    )
    remark = remark_record(SMALL_URN)["remark"]
    np.testing.assert_allclose(remark["weights"], [1.0, *np.exp(best.x)], rtol=1e-5)
    assert remark["divergence"][1] == pytest.approx(best.fun, abs=1e-10)
    assert remark["divergence"][0] == pytest.approx(divergence(np.log([4.0, 0.5])), rel=1e-9)


def test_a_different_weight_makes_up_for_the_merge_but_is_not_the_urns() -> None:
    remark = remark_record(settings(Options())["weight-10"])["remark"]
    assert remark["divergence"][0] > 1
    assert remark["divergence"][1] < 0.001
    assert remark["weights"][1] < 7
    assert remark["weights"][2] < 0.7


def test_newton_refuses_to_return_what_has_not_settled() -> None:
    with pytest.raises(ValueError, match="did not settle"):
        minimiser(lambda x: x.exp().sum(-1), torch.zeros(1, 2), iterations=3)


# --------------------------------------------------------------------------------------------------
# the study as a whole


def rejections(samples: int, seeds: int) -> tuple[int, float]:
    """One-sample tests of the exact sampler at 5 %, all groups, and the number to expect."""
    setting = settings(Options())["weight-5"]
    exact, _ = marginals(setting)
    critical = [kolmogorov.critical_distance(mass, samples, 0.05) for mass in exact]
    rejected = 0
    for seed in range(seeds):
        torch.manual_seed(seed)
        found = histograms(setting.urn.sample((samples,)).numpy(), setting)
        rejected += sum(
            kolmogorov.distance(x, mass) >= distance - 1e-9
            for x, mass, (distance, _) in zip(found, exact, critical, strict=True)
        )
    return rejected, seeds * sum(level for _, level in critical)


@pytest.mark.parametrize(
    ("samples", "seeds"),
    [
        (5_000, 100),
        pytest.param(50_000, 200, marks=pytest.mark.slow, id="the paper's size, 200 seeds"),
    ],
)
def test_the_exact_sampler_is_rejected_as_often_as_the_level_says(samples: int, seeds: int) -> None:
    rejected, expected = rejections(samples, seeds)
    # The tests of one urn are dependent: three at a time is the most that adds to the variance.
    # Four such standard errors: 6e-5.
    assert abs(rejected - expected) < 4 * math.sqrt(3 * expected)


def test_the_paper_test_rejects_less_often_than_it_says() -> None:
    options = Options(samples=2_000, level_seeds=150)
    record = level_record(settings(options)["level-5"], options, np.random.default_rng(0))
    assert sum(record["paper"]["p_values"]) < 0.04 * 3 * options.level_seeds
    assert sum(record["exact"]["p_values"]) > sum(record["paper"]["p_values"])


def test_the_merged_chain_is_rejected_and_the_exact_sampler_is_not(
    results: Results,
) -> None:
    record = results.records["weight-5"]
    assert max(record["merged"]["corrected"]) < 1e-3
    assert min(record["exact"]["corrected"]) > 1e-3  # fails by chance once in 1,000 seeds
    assert min(record["paper"]["corrected"]) > 1e-3
    assert record["means"]["merged"][0] == pytest.approx(32.54, abs=0.01)
    assert record["means"]["exact"][0] == pytest.approx(
        float(FisherHypergeometric([200] * 3, 180, weights=[1.0, 5.0, 1.0]).mean[0])
    )
    assert max(results.records["weight-1"]["laws_apart"]) < 1e-12


def test_tables_and_figures_cover_every_study(results: Results, folder: Path) -> None:
    tables = {table.title: table for table in ks.table(results)}
    assert len(tables) == 6
    verdicts = tables["Kolmogorov-Smirnov tests, ω₂ varied"]
    assert [row[1] for row in verdicts.rows] == [6, 6, 6]
    assert {"paper", "difference"} <= set(verdicts.columns)
    papers, exact, merged = (row[4] for row in verdicts.rows)  # rejected, corrected
    first, second = ks.verdict(results)
    assert f"rejects {papers} of 6 comparisons" in first
    assert f"{merged} of 6 tests reject the merged chain and {exact} the exact sampler" in second
    assert {path.stem for path in (folder / "figures").glob("*.png")} == {
        "ks-weight",
        "ks-draws",
        "ks-size",
        "ks-remark",
    }


def test_a_run_repeats_itself(results: Results) -> None:
    assert run(ks, TINY).records == results.records


@pytest.mark.parametrize(
    "wrong",
    [
        {"samples": 0},
        {"second_weights": (0.0,)},
        {"draws": (600,)},
        {"second_sizes": ()},
        {"level_seeds": 1},
    ],
)
def test_impossible_options_are_refused_with_a_reason(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Options(**wrong)


@pytest.mark.slow
def test_the_quick_options_run() -> None:
    assert len(ks.table(run(ks, Options().quick()))) == 6
