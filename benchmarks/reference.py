"""Reference values for two groups, from sums of positive terms, independent of the library."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.cells import Case

# Counts further from the mean than this many standard deviations have no weight in float64.
_REACH = 45
_LARGEST_SEQUENCE = 10_000


def exact_row(case: Case, log_odds: float, count: int) -> np.ndarray | None:
    """log P(`count`), or means and variances of both groups, right to ten digits; None if the sum
    would take more than a second.

    Args:
        case: two groups.
        log_odds: log ω₁/ω₂.
        count: of the first group.

    Example:
        >>> exact_row(Case("moments", "fisher", 2, 10, 1), 0.0, 0)
        array([3.        , 3.        , 1.10526316, 1.10526316])
    """
    if case.groups != 2 or (case.law == "wallenius" and case.group_size > _LARGEST_SEQUENCE):
        return None
    law = _wallenius if case.law == "wallenius" else _fisher
    counts, probabilities = law(case.group_size, case.draws, log_odds)
    if case.operation == "log_prob":
        found = probabilities[counts == count]
        return np.log(found) if found.size and found[0] > 0 else None
    mean, variance = _moments(counts, probabilities)
    return np.array([mean, case.draws - mean, variance, variance])


def score(group_size: int, draws: int, log_odds: float, count: int) -> float:
    """The distance of the mean at these odds from a count, in standard deviations; zero at the
    maximum of the likelihood.
    """
    if not math.isfinite(log_odds):
        return math.inf
    mean, variance = _moments(*_fisher(group_size, draws, log_odds))
    return (mean - count) / math.sqrt(variance)


def _moments(counts: np.ndarray, probabilities: np.ndarray) -> tuple[float, float]:
    mean = float((counts * probabilities).sum())
    return mean, float(((counts - mean) ** 2 * probabilities).sum())


def _fisher(size: int, draws: int, log_odds: float) -> tuple[np.ndarray, np.ndarray]:
    """Counts of the first of two equal groups and their probabilities: P(x + 1)/P(x) = ω (m - x)(n
    - x)/((x + 1)(m - n + x + 1)).
    """
    lowest, highest = max(0, draws - size), min(size, draws)
    odds = math.exp(log_odds)
    low, high = float(lowest), float(highest)
    for _ in range(100):  # the mode, where a step up is as likely as a step down
        middle = (low + high) / 2
        rising = odds * (size - middle) * (draws - middle) > middle * (size - draws + middle)
        low, high = (middle, high) if rising else (low, middle)
    variance = 1 / sum(
        1 / (cell + 1) for cell in (low, size - low, draws - low, size - draws + low)
    )
    reach = _REACH * (math.sqrt(variance) + 1)
    counts = np.arange(
        max(lowest, math.floor(low - reach)),
        min(highest, math.ceil(low + reach)) + 1,
        dtype=np.float64,
    )
    x = counts[:-1]
    steps = log_odds + np.log((size - x) * (draws - x) / ((x + 1) * (size - draws + x + 1)))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    weights = np.exp(logs - logs.max())
    return counts, weights / weights.sum()


def _wallenius(size: int, draws: int, log_odds: float) -> tuple[np.ndarray, np.ndarray]:
    """The same under Wallenius' law, by dynamic programming over the balls."""
    odds = math.exp(log_odds)
    x = np.arange(min(size, draws) + 1, dtype=np.float64)
    probabilities = np.zeros_like(x)
    probabilities[0] = 1.0
    for taken in range(draws):
        first = odds * (size - x)
        second = np.maximum(size - (taken - x), 0.0)
        chance = np.divide(first, first + second, out=np.zeros_like(x), where=first + second > 0)
        up = probabilities * chance
        probabilities = probabilities - up
        probabilities[1:] += up[:-1]
    return x, probabilities
