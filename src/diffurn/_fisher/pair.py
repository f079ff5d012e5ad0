"""The slope of the mean of two groups, whose law is an exponential family in the one parameter log
ω_1 / ω_2.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from diffurn._fisher.constants import IMPOSSIBLE
from diffurn._kernels.dispatch import in_one_launch
from diffurn._numerics.autograd import ClosedForm


@in_one_launch("pair.covariance_product")
def covariance_product(log_weights: Tensor, pair: Tensor, counts: Tensor, vector: Tensor) -> Tensor:
    """Cov[x] @ vector, from log-weights ``(..., 2)``, and from the table `pair` ``(..., W)`` of the
    counts ``(W,)`` of the first group.
    """
    ratio = log_weights[..., :1] - log_weights[..., 1:]
    possible = pair > 0.5 * IMPOSSIBLE
    most, fewest = (
        torch.where(possible, counts, end).aminmax(dim=-1, keepdim=True)
        for end in (-torch.inf, torch.inf)
    )
    deviation = counts - torch.where(ratio > 0, most.max, fewest.min)
    probability = torch.where(possible, pair + deviation * ratio, IMPOSSIBLE).softmax(-1)
    mean = (probability * deviation).sum(-1, keepdim=True)
    product = (probability * (deviation - mean).square()).sum(-1, keepdim=True) * (
        vector[..., :1] - vector[..., 1:]
    )
    return torch.cat([product, -product], -1)


class _SlopeOfMean(ClosedForm):
    @staticmethod
    def forward(log_weights: Tensor, pair: Tensor, counts: Tensor) -> Tensor:
        return torch.zeros_like(log_weights)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return covariance_product(*ctx.saved_tensors, grads[0]), None, None


def slope_of_mean(log_weights: Tensor, pair: Tensor, counts: Tensor) -> Tensor:
    """Zeros with the derivatives of the mean."""
    return _SlopeOfMean.of(log_weights, pair, counts)
