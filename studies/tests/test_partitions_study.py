"""The study of random partitions: objectives against sums over all partitions, and a tiny run."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from diffurn import RandomPartition
from diffurn_studies.harness.runner import run
from diffurn_studies.harness.study import Results
from diffurn_studies.harness.workspace import Workspace
from diffurn_studies.partitions import study as partitions
from diffurn_studies.partitions import training
from diffurn_studies.partitions.figure import CAPTIONS
from diffurn_studies.partitions.networks import Mixture
from diffurn_studies.partitions.objectives import (
    OBJECTIVES,
    Clusters,
    Posterior,
    Weights,
    bounds,
    exact,
    vade,
    weights_at,
)
from diffurn_studies.partitions.options import Options

TINY = Options(
    dataset="digits",
    seeds=1,
    epochs=4,
    widths=(16,),
    latent=3,
    learning_rate=1e-3,
    annealing_steps=10,
    pretraining_epochs=2,
    mixture_fits=1,
    evaluate_every=2,
)
ITEMS, CLUSTERS, LATENT = 5, 3, 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("partitions") / "run"


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return run(partitions, TINY, folder)


def problem(seed: int = 0) -> tuple[Clusters, Posterior]:
    torch.manual_seed(seed)
    clusters = Clusters(CLUSTERS, LATENT)
    with torch.no_grad():
        for parameter in clusters.mixture.parameters():
            parameter.normal_()
        clusters.log_scale.zero_()
    means, log_stds = torch.randn(2, ITEMS, LATENT)
    return clusters, Posterior(means, log_stds, means + log_stds.exp() * torch.randn_like(means))


def weights(draws: int = 2) -> Weights:
    return Weights(beta=0.7, gamma=1.3, delta=0.2, temperature=0.5, draws=draws)


# --------------------------------------------------------------------------------------------------
# Objectives
# --------------------------------------------------------------------------------------------------


def test_the_mixture_is_that_of_torch() -> None:
    clusters, posterior = problem()
    mixture = clusters.mixture
    own = Normal(mixture.means, mixture.log_stds.exp())
    q = Normal(posterior.means.unsqueeze(1), posterior.log_stds.exp().unsqueeze(1))
    log_prob = own.log_prob(posterior.latents.unsqueeze(1)).sum(-1)
    torch.testing.assert_close(mixture.log_prob(posterior.latents), log_prob)
    torch.testing.assert_close(
        mixture.divergence(posterior.means, posterior.log_stds), kl_divergence(q, own).sum(-1)
    )
    torch.testing.assert_close(
        mixture.log_responsibilities(posterior.latents).exp().sum(-1), torch.ones(ITEMS)
    )


def test_a_fitted_mixture_finds_clusters_far_apart() -> None:
    torch.manual_seed(0)
    centres = torch.tensor([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]])
    latents = centres.repeat_interleave(torch.tensor([20, 40, 60]), 0) + torch.randn(120, 2)
    mixture = Mixture(3, 2)
    mixture.fit(latents, fits=3, seed=0)
    order = mixture.log_weights.argsort()
    torch.testing.assert_close(
        mixture.log_weights[order].exp(), torch.tensor([1 / 6, 1 / 3, 1 / 2]), rtol=0, atol=1e-3
    )
    assert (mixture.means[order] - centres).abs().amax() < 1


def test_vade_is_the_sum_of_its_items() -> None:
    clusters, posterior = problem()
    total = vade(clusters, posterior, weights())
    single = [
        vade(clusters, Posterior(*(x[i : i + 1] for x in parts)), weights())
        for i in range(ITEMS)
        for parts in [(posterior.means, posterior.log_stds, posterior.latents)]
    ]
    torch.testing.assert_close(total, torch.stack(single).sum())


def exact_posterior(clusters: Clusters, posterior: Posterior) -> RandomPartition:
    shares = clusters.mixture.log_responsibilities(posterior.means).exp().detach()
    scores = -(10**clusters.log_scale) * shares.argmax(-1)
    sizes = (ITEMS * shares.mean(0)).ceil().long() + 1
    return RandomPartition(scores, torch.zeros(CLUSTERS), sizes, validate_args=False)


def every_partition() -> Tensor:
    return torch.tensor(list(itertools.product(range(CLUSTERS), repeat=ITEMS)))


def test_the_exact_objective_is_the_mean_over_all_partitions() -> None:
    torch.manual_seed(1)
    clusters, posterior = problem()
    q, labels = exact_posterior(clusters, posterior), every_partition()
    log_q, log_p = q.log_prob(labels), clusters.prior(ITEMS).log_prob(labels)
    possible = log_q > -torch.inf
    of_items = clusters.mixture.divergence(posterior.means, posterior.log_stds)
    of_labels = of_items[torch.arange(ITEMS), labels].sum(-1)
    terms = 0.7 * of_labels + torch.where(possible, log_q - log_p, 0.0)
    expected = (log_q.exp() * terms)[possible].sum()
    found = torch.stack([exact(clusters, posterior, weights(50)).detach() for _ in range(400)])
    error = found.std() / 400**0.5
    assert (found.mean() - expected).abs() < 4.5 * error  # one seed in 100,000
    assert error < 0.02 * expected.abs()


def test_gradients_of_the_exact_objective_are_unbiased() -> None:
    torch.manual_seed(2)
    clusters, posterior = problem()
    labels, parameters = every_partition(), list(clusters.parameters())
    q = exact_posterior(clusters, posterior)
    log_q, log_p = q.log_prob(labels), clusters.prior(ITEMS).log_prob(labels)
    possible = log_q > -torch.inf
    of_items = clusters.mixture.divergence(posterior.means, posterior.log_stds)
    terms = 0.7 * of_items[torch.arange(ITEMS), labels].sum(-1) + log_q - log_p
    loss = (log_q.exp()[possible] * terms[possible]).sum()
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])
    runs = []
    for _ in range(300):
        slopes = torch.autograd.grad(exact(clusters, posterior, weights(20)), parameters)
        runs.append(torch.cat([slope.flatten() for slope in slopes]))
    found = torch.stack(runs)
    z = (found.mean(0) - expected) / (found.std(0) / 300**0.5 + 1e-9)
    assert z.abs().amax() < 4.5


def test_the_bound_is_above_the_probability_it_stands_for() -> None:
    torch.manual_seed(0)
    scores = torch.tensor([3.0, 1.0, 1.0, 0.0, -2.0])
    partition = RandomPartition(scores, torch.zeros(CLUSTERS))
    labels = partition.sample((200,))
    sizes = torch.nn.functional.one_hot(labels, CLUSTERS).sum(-2).double()
    likeliest = (scores - scores.flip(-1).logcumsumexp(-1).flip(-1)).sum()
    bound = partition.sizes.log_prob(sizes) + torch.lgamma(sizes + 1).sum(-1) + likeliest
    assert (bound >= partition.log_prob(labels) - 1e-9).all()


def test_the_bounds_have_gradients_for_the_clusters() -> None:
    clusters, posterior = problem()
    bounds(clusters, posterior, weights()).backward()
    for name, parameter in clusters.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all()


def test_weights_rise_and_temperatures_fall() -> None:
    options = replace(TINY, beta=2.0, hottest=1.0, coldest=0.25)
    start, middle, end = (weights_at(options, step) for step in (0, 5, 50))
    assert (start.beta, start.temperature) == (0.2, 1.0)
    assert middle.temperature == pytest.approx(0.5)
    assert (end.beta, end.temperature) == (2.0, 0.25)


# --------------------------------------------------------------------------------------------------
# Runs
# --------------------------------------------------------------------------------------------------


def test_a_run_has_scores_of_every_method(results: Results, folder: Path) -> None:
    assert list(results.records) == ["start-0", *(f"{method}-0" for method in OBJECTIVES)]
    for unit, record in results.records.items():
        if unit == "start-0":
            assert 0 < record["accuracy"] <= 1
            continue
        assert record["epochs"] == [0, 2, 4]
        assert len(record["loss"]) == 2
        # All methods start from the mixture.
        assert record["accuracy"][0] == results.records["start-0"]["accuracy"]
    (table,) = partitions.table(results)
    assert len(table.rows) == 4
    assert "most accurate" in partitions.verdict(results)[0]
    for name in CAPTIONS:
        assert (folder / "figures" / f"{name}.png").stat().st_size > 5_000


def test_an_interrupted_unit_goes_on_from_its_checkpoint(results: Results, tmp_path: Path) -> None:
    class Interrupted(Workspace):
        def save_checkpoint(self, state: dict[str, Any]) -> None:
            super().save_checkpoint(state)
            if state["epoch"] == 2:
                raise KeyboardInterrupt

    torch.set_default_dtype(torch.float32)  # as in the run
    cpu = torch.device("cpu")
    training.prepare(TINY, 0, Workspace(tmp_path, "start-0", cpu))
    with pytest.raises(KeyboardInterrupt):
        training.train(TINY, "exact", 0, Interrupted(tmp_path, "exact-0", cpu))
    again = training.train(TINY, "exact", 0, Workspace(tmp_path, "exact-0", cpu))
    expected = results.records["exact-0"]
    for name in ("epochs", "loss", "accuracy", "nmi", "ari", "generated"):
        assert again[name] == expected[name], name


@pytest.mark.parametrize(
    "wrong",
    [{"methods": ()}, {"epochs": 0}, {"draws": 1}, {"learning_rate": 0.0}, {"beta": -1.0}],
    ids=str,
)
def test_impossible_options_are_refused_with_a_reason(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Options(**wrong)


@pytest.mark.slow
def test_the_quick_options_run() -> None:
    found = run(partitions, Options().quick())
    (table,) = partitions.table(found)
    assert len(table.rows) == 4
