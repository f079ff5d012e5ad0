"""The law of random partitions by brute force over all orders of the items, in plain NumPy; diffurn
is not imported.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Labels = tuple[int, ...]


def log_law(
    log_scores: Sequence[float],
    log_weights: Sequence[float],
    group_sizes: Sequence[int] | None = None,
) -> dict[Labels, float]:
    """log P of every possible partition, by the subset of each item.

    An order has the probability ∏ w_i / (the weight of the items from i on). It becomes a partition
    when it is cut into pieces of the sizes.
    """
    items = len(log_scores)
    terms: dict[Labels, list[float]] = {}
    sizes_law = dict(log_law_of_sizes(items, log_weights, group_sizes))
    for order, log_prob in log_law_of_orders(log_scores):
        for sizes, log_size in sizes_law.items():
            labels = np.empty(items, dtype=int)
            labels[list(order)] = np.repeat(np.arange(len(sizes)), sizes)
            terms.setdefault(tuple(labels.tolist()), []).append(log_prob + log_size)
    return {labels: float(logsumexp(each)) for labels, each in terms.items()}


def log_law_of_orders(log_scores: Sequence[float]) -> Iterator[tuple[tuple[int, ...], float]]:
    """Plackett and Luce's law: every order, and its log-probability."""
    scores: NDArray[np.float64] = np.asarray(log_scores, dtype=float)
    for order in itertools.permutations(range(len(scores))):
        taken = scores[list(order)]
        from_here = np.logaddexp.accumulate(taken[::-1])[::-1]
        yield order, math.fsum(taken - from_here)


def log_law_of_sizes(
    items: int, log_weights: Sequence[float], group_sizes: Sequence[int] | None = None
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Fisher's law: all sizes, and their log-probabilities."""
    largest = [items] * len(log_weights) if group_sizes is None else list(group_sizes)
    outcomes = {
        sizes: math.fsum(
            math.log(math.comb(m, x)) + (x * w if x else 0.0)
            for m, x, w in zip(largest, sizes, log_weights, strict=True)
        )
        for sizes in itertools.product(*(range(m + 1) for m in largest))
        if sum(sizes) == items
    }
    total = logsumexp(list(outcomes.values()))
    for sizes, log_prob in outcomes.items():
        yield sizes, float(log_prob - total)
