"""Many draws of one urn of few outcomes from Wallenius' law: all outcomes in one table."""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn._fisher.sampling.tree import Outcomes
from diffurn._numerics.batching import elements_per_chunk
from diffurn._numerics.enumeration import enumerate_counts
from diffurn._numerics.tracing import can_check
from diffurn._wallenius import integral as wallenius
from diffurn._wallenius.sequential import States

# Whether a table pays: the probability of an outcome costs as much as two draws of the race,
# setting up as much as six hundred.
_DRAWS_PER_OUTCOME = 2
_DRAWS_PER_TABLE = 600
_MOST_OUTCOMES = 1 << 16
# Of urns that are followed ball by ball: all probabilities cost at most as much as so many draws.
_DRAWS_PER_LAW = 500


def sample_from_table(
    log_weights: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    states: States | None,
    number: int,
    dtype: torch.dtype,
) -> Tensor | None:
    """`number` draws of an urn with log-weights ``(c,)``, shape ``(number, c)``; None unless a
    table costs less than it saves.
    """
    law = _law(log_weights, group_sizes, draws, states, number) if can_check() else None
    if law is None:
        return None
    table = Outcomes.of(*law, dtype)
    counts = torch.empty(number, len(group_sizes), dtype=dtype, device=draws.device)
    for piece in counts.split(elements_per_chunk(draws.device) // 4):
        table.fill(piece)
    return counts


def _law(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, states: States | None, number: int
) -> tuple[Tensor, Tensor] | None:
    """Outcomes ``(O, c)`` and their probabilities, if so many draws pay for them."""
    if states is not None:
        return (
            (states.counts(draws).mT, states.law(log_weights, group_sizes, draws))
            if number >= _DRAWS_PER_LAW
            else None
        )
    affordable = min((number - _DRAWS_PER_TABLE) // _DRAWS_PER_OUTCOME, _MOST_OUTCOMES)
    if affordable < 1:
        return None
    outcomes = enumerate_counts(
        [int(size) for size in group_sizes.tolist()], int(draws), affordable
    )
    if outcomes is None:
        return None
    outcomes = outcomes.to(draws.device)
    return outcomes, wallenius.log_prob(log_weights, group_sizes, outcomes.double()).exp()
