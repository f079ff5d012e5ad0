"""C kernels for Wallenius' law: probabilities, and the race behind moments."""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn._kernels.dispatch import replaces
from diffurn._kernels.native import fisher  # noqa: F401 (sets the constants)
from diffurn._kernels.native.calls import Kernel, aligned
from diffurn._wallenius import moments, probabilities

_races = Kernel("races", 7, numbers=2)
_outcomes = Kernel("outcomes", 5)
# Digits are lost in proportion to the number of balls; larger urns take PyTorch's operations.
_MOST_BALLS = 100_000
# A race takes so many passes over the groups, about.
_PASSES = 8
# A probability takes about as long as Fisher's of so many times the groups.
_INTEGRAL = 16


@replaces(probabilities.log_prob_value, on="cpu")
def log_prob(log_weights: Tensor, group_sizes: Tensor, counts: Tensor) -> Tensor:
    batch, operands = aligned(log_weights, group_sizes, counts, events=(1, 1, 1))
    values = log_weights.new_empty(batch)
    work, numbers = _INTEGRAL * operands[0].numel(), operands[0].shape[-1:]
    _outcomes(*operands, values, None, numbers=numbers, rows=values.numel(), work=work)
    return values


@replaces(probabilities.score_value, on="cpu")
def score(log_weights: Tensor, group_sizes: Tensor, counts: Tensor) -> Tensor:
    _, operands = aligned(log_weights, group_sizes, counts, events=(1, 1, 1))
    values = torch.empty_like(operands[0])
    work, groups = _INTEGRAL * values.numel(), values.shape[-1]
    rows = values.numel() // max(1, groups)
    _outcomes(*operands, None, values, numbers=(groups,), rows=rows, work=work)
    return values


def _run(
    u: Tensor, log_weights: Tensor, group_sizes: Tensor, draws: Tensor, counts: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    batch, groups = u.shape[:-1], log_weights.shape[-1]
    urns = (x.expand(*batch, groups) for x in (log_weights, group_sizes))
    operands = [x.contiguous() for x in (u, *urns, draws.expand(batch))]
    density, slope = u.new_empty(u.shape), u.new_empty(u.shape)
    work = _PASSES * u.numel() * groups
    numbers = groups, u.shape[-1]
    _races(*operands, density, slope, counts, numbers=numbers, rows=u.numel(), work=work)
    return density, slope


def _are_small(group_sizes: Tensor) -> bool:
    return not group_sizes.numel() or float(group_sizes.sum(-1).amax()) <= _MOST_BALLS


@replaces(moments.log_next_draw, on="cpu")
def log_next_draw(u: Tensor, log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    if not _are_small(group_sizes):
        return moments.Moment.at(u, log_weights, group_sizes, draws).log_next_draw()
    return _run(u, log_weights, group_sizes, draws)[0]


@replaces(moments.slope_of_race, on="cpu")
def slope_of_race(u: Tensor, log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    if not _are_small(group_sizes):
        return moments.Moment.at(u, log_weights, group_sizes, draws).slope()
    return _run(u, log_weights, group_sizes, draws)[1]


@replaces(moments.next_draw, on="cpu")
def next_draw(u: Tensor, log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    if not _are_small(group_sizes):
        moment = moments.Moment.at(u, log_weights, group_sizes, draws)
        return moments.with_density(moment.log_next_draw(), moment.drawn_before_next())
    counts = u.new_empty(*u.shape, log_weights.shape[-1])
    density, _ = _run(u, log_weights, group_sizes, draws, counts)
    return moments.with_density(density, counts)
