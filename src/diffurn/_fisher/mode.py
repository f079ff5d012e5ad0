"""The most probable counts."""

from __future__ import annotations

import torch
from torch import Tensor

# Halves the bracket down to the spacing of float64 even for log-weights hundreds apart.
_BISECTIONS = 80
# Beyond odds of e^±45 the rounded count of any group below 2^53 balls is 0 or all of it.
_LOG_ODDS_OF_ALL = 45.0
_TIE = 4e-16


def mode(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    r"""argmax of :math:`\prod_j \binom{m_j}{x_j} ω_j^{x_j}` over counts with sum n; a tied ball
    goes to the earlier group.

    The k-th ball of group j multiplies the probability by (m_j - k + 1)/k · ω_j, which falls in k:
    the mode takes the n largest factors. Those of at least e^-λ are :math:`\lfloor (m_j + 1) σ(λ +
    \log ω_j) \rfloor` in number, so λ is found by bisection, and the few balls left at the
    threshold are ties.

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
    # Factors that agree to rounding are ties, whichever side of the threshold rounding has put
    # them.
    rounding = _TIE * (1 + low.abs() + log_weights.abs().amax(-1))
    counts, with_ties = (
        _balls_above(low - rounding, log_weights, sizes),
        _balls_above(high + rounding, log_weights, sizes),
    )
    tied = with_ties > counts
    left = (draws - counts.sum(-1)).unsqueeze(-1)
    return counts + (tied & (tied.cumsum(-1) <= left)).to(counts.dtype)


def _balls_above(threshold: Tensor, log_weights: Tensor, sizes: Tensor) -> Tensor:
    """How many balls of each group multiply the probability by at least e^-threshold."""
    log_odds = threshold.unsqueeze(-1) + log_weights
    # Counting the balls left out instead, where they are fewer, keeps the rounding error below one
    # ball's worth.
    drawn = torch.floor((sizes + 1) * torch.sigmoid(log_odds))
    left_out = torch.ceil((sizes + 1) * torch.sigmoid(-log_odds)) - 1
    return torch.where(log_odds < 0, drawn, sizes - left_out).clamp(min=0).minimum(sizes)
