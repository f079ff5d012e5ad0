"""Exact draws by rejection sampling, at a cost that does not depend on the group sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from diffurn._fisher.accuracy import ROUNDS_PER_ROOT
from diffurn._fisher.nodes import Nodes, half_width, surplus
from diffurn._fisher.tilt import log_tilt
from diffurn._kernels.dispatch import can_call, sampling_kernels
from diffurn._numerics.binomial import binomial_log_pmf, binomial_variance
from diffurn._numerics.tracing import reading_numbers

# The counts proposed at once: enough for the vector units, and few enough for the cache.
_PROPOSED_COUNTS = 1 << 18
# The fewest proposals of a round.
_FEWEST_TRIES = 32
# With at most so many balls for each group, on average, of so many groups, the C kernel draws each
# ball on its own. For so many draws of so few groups strips are faster.
_MOST_BALLS_PER_GROUP = 8
_FEWEST_GROUPS_OF_FEW_BALLS = 8
_FEW_GROUPS, _MANY_DRAWS = 32, 1000
# From 128 groups on, a block of one in twelve groups decides on a proposal. The mass of its sum
# costs as much as about twenty proposals of its groups.
FEWEST_GROUPS_FOR_BLOCKS = 128
_GROUPS_PER_DECIDING = 12


def draw_each(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, num_samples: int, dtype: torch.dtype
) -> Tensor:
    """Exact draws of every urn, shape ``(num_samples, ..., c)``, from log-weights of any tilt.

    The cost does not depend on the group sizes. On CUDA devices a Triton kernel draws, without
    CPU-GPU synchronisation. Compiled code calls a custom operator.
    """
    urns = log_weights.detach(), group_sizes, draws
    kernels = sampling_kernels(draws.device)
    if kernels is None and not torch.compiler.is_compiling():
        return reading_numbers(draw_on_cpu, *urns, num_samples).to(dtype)
    rows = _rows(*urns)
    if kernels is not None:
        counts: Tensor = kernels.draw_each(*_tilted(*rows), num_samples, dtype)
    else:
        from diffurn._fisher.sampling import compiled

        counts = compiled.draw_each(*rows, num_samples).to(dtype)
    return counts.reshape(num_samples, *log_weights.shape)


def _rows(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    groups = log_weights.shape[-1]
    return log_weights.reshape(-1, groups), group_sizes.reshape(-1, groups), draws.reshape(-1)


def _tilted(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    tilt = log_tilt(log_weights, group_sizes, draws)
    return log_weights + tilt.unsqueeze(-1), group_sizes, draws


def draw_on_cpu(
    log_weights: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    num_samples: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Exact draws ``(num_samples, ..., c)``, in C where that is faster; few balls one by one."""
    urns, groups = (log_weights, group_sizes, draws), log_weights.shape[-1]
    if can_call(*urns):
        from diffurn._kernels.native import sampling, subsets

        are_prepared = groups <= _FEW_GROUPS and num_samples >= _MANY_DRAWS
        many_groups = groups >= _FEWEST_GROUPS_OF_FEW_BALLS and not are_prepared
        if many_groups and _has_few_balls(group_sizes):
            seed = sampling.new_seed(generator)
            return subsets.draw_each(*_tilted(*urns), num_samples, seed)
        if groups < FEWEST_GROUPS_FOR_BLOCKS:
            return sampling.draw_each(*urns, num_samples, sampling.new_seed(generator))
    rows = _tilted(*_rows(*urns))
    odds, sizes, n = (x.expand(num_samples, *x.shape).flatten(0, 1) for x in rows)
    counts = draw_by_rejection(odds, sizes, n, generator)
    return counts.reshape(num_samples, *log_weights.shape)


def _has_few_balls(group_sizes: Tensor) -> bool:
    balls = float(group_sizes.sum(-1).amax()) if group_sizes.numel() else 0.0
    return balls <= _MOST_BALLS_PER_GROUP * group_sizes.shape[-1]


def draw_by_rejection(
    log_odds: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    generator: torch.Generator | None = None,
) -> Tensor:
    """One exact draw for each row of tilted log-odds ``(R, c)``; NaN if `draws` is NaN.

    Propose X_j ~ Binomial(m_j, p_j) for every group but the widest, the one of largest variance.
    The widest group gets the rest of n. Accept with the probability mass of that count, relative to
    the group's largest mass. The acceptance rate is P(S = n) / max mass ≈ σ_widest / σ_S ≥ 1/√c, so
    a draw costs O(c^1.5) for any m.

    From 128 groups on, the widest twelfth of the groups gets the rest, and accepts by the mass of
    its sum. About every third proposal is accepted. The rest is then drawn from the urn of these
    groups in the same way, so a draw costs O(c).

    Reference: Arratia, DeSalvo, *Probabilistic divide-and-conquer: a new exact simulation method*
    (2016).
    """
    rows, groups = log_odds.shape
    per_chunk = max(1, _PROPOSED_COUNTS // groups)
    chunks = zip(
        log_odds.split(per_chunk), group_sizes.split(per_chunk), draws.split(per_chunk), strict=True
    )
    if not rows:
        return torch.empty_like(log_odds)
    return torch.cat([_draw_rows(*chunk, generator) for chunk in chunks])


def counts_proposed(groups: int) -> float:
    """About how many counts are proposed for one accepted draw."""
    return groups * (4.0 if groups >= FEWEST_GROUPS_FOR_BLOCKS else math.sqrt(groups))


class _Decider(Protocol):
    """The groups that get the rest of n, and decide on a proposal of the others."""

    def log_ratio(self, left: Tensor, rows: Tensor) -> Tensor:
        """log P(S = left) - max_s log P(S = s) of their sum S, in the given rows."""

    def counts(self, left: Tensor, generator: torch.Generator | None) -> Tensor:
        """A draw of their counts, given that they sum to `left` in every row."""


@dataclass(frozen=True)
class _Group:
    """A decider of one group."""

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

    def counts(self, left: Tensor, generator: torch.Generator | None) -> Tensor:
        return left.unsqueeze(-1)


@dataclass(frozen=True)
class _Block:
    """A decider of many groups, with the masses of their sum S by quadrature.

    The error is 1e-15 of the largest mass, which is next to the mean (Darroch 1964).
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
        # Beyond its reach the quadrature is periodic, and gives the mass of another total. An
        # impossible total must have the mass zero, not a rounding error.
        possible = (offset.abs() <= self.reach[rows]) & (left >= 0) & (left <= self.balls[rows])
        mass = torch.where(possible, self.nodes.mass_of_rows(rows, offset), 0.0)
        return mass.log() - self.log_peak[rows]

    def counts(self, left: Tensor, generator: torch.Generator | None) -> Tensor:
        tilt = log_tilt(self.log_odds, self.group_sizes, left)
        log_odds = self.log_odds + tilt.unsqueeze(-1)
        return draw_by_rejection(log_odds, self.group_sizes, left, generator)


def _draw_rows(
    log_odds: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    generator: torch.Generator | None,
) -> Tensor:
    groups = log_odds.shape[-1]
    p, q = torch.sigmoid(log_odds), torch.sigmoid(-log_odds)
    # The rarer of success and failure is drawn, so that its probability is accurate even if p is
    # almost one.
    mostly_drawn = p > q
    rarer = torch.where(mostly_drawn, q, p)
    many = groups >= FEWEST_GROUPS_FOR_BLOCKS
    number_deciding = groups // _GROUPS_PER_DECIDING if many else 1
    deciding = (group_sizes * p * q).topk(number_deciding, sorted=False).indices
    of_deciding = log_odds.gather(-1, deciding), group_sizes.gather(-1, deciding)
    decider: _Decider = _Block.of(*of_deciding) if many else _Group.of(*of_deciding)
    proposed_sizes = group_sizes.scatter(-1, deciding, 0.0)
    base = torch.where(mostly_drawn, proposed_sizes, 0.0)
    sign = torch.where(mostly_drawn, -1.0, 1.0).to(p.dtype)

    like: dict[str, Any] = {"dtype": p.dtype, "device": p.device}
    counts, left_over = torch.full_like(log_odds, torch.nan), torch.full_like(draws, torch.nan)
    pending = torch.nonzero(~draws.isnan()).squeeze(-1)
    capacity = max(len(draws), _FEWEST_TRIES)
    for _ in range(rounds_for(groups)):
        if not len(pending):
            return counts.scatter(-1, deciding, decider.counts(left_over, generator))
        # As rows finish, the pending ones get several proposals per round, so that all rounds are
        # equally large.
        tries = pending.repeat(capacity // len(pending))
        drawn = torch.binomial(proposed_sizes[tries], rarer[tries], generator)
        proposal = base[tries] + sign[tries] * drawn
        left = draws[tries] - proposal.sum(-1)
        log_ratio = decider.log_ratio(left, tries)
        accepted = torch.nonzero(
            torch.rand(left.shape, **like, generator=generator).log() < log_ratio
        ).squeeze(-1)
        first = _first_of_each(tries[accepted], accepted, len(draws), len(tries))
        rows = torch.nonzero(first < len(tries)).squeeze(-1)
        chosen = first[rows]
        counts[rows], left_over[rows] = proposal[chosen], left[chosen]
        pending = pending[first[pending] == len(tries)]
    raise nothing_accepted(group_sizes[pending[0]], draws[pending[0]])


def rounds_for(groups: int) -> int:
    """The most rounds of proposals."""
    return ROUNDS_PER_ROOT * (math.isqrt(groups) + 1)


def nothing_accepted(group_sizes: Tensor, draws: Tensor) -> RuntimeError:
    """The error for an urn for which no proposal was accepted."""
    return RuntimeError(
        f"no proposal was accepted for the urn m = {group_sizes.tolist()}, n = {draws.item()}: its "
        "tilted log-odds must be numbers, and Σm at least n"
    )


def _first_of_each(rows: Tensor, positions: Tensor, number_of_rows: int, none: int) -> Tensor:
    """The smallest position of each row, or `none` if the row has no position."""
    first = torch.full((number_of_rows,), none, device=rows.device)
    return first.scatter_reduce(0, rows, positions, "amin")
