"""CovarianceST, the score function, annealing and the relaxed sort."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from diffurn import (
    CovarianceST,
    ExponentialAnnealing,
    FisherHypergeometric,
    GumbelSoftmax,
    WalleniusHypergeometric,
    neuralsort,
    score_surrogate,
    select_top,
)
from diffurn._law import Law
from diffurn.estimators import Estimator


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


# --------------------------------------------------------------------------------------------------
# The seam: which estimators an urn accepts, and what they are handed
# --------------------------------------------------------------------------------------------------

every_distribution = pytest.mark.parametrize("urn", [FisherHypergeometric, WalleniusHypergeometric])


@every_distribution
def test_has_rsample_is_true_only_with_an_estimator(urn: Any, device: torch.device) -> None:
    """So that Pyro takes a biased gradient only where it was asked for; `rsample` always works."""
    leaf = torch.ones(3, device=device, requires_grad=True)
    plain, given = (
        urn([5, 5, 5], 6, weights=leaf),
        urn([5, 5, 5], 6, weights=leaf, estimator=CovarianceST()),
    )
    assert (plain.has_rsample, given.has_rsample) == (False, True)
    assert (plain.expand([2]).has_rsample, given.expand([2]).has_rsample) == (False, True)
    assert (copy.deepcopy(plain).has_rsample, copy.deepcopy(given).has_rsample) == (False, True)
    assert plain.estimator == given.estimator == CovarianceST()
    for each in (plain, given):
        assert each.rsample((2,)).requires_grad
        assert not each.sample((2,)).requires_grad


@every_distribution
@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (CovarianceST, r"estimator is CovarianceST, .*; give an instance, CovarianceST\(…\)"),
        (GumbelSoftmax, r"estimator is GumbelSoftmax, .*; give an instance, GumbelSoftmax\(…\)"),
        ("gumbel", "estimator is 'gumbel', but must be an Estimator$"),
        (dict, "estimator is dict, but must be an Estimator$"),
        (0.5, "estimator is 0.5, but must be an Estimator$"),
    ],
    ids=str,
)
def test_other_estimators_are_refused_when_the_urn_is_built(
    estimator: Any, message: str, urn: Any
) -> None:
    with pytest.raises(ValueError, match=message):
        urn([5, 5, 5], 6, weights=torch.ones(3), estimator=estimator)


def test_wallenius_law_refuses_estimators_that_need_conditionals() -> None:
    with pytest.raises(NotImplementedError, match=r"GumbelSoftmax needs .* use CovarianceST"):
        WalleniusHypergeometric([5, 5], 6, weights=torch.ones(2), estimator=GumbelSoftmax())
    with pytest.raises(NotImplementedError, match=r"conditional"):
        GumbelSoftmax().draw(WalleniusHypergeometric([5, 5], 6, weights=torch.ones(2)))


@pytest.mark.parametrize("order", [(0, 2), (0, 0), (0, 1.5), ("a", "b")], ids=str)
def test_an_order_must_be_a_permutation_when_the_urn_is_built(order: Any) -> None:
    with pytest.raises(ValueError, match="must be a permutation of the 2 groups 0 to 1"):
        FisherHypergeometric([5, 5], 6, weights=torch.ones(2), estimator=GumbelSoftmax(order=order))


@every_distribution
@pytest.mark.parametrize("scale", [1, 1000], ids=["small", "large"])
def test_an_estimator_of_ones_own_is_handed_a_law(
    scale: int, urn: Any, device: torch.device
) -> None:
    """Whichever algorithm computes the urn; it never sees the distribution."""
    seen: list[tuple[Law, int]] = []

    class Own(Estimator):
        def rsample(self, law: Law, num_samples: int) -> Tensor:
            seen.append((law, num_samples))
            return law.rsample(num_samples)

    leaf = torch.zeros(2, 3, device=device, requires_grad=True)
    built = urn([3 * scale, 4 * scale, 5 * scale], 5 * scale, log_weights=leaf, estimator=Own())
    counts = built.rsample((2, 3))
    assert counts.shape == (2, 3, 2, 3)
    assert bool(built.support.check(counts.detach()).all())
    (gradient,) = torch.autograd.grad(counts.mean((0, 1))[0, 0], leaf)
    torch.testing.assert_close(gradient[0], torch.autograd.grad(built.mean[0, 0], leaf)[0][0])
    ((law, number),) = seen
    assert number == 6
    assert law.groups == 3
    assert law.largest(1) == 4 * scale


@every_distribution
def test_an_estimator_that_defines_nothing_says_so(urn: Any) -> None:
    class Lazy(Estimator):
        pass

    built = urn([5, 5], 6, weights=torch.ones(2), estimator=Lazy())
    with pytest.raises(NotImplementedError, match="Lazy does not define rsample"):
        built.rsample()
    with pytest.raises(NotImplementedError, match="Lazy does not define rank_indicators"):
        built.rank_indicators(0)


# --------------------------------------------------------------------------------------------------
# CovarianceST and the score function
# --------------------------------------------------------------------------------------------------


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


def test_score_surrogate_has_the_value_of_the_mean_and_trains_f_too(
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


def test_rank_indicators_send_back_the_exact_gradient_of_tails(
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
