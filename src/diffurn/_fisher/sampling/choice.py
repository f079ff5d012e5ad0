"""Exact draws: which sampler to use."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from diffurn._fisher.quadrature import half_width
from diffurn._fisher.sampling.rejection import counts_proposed, draw_by_rejection
from diffurn._fisher.sampling.tree import Outcomes, Tree
from diffurn._fisher.tilt import log_tilt
from diffurn._kernels import dispatch as kernels
from diffurn._numerics.batching import elements_per_chunk
from diffurn._numerics.binomial import binomial_variance
from diffurn._numerics.tracing import can_check, reading_numbers

# Whether tables pay must not depend on the calls before, or seeds would not decide draws. In the
# time that rejection proposes one count, about three cells are filled, but a hundredth if kernels
# of our own propose; setting up a split costs as much as five thousand.
_CELLS_PER_PROPOSED_COUNT = 3.0
_CELLS_PER_COUNT_OF_KERNELS = 0.01
_CELLS_PER_SPLIT = 5000
_MOST_CELLS = 1 << 22
# One table of all outcomes instead of a tree: while it fits the cache, and for this many draws per
# outcome.
_MOST_OUTCOMES = 1 << 16
_DRAWS_PER_OUTCOME = 8
# Kernels walk a chain, whose cells grow like c^1.5; from here on the balanced tree is better off
# without them.
_LONGEST_CHAIN = 64
# Tables up to this size, some ten megabytes, are kept for the next call.
_CELLS_TO_KEEP = 1 << 19


def sample(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, number: int, dtype: torch.dtype
) -> Tensor:
    """`number` exact draws of every urn in the batch, shape ``(number, ..., c)``; expects tilted
    log-odds.
    """
    counts = sample_from_tables(log_odds, group_sizes, draws, number, dtype)
    return (
        sample_by_rejection(log_odds, group_sizes, draws, number, dtype)
        if counts is None
        else counts
    )


def sample_by_rejection(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, number: int, dtype: torch.dtype
) -> Tensor:
    """As `sample`, at a cost that does not depend on the group sizes: for one draw of each of many
    urns, and for large populations.

    On CUDA devices a kernel does it where Triton is installed (`draw_kernels`), without a look at
    any number from the host.
    """
    urns = _as_rows(log_odds, group_sizes, draws)
    on_device = _draw_kernels(draws.device)
    if on_device is not None:
        counts: Tensor = on_device.draw_each(*urns, number, dtype)
    else:
        rows = (operand.expand(number, *operand.shape).flatten(0, 1) for operand in urns)
        counts = reading_numbers(draw_by_rejection, *rows).to(dtype)
    return counts.reshape(number, *log_odds.shape)


def sample_from_tables(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, number: int, dtype: torch.dtype
) -> Tensor | None:
    """As `sample`, for many draws of an urn, by `tree`; None unless filling the tables costs less
    than it saves.

    The log-odds may have any tilt: all that is asked of a device are the urns, at once, and tables
    from a call before are used again.
    """
    groups = log_odds.shape[-1]
    on_device = _draw_kernels(draws.device)
    spared = (
        _CELLS_PER_PROPOSED_COUNT * counts_proposed(groups)
        if on_device is None
        else _CELLS_PER_COUNT_OF_KERNELS * groups**1.5
    )
    affordable = spared * number - _CELLS_PER_SPLIT * groups
    if affordable <= 0 or not draws.numel() or not can_check():
        return None
    odds, sizes, totals = _as_rows(log_odds, group_sizes, draws)
    urns = _tilted_on_host(
        tuple(map(tuple, torch.cat([odds, sizes, totals.unsqueeze(-1)], -1).tolist()))
    )
    if not urns.cells <= min(
        affordable, _MOST_CELLS
    ):  # so for NaN: an urn that is not valid has no tables
        return None
    together = groups > 1 and urns.outcomes <= min(_MOST_OUTCOMES, number / _DRAWS_PER_OUTCOME)
    as_chain = on_device is not None and groups <= _LONGEST_CHAIN
    shape = "outcomes" if together else "chain" if as_chain else "tree"
    build = _kept_table if urns.cells <= _CELLS_TO_KEEP else _kept_table.__wrapped__
    counts = torch.empty(number, len(urns.rows), groups, dtype=dtype, device=draws.device)
    per_piece = number if as_chain else elements_per_chunk(draws.device) // 4
    for row, own in zip(urns.rows, counts.unbind(1), strict=True):
        table = build(row, shape, dtype, draws.device)
        for piece in own.split(per_piece):
            table.fill(piece)
    return counts.reshape(number, *log_odds.shape)


def _as_rows(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    groups = log_odds.shape[-1]
    return log_odds.detach().reshape(-1, groups), group_sizes.reshape(-1, groups), draws.reshape(-1)


def _draw_kernels(device: torch.device) -> Any:
    """The module of kernels, or None where there are none."""
    if not kernels.has_kernels(device):
        return None
    from diffurn._kernels import sampling as draw_kernels

    return draw_kernels


class _HostUrn(NamedTuple):
    """A tilted urn in plain numbers."""

    log_odds: tuple[float, ...]
    group_sizes: tuple[float, ...]
    draws: float


class _HostUrns(NamedTuple):
    """A batch of them, and about how many cells and outcomes the largest has."""

    rows: tuple[_HostUrn, ...]
    cells: float
    outcomes: float


@lru_cache(maxsize=16)
def _tilted_on_host(urns: tuple[tuple[float, ...], ...]) -> _HostUrns:
    """From rows that hold the log-weights, then the group sizes, then the draws."""
    numbers = torch.tensor(urns, dtype=torch.float64, device="cpu").reshape(len(urns), -1)
    groups = numbers.shape[-1] // 2
    log_weights, group_sizes, draws = numbers[:, :groups], numbers[:, groups:-1], numbers[:, -1]
    never = log_weights == -torch.inf
    group_sizes = torch.where(never, 0.0, group_sizes)
    log_odds = torch.where(
        never, 0.0, log_weights + log_tilt(log_weights, group_sizes, draws).unsqueeze(-1)
    )
    rows = zip(log_odds.tolist(), group_sizes.tolist(), draws.tolist(), strict=True)
    found = tuple(_HostUrn(tuple(odds), tuple(sizes), total) for odds, sizes, total in rows)
    return _HostUrns(
        found,
        _table_cells(log_odds, group_sizes),
        _most_outcomes(log_odds, group_sizes) if found else 0.0,
    )


@lru_cache(maxsize=4)
def _kept_table(urn: _HostUrn, shape: str, dtype: torch.dtype, device: torch.device) -> Any:
    """For kernels filled on the host, where many small steps cost least."""
    odds, sizes, total = (torch.tensor(values, dtype=torch.float64, device="cpu") for values in urn)
    on_device = _draw_kernels(device)
    if shape == "chain":
        return on_device.ChainOnDevice.of(Tree.build(odds, sizes, total, chain=True), device)
    if shape == "outcomes" and on_device is not None:
        return on_device.OutcomesOnDevice.of(Outcomes.build(odds, sizes, total, dtype), device)
    if shape == "outcomes":
        return Outcomes.build(odds.to(device), sizes.to(device), total.to(device), dtype)
    return Tree.build(odds.to(device), sizes.to(device), total.to(device))


def _table_cells(log_odds: Tensor, group_sizes: Tensor) -> float:
    """About how many cells the tables of the largest urn have: at every split, likely totals times
    likely left parts.
    """
    variance, sizes = binomial_variance(group_sizes, log_odds), group_sizes
    cells = torch.zeros_like(variance[:, 0])
    while variance.shape[-1] > 1:
        odd = variance.shape[-1] % 2
        widths = torch.minimum(2 * half_width(variance), sizes) + 1
        variance, sizes = (
            torch.nn.functional.pad(values, (0, odd)).unflatten(-1, (-1, 2)).sum(-1)
            for values in (variance, sizes)
        )
        rows = (
            torch.minimum(2 * half_width(variance), sizes) + 1
            if variance.shape[-1] > 1
            else torch.ones_like(variance)
        )
        cells = cells + (rows * widths[:, ::2]).sum(-1)
    return math.inf if not len(cells) else float(cells.max())


def _most_outcomes(log_odds: Tensor, group_sizes: Tensor) -> float:
    """About how many outcomes the largest urn has, all groups but the widest taking any of their
    likely counts.
    """
    widths = (
        torch.minimum(2 * half_width(binomial_variance(group_sizes, log_odds)), group_sizes) + 1
    )
    return float(widths.sort(-1).values[:, :-1].log().sum(-1).max().exp())
