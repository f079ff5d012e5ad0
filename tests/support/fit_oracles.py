"""Oracle of the tests of `fit`: likelihoods of small tables by listing every outcome, maximised by
SciPy. It does not import diffurn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq, linprog, minimize

Rows = Sequence[Sequence[int]]
# four rows of three groups, small enough to list every outcome
COUNTS = [[2, 1, 3], [1, 2, 2], [3, 1, 0], [0, 2, 4]]
SIZES = [[4, 3, 5], [2, 4, 6], [4, 4, 2], [3, 2, 5]]
# blocks {a, b}, then {c, d}: c and d are drawn only where a and b are used up
CHAIN = ([[2, 1, 0, 0], [1, 2, 0, 0], [3, 3, 1, 2], [3, 3, 2, 1]], [[3, 3, 4, 4]] * 4)


def assert_close(actual: Any, expected: Any, tolerance: float) -> None:
    torch.testing.assert_close(
        torch.as_tensor(actual).cpu(),
        torch.as_tensor(expected).double(),
        rtol=0,
        atol=tolerance,
        equal_nan=True,
    )


@cache
def support(sizes: tuple[int, ...], draws: int) -> np.ndarray:
    """All outcomes of an urn."""
    return np.array(
        [y for y in itertools.product(*(range(m + 1) for m in sizes)) if sum(y) == draws],
        dtype=float,
    )


@cache
def log_coefficients(sizes: tuple[int, ...], draws: int) -> np.ndarray:
    """log Π C(m_j, y_j) of every outcome."""
    return np.array(
        [
            sum(math.log(math.comb(m, int(y))) for m, y in zip(sizes, outcome, strict=True))
            for outcome in support(sizes, draws)
        ]
    )


def probabilities(sizes: tuple[int, ...], draws: int, log_weights: np.ndarray) -> np.ndarray:
    logs = log_coefficients(sizes, draws) + support(sizes, draws) @ log_weights
    return np.exp(logs - np.logaddexp.reduce(logs))


def row_log_prob(counts: Sequence[int], sizes: Sequence[int], log_weights: np.ndarray) -> float:
    outcomes = support(tuple(sizes), sum(counts))
    logs = log_coefficients(tuple(sizes), sum(counts)) + outcomes @ log_weights
    here = int(np.flatnonzero((outcomes == np.array(counts)).all(1))[0])
    return float(logs[here] - np.logaddexp.reduce(logs))


def moments(
    sizes: Sequence[int], draws: int, log_weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    outcomes, p = support(tuple(sizes), draws), probabilities(tuple(sizes), draws, log_weights)
    mean = p @ outcomes
    return mean, (outcomes - mean).T @ (p[:, None] * (outcomes - mean))


def log_likelihood(
    counts: Rows, sizes: Rows, features: np.ndarray
) -> Callable[[np.ndarray], float]:
    """As a function of β, for features of shape (R, c, p)."""

    def value(beta: np.ndarray) -> float:
        return sum(
            row_log_prob(x, m, z @ beta) for x, m, z in zip(counts, sizes, features, strict=True)
        )

    return value


def information(counts: Rows, sizes: Rows, features: np.ndarray, beta: np.ndarray) -> np.ndarray:
    return sum(
        z.T @ moments(m, sum(x), z @ beta)[1] @ z
        for x, m, z in zip(counts, sizes, features, strict=True)
    )


def indicators(rows: int, groups: int, reference: int) -> np.ndarray:
    """Features of a model with a weight for each group, relative to one of them."""
    return np.broadcast_to(np.delete(np.eye(groups), reference, 1), (rows, groups, groups - 1))


def maximum(value: Callable[[np.ndarray], float], start: np.ndarray) -> tuple[np.ndarray, float]:
    """By BFGS, polished by Nelder and Mead's method, which needs no gradient."""
    if len(start) == 0:
        return start, value(start)
    rough = minimize(lambda b: -value(b), start, method="BFGS").x
    fine = minimize(
        lambda b: -value(b),
        rough,
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-13, "maxiter": 20_000},
    )
    return fine.x, -fine.fun


def profile_end(
    value: Callable[[np.ndarray], float],
    contrast: np.ndarray,
    target: float,
    inside: float,
    outside: float,
) -> float:
    """Where the largest value with contrast · β held fixed is `target`, between two values of
    contrast · β.
    """
    basis = np.linalg.svd(contrast[None])[2][1:]  # directions that do not change the contrast

    def excess(held: float) -> float:
        base = contrast * held / (contrast @ contrast)
        return maximum(lambda b: value(base + b @ basis), np.zeros(len(contrast) - 1))[1] - target

    return brentq(excess, inside, outside, xtol=1e-9)


def recession(counts: Rows, sizes: Rows, gain: np.ndarray) -> float:
    """The largest gain · d over -1 ≤ d ≤ 1 for which no other outcome of any row has a greater d ·
    y than the counts observed.

    Zero for gain = e_j - e_k means that the likelihood bounds log ω_j - log ω_k from above.
    """
    differences = np.concatenate(
        [
            support(tuple(m), sum(x)) - np.array(x, dtype=float)
            for x, m in zip(counts, sizes, strict=True)
        ]
    )
    solution = linprog(-gain, A_ub=differences, b_ub=np.zeros(len(differences)), bounds=(-1, 1))
    assert solution.success
    return -solution.fun
