"""Triton kernels for small urns of two groups: a draw in one launch, the slope of the mean in
another.
"""

# Kernels are a language of their own, which type checkers cannot read; they may also lack triton.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False, warn-return-any=False
# mypy: disable-error-code="arg-type, assignment, call-arg, misc, import-not-found, import-untyped, operator"

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from diffurn._fisher.constants import IMPOSSIBLE
from diffurn._fisher.tabulated import product_of_pair
from diffurn._kernels.dispatch import replaces
from diffurn._kernels.sampling import _philox, _uniform, new_seed
from diffurn._numerics.batching import common_shape

# Entries of tables that a program holds, four for a thread.
ENTRIES = 128

NOT_POSSIBLE = tl.constexpr(IMPOSSIBLE)


@triton.jit
def _law(log_weights, pair, counts, urn, exists, width, stride, W: tl.constexpr):
    """The probabilities of the first group's counts, these counts, and the sure one among them, if
    there is one.
    """
    column = tl.arange(0, W)
    count = tl.load(counts + column, mask=column < width, other=0.0)[None, :]
    place = urn[:, None] * stride + column[None, :]
    ways = tl.load(
        pair + place, mask=exists[:, None] & (column < width)[None, :], other=NOT_POSSIBLE
    )
    ratio = tl.load(log_weights + 2 * urn, mask=exists, other=0.0) - tl.load(
        log_weights + 2 * urn + 1, mask=exists, other=0.0
    )
    possible = ways > 0.5 * NOT_POSSIBLE
    most, fewest = (
        tl.max(tl.where(possible, count, -1.0), 1),
        tl.min(tl.where(possible, count, 1e300), 1),
    )
    centre = tl.where(ratio > 0.0, most, fewest)[:, None]
    log_weight = tl.where(possible, ways + (count - centre) * ratio[:, None], NOT_POSSIBLE)
    weight = tl.exp(log_weight - tl.max(log_weight, 1)[:, None])
    return weight / tl.sum(weight, 1)[:, None], count, centre


@triton.jit
def _draw_kernel(
    seed,
    log_weights,
    pair,
    counts,
    draws,
    drawn,
    rows,
    urns,
    width,
    stride,
    draws_stride,
    ROWS: tl.constexpr,
    W: tl.constexpr,
):
    """By inversion; never a count without probability, whatever rounding does to the sum."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists, urn = row < rows, row % urns
    probability, count, _ = _law(log_weights, pair, counts, urn, exists, width, stride, W)
    high, low, _, _ = _philox(tl.load(seed), row, row * 0, row * 0)
    cumulative = tl.cumsum(probability, 1)
    reached = cumulative >= (tl.max(cumulative, 1) * (1.0 - _uniform(high, low)))[:, None]
    column = tl.arange(0, W)[None, :]
    first, last = (
        tl.min(tl.where(reached & (probability > 0.0), column, W), 1),
        tl.max(tl.where(probability > 0.0, column, 0), 1),
    )
    own = tl.sum(tl.where(column == tl.minimum(first, last)[:, None], count, 0.0), 1)
    total = tl.sum(probability, 1)
    own = tl.where(total == total, own, total)  # NaN for weights that are none
    tl.store(drawn + 2 * row, own, mask=exists)
    tl.store(
        drawn + 2 * row + 1,
        tl.load(draws + urn * draws_stride, mask=exists, other=0.0) - own,
        mask=exists,
    )


@triton.jit
def _product_kernel(
    log_weights,
    pair,
    counts,
    vectors,
    values,
    rows,
    width,
    stride,
    ROWS: tl.constexpr,
    W: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = row < rows
    probability, count, centre = _law(log_weights, pair, counts, row, exists, width, stride, W)
    deviation = count - centre
    distance = deviation - tl.sum(probability * deviation, 1)[:, None]
    difference = tl.load(vectors + 2 * row, mask=exists, other=0.0) - tl.load(
        vectors + 2 * row + 1, mask=exists, other=0.0
    )
    product = tl.sum(probability * distance * distance, 1) * difference
    tl.store(values + 2 * row, product, mask=exists)
    tl.store(values + 2 * row + 1, -product, mask=exists)


@cache
def _tile(width: int, entries: int) -> dict[str, int]:
    padded = triton.next_power_of_2(width)
    return {
        "W": padded,
        "ROWS": max(1, entries // padded),
        "num_warps": max(1, min(8, padded // entries)),
    }


def _launch(kernel: Any, rows: int, width: int, *arguments: Any) -> None:
    tile = _tile(width, ENTRIES)
    if rows:
        with torch.cuda.device_of(arguments[0]):
            kernel[(-(-rows // tile["ROWS"]),)](*arguments, **tile)


def sample(log_weights: Tensor, pair: Tensor, counts: Tensor, draws: Tensor, number: int) -> Tensor:
    """`number` draws of each urn, ``(number, ..., 2)``; see `pair.covariance_product` for the first
    three.
    """
    batch, width = log_weights.shape[:-1], pair.shape[-1]
    pair, draws = pair.expand(*batch, width).reshape(-1, width), draws.expand(batch).reshape(-1)
    drawn = log_weights.new_empty(number, *log_weights.shape)
    arguments = (
        log_weights.detach().contiguous(),
        pair,
        counts,
        draws,
        drawn,
        number * len(draws),
        max(1, len(draws)),
    )
    _launch(
        _draw_kernel,
        number * len(draws),
        width,
        new_seed(drawn.device),
        *arguments,
        width,
        pair.stride(0),
        draws.stride(0),
    )
    return drawn


@replaces(product_of_pair)
def covariance_product(log_weights: Tensor, pair: Tensor, counts: Tensor, vector: Tensor) -> Tensor:
    batch, width = common_shape((log_weights.shape[:-1], vector.shape[:-1])), pair.shape[-1]
    pair = pair.expand(*batch, width).reshape(-1, width)
    log_weights, vector = (
        values.detach().expand(*batch, 2).contiguous() for values in (log_weights, vector)
    )
    values = torch.empty_like(log_weights)
    _launch(
        _product_kernel,
        len(pair),
        width,
        log_weights,
        pair,
        counts,
        vector,
        values,
        len(pair),
        width,
        pair.stride(0),
    )
    return values
