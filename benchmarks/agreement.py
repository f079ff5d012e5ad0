"""Do contenders compute the same values as this package, and who is right if they do not?"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from benchmarks import reference
from benchmarks.cells import Problem
from benchmarks.contenders import Ours
from benchmarks.measure import as_array

# Largest errors of "the same accuracy": relative for moments, relative to max(1, |log p|) for
# log-probabilities, absolute for log ω.
PROMISES = {"log_prob": 1e-9, "moments": 1e-9, "fit": 1e-6}
FLOAT32_PROMISE = 1e-5
# Standard errors that the mean or the variance of draws may be off: one false alarm in five hundred
# million.
_ALARM = 6.0
# Items that are compared; moments of Wallenius' law are slow.
_MOST_ITEMS = {"fisher": 10_000, "central": 10_000, "wallenius": 50}
_MOST_NUMBERS = 1_000_000
_FEWEST_FOR_SPREAD = 1000


@dataclass(frozen=True)
class Agreement:
    """The comparison of a result with ours.

    Attributes:
        same: whether both are equal to the promised accuracy.
        difference: the largest one, in the units of `PROMISES`; of draws, that of a mean in
            standard deviations.
        words: the difference in words, for a table; empty if there is none.
    """

    same: bool
    difference: float | None
    words: str = ""


class Judge:
    """Compares the results of all contenders for one case.

    Args:
        problem: its inputs.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def __call__(self, value: np.ndarray) -> Agreement | None:
        """None for gradients, which `python -m benchmarks gradients` judges."""
        case = self.problem.case
        if case.operation == "gradient":
            return None
        if case.operation == "many-draws":
            return of_draws(self.reference, value[: max(1, _MOST_NUMBERS // case.groups)])
        both = min(len(self.reference), len(value))
        ours, theirs = self.reference[:both], value[:both]
        return (
            of_draws(ours, theirs) if case.draws_counts else _of_results(self.problem, ours, theirs)
        )

    @cached_property
    def reference(self) -> np.ndarray:
        """Ours in float64, for the first items; for draws, their exact moments."""
        case = self.problem.case
        operation = "moments" if case.draws_counts else case.operation
        urns = min(case.urns, _MOST_ITEMS[case.law])
        exact = Problem(
            replace(case, operation=operation, items=urns, dtype="float64"), self.problem.device
        )
        exact.log_weights = self.problem.log_weights[:urns].double()
        if operation != "moments":
            exact.counts = self.problem.counts[:urns].double()
        return as_array(Ours().job(exact, urns).run())


def of_draws(moments: np.ndarray, draws: np.ndarray) -> Agreement:
    """Judges draws by their exact means and variances, side by side in `moments`."""
    mean, variance = np.split(moments, 2, axis=-1)
    varying = np.broadcast_to(variance > 0, draws.shape)
    standard = (draws - mean) / np.sqrt(np.where(variance > 0, variance, np.inf))
    number = len(standard)
    shift = float(np.abs(standard.mean(0)).max())
    if not math.isfinite(shift):
        return Agreement(False, None, "draws that are no numbers")
    if number == 1:
        return Agreement(True, None)
    if shift > _ALARM / math.sqrt(number):
        return Agreement(False, shift, f"means off by {shift:.2g} σ")
    if number < _FEWEST_FOR_SPREAD:
        return Agreement(True, shift)
    squares = (standard**2).sum(-1) / np.maximum(varying.sum(-1), 1)
    excess, error = float(squares.mean() - 1), float(squares.std() / math.sqrt(number))
    if varying.any() and abs(excess) > _ALARM * error + 1e-9:
        return Agreement(False, shift, f"variance off by {excess:+.0%}")
    return Agreement(True, shift)


def _of_results(problem: Problem, ours: np.ndarray, theirs: np.ndarray) -> Agreement:
    operation = problem.case.operation
    if operation == "fit":  # only ratios of weights mean anything
        ours, theirs = ours - ours[:, :1], theirs - theirs[:, :1]
    broken = ~np.isfinite(theirs).all(-1)
    distance = np.where(broken, 0.0, (np.abs(theirs - ours) / _scale(operation, ours)).max(-1))
    largest, worst = float(distance.max()), int(distance.argmax())
    words = []
    if broken.any():
        kind = "nan" if np.isnan(theirs).any() else "−inf" if (theirs == -np.inf).any() else "inf"
        words.append(f"{kind} at {int(broken.sum()):,} of {len(broken):,}")
    if largest > (PROMISES[operation] if problem.case.dtype == "float64" else FLOAT32_PROMISE):
        words.append(
            f"differs by {largest:.0e}{_verdict(problem, worst, ours[worst], theirs[worst])}"
        )
    return Agreement(not words, largest, ", ".join(words))


def _scale(operation: str, ours: np.ndarray) -> np.ndarray:
    if operation == "moments":
        return np.where(ours == 0, 1.0, np.abs(ours))
    return np.maximum(1.0, np.abs(ours)) if operation == "log_prob" else np.ones_like(ours)


def _verdict(problem: Problem, item: int, ours: np.ndarray, theirs: np.ndarray) -> str:
    """Who is right about an item, if there is a reference value."""
    case = problem.case
    if case.groups != 2:
        return ""
    first, second = problem.log_weights[item].double().tolist()
    count = 0 if case.operation == "moments" else int(problem.counts[item, 0])
    if case.operation == "fit":
        drawn = int(problem.counts[item].sum())
        distances = [
            abs(reference.score(case.group_size, drawn, -row[1], count)) for row in (ours, theirs)
        ]
    else:
        truth = reference.exact_row(case, first - second, count)
        if truth is None:
            return ""
        distances = [float(np.abs(row - truth).max()) for row in (ours, theirs)]
    return f" ({'ours' if distances[0] < distances[1] else 'theirs'} is right)"
