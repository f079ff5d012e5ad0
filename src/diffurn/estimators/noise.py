"""Gumbel noise, shared by everything that relaxes a draw."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def gumbel_noise(shape: Sequence[int], like: Tensor) -> Tensor:
    """Standard Gumbel variates, finite, with the dtype and device of `like`; several times faster
    than through `exponential_`.
    """
    uniform = torch.rand(tuple(shape), dtype=like.dtype, device=like.device)
    return uniform.clamp_(min=torch.finfo(like.dtype).tiny).log_().neg_().log_().neg_()
