"""Exact draws in C, from a seed of PyTorch's generator, so that `torch.manual_seed` works."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from diffurn._fisher.sampling import rejection
from diffurn._kernels.dispatch import replaces
from diffurn._kernels.native.calls import Kernel
from diffurn._numerics import inversion

_draw_each = Kernel("draw_each", 5, numbers=5)
_race_draws = Kernel("race_draws", 4, numbers=4)
_first_reached = Kernel("first_reached", 3, numbers=2)
# A draw from Wallenius' law costs as much as so many groups.
_RACES = 16


def new_seed(generator: torch.Generator | None = None) -> int:
    """A random seed, drawn by a generator of PyTorch."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator))


def draw_each(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, number: int, seed: int
) -> Tensor:
    """`number` exact draws of each urn of fewer than 128 groups: ``(number, ..., c)``.

    Log-weights ``(..., c)`` may have any tilt. Draws are NaN where n is NaN. They do not depend on
    the number of threads.
    """
    urns, groups = draws.numel(), log_weights.shape[-1]
    operands = [operand.contiguous() for operand in (log_weights, group_sizes, draws)]
    counts = log_weights.new_empty((number, *log_weights.shape))
    failed = ctypes.c_int64(-1)
    numbers = groups, urns, number, rejection.rounds_for(groups), seed
    address, rows = ctypes.addressof(failed), number * urns
    _draw_each(*operands, counts, address, numbers=numbers, rows=rows, work=counts.numel())
    if failed.value >= 0:
        sizes, n = operands[1].reshape(urns, groups), operands[2].reshape(urns)
        raise rejection.nothing_accepted(sizes[failed.value], n[failed.value])
    return counts


def draw_by_race(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, number: int, seed: int
) -> Tensor:
    """`number` exact draws from Wallenius' law of each urn: ``(number, ..., c)``.

    Draws are NaN where n is NaN. They do not depend on the number of threads.
    """
    urns, groups = draws.numel(), log_weights.shape[-1]
    operands = [operand.contiguous() for operand in (log_weights, group_sizes, draws)]
    counts = log_weights.new_empty((number, *log_weights.shape))
    numbers, work = (groups, urns, number, seed), _RACES * counts.numel()
    _race_draws(*operands, counts, numbers=numbers, rows=number * urns, work=work)
    return counts


@replaces(inversion.first_reached, on="cpu")
def first_reached(cumulative: Tensor, target: Tensor) -> Tensor:
    columns, rows = cumulative.shape[-1], cumulative.shape[:-1].numel()
    places = torch.empty(target.shape, dtype=torch.int64)
    _first_reached(
        cumulative.contiguous(),
        target.contiguous(),
        places,
        numbers=(columns, rows),
        rows=places.numel(),
        work=places.numel() // 8,
    )
    return places
