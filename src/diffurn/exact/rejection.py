"""Exact draws whose cost does not depend on the population: propose all groups but one, let the last decide."""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn.exact.binomial import binomial_log_pmf

# Proposed counts in flight at once: enough to keep the vector units busy, few enough to stay in the cache.
_PROPOSED_COUNTS = 1 << 18
_FEWEST_TRIES = 32
# Acceptance is above 1/√c: for a possible urn this many rounds are never reached.
_MOST_ROUNDS = 100_000


def draw_by_rejection(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """One exact draw for each row of tilted log-odds ``(R, c)``, by probabilistic divide and conquer.

    Draw X_j ~ Binomial(m_j, p_j) for every group but the widest; what is left of n falls to the widest, which accepts with its
    own probability mass relative to the largest. The acceptance rate is P(S = n) / max mass ≈ σ_widest / σ_S ≥ 1/√c, so a
    draw costs O(c^1.5) for any m.

    Reference: Arratia, DeSalvo, *Probabilistic divide-and-conquer: a new exact simulation method* (2016).
    """
    rows, groups = log_odds.shape
    per_chunk = max(1, _PROPOSED_COUNTS // groups)
    chunks = zip(log_odds.split(per_chunk), group_sizes.split(per_chunk), draws.split(per_chunk), strict=True)
    return torch.cat([_draw_rows(*chunk) for chunk in chunks]) if rows else torch.empty_like(log_odds)


def _draw_rows(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    p, q = torch.sigmoid(log_odds), torch.sigmoid(-log_odds)
    # Drawing the rarer of success and failure keeps the proposal's parameter accurate when p is all but one.
    mostly_drawn = p > q
    rarer = torch.where(mostly_drawn, q, p)
    widest = (group_sizes * p * q).argmax(-1, keepdim=True)
    size, odds = group_sizes.gather(-1, widest).squeeze(-1), log_odds.gather(-1, widest).squeeze(-1)
    peak = torch.floor((size + 1) * torch.sigmoid(odds)).minimum(size)
    log_peak = binomial_log_pmf(peak, size, odds)
    proposed_sizes = group_sizes.scatter(-1, widest, 0.0)
    base = torch.where(mostly_drawn, proposed_sizes, 0.0)
    sign = torch.where(mostly_drawn, -1.0, 1.0).to(p.dtype)

    counts = torch.empty_like(log_odds)
    pending = torch.arange(len(draws), device=draws.device)
    capacity = max(len(draws), _FEWEST_TRIES)
    for _ in range(_MOST_ROUNDS):
        # As rows finish, the rest try several proposals at once, so that every round is equally full.
        tries = pending.repeat(capacity // len(pending))
        proposal = base[tries] + sign[tries] * torch.binomial(proposed_sizes[tries], rarer[tries])
        left = draws[tries] - proposal.sum(-1)
        log_ratio = binomial_log_pmf(left, size[tries], odds[tries]) - log_peak[tries]
        accepted = torch.nonzero(torch.rand_like(left).log() < log_ratio).squeeze(-1)
        first = _first_of_each(tries[accepted], accepted, len(draws), len(tries))
        rows = torch.nonzero(first < len(tries)).squeeze(-1)
        chosen = first[rows]
        counts[rows] = proposal[chosen].scatter(-1, widest[rows], left[chosen].unsqueeze(-1))
        pending = pending[first[pending] == len(tries)]
        if not len(pending):
            return counts
    raise RuntimeError(
        f"no draw was accepted in {_MOST_ROUNDS} rounds: is every weight a number, and are there as many drawable balls as draws?"
    )


def _first_of_each(rows: Tensor, positions: Tensor, number_of_rows: int, none: int) -> Tensor:
    """The smallest position that belongs to each row, `none` where there is no such position."""
    return torch.full((number_of_rows,), none, device=rows.device).scatter_reduce(0, rows, positions, "amin")
