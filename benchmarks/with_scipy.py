"""SciPy as a contender: its univariate noncentral distributions and its central ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # type: ignore[import-untyped]
from scipy import stats

from benchmarks.cells import Case, Problem
from benchmarks.limits import CannotDoError
from benchmarks.measure import Job, PythonJob
from benchmarks.memory import array_memory

VERSION: str = scipy.__version__
_LARGEST_POPULATION = 2**31 - 1
# The limit of NumPy's sampler for equal weights.
_LARGEST_CENTRAL_DRAW = 10**9


@dataclass(frozen=True)
class SciPy:
    """The functions of `scipy.stats`; two groups only, except for equal weights."""

    name: str = "SciPy"
    role: str = "peer"

    def offers(self, case: Case) -> bool:
        operations = {
            "fisher": ("log_prob", "moments", "many-draws", "one-draw-each", "fit"),
            "wallenius": ("log_prob", "moments", "many-draws", "one-draw-each"),
            "central": ("log_prob", "moments", "many-draws"),
        }
        return (
            case.operation in operations[case.law]
            and case.dtype == "float64"
            and (case.groups == 2 or case.law == "central")
        )

    def most_items(self, case: Case) -> int:
        population = case.groups * case.group_size
        if case.law != "central" and population > _LARGEST_POPULATION:
            raise CannotDoError("counts above int32")
        if (
            case.law == "central"
            and case.operation == "many-draws"
            and population >= _LARGEST_CENTRAL_DRAW
        ):
            raise CannotDoError("populations below 10⁹ only")
        return 10_000 if case.draws_counts or case.law == "central" else 1000

    def job(self, problem: Problem, items: int) -> Job:
        run = (
            _central(problem, items)
            if problem.case.law == "central"
            else _noncentral(problem, items)
        )
        return PythonJob(run, array_memory)


def _noncentral(problem: Problem, items: int) -> Callable[[], Any]:
    case = problem.case
    weights, counts = problem.arrays(items)
    law = getattr(stats, f"nchypergeom_{case.law}")
    odds = weights[:, 0] / weights[:, 1]
    urn = 2 * case.group_size, case.group_size, case.draws
    if case.operation == "log_prob":
        first = counts[:, 0]
        return lambda: law.logpmf(first, *urn, odds)
    if case.operation == "moments":
        return lambda: _of_both_groups(case.draws, *law.stats(*urn, odds, moments="mv"))
    generator = np.random.default_rng(0)
    if case.operation == "many-draws":
        return lambda: _both_counts(
            case.draws, law.rvs(*urn, odds[0], size=items, random_state=generator)
        )
    if case.operation == "one-draw-each":
        return lambda: _both_counts(case.draws, law.rvs(*urn, odds, random_state=generator))
    left = case.group_size - counts
    tables = np.stack([counts, left], axis=-2).astype(np.int64)
    return lambda: np.array(
        [[0.0, -np.log(stats.contingency.odds_ratio(table).statistic)] for table in tables]
    )


def _of_both_groups(draws: int, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return np.stack([mean, draws - mean, variance, variance], axis=-1)


def _both_counts(draws: int, first: np.ndarray) -> np.ndarray:
    first = np.atleast_1d(first)  # one draw is a number
    return np.stack([first, draws - first], axis=-1)


def _central(problem: Problem, items: int) -> Callable[[], Any]:
    case = problem.case
    _, counts = problem.arrays(items)
    generator = np.random.default_rng(0)
    if case.groups == 2:
        urn: tuple[Any, ...] = 2 * case.group_size, case.group_size, np.full(items, case.draws)
        if case.operation == "log_prob":
            return lambda: stats.hypergeom.logpmf(counts[:, 0], *urn)
        if case.operation == "moments":
            return lambda: _of_both_groups(case.draws, *stats.hypergeom.stats(*urn, moments="mv"))
        return lambda: _both_counts(
            case.draws,
            stats.hypergeom.rvs(*urn[:2], case.draws, size=items, random_state=generator),
        )
    law = stats.multivariate_hypergeom
    sizes = np.full((items, case.groups), case.group_size)
    if case.operation == "log_prob":
        whole = counts.astype(np.int64)
        return lambda: law.logpmf(whole, sizes, case.draws)
    if case.operation == "moments":
        return lambda: np.concatenate(
            [law.mean(sizes, case.draws), law.var(sizes, case.draws)], axis=-1
        )
    return lambda: law.rvs(sizes[0], case.draws, size=items, random_state=generator)
