"""Draws from tabulated distributions by inversion."""

from __future__ import annotations

import torch
from torch import Tensor


def chosen_column(cumulative: Tensor, num_samples: int | None = None) -> Tensor:
    """The column in which a uniform number falls, for each row; never one without probability."""
    total = cumulative[..., -1]
    shape = total.shape if num_samples is None else (num_samples, *total.shape)
    uniform = torch.rand(shape, dtype=total.dtype, device=total.device)
    # 1 - u lies in (0, 1]: the first column to reach it has visibly added to the sum.
    return (cumulative < torch.addcmul(total, uniform, total, value=-1).unsqueeze(-1)).sum(-1)
