"""The minimal example: the two answers it can reach, and that training reaches them."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scipy import optimize
from torch import Tensor

from diffurn import CovarianceST, FisherHypergeometric, GumbelSoftmax
from diffurn._fisher.merged import merged_log_prob
from diffurn_studies.harness.runner import Results
from diffurn_studies.minimal import study as minimal

TINY = minimal.Options(seeds=2, second_weights=(1.0, 4.0), samples=50, epochs=2)
NOTHING: Any = SimpleNamespace(scalars=lambda step, **values: None)  # a workspace that keeps no log


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("minimal") / "run"


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return minimal.run(TINY, folder)


@pytest.fixture
def small_urn(monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """An urn whose outcomes can all be listed; returns the mean of some data."""
    monkeypatch.setattr(minimal, "GROUP_SIZES", (9, 8, 10))
    monkeypatch.setattr(minimal, "DRAWS", 7)
    return torch.tensor([[1.3, 4.2, 1.5]])


def by_brute_force(expectation: Any, mean: Tensor) -> Tensor:
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
    return minimal.centred(torch.tensor([0.0, *best]))


def all_outcomes() -> Tensor:
    return FisherHypergeometric(
        minimal.GROUP_SIZES, minimal.DRAWS, weights=torch.ones(3)
    ).enumerate_support()


def fisher_by_hand(log_weights: Tensor, outcomes: Tensor) -> Tensor:
    sizes = torch.tensor(minimal.GROUP_SIZES)
    terms = (
        -torch.lgamma(outcomes + 1) - torch.lgamma(sizes - outcomes + 1) + outcomes * log_weights
    )
    return torch.softmax(terms.sum(-1), -1)


def test_the_minimiser_of_the_loss_is_that_of_brute_force(small_urn: Tensor) -> None:
    outcomes = all_outcomes()
    squares = (outcomes - small_urn).square().sum(-1)
    expected = by_brute_force(
        lambda log_weights: fisher_by_hand(log_weights, outcomes) @ squares, small_urn
    )
    found = minimal.answers(small_urn.repeat(1, 10, 1))
    torch.testing.assert_close(found["loss"][0], expected, rtol=1e-4, atol=1e-6)
    assert (found["loss"] - found["likelihood"]).abs().max() > 0.01


def test_the_minimiser_for_the_merged_chain_is_that_of_brute_force(small_urn: Tensor) -> None:
    outcomes = all_outcomes()
    squares = (outcomes - small_urn).square().sum(-1)
    sizes, draws = torch.tensor(minimal.GROUP_SIZES), torch.tensor(minimal.DRAWS)

    def expectation(log_weights: Tensor) -> Tensor:
        return merged_log_prob(outcomes, sizes, draws, log_weights).exp() @ squares

    torch.testing.assert_close(
        minimal.answers(small_urn.repeat(1, 10, 1))["merged_loss"][0],
        by_brute_force(expectation, small_urn),
        rtol=1e-4,
        atol=1e-6,
    )


def test_maximum_likelihood_meets_the_mean_of_the_data(small_urn: Tensor) -> None:
    log_weights = minimal.answers(small_urn.repeat(1, 10, 1))["likelihood"]
    outcomes = all_outcomes()
    torch.testing.assert_close(fisher_by_hand(log_weights[0], outcomes) @ outcomes, small_urn[0])


def test_the_loss_prefers_a_larger_second_weight_by_a_hundredth() -> None:
    mean = FisherHypergeometric(minimal.GROUP_SIZES, minimal.DRAWS, weights=[1.0, 10.0, 1.0]).mean
    found = minimal.answers(mean.repeat(1, 10, 1))
    likelihood, loss = (minimal.log_odds(found[name].tolist()) for name in ("likelihood", "loss"))
    assert float(likelihood) == pytest.approx(math.log(10), abs=1e-9)
    assert float(loss - likelihood) == pytest.approx(0.010, abs=0.001)


@pytest.mark.parametrize(
    "gradient", [CovarianceST(), GumbelSoftmax(0.5), GumbelSoftmax(0.5, conditionals="merged")]
)
def test_the_loss_of_a_batch_is_the_mean_squared_distance_of_its_draws(gradient: Any) -> None:
    log_weights = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    wanted = torch.tensor([60.0, 60.0, 60.0]).expand(2, 2_000, 3)
    loss = minimal.squared_error(log_weights, gradient, wanted)
    urn = FisherHypergeometric(minimal.GROUP_SIZES, minimal.DRAWS, log_weights=log_weights)
    # the first urn is central, where all three draw from one law; 84 is tr Cov
    assert float(loss[0]) == pytest.approx(float(urn.variance[0].sum()), rel=0.12)
    assert float(loss[1]) > 1_000


def test_data_are_the_same_for_every_estimator_and_differ_by_seed_and_source() -> None:
    data = minimal.data_sets(TINY, "exact")
    assert data.shape == (4, 50, 3)
    assert (data.sum(-1) == minimal.DRAWS).all()
    assert torch.equal(data, minimal.data_sets(TINY, "exact"))
    assert not torch.equal(data[:2], data[2:])
    assert not torch.equal(data, minimal.data_sets(TINY, "merged"))


def test_training_data_and_validation_data_are_apart() -> None:
    training, validation = minimal.split(
        minimal.data_sets(minimal.Options(seeds=1, second_weights=(1.0,)), "exact")
    )
    assert (training.shape[1], validation.shape[1]) == (800, 200)


def test_the_covariance_recovers_every_weight_within_a_twentieth() -> None:
    """The promise of the full study, at one seed and all ten data sets."""
    options = minimal.Options(seeds=1)
    record = minimal.run_unit(options, "covariance-on-exact-data", NOTHING)
    errors = minimal.log_odds(record["final"])[0] - torch.tensor(options.second_weights).log()
    assert errors.abs().max() < 0.05
    answers = minimal.log_odds(
        minimal.run_unit(options, "answers-on-exact-data", NOTHING)["likelihood"]
    )[0]
    # with the data given, only the noise of the last steps is left
    assert (minimal.log_odds(record["final"])[0] - answers).abs().max() < 0.025


@pytest.mark.slow
def test_each_gradient_ends_where_its_own_loss_is_smallest() -> None:
    options = minimal.Options(seeds=1, second_weights=(1.0, 10.0))
    reached = {"gumbel-exact": "loss", "gumbel-merged": "merged_loss"}
    for source in minimal.SOURCES:
        answers = minimal.run_unit(options, f"answers-on-{source}-data", NOTHING)
        for name, answer in reached.items():
            record = minimal.run_unit(options, f"{name}-on-{source}-data", NOTHING)
            assert (
                minimal.log_odds(record["final"]) - minimal.log_odds(answers[answer])
            ).abs().max() < 0.06


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
    ],
)
def test_impossible_options_are_refused_with_a_reason(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        minimal.Options(**wrong)


@pytest.mark.slow
def test_the_quick_options_run() -> None:
    assert len(minimal.table(minimal.run(minimal.Options.quick()))) == 5
