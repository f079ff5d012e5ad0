"""Linear algebra of fits, in the directions orthogonal to a gauge.

A gauge is an orthogonal projection onto the directions in which the coefficients do not move.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffurn._kernels.dispatch import primitive


def orthogonal_to(gauge: Tensor) -> Tensor:
    """Projection onto the directions in which coefficients move, ``(D, p, p)``."""
    return torch.eye(gauge.shape[-1], dtype=gauge.dtype, device=gauge.device) - gauge


def solve(information: Tensor, right: Tensor, gauge: Tensor) -> Tensor:
    """The solution y of information @ y = right ``(D, p, k)`` that is orthogonal to the gauge.

    Where the information is not positive definite, its eigenvalues are replaced by their absolute
    values, and those near zero by a small positive number.
    """
    solution: Tensor = positive_solution(information, right, gauge)
    if math.isfinite(solution.sum()):
        return solution
    odd = torch.nonzero(~solution.isfinite().all(-1).all(-1)).flatten()
    free = orthogonal_to(gauge[odd])
    values, vectors = torch.linalg.eigh(
        torch.nan_to_num(_metric(information[odd], gauge[odd], free))
    )
    size = values.abs()
    size = torch.maximum(size, 1e-14 * size.amax(-1, keepdim=True)).clamp(min=1e-300)
    other = vectors @ (vectors.mT @ (free @ right[odd]) / size.unsqueeze(-1))
    return solution.index_copy(0, odd, free @ other)


@primitive
def positive_solution(information: Tensor, right: Tensor, gauge: Tensor) -> Tensor:
    """`solve` where the information is positive definite; NaN elsewhere."""
    free = orthogonal_to(gauge)
    factor, failed = torch.linalg.cholesky_ex(_metric(information, gauge, free))
    solution = free @ torch.cholesky_solve(free @ right, factor)
    return torch.where((failed > 0)[:, None, None], torch.nan, solution)


def _metric(information: Tensor, gauge: Tensor, free: Tensor) -> Tensor:
    """The information orthogonal to the gauge, and a number of its size along the gauge."""
    scale = information.diagonal(dim1=-2, dim2=-1).mean(-1).clamp(min=1e-30)[:, None, None]
    return free @ information @ free + scale * gauge
