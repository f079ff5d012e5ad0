"""Data and oracles of the tests of conditional logistic regression. Nothing here uses diffurn."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import mpmath
import numpy as np


class Study(NamedTuple):
    """Rows of a case-control study."""

    case: np.ndarray
    x: np.ndarray
    w: np.ndarray
    group: np.ndarray
    offset: np.ndarray
    stratum: np.ndarray

    @property
    def X(self) -> np.ndarray:  # noqa: N802
        return np.stack([self.x, self.w], 1)

    def columns(self) -> dict[str, Any]:
        return {name: list(values.tolist()) for name, values in self._asdict().items()}


def study() -> Study:
    """Four strata of 5 to 22 rows with 2 to 9 cases: `typed.R` in words, so that R has the same."""
    sizes, cases, i = [5, 9, 14, 22], [2, 5, 7, 9], np.arange(1, 51)
    stratum, x = np.repeat([1, 2, 3, 4], sizes), np.sin(i)
    score = np.sin(3 * i + 1) + 0.5 * x
    case = np.concatenate(
        [
            (np.argsort(np.argsort(-score[stratum == k + 1])) < n).astype(int)
            for k, n in enumerate(cases)
        ]
    )
    group = np.array(["a", "b", "c"])[i % 3]
    return Study(case, x, np.cos(2 * i), group, 0.3 * np.sin(5 * i), stratum)


# The R code that gave the values in the tests; `y` is the case, `g` the group, `off` the offset.
#
# sizes <- c(5, 9, 14, 22); cases <- c(2, 5, 7, 9); i <- 1:50
# d <- data.frame(id = rep(1:4, sizes), x = sin(i), w = cos(2 * i),
#                 g = c("a", "b", "c")[i %% 3 + 1], off = 0.3 * sin(5 * i))
# u <- sin(3 * i + 1) + 0.5 * d$x
# d$y <- unlist(lapply(1:4, function(s) as.integer(rank(-u[d$id == s]) <= cases[s])))
# library(survival)
# r <- clogit(FORMULA, d, method = "exact", control = coxph.control(eps = 1e-14))


def subsets(size: int, number: int) -> np.ndarray:
    """All subsets as rows of zeros and ones."""
    chosen = list(itertools.combinations(range(size), number))
    table = np.zeros((len(chosen), size))
    for row, subset in zip(table, chosen, strict=True):
        row[list(subset)] = 1
    return table


def listed(
    log_weights: np.ndarray, case: np.ndarray, design: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """log P of the cases of one stratum, its gradient and minus its Hessian in β, by listing all
    subsets.
    """
    table = subsets(len(case), int(case.sum()))
    logs = table @ log_weights
    p = np.exp(logs - np.logaddexp.reduce(logs))
    mean = p @ table
    centred = (table - mean) @ design
    value = float(case @ log_weights - np.logaddexp.reduce(logs))
    return value, design.T @ (case - mean), centred.T @ (p[:, None] * centred)


def one_by_one(log_weights: np.ndarray, case: np.ndarray) -> float:
    """log P that the cases of a stratum are chosen one after another, in any order."""
    weights, cases = np.exp(log_weights), np.flatnonzero(case)
    total = 0.0
    for order in itertools.permutations(cases):
        left, chance = weights.sum(), 1.0
        for row in order:
            chance *= weights[row] / left
            left -= weights[row]
        total += chance
    return float(np.log(total))


def in_forty_digits(log_weights: np.ndarray, case: np.ndarray) -> mpmath.mpf:
    """log P of the cases of one stratum, by multiplying the polynomials 1 + ω z."""
    with mpmath.workdps(40):
        drawn = int(case.sum())
        coefficients = [mpmath.mpf(1)] + [mpmath.mpf(0)] * drawn
        for log_weight in log_weights:
            weight = mpmath.exp(mpmath.mpf(float(log_weight)))
            for k in range(drawn, 0, -1):
                coefficients[k] += weight * coefficients[k - 1]
        cases = mpmath.fsum(mpmath.mpf(float(s)) for s in log_weights[case == 1])
        return cases - mpmath.log(coefficients[drawn])
