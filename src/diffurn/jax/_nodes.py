"""P(S = n) and the moments of one urn from a few values of the characteristic function, by the
formulas of `diffurn._fisher.nodes`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.nn import sigmoid

from diffurn._fisher.accuracy import FEW_GROUPS, NODES, TAIL_NATS


def half_width(variance: Array) -> Array:
    """Bernstein's bound on |S - ES|, exceeded with a probability of at most 2 e^-TAIL_NATS."""
    return TAIL_NATS / 3 + jnp.sqrt(TAIL_NATS * TAIL_NATS / 9 + 2 * TAIL_NATS * variance)


def surplus(log_odds: Array, group_sizes: Array, draws: Array) -> Array:
    """Σ_j m_j σ(log_odds_j) - n from the expected exceptions, without cancellation."""
    drawn_often = log_odds > 0
    exceptions = jnp.where(drawn_often, -group_sizes, group_sizes) * sigmoid(-jnp.abs(log_odds))
    return exceptions.sum() + (jnp.where(drawn_often, group_sizes, 0.0).sum() - draws)


def sum_of_others(values: Array) -> Array:
    """Σ_{j≠i} values_j over the groups, dimension 0, without subtractions."""
    groups = len(values)
    if groups <= FEW_GROUPS:
        others = 1 - jnp.eye(groups, dtype=values.dtype)
        return jnp.matmul(others, values, precision=lax.Precision.HIGHEST)
    nothing = jnp.zeros_like(values[:1])
    before = jnp.cumsum(jnp.concatenate([nothing, values[:-1]]), 0)
    after = jnp.cumsum(jnp.concatenate([nothing, values[::-1][:-1]]), 0)[::-1]
    return before + after


class Nodes(NamedTuple):
    """The T nodes for one value n of the sum S of an urn.

    The shapes are ``(c, 1)`` for ``p, q, size``, ``(T,)`` for ``theta, sine, half_sine_squared,
    amplitude, phase``. All methods are differentiable in the log-odds.
    """

    p: Array
    q: Array
    size: Array
    theta: Array
    sine: Array
    half_sine_squared: Array
    amplitude: Array
    phase: Array

    @classmethod
    def build(cls, log_odds: Array, group_sizes: Array, draws: Array, span: int = 1) -> Nodes:
        """Nodes for P(S = draws); with ``span=2``, for every value within a half-width."""
        log_odds_, size = log_odds[:, None], group_sizes[:, None]
        p, q = sigmoid(log_odds_), sigmoid(-log_odds_)
        variance = lax.stop_gradient((size * p * q).sum())
        period = 2 * jnp.floor(span * half_width(variance) / 2) + 3
        k = jnp.arange(NODES[span], dtype=p.dtype)
        theta = (2 * math.pi) * k / period
        multiplicity = jnp.where(2 * k < period, jnp.where(k == 0, 1.0, 2.0), 0.0)
        drawn_often = log_odds_ > 0
        rarer = jnp.where(drawn_often, q, p)
        signed_size = jnp.where(drawn_often, -size, size)
        sine, half_sine_squared = jnp.sin(theta), jnp.sin(theta / 2) ** 2
        log_squares = jnp.log1p(-4 * p * q * half_sine_squared)  # log |q + p e^{iθ}|²
        amplitude = multiplicity / period * jnp.exp(0.5 * (size * log_squares).sum(0))
        angle = jnp.arctan(rarer * sine / (1 - 2 * rarer * half_sine_squared)) - rarer * theta
        phase = (signed_size * angle).sum(0) + surplus(log_odds, group_sizes, draws) * theta
        return cls(p, q, size, theta, sine, half_sine_squared, amplitude, phase)

    def mass(self) -> Array:
        """P(S = n)."""
        return (self.amplitude * jnp.cos(self.phase)).sum()

    def mass_at(self, offsets: Array) -> Array:
        """P(S = n + offset) of offsets ``(G,)``, from nodes of ``span=2``."""
        phase = self.phase - offsets[:, None] * self.theta
        return jnp.maximum((self.amplitude * jnp.cos(phase)).sum(-1), 0)

    def _measure(self) -> tuple[Array, Array]:
        """The complex measure ζ on the nodes."""
        real, imaginary = (self.amplitude * wave(self.phase) for wave in (jnp.cos, jnp.sin))
        return real / real.sum(), imaginary / real.sum()

    def _slopes(self) -> tuple[Array, Array]:
        """δ_j(θ), at which the mean of group j is m_j p_j (1 + q_j δ_j)."""
        scale = 1 / (1 - 4 * self.p * self.q * self.half_sine_squared)
        return 2 * (self.p - self.q) * self.half_sine_squared * scale, self.sine * scale

    def _average_slope(self) -> Array:
        (zr, zi), (dr, di) = self._measure(), self._slopes()
        return (zr * dr - zi * di).sum(-1)

    def mean(self) -> Array:
        """E[X_j | S = n]."""
        return (self.size * self.p)[:, 0] * (1 + self.q[:, 0] * self._average_slope())

    def mean_shift(self) -> Array:
        """E[X_j | S = n] - E[X_j]."""
        return (self.size * self.p * self.q)[:, 0] * self._average_slope()

    def covariance_product(self, vector: Array) -> Array:
        """Cov[X | S = n] @ vector in O(c)."""
        (zr, zi), (dr, di) = self._measure(), self._slopes()
        v, u = self.size * self.p * self.q, vector[:, None]

        def differences(values: Array) -> Array:
            """Σ_{j≠i} values_j (vector_j - vector_i)."""
            return sum_of_others(values * u) - u * sum_of_others(values)

        b = (zr * dr - zi * di).sum(-1, keepdims=True)
        real, imaginary, means = (differences(v * part) for part in (dr, di, b))
        joint = zr * (dr * real - di * imaginary) - zi * (dr * imaginary + di * real)
        return (v * (joint.sum(-1, keepdims=True) - b * means))[:, 0]

    def covariance(self) -> Array:
        """Cov[X | S = n], shape (c, c)."""
        (zr, zi), (dr, di) = self._measure(), self._slopes()
        b = (zr * dr - zi * di).sum(-1)
        v = (self.size * self.p * self.q)[:, 0]
        highest = lax.Precision.HIGHEST
        joint = jnp.matmul(dr * zr - di * zi, dr.T, precision=highest)
        joint = joint - jnp.matmul(di * zr + dr * zi, di.T, precision=highest)
        entries = v[:, None] * v * (joint - b[:, None] * b)
        own = jnp.eye(len(v), dtype=bool)
        others = jnp.where(own, 0.0, entries)
        return jnp.where(own, -others.sum(-1, keepdims=True), others)

    def variance(self) -> Array:
        """The diagonal of `covariance`, in O(c)."""
        (zr, zi), (dr, di) = self._measure(), self._slopes()
        v = self.size * self.p * self.q
        b = (zr * dr - zi * di).sum(-1, keepdims=True)
        real, imaginary, means = (sum_of_others(v * part) for part in (dr, di, b))
        joint = zr * (dr * real - di * imaginary) - zi * (dr * imaginary + di * real)
        return (v * (b * means - joint.sum(-1, keepdims=True)))[:, 0]
