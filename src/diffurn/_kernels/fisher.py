r"""Triton kernels for Fisher's law: the tilts of many urns, masses and moments, in one launch each.

They compute in registers what `tilt` and `nodes` compute in about a hundred operations. Numbers are
float64, and results agree up to rounding. Groups are read tile by tile, so the cost is linear in
their number. Kernels have no derivatives; `dispatch` decides when they run.
"""

# Type checkers cannot read Triton's language, and Triton may not be installed.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False, warn-return-any=False
# mypy: disable-error-code="arg-type, assignment, call-arg, misc, import-not-found, import-untyped, operator"

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from diffurn._fisher import moments, tilt
from diffurn._fisher.accuracy import (
    BISECTIONS,
    HASTY_STEPS,
    NEWTON_STEPS,
    NODES,
    ROUNDING,
    SETTLED,
    TAIL_NATS,
)
from diffurn._kernels.dispatch import replaces
from diffurn._kernels.shared import SERIES_FROM, deviance, log1p, probabilities, stirling_series
from diffurn._numerics import binomial
from diffurn._numerics.batching import common_shape

# The log-weights of one program for tilts, one per thread. A program is as slow as its slowest urn,
# so it has one warp only.
TILTED = 32
# The most groups of a tile. In a quadrature a tile has an entry for each group and node.
MOST_GROUPS = {"tilt": 1024, "quadrature": 64}
# The entries of a quadrature's tile per thread.
ENTRIES = 8
# The binomial masses of one program, two per thread.
OF_BINOMIALS = {"BLOCK": 256, "num_warps": 4}

PADDED_NODES = triton.next_power_of_2(NODES[1])
NATS = tl.constexpr(TAIL_NATS)
FIRST_BISECTION = tl.constexpr(HASTY_STEPS)
LAST_STEPS = tl.constexpr(HASTY_STEPS + BISECTIONS)
MOST_STEPS = tl.constexpr(HASTY_STEPS + BISECTIONS + NEWTON_STEPS)
SETTLED_SQUARED = tl.constexpr(SETTLED**2)
ROUNDING_ERROR = tl.constexpr(ROUNDING)
TWO_PI = tl.constexpr(2 * math.pi)
PI_OVER_8 = tl.constexpr(math.pi / 8)
EXP_8 = tl.constexpr(math.exp(8))
ATAN_TERMS = tl.constexpr(12)


# --------------------------------------------------------------------------------------------------
# The tilt
# --------------------------------------------------------------------------------------------------


@triton.jit
def _drawable(log_weights, group_sizes, first, exists, tile, groups, GROUPS: tl.constexpr):
    """Log-weights and sizes of a tile of groups; groups that are never drawn get size zero."""
    j = tile * GROUPS + tl.arange(0, GROUPS)
    place, inside = first[:, None] + j[None, :], exists[:, None] & (j < groups)[None, :]
    weight = tl.load(log_weights + place, mask=inside, other=0.0)
    size = tl.load(group_sizes + place, mask=inside, other=0.0)
    drawable = (size > 0.0) & (weight > -float("inf"))
    return tl.where(drawable, weight, 0.0), tl.where(drawable, size, 0.0)


@triton.jit
def _guess(
    log_weights,
    group_sizes,
    anchor,
    total,
    target,
    first,
    exists,
    groups,
    GROUPS: tl.constexpr,
    TILES: tl.constexpr,
):
    """The guess of `tilt._Equation.guess`.

    The spread comes from the mean of squares, which is accurate enough for a guess.
    """
    centre, square = tl.zeros_like(total), tl.zeros_like(total)
    for tile in range(TILES):
        weight, size = _drawable(log_weights, group_sizes, first, exists, tile, groups, GROUPS)
        relative = tl.minimum(tl.maximum(weight - anchor[:, None], -99.0), 99.0)
        centre += tl.sum(size * relative, 1)
        square += tl.sum(size * relative * relative, 1)
    balls = tl.maximum(total, 1.0)
    centre = centre / balls
    spread = tl.maximum(square / balls - centre * centre, 0.0)
    return (
        tl.log(target / tl.maximum(total - target, 0.5)) * tl.sqrt(1.0 + spread * PI_OVER_8)
        - centre
    )


@triton.jit
def _log_tilt(
    log_weights,
    group_sizes,
    draws,
    first,
    exists,
    groups,
    GROUPS: tl.constexpr,
    TILES: tl.constexpr,
):
    """The same as `tilt.log_tilt`, and the variance of ΣX at the last evaluation.

    Groups of equal weight count as one, and the anchor is found without sorting.
    """
    nothing = tl.zeros_like(draws)
    total, lowest, highest = nothing, nothing + float("inf"), nothing - float("inf")
    for tile in range(TILES):
        weight, size = _drawable(log_weights, group_sizes, first, exists, tile, groups, GROUPS)
        total += tl.sum(size, 1)
        lowest = tl.minimum(lowest, tl.min(tl.where(size > 0.0, weight, float("inf")), 1))
        highest = tl.maximum(highest, tl.max(tl.where(size > 0.0, weight, -float("inf")), 1))
    lowest, highest = tl.where(total > 0.0, lowest, 0.0), tl.where(total > 0.0, highest, 0.0)
    target = tl.maximum(tl.minimum(draws, total), 1.0) - 0.5

    # The anchor is the largest weight for which the balls at least as heavy reach the target. It
    # stays between lowest and highest.
    while tl.max((lowest < highest).to(tl.int32)) > 0:
        middle = 0.5 * lowest + 0.5 * highest
        middle = tl.where(middle > lowest, middle, highest)
        reached, above, below = nothing, nothing + float("inf"), nothing - float("inf")
        for tile in range(TILES):
            weight, size = _drawable(log_weights, group_sizes, first, exists, tile, groups, GROUPS)
            heavy = weight >= middle[:, None]
            reached += tl.sum(tl.where(heavy, size, 0.0), 1)
            above = tl.minimum(
                above, tl.min(tl.where(heavy & (size > 0.0), weight, float("inf")), 1)
            )
            below = tl.maximum(
                below, tl.max(tl.where(~heavy & (size > 0.0), weight, -float("inf")), 1)
            )
        enough = reached >= target
        lowest, highest = tl.where(enough, above, lowest), tl.where(enough, highest, below)
    anchor = lowest

    before, upto = nothing, nothing
    for tile in range(TILES):
        weight, size = _drawable(log_weights, group_sizes, first, exists, tile, groups, GROUPS)
        before += tl.sum(tl.where(weight > anchor[:, None], size, 0.0), 1)
        upto += tl.sum(tl.where(weight >= anchor[:, None], size, 0.0), 1)
    low = tl.log(tl.maximum(target - before, 0.5) / tl.maximum(total - target, 0.5)) - 1.0
    high = tl.log(target / tl.maximum(upto - target, 0.5)) + 1.0
    shift = _guess(
        log_weights, group_sizes, anchor, total, target, first, exists, groups, GROUPS, TILES
    )
    shift = tl.minimum(tl.maximum(shift, low), high)

    # Newton steps. Rows that have not settled by then get bisections and more Newton steps.
    pending, steps, spread = exists, 0, nothing
    while (tl.max(pending.to(tl.int32)) > 0) & (steps < MOST_STEPS):
        bisecting = (steps >= FIRST_BISECTION) & (steps < LAST_STEPS)
        shift = tl.where(pending & (steps == FIRST_BISECTION), 0.5 * (low + high), shift)
        both, left, variance, common = nothing, nothing, nothing, nothing
        for tile in range(TILES):
            weight, size = _drawable(log_weights, group_sizes, first, exists, tile, groups, GROUPS)
            log_odds = weight - anchor[:, None] + shift[:, None]
            p, q = probabilities(log_odds)
            exceptions = size * tl.minimum(p, q)
            both += tl.sum(exceptions, 1)
            left += tl.sum(tl.where(log_odds > 0.0, exceptions, 0.0), 1)
            variance += tl.sum(size * p * q, 1)
            common += tl.sum(tl.where(log_odds > 0.0, size, 0.0), 1)
        drawn, missing, smallest = both - left, target - common, both * ROUNDING_ERROR
        rising, falling = (
            tl.maximum(drawn + tl.maximum(-missing, 0.0), smallest),
            tl.maximum(left + tl.maximum(missing, 0.0), smallest),
        )
        newton = tl.log(rising / falling) * both / (variance * (drawn / rising + left / falling))
        newton = tl.where(total > 0.0, newton, 0.0)
        excess, spread = drawn - left - missing, variance
        unsettled = pending & (excess * excess > SETTLED_SQUARED * variance)
        low, high = (
            tl.where(bisecting & (excess < 0.0), shift, low),
            tl.where(bisecting & (excess >= 0.0), shift, high),
        )
        within = tl.minimum(tl.maximum(shift - newton, low), high)
        shift = tl.where(
            unsettled,
            tl.where(bisecting, 0.5 * (low + high), within),
            tl.where(pending, shift - newton, shift),
        )
        pending = unsettled
        steps += 1
    shift = tl.where(draws == draws, shift, float("nan"))
    # Without balls any tilt is right.
    return tl.where(total > 0.0, shift - anchor, 0.0 * draws), spread


@triton.jit
def _tilt_kernel(
    log_weights, group_sizes, draws, tilts, rows, groups,
    CENTRING: tl.constexpr, ROWS: tl.constexpr, GROUPS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = row < rows
    n = tl.load(draws + row, mask=exists, other=0.0)
    tilt, _ = _log_tilt(log_weights, group_sizes, n, row * groups, exists, groups, GROUPS, TILES)
    if CENTRING:
        above, _ = _log_tilt(
            log_weights, group_sizes, n + 1.0, row * groups, exists, groups, GROUPS, TILES
        )
        tilt = 0.5 * (tilt + above)
    tl.store(tilts + row, tilt, mask=exists)


# --------------------------------------------------------------------------------------------------
# The quadrature: one urn per program, tiles of groups × nodes
# --------------------------------------------------------------------------------------------------


@triton.jit
def _groups(log_odds, group_sizes, tilt, j, groups):
    """σ(x), σ(-x) and m of the groups j, with m = 0 for groups that do not exist."""
    exists = j < groups
    x = tl.load(log_odds + j, mask=exists, other=0.0) + tilt
    p, q = probabilities(x)
    return p, q, tl.load(group_sizes + j, mask=exists, other=0.0)


@triton.jit
def _angle(p, sine, half_sine_squared, length):
    """The angle of q + p e^{iθ} = 1 - 2p sin²(θ/2) + i p sin θ for p ≤ ½, given its modulus.

    The angle is halved three times, and then computed by the series of the arctangent.
    """
    t = p * sine / (1.0 - 2.0 * p * half_sine_squared + length)
    for _ in tl.static_range(2):
        t = t / (1.0 + tl.sqrt(1.0 + t * t))
    minus_square = -t * t
    series = tl.zeros_like(t)
    for term in tl.static_range(ATAN_TERMS):
        series = series * minus_square + 1.0 / (2.0 * (ATAN_TERMS - term) - 1.0)
    return 8.0 * t * series


@triton.jit
def _facts(log_odds, group_sizes, tilt, groups, tiles, GROUPS: tl.constexpr):
    """The variance of S, the expected exceptions, the balls more often drawn than not, and Σm."""
    # Sums over groups stay in registers, one for each place of a tile, until the last tile.
    nothing = tl.zeros((GROUPS,), tl.float64)
    variance, exceptions, drawn_often, balls = nothing, nothing, nothing, nothing
    tile = 0
    while tile < tiles:
        p, q, size = _groups(
            log_odds, group_sizes, tilt, tile * GROUPS + tl.arange(0, GROUPS), groups
        )
        variance += size * p * q
        exceptions += tl.where(p > q, -size * q, size * p)
        drawn_often += tl.where(p > q, size, 0.0)
        balls += size
        tile += 1
    return tl.sum(variance), tl.sum(exceptions), tl.sum(drawn_often), tl.sum(balls)


@triton.jit
def _grid(variance, SPAN: tl.constexpr, T: tl.constexpr):
    """Weights of the nodes for a variance of S; θ, sin θ and sin²(θ/2)."""
    half_width = NATS / 3.0 + tl.sqrt(NATS * NATS / 9.0 + 2.0 * NATS * variance)
    period = 2.0 * tl.floor(SPAN * half_width / 2.0) + 3.0
    k = tl.arange(0, T).to(tl.float64)
    used = 2.0 * k < period
    theta = tl.where(used, TWO_PI * k / period, 0.0)
    sine, half_sine = tl.sin(theta), tl.sin(0.5 * theta)
    weight = tl.where(used, tl.where(k == 0.0, 1.0, 2.0) / period, 0.0)
    return weight, theta, sine, half_sine * half_sine


@triton.jit
def _turns(
    log_odds, group_sizes, tilt, groups, first, tiles, theta, sine, half_sine_squared,
    GROUPS: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """log |φ| on the nodes, and the angle of φ beyond that of the expected exceptions, for so many
    tiles from the group `first` on.
    """
    log_moduli, angles = tl.zeros((GROUPS, T), tl.float64), tl.zeros((GROUPS, T), tl.float64)
    tile = 0
    while tile < tiles:
        j = first + tile * GROUPS + tl.arange(0, GROUPS)
        p, q, size = _groups(log_odds, group_sizes, tilt, j, groups)
        rarer, signed = tl.minimum(p, q)[:, None], tl.where(p > q, -size, size)[:, None]
        missing = (4.0 * p * q)[:, None] * half_sine_squared[None, :]
        log_moduli += 0.5 * size[:, None] * log1p(-missing)
        angle = _angle(rarer, sine[None, :], half_sine_squared[None, :], tl.sqrt(1.0 - missing))
        angles += signed * (angle - rarer * theta[None, :])
        tile += 1
    return tl.sum(log_moduli, 0), tl.sum(angles, 0)


@triton.jit
def _nodes(
    log_odds, group_sizes, tilt, draws, groups, tiles,
    SPAN: tl.constexpr, GROUPS: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """Amplitude, phase, θ, sin θ and sin²(θ/2) of `nodes.Nodes`, the variance of S, and Σm."""
    variance, exceptions, drawn_often, balls = _facts(
        log_odds, group_sizes, tilt, groups, tiles, GROUPS
    )
    weight, theta, sine, half_sine_squared = _grid(variance, SPAN, T)
    log_modulus, angle = _turns(
        log_odds, group_sizes, tilt, groups, 0, tiles, theta, sine, half_sine_squared, GROUPS, T
    )
    phase = (exceptions + (drawn_often - draws)) * theta + angle
    amplitude = weight * tl.exp(log_modulus)
    return amplitude, phase, theta, sine, half_sine_squared, variance, balls


@triton.jit
def _measure(
    log_odds, group_sizes, tilt, draws, groups,
    GROUPS: tl.constexpr, TILES: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """ζ on the nodes, real and imaginary part, sin θ, sin²(θ/2), P(S = n) and Σm."""
    amplitude, phase, _, sine, half_sine_squared, _, balls = _nodes(
        log_odds, group_sizes, tilt, draws, groups, TILES, 1, GROUPS, T
    )
    real, imaginary = amplitude * tl.cos(phase), amplitude * tl.sin(phase)
    mass = tl.sum(real)
    return real / mass, imaginary / mass, sine, half_sine_squared, mass, balls


@triton.jit
def _slopes(p, q, sine, half_sine_squared):
    """δ_j on the nodes, as in `Nodes._slopes`."""
    scale = 1.0 / (1.0 - (4.0 * p * q)[:, None] * half_sine_squared[None, :])
    return (2.0 * (p - q))[:, None] * half_sine_squared[None, :] * scale, sine[None, :] * scale


@triton.jit
def _log_mass_kernel(
    log_odds,
    group_sizes,
    draws,
    values,
    groups,
    GROUPS: tl.constexpr,
    TILES: tl.constexpr,
    T: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    log_odds += row * groups
    group_sizes += row * groups
    _, _, _, _, mass, _ = _measure(
        log_odds, group_sizes, 0.0, tl.load(draws + row), groups, GROUPS, TILES, T
    )
    tl.store(values + row, tl.log(mass))


@triton.jit
def _mean_kernel(
    log_odds, group_sizes, draws, values, groups,
    SHIFT: tl.constexpr, GROUPS: tl.constexpr, TILES: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """The mean, or with SHIFT its change by conditioning."""
    row = tl.program_id(0).to(tl.int64)
    log_odds += row * groups
    group_sizes += row * groups
    n = tl.load(draws + row)
    zr, zi, sine, half_sine_squared, _, balls = _measure(
        log_odds, group_sizes, 0.0, n, groups, GROUPS, TILES, T
    )
    for tile in range(TILES):
        j = tile * GROUPS + tl.arange(0, GROUPS)
        p, q, size = _groups(log_odds, group_sizes, 0.0, j, groups)
        dr, di = _slopes(p, q, sine, half_sine_squared)
        b = tl.sum(zr[None, :] * dr - zi[None, :] * di, 1)
        average = tl.where(n <= 0.0, 0.0, tl.where(n >= balls, size, size * p * (1.0 + q * b)))
        tl.store(values + row * groups + j, size * p * q * b if SHIFT else average, mask=j < groups)


# --------------------------------------------------------------------------------------------------
# Binomial masses, elementwise
# --------------------------------------------------------------------------------------------------


@triton.jit
def _stirling_remainder(x):
    """log Γ(x+1) - x log x + x for real x ≥ 0, with the value 0 at 0.

    For x < 8 it follows from the value at y = x + 8, since Γ(y+1) = (x+1) ⋯ (x+8) Γ(x+1). No term
    is larger than the result.
    """
    small = x < SERIES_FROM
    y = tl.where(small, x + 8.0, x)
    # The product of the first and the last factor is x (x + 9) + 8. The other pairs of factors
    # differ from it by constants.
    product, square = (
        x * (x + 9.0),
        y * y,
    )
    product = (product + 8.0) * (product + 14.0) * ((product + 18.0) * (product + 20.0))
    scale = tl.where(small, product * EXP_8 / (square * square * (square * square)), 1.0)
    value = (
        stirling_series(y)
        + tl.log(tl.sqrt(TWO_PI * y) / scale)
        + x * tl.log(y / tl.maximum(x, 1e-300))
    )
    return tl.where(x == 0.0, 0.0, value)


@triton.jit
def _binomial_kernel(counts, group_sizes, log_odds, values, number, BLOCK: tl.constexpr):
    """The same as `binomial.log_pmf_value`."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = i < number
    x = tl.load(counts + i, mask=exists, other=0.0)
    size = tl.load(group_sizes + i, mask=exists, other=0.0)
    logit = tl.load(log_odds + i, mask=exists, other=0.0)
    outside = (x < 0.0) | (x > size)
    x = tl.where(outside, 0.0, x)
    failures = size - x
    p, q = probabilities(logit)
    expected, expected_failures = size * p, size * q
    difference = tl.where(logit < 0.0, x - expected, expected_failures - failures)
    log_commoner = tl.log(tl.maximum(size, 1.0)) - log1p(tl.exp(-tl.abs(logit)))
    log_expected, log_expected_failures = (
        log_commoner + tl.minimum(logit, 0.0),
        log_commoner - tl.maximum(logit, 0.0),
    )
    value = (
        _stirling_remainder(size)
        - _stirling_remainder(x)
        - _stirling_remainder(failures)
        - deviance(x, tl.log(tl.maximum(x, 1e-300)), expected, log_expected, difference)
        - deviance(
            failures,
            tl.log(tl.maximum(failures, 1e-300)),
            expected_failures,
            log_expected_failures,
            -difference,
        )
    )
    tl.store(values + i, tl.where(outside, -float("inf"), value), mask=exists)


# --------------------------------------------------------------------------------------------------
# Launches
# --------------------------------------------------------------------------------------------------


def flattened(*operands: Tensor, events: tuple[int, ...]) -> tuple[torch.Size, list[Tensor]]:
    """The common batch shape, and the operands expanded to it and contiguous.

    The first operand has a last dimension of groups.
    """
    shapes = operands[0].shape[:-1], operands[0].shape
    # The common case, which is checked fast.
    if all(x.shape == shapes[e] for x, e in zip(operands, events, strict=True)):
        return shapes[0], [x.contiguous() for x in operands]
    batch = common_shape(x.shape[: x.ndim - e] for x, e in zip(operands, events, strict=True))
    groups = common_shape(x.shape[-1:] for x, e in zip(operands, events, strict=True) if e)
    shapes = batch, batch + groups
    return batch, [x.expand(shapes[e]).contiguous() for x, e in zip(operands, events, strict=True)]


def _tile(groups: int, most: int) -> dict[str, int]:
    padded = min(most, triton.next_power_of_2(groups))
    return {"GROUPS": padded, "TILES": triton.cdiv(groups, padded)}


@cache
def _tilt_tile(groups: int, most: int, entries: int) -> dict[str, int]:
    tile = _tile(groups, most)
    return {
        **tile,
        "ROWS": max(1, entries // tile["GROUPS"]),
        "num_warps": max(1, min(8, tile["GROUPS"] // 64)),
    }


@cache
def quadrature_tile(groups: int) -> dict[str, int]:
    """Groups and nodes of a tile, the number of tiles, and the warps of a program."""
    tile = _tile(groups, MOST_GROUPS["quadrature"])
    return {
        **tile,
        "T": PADDED_NODES,
        "num_warps": max(1, tile["GROUPS"] * PADDED_NODES // (32 * ENTRIES)),
    }


def _tilts(log_weights: Tensor, group_sizes: Tensor, draws: Tensor, centring: bool) -> Tensor:
    batch, operands = flattened(log_weights, group_sizes, draws, events=(1, 1, 0))
    tilts, groups = log_weights.new_empty(batch), operands[0].shape[-1]
    tile = _tilt_tile(groups, MOST_GROUPS["tilt"], TILTED)
    if tilts.numel():
        with torch.cuda.device_of(tilts):
            _tilt_kernel[(-(-tilts.numel() // tile["ROWS"]),)](
                *operands, tilts, tilts.numel(), groups, CENTRING=centring, **tile
            )
    return tilts


@replaces(tilt.log_tilt)
def log_tilt(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    return _tilts(log_weights, group_sizes, draws, centring=False)


@replaces(moments.centring_tilt)
def centring_tilt(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    return _tilts(log_odds, group_sizes, draws, centring=True)


def _launch(kernel: Any, values: Tensor, rows: int, *operands: Tensor, **constants: Any) -> Tensor:
    """The values after a launch with one program per row; the first operand has groups."""
    groups = operands[0].shape[-1]
    if rows:
        with torch.cuda.device_of(values):
            kernel[(rows,)](*operands, values, groups, **constants, **quadrature_tile(groups))
    return values


@replaces(moments.log_mass_value)
def log_mass(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    batch, operands = flattened(log_odds, group_sizes, draws, events=(1, 1, 0))
    return _launch(_log_mass_kernel, log_odds.new_empty(batch), batch.numel(), *operands)


def _mean(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, shift: bool) -> Tensor:
    batch, operands = flattened(log_odds, group_sizes, draws, events=(1, 1, 0))
    return _launch(
        _mean_kernel, torch.empty_like(operands[0]), batch.numel(), *operands, SHIFT=shift
    )


@replaces(moments.mean_value)
def mean(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    return _mean(log_odds, group_sizes, draws, shift=False)


@replaces(moments.mean_shift_value)
def mean_shift(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    return _mean(log_odds, group_sizes, draws, shift=True)


@replaces(binomial.log_pmf_value)
def binomial_log_pmf(x: Tensor, size: Tensor, log_odds: Tensor) -> Tensor:
    """The binomial log-masses of operands of one shape."""
    operands = [operand.contiguous() for operand in (x, size, log_odds)]
    values = torch.empty_like(operands[0])
    if values.numel():
        with torch.cuda.device_of(values):
            _binomial_kernel[(-(-values.numel() // OF_BINOMIALS["BLOCK"]),)](
                *operands, values, values.numel(), **OF_BINOMIALS
            )
    return values
