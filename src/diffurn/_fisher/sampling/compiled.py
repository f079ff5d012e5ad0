"""Draws on the CPU and their gradients as custom operators, opaque to `torch.compile`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.library import custom_op

from diffurn._fisher import moments
from diffurn._fisher.sampling.rejection import draw_on_cpu


@custom_op("diffurn::draw_on_cpu", mutates_args=())
def _draw(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, seed: Tensor, number: int
) -> Tensor:
    generator = torch.Generator().manual_seed(int(seed))
    return draw_on_cpu(log_weights, group_sizes, draws, number, generator)


@_draw.register_fake
def _new_counts(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, seed: Tensor, number: int
) -> Tensor:
    return log_weights.new_empty(number, *log_weights.shape)


def draw_each(log_weights: Tensor, group_sizes: Tensor, draws: Tensor, number: int) -> Tensor:
    """Exact draws ``(number, B, c)`` of rows of log-weights ``(B, c)`` of any tilt.

    The seed is an argument, so that equal calls are not merged.
    """
    seed = torch.randint(2**63 - 1, (1,))
    counts: Tensor = _draw(log_weights, group_sizes, draws, seed, number)
    return counts


@custom_op("diffurn::covariance_product_on_cpu", mutates_args=())
def _covariance_product(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, vector: Tensor
) -> Tensor:
    return moments.covariance_product(log_odds, group_sizes, draws, vector)


@_covariance_product.register_fake
def _new_product(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, vector: Tensor) -> Tensor:
    return log_odds.new_empty(torch.broadcast_shapes(log_odds.shape, vector.shape))


def covariance_product(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, vector: Tensor
) -> Tensor:
    """`moments.covariance_product`, which has no derivative in compiled code."""
    product: Tensor = _covariance_product(log_odds, group_sizes, draws, vector)
    return product
