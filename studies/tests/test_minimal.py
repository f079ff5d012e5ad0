"""The minimal example: the two answers it can reach, and that training reaches them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scipy import optimize
from torch import Tensor

from diffurn import CovarianceST, GumbelSoftmax
from diffurn_studies.harness.runner import run
from diffurn_studies.harness.study import Results
from diffurn_studies.merged_chain import merged_log_prob
from diffurn_studies.minimal import study as minimal
from diffurn_studies.minimal.answers import centred, reachable_weights
from diffurn_studies.minimal.arms import released
from diffurn_studies.minimal.learning import (
    SOURCES,
    data_sets,
    estimator_named,
    split,
    squared_error,
    train,
)
from diffurn_studies.minimal.options import Options
from diffurn_studies.minimal.results import log_odds
from diffurn_studies.minimal.urn import PAPERS_URN, Urn

TINY = Options(seeds=2, second_weights=(1.0, 4.0), samples=50, epochs=2)
NOTHING: Any = SimpleNamespace(scalars=lambda step, **values: None)  # a workspace that keeps no log
# An urn whose outcomes can all be listed, and the mean of some data.
SMALL_URN, MEAN = Urn((9, 8, 10), 7), torch.tensor([[1.3, 4.2, 1.5]], dtype=torch.float64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("minimal") / "run"


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return run(minimal, TINY, folder)


def by_brute_force(expectation: Any) -> Tensor:
    """The minimiser over ω with ω₁ = 1 by a simplex search, of an objective that sums over a list
    of all outcomes.
    """

    def objective(free: Any) -> float:
        return float(expectation(torch.tensor([0.0, *free])))

    best = optimize.minimize(
        objective,
        [0.0, 0.0],
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-13, "maxiter": 4_000},
    ).x
    return centred(torch.tensor([0.0, *best]))


def all_outcomes() -> Tensor:
    return SMALL_URN.with_weights(weights=torch.ones(3)).enumerate_support()


def fisher_by_hand(log_weights: Tensor, outcomes: Tensor) -> Tensor:
    sizes = torch.tensor(SMALL_URN.group_sizes)
    terms = (
        -torch.lgamma(outcomes + 1) - torch.lgamma(sizes - outcomes + 1) + outcomes * log_weights
    )
    return torch.softmax(terms.sum(-1), -1)


def test_the_minimiser_of_the_loss_is_that_of_brute_force() -> None:
    outcomes = all_outcomes()
    squares = (outcomes - MEAN).square().sum(-1)
    expected = by_brute_force(lambda log_weights: fisher_by_hand(log_weights, outcomes) @ squares)
    found = reachable_weights(MEAN, SMALL_URN)
    torch.testing.assert_close(found["loss"][0], expected, rtol=1e-4, atol=1e-6)
    assert (found["loss"] - found["likelihood"]).abs().max() > 0.01


def test_the_minimiser_for_the_merged_chain_is_that_of_brute_force() -> None:
    outcomes = all_outcomes()
    squares = (outcomes - MEAN).square().sum(-1)
    sizes, draws = torch.tensor(SMALL_URN.group_sizes), SMALL_URN.draws

    def expectation(log_weights: Tensor) -> Tensor:
        return merged_log_prob(outcomes, sizes, draws, log_weights).exp() @ squares

    torch.testing.assert_close(
        reachable_weights(MEAN, SMALL_URN)["merged_loss"][0],
        by_brute_force(expectation),
        rtol=1e-4,
        atol=1e-6,
    )


def test_maximum_likelihood_meets_the_mean_of_the_data() -> None:
    log_weights = reachable_weights(MEAN, SMALL_URN)["likelihood"]
    outcomes = all_outcomes()
    torch.testing.assert_close(fisher_by_hand(log_weights[0], outcomes) @ outcomes, MEAN[0])


def test_the_loss_prefers_a_larger_second_weight_by_a_hundredth() -> None:
    mean = PAPERS_URN.with_weights(weights=[1.0, 10.0, 1.0]).mean
    found = reachable_weights(mean.unsqueeze(0), PAPERS_URN)
    likelihood, loss = (log_odds(found[name].tolist()) for name in ("likelihood", "loss"))
    assert float(likelihood) == pytest.approx(math.log(10), abs=1e-9)
    assert float(loss - likelihood) == pytest.approx(0.010, abs=0.001)


@pytest.mark.parametrize(
    "gradient", [CovarianceST(), GumbelSoftmax(0.5), GumbelSoftmax(0.5, conditionals="merged")]
)
def test_the_loss_of_a_batch_is_the_mean_squared_distance_of_its_draws(gradient: Any) -> None:
    log_weights = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    wanted = torch.tensor([60.0, 60.0, 60.0]).expand(2, 2_000, 3)
    loss = squared_error(log_weights, gradient, wanted)
    urn = PAPERS_URN.with_weights(log_weights=log_weights)
    # the first urn is central, where all three draw from one law; 84 is tr Cov
    assert float(loss[0]) == pytest.approx(float(urn.variance[0].sum()), rel=0.12)
    assert float(loss[1]) > 1_000


def test_data_differ_by_seed_and_source_alone() -> None:
    data = data_sets(TINY, "exact")
    assert data.shape == (4, 50, 3)
    assert (data.sum(-1) == PAPERS_URN.draws).all()
    assert torch.equal(data, data_sets(TINY, "exact"))
    assert not torch.equal(data[:2], data[2:])
    assert not torch.equal(data, data_sets(TINY, "merged"))


def test_training_data_and_validation_data_are_apart() -> None:
    training, validation = split(data_sets(Options(seeds=1, second_weights=(1.0,)), "exact"))
    assert (training.shape[1], validation.shape[1]) == (800, 200)


def test_the_covariance_recovers_every_weight_within_a_twentieth() -> None:
    """The promise of the full study, at one seed and all ten data sets."""
    options = Options(seeds=1)
    record = minimal.run_unit(options, "covariance-on-exact-data", NOTHING)
    errors = log_odds(record["final"])[0] - torch.tensor(options.second_weights).log()
    assert errors.abs().max() < 0.05
    answers = log_odds(minimal.run_unit(options, "answers-on-exact-data", NOTHING)["likelihood"])[0]
    # with the data given, only the noise of the last steps is left
    assert (log_odds(record["final"])[0] - answers).abs().max() < 0.025


@pytest.mark.slow
def test_each_gradient_ends_where_its_own_loss_is_smallest() -> None:
    options = Options(seeds=1, second_weights=(1.0, 10.0))
    reached = {"gumbel-exact": "loss", "gumbel-merged": "merged_loss"}
    for source in SOURCES:
        answers = minimal.run_unit(options, f"answers-on-{source}-data", NOTHING)
        for name, answer in reached.items():
            record = minimal.run_unit(options, f"{name}-on-{source}-data", NOTHING)
            assert (log_odds(record["final"]) - log_odds(answers[answer])).abs().max() < 0.06


def test_the_released_arm_has_the_settings_of_the_released_script() -> None:
    own = released.OPTIONS
    assert (own.optimiser, own.learning_rate, own.decay) == ("adam", 1e-3, 0.99)
    assert (own.batch_size, own.epochs, own.temperature, own.samples) == (1, 20, 0.5, 1000)
    assert own.rate(799, 800) == 1e-3
    assert own.rate(19 * 800, 800) == pytest.approx(1e-3 * 0.99**19)


def test_adam_takes_the_steps_of_a_loop_by_hand() -> None:
    """Adam's rule (Kingma, Ba 2015) in plain Python, for an urn whose gradient is exact."""
    options = replace(TINY, optimiser="adam", learning_rate=0.01, decay=0.5, batch_size=20)
    data = data_sets(options, "exact")
    torch.manual_seed(3)
    found = train(options, estimator_named("covariance", 0.5), data, NOTHING)
    torch.manual_seed(3)
    log_weights = torch.zeros(4, 3, dtype=torch.float64, requires_grad=True)
    first, second = torch.zeros(4, 3, dtype=torch.float64), torch.zeros(4, 3, dtype=torch.float64)
    training, validation = split(data)
    for step in range(4):
        if step % 2 == 0:
            squared_error(log_weights, CovarianceST(), validation)  # takes random numbers
            order = torch.rand(training.shape[:2], dtype=torch.float64).argsort(-1)
        rows = order[:, 20 * (step % 2) : 20 * (step % 2) + 20]
        wanted = torch.stack([own[places] for own, places in zip(training, rows, strict=True)])
        loss = squared_error(log_weights, CovarianceST(), wanted).sum()
        (slope,) = torch.autograd.grad(loss, log_weights)
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        mean, spread = first / (1 - 0.9 ** (step + 1)), second / (1 - 0.999 ** (step + 1))
        rate = 0.01 * 0.5 ** (step // 2)
        log_weights = (log_weights - rate * mean / (spread.sqrt() + 1e-8)).detach().requires_grad_()
    torch.testing.assert_close(found["final"], log_weights.detach())


def test_curves_reach_from_the_first_to_the_last_step(results: Results) -> None:
    record = results.records["gumbel-merged-on-merged-data"]
    assert record["steps"][0][0][-1] == 2 * 40 / 10
    assert record["validation_steps"][1][1] == [0, 4, 8]
    assert (
        len(record["training_loss"][0][0])
        == len(record["steps"][0][0])
        == len(record["log_weights"][0][0])
    )
    assert torch.tensor(record["final"]).shape == (2, 2, 3)
    torch.testing.assert_close(
        torch.tensor(record["final"]).sum(-1), torch.zeros(2, 2), rtol=0, atol=1e-5
    )  # the scale never moves


def test_tables_and_figures_show_both_sources(results: Results, folder: Path) -> None:
    tables = minimal.table(results)
    assert len(tables) == 5
    assert [row[0] for row in tables[1].rows] == ["1", "4"]
    errors = {(row[0], row[1]): row[2] for row in tables[0].rows}
    chain, law = "merged Gumbel chain", "Fisher's law"
    first, second = minimal.verdict(results)
    assert f"within {errors['merged chain', chain]} of" in first
    assert f"chain is {errors[law, chain]}, against" in second
    assert f"{errors[law, 'exact covariance']} by the exact covariance" in second
    assert {path.stem for path in (folder / "figures").glob("*.png")} == {
        "minimal-exact-data",
        "minimal-merged-data",
        "minimal-answers",
    }


def test_a_run_repeats_itself(results: Results) -> None:
    assert (
        minimal.run_unit(TINY, "gumbel-exact-on-exact-data", NOTHING)
        == results.records["gumbel-exact-on-exact-data"]
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"seeds": 0},
        {"second_weights": ()},
        {"batch_size": 0},
        {"batch_size": 801},
        {"learning_rate": 0.0},
        {"temperature": -1.0},
        {"decay": 0.0},
    ],
)
def test_impossible_options_are_refused_with_a_reason(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Options(**wrong)


@pytest.mark.slow
def test_the_quick_options_run() -> None:
    assert len(minimal.table(run(minimal, Options().quick()))) == 5
