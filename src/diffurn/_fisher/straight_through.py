"""Exact draws that carry the derivatives of their mean."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from diffurn._fisher.moments import covariance_product
from diffurn._fisher.sampling.choice import sample
from diffurn._numerics.autograd import ClosedForm


class _Draws(ClosedForm):
    # Drawn in here: a sum of draws and of zeros with a derivative would be three operations more.
    @staticmethod
    def forward(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, number: int) -> Tensor:
        return sample(log_odds, group_sizes, draws, number, log_odds.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        total = grads[0].squeeze(0) if len(grads[0]) == 1 else grads[0].sum(0)
        return covariance_product(*ctx.saved_tensors, total), None, None, None

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        (number,) = ctx.constants
        return covariance_product(*ctx.saved_tensors, tangents[0]).expand(
            number, *tangents[0].shape
        )


def sample_straight_through(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, number: int
) -> Tensor:
    """As `sample`; the derivative of every draw is that of the mean, the covariance."""
    return _Draws.of(log_odds, group_sizes, draws, number)
