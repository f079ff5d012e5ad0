"""P(X ≤ x) and P(X > x) of one group's count under Wallenius' law: a few dozen terms, however many
there are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn._fisher.tails import SHORT, gram_rule, log_complement
from diffurn._numerics.tracing import can_check
from diffurn._wallenius.moments import marginal_log_prob, with_a_ball_left
from diffurn._wallenius.quadrature import arrived, root_of_decreasing

# What lies further out is left away, and by how much the typical variance may be too small.
_NATS = 40.0
_MARGIN = 1.3


def log_tails(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, x: Tensor
) -> tuple[Tensor, Tensor]:
    """log P(X_j ≤ x_j) and log P(X_j > x_j) for integers x_j on the support below its highest
    point: shapes (..., c).

    The terms are summed away from the bulk, each of them or, where they are many, at the nodes of
    Gram's rule (see `tails`).
    """
    group_sizes, _ = with_a_ball_left(group_sizes, draws)
    n, total = draws.unsqueeze(-1), group_sizes.sum(-1, keepdim=True)
    lowest, highest = (n - total + group_sizes).clamp(min=0), torch.minimum(group_sizes, n)
    typical, variance = _typical(log_weights, group_sizes, draws)
    upward = x + 0.5 >= typical
    start = torch.where(upward, x + 1, x).clamp(lowest, highest)
    direction, available = (
        torch.where(upward, 1.0, -1.0).to(x.dtype),
        torch.where(upward, highest - start, start - lowest),
    )

    def log_prob(steps: Tensor) -> Tensor:  # (S, ..., c)
        there = start + direction * torch.minimum(steps, available)
        return marginal_log_prob(log_weights, group_sizes, draws, there)

    with torch.no_grad():
        first, second = log_prob(torch.stack([torch.zeros_like(start), torch.ones_like(start)]))
        decay = (first - second).clamp(min=0)
        reach = (
            2 * _NATS / (decay + torch.sqrt(decay.square() + 2 * _NATS / variance))
        )  # d² / 2v + decay d = nats
        steps, weights = _rule(torch.minimum(torch.floor(reach) + 2, available) + 1)
    summed = torch.logsumexp(log_prob(steps) + torch.log(weights), 0).clamp(max=0)
    rest = log_complement(torch.where((x >= lowest) & (x < highest), summed, -1.0))
    return torch.where(upward, rest, summed), torch.where(upward, summed, rest)


def _typical(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """The counts, and about their variances, at the time by which n draws are expected."""
    log_weights = log_weights.detach()
    some = group_sizes > 0
    left, slowest = group_sizes.sum(-1) - draws, torch.where(some, log_weights, torch.inf).amin(-1)

    def too_many_left(u: Tensor) -> Tensor:
        waiting = torch.exp(-arrived(log_weights.unsqueeze(-2) + u.unsqueeze(-1)))
        return (group_sizes.unsqueeze(-2) * waiting).sum(-1) - left.unsqueeze(-1)

    # By time s at most s Σωm balls have arrived, and at most N e^-ωs are left of those that are
    # slowest or faster.
    low = torch.log(draws.clamp(min=0.5)) - torch.logsumexp(
        torch.where(some, log_weights + group_sizes.log(), -torch.inf), -1
    )
    high = torch.log(torch.log(group_sizes.sum(-1) / left)) - slowest
    tolerance = (0.01 / (1 + draws)).clamp(
        min=1e-12
    )  # a hundredth of a ball, unless rounding is more
    u = root_of_decreasing(too_many_left, low - 1, high + 1, tolerance)
    y = arrived(log_weights + u.unsqueeze(-1))
    drawn, own = -torch.expm1(-y) * group_sizes, -torch.expm1(-y) * torch.exp(-y) * group_sizes
    others = own.sum(-1, keepdim=True) - own
    return drawn, _MARGIN * own * others / (own + others).clamp(min=1e-300) + 1


def _rule(length: Tensor) -> tuple[Tensor, Tensor]:
    """Steps and weights ``(S, ...)`` for a sum over `length` terms; S is as small as can be, up to
    SHORT.
    """
    long = length > SHORT
    nodes, weights = gram_rule(length.clamp(min=SHORT + 1))
    number = (
        int(torch.where(long, nodes.shape[-1], length).nan_to_num(1.0).max())
        if can_check() and length.numel()
        else SHORT
    )
    each = torch.arange(number, dtype=length.dtype, device=length.device).expand(
        *length.shape, number
    )
    nodes, weights = (
        torch.nn.functional.pad(values, (0, number - values.shape[-1]))
        for values in (nodes, weights)
    )  # or cut
    long, counted = long.unsqueeze(-1), (each < length.unsqueeze(-1)).to(length.dtype)
    return torch.where(long, nodes, each).movedim(-1, 0), torch.where(
        long, weights, counted
    ).movedim(-1, 0)
