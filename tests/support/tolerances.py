"""How many digits the library promises: the accuracy tests and the fuzzer read the same numbers."""

from __future__ import annotations

from typing import NamedTuple

EPS = 2.0**-52


class Tolerances(NamedTuple):
    """Errors that are allowed.

    Attributes:
        log_prob: of log P(x), relative to max(1, |log P(x)|).
        mean: of each mean, relative to it.
        mean_floor: of each mean, absolute.
        sum_of_means: of their sum, relative to n.
        covariance: of each entry, relative to the largest one.
        covariance_floor: of each entry, absolute, in urns of a million balls, and more in larger
            ones; it matters where the outcome is all but certain.
        symmetry: of the difference of two entries that must be equal, relative to the largest
            entry.
        row_sums: of the sum of a row of the covariance, relative to the largest entry and for each
            group.
        marginal: of log P(X_j = x), as `log_prob`.
        tails: of log P(X_j ≤ x) and log P(X_j > x), as `log_prob`.
        entropy: relative, or 1e-12 where that is more.
    """

    log_prob: float
    mean: float
    mean_floor: float
    sum_of_means: float
    covariance: float
    covariance_floor: float
    symmetry: float
    row_sums: float
    marginal: float
    tails: float
    entropy: float


FISHER = Tolerances(
    log_prob=1e-11,
    mean=1e-11,
    mean_floor=1e-290,  # 10¹² balls times the smallest number with all its digits
    sum_of_means=64 * EPS,
    covariance=1e-9,
    covariance_floor=1e-290,
    symmetry=32 * EPS,
    row_sums=32 * EPS,
    marginal=1e-10,
    tails=1e-11,
    entropy=1e-10,
)
# Wallenius' urns of few balls, and of any number.
WALLENIUS_SMALL = Tolerances(
    log_prob=1e-10,
    mean=1e-10,
    mean_floor=1e-250,
    sum_of_means=1e-12,
    covariance=1e-10,
    covariance_floor=1e-14,
    symmetry=1e-12,
    row_sums=1e-10,
    marginal=1e-10,
    tails=1e-10,
    entropy=1e-10,
)
WALLENIUS = WALLENIUS_SMALL._replace(log_prob=1e-9, covariance=1e-9, marginal=1e-9, tails=1e-9)
