"""Exact draws: which of the two samplers to use."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffurn.exact.binomial import binomial_variance
from diffurn.exact.chunks import elements_per_chunk
from diffurn.exact.quadrature import half_width
from diffurn.exact.rejection import draw_by_rejection
from diffurn.exact.tree import Tree

# Tables are dropped after each call, so they must pay within it. In the time that rejection proposes one count, about three cells
# are filled; setting up a split costs as much as five thousand.
_CELLS_PER_PROPOSED_COUNT = 3
_CELLS_PER_SPLIT = 5000
_MOST_CELLS = 1 << 22


def sample(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, number: int, dtype: torch.dtype) -> Tensor:
    """`number` exact draws of every urn in the batch, shape ``(number, ..., c)``; expects tilted log-odds.

    Many draws of an urn come from a tree of tables (`tree`); one draw of each of many urns, and of populations too large for
    tables, from `rejection`, whose cost does not depend on the group sizes.
    """
    batch, groups = log_odds.shape[:-1], log_odds.shape[-1]
    log_odds, group_sizes, draws = log_odds.detach().reshape(-1, groups), group_sizes.reshape(-1, groups), draws.reshape(-1)
    affordable = _CELLS_PER_PROPOSED_COUNT * number * groups**1.5 - _CELLS_PER_SPLIT * groups
    if affordable > 0 and _table_cells(log_odds, group_sizes) <= min(affordable, _MOST_CELLS):
        counts = torch.empty(number, len(draws), groups, dtype=dtype, device=draws.device)
        per_chunk = elements_per_chunk(draws.device) // 4
        for i, urn in enumerate(zip(log_odds, group_sizes, draws, strict=True)):
            tree = Tree.build(*urn)
            for piece in counts[:, i].split(per_chunk):
                piece.copy_(tree.draw(len(piece)))
    else:
        rows = (operand.expand(number, *operand.shape).flatten(0, 1) for operand in (log_odds, group_sizes, draws))
        counts = draw_by_rejection(*rows).to(dtype)
    return counts.reshape(number, *batch, groups)


def _table_cells(log_odds: Tensor, group_sizes: Tensor) -> float:
    """About how many cells the tables of the largest urn have: at every split, likely totals times likely left parts."""
    variance, sizes = binomial_variance(group_sizes, log_odds), group_sizes
    cells = torch.zeros_like(variance[:, 0])
    while variance.shape[-1] > 1:
        odd = variance.shape[-1] % 2
        widths = torch.minimum(2 * half_width(variance), sizes) + 1
        variance, sizes = (torch.nn.functional.pad(values, (0, odd)).unflatten(-1, (-1, 2)).sum(-1) for values in (variance, sizes))
        rows = torch.minimum(2 * half_width(variance), sizes) + 1 if variance.shape[-1] > 1 else torch.ones_like(variance)
        cells = cells + (rows * widths[:, ::2]).sum(-1)
    return math.inf if not len(cells) else float(cells.max())
