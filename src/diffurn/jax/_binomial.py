"""The binomial law without cancellation: `diffurn._numerics.binomial`, where formulas are derived,
in JAX.

All operands broadcast. Nothing has a derivative of its own: the callers define theirs.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array
from jax.nn import log_sigmoid, sigmoid
from jax.scipy.special import digamma, gammaln

from diffurn._numerics.series import ATANH, ATANH_UP_TO, STIRLING, STIRLING_FROM


def _horner(coefficients: tuple[float, ...], x: Array) -> Array:
    value = jnp.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + coefficient
    return value


def stirling_remainder(x: Array) -> Array:
    """log Γ(x+1) - x log x + x for real x ≥ 0, with the value 0 at 0."""
    small, large = jnp.minimum(x, STIRLING_FROM), jnp.maximum(x, STIRLING_FROM)
    by_gamma = gammaln(small + 1) - small * jnp.log(jnp.where(small > 0, small, 1.0)) + small
    by_series = 0.5 * jnp.log(2 * math.pi * large) + _horner(STIRLING, large**-2) / large
    return jnp.where(x < STIRLING_FROM, by_gamma, by_series)


def deviance(x: Array, expected: Array, log_expected: Array, difference: Array) -> Array:
    """x log(x / M) + M - x for a count x of expectation M, and the given x - M."""
    tiny = jnp.finfo(x.dtype).tiny
    v = difference / jnp.maximum(x + expected, tiny)
    near = difference * v + 2 * x * v**3 * _horner(ATANH, v * v)
    far = jnp.where(x > 0, x * (jnp.log(jnp.maximum(x, tiny)) - log_expected), 0.0) - difference
    return jnp.where(jnp.abs(v) <= ATANH_UP_TO, near, far)


def variance(size: Array, log_odds: Array) -> Array:
    """m p (1 - p) with p = σ(log_odds)."""
    return size * sigmoid(log_odds) * sigmoid(-log_odds)


def log_pmf(x: Array, size: Array, log_odds: Array) -> Array:
    """The log-probability of a count; -inf unless 0 ≤ x ≤ m."""
    log_size = jnp.log(jnp.maximum(size, 1))
    outside = (x < 0) | (x > size)  # False for NaN, which stays NaN
    x = jnp.where(outside, 0.0, x)
    failures = size - x
    expected, expected_failures = size * sigmoid(log_odds), size * sigmoid(-log_odds)
    difference = jnp.where(log_odds < 0, x - expected, expected_failures - failures)
    half = 0.5 * size
    near_half = (x - half) - half * jnp.tanh(0.5 * log_odds)
    difference = jnp.where(jnp.abs(log_odds) < 0.5, near_half, difference)
    value = (
        stirling_remainder(size)
        - stirling_remainder(x)
        - stirling_remainder(failures)
        - deviance(x, expected, log_size + log_sigmoid(log_odds), difference)
        - deviance(failures, expected_failures, log_size + log_sigmoid(-log_odds), -difference)
    )
    return jnp.where(outside, -jnp.inf, value)


def slope_in_count(x: Array, size: Array, log_odds: Array) -> Array:
    """The derivative of `log_pmf` in a real count."""
    return log_odds - digamma(x + 1) + digamma(size - x + 1)


@jax.custom_jvp
def differentiable_log_pmf(x: Array, size: Array, log_odds: Array) -> Array:
    """`log_pmf` with a derivative in the log-odds; operands have one shape."""
    return log_pmf(x, size, log_odds)


@differentiable_log_pmf.defjvp
def _(primals: tuple[Array, Array, Array], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    x, size, log_odds = primals
    return differentiable_log_pmf(*primals), tangents[2] * (x - size * sigmoid(log_odds))
