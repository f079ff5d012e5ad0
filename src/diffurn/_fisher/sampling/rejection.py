"""Exact draws whose cost does not depend on the population: propose most groups, let the others
decide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from diffurn._fisher.nodes import Nodes, half_width, surplus
from diffurn._fisher.tilt import log_tilt
from diffurn._kernels.dispatch import sampling_kernels
from diffurn._numerics.binomial import binomial_log_pmf, binomial_variance
from diffurn._numerics.tracing import reading_numbers

# Proposed counts in flight at once: enough to keep the vector units busy, few enough to stay in the
# cache.
_PROPOSED_COUNTS = 1 << 18
_FEWEST_TRIES = 32
# Acceptance is above 1/√c, so a round of 32 tries fails with probability below 1 - 1/√c: after 300
# √c rounds, below e^-300.
_ROUNDS_PER_ROOT = 300
# From so many groups on, one in so many of them decides; the mass of their sum costs as much as
# some twenty proposals of them.
_FEWEST_GROUPS_FOR_BLOCKS = 128
_GROUPS_PER_DECIDING = 12


def draw_each(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, num_samples: int, dtype: torch.dtype
) -> Tensor:
    """Exact draws of every urn, shape ``(num_samples, ..., c)``, from tilted log-odds.

    The cost does not depend on the group sizes. On CUDA devices a kernel draws, without a
    CPU-GPU synchronisation.
    """
    groups = log_odds.shape[-1]
    sizes, total = group_sizes.reshape(-1, groups), draws.reshape(-1)
    urns = log_odds.detach().reshape(-1, groups), sizes, total
    kernels = sampling_kernels(draws.device)
    if kernels is not None:
        counts: Tensor = kernels.draw_each(*urns, num_samples, dtype)
    else:
        rows = (operand.expand(num_samples, *operand.shape).flatten(0, 1) for operand in urns)
        counts = reading_numbers(draw_by_rejection, *rows).to(dtype)
    return counts.reshape(num_samples, *log_odds.shape)


def draw_by_rejection(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """One exact draw for each row of tilted log-odds ``(R, c)``, by probabilistic divide and
    conquer; NaN where the draws are NaN.

    Draw X_j ~ Binomial(m_j, p_j) for every group but the widest; what is left of n falls to the
    widest, which accepts with its own probability mass relative to the largest. The acceptance rate
    is P(S = n) / max mass ≈ σ_widest / σ_S ≥ 1/√c, so a draw costs O(c^1.5) for any m. Where groups
    are many, the widest twelfth of them decides by the mass of its sum, accepts about every third
    proposal and draws what is left as from an urn of its own: O(c).

    Reference: Arratia, DeSalvo, *Probabilistic divide-and-conquer: a new exact simulation method*
    (2016).
    """
    rows, groups = log_odds.shape
    per_chunk = max(1, _PROPOSED_COUNTS // groups)
    chunks = zip(
        log_odds.split(per_chunk), group_sizes.split(per_chunk), draws.split(per_chunk), strict=True
    )
    return (
        torch.cat([_draw_rows(*chunk) for chunk in chunks]) if rows else torch.empty_like(log_odds)
    )


def counts_proposed(groups: int) -> float:
    """About how many counts are proposed until there is a draw."""
    return groups * (4.0 if groups >= _FEWEST_GROUPS_FOR_BLOCKS else math.sqrt(groups))


class _Decider(Protocol):
    """Groups that decide on a proposal of the others."""

    def log_ratio(self, left: Tensor, rows: Tensor) -> Tensor:
        """Log of the probability that `left` balls are theirs, over the largest such, in some
        rows.
        """

    def counts(self, left: Tensor) -> Tensor:
        """How `left` balls of every row fall to them."""


@dataclass(frozen=True)
class _Group:
    size: Tensor
    log_odds: Tensor
    log_peak: Tensor

    @classmethod
    def of(cls, log_odds: Tensor, group_sizes: Tensor) -> _Group:
        size, odds = group_sizes.squeeze(-1), log_odds.squeeze(-1)
        peak = torch.floor((size + 1) * torch.sigmoid(odds)).minimum(size)
        return cls(size, odds, binomial_log_pmf(peak, size, odds))

    def log_ratio(self, left: Tensor, rows: Tensor) -> Tensor:
        return binomial_log_pmf(left, self.size[rows], self.log_odds[rows]) - self.log_peak[rows]

    def counts(self, left: Tensor) -> Tensor:
        return left.unsqueeze(-1)


@dataclass(frozen=True)
class _Block:
    """Many groups; masses of their sum S by quadrature, right to 1e-15 of the largest, which is
    next to the mean (Darroch 1964).
    """

    log_odds: Tensor
    group_sizes: Tensor
    nodes: Nodes
    centre: Tensor
    reach: Tensor
    balls: Tensor
    log_peak: Tensor

    @classmethod
    def of(cls, log_odds: Tensor, group_sizes: Tensor) -> _Block:
        centre = torch.floor(surplus(log_odds, group_sizes, torch.zeros_like(group_sizes[:, 0])))
        nodes = Nodes.build(log_odds, group_sizes, centre, span=2)
        near = torch.arange(-1, 3, dtype=centre.dtype, device=centre.device)
        log_peak = nodes.mass_at(near.expand(len(centre), -1)).amax(-1).log()
        reach = torch.floor(half_width(binomial_variance(group_sizes, log_odds).sum(-1))) - 1
        return cls(log_odds, group_sizes, nodes, centre, reach, group_sizes.sum(-1), log_peak)

    def log_ratio(self, left: Tensor, rows: Tensor) -> Tensor:
        offset = left - self.centre[rows]
        # Further out is the mass of another total; and what cannot be must not be, however small
        # its rounding error.
        possible = (offset.abs() <= self.reach[rows]) & (left >= 0) & (left <= self.balls[rows])
        return (
            torch.where(possible, self.nodes.mass_of_rows(rows, offset), 0.0).log()
            - self.log_peak[rows]
        )

    def counts(self, left: Tensor) -> Tensor:
        tilt = log_tilt(self.log_odds, self.group_sizes, left)
        return draw_by_rejection(self.log_odds + tilt.unsqueeze(-1), self.group_sizes, left)


def _draw_rows(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    groups = log_odds.shape[-1]
    p, q = torch.sigmoid(log_odds), torch.sigmoid(-log_odds)
    # Drawing the rarer of success and failure keeps the proposal's parameter accurate when p is all
    # but one.
    mostly_drawn = p > q
    rarer = torch.where(mostly_drawn, q, p)
    many = groups >= _FEWEST_GROUPS_FOR_BLOCKS
    deciding = (
        (group_sizes * p * q)
        .topk(groups // _GROUPS_PER_DECIDING if many else 1, sorted=False)
        .indices
    )
    of_deciding = log_odds.gather(-1, deciding), group_sizes.gather(-1, deciding)
    decider: _Decider = _Block.of(*of_deciding) if many else _Group.of(*of_deciding)
    proposed_sizes = group_sizes.scatter(-1, deciding, 0.0)
    base = torch.where(mostly_drawn, proposed_sizes, 0.0)
    sign = torch.where(mostly_drawn, -1.0, 1.0).to(p.dtype)

    counts, left_over = torch.full_like(log_odds, torch.nan), torch.full_like(draws, torch.nan)
    pending = torch.nonzero(~draws.isnan()).squeeze(-1)
    capacity = max(len(draws), _FEWEST_TRIES)
    for _ in range(_ROUNDS_PER_ROOT * (math.isqrt(groups) + 1)):
        if not len(pending):
            return counts.scatter(-1, deciding, decider.counts(left_over))
        # As rows finish, the rest try several proposals at once, so that every round is equally
        # full.
        tries = pending.repeat(capacity // len(pending))
        proposal = base[tries] + sign[tries] * torch.binomial(proposed_sizes[tries], rarer[tries])
        left = draws[tries] - proposal.sum(-1)
        log_ratio = decider.log_ratio(left, tries)
        accepted = torch.nonzero(torch.rand_like(left).log() < log_ratio).squeeze(-1)
        first = _first_of_each(tries[accepted], accepted, len(draws), len(tries))
        rows = torch.nonzero(first < len(tries)).squeeze(-1)
        chosen = first[rows]
        counts[rows], left_over[rows] = proposal[chosen], left[chosen]
        pending = pending[first[pending] == len(tries)]
    m, n = group_sizes[pending[0]].tolist(), draws[pending[0]].item()
    raise RuntimeError(
        f"no proposal was accepted for the urn m = {m}, n = {n}: its tilted log-odds must be "
        "numbers, and Σm at least n"
    )


def _first_of_each(rows: Tensor, positions: Tensor, number_of_rows: int, none: int) -> Tensor:
    """The smallest position that belongs to each row, `none` where there is no such position."""
    return torch.full((number_of_rows,), none, device=rows.device).scatter_reduce(
        0, rows, positions, "amin"
    )
