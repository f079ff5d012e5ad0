"""A clock and contenders whose times the tests choose."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks import suite
from benchmarks.cells import Case, Problem, Sweep
from benchmarks.limits import CannotDoError, Limits
from benchmarks.measure import PythonJob
from diffurn_studies.harness.tables import Table, text

CPU = torch.device("cpu")
ONE_RUN = Limits(seconds=1e-9, patience=1e12)


class Clock:
    """Time that passes only when a job says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Fake:
    """A contender whose jobs take the seconds, and return the values, that a test wants."""

    name: str
    role: str
    seconds: Callable[[Case, int], float]
    value: Callable[[Case, int], np.ndarray] = lambda case, items: np.zeros((items, 1))
    most: int = 10**9

    def offers(self, case: Case) -> bool:
        return True

    def most_items(self, case: Case) -> int:
        if self.most < 1:
            raise CannotDoError("not my business")
        return self.most

    def job(self, problem: Problem, items: int) -> PythonJob:
        clock = Clock()

        def work() -> np.ndarray:
            clock.now += self.seconds(problem.case, items)
            return self.value(problem.case, items)

        return PythonJob(work, lambda run: 1000 * items, clock=clock)


def along_m(operation: str = "gradient", sizes: tuple[int, ...] = (10, 100, 1000)) -> Sweep:
    return Sweep("m", tuple(Case(operation, "fisher", 3, size, 100) for size in sizes))


def records_of(
    *contenders: Any, grid: Sweep | None = None, free_bytes: float = math.inf
) -> list[dict[str, Any]]:
    options = suite.Options(seconds=1.0)
    grids = [grid or along_m()]
    return list(suite.run(options, contenders, grids, free_bytes=lambda device: free_bytes))


def cell(table: Table, row: int, column: str) -> str:
    return text(table.rows[row][list(table.columns).index(column)])
