"""C kernels for groups of few balls: exact draws, and the information about coefficients."""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn._fisher import moments
from diffurn._kernels.dispatch import replaces
from diffurn._kernels.native import fisher  # noqa: F401 (sets the constants)
from diffurn._kernels.native.calls import Kernel, aligned

_informations = Kernel("informations", 5, numbers=2)
_subset_draws = Kernel("subset_draws", 4, numbers=4)


def draw_each(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, number: int, seed: int
) -> Tensor:
    """`number` exact draws of each urn of tilted log-odds ``(..., c)``: ``(number, ..., c)``.

    The cost grows with the number of balls. Draws of an impossible urn are NaN.
    """
    operands = [x.contiguous() for x in (log_odds, group_sizes, draws)]
    urns, groups = draws.numel(), log_odds.shape[-1]
    counts = log_odds.new_empty((number, *log_odds.shape))
    numbers = groups, urns, number, seed
    _subset_draws(*operands, counts, numbers=numbers, rows=number * urns, work=counts.numel())
    return counts


@replaces(moments.information, on="cpu")
def information(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, vectors: Tensor) -> Tensor:
    batch, operands = aligned(log_odds, group_sizes, draws, events=(1, 1, 0))
    columns = vectors.shape[-1]
    if vectors.shape[:-2] != batch:
        batch = torch.broadcast_shapes(batch, vectors.shape[:-2])
        sizes = zip(operands, (1, 1, 0), strict=True)
        operands = [x.expand(*batch, *x.shape[x.ndim - e :]) for x, e in sizes]
    groups = operands[0].shape[-1]
    vectors = vectors.expand(*batch, groups, columns)
    values = vectors.new_empty(*batch, columns, columns)
    operands = [x.contiguous() for x in (*operands, vectors)]
    rows, numbers = operands[2].numel(), (groups, columns)
    _informations(*operands, values, numbers=numbers, rows=rows, work=operands[0].numel())
    return values
