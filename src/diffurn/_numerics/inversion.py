"""Draws from tabulated distributions by inversion."""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn._kernels.dispatch import primitive


def chosen_column(cumulative: Tensor, num_samples: int | None = None) -> Tensor:
    """A random column for each row of cumulative masses; never one of probability zero."""
    total = cumulative[..., -1]
    shape = total.shape if num_samples is None else (num_samples, *total.shape)
    uniform = torch.rand(shape, dtype=total.dtype, device=total.device)
    # 1 - u lies in (0, 1], so the first column whose sum reaches (1 - u) · total has a mass > 0.
    return first_reached(cumulative, torch.addcmul(total, uniform, total, value=-1))


@primitive
def first_reached(cumulative: Tensor, target: Tensor) -> Tensor:
    """The first column of cumulative masses ``(..., W)`` that reaches a target.

    Targets and results have shape ``(...)`` or ``(num_samples, ...)``.
    """
    return (cumulative < target.unsqueeze(-1)).sum(-1)
