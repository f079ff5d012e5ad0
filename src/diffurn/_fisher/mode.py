"""The most probable counts."""

from __future__ import annotations

import torch
from torch import Tensor

# Enough bisections to reach the spacing of float64, even if log-weights are hundreds apart.
_BISECTIONS = 80
# At log-odds beyond ±45 the count of any group below 2^53 balls is 0 or its size.
_LOG_ODDS_OF_ALL = 45.0
# Two factors tie if their logarithms differ by less than this, relative to the terms.
_TIE = 4e-16


def mode(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    r"""The argmax of :math:`\prod_j \binom{m_j}{x_j} ω_j^{x_j}` over counts with sum n.

    The k-th ball of group j multiplies the probability by (m_j - k + 1)/k · ω_j, which falls in k.
    So the mode takes the n largest of these factors. Group j has
    :math:`\lfloor (m_j + 1) σ(λ + \log ω_j) \rfloor` factors of at least e^-λ, and λ is found by
    bisection. The balls left at the threshold are ties, and go to the earlier groups.

    Example:
        >>> sizes = torch.tensor([3.0, 3.0, 3.0], dtype=torch.float64)
        >>> mode(torch.zeros(3, dtype=torch.float64), sizes, torch.tensor(4.0, dtype=torch.float64))
        tensor([2., 1., 1.], dtype=torch.float64)
    """
    drawable = (group_sizes > 0) & (log_weights > -torch.inf)
    sizes = torch.where(drawable, group_sizes, 0.0)
    log_weights = torch.where(drawable, log_weights, 0.0)
    low = -log_weights.amax(-1) - _LOG_ODDS_OF_ALL
    high = -log_weights.amin(-1) + _LOG_ODDS_OF_ALL
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        fits = _balls_above(middle, log_weights, sizes).sum(-1) <= draws
        low, high = torch.where(fits, middle, low), torch.where(fits, high, middle)
    # Factors that agree up to rounding are ties, on either side of the threshold.
    rounding = _TIE * (1 + low.abs() + log_weights.abs().amax(-1))
    counts = _balls_above(low - rounding, log_weights, sizes)
    with_ties = _balls_above(high + rounding, log_weights, sizes)
    tied = with_ties > counts
    left = (draws - counts.sum(-1)).unsqueeze(-1)
    return counts + (tied & (tied.cumsum(-1) <= left)).to(counts.dtype)


def _balls_above(threshold: Tensor, log_weights: Tensor, sizes: Tensor) -> Tensor:
    """The number of balls of each group with a factor of at least e^-threshold."""
    log_odds = threshold.unsqueeze(-1) + log_weights
    # If fewer balls are left out than drawn, those are counted: the smaller number has the smaller
    # rounding error.
    drawn = torch.floor((sizes + 1) * torch.sigmoid(log_odds))
    left_out = torch.ceil((sizes + 1) * torch.sigmoid(-log_odds)) - 1
    return torch.where(log_odds < 0, drawn, sizes - left_out).clamp(min=0).minimum(sizes)
