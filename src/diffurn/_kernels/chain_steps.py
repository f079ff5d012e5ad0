r"""One step of the Gumbel-Softmax chain in Triton: the count of a group, hard and relaxed.

The formulas are those of `_fisher.conditionals` and of `estimators.gumbel`. Columns of counts are
read block by block, so windows of any width are possible, and their widths never reach the CPU. The
noise of a count is a function of seed, row, place and count.

With the relaxed one-hot y of scores α, the slopes of a relaxed count are covariances under y,
divided by τ, of the count and of the derivative of α.
"""

# Type checkers cannot read Triton's language, and Triton may not be installed.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False, warn-return-any=False
# mypy: disable-error-code="arg-type, assignment, call-arg, misc, import-not-found, import-untyped, operator"

from __future__ import annotations

import math
import sys

import triton
import triton.language as tl

from diffurn._kernels.fisher import _groups, _log_tilt, _nodes, _slopes
from diffurn._kernels.sampling import _philox, _uniform
from diffurn._kernels.shared import probabilities

SMALLEST = tl.constexpr(sys.float_info.min)
LEAST_MASS = tl.constexpr(math.exp(-36))  # masses below it are rounding errors of the quadrature


@triton.jit
def _gumbel(key, row, place, count):
    """Finite standard Gumbel variates for counts, as in `noise.gumbel_noise`."""
    third = count.to(tl.int64)
    high, low, _, _ = _philox(key, row + third * 0, third * 0 + place, third)
    return -tl.log(-tl.log(tl.maximum(_uniform(high, low), SMALLEST)))


@triton.jit
def _window(mean, own, later_variance, size, later, n, nats):
    """The lowest and the highest count, as in `conditionals._window`."""
    narrower = tl.minimum(own, later_variance)
    far = nats + 2.0 + 0.5 * tl.log(1.0 + narrower)
    reach = far / 3.0 + tl.sqrt(far * far / 9.0 + 2.0 * far * narrower) + 2.0
    lowest = tl.maximum(tl.maximum(tl.floor(mean - reach), n - later), 0.0)
    return lowest, tl.minimum(tl.minimum(tl.ceil(mean + reach), n), size)


@triton.jit
def _pair_window(size, later, n, ratio, nats):
    """The window of a group beside one other group.

    Tilted to t = n - ½, the mean μ solves μ (M - t + μ) = ω (m - μ) (t - μ). No term of the
    discriminant is negative, so nothing cancels.
    """
    rarer = tl.exp(-tl.abs(ratio))
    weight, other = tl.where(ratio > 0.0, 1.0, rarer), tl.where(ratio > 0.0, rarer, 1.0)
    target = tl.minimum(tl.maximum(n, 1.0), tl.maximum(size + later, 1.0)) - 0.5
    surplus = later - target
    linear = (size + target) * weight + surplus * other
    both = size * later + target * tl.maximum(later + size - target, 0.0)
    own, rest = weight * (size - target), other * surplus
    root = tl.sqrt(own * own + 2.0 * (weight * other) * both + rest * rest)
    falling = tl.minimum(weight - other, -SMALLEST)  # negative if `linear` is
    mean = tl.where(
        linear >= 0.0,
        2.0 * (size * target * weight) / tl.maximum(linear + root, SMALLEST),
        0.5 * (linear - root) / falling,
    )
    mean = tl.minimum(tl.maximum(mean, 0.0), size)
    left = tl.minimum(tl.maximum(target - mean, 0.0), later)
    own_variance = mean * (size - mean) / tl.maximum(size, 1.0)
    later_variance = left * (later - left) / tl.maximum(later, 1.0)
    return _window(mean, own_variance, later_variance, size, later, n, nats)


@triton.jit
def _merged_moments(mean, slope, mass, peak, own_mean, own_slope, own_mass, own_peak):
    """Means and peak of two blocks of weighted columns together, and the factors of their sums.

    The last factor is that of the products of differences of the means.
    """
    highest = tl.maximum(peak, own_peak)
    before, now = tl.exp(peak - highest), tl.exp(own_peak - highest)
    total = mass * before + own_mass * now
    share = own_mass * now / total
    return (
        mean + (own_mean - mean) * share,
        slope + (own_slope - slope) * share,
        total,
        highest,
        before,
        now,
        mass * before * share,
    )


@triton.jit
def _pair_step(
    key, row, place, size, later, n, ratio, nats, temperature,
    RELAXED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The hard count of a group beside one other group, the relaxed one, and its two slopes.

    Slopes are those in the log-odds and in the draws left. All operands have one entry for each
    row. Without RELAXED the hard count alone is computed.
    """
    nothing, coldness = tl.zeros_like(n), 1.0 / temperature
    lowest, highest = _pair_window(size, later, n, ratio, nats)
    start, chosen, best = lowest, lowest, nothing - float("inf")
    alpha_before, slope_before = nothing, nothing
    mean, slope, mass, peak = nothing, nothing, nothing, nothing - float("inf")
    square, cross = nothing, nothing
    k = tl.arange(0, BLOCK).to(tl.float64)[None, :]
    waiting = start <= highest
    while tl.max(waiting.to(tl.int32)) > 0:
        x = start[:, None] + k
        inside = x <= highest[:, None]
        grows = inside & (x > lowest[:, None])
        # From x - 1 to x the log-weight grows by log ω + log (m - x + 1) (n - x + 1) / (x y) with
        # y = M - n + x, and its derivative in n by 1 / y + 1 / (n - x + 1).
        not_left = tl.where(grows, (n + 1.0)[:, None] - x, 1.0)
        not_later = tl.where(grows, (later - n)[:, None] + x, 1.0)
        growth = tl.where(grows, (size + 1.0)[:, None] - x, 1.0) * not_left
        growth = tl.log(growth / (tl.where(grows, x, 1.0) * not_later)) + ratio[:, None]
        growth = tl.where(grows, growth, 0.0)
        alpha = alpha_before[:, None] + tl.cumsum(growth, 1)
        scores = tl.where(inside, alpha + _gumbel(key, row[:, None], place, x), -float("inf"))
        highest_score = tl.max(scores, 1)
        chosen = tl.where(highest_score > best, start + tl.argmax(scores, 1).to(tl.float64), chosen)
        best = tl.maximum(best, highest_score)
        alpha_before += tl.sum(growth, 1)
        if RELAXED:
            steps = tl.where(grows, (not_later + not_left) / (not_later * not_left), 0.0)
            slopes = slope_before[:, None] + tl.cumsum(steps, 1)
            slope_before += tl.sum(steps, 1)
            own_peak = tl.where(waiting, highest_score, 0.0) * coldness
            y = tl.where(inside, tl.exp(scores * coldness - own_peak[:, None]), 0.0)
            own_mass = tl.maximum(tl.sum(y, 1), 1.0)  # the largest entry is 1
            own_mean = tl.sum(y * (x - lowest[:, None]), 1) / own_mass
            own_slope = tl.sum(y * slopes, 1) / own_mass
            away = x - lowest[:, None] - own_mean[:, None]
            own_square = tl.sum(y * away * away, 1)
            own_cross = tl.sum(y * away * (slopes - own_slope[:, None]), 1)
            joint_mean, joint_slope, joint_mass, joint_peak, before, now, apart = _merged_moments(
                mean, slope, mass, peak, own_mean, own_slope, own_mass, own_peak
            )
            apart_mean, apart_slope = own_mean - mean, own_slope - slope
            square = tl.where(
                waiting,
                square * before + own_square * now + apart * apart_mean * apart_mean,
                square,
            )
            cross = tl.where(
                waiting, cross * before + own_cross * now + apart * apart_mean * apart_slope, cross
            )
            mean, slope = tl.where(waiting, joint_mean, mean), tl.where(waiting, joint_slope, slope)
            mass, peak = tl.where(waiting, joint_mass, mass), tl.where(waiting, joint_peak, peak)
        start += BLOCK
        waiting = start <= highest
    scale = tl.maximum(mass, 1.0) * temperature
    return chosen, lowest + mean, square / scale, cross / scale


@triton.jit
def _turns(cosine, sine, BLOCK: tl.constexpr, T: tl.constexpr):
    """cos kθ and sin kθ for k < BLOCK, from the binary digits of k and by doubling θ."""
    k = tl.arange(0, BLOCK)[:, None]
    real, imaginary = tl.full((BLOCK, T), 1.0, tl.float64), tl.zeros((BLOCK, T), tl.float64)
    for digit in tl.static_range(16):
        if (1 << digit) < BLOCK:
            turns = ((k >> digit) & 1) == 1
            turned = real * cosine[None, :] - imaginary * sine[None, :]
            imaginary = tl.where(
                turns, real * sine[None, :] + imaginary * cosine[None, :], imaginary
            )
            real = tl.where(turns, turned, real)
            cosine, sine = cosine * cosine - sine * sine, 2.0 * cosine * sine
    return real, imaginary


@triton.jit
def _exact_step(
    key, row, place, log_weights, group_sizes, jacobian, groups, n, nats, temperature,
    RELAXED: tl.constexpr, SLOPES: tl.constexpr, BLOCK: tl.constexpr, GROUPS: tl.constexpr,
    T: tl.constexpr, TILTED: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """The same as `_pair_step` for a group before two or more, whose sum has masses on nodes.

    `log_weights` and `group_sizes` begin with the group, and `groups` counts it and all later ones.
    With SLOPES, the slopes in the log-odds of all of them are stored in `jacobian`.
    """
    zero, one_row = tl.full((), 0.0, tl.float64), tl.zeros((1,), tl.float64)
    tilts, _ = _log_tilt(
        log_weights, group_sizes, one_row + n, one_row.to(tl.int64), one_row == 0.0, groups,
        TILTED, TILES,
    )  # fmt: skip
    tilt = tl.sum(tilts)
    logit, size = tl.load(log_weights) + tilt, tl.load(group_sizes)
    p, q = probabilities(logit)
    expected = tl.floor(size * p)
    later_groups = groups - 1
    tiles = (later_groups + GROUPS - 1) // GROUPS
    amplitude, phase, theta, sine, half_sine_squared, variance, later = _nodes(
        log_weights + 1, group_sizes + 1, tilt, n - expected, later_groups, tiles, 2, GROUPS, T
    )
    lowest, highest = _window(size * p, size * p * q, variance, size, later, n, nats)
    fewest, most = tl.maximum(n - later, 0.0), tl.minimum(n, size)
    cosine = 1.0 - 2.0 * half_sine_squared

    start, chosen, best = lowest, lowest, zero - float("inf")
    before_block = zero
    mean, slope, mass, peak = zero, zero, zero, zero - float("inf")
    square, cross = zero, zero
    # Sums over columns of y / P(S = left), and of this times the distance from the mean.
    plain_r, plain_i = tl.zeros((T,), tl.float64), tl.zeros((T,), tl.float64)
    away_r, away_i = tl.zeros((T,), tl.float64), tl.zeros((T,), tl.float64)
    # From the first count of a block to the others the phases turn by the same angles.
    k, coldness = tl.arange(0, BLOCK).to(tl.float64), 1.0 / temperature
    turn_r, turn_i = _turns(cosine, sine, BLOCK, T)
    while start <= highest:
        x = start + k
        inside = x <= highest
        grows = inside & (x > lowest)
        growth = tl.where(grows, size + 1.0 - x, 1.0) / tl.where(grows, x, 1.0)
        growth = tl.where(grows, tl.log(growth) + logit, 0.0)
        own = before_block + tl.cumsum(growth, 0)
        before_block += tl.sum(growth, 0)
        angle = phase - (expected - start) * theta
        first_r, first_i = amplitude * tl.cos(angle), amplitude * tl.sin(angle)
        real = first_r[None, :] * turn_r - first_i[None, :] * turn_i
        chance = tl.sum(real, 1)
        log_chance = tl.log(tl.maximum(chance, LEAST_MASS))
        scores = own + log_chance + _gumbel(key, row, place, x)
        scores = tl.where(inside, scores, -float("inf"))
        highest_score = tl.max(scores, 0)
        chosen = tl.where(highest_score > best, start + tl.argmax(scores, 0).to(tl.float64), chosen)
        best = tl.maximum(best, highest_score)
        if RELAXED:
            # Log-masses at one ball fewer and one more, for the slope in the draws left.
            imaginary = first_r[None, :] * turn_i + first_i[None, :] * turn_r
            along, across = tl.sum(real * cosine[None, :], 1), tl.sum(imaginary * sine[None, :], 1)
            to_next = tl.log(tl.maximum(along - across, LEAST_MASS)) - log_chance
            from_last = log_chance - tl.log(tl.maximum(along + across, LEAST_MASS))
            has_next, has_last = x < most, x > fewest
            neighbours = has_next.to(tl.float64) + has_last.to(tl.float64)
            slopes = tl.where(has_next, to_next, 0.0) + tl.where(has_last, from_last, 0.0)
            slopes = -slopes / tl.maximum(neighbours, 1.0)

            own_peak = highest_score * coldness
            y = tl.where(inside, tl.exp(scores * coldness - own_peak), 0.0)
            own_mass = tl.sum(y, 0)
            own_mean = tl.sum(y * (x - lowest), 0) / own_mass
            own_slope = tl.sum(tl.where(inside, y * slopes, 0.0), 0) / own_mass
            away = x - lowest - own_mean
            own_square = tl.sum(y * away * away, 0)
            own_cross = tl.sum(tl.where(inside, y * away * (slopes - own_slope), 0.0), 0)
            joint_mean, joint_slope, joint_mass, joint_peak, before, now, apart = _merged_moments(
                mean, slope, mass, peak, own_mean, own_slope, own_mass, own_peak
            )
            apart_mean, apart_slope = own_mean - mean, own_slope - slope
            square = square * before + own_square * now + apart * apart_mean * apart_mean
            cross = cross * before + own_cross * now + apart * apart_mean * apart_slope
            if SLOPES:
                relative = tl.where(chance > LEAST_MASS, y / tl.maximum(chance, LEAST_MASS), 0.0)
                distant = relative * (x - lowest - joint_mean)
                shift = joint_mean - mean
                away_r = before * (away_r - shift * plain_r) + now * tl.sum(
                    distant[:, None] * real, 0
                )
                away_i = before * (away_i - shift * plain_i) + now * tl.sum(
                    distant[:, None] * imaginary, 0
                )
                plain_r = before * plain_r + now * tl.sum(relative[:, None] * real, 0)
                plain_i = before * plain_i + now * tl.sum(relative[:, None] * imaginary, 0)
            mean, slope, mass, peak = joint_mean, joint_slope, joint_mass, joint_peak
        start += BLOCK
    scale = tl.maximum(mass, 1.0) * temperature
    if SLOPES:
        tl.store(jacobian, square / scale)
        tile = 0
        while tile < tiles:
            j = tile * GROUPS + tl.arange(0, GROUPS)
            drawn, kept, sizes = _groups(log_weights + 1, group_sizes + 1, tilt, j, later_groups)
            dr, di = _slopes(drawn, kept, sine, half_sine_squared)
            in_odds = tl.sum(away_r[None, :] * dr - away_i[None, :] * di, 1)
            in_odds = in_odds * (sizes * drawn * kept)
            tl.store(jacobian + 1 + j, in_odds / scale, mask=j < later_groups)
            tile += 1
    return chosen, lowest + mean, cross / scale
