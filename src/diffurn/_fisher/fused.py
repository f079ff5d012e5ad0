"""Draws of urns on CUDA devices by few launches, from the arguments as they were given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from diffurn._fisher import moments
from diffurn._kernels.dispatch import is_eager, operand_kernels
from diffurn._numerics.autograd import ClosedForm, asks_for_derivative

Operands = Callable[[], tuple[Tensor, Tensor, Tensor]]


def draw(
    given: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    is_log: bool,
    num_samples: int,
    operands: Operands,
    single: bool = False,
) -> Tensor:
    """Draws ``(num_samples, ..., c)`` in the dtype of the weights; NaN where an urn is not valid.

    Their derivative in log-weights is that of the mean.

    Args:
        given: log ω, or ω, ``(..., c)``.
        group_sizes, draws: m and n of any dtype.
        is_log: whether log ω is given.
        num_samples: draws of each urn.
        operands: log ω, m and n in float64, for derivatives of the derivative.
        single: whether no group is known to have more than one ball, which is faster.
    """
    # They import Triton, which may be missing where no kernels run.
    from diffurn._kernels import operands as kernels
    from diffurn._kernels import sampling, subsets

    differentiates = asks_for_derivative(given)
    *urns, centres = kernels.operands(given, group_sizes, draws, is_log, centring=differentiates)
    draw_each = (subsets if single else sampling).draw_each
    counts: Tensor = draw_each(*urns, num_samples, given.dtype)
    counts = counts.view(num_samples, *given.shape)
    if not differentiates:
        return counts
    return _GivenDraws.of(given, counts, *urns[:2], centres, operands, single)


def operands(
    given: Tensor, group_sizes: Tensor, draws: Tensor, is_log: bool
) -> tuple[Tensor, Tensor, Tensor] | None:
    """`Urn._operands` by one launch, or None where no kernel runs or a derivative is missing."""
    if not is_eager():
        return None
    kernels: Any = operand_kernels(given.device)
    if kernels is None or not (is_log or not asks_for_derivative(given)):
        return None
    log_weights, sizes, number, _ = kernels.operands(
        given, group_sizes, draws, is_log, tilted=False
    )
    log_weights = log_weights.view(given.shape)
    if asks_for_derivative(given):
        log_weights = _LogWeights.of(given, log_weights)
    return log_weights, sizes.view(given.shape), number.view(draws.shape)


def are_valid(given: Tensor, group_sizes: Tensor, draws: Tensor, is_log: bool) -> Tensor | None:
    """`Urn._is_valid` by one launch, or None where no kernel runs."""
    found = operands(given.detach(), group_sizes, draws, is_log)
    return None if found is None else found[2] == found[2]


class _LogWeights(ClosedForm):
    """Given log-weights in float64, with zeros for those of -inf."""

    @staticmethod
    def forward(given: Tensor, log_weights: Tensor) -> Tensor:
        return log_weights.view_as(log_weights)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        given = ctx.saved_tensors[0]
        slope = grads[0].to(given.dtype)
        return slope.masked_fill(given.detach() == -torch.inf, 0.0), None


class _GivenDraws(ClosedForm):
    """Given draws ``(num_samples, ..., c)``, with the derivative of the mean in the log-weights."""

    @staticmethod
    def forward(
        log_weights: Tensor,
        counts: Tensor,
        log_odds: Tensor,
        group_sizes: Tensor,
        centres: Tensor,
        operands: Operands,
        single: bool,
    ) -> Tensor:
        return counts.view_as(counts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        log_weights, _, log_odds, group_sizes, centres = ctx.saved_tensors
        operands, single = ctx.constants
        total = grads[0].squeeze(0) if len(grads[0]) == 1 else grads[0].sum(0)
        if torch.is_grad_enabled() or not is_eager():
            product = moments.covariance_product(*operands(), total.double()).to(total.dtype)
        else:
            from diffurn._kernels.covariance import covariance_products

            tilt, draws = centres.unbind()
            vectors = total.reshape(log_odds.shape).contiguous()
            urns = log_odds, group_sizes, draws, tilt
            product = covariance_products(*urns, vectors, single)
        return (product.view(log_weights.shape), *[None] * 6)
