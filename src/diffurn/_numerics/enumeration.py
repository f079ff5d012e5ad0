"""Outcomes of urns: a check, and all of those of small urns."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from diffurn._kernels.dispatch import primitive


@primitive
def are_outcomes(counts: Tensor, group_sizes: Tensor, draws: Tensor) -> bool:
    """Whether all counts ``(..., c)`` are whole numbers from 0 to m with the sum n."""
    possible = (counts == counts.floor()) & (counts >= 0) & (counts <= group_sizes)
    return bool((possible.all(-1) & (counts.sum(-1) == draws)).all())


def enumerate_counts(group_sizes: Sequence[int], draws: int, limit: int) -> Tensor | None:
    """All outcomes in lexicographic order, ``(outcomes, c)`` in int64.

    The result is None if there are more than `limit` outcomes.

    Example:
        >>> enumerate_counts([2, 1, 1], draws=2, limit=100).tolist()
        [[0, 1, 1], [1, 0, 1], [1, 1, 0], [2, 0, 0]]
    """
    prefixes = torch.zeros(1, 0, dtype=torch.int64)
    left = torch.tensor([draws])
    for i, size in enumerate(group_sizes):
        lowest = (left - sum(group_sizes[i + 1 :])).clamp(min=0)
        choices = left.clamp(max=size) - lowest + 1
        # Every prefix can be completed, so there are at least as many outcomes as prefixes.
        if choices.sum() > limit:
            return None
        parent = torch.repeat_interleave(torch.arange(len(left)), choices)
        first_of_parent = (choices.cumsum(0) - choices)[parent]
        count = lowest[parent] + torch.arange(len(parent)) - first_of_parent
        prefixes = torch.cat([prefixes[parent], count.unsqueeze(-1)], -1)
        left = left[parent] - count
    return prefixes
