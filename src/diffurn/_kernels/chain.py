r"""Triton kernels for the Gumbel-Softmax chain: all groups of a draw in one launch, and its gradient.

A row is one draw of one urn. A program draws the groups of its rows one after another. The gradient
needs few numbers of each step: how the relaxed count changes with the log-odds and with the draws
left. The draw stores them if it is asked to.
"""

# Type checkers cannot read Triton's language, and Triton may not be installed.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False, warn-return-any=False
# mypy: disable-error-code="arg-type, assignment, call-arg, misc, import-not-found, import-untyped, operator"

from __future__ import annotations

import struct
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op

from diffurn._fisher.accuracy import NODES, WINDOW_NATS
from diffurn._kernels.chain_steps import _exact_step, _gumbel, _pair_step
from diffurn._kernels.dispatch import is_eager
from diffurn._kernels.fisher import MOST_GROUPS, _tile
from diffurn._kernels.sampling import new_seed
from diffurn._kernels.shared import log1p

# The rows of a program, and the counts of a block.
OF_MERGED = {"ROWS": 1, "BLOCK": 64, "num_warps": 1}
# Blocks are tiles of counts × nodes, and sums over later groups are tiles of groups × nodes.
OF_EXACT = {"BLOCK": 32, "GROUPS": 16, "T": triton.next_power_of_2(NODES[2]), "num_warps": 4}
OF_MERGED_SLOPES = {"ROWS": 32, "num_warps": 1}
OF_NOISE = {"BLOCK": 256, "num_warps": 4}
OF_EXACT_SLOPES = {"GROUPS": 64, "num_warps": 2}

NATS_AT_ONE = tl.constexpr(WINDOW_NATS)


# --------------------------------------------------------------------------------------------------
# The chain of merged laws
# --------------------------------------------------------------------------------------------------


@triton.jit
def _log_balls(weight, size):
    """log m ω, or -inf for an empty group."""
    return tl.where(size > 0.0, weight + tl.log(tl.maximum(size, 1.0)), -float("inf"))


@triton.jit
def _log_sum(a, b):
    """log(e^a + e^b)."""
    high = tl.maximum(a, b)
    far = tl.abs(tl.where(high > -float("inf"), a - b, 0.0))
    return tl.where(high > -float("inf"), high + log1p(tl.exp(-far)), high)


@triton.jit(do_not_specialize=["temperature"])
def _merged_kernel(
    seed, log_weights, group_sizes, draws, counts, through, jacobian, rows, urns, groups, temperature,
    HARD: tl.constexpr, SLOPES: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Draws of the paper's chain, where all later groups are merged into one.

    `jacobian` has two rows for each draw: the slopes in the log-odds, and log Σ m ω of each group
    and all later ones.
    """
    tau = temperature.to(tl.float64, bitcast=True)
    nats = NATS_AT_ONE * tl.maximum(tau, 1.0)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    key, exists, urn = tl.load(seed), row < rows, row % urns
    first, place_of = urn * groups, row * groups
    in_odds = jacobian + 2 * place_of
    suffix = in_odds + groups

    joint, balls = tl.full((ROWS,), -float("inf"), tl.float64), tl.zeros((ROWS,), tl.float64)
    place = groups - 1
    while place >= 0:
        weight = tl.load(log_weights + first + place, mask=exists, other=0.0)
        size = tl.load(group_sizes + first + place, mask=exists, other=0.0)
        joint, balls = _log_sum(joint, _log_balls(weight, size)), balls + size
        tl.store(suffix + place, joint, mask=exists)
        place -= 1
    tl.debug_barrier()  # other threads read what one has written

    drawn = tl.load(draws + urn, mask=exists, other=0.0)
    n = tl.where(drawn == drawn, drawn, 0.0)
    left = drawn
    place = 0
    while place < groups - 1:
        weight = tl.load(log_weights + first + place, mask=exists, other=0.0)
        size = tl.load(group_sizes + first + place, mask=exists, other=0.0)
        balls -= size
        of_later = tl.load(suffix + place + 1, mask=exists, other=0.0)
        ratio = tl.where(balls > 0.0, weight - of_later + tl.log(tl.maximum(balls, 1.0)), 0.0)
        hard, soft, in_ratio, in_left = _pair_step(
            key, row, place, size, balls, n, ratio, nats, tau, SLOPES or not HARD, BLOCK
        )
        count = hard if HARD else soft
        tl.store(counts + place_of + place, tl.where(drawn == drawn, count, drawn), mask=exists)
        if SLOPES:
            tl.store(in_odds + place, in_ratio, mask=exists)
            tl.store(through + place_of + place, in_left, mask=exists)
        left, n = left - count, n - hard
        place += 1
    tl.store(counts + place_of + groups - 1, left, mask=exists)


@triton.jit
def _merged_slopes_kernel(
    vectors, through, jacobian, log_weights, group_sizes, values, rows, urns, groups,
    THROUGH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Vectors times the derivatives of the counts in the log-weights."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists, first, place_of = row < rows, (row % urns) * groups, row * groups
    suffix = jacobian + 2 * place_of + groups

    # From the last group to the first: `of_left` is the derivative in the draws left.
    of_left = tl.load(vectors + place_of + groups - 1, mask=exists, other=0.0)
    tl.store(values + place_of + groups - 1, of_left * 0.0, mask=exists)
    place = groups - 2
    while place >= 0:
        of_count = tl.load(vectors + place_of + place, mask=exists, other=0.0) - of_left
        in_ratio = tl.load(jacobian + 2 * place_of + place, mask=exists, other=0.0)
        tl.store(values + place_of + place, of_count * in_ratio, mask=exists)
        if THROUGH:
            of_left += of_count * tl.load(through + place_of + place, mask=exists, other=0.0)
        place -= 1
    tl.debug_barrier()

    # A group is part of the merged weight of each group before it, with its share m ω / Σ m ω.
    before = tl.zeros((ROWS,), tl.float64)
    joint = tl.load(suffix, mask=exists, other=0.0)
    place = 0
    while place < groups:
        weight = tl.load(log_weights + first + place, mask=exists, other=0.0)
        size = tl.load(group_sizes + first + place, mask=exists, other=0.0)
        own = tl.load(values + place_of + place, mask=exists, other=0.0)
        share = tl.where(size > 0.0, tl.exp(_log_balls(weight, size) - joint), 0.0)
        tl.store(values + place_of + place, own - before * share, mask=exists)
        later = tl.load(suffix + place + 1, mask=exists & (place < groups - 1), other=0.0)
        kept = tl.where(later > -float("inf"), tl.exp(tl.minimum(later - joint, 0.0)), 0.0)
        before, joint = before * kept + own, later
        place += 1


# --------------------------------------------------------------------------------------------------
# The chain of exact laws
# --------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["temperature"])
def _exact_kernel(
    seed, log_weights, group_sizes, draws, counts, through, jacobian, rows, urns, groups, temperature,
    HARD: tl.constexpr, SLOPES: tl.constexpr, BLOCK: tl.constexpr, GROUPS: tl.constexpr,
    T: tl.constexpr, TILTED: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Draws of the chain of exact conditional laws, one for each program.

    `jacobian` has a matrix for each draw: the slopes of each count but the last in the log-odds of
    its own group and of all later ones.
    """
    tau = temperature.to(tl.float64, bitcast=True)
    nats = NATS_AT_ONE * tl.maximum(tau, 1.0)
    row, key = tl.program_id(0).to(tl.int64), tl.load(seed)
    urn = row % urns
    log_weights += urn * groups
    group_sizes += urn * groups
    counts += row * groups
    through += row * groups
    if SLOPES:
        jacobian += row * groups * (groups - 1)
    drawn = tl.load(draws + urn)
    n = tl.where(drawn == drawn, drawn, 0.0)
    left = drawn
    place = 0
    while place < groups - 2:
        hard, soft, in_left = _exact_step(
            key, row, place, log_weights + place, group_sizes + place,
            jacobian + place * (groups + 1), groups - place, n, nats, tau,
            SLOPES or not HARD, SLOPES, BLOCK, GROUPS, T, TILTED, TILES,
        )  # fmt: skip
        count = hard if HARD else soft
        tl.store(counts + place, tl.where(drawn == drawn, count, drawn))
        if SLOPES:
            tl.store(through + place, in_left)
        left, n = left - count, n - hard
        place += 1

    place, one_row = groups - 2, tl.zeros((1,), tl.float64)
    ratio = tl.load(log_weights + place) - tl.load(log_weights + place + 1)
    hard, soft, in_ratio, in_left = _pair_step(
        key, row + one_row.to(tl.int64), place, one_row + tl.load(group_sizes + place),
        one_row + tl.load(group_sizes + place + 1), one_row + n, one_row + ratio, nats, tau,
        SLOPES or not HARD, 4 * BLOCK,
    )  # fmt: skip
    count = tl.sum(hard if HARD else soft)
    tl.store(counts + place, tl.where(drawn == drawn, count, drawn))
    tl.store(counts + place + 1, left - count)
    if SLOPES:
        in_odds = jacobian + place * (groups + 1)
        tl.store(in_odds, tl.sum(in_ratio))
        tl.store(in_odds + 1, -tl.sum(in_ratio))
        tl.store(through + place, tl.sum(in_left))


@triton.jit
def _exact_slopes_kernel(
    vectors, through, jacobian, values, scratch, groups,
    THROUGH: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Vectors times the derivatives of the counts in the log-weights, one row for each program."""
    row = tl.program_id(0).to(tl.int64)
    vectors += row * groups
    through += row * groups
    scratch += row * groups
    jacobian += row * groups * (groups - 1)
    of_left = tl.load(vectors + groups - 1)
    place = groups - 2
    while place >= 0:
        of_count = tl.load(vectors + place) - of_left
        tl.store(scratch + place, of_count)
        if THROUGH:
            of_left += of_count * tl.load(through + place)
        place -= 1
    tl.debug_barrier()
    tile = 0
    while tile < (groups + GROUPS - 1) // GROUPS:
        j = tile * GROUPS + tl.arange(0, GROUPS)
        value = tl.zeros((GROUPS,), tl.float64)
        place = 0
        while place < groups - 1:
            slope = tl.load(
                jacobian + place * groups + j, mask=(j >= place) & (j < groups), other=0.0
            )
            value += tl.load(scratch + place) * slope
            place += 1
        tl.store(values + row * groups + j, value, mask=j < groups)
        tile += 1


@triton.jit
def _noise_kernel(seed, lowest, values, number, width, place, BLOCK: tl.constexpr):
    """The noise of the kernels above, for PyTorch's operations."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists, row = i < number, i // width
    count = tl.load(lowest + row, mask=exists, other=0.0) + (i % width).to(tl.float64)
    tl.store(values + i, _gumbel(tl.load(seed), row, place, count), mask=exists)


# --------------------------------------------------------------------------------------------------
# Launches
# --------------------------------------------------------------------------------------------------


def _launch(kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
    if programs:
        with torch.cuda.device_of(arguments[0]):
            kernel[(programs,)](*arguments, **constants)


def _bits(number: float) -> int:
    """The bits of a float64 number; Triton would round a float to float32."""
    bits: int = struct.unpack("q", struct.pack("d", number))[0]
    return bits


def _draw(
    log_weights: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    seed: Tensor,
    number: int,
    merged: bool,
    hard: bool,
    slopes: bool,
    temperature: float,
) -> tuple[Tensor, Tensor, Tensor]:
    results = _new_chain(
        log_weights, group_sizes, draws, seed, number, merged, hard, slopes, temperature
    )
    urns, groups = log_weights.shape
    sizes = (number * urns, max(1, urns), groups, _bits(temperature))
    operands = (seed, log_weights, group_sizes, draws, *results, *sizes)
    constants = {"HARD": hard, "SLOPES": slopes}
    if merged:
        programs = -(-number * urns // OF_MERGED["ROWS"])
        _launch(_merged_kernel, programs, *operands, **constants, **OF_MERGED)
    else:
        tile = _tile(groups, MOST_GROUPS["tilt"])
        tilted = {"TILTED": tile["GROUPS"], "TILES": tile["TILES"]}
        _launch(_exact_kernel, number * urns, *operands, **constants, **OF_EXACT, **tilted)
    return results


def _new_chain(
    log_weights: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    seed: Tensor,
    number: int,
    merged: bool,
    hard: bool,
    slopes: bool,
    temperature: float,
) -> tuple[Tensor, Tensor, Tensor]:
    urns, groups = log_weights.shape
    shape = number, urns, groups
    stored = shape if slopes else (0,)
    rows = 2 if merged else (groups - 1 if slopes else 0)
    return (
        log_weights.new_empty(shape),
        log_weights.new_empty(stored),
        log_weights.new_empty(number, urns, rows, groups),
    )


_draw_operator = custom_op("diffurn::draw_chain", _draw, mutates_args=())
_draw_operator.register_fake(_new_chain)


def draw_chain(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """`number` draws of the chain for each row of log-weights ``(B, c)``, c ≥ 2.

    The arguments are those of `_draw`. Returns counts ``(number, B, c)``, and with `slopes` two
    tensors for `chain_product`.
    """
    draw = _draw if is_eager() else _draw_operator  # a custom operator costs time itself
    results: tuple[Tensor, Tensor, Tensor] = draw(*arguments)
    return results


def _product(
    vectors: Tensor,
    through: Tensor,
    jacobian: Tensor,
    log_weights: Tensor,
    group_sizes: Tensor,
    merged: bool,
    through_draws_left: bool,
) -> Tensor:
    values = torch.empty_like(vectors)
    number, urns, groups = vectors.shape
    if merged:
        programs = -(-number * urns // OF_MERGED_SLOPES["ROWS"])
        sizes = number * urns, max(1, urns), groups
        operands = vectors, through, jacobian, log_weights, group_sizes, values, *sizes
        _launch(
            _merged_slopes_kernel,
            programs,
            *operands,
            THROUGH=through_draws_left,
            **OF_MERGED_SLOPES,
        )
    else:
        operands = vectors, through, jacobian, values, torch.empty_like(vectors), groups
        constants = {"THROUGH": through_draws_left, **OF_EXACT_SLOPES}
        _launch(_exact_slopes_kernel, number * urns, *operands, **constants)
    return values


def _new_product(
    vectors: Tensor,
    through: Tensor,
    jacobian: Tensor,
    log_weights: Tensor,
    group_sizes: Tensor,
    merged: bool,
    through_draws_left: bool,
) -> Tensor:
    return torch.empty_like(vectors)


_product_operator = custom_op("diffurn::chain_product", _product, mutates_args=())
_product_operator.register_fake(_new_product)


def chain_product(*arguments: Any) -> Tensor:
    """Vectors ``(number, B, c)`` times the derivatives of the counts in the log-weights.

    The arguments are those of `_product`.
    """
    product: Tensor = (_product if is_eager() else _product_operator)(*arguments)
    return product


def noise(seed: Tensor, place: int, lowest: Tensor, width: int) -> Tensor:
    """The noise ``(R, W)`` of the counts from `lowest` on of the group at a place in the chain."""
    values = lowest.new_empty(len(lowest), width)
    programs = -(-values.numel() // OF_NOISE["BLOCK"])
    _launch(_noise_kernel, programs, seed, lowest, values, values.numel(), width, place, **OF_NOISE)
    return values


__all__ = ["chain_product", "draw_chain", "new_seed", "noise"]
