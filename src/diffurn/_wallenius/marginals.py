"""Marginal probabilities and tails of Wallenius' law."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from diffurn._fisher.accuracy import NODES
from diffurn._fisher.marginals import SHORT, gram_rule, log_complement, other_sizes
from diffurn._fisher.nodes import half_width
from diffurn._numerics.binomial import binomial_log_pmf
from diffurn._numerics.tracing import can_check
from diffurn._wallenius import probabilities
from diffurn._wallenius.moments import Moment, bracket, with_a_ball_left
from diffurn._wallenius.probabilities import arrived, log_odds_of_arrival, saturation
from diffurn._wallenius.quadrature import (
    TimeGrid,
    integrate,
    log_trapezoid,
    root_of_decreasing,
    time_grid,
)

# Terms of a tail this many nats below the first are left out.
_NATS = 40.0
# A factor on the typical variance, which may be too small.
_MARGIN = 1.3


@dataclass(frozen=True)
class _Group:
    """The event that x balls of one group are drawn, and n - x balls of the others."""

    log_weights: Tensor  # of all groups, (..., c)
    others: Tensor  # the sizes of the others, 0 for the group itself, (..., c)
    others_drawn: Tensor  # n - x, (...)
    own_log_weight: Tensor  # (...)
    own_size: Tensor  # (...)
    own_drawn: Tensor  # x, (...)

    def _at(self, u: Tensor) -> tuple[Moment, Tensor, Tensor, Tensor]:
        own_log_time = self.own_log_weight.unsqueeze(-1) + u
        drawn, left = self.own_drawn.unsqueeze(-1), (self.own_size - self.own_drawn).unsqueeze(-1)
        others = Moment.at(u, self.log_weights, self.others, self.others_drawn)
        return others, own_log_time, drawn, left

    def log_density(self, u: Tensor) -> Tensor:
        """The logarithm of P(X_i = x, S_s = n) E[D s | X_i = x, S_s = n]."""
        others, own_log_time, drawn, left = self._at(u)
        own = binomial_log_pmf(drawn, drawn + left, log_odds_of_arrival(own_log_time))
        log_mass = own + others.log_mass()
        return log_mass + torch.log(others.rate() + left * arrived(own_log_time))

    def slope(self, u: Tensor) -> Tensor:
        others, own_log_time, drawn, left = self._at(u)
        y = arrived(own_log_time)
        return others.slope() + drawn * saturation(y) - left * y

    def grid(self) -> TimeGrid:
        log_weights = torch.cat([self.log_weights, self.own_log_weight.unsqueeze(-1)], -1)
        group_sizes = torch.cat([self.others, self.own_size.unsqueeze(-1)], -1)
        draws = self.others_drawn + self.own_drawn
        low, high = bracket(log_weights, group_sizes, draws)
        return time_grid(self.log_density, self.slope, low, high, draws)


def _marginal(grid: TimeGrid, number: int, *group: Tensor) -> tuple[Tensor, Tensor]:
    return log_trapezoid(_Group(*group).log_density(grid.nodes(number)), grid.length)


def marginal_log_prob(log_weights: Tensor, group_sizes: Tensor, draws: Tensor, x: Tensor) -> Tensor:
    """log P(X_j = x_j) of every group, ``(..., c)``, for counts neither impossible nor certain."""
    group_sizes, _ = with_a_ball_left(group_sizes, draws)
    if log_weights.shape[-1] == 2:  # one count determines the other
        own = torch.eye(2, dtype=torch.bool, device=x.device)
        counts = torch.where(own, x.unsqueeze(-1), (draws.unsqueeze(-1) - x).unsqueeze(-1))
        return probabilities.log_prob(log_weights.unsqueeze(-2), group_sizes.unsqueeze(-2), counts)
    others = log_weights.unsqueeze(-2), other_sizes(group_sizes), draws.unsqueeze(-1) - x
    return _integrated(*others, log_weights, group_sizes, x)


def tail(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, group: int, largest: int
) -> Tensor:
    """P(X_group ≥ i) for i = 1, …, largest: shape (..., largest)."""
    counts = torch.arange(1, largest + 1, dtype=draws.dtype, device=draws.device)
    n, size = draws.unsqueeze(-1), group_sizes[..., group, None]
    lowest = (n - group_sizes.sum(-1, keepdim=True) + size).clamp(min=0)
    highest = torch.minimum(size, n)
    possible = (counts >= lowest) & (counts <= highest)
    padded, _ = with_a_ball_left(group_sizes, draws)
    own = torch.arange(group_sizes.shape[-1], device=draws.device) == group
    others = log_weights.unsqueeze(-2), torch.where(own, 0.0, padded).unsqueeze(-2)
    x = torch.where(possible, counts, lowest)
    own_log_weight, own_size = log_weights[..., group, None], padded[..., group, None]
    log_prob = _integrated(*others, n - x, own_log_weight, own_size, x)
    log_prob = torch.where(lowest == highest, 0.0, log_prob)  # one count is certain
    mass = torch.where(possible, log_prob.exp(), 0.0).flip(-1).cumsum(-1).flip(-1)
    return torch.where(counts <= lowest, 1.0, mass)


def _integrated(*operands: Tensor) -> Tensor:
    """log P(X_j = x_j), from the fields of `_Group`."""
    work = NODES[1] * operands[0].shape[-1]
    events = (1, 1, 0, 0, 0, 0)
    return integrate(
        lambda *group: _Group(*group).grid(), _marginal, *operands, events=events, work=work
    )


def log_tails(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, x: Tensor
) -> tuple[Tensor, Tensor]:
    """log P(X_j ≤ x_j) and log P(X_j > x_j), each ``(..., c)``.

    The x_j are integers on the support, below its highest point. Terms are summed away from the
    bulk: all of them if they are few, otherwise the nodes of the Gauss rule (see `gram_rule`).
    """
    group_sizes, _ = with_a_ball_left(group_sizes, draws)
    n, total = draws.unsqueeze(-1), group_sizes.sum(-1, keepdim=True)
    lowest, highest = (n - total + group_sizes).clamp(min=0), torch.minimum(group_sizes, n)
    typical, variance = _typical(log_weights, group_sizes, draws)
    upward = x + 0.5 >= typical
    start = torch.where(upward, x + 1, x).clamp(lowest, highest)
    direction = torch.where(upward, 1.0, -1.0).to(x.dtype)
    available = torch.where(upward, highest - start, start - lowest)

    def log_prob(steps: Tensor) -> Tensor:  # (S, ..., c)
        there = start + direction * torch.minimum(steps, available)
        return marginal_log_prob(log_weights, group_sizes, draws, there)

    with torch.no_grad():
        first, second = log_prob(torch.stack([torch.zeros_like(start), torch.ones_like(start)]))
        decay = (first - second).clamp(min=0)
        # Log-concave terms go on falling at least as fast as at first. If they begin in the bulk,
        # Bernstein's bound holds. A bound for normal tails would be too short.
        reach = torch.minimum(_NATS / decay, half_width(variance, _NATS))
        steps, weights = _rule(torch.minimum(torch.floor(reach) + 2, available) + 1)
    # Nodes between integers lose digits when they are added to counts of billions. The terms are
    # corrected for the lost part of the step by their slope.
    taken = torch.where(upward, 1.0, -1.0) * ((start + direction * steps) - start)
    terms = log_prob(steps)
    terms = terms + (steps - taken) * _slopes(terms.detach(), steps)
    summed = torch.logsumexp(terms + torch.log(weights), 0).clamp(max=0)
    rest = log_complement(torch.where((x >= lowest) & (x < highest), summed, -1.0))
    return torch.where(upward, rest, summed), torch.where(upward, summed, rest)


def _typical(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Expected counts, and about their variances, at the time by which n draws are expected."""
    log_weights = log_weights.detach()
    some = group_sizes > 0
    left, slowest = group_sizes.sum(-1) - draws, torch.where(some, log_weights, torch.inf).amin(-1)

    def too_many_left(u: Tensor) -> Tensor:
        waiting = torch.exp(-arrived(log_weights.unsqueeze(-2) + u.unsqueeze(-1)))
        return (group_sizes.unsqueeze(-2) * waiting).sum(-1) - left.unsqueeze(-1)

    # In expectation, at most s Σωm balls have arrived by time s, and at most N e^-ωs are left,
    # where ω is the smallest weight.
    log_rates = torch.where(some, log_weights + group_sizes.log(), -torch.inf)
    low = torch.log(draws.clamp(min=0.5)) - torch.logsumexp(log_rates, -1)
    high = torch.log(torch.log(group_sizes.sum(-1) / left)) - slowest
    # A hundredth of a ball, but no less than the rounding error.
    tolerance = (0.01 / (1 + draws)).clamp(min=1e-12)
    u = root_of_decreasing(too_many_left, low - 1, high + 1, tolerance)
    y = arrived(log_weights + u.unsqueeze(-1))
    drawn, own = -torch.expm1(-y) * group_sizes, -torch.expm1(-y) * torch.exp(-y) * group_sizes
    others = own.sum(-1, keepdim=True) - own
    return drawn, _MARGIN * own * others / (own + others).clamp(min=1e-300) + 1


def _slopes(values: Tensor, steps: Tensor) -> Tensor:
    """Approximate slopes of values ``(S, ...)`` in the steps, by parabolas through three nodes."""
    if len(steps) < 3:
        return torch.zeros_like(values)
    apart = steps.diff(dim=0)
    # Rows with fewer nodes than others are padded with steps that do not grow, and have no slope.
    secants = torch.where(apart > 0, values.diff(dim=0) / apart.clamp(min=1e-300), 0.0)
    before, after = apart[:-1], apart[1:]
    inner = (secants[:-1] * after + secants[1:] * before) / (before + after).clamp(min=1e-300)
    inner = torch.where(after > 0, inner, secants[:-1])
    slopes = torch.cat([secants[:1], inner, secants[-1:]])
    # Slopes are infinite or NaN beyond the last step, where probabilities are zero.
    return torch.where(slopes.abs() < torch.inf, slopes, 0.0)


def _rule(length: Tensor) -> tuple[Tensor, Tensor]:
    """Steps and weights ``(S, ...)`` for sums over `length` terms.

    S is the smallest number that is enough for all rows, at most SHORT.
    """
    long = length > SHORT
    nodes, weights = gram_rule(length.clamp(min=SHORT + 1))
    number = SHORT
    if can_check() and length.numel():
        number = int(torch.where(long, nodes.shape[-1], length).nan_to_num(1.0).max())
    each = torch.arange(number, dtype=length.dtype, device=length.device)
    each = each.expand(*length.shape, number)
    # A negative padding cuts.
    nodes = torch.nn.functional.pad(nodes, (0, number - nodes.shape[-1]))
    weights = torch.nn.functional.pad(weights, (0, number - weights.shape[-1]))
    long, counted = long.unsqueeze(-1), (each < length.unsqueeze(-1)).to(length.dtype)
    steps = torch.where(long, nodes, each).movedim(-1, 0)
    return steps, torch.where(long, weights, counted).movedim(-1, 0)
