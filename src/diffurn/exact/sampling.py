"""Exact draws: which sampler to use."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from diffurn.exact.binomial import binomial_variance
from diffurn.exact.chunks import elements_per_chunk
from diffurn.exact.quadrature import half_width
from diffurn.exact.rejection import draw_by_rejection
from diffurn.exact.tracing import can_check
from diffurn.exact.tree import Outcomes, Tree

_HAS_TRITON = find_spec("triton") is not None

# Whether tables pay must not depend on the calls before, or seeds would not decide draws. In the time that rejection proposes one count,
# about three cells are filled, but a hundredth if kernels of our own propose; setting up a split costs as much as five thousand.
_CELLS_PER_PROPOSED_COUNT = 3.0
_CELLS_PER_COUNT_OF_KERNELS = 0.01
_CELLS_PER_SPLIT = 5000
_MOST_CELLS = 1 << 22
# One table of all outcomes instead of a tree: while it fits the cache, and for this many draws per outcome.
_MOST_OUTCOMES = 1 << 16
_DRAWS_PER_OUTCOME = 8
# Kernels walk a chain, whose cells grow like c^1.5; from here on the balanced tree is better off without them.
_LONGEST_CHAIN = 64
# Tables up to this size, some ten megabytes, are kept for the next call.
_CELLS_TO_KEEP = 1 << 19


def sample(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, number: int, dtype: torch.dtype) -> Tensor:
    """`number` exact draws of every urn in the batch, shape ``(number, ..., c)``; expects tilted log-odds.

    Many draws of an urn come from tables (`tree`); one draw of each of many urns, and of populations too large for tables, from
    `rejection`, whose cost does not depend on the group sizes. On CUDA devices kernels do both where Triton is installed
    (`draw_kernels`); then one draw of each urn needs no look at any number from the host.
    """
    batch, groups = log_odds.shape[:-1], log_odds.shape[-1]
    urns = log_odds.detach().reshape(-1, groups), group_sizes.reshape(-1, groups), draws.reshape(-1)
    kernels = _kernels() if _has_kernels(draws.device) else None
    tables = _tables_that_pay(*urns, number, dtype, kernels)
    if tables is not None:
        counts = torch.empty(number, len(urns[2]), groups, dtype=dtype, device=draws.device)
        per_piece = elements_per_chunk(draws.device) // 4 if kernels is None or groups > _LONGEST_CHAIN else number
        for table, own in zip(tables, counts.unbind(1), strict=True):
            for piece in own.split(per_piece):
                _fill(table, piece)
    elif kernels is not None and groups <= kernels.MOST_GROUPS:
        counts = kernels.draw_each(*urns, number, dtype)
    else:
        rows = (operand.expand(number, *operand.shape).flatten(0, 1) for operand in urns)
        counts = draw_by_rejection(*rows).to(dtype)
    return counts.reshape(number, *batch, groups)


def _has_kernels(device: torch.device) -> bool:
    return _HAS_TRITON and device.type == "cuda"


def _kernels() -> Any:
    from diffurn.exact import draw_kernels

    return draw_kernels


def _fill(table: Any, counts: Tensor) -> None:
    if counts.is_contiguous():
        table.fill(counts)
    else:
        table.fill(drawn := torch.empty_like(counts, memory_format=torch.contiguous_format))
        counts.copy_(drawn)


def _tables_that_pay(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, number: int, dtype: torch.dtype, kernels: Any
) -> Iterator[Any] | None:
    """The tables of one urn after another, if filling them costs less than it saves."""
    groups = log_odds.shape[-1]
    cells_per_count = _CELLS_PER_PROPOSED_COUNT if kernels is None else _CELLS_PER_COUNT_OF_KERNELS
    affordable = cells_per_count * number * groups**1.5 - _CELLS_PER_SPLIT * groups
    if affordable <= 0 or not can_check():
        return None
    on_host = log_odds.cpu(), group_sizes.cpu(), draws.cpu()
    cells = _table_cells(*on_host[:2])
    if cells > min(affordable, _MOST_CELLS):
        return None
    together = groups > 1 and _most_outcomes(*on_host[:2]) <= min(_MOST_OUTCOMES, number / _DRAWS_PER_OUTCOME)
    shape = "outcomes" if together else "chain" if kernels is not None and groups <= _LONGEST_CHAIN else "tree"
    build = _kept_table if cells <= _CELLS_TO_KEEP else _kept_table.__wrapped__
    urns = zip(*(operand.tolist() for operand in on_host), strict=True)
    return (build(tuple(odds), tuple(sizes), total, shape, dtype, draws.device) for odds, sizes, total in urns)


@lru_cache(maxsize=4)
def _kept_table(
    log_odds: tuple[float, ...], group_sizes: tuple[float, ...], draws: float, shape: str, dtype: torch.dtype, device: torch.device
) -> Any:
    """Filled on the host, where many small steps cost least."""
    odds, sizes, total = (torch.tensor(values, dtype=torch.float64, device="cpu") for values in (log_odds, group_sizes, draws))
    if shape == "chain":
        return _kernels().ChainOnDevice.of(Tree.build(odds, sizes, total, chain=True), device)
    if shape == "outcomes" and _has_kernels(device):
        return _kernels().OutcomesOnDevice.of(Outcomes.build(odds, sizes, total, dtype), device)
    if shape == "outcomes":
        return Outcomes.build(odds.to(device), sizes.to(device), total.to(device), dtype)
    return Tree.build(odds.to(device), sizes.to(device), total.to(device))


def _table_cells(log_odds: Tensor, group_sizes: Tensor) -> float:
    """About how many cells the tables of the largest urn have: at every split, likely totals times likely left parts."""
    variance, sizes = binomial_variance(group_sizes, log_odds), group_sizes
    cells = torch.zeros_like(variance[:, 0])
    while variance.shape[-1] > 1:
        odd = variance.shape[-1] % 2
        widths = torch.minimum(2 * half_width(variance), sizes) + 1
        variance, sizes = (torch.nn.functional.pad(values, (0, odd)).unflatten(-1, (-1, 2)).sum(-1) for values in (variance, sizes))
        rows = torch.minimum(2 * half_width(variance), sizes) + 1 if variance.shape[-1] > 1 else torch.ones_like(variance)
        cells = cells + (rows * widths[:, ::2]).sum(-1)
    return math.inf if not len(cells) else float(cells.max())


def _most_outcomes(log_odds: Tensor, group_sizes: Tensor) -> float:
    """About how many outcomes the largest urn has, all groups but the widest taking any of their likely counts."""
    widths = torch.minimum(2 * half_width(binomial_variance(group_sizes, log_odds)), group_sizes) + 1
    return float(widths.sort(-1).values[:, :-1].log().sum(-1).max().exp())
