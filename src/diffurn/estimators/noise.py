"""Gumbel noise for relaxed draws."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def gumbel_noise(shape: Sequence[int], like: Tensor) -> Tensor:
    """Finite standard Gumbel variates with the dtype and device of `like`.

    This is several times faster than torch's `exponential_` and a logarithm.
    """
    uniform = torch.rand(tuple(shape), dtype=like.dtype, device=like.device)
    return uniform.clamp_(min=torch.finfo(like.dtype).tiny).log_().neg_().log_().neg_()
