"""The Kolmogorov-Smirnov test of whole counts against a known discrete law, with its exact null
distribution.

The usual tables hold for continuous laws. For a discrete law they are too cautious, because the
distance is taken over fewer points. Here the probability of a distance under the null hypothesis is
computed, not simulated: the number of draws up to each count is a Markov chain, and the distance is
below d if that chain stays inside a band (W. J. Conover, *JASA* 1972; L. J. Gleser, *JASA* 1985).
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats  # type: ignore[import-untyped]

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

# Smaller p-values would be rounding errors, so Massart's bound (1990), which holds for any law, is
# given instead.
_SMALLEST = 1e-9
# Counts with a smaller expected number of draws are left out.
_NEVER = 1e-15
# Distances that differ by less than this many draws are the same distance.
_TIE = 1e-6


def distance(histogram: Counts, mass: Array) -> float:
    """max |F_N - F| from how often each count occurred and the probability of each."""
    return float(np.abs(np.cumsum(histogram) / histogram.sum() - np.cumsum(mass)).max())


def two_sample_distance(first: Counts, second: Counts) -> float:
    """max |F_N - G_M| from two histograms over the same counts."""
    return float(np.abs(np.cumsum(first) / first.sum() - np.cumsum(second) / second.sum()).max())


def p_value(observed: float, mass: Array, number: int) -> float:
    """P(D ≥ observed) for `number` independent draws from `mass`: exact, or a bound if that is
    below 1e-9.

    The draws at each count are independent Poisson counts, conditioned on their total. So each step
    of the chain is a convolution, cut off at the edges of the band.

    Example:
        >>> round(p_value(0.5, np.array([0.5, 0.5]), number=2), 12)  # both draws alike
        0.5
    """
    bound = 2 * math.exp(-2 * number * observed**2)
    if bound < _SMALLEST:
        return bound
    mass = mass[number * mass > _NEVER]
    # Weights of the numbers of draws so far that are inside the band, and the smallest such number.
    below, lowest = np.ones(1), 0
    for share, centre in zip(mass[:-1], number * np.cumsum(mass), strict=False):
        low = max(lowest, math.ceil(centre - number * observed + _TIE))
        high = min(number, math.floor(centre + number * observed - _TIE))
        if high < low:
            return 1.0
        spread = np.convolve(below, _poisson(number, share, high - lowest))
        below, lowest = spread[low - lowest : high - lowest + 1], low
    last = _poisson(number, mass[-1], number - lowest)[number - lowest - np.arange(len(below))]
    return float(np.clip(1 - below @ last / _poisson(number, 1.0, number)[number], 0, 1))


def _poisson(number: int, share: float, largest: int) -> Array:
    """Probabilities of 0, …, largest for a mean of number · share."""
    counts, log_factorials = _factorials(number)
    mean = number * share
    return np.exp(counts[: largest + 1] * math.log(mean) - mean - log_factorials[: largest + 1])


@functools.lru_cache(maxsize=4)
def _factorials(number: int) -> tuple[Array, Array]:
    counts = np.arange(number + 1.0)
    return counts, special.gammaln(counts + 1)


def critical_distance(mass: Array, number: int, level: float) -> tuple[float, float]:
    """The smallest distance that is rejected at `level`, to a thousandth of a draw, and the
    probability of a distance as large by chance.
    """
    low, high = 0.0, math.sqrt(math.log(2 / level) / (2 * number))
    while (high - low) * number > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle, mass, number) > level else (low, middle)
    return high, p_value(high, mass, number)


def two_sample_p_value(observed: float, first: int, second: int) -> float:
    """The asymptotic p-value for continuous laws, as SciPy's ``ks_2samp(method="asymp")`` has it;
    an upper bound for whole counts.
    """
    return float(
        np.clip(stats.kstwo.sf(observed, np.round(first * second / (first + second))), 0, 1)
    )
