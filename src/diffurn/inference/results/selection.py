"""Ecologists' indices of preference: selection ratios and Manly's α, with standard errors."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from diffurn.inference.solving.rowwise import Clusters, variance_totals
from diffurn.inference.solving.sample import Sample
from diffurn.inference.solving.solution import Solution


class Selection(NamedTuple):
    """Selection ratios and Manly's α of the groups; all of shape ``(..., c)``.

    Attributes:
        ratio: balls drawn / balls expected if all groups were alike: Σ x / Σ (n m / Σm).
        ratio_error: its standard error: by the variance of the fitted urns, with
            ``covariance="scaled"`` times √dispersion; with robust standard errors by the spread
            among rows or clusters (Manly et al. 2002, designs II and III).
        alpha: Manly's α = ω / Σ ω, the share of each group in draws from equal numbers.
        alpha_error: its standard error, by the delta method from the covariance of log ω. nan for
            groups whose ω is infinite or not determined.
    """

    ratio: Tensor
    ratio_error: Tensor
    alpha: Tensor
    alpha_error: Tensor


@torch.no_grad()
def selection_of(
    solution: Solution,
    sample: Sample,
    coefficients: Tensor,
    covariance: Tensor,
    clusters: Clusters | None,
) -> Selection:
    """From log ω and its covariance, ``(D, c)`` and ``(D, c, c)``."""
    drawn, alike = sample.totals[0], sample.central_expected()
    ratio = drawn / alike
    variance = _ratio_variance(solution, sample, ratio, clusters) / alike.square()
    # The largest ω is one, so that no exponential overflows.
    usable = ~coefficients.isnan()
    largest = torch.where(usable, coefficients, -torch.inf).amax(-1, keepdim=True)
    weight = torch.where(coefficients == largest, 1.0, (coefficients - largest).exp())
    weight = torch.where(usable, weight, torch.nan)
    alpha = weight / weight.nansum(-1, keepdim=True)
    finite = coefficients.isfinite()
    share = torch.where(finite, alpha, 0.0)
    jacobian = torch.diag_embed(share) - share.unsqueeze(-1) * share.unsqueeze(-2)
    both = finite.unsqueeze(-1) & finite.unsqueeze(-2)
    spread = jacobian @ torch.where(both, covariance, 0.0) @ jacobian.mT
    error = spread.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
    return Selection(
        ratio, variance.clamp(min=0).sqrt(), alpha, torch.where(finite, error, torch.nan)
    )


def _ratio_variance(
    solution: Solution, sample: Sample, ratio: Tensor, clusters: Clusters | None
) -> Tensor:
    """The variance of the balls drawn of each group, given those expected, ``(D, c)``."""
    errors = solution.errors
    if errors.kind in ("model", "scaled"):
        return variance_totals(solution, sample) * errors.dispersion.unsqueeze(-1)
    share = sample.draws / sample.group_sizes.sum(-1).clamp(min=1)
    surplus = sample.counts - ratio.unsqueeze(-2) * sample.group_sizes * share.unsqueeze(-1)
    weight = sample.frequencies.unsqueeze(-1)
    if clusters is None:
        (total,) = sample.summed((weight * surplus.square()).sum(1))
    else:
        shape = len(surplus), clusters.total, surplus.shape[-1]
        sums = surplus.new_zeros(shape).index_add(1, clusters.numbers, weight * surplus)
        (sums,) = sample.summed(sums)
        total = sums.square().sum(1)
    number = errors.number
    factor = number / (number - 1) if errors.kind != "HC0" else torch.ones_like(number)
    return total * factor.unsqueeze(-1)
