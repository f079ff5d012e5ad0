"""Cases for the kernels of Fisher's law, in Triton and in C, and the functions they replace."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import mpmath
from mpmath import mpf
from torch import Tensor

from diffurn._fisher import moments, tilt
from diffurn._numerics import binomial
from support.urns import Urn

PRIMITIVES: dict[str, Any] = {
    "binomial_log_pmf": binomial.log_pmf_value,
    "log_tilt": tilt.log_tilt,
    "centring_tilt": moments.centring_tilt,
    "log_mass": moments.log_mass_value,
    "mean": moments.mean_value,
    "mean_shift": moments.mean_shift_value,
    "covariance_product": moments.covariance_product,
    "variance": moments.variance,
}


NATIVE = {
    **PRIMITIVES,
    "mean_anywhere": moments.mean_anywhere_value,
    "covariance": moments.covariance,
    "log_prob": moments.log_prob_value,
}


def plain(function: str, *arguments: Tensor) -> Tensor:
    """PyTorch's operations, which gradients and compilers take."""
    result: Tensor = NATIVE[function].__wrapped__(*arguments)
    return result


def by_groups(urns: list[Urn]) -> Iterator[list[Urn]]:
    for groups in sorted({urn.groups for urn in urns}):
        yield [urn for urn in urns if urn.groups == groups]


BINOMIAL_SIZES = [0, 1, 2, 5, 7, 8, 9, 15, 16, 17, 40, 200, 10**4, 10**6, 10**9, 10**12, 10**15]
BINOMIAL_LOG_ODDS = [
    0.0,
    1e-9,
    -0.3,
    1.2,
    -4.0,
    9.0,
    -17.0,
    40.0,
    -300.0,
    700.0,
    -700.0,
    745.5,
    -2000.0,
]


def log_binomial(x: float, size: int, log_odds: float) -> tuple[mpf, mpf]:
    """log P(X = x), by the gamma function, and the mean."""
    x, size, log_odds = mpf(x), mpf(size), mpf(log_odds)
    log_ways = mpmath.loggamma(size + 1) - mpmath.loggamma(x + 1) - mpmath.loggamma(size - x + 1)
    log_q = -mpmath.log1p(mpmath.exp(-abs(log_odds))) - max(log_odds, 0)
    return log_ways + x * log_odds + size * log_q, size / (1 + mpmath.exp(-log_odds))


def binomial_cases() -> list[tuple[float, int, float]]:
    """Ends, middles, whole and real counts near the mean and far from it."""
    cases = []
    for size in BINOMIAL_SIZES:
        for log_odds in BINOMIAL_LOG_ODDS:
            p = float(1 / (1 + mpmath.exp(-mpf(log_odds))))
            deviation = (size * p * (1 - p)) ** 0.5
            near = [size * p + steps * deviation for steps in (-8.0, -1.0, 0.0, 0.3, 2.0, 9.0)]
            counts = {
                0.0,
                1.0,
                1e-310,
                1e-9,
                0.37,
                3.3,
                7.999,
                8.001,
                size / 2,
                size - 1.0,
                float(size),
                *near,
                *map(round, near),
            }
            cases += [(float(x), size, log_odds) for x in sorted(counts) if 0 <= x <= size]
    return cases


def allowed_error(case: tuple[float, int, float], exact: mpf, mean: mpf) -> float:
    """Of a binomial log-mass. p is rounded, which moves the mean, and so are logarithms, which meet
    counts. The plain path has these two errors too.
    """
    x, size, _ = case
    of_logarithms = [
        count
        for count, own in ((x, mean), (size - x, size - mean))
        if abs(x - mean) > 0.1 * (count + own)
    ]
    return float(
        4e-15 * max(1, abs(exact))
        + 4e-16 * abs(x - mean)
        + 2e-16 * math.log1p(size) * sum(of_logarithms)
    )
