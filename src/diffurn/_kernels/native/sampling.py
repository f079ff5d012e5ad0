"""Exact draws in C, from a seed of PyTorch's generator, so that `torch.manual_seed` works."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from diffurn._fisher.sampling import rejection
from diffurn._kernels.dispatch import replaces
from diffurn._kernels.native import fisher  # noqa: F401 (sets the constants of the library)
from diffurn._kernels.native.calls import Kernel
from diffurn._numerics import inversion

_draw_each = Kernel("draw_each", 5, numbers=5)
_race_draws = Kernel("race_draws", 4, numbers=4)
_race_mixtures = Kernel("race_mixtures", 5, numbers=2)
_mixture_draws = Kernel("mixture_draws", 5, numbers=6)
_table_draws = Kernel("table_draws", 3, numbers=3)
_first_reached = Kernel("first_reached", 3, numbers=2)
# A draw from Wallenius' law costs as much as so many groups.
_RACES = 16
# From so many draws of an urn on, its groups are prepared, and a draw takes half the time.
_FEWEST_DRAWS_OF_STRIPS = 40  # of strips.h
# From so many draws of each of few urns on, a mixture of Fisher's laws is found first. It has up to
# so many nodes.
_FEWEST_DRAWS_OF_A_MIXTURE = 128
_MOST_MIXTURES, _MOST_GROUPS_OF_A_MIXTURE = 16, 32
_MOST_NODES = 256
# Fewer balls are drawn one by one, or left.
_FEWEST_BALLS = 32


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
    work = counts.numel() // (1 if number < _FEWEST_DRAWS_OF_STRIPS else 2)
    _draw_each(*operands, counts, address, numbers=numbers, rows=rows, work=work)
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
    if number >= _FEWEST_DRAWS_OF_A_MIXTURE and urns <= _MOST_MIXTURES:
        nodes = mixtures(log_weights, group_sizes, draws)
        counts = None if nodes is None else draw_mixtures(nodes, group_sizes, draws, number, seed)
        if counts is not None:
            return counts
    operands = [operand.contiguous() for operand in (log_weights, group_sizes, draws)]
    counts = log_weights.new_empty((number, *log_weights.shape))
    numbers, work = (groups, urns, number, seed), _RACES * counts.numel()
    _race_draws(*operands, counts, numbers=numbers, rows=number * urns, work=work)
    return counts


def mixtures(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor | None:
    """Wallenius' law of each urn as a mixture of Fisher's laws: ``(..., T, 2, c)``.

    Each of T nodes has the tilted log-odds of the groups, and the weights of c components. The
    component of group j is the urn without one ball of this group. None if the rule is not
    accurate, or if few balls are drawn or left.
    """
    groups, urns = log_weights.shape[-1], draws.numel()
    if groups > _MOST_GROUPS_OF_A_MIXTURE or not urns:
        return None
    fewest = torch.minimum(draws, group_sizes.sum(-1) - draws).amin()
    if not float(fewest) > _FEWEST_BALLS:
        return None
    operands = [operand.contiguous() for operand in (log_weights, group_sizes, draws)]
    nodes = log_weights.new_empty((*draws.shape, _MOST_NODES, 2, groups))
    failed = ctypes.c_int64(0)
    address, numbers, work = ctypes.addressof(failed), (groups, _MOST_NODES), urns * groups * 1000
    _race_mixtures(*operands, nodes, address, numbers=numbers, rows=urns, work=work)
    return None if failed.value else nodes


def draw_mixtures(
    nodes: Tensor, group_sizes: Tensor, draws: Tensor, number: int, seed: int
) -> Tensor | None:
    """`number` exact draws of each of the `mixtures`: ``(number, ..., c)``; None if it failed."""
    urns, groups = draws.numel(), group_sizes.shape[-1]
    counts = nodes.new_empty((number, *group_sizes.shape))
    failed = ctypes.c_int64(0)
    numbers = groups, _MOST_NODES, urns, number, rejection.rounds_for(groups), seed
    operands = [nodes, group_sizes.contiguous(), draws.contiguous(), counts]
    address, rows, work = ctypes.addressof(failed), number * urns, 3 * counts.numel() // 4
    _mixture_draws(*operands, address, numbers=numbers, rows=rows, work=work)
    return None if failed.value else counts


class Table(NamedTuple):
    """Outcomes ``(O, c)`` of any law, and their masses ``(O,)`` up to a factor."""

    outcomes: Tensor
    masses: Tensor

    def draw(self, number: int, seed: int) -> Tensor:
        """Independent draws ``(number, c)``."""
        counts = self.masses.new_empty((number, self.outcomes.shape[-1]))
        self._put(counts, seed)
        return counts

    def fill(self, counts: Tensor) -> None:
        """Puts an independent draw into every row of counts ``(number, c)``."""
        if counts.dtype is torch.float64 and counts.is_contiguous():
            self._put(counts, new_seed())
        else:
            counts.copy_(self.draw(len(counts), new_seed()))

    def _put(self, counts: Tensor, seed: int) -> None:
        number, groups = counts.shape
        columns = self.outcomes.double().contiguous(), self.masses.contiguous()
        numbers, work = (groups, len(self.masses), seed), counts.numel() // 4
        _table_draws(*columns, counts, numbers=numbers, rows=number, work=work)


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
