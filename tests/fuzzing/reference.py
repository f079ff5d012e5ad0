"""Fisher's law of many urns at once in plain NumPy: an independent second opinion on every urn, to
about twelve digits.

Independent binomials with odds r·ω_j, given that their sum S is n, follow Fisher's law for every r.
Here r makes the mean of S equal to n (the library aims at n - ½); sums are counted from the balls
that are the exception, in extended precision, so that nothing cancels at 10¹² balls. P(S = n) comes
from the characteristic function of S at the points θ = 2πk/K, whose rule is exact up to P(S = n ±
K), …
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fuzzing.families import Batch, Floats, Integers

Extended = NDArray[np.longdouble]

# Bernstein: S leaves its mean by K with probability 2e^-NATS at most. |φ| falls below that before
# the last of the NODES.
NATS = 40.0
NODES = 40
BISECTIONS = 80


def exceptions(log_odds: Extended, sizes: Integers) -> tuple[Integers, Extended]:
    """How many balls of each group are drawn as a rule (all or none), and how many are, on average,
    the exception to it.
    """
    often = log_odds > 0
    with np.errstate(under="ignore", over="ignore"):
        rare = sizes / (1 + np.exp(np.abs(log_odds)))
    return np.where(often, sizes, 0), np.where(often, -rare, rare)


def surplus(log_odds: Extended, sizes: Integers, target: Integers | Floats) -> Extended:
    """Σ m σ(log_odds) - target: the whole numbers subtract exactly, the rest is as small as the
    variance.
    """
    rule, rare = exceptions(log_odds, sizes)
    return (rule.sum(-1) - target) + rare.sum(-1)


def solve_log_tilt(log_weights: Extended, sizes: Integers, target: Integers | Floats) -> Extended:
    """log r with Σ m σ(log r + log ω) = target, by bisection; groups without balls have any finite
    log-weight.
    """
    held = sizes > 0
    reach = np.log(np.maximum(sizes.sum(-1), 1).astype(np.longdouble)) + 2
    low = -np.where(held, log_weights, -np.inf).max(-1, initial=-1e4) - reach
    high = -np.where(held, log_weights, np.inf).min(-1, initial=1e4) + reach
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        too_low = surplus(log_weights + middle[:, None], sizes, target) < 0
        low, high = np.where(too_low, middle, low), np.where(too_low, high, middle)
    return (low + high) / 2


class Reference:
    """Probabilities and moments of a batch of Fisher's urns."""

    def __init__(self, batch: Batch) -> None:
        self.sizes, self.draws = batch.drawable, batch.draws
        total = self.sizes.sum(-1)
        self.certain = (self.draws == 0) | (self.draws == total) | ((self.sizes > 0).sum(-1) <= 1)
        log_weights = np.where(self.sizes > 0, batch.exact_log_weights, 0.0)
        self.log_odds = log_weights + solve_log_tilt(log_weights, self.sizes, self.draws)[:, None]
        self.p, self.q = 1 / (1 + np.exp(-self.log_odds)), 1 / (1 + np.exp(self.log_odds))
        self.spread: Floats = (self.sizes * self.p * self.q).astype(
            float
        )  # variances of the independent binomials
        self._transform()

    def _transform(self) -> None:
        """The terms of the sum for P(S = n), and with them E[· | S = n] as an average over the
        nodes.
        """
        variance = self.spread.sum(-1)
        width = NATS / 3 + np.sqrt(NATS**2 / 9 + 2 * NATS * variance)
        period = 2 * np.ceil(width / 2) + 3  # odd: at θ = π a factor may vanish
        k = np.arange(NODES)
        counted = np.where(2 * k < period[:, None], np.where(k == 0, 1.0, 2.0), 0.0)
        theta = 2 * math.pi * k / period[:, None]
        half = np.sin(theta / 2)[:, None, :]
        p, q = (share.astype(float)[:, :, None] for share in (self.p, self.q))
        rare = np.minimum(p, q)
        sign = np.where(self.log_odds > 0, -1.0, 1.0)[:, :, None]
        sizes = self.sizes[:, :, None].astype(float)
        log_size = 0.5 * np.log1p(-4 * p * q * half**2)
        # The angle of each ball less its mean; the sum of the means is n but for `drift`.
        angle = (
            np.arctan2(rare * np.sin(theta)[:, None, :], 1 - 2 * rare * half**2)
            - rare * theta[:, None, :]
        )
        drift = surplus(self.log_odds, self.sizes, self.draws).astype(float)[:, None]
        exponent = (sizes * log_size).sum(1) + 1j * ((sign * sizes * angle).sum(1) + drift * theta)
        terms = counted / period[:, None] * np.exp(exponent)
        self.mass: Floats = terms.real.sum(-1)
        self._average = terms / self.mass[:, None]
        step = -2 * half**2 + 1j * np.sin(theta)[:, None, :]  # e^{iθ} - 1
        self._slope = step / (1 + p * step)

    @cached_property
    def _shift(self) -> Floats:
        return (self._average[:, None, :] * self._slope).real.sum(-1)

    @cached_property
    def mean(self) -> Floats:
        conditioned = self.sizes * self.p * (1 + self.q * self._shift)
        sure = np.minimum(self.sizes, self.draws[:, None])
        return np.where(self.certain[:, None], sure, conditioned).astype(float)

    @cached_property
    def covariance(self) -> Floats:
        joint = np.einsum("bk,bik,bjk->bij", self._average, self._slope, self._slope).real
        products = self.spread[:, :, None] * self.spread[:, None, :]
        entries = products * (joint - self._shift[:, :, None] * self._shift[:, None, :])
        own = np.eye(entries.shape[-1], dtype=bool)
        others = np.where(own, 0.0, entries)
        covariance = np.where(own, -others.sum(-1, keepdims=True), others)
        return np.where(self.certain[:, None, None], 0.0, covariance)

    def log_prob(self, counts: Integers) -> Floats:
        """log P(x) of possible counts (B, K, c)."""
        per_group = log_binomial(
            counts, self.sizes[:, None, :], self.p[:, None, :], self.q[:, None, :]
        )
        free = per_group.sum(-1) - np.log(self.mass)[:, None]
        return np.where(self.certain[:, None], 0.0, free).astype(float)

    def neighbour_ratio(self, counts: Integers, to: Integers, source: Integers) -> Floats:
        """log P(x + e_to - e_source) - log P(x), from binomial coefficients alone; one exchange for
        each urn, counts (B, c).
        """
        x, m, lw = counts.astype(np.longdouble), self.sizes, self.log_odds

        def of(values: NDArray[np.longdouble], group: Integers) -> NDArray[np.longdouble]:
            return np.take_along_axis(values, group[:, None], 1)[:, 0]

        gained = np.log(of(m - x, to)) - np.log(of(x, to) + 1) + of(lw, to)
        paid = np.log(of(m - x, source) + 1) - np.log(of(x, source)) + of(lw, source)
        return (gained - paid).astype(float)


# --------------------------------------------------------------------------------------------------
# Binomial probabilities (Loader 2000): no term is larger than the result
# --------------------------------------------------------------------------------------------------

_EXACT = np.array(
    [0.0]
    + [
        math.log(math.factorial(k)) - (k + 0.5) * math.log(k) + k - 0.5 * math.log(2 * math.pi)
        for k in range(1, 17)
    ]
)


def stirling_error(n: Extended) -> Extended:
    """log n! - log(√(2πn) (n/e)ⁿ); n = 0 is handled by the caller."""
    large = np.maximum(n, 16)
    square = 1 / (large * large)
    series = (
        1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))
    ) / large
    return np.where(n <= 16, _EXACT[np.minimum(n, 16).astype(np.int64)], series)


def deviance(x: Extended, expected: Extended) -> Extended:
    """x log(x/expected) + expected - x."""
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = (x - expected) / expected
        near = (1 + relative) * np.log1p(relative) - relative
        value = np.where(
            np.abs(relative) < 0.5, expected * near, x * np.log(x / expected) + expected - x
        )
    return np.where(x == 0, expected, np.where(x == expected, 0, value))


def _log(share: Extended, other: Extended) -> Extended:
    """log share, where share + other = 1."""
    return np.where(share > 0.5, np.log1p(-other), np.log(share))


def log_binomial(counts: Integers, sizes: Integers, p: Extended, q: Extended) -> Extended:
    """log Bin(x; m, p) with q = 1 - p given, in extended precision."""
    x, m = counts.astype(np.longdouble), sizes.astype(np.longdouble)
    y = m - x
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = m * np.where(x == 0, _log(q, p), _log(p, q))
        inside = (
            stirling_error(m)
            - stirling_error(x)
            - stirling_error(y)
            - deviance(x, m * p)
            - deviance(y, m * q)
        )
        inside = inside + 0.5 * np.log(m / (2 * np.longdouble(np.pi) * x * y))
    return np.where(m == 0, 0, np.where((x == 0) | (y == 0), ends, inside))
