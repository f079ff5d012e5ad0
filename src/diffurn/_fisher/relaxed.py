"""Relaxed draws of the chain of conditional laws by kernels: all groups in one launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from diffurn._fisher.accuracy import NEAR_NATS, WINDOW_NATS
from diffurn._fisher.conditionals import Conditional
from diffurn._kernels.dispatch import chain_kernels
from diffurn._law import Noise, Relaxation
from diffurn._numerics.autograd import (
    ClosedForm,
    asks_for_derivative,
    is_forward_mode,
    is_transforming,
)
from diffurn._numerics.tracing import can_read

# Draws of urns, so many of each, by PyTorch's operations with the given noise.
Redrawn = Callable[[tuple[Tensor, Tensor, Tensor], int, Noise], Tensor]


def has_kernel(device: torch.device, groups: int, how: Relaxation) -> bool:
    """Whether kernels draw the chain: for temperatures known on the CPU, and reverse mode."""
    if chain_kernels(device) is None or groups < 2:
        return False
    tau = how.temperature
    if isinstance(tau, Tensor) and (asks_for_derivative(tau) or not can_read(tau)):
        return False
    # One set of nodes gives the counts of a group, as in `conditionals.conditional`.
    if not how.merged and WINDOW_NATS * float(tau) > NEAR_NATS:
        return False
    return torch.compiler.is_compiling() or not (is_transforming() or is_forward_mode())


def draw(
    log_weights: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    num_samples: int,
    order: Sequence[int] | None,
    how: Relaxation,
    redrawn: Redrawn,
) -> Tensor:
    """Draws ``(num_samples, ..., c)`` with the groups in the given order, or in random ones.

    `redrawn` makes the same draws by PyTorch's operations, for derivatives of the derivative.
    """
    shape = torch.Size((num_samples, *log_weights.shape))
    sizes, number = group_sizes.expand(shape[1:]), draws.expand(shape[1:-1])
    urns = (log_weights, sizes)
    if order is None:
        orders = torch.rand(shape, device=draws.device).argsort(-1)
        weights, balls = (x.expand(shape).gather(-1, orders) for x in urns)
        counts = _draw_rows(weights, balls, number.expand(shape[:-1]), 1, how, redrawn)
        return counts.squeeze(0).gather(-1, orders.argsort(-1))
    if list(order) == list(range(shape[-1])):
        return _draw_rows(*urns, number, num_samples, how, redrawn)
    weights, balls = (_in_order(x, order) for x in urns)
    counts = _draw_rows(weights, balls, number, num_samples, how, redrawn)
    return _in_order(counts, [list(order).index(j) for j in range(shape[-1])])


def _in_order(values: Tensor, order: Sequence[int]) -> Tensor:
    """The groups in another order, without a copy of the order to the device."""
    groups = values.unbind(-1)
    return torch.stack([groups[j] for j in order], -1)


def _draw_rows(
    log_weights: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    num_samples: int,
    how: Relaxation,
    redrawn: Redrawn,
) -> Tensor:
    kernels: Any = chain_kernels(draws.device)
    shape = torch.Size((num_samples, *log_weights.shape))
    urns = log_weights.reshape(-1, shape[-1]), group_sizes.reshape(-1, shape[-1]), draws.reshape(-1)
    differentiates = asks_for_derivative(log_weights)
    seed = kernels.new_seed(draws.device)
    counts: Tensor
    counts, through, jacobian = kernels.draw_chain(
        *(x.detach().contiguous() for x in urns),
        seed,
        num_samples,
        how.merged,
        how.hard,
        differentiates,
        float(how.temperature),
    )
    if differentiates:
        counts = _GivenDraws.of(*urns, counts, through, jacobian, seed, how, redrawn)
    return counts.reshape(shape)


class _GivenDraws(ClosedForm):
    """Given draws ``(num_samples, B, c)``, with the derivatives of the relaxed ones."""

    @staticmethod
    def forward(
        log_weights: Tensor,
        group_sizes: Tensor,
        draws: Tensor,
        counts: Tensor,
        through: Tensor,
        jacobian: Tensor,
        seed: Tensor,
        how: Any,
        redrawn: Any,
    ) -> Tensor:
        return counts.view_as(counts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        from diffurn._kernels import chain

        log_weights, group_sizes, draws, _, through, jacobian, seed = ctx.saved_tensors
        how, redrawn = ctx.constants
        if torch.is_grad_enabled():

            def noise(place: int, law: Conditional) -> Tensor:
                return chain.noise(seed, place, law.lowest.contiguous(), len(law.steps))

            counts = redrawn((log_weights, group_sizes, draws), len(grads[0]), noise)
            of_urns = torch.autograd.grad(counts, log_weights, grads[0], create_graph=True)[0]
            return (of_urns, *[None] * 8)
        operands = (grads[0].contiguous(), through, jacobian, log_weights.detach().contiguous())
        flags = how.merged, how.through_draws_left
        product = chain.chain_product(*operands, group_sizes.contiguous(), *flags)
        return (product.squeeze(0) if len(product) == 1 else product.sum(0), *[None] * 8)
