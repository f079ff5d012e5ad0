"""Draws of urns on CUDA devices by few launches, from the arguments as they were given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from diffurn._fisher import moments
from diffurn._kernels.dispatch import operand_kernels, sampling_kernels
from diffurn._numerics.autograd import ClosedForm, asks_for_derivative

Operands = Callable[[], tuple[Tensor, Tensor, Tensor]]


def draw(
    given: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    is_log: bool,
    num_samples: int,
    operands: Operands,
) -> Tensor:
    """Draws ``(num_samples, ..., c)`` in the dtype of the weights; NaN where an urn is not valid.

    Their derivative in log-weights is that of the mean.

    Args:
        given: log ω, or ω, ``(..., c)``.
        group_sizes, draws: m and n of any dtype.
        is_log: whether log ω is given.
        num_samples: draws of each urn.
        operands: log ω, m and n in float64, for derivatives of the derivative.
    """
    kernels: Any = operand_kernels(given.device)
    sampling: Any = sampling_kernels(given.device)
    differentiates = asks_for_derivative(given)
    *urns, tilt = kernels.operands(given, group_sizes, draws, is_log, differentiates)
    counts: Tensor = sampling.draw_each(*urns, num_samples, given.dtype)
    counts = counts.view(num_samples, *given.shape)
    return _GivenDraws.of(given, counts, *urns, tilt, operands) if differentiates else counts


class _GivenDraws(ClosedForm):
    """Given draws ``(num_samples, ..., c)``, with the derivative of the mean in the log-weights."""

    @staticmethod
    def forward(
        log_weights: Tensor,
        counts: Tensor,
        log_odds: Tensor,
        group_sizes: Tensor,
        draws: Tensor,
        tilt: Tensor,
        operands: Any,
    ) -> Tensor:
        return counts.view_as(counts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        log_weights, _, *urns, tilt = ctx.saved_tensors
        total = grads[0].squeeze(0) if len(grads[0]) == 1 else grads[0].sum(0)
        if torch.is_grad_enabled():
            product = moments.covariance_product(*ctx.constants[0](), total.double())
            product = product.to(total.dtype)
        else:
            product = moments.covariance_product(*urns, total.reshape(urns[0].shape), tilt)
        return (product.reshape(log_weights.shape), *[None] * 6)
