"""The contenders that use torch: this package, the paper's algorithm, and torch's own samplers of
distributions without the constraint of an urn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from benchmarks.cells import Case, Problem
from benchmarks.limits import CannotDoError
from benchmarks.measure import Job, PythonJob, torch_job
from benchmarks.ours import run_of, squared_length, through_draws
from diffurn import GumbelSoftmax, score_surrogate

# The largest number of elements in the tensors of an algorithm that lists windows of counts; of
# larger batches a part is measured.
_WINDOW_ELEMENTS = 4_000_000
_SCORE_DRAWS = 10


class Contender(Protocol):
    """A package or an algorithm that can do some of the cases."""

    @property
    def name(self) -> str:
        """Heading of its column."""
        ...

    @property
    def role(self) -> str:
        """Either "ours", the numerator of all ratios; "variant", another choice within this
        package; "peer"; or "floor", a sampler of an easier distribution.
        """
        ...

    def offers(self, case: Case) -> bool:
        """Whether it has such an operation."""
        ...

    def most_items(self, case: Case) -> int:
        """The largest number of items of one run; of larger batches a part is measured.

        Raises `CannotDoError` with a reason if it cannot do the case.
        """
        ...

    def job(self, problem: Problem, items: int) -> Job:
        """The case, or `items` of it."""
        ...


@dataclass(frozen=True)
class Ours:
    """This package with its defaults."""

    name: str = "diffurn"
    role: str = "ours"

    def offers(self, case: Case) -> bool:
        return True

    def most_items(self, case: Case) -> int:
        return case.items

    def job(self, problem: Problem, items: int) -> PythonJob:
        return torch_job(run_of(problem, items), problem.device)


@dataclass(frozen=True)
class Gumbel:
    """A chain of Gumbel-Softmax draws; with merged conditionals, the paper's algorithm."""

    name: str
    role: str
    estimator: GumbelSoftmax
    operations: tuple[str, ...]

    def offers(self, case: Case) -> bool:
        return case.law == "fisher" and case.operation in self.operations

    def most_items(self, case: Case) -> int:
        deviation = (0.21 * case.group_size) ** 0.5
        window = min(case.group_size + 1, 18 * deviation + 1)
        return max(1, int(_WINDOW_ELEMENTS / (window * case.groups)))

    def job(self, problem: Problem, items: int) -> Job:
        if problem.case.operation == "gradient":
            return torch_job(through_draws(problem, items, self.estimator), problem.device)
        number = (items,) if problem.case.operation == "many-draws" else ()
        log_weights = problem.log_weights[0] if number else problem.log_weights[:items]

        def draw() -> Tensor:
            with torch.no_grad():
                return problem.urn(log_weights, self.estimator).rsample(number)

        return torch_job(draw, problem.device)


@dataclass(frozen=True)
class Score:
    """The score-function estimator with ten draws of each urn, with or without the covariance as a
    control variate.
    """

    name: str
    control_variate: Any
    role: str = "variant"

    def offers(self, case: Case) -> bool:
        return case.law == "fisher" and case.operation == "gradient"

    def most_items(self, case: Case) -> int:
        return max(1, _WINDOW_ELEMENTS // (_SCORE_DRAWS * case.groups))

    def job(self, problem: Problem, items: int) -> Job:
        log_weights = problem.log_weights[:items].clone().requires_grad_()

        def run() -> Tensor:
            surrogate = score_surrogate(
                problem.urn(log_weights), squared_length, _SCORE_DRAWS, self.control_variate
            )
            return torch.autograd.grad(surrogate.sum(), log_weights)[0]

        return torch_job(run, problem.device)


@dataclass(frozen=True)
class TorchFloor:
    """A sampler of torch without the constraint of an urn: independent binomial counts, or draws
    with replacement (multinomial counts).
    """

    is_binomial: bool
    role: str = "floor"

    @property
    def name(self) -> str:
        return "torch Binomial" if self.is_binomial else "torch Multinomial"

    def offers(self, case: Case) -> bool:
        return case.law == "fisher" and case.draws_counts

    def most_items(self, case: Case) -> int:
        # Multinomial draws every ball separately.
        elements = case.groups if self.is_binomial else case.draws
        if elements > _WINDOW_ELEMENTS:
            raise CannotDoError("draws ball by ball")
        return 10 * _WINDOW_ELEMENTS // elements

    def job(self, problem: Problem, items: int) -> Job:
        case = problem.case
        number = (items,) if case.operation == "many-draws" else ()
        log_weights = problem.log_weights[0] if number else problem.log_weights[:items]

        # With these probabilities about three tenths of the balls are drawn.
        probabilities = torch.sigmoid(log_weights - 0.85)

        def draw() -> Any:
            law = (
                torch.distributions.Binomial(case.group_size, probs=probabilities)
                if self.is_binomial
                else torch.distributions.Multinomial(case.draws, logits=log_weights)
            )
            return law.sample(number)

        return torch_job(draw, problem.device)


def within_torch() -> list[Contender]:
    """All contenders of this file."""
    drawing = ("many-draws", "one-draw-each", "gradient")
    return [
        Ours(),
        Gumbel(
            "merged Gumbel (the paper)", "peer", GumbelSoftmax(1.0, conditionals="merged"), drawing
        ),
        Gumbel(
            "exact Gumbel (diffurn)",
            "variant",
            GumbelSoftmax(1.0, conditionals="exact"),
            ("gradient",),
        ),
        Score("score, 10 draws (diffurn)", None),
        Score("score + covariance, 10 draws (diffurn)", "covariance"),
        TorchFloor(is_binomial=True),
        TorchFloor(is_binomial=False),
    ]
