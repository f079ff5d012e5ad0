"""Problems with known gradients: an urn and a function f of its counts.

∇E[f(x)] in log ω is exact: a sum over all outcomes if they can be listed, otherwise from exact
moments and marginals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.ours import marginals
from diffurn import FisherHypergeometric

Objective = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Problem:
    """E[f(x)] of one urn: `expectation` computes it exactly and differentiably."""

    urn: str
    function: str
    group_sizes: tuple[int, ...]
    draws: int
    weights: tuple[float, ...]
    f: Objective
    expectation: Callable[[FisherHypergeometric, Objective], Tensor]

    def exact_gradient(self, device: torch.device) -> Tensor:
        log_weights = self.log_weights(device).requires_grad_()
        urn = FisherHypergeometric(self.group_sizes, self.draws, log_weights=log_weights)
        return torch.autograd.grad(self.expectation(urn, self.f), log_weights)[0]

    def log_weights(self, device: torch.device) -> Tensor:
        return torch.tensor(self.weights, dtype=torch.float64, device=device).log()


def by_enumeration(urn: FisherHypergeometric, f: Objective) -> Tensor:
    outcomes = urn.enumerate_support()
    return (urn.log_prob(outcomes).exp() * f(outcomes)).sum()


def of_first_group(urn: FisherHypergeometric, f: Objective) -> Tensor:
    """For f of the first count only: a sum over ten standard deviations of its marginal."""
    mean, reach = urn.mean.detach()[0], 10 * urn.variance.detach()[0].sqrt()
    counts = torch.arange(
        float((mean - reach).floor()),
        float((mean + reach).ceil()),
        dtype=mean.dtype,
        device=mean.device,
    )
    outcomes = counts.unsqueeze(-1) * torch.ones_like(urn.mean)
    first: Tensor = marginals(urn).log_prob(outcomes)[:, 0]
    return (first.exp() * f(outcomes)).sum()


def of_squared_distance(
    target: tuple[float, ...],
) -> Callable[[FisherHypergeometric, Objective], Tensor]:
    def expectation(urn: FisherHypergeometric, f: Objective) -> Tensor:
        return (urn.variance + (urn.mean - urn.mean.new_tensor(target)).square()).sum()

    return expectation


def linear(x: Tensor) -> Tensor:
    return x[..., 0] - 2 * x[..., 1]


def squared_distance(target: tuple[float, ...]) -> Objective:
    return lambda x: (x - x.new_tensor(target)).square().sum(-1)


def product(goal: float) -> Objective:
    return lambda x: (x[..., 0] * x[..., 1] - goal).square()


def threshold(at: float, width: float) -> Objective:
    """A smooth version of the indicator of x₀ ≥ at, since straight-through estimators need a
    derivative.
    """
    return lambda x: torch.sigmoid((x[..., 0] - at) / width)


def problems() -> list[Problem]:
    """Small and large urns, and one with too many outcomes to list."""
    weights = (1.0, 3.0, 1.0)
    small, large, huge = ((5,) * 3, 6), ((200,) * 3, 180), ((100_000,) * 3, 90_000)
    listed = [
        ("m = 5", *small, "linear", linear),
        ("m = 5", *small, "squared distance", squared_distance((2.0, 2.0, 2.0))),
        ("m = 5", *small, "product", product(3.0)),
        ("m = 5", *small, "threshold", threshold(1.5, 0.25)),
        ("m = 200", *large, "linear", linear),
        ("m = 200", *large, "squared distance", squared_distance((50.0, 80.0, 50.0))),
        ("m = 200", *large, "product", product(3000.0)),
        ("m = 200", *large, "threshold", threshold(46.5, 1.0)),
    ]
    target = (25_000.0, 40_000.0, 25_000.0)
    return [
        *(
            Problem(urn, function, m, n, weights, f, by_enumeration)
            for urn, m, n, function, f in listed
        ),
        Problem("m = 100,000", "linear", *huge, weights, linear, lambda urn, f: f(urn.mean)),
        Problem(
            "m = 100,000",
            "squared distance",
            *huge,
            weights,
            squared_distance(target),
            of_squared_distance(target),
        ),
        Problem(
            "m = 100,000", "threshold", *huge, weights, threshold(22_100.0, 20.0), of_first_group
        ),
    ]
