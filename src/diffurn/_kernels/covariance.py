r"""Triton kernels for the covariance of Fisher's law times a vector, and for variances.

An urn of few groups is one program. One of many groups is several programs, each with a block of
groups, in three launches: the factors of φ, the sums over groups, and the products. What a program
found is passed on in memory.
"""

# Type checkers cannot read Triton's language, and Triton may not be installed.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False, warn-return-any=False
# mypy: disable-error-code="arg-type, assignment, call-arg, misc, import-not-found, import-untyped, operator"

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from diffurn._fisher import moments
from diffurn._kernels.dispatch import replaces
from diffurn._kernels.fisher import (
    _facts,
    _grid,
    _groups,
    _slopes,
    _turns,
    centring_tilt,
    flattened,
    quadrature_tile,
)

# The most blocks of an urn. Every program reads all groups once, and what all blocks have found.
MOST_BLOCKS = tl.constexpr(32)
# The groups of a tile where no nodes are needed.
WIDE = 1024
# The numbers that blocks pass on: the facts of an urn, and for each block and node the factor of φ,
# two numbers, and four sums.
FACTS, PASSED = tl.constexpr(8), tl.constexpr(6)
# The most numbers that are passed on at once, 32 MiB; more rows are done one after another.
MOST_PASSED = 1 << 22


# --------------------------------------------------------------------------------------------------
# Parts of the calculation, for a block of tiles
# --------------------------------------------------------------------------------------------------


@triton.jit
def _times(a, b, c, d):
    """(a + ib)(c + id)."""
    return a * c - b * d, a * d + b * c


@triton.jit
def _widest(log_odds, group_sizes, tilt, groups, GROUPS: tl.constexpr, TILES: tl.constexpr):
    """The group of the largest variance."""
    widest, largest = tl.zeros((GROUPS,), tl.int32), tl.full((GROUPS,), -1.0, tl.float64)
    for tile in range(TILES):
        j = tile * GROUPS + tl.arange(0, GROUPS)
        p, q, size = _groups(log_odds, group_sizes, tilt, j, groups)
        variance = size * p * q
        widest = tl.where(variance > largest, j, widest)
        largest = tl.maximum(largest, variance)
    is_best = tl.arange(0, GROUPS) == tl.argmax(largest, 0)
    return tl.sum(tl.where(is_best, widest, 0))


@triton.jit
def _factor(
    log_odds, group_sizes, tilt, groups, first, theta, sine, half_sine_squared,
    SINGLE: tl.constexpr, GROUPS: tl.constexpr, TILES: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """The factor of φ that a block of tiles from the group `first` on has: its log-modulus and
    angle; with SINGLE, real and imaginary part.

    With SINGLE, no group has more than one ball, and φ is a product of one factor for each group,
    which takes a tenth of the operations of logarithms and angles.
    """
    # Sums over groups stay in registers, one for each place of a tile, until the last tile.
    if SINGLE:
        real, imaginary = tl.full((GROUPS, T), 1.0, tl.float64), tl.zeros((GROUPS, T), tl.float64)
        for tile in range(TILES):
            j = first + tile * GROUPS + tl.arange(0, GROUPS)
            p, q, size = _groups(log_odds, group_sizes, tilt, j, groups)
            rarer = (size * tl.minimum(p, q))[:, None]
            signed = tl.where((p > q)[:, None], -rarer, rarer)
            step = 1.0 - 2.0 * rarer * half_sine_squared[None, :]
            real, imaginary = _times(real, imaginary, step, signed * sine[None, :])
        real, imaginary = tl.reduce((real, imaginary), 0, _times)
        return real, imaginary
    return _turns(
        log_odds, group_sizes, tilt, groups, first, TILES, theta, sine, half_sine_squared, GROUPS, T
    )


@triton.jit
def _measure(weight, theta, exceptions, surplus, a, b, SINGLE: tl.constexpr):
    """ζ on the nodes, real and imaginary part, from the factor of φ that all groups have.

    The surplus are the balls more often drawn than not, minus n.
    """
    if SINGLE:
        phase = surplus * theta
        real, imaginary = _times(a, b, weight * tl.cos(phase), weight * tl.sin(phase))
    else:
        phase, amplitude = (exceptions + surplus) * theta + b, weight * tl.exp(a)
        real, imaginary = amplitude * tl.cos(phase), amplitude * tl.sin(phase)
    mass = tl.sum(real)
    return real / mass, imaginary / mass


@triton.jit
def _fluctuations(log_odds, group_sizes, tilt, j, groups, zr, zi, sine, half_sine_squared):
    """x_j = m_j p_j q_j (δ_j - b_j) on the nodes, where b_j is the average of δ_j under ζ."""
    p, q, size = _groups(log_odds, group_sizes, tilt, j, groups)
    dr, di = _slopes(p, q, sine, half_sine_squared)
    b, variance = tl.sum(zr[None, :] * dr - zi[None, :] * di, 1)[:, None], (size * p * q)[:, None]
    return variance * (dr - b), variance * di


@triton.jit
def _sums(
    log_odds, group_sizes, tilt, groups, first, vectors, widest, zr, zi, sine, half_sine_squared,
    VARIANCE: tl.constexpr, GROUPS: tl.constexpr, TILES: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """Σ x_j and Σ u_j x_j over a block without the widest group: real and imaginary parts."""
    nothing = tl.zeros((GROUPS, T), tl.float64)
    sum_r, sum_i, sum_ur, sum_ui = nothing, nothing, nothing, nothing
    for tile in range(TILES):
        j = first + tile * GROUPS + tl.arange(0, GROUPS)
        xr, xi = _fluctuations(
            log_odds, group_sizes, tilt, j, groups, zr, zi, sine, half_sine_squared
        )
        narrow = (j != widest)[:, None]
        xr, xi = tl.where(narrow, xr, 0.0), tl.where(narrow, xi, 0.0)
        sum_r += xr
        sum_i += xi
        if not VARIANCE:
            u = tl.load(vectors + j, mask=j < groups, other=0.0).to(tl.float64)[:, None]
            sum_ur += u * xr
            sum_ui += u * xi
    return tl.sum(sum_r, 0), tl.sum(sum_i, 0), tl.sum(sum_ur, 0), tl.sum(sum_ui, 0)


@triton.jit
def _store_products(
    log_odds, group_sizes, tilt, groups, first, vectors, values, widest, certain,
    zr, zi, sine, half_sine_squared, sum_r, sum_i, sum_ur, sum_ui,
    VARIANCE: tl.constexpr, GROUPS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """The product Σ_{j≠i} Cov_ij (u_j - u_i) of a block, where Cov_ij = Σ ζ x_i x_j.

    The sum over all groups but i is the sum over all groups but the widest, minus the term of i,
    plus the term of the widest group. So the subtracted term is never larger than the result. The
    variance of group i is minus the product for u = 1 in place i and 0 elsewhere.
    """
    wr, wi = _fluctuations(
        log_odds, group_sizes, tilt, widest + tl.arange(0, 1), groups, zr, zi, sine,
        half_sine_squared,
    )  # fmt: skip
    for tile in range(TILES):
        j = first + tile * GROUPS + tl.arange(0, GROUPS)
        xr, xi = _fluctuations(
            log_odds, group_sizes, tilt, j, groups, zr, zi, sine, half_sine_squared
        )
        narrow = (j != widest)[:, None]
        other_r = sum_r[None, :] + tl.where(narrow, wr - xr, 0.0)
        other_i = sum_i[None, :] + tl.where(narrow, wi - xi, 0.0)
        if not VARIANCE:
            u = tl.load(vectors + j, mask=j < groups, other=0.0).to(tl.float64)[:, None]
            widest_u = tl.load(vectors + widest).to(tl.float64)
            other_r = sum_ur[None, :] + tl.where(narrow, widest_u * wr - u * xr, 0.0) - u * other_r
            other_i = sum_ui[None, :] + tl.where(narrow, widest_u * wi - u * xi, 0.0) - u * other_i
        product = tl.sum(
            zr[None, :] * (xr * other_r - xi * other_i)
            - zi[None, :] * (xr * other_i + xi * other_r),
            1,
        )
        product = tl.where(certain, 0.0, -product if VARIANCE else product)
        tl.store(values + j, product.to(values.dtype.element_ty), mask=j < groups)


# --------------------------------------------------------------------------------------------------
# One program for an urn of one tile
# --------------------------------------------------------------------------------------------------


@triton.jit
def _short_kernel(
    log_odds, group_sizes, draws, tilts, vectors, values, groups,
    VARIANCE: tl.constexpr, SINGLE: tl.constexpr, GROUPS: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    log_odds += row * groups
    group_sizes += row * groups
    vectors += row * groups
    values += row * groups
    tilt, n = tl.load(tilts + row), tl.load(draws + row)
    variance, exceptions, drawn_often, balls = _facts(
        log_odds, group_sizes, tilt, groups, 1, GROUPS
    )
    weight, theta, sine, half_sine_squared = _grid(variance, 1, T)
    a, b = _factor(
        log_odds, group_sizes, tilt, groups, 0, theta, sine, half_sine_squared,
        SINGLE, GROUPS, 1, T,
    )  # fmt: skip
    zr, zi = _measure(weight, theta, exceptions, drawn_often - n, a, b, SINGLE)
    widest = _widest(log_odds, group_sizes, tilt, groups, GROUPS, 1)
    sum_r, sum_i, sum_ur, sum_ui = _sums(
        log_odds, group_sizes, tilt, groups, 0, vectors, widest, zr, zi, sine, half_sine_squared,
        VARIANCE, GROUPS, 1, T,
    )  # fmt: skip
    _store_products(
        log_odds, group_sizes, tilt, groups, 0, vectors, values, widest, (n <= 0.0) | (n >= balls),
        zr, zi, sine, half_sine_squared, sum_r, sum_i, sum_ur, sum_ui, VARIANCE, GROUPS, 1,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------
# Several programs for an urn of many groups
# --------------------------------------------------------------------------------------------------


@triton.jit
def _program(passed, start, BLOCKS: tl.constexpr, T: tl.constexpr):
    """The row and the block of a program, and where the blocks of its row pass on numbers."""
    place = tl.program_id(0).to(tl.int64)
    return start + place, tl.program_id(1), passed + place * (FACTS + BLOCKS * PASSED * T)


@triton.jit
def _of_blocks(passed, number, nothing, BLOCKS: tl.constexpr, T: tl.constexpr):
    """One of the numbers of all blocks on the nodes; `nothing` for blocks that do not exist."""
    block = tl.arange(0, MOST_BLOCKS)[:, None]
    place = passed + FACTS + (block * PASSED + number) * T + tl.arange(0, T)[None, :]
    return tl.load(place, mask=block < BLOCKS, other=nothing)


@triton.jit
def _factors_kernel(
    log_odds, group_sizes, tilts, passed, start, groups,
    SINGLE: tl.constexpr, WIDE: tl.constexpr, WIDES: tl.constexpr,
    GROUPS: tl.constexpr, TILES: tl.constexpr, BLOCKS: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """Passes on the facts of an urn, and the factor of φ of a block."""
    row, block, passed = _program(passed, start, BLOCKS, T)
    log_odds += row * groups
    group_sizes += row * groups
    tilt = tl.load(tilts + row)
    variance, exceptions, drawn_often, balls = _facts(
        log_odds, group_sizes, tilt, groups, WIDES, WIDE
    )
    if block == 0:
        widest = _widest(log_odds, group_sizes, tilt, groups, WIDE, WIDES)
        tl.store(passed, variance)
        tl.store(passed + 1, exceptions)
        tl.store(passed + 2, drawn_often)
        tl.store(passed + 3, balls)
        tl.store(passed + 4, widest.to(tl.float64))
    _, theta, sine, half_sine_squared = _grid(variance, 1, T)
    a, b = _factor(
        log_odds, group_sizes, tilt, groups, block * TILES * GROUPS, theta, sine,
        half_sine_squared, SINGLE, GROUPS, TILES, T,
    )  # fmt: skip
    place = passed + FACTS + block * PASSED * T + tl.arange(0, T)
    tl.store(place, a)
    tl.store(place + T, b)


@triton.jit
def _measure_of_blocks(passed, n, SINGLE: tl.constexpr, BLOCKS: tl.constexpr, T: tl.constexpr):
    """ζ on the nodes, real and imaginary part, sin θ and sin²(θ/2), from what was passed on."""
    weight, theta, sine, half_sine_squared = _grid(tl.load(passed), 1, T)
    a = _of_blocks(passed, 0, 1.0 if SINGLE else 0.0, BLOCKS, T)
    b = _of_blocks(passed, 1, 0.0, BLOCKS, T)
    if SINGLE:
        a, b = tl.reduce((a, b), 0, _times)
    else:
        a, b = tl.sum(a, 0), tl.sum(b, 0)
    exceptions, drawn_often = tl.load(passed + 1), tl.load(passed + 2)
    zr, zi = _measure(weight, theta, exceptions, drawn_often - n, a, b, SINGLE)
    return zr, zi, sine, half_sine_squared


@triton.jit
def _sums_kernel(
    log_odds, group_sizes, draws, tilts, vectors, passed, start, groups,
    VARIANCE: tl.constexpr, SINGLE: tl.constexpr,
    GROUPS: tl.constexpr, TILES: tl.constexpr, BLOCKS: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """Passes on the sums of a block."""
    row, block, passed = _program(passed, start, BLOCKS, T)
    zr, zi, sine, half_sine_squared = _measure_of_blocks(
        passed, tl.load(draws + row), SINGLE, BLOCKS, T
    )
    sum_r, sum_i, sum_ur, sum_ui = _sums(
        log_odds + row * groups, group_sizes + row * groups, tl.load(tilts + row), groups,
        block * TILES * GROUPS, vectors + row * groups, tl.load(passed + 4).to(tl.int32),
        zr, zi, sine, half_sine_squared, VARIANCE, GROUPS, TILES, T,
    )  # fmt: skip
    place = passed + FACTS + (block * PASSED + 2) * T + tl.arange(0, T)
    tl.store(place, sum_r)
    tl.store(place + T, sum_i)
    tl.store(place + 2 * T, sum_ur)
    tl.store(place + 3 * T, sum_ui)


@triton.jit
def _products_kernel(
    log_odds, group_sizes, draws, tilts, vectors, values, passed, start, groups,
    VARIANCE: tl.constexpr, SINGLE: tl.constexpr,
    GROUPS: tl.constexpr, TILES: tl.constexpr, BLOCKS: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """Stores the products of a block."""
    row, block, passed = _program(passed, start, BLOCKS, T)
    n = tl.load(draws + row)
    zr, zi, sine, half_sine_squared = _measure_of_blocks(passed, n, SINGLE, BLOCKS, T)
    sum_r, sum_i = (
        tl.sum(_of_blocks(passed, 2, 0.0, BLOCKS, T), 0),
        tl.sum(_of_blocks(passed, 3, 0.0, BLOCKS, T), 0),
    )
    sum_ur, sum_ui = (
        tl.sum(_of_blocks(passed, 4, 0.0, BLOCKS, T), 0),
        tl.sum(_of_blocks(passed, 5, 0.0, BLOCKS, T), 0),
    )
    _store_products(
        log_odds + row * groups, group_sizes + row * groups, tl.load(tilts + row), groups,
        block * TILES * GROUPS, vectors + row * groups, values + row * groups,
        tl.load(passed + 4).to(tl.int32), (n <= 0.0) | (n >= tl.load(passed + 3)),
        zr, zi, sine, half_sine_squared, sum_r, sum_i, sum_ur, sum_ui,
        VARIANCE, GROUPS, TILES,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------
# Launches
# --------------------------------------------------------------------------------------------------


@cache
def _blocks(tiles: int) -> dict[str, int]:
    """The blocks of an urn of several tiles, and the tiles of each."""
    of_each = triton.cdiv(tiles, MOST_BLOCKS.value)
    return {"TILES": of_each, "BLOCKS": triton.cdiv(tiles, of_each)}


def covariance_products(
    log_odds: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    tilts: Tensor,
    vectors: Tensor,
    single: bool = False,
    variance: bool = False,
) -> Tensor:
    """Cov[X] @ vectors in their dtype, for contiguous operands with one row for each urn.

    Args:
        tilts: the centring tilts of the log-odds.
        single: whether no group is known to have more than one ball.
        variance: whether variances are computed instead, which need no vectors.
    """
    urns = log_odds, group_sizes, draws, tilts
    values, rows, groups = torch.empty_like(vectors), draws.numel(), log_odds.shape[-1]
    tile = dict(quadrature_tile(groups))
    tiles = tile.pop("TILES")
    with torch.cuda.device_of(values):
        if rows and tiles == 1:
            _short_kernel[(rows,)](
                *urns, vectors, values, groups, VARIANCE=variance, SINGLE=single, **tile
            )
        elif rows:
            _in_blocks(urns, vectors, values, single, variance, {**tile, **_blocks(tiles)})
    return values


def _in_blocks(
    urns: tuple[Tensor, ...],
    vectors: Tensor,
    values: Tensor,
    single: bool,
    variance: bool,
    tile: dict[str, Any],
) -> None:
    log_odds, group_sizes, draws, tilts = urns
    rows, groups = draws.numel(), log_odds.shape[-1]
    of_row = FACTS.value + tile["BLOCKS"] * PASSED.value * tile["T"]
    at_once = min(rows, max(1, MOST_PASSED // of_row))
    passed = log_odds.new_empty(at_once * of_row)
    wide = {"WIDE": min(WIDE, triton.next_power_of_2(groups)), "WIDES": triton.cdiv(groups, WIDE)}
    for start in range(0, rows, at_once):
        programs, last = (min(at_once, rows - start), tile["BLOCKS"]), (passed, start, groups)
        _factors_kernel[programs](
            log_odds, group_sizes, tilts, *last, SINGLE=single, **wide, **tile
        )
        _sums_kernel[programs](*urns, vectors, *last, VARIANCE=variance, SINGLE=single, **tile)
        _products_kernel[programs](
            *urns, vectors, values, *last, VARIANCE=variance, SINGLE=single, **tile
        )


@replaces(moments.covariance_product)
def covariance_product(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, vector: Tensor, tilt: Tensor | None = None
) -> Tensor:
    tilt = centring_tilt(log_odds, group_sizes, draws) if tilt is None else tilt
    _, operands = flattened(log_odds, group_sizes, draws, tilt, vector, events=(1, 1, 0, 0, 1))
    return covariance_products(*operands)


@replaces(moments.variance)
def variance(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    tilt = centring_tilt(log_odds, group_sizes, draws)
    _, operands = flattened(log_odds, group_sizes, draws, tilt, events=(1, 1, 0, 0))
    return covariance_products(*operands, operands[0], variance=True)
