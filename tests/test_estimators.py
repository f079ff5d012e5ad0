"""CovarianceST, the score function, annealing and the relaxed sort."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from diffurn import (
    CovarianceST,
    ExponentialAnnealing,
    FisherHypergeometric,
    neuralsort,
    score_surrogate,
    select_top,
)


def product(x: Tensor) -> Tensor:
    return (x[..., 0] * x[..., 1] - 3).square()


def quadratic(x: Tensor) -> Tensor:
    return (x - x.new_tensor([50.0, 80.0, 50.0])).square().sum(-1)


def linear(x: Tensor) -> Tensor:
    return x[..., 0] - 2 * x[..., 1]


def log_weights_of(weights: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(weights, device=device).log()


def exact_gradient(sizes: tuple[int, ...], draws: int, log_weights: Tensor, f) -> Tensor:
    """By summing over all outcomes with the unnormalised probabilities written out."""
    log_weights = log_weights.clone().requires_grad_()
    outcomes = [x for x in itertools.product(*(range(m + 1) for m in sizes)) if sum(x) == draws]
    x = torch.tensor(outcomes, dtype=torch.float64, device=log_weights.device)
    coefficients = torch.tensor(
        [
            sum(math.log(math.comb(m, k)) for m, k in zip(sizes, row, strict=True))
            for row in outcomes
        ]
    )
    probability = torch.softmax(coefficients.to(x) + x @ log_weights, 0)
    return torch.autograd.grad((probability * f(x)).sum(), log_weights)[0]


def test_covariance_estimator_is_nearly_unbiased_on_the_large_quadratic(
    device: torch.device,
) -> None:
    """Relative bias 0.011, spread below 0.6; both from exact expectations over all outcomes, not
    from draws.
    """
    sizes, draws, log_weights = (200, 200, 200), 180, log_weights_of((1.0, 3.0, 1.0), device)
    truth = exact_gradient(sizes, draws, log_weights, quadratic)
    urn = FisherHypergeometric(sizes, draws, log_weights=log_weights)
    x = urn.enumerate_support().requires_grad_()
    (slopes,) = torch.autograd.grad(quadratic(x).sum(), x)
    estimates = slopes @ urn.covariance_matrix  # what CovarianceST sends back for each outcome
    probability = urn.log_prob(x.detach()).exp().unsqueeze(-1)
    mean = (probability * estimates).sum(0)
    spread = (probability * (estimates - mean).square()).sum().sqrt()
    assert (mean - truth).norm() / truth.norm() <= 0.011
    assert spread / truth.norm() <= 0.6


@pytest.mark.parametrize(("sizes", "draws"), [((5, 5, 5), 6), ((200, 200, 200), 180)])
def test_covariance_estimator_is_exact_for_linear_functions(
    sizes: tuple[int, ...], draws: int, device: torch.device
) -> None:
    start = log_weights_of((1.0, 3.0, 1.0), device)
    log_weights = start.repeat(1000, 1).requires_grad_()
    urn = FisherHypergeometric(sizes, draws, log_weights=log_weights, estimator=CovarianceST())
    (gradients,) = torch.autograd.grad(linear(urn.rsample()).sum(), log_weights)
    truth = exact_gradient(sizes, draws, start, linear)
    torch.testing.assert_close(gradients, truth.expand_as(gradients), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("control_variate", [None, "covariance"])
def test_score_surrogate_is_unbiased(control_variate: str | None, device: torch.device) -> None:
    """Within 3 standard errors of 200,000 draws in the norm, and 4.4 in each entry (false alarm
    1e-5 an entry).
    """
    start = log_weights_of((1.0, 3.0, 1.0), device)
    truth = exact_gradient((5, 5, 5), 6, start, product)
    log_weights = start.repeat(20_000, 1).requires_grad_()
    urn = FisherHypergeometric((5, 5, 5), 6, log_weights=log_weights)
    (estimates,) = torch.autograd.grad(
        score_surrogate(urn, product, 10, control_variate).sum(), log_weights
    )
    error = estimates.var(0).div(len(estimates)).sqrt()
    assert ((estimates.mean(0) - truth) / error).abs().max() < stats.norm.isf(0.5e-5)
    assert (estimates.mean(0) - truth).norm() < 3 * error.norm()


def test_control_variate_makes_linear_functions_exact(device: torch.device) -> None:
    log_weights = log_weights_of((1.0, 3.0, 1.0), device).requires_grad_()
    urn = FisherHypergeometric((5, 5, 5), 6, log_weights=log_weights)
    (estimate,) = torch.autograd.grad(score_surrogate(urn, linear, 2, "covariance"), log_weights)
    torch.testing.assert_close(estimate, exact_gradient((5, 5, 5), 6, log_weights.detach(), linear))


def test_score_surrogate_has_the_value_of_the_mean_and_trains_what_f_depends_on(
    device: torch.device,
) -> None:
    scale = torch.tensor(2.0, device=device, requires_grad=True)
    urn = FisherHypergeometric((5, 5, 5), 6, weights=torch.ones(4, 3, device=device))
    torch.manual_seed(1)
    surrogate = score_surrogate(urn, lambda x: scale * product(x), 50)
    torch.manual_seed(1)
    values = product(urn.sample((50,))).mean(0)
    torch.testing.assert_close(surrogate, 2 * values)
    (gradient,) = torch.autograd.grad(surrogate.sum(), scale)
    torch.testing.assert_close(gradient, values.sum())


def test_score_surrogate_names_bad_settings() -> None:
    urn = FisherHypergeometric((5, 5), 6, weights=torch.ones(2))
    with pytest.raises(ValueError, match="num_samples is 1"):
        score_surrogate(urn, linear, 1)
    with pytest.raises(ValueError, match="control_variate is 'mean'"):
        score_surrogate(urn, linear, 2, "mean")


def test_rank_indicators_send_back_the_exact_gradient_of_tail_probabilities(
    device: torch.device,
) -> None:
    start = log_weights_of((1.0, 3.0, 0.5), device)
    log_weights = start.clone().requires_grad_()
    urn = FisherHypergeometric((5, 7, 9), 8, log_weights=log_weights)
    counts, indicators = urn.rank_indicators(1, (3,))
    ranks = torch.arange(1, 8, device=device)
    assert torch.equal(indicators.detach(), (ranks <= counts.detach()[:, 1:2]).to(indicators.dtype))
    for i in range(7):
        truth = exact_gradient((5, 7, 9), 8, start, lambda x, i=i: (x[..., 1] >= i + 1).to(x.dtype))
        (gradient,) = torch.autograd.grad(indicators[0, i], log_weights, retain_graph=True)
        torch.testing.assert_close(gradient, truth, rtol=1e-10, atol=1e-12)


def test_annealing_follows_the_papers_schedule() -> None:
    annealing = ExponentialAnnealing(initial=10.0, final=0.01, steps=50_000)
    rate = (math.log(10.0) - math.log(0.01)) / 50_000
    for step in (0, 1, 25_000, 50_000):
        assert annealing(step) == pytest.approx(10.0 * math.exp(-rate * step), rel=1e-12)
    assert annealing(10**6) == pytest.approx(0.01)


@pytest.mark.parametrize("arguments", [(0.0, 1.0, 10), (1.0, -1.0, 10), (1.0, 0.1, 0)])
def test_annealing_names_bad_settings(arguments: tuple[float, float, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        ExponentialAnnealing(*arguments)


def test_neuralsort_rows_sum_to_one_and_approach_the_sorting_permutation(
    device: torch.device,
) -> None:
    scores = torch.randn(20, 6, device=device)
    relaxed = neuralsort(scores, 1.0)
    torch.testing.assert_close(relaxed.sum(-1), torch.ones(20, 6, device=device))
    assert torch.equal(relaxed.argmax(-1), scores.argsort(-1, descending=True))
    torch.testing.assert_close(
        (neuralsort(scores, 1e-4) @ scores.unsqueeze(-1)).squeeze(-1),
        scores.sort(-1, descending=True).values,
    )


def test_hard_neuralsort_is_a_permutation_even_with_ties(device: torch.device) -> None:
    scores = torch.tensor([1.0, 2.0, 2.0, 2.0, 0.0], device=device, requires_grad=True)
    permutation = neuralsort(scores, 0.5, hard=True)
    ones = torch.ones(5, device=device)
    assert torch.equal(permutation.detach().sum(0), ones)
    assert torch.equal(permutation.detach().sum(1), ones)
    (gradient,) = torch.autograd.grad(permutation[0] @ torch.arange(5.0, device=device), scores)
    assert gradient.abs().max() > 0


def test_neuralsort_gradient_is_that_of_the_relaxation(device: torch.device) -> None:
    scores = torch.randn(5, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: neuralsort(s, 0.7), (scores,))


def test_stochastic_neuralsort_draws_plackett_luce_orders(device: torch.device) -> None:
    """The first item is item i with probability softmax(s)_i (false alarm 1e-6)."""
    scores = torch.tensor([0.0, 1.0, 2.0], device=device)
    first = neuralsort(scores.expand(30_000, 3), 0.1, hard=True, stochastic=True)[:, 0].sum(0).cpu()
    expected = 30_000 * torch.softmax(scores, 0).cpu()
    assert stats.chisquare(first.numpy(), expected.numpy()).pvalue > 1e-6


def test_select_top_takes_the_largest(device: torch.device) -> None:
    scores = torch.tensor([[0.3, 2.0, 1.0, -1.0]], device=device)
    indicators = torch.tensor([[1.0, 1.0, 0.0, 0.0]], device=device)
    assert torch.equal(
        select_top(neuralsort(scores, 0.1, hard=True), indicators),
        torch.tensor([[0.0, 1.0, 1.0, 0.0]], device=device),
    )
