"""The mean and its gradient as custom operators, opaque to `torch.compile`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.library import custom_op

from diffurn._wallenius import moments


@custom_op("diffurn::wallenius_mean", mutates_args=())
def _mean(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """`moments.mean_value`."""
    return moments.mean_value(log_weights, group_sizes, draws)


@_mean.register_fake
def _new_mean(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    return log_weights.new_empty(torch.broadcast_shapes(log_weights.shape, group_sizes.shape))


@custom_op("diffurn::wallenius_mean_product", mutates_args=())
def _mean_product(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, vector: Tensor
) -> Tensor:
    """`moments.mean_product`."""
    return moments.mean_product(log_weights, group_sizes, draws, vector)


@_mean_product.register_fake
def _new_product(log_weights: Tensor, group_sizes: Tensor, draws: Tensor, vector: Tensor) -> Tensor:
    return log_weights.new_empty(torch.broadcast_shapes(log_weights.shape, vector.shape))


def mean(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """E[X] of urns in which a ball is left."""
    value: Tensor = _mean(log_weights, group_sizes, draws)
    return value


def mean_product(log_weights: Tensor, group_sizes: Tensor, draws: Tensor, vector: Tensor) -> Tensor:
    """The product of a vector with the Jacobian of the mean; compiled code cannot derive it."""
    product: Tensor = _mean_product(log_weights, group_sizes, draws, vector)
    return product
