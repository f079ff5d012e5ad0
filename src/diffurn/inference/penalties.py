"""Penalties: ridge and Firth's."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from diffurn import _fisher as exact
from diffurn._fisher.nodes import NODES
from diffurn.inference.likelihood import Evaluation
from diffurn.inference.newton import Objective, Penalty, orthogonal_to, solve


@dataclass(frozen=True)
class Ridge:
    """-½ λ ‖β‖², of the coefficients orthogonal to the gauge: log ω centred, or β."""

    strength: float
    name: str = "ridge"

    def __call__(
        self, objective: Objective, coefficients: Tensor, likelihood: Evaluation
    ) -> Evaluation:
        free = orthogonal_to(objective.gauge)
        shrunk = (free @ coefficients.unsqueeze(-1)).squeeze(-1)
        return Evaluation(
            likelihood.value - 0.5 * self.strength * shrunk.square().sum(-1),
            likelihood.score - self.strength * shrunk,
            likelihood.information + self.strength * free,
        )


@dataclass(frozen=True)
class Firth:
    """½ log det of the information, Jeffreys' prior: removes the leading term of the bias, and
    keeps every estimate finite.

    Newton's method goes on with the information as its metric.
    """

    name: str = "firth"

    def __call__(
        self, objective: Objective, coefficients: Tensor, likelihood: Evaluation
    ) -> Evaluation:
        inverse = solve(likelihood.information, orthogonal_to(objective.gauge), objective.gauge)
        log_det = torch.linalg.slogdet(likelihood.information + objective.gauge).logabsdet
        slope = 0.5 * _slope_of_trace(objective, coefficients, inverse)
        return Evaluation(
            likelihood.value + 0.5 * log_det, likelihood.score + slope, likelihood.information
        )


def _slope_of_trace(objective: Objective, coefficients: Tensor, fixed: Tensor) -> Tensor:
    """∂/∂β Σ f tr(fixed · features' Cov features), ``(D, p)``: the third cumulants, by autograd
    through the exact covariance.
    """
    sample, slope = objective.sample, torch.zeros_like(coefficients)
    for some, part in sample.tiles(sample.counts.shape[-1] ** 2 * NODES[1]):
        weights = fixed[some].unsqueeze(1)
        if part.features is not None:
            weights = part.features @ weights @ part.features.mT
        with torch.enable_grad():
            beta = coefficients[some].detach().requires_grad_()
            covariance = exact.covariance(part.log_weights(beta), part.group_sizes, part.draws)
            trace = (part.frequencies * (weights * covariance).sum((-1, -2))).sum()
            slope[some] += torch.autograd.grad(trace, beta)[0]
    return sample.summed(slope)[0]


def penalty_of(name: str | None, ridge: float) -> Penalty | None:
    return None if name is None else Ridge(ridge) if name == "ridge" else Firth()
