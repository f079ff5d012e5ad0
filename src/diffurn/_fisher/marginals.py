"""Each group on its own: marginal probabilities, and sums over them whose cost does not grow with
the population.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn._fisher.moments import log_mass, log_mass_anywhere
from diffurn._fisher.quadrature import NODES, Quadrature, half_width
from diffurn._numerics.batching import in_chunks
from diffurn._numerics.binomial import binomial_log_pmf, binomial_variance

# Enough points that a stride above one starts where the marginal is smooth to rounding (variance ≥
# 18: |φ(π)| ≤ e^-36).
_GRID = 128


def other_sizes(group_sizes: Tensor) -> Tensor:
    """Row j holds the group sizes with group j emptied: shape (..., c, c)."""
    own = torch.eye(group_sizes.shape[-1], dtype=torch.bool, device=group_sizes.device)
    return torch.where(own, 0.0, group_sizes.unsqueeze(-2))


def marginal_log_prob(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, x: Tensor) -> Tensor:
    """log P(X_j = x_j) = log Bin(x_j; m_j, p_j) + log P(S without j = n - x_j) - log P(S = n) for
    every j, in O(c²).

    The sum without group j is re-tilted to the value asked for, so far tails keep their relative
    accuracy.
    """
    others = log_mass_anywhere(
        log_odds.unsqueeze(-2), other_sizes(group_sizes), draws.unsqueeze(-1) - x
    )
    return (
        binomial_log_pmf(x, group_sizes, log_odds)
        + others
        - log_mass(log_odds, group_sizes, draws).unsqueeze(-1)
    )


def marginal_tail(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, group: int, counts: Tensor
) -> Tensor:
    """P(X_group ≥ count) for the consecutive counts ``(K,)`` up to the group's size: shape ``(...,
    K)``.
    """
    others = torch.arange(log_odds.shape[-1], device=log_odds.device) != group
    size, odds = group_sizes[..., group].unsqueeze(-1), log_odds[..., group].unsqueeze(-1)
    rest = log_mass_anywhere(
        log_odds.unsqueeze(-2), (group_sizes * others).unsqueeze(-2), draws.unsqueeze(-1) - counts
    )
    log_prob = (
        binomial_log_pmf(counts, size, odds)
        + rest
        - log_mass(log_odds, group_sizes, draws).unsqueeze(-1)
    )
    return log_prob.exp().flip(-1).cumsum(-1).flip(-1)


def _typical_counts(
    size: Tensor, others: Tensor, draws: Tensor, centre: Tensor, reach: Tensor
) -> tuple[Tensor, Tensor]:
    """Evenly spaced counts ``(..., G)`` over the possible part of centre ± reach, and which of them
    are valid.
    """
    lowest = torch.maximum(centre - reach, draws - others).clamp(min=0)
    highest = torch.minimum(torch.minimum(centre + reach, size), draws)
    stride = torch.ceil((highest - lowest + 1) / _GRID).clamp(min=1)
    steps = torch.arange(_GRID, dtype=size.dtype, device=size.device)
    counts = lowest.unsqueeze(-1) + stride.unsqueeze(-1) * steps
    return torch.minimum(counts, highest.unsqueeze(-1)), counts <= highest.unsqueeze(-1)


def _expected_binomial_log_pmf(
    log_odds: Tensor, other_sizes: Tensor, draws: Tensor, own_log_odds: Tensor, own_size: Tensor
) -> Tensor:
    """E log Bin(X; m, p) of one group among others, under the conditioned law."""
    centre = torch.round(own_size * torch.sigmoid(own_log_odds.detach()))
    own_variance, other_variance = (
        binomial_variance(*of)
        for of in ((own_size, own_log_odds.detach()), (other_sizes, log_odds.detach()))
    )
    reach = (
        torch.floor(torch.minimum(half_width(own_variance), half_width(other_variance.sum(-1)))) + 2
    )
    counts, valid = _typical_counts(own_size, other_sizes.sum(-1), draws, centre, reach)
    log_pmf = binomial_log_pmf(counts, own_size.unsqueeze(-1), own_log_odds.unsqueeze(-1))
    left_at_centre = draws - centre
    others = Quadrature.build(log_odds, other_sizes, left_at_centre, span=2)
    # A smooth law summed with a stride: the trapezoid rule once more; normalising makes the stride
    # itself drop out.
    left = draws.unsqueeze(-1) - counts
    mass = torch.where(
        valid, torch.exp(log_pmf) * others.mass_at(left - left_at_centre.unsqueeze(-1)), 0.0
    )
    return (mass * log_pmf).sum(-1) / mass.sum(-1)


def entropy(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """-E log P(X) = log P(S = n) - Σ_j E log Bin(X_j; m_j, p_j), in O(c²) whatever the group
    sizes.
    """
    others = log_odds.unsqueeze(-2), other_sizes(group_sizes), draws.unsqueeze(-1)
    work = max(_GRID, log_odds.shape[-1]) * NODES[2]
    expected = in_chunks(
        _expected_binomial_log_pmf,
        *others,
        log_odds,
        group_sizes,
        events=(1, 1, 0, 0, 0),
        work=work,
    )
    return log_mass(log_odds, group_sizes, draws) - expected.sum(-1)
