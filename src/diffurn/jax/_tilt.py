"""The tilt of one urn, by the equation, the bracket and the schedule of `diffurn._fisher.tilt`."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.nn import sigmoid

from diffurn._fisher.accuracy import BISECTIONS, HASTY_STEPS, NEWTON_STEPS, ROUNDING, SETTLED

_FLOAT64_EPS = 2.0**-52


def log_tilt(log_weights: Array, group_sizes: Array, draws: Array) -> Array:
    """log r with Σ_j m_j σ(log r + log ω_j) ≈ n - ½, for log-weights ``(c,)``; it is a constant.

    Values cannot be read under `jit`, so the steps are those of one loop, which ends when all
    urns of a batch have settled.
    """
    log_weights, group_sizes, draws = lax.stop_gradient((log_weights, group_sizes, draws))
    drawable = group_sizes > 0
    log_weights = jnp.where(drawable, log_weights, 0.0)
    total = group_sizes.sum()
    target = jnp.maximum(jnp.minimum(draws, total), 1) - 0.5

    anchor, upto, size = _holder_of(target, log_weights, group_sizes)
    low = jnp.log(jnp.maximum(target - upto + size, 0.5) / jnp.maximum(total - target, 0.5)) - 1
    high = jnp.log(target / jnp.maximum(upto - target, 0.5)) + 1
    relative = log_weights - anchor
    equation = _Equation(relative, group_sizes, total, target)

    def body(state: _State) -> _State:
        bisects = (state.step >= HASTY_STEPS) & (state.step < HASTY_STEPS + BISECTIONS)
        # From the first bisection on, the bracket shrinks; after the last one it is the start.
        middle = 0.5 * (state.low + state.high)
        starts_again = (state.step >= HASTY_STEPS) & (state.step <= HASTY_STEPS + BISECTIONS)
        shift = jnp.where(starts_again, middle, jnp.clip(state.shift, state.low, state.high))
        newton, excess, variance = equation.step(shift)
        settled = ~bisects & ~(excess * excess > SETTLED**2 * variance)  # True for NaN
        return _State(
            state.step + 1,
            jnp.where(state.settled | bisects, state.shift, shift - newton),
            jnp.where(bisects & (excess < 0), shift, state.low),
            jnp.where(bisects & ~(excess < 0), shift, state.high),
            state.settled | settled,
        )

    def goes_on(state: _State) -> Array:
        return (state.step < HASTY_STEPS + BISECTIONS + NEWTON_STEPS) & ~state.settled

    start = _State(jnp.zeros((), int), equation.guess(), low, high, jnp.zeros((), bool))
    shift = lax.while_loop(goes_on, body, start).shift
    return jnp.where(total > 0, shift - anchor, 0.0 * draws)  # without balls any tilt is right


class _State(NamedTuple):
    step: Array
    shift: Array
    low: Array
    high: Array
    settled: Array


def _holder_of(ball: Array, log_weights: Array, group_sizes: Array) -> tuple[Array, Array, Array]:
    """The log-weight, the balls up to the last one and the size of the group with this ball, if
    balls are numbered from the heaviest group down.
    """
    order = jnp.argsort(-log_weights)
    filled = jnp.cumsum(group_sizes[order])
    place = jnp.minimum((filled < ball).sum(), len(log_weights) - 1)
    return log_weights[order[place]], filled[place], group_sizes[order[place]]


class _Equation(NamedTuple):
    """The equation Σ_j m_j σ(shift + relative_j) = target for the shift."""

    relative: Array
    group_sizes: Array
    total: Array
    target: Array

    def guess(self) -> Array:
        """That of normally distributed log-weights."""
        relative, balls = jnp.clip(self.relative, -99, 99), jnp.maximum(self.total, 1)
        centre = (self.group_sizes * relative).sum() / balls
        spread = (self.group_sizes * (relative - centre) ** 2).sum() / balls
        log_odds = jnp.log(self.target / jnp.maximum(self.total - self.target, 0.5))
        return log_odds * jnp.sqrt(1 + spread * (math.pi / 8)) - centre

    def step(self, shift: Array) -> tuple[Array, Array, Array]:
        """The Newton step h / h', the excess Σ m p - target, and the variance Σ m p (1 - p)."""
        log_odds = self.relative + shift
        common = log_odds > 0
        rarer = sigmoid(-jnp.abs(log_odds))
        exceptions = self.group_sizes * rarer
        left = jnp.where(common, exceptions, 0.0).sum()  # D
        drawn = jnp.where(common, 0.0, exceptions).sum()  # E
        variance = (exceptions * (1 - rarer)).sum()
        missing = self.target - jnp.where(common, self.group_sizes, 0.0).sum()  # t
        both = drawn + left
        smallest = both * (ROUNDING / _FLOAT64_EPS * jnp.finfo(both.dtype).eps)
        short = jnp.maximum(missing, 0)
        rising = jnp.maximum(drawn + (short - missing), smallest)
        falling = jnp.maximum(left + short, smallest)
        slope = variance * (drawn / rising + left / falling)
        return jnp.log(rising / falling) * both / slope, drawn - left - missing, variance


def tilted(log_weights: Array, group_sizes: Array, draws: Array) -> Array:
    """The log-odds under which n draws are typical."""
    return log_weights + log_tilt(log_weights, group_sizes, draws)


def centred(log_weights: Array, group_sizes: Array, draws: Array) -> Array:
    """The log-odds half way between the tilts to n - ½ and to n + ½, for covariances."""
    totals = jnp.stack([draws, draws + 1])
    tilts = jax.vmap(log_tilt, (None, None, 0))(log_weights, group_sizes, totals)
    return log_weights + tilts.mean()
