"""Each group on its own: marginal probabilities, and sums over them whose cost does not grow with the population."""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn.exact.binomial import binomial_log_pmf
from diffurn.exact.chunks import in_chunks
from diffurn.exact.law import log_mass, log_mass_anywhere
from diffurn.exact.quadrature import NODES, Quadrature, half_width, sum_of_others

# Enough points that a stride above one starts where the marginal is smooth to rounding (variance ≥ 18: |φ(π)| ≤ e^-36).
_GRID = 128


def _other_sizes(group_sizes: Tensor) -> Tensor:
    """Row j holds the group sizes with group j emptied: shape (..., c, c)."""
    own = torch.eye(group_sizes.shape[-1], dtype=torch.bool, device=group_sizes.device)
    return torch.where(own, 0.0, group_sizes.unsqueeze(-2))


def marginal_log_prob(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, x: Tensor) -> Tensor:
    """log P(X_j = x_j) = log Bin(x_j; m_j, p_j) + log P(S without j = n - x_j) - log P(S = n) for every j, in O(c²).

    The sum without group j is re-tilted to the value asked for, so far tails keep their relative accuracy.
    """
    others = log_mass_anywhere(log_odds.unsqueeze(-2), _other_sizes(group_sizes), draws.unsqueeze(-1) - x)
    return binomial_log_pmf(x, group_sizes, log_odds) + others - log_mass(log_odds, group_sizes, draws).unsqueeze(-1)


def _typical_counts(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Evenly spaced counts (..., c, G) over all that group j is likely to contribute, their validity, and the centre (..., c)."""
    p, q = torch.sigmoid(log_odds), torch.sigmoid(-log_odds)
    variance = group_sizes * p * q
    centre = torch.round(group_sizes * p)
    other_variance, other_balls = (sum_of_others(values.unsqueeze(-1)).squeeze(-1) for values in (variance, group_sizes))
    reach = torch.floor(torch.minimum(half_width(variance), half_width(other_variance))) + 2
    n = draws.unsqueeze(-1)
    lowest = torch.maximum(centre - reach, n - other_balls).clamp(min=0)
    highest = torch.minimum(torch.minimum(centre + reach, group_sizes), n)
    stride = torch.ceil((highest - lowest + 1) / _GRID).clamp(min=1)
    steps = torch.arange(_GRID, dtype=log_odds.dtype, device=log_odds.device)
    counts = lowest.unsqueeze(-1) + stride.unsqueeze(-1) * steps
    return torch.minimum(counts, highest.unsqueeze(-1)), counts <= highest.unsqueeze(-1), centre


def _expected_binomial_log_pmf(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """Σ_j E[log Bin(X_j; m_j, p_j)] under the conditioned law."""
    counts, valid, centre = _typical_counts(log_odds.detach(), group_sizes, draws)
    others = Quadrature.build(log_odds.unsqueeze(-2), _other_sizes(group_sizes), draws.unsqueeze(-1) - centre, span=2)
    log_pmf = binomial_log_pmf(counts, group_sizes.unsqueeze(-1), log_odds.unsqueeze(-1))
    # A smooth law summed with a stride: the trapezoid rule once more; normalising makes the stride itself drop out.
    mass = torch.where(valid, torch.exp(log_pmf) * others.mass_at(centre.unsqueeze(-1) - counts), 0.0)
    return ((mass * log_pmf).sum(-1) / mass.sum(-1)).sum(-1)


def entropy(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """-E log P(X) = log P(S = n) - Σ_j E log Bin(X_j; m_j, p_j), in O(c²) whatever the group sizes."""
    work = log_odds.shape[-1] * max(_GRID, log_odds.shape[-1]) * NODES[2]
    expected = in_chunks(_expected_binomial_log_pmf, log_odds, group_sizes, draws, events=(1, 1, 0), work=work)
    return log_mass(log_odds, group_sizes, draws) - expected
