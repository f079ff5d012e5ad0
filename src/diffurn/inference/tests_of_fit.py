"""Does the preference matter, and does the model hold? Likelihood ratio and Pearson's statistic."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from diffurn._fisher.nodes import NODES
from diffurn.inference.intervals import chi_squared_tail
from diffurn.inference.likelihood import Law
from diffurn.inference.sample import Sample


class LikelihoodRatio(NamedTuple):
    """A test by a statistic that is about χ² distributed; every tensor has the shape of the batch
    of data sets.
    """

    statistic: Tensor
    degrees_of_freedom: Tensor
    p_value: Tensor


class GoodnessOfFit(NamedTuple):
    """Pearson's goodness of fit; p-value and dispersion (statistic / degrees of freedom) are nan
    for a saturated model.
    """

    statistic: Tensor
    degrees_of_freedom: Tensor
    p_value: Tensor
    dispersion: Tensor


def likelihood_ratio(
    log_likelihood: Tensor, smaller: Tensor, degrees_of_freedom: Tensor
) -> LikelihoodRatio:
    statistic = (2 * (log_likelihood - smaller)).clamp(min=0)
    return LikelihoodRatio(
        statistic, degrees_of_freedom, chi_squared_tail(statistic, degrees_of_freedom)
    )


def expected_surplus(law: Law, sample: Sample, coefficients: Tensor) -> Tensor:
    """Σ f (E[X] - x) over the rows, ``(D, c)``; rows without a choice add nothing, so a limit law
    may leave them out.
    """
    surplus = torch.zeros_like(sample.counts[:, 0])
    for some, part in sample.tiles(sample.counts.shape[-1] * NODES[1]):
        mean = law.mean(part.log_weights(coefficients[some]), part.group_sizes, part.draws)
        weight = torch.where(part.undetermined, part.frequencies, 0.0)
        surplus[some] += (weight.unsqueeze(-2) @ (mean - part.counts)).squeeze(-2)
    return sample.summed(surplus)[0]


def pearson(law: Law, sample: Sample, coefficients: Tensor, parameters: Tensor) -> GoodnessOfFit:
    """Σ f (x - μ)ᵀ Cov⁻ (x - μ), on Σ f rank(Cov) - parameters degrees of freedom."""
    statistic, rank = torch.zeros_like(sample.constant), torch.zeros_like(sample.constant)
    for some, part in sample.tiles(sample.counts.shape[-1] * NODES[1]):
        urns = part.log_weights(coefficients[some]), part.group_sizes, part.draws
        mean, covariance = law.mean(*urns), law.covariance(*urns)
        competing = part.competing
        deviation = torch.where(competing, part.counts - mean, 0.0)
        # Within the competing groups the covariance is singular only along ones; elsewhere it is
        # zero.
        ones = competing.double()
        gauge = ones.unsqueeze(-1) * ones.unsqueeze(-2) / ones.sum(-1).clamp(min=1)[..., None, None]
        scale = covariance.diagonal(dim1=-2, dim2=-1).mean(-1).clamp(min=1e-300)[..., None, None]
        regular = covariance / scale + gauge + torch.diag_embed(1 - ones)
        solved = torch.linalg.solve_ex(regular, deviation.unsqueeze(-1))[0].squeeze(
            -1
        ) / scale.squeeze(-1)
        statistic[some] += (part.frequencies * (deviation * solved).sum(-1)).sum(-1)
        rank[some] += (part.frequencies * (ones.sum(-1) - 1).clamp(min=0)).sum(-1)
    statistic, rank = sample.summed(statistic, rank)
    degrees = (rank - parameters).clamp(min=0).to(torch.int64)
    dispersion = torch.where(degrees > 0, statistic / degrees.clamp(min=1), torch.nan)
    return GoodnessOfFit(statistic, degrees, chi_squared_tail(statistic, degrees), dispersion)
