"""The likelihood of subsets that are drawn one after another, with log-weights linear in β."""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn._wallenius.probabilities import _log_prob, _State, saturation
from diffurn._wallenius.quadrature import CLOSE_AGREEMENT, TimeGrid, integrate


def log_prob_and_information(
    log_weights: Tensor, group_sizes: Tensor, counts: Tensor, vectors: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """log P(x), its gradient in β and minus its Hessian, where log ω = Vβ for V ``(..., c, p)``.

    No c × c matrix is formed. A common factor of the weights cancels; the integral is accurate if
    the largest is one.

    Returns:
        Tensors of shape ``(...)``, ``(..., p)`` and ``(..., p, p)``.
    """
    operands = log_weights, group_sizes, counts, vectors
    flat = integrate(
        _grid,
        _value_and_derivatives,
        *operands,
        events=(1, 1, 1, 2),
        work=log_weights.shape[-1],
        agreement=CLOSE_AGREEMENT,
    )
    stacked = flat[..., 1:].unflatten(-1, (-1, vectors.shape[-1]))
    return flat[..., 0], stacked[..., 0, :], stacked[..., 1:, :]


def _grid(log_weights: Tensor, group_sizes: Tensor, counts: Tensor, vectors: Tensor) -> TimeGrid:
    return _State.of(log_weights, group_sizes, counts).grid()


def _value_and_derivatives(
    grid: TimeGrid,
    number: int,
    log_weights: Tensor,
    group_sizes: Tensor,
    counts: Tensor,
    vectors: Tensor,
) -> tuple[Tensor, Tensor]:
    """The results, flattened to (..., 1 + (p + 1) p).

    Let a_j = x_j b(y_j) - (m_j - x_j) y_j be the derivative of the log-integrand in log ω_j, and E
    the average over the normalised integrand. Then the score is E a_j + w_j, and the second
    derivatives are Cov(a_i, a_j) + δ_ij (E ∂a_j + w_j) - w_i w_j, where w = ω (m - x) / D.
    """
    state = _State.of(log_weights, group_sizes, counts)
    u = grid.nodes(number)
    share = torch.softmax(state.log_density(u, grid.peak), -1).unsqueeze(-1)
    y, x, left = state.times(u), counts.unsqueeze(-2), (group_sizes - counts).unsqueeze(-2)
    b = saturation(y)
    waiting = torch.where(left > 0, left * y, 0.0)
    a, w = x * b - waiting, state.rate_shares
    average = (share * a).sum(-2)
    own = (share * (x * b * (1 - y - b) - waiting)).sum(-2) + w
    score, w = ((v.unsqueeze(-2) @ vectors) for v in (average + w, w))  # (..., 1, p)
    spread = (a - average.unsqueeze(-2)) @ vectors
    hessian = (share * spread).mT @ spread - w.mT @ w
    hessian = hessian + vectors.mT @ (own.unsqueeze(-1) * vectors)
    log_prob, disagreement = _log_prob(grid, number, log_weights, group_sizes, counts)
    certain = state.certain[..., None, None]
    stacked = torch.where(certain, 0.0, torch.cat([score, -hessian], -2))
    flat = torch.cat([log_prob.unsqueeze(-1), stacked.flatten(-2)], -1)
    return flat, disagreement
