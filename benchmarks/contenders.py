"""Who is measured by `diffurn bench` within torch: ours, the paper's algorithm, and torch's own
samplers of laws without a constraint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from benchmarks.cells import Case, Problem
from benchmarks.limits import CannotDoError
from benchmarks.measure import Job, PythonJob, tensor_memory
from benchmarks.ours import run_of, squared_length, through_draws
from diffurn import GumbelSoftmax, score_surrogate

# Elements of the largest tensors that an algorithm working in windows of counts is given at once;
# larger batches are done in part.
_WINDOW_ELEMENTS = 4_000_000
_SCORE_DRAWS = 10


class Contender(Protocol):
    """Someone who can be asked for a case."""

    @property
    def name(self) -> str:
        """Heading of its column."""
        ...

    @property
    def role(self) -> str:
        """Either "ours", which ratios compare with; "variant", another choice within this package;
        "peer"; or "floor", an easier law.
        """
        ...

    def offers(self, case: Case) -> bool:
        """Whether it has anything of this kind at all."""
        ...

    def most_items(self, case: Case) -> int:
        """How many items one run should have at most; where B is larger, a part is measured. Raises
        `CannotDoError` with a reason.
        """
        ...

    def job(self, problem: Problem, items: int) -> Job:
        """The case, or `items` of it."""
        ...


def torch_job(problem: Problem, run: Callable[[], Any]) -> PythonJob:
    return PythonJob(run, tensor_memory(problem.device), problem.device)


@dataclass(frozen=True)
class Ours:
    """This package with its defaults: the covariance estimator, Wald intervals."""

    name: str = "diffurn"
    role: str = "ours"

    def offers(self, case: Case) -> bool:
        return True

    def most_items(self, case: Case) -> int:
        return case.items

    def job(self, problem: Problem, items: int) -> PythonJob:
        return torch_job(problem, run_of(problem, items))


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
            return torch_job(problem, through_draws(problem, items, self.estimator))
        number = (items,) if problem.case.operation == "many-draws" else ()
        log_weights = problem.log_weights[0] if number else problem.log_weights[:items]

        def draw() -> Tensor:
            with torch.no_grad():
                return problem.urn(log_weights, self.estimator).rsample(number)

        return torch_job(problem, draw)


@dataclass(frozen=True)
class Score:
    """The unbiased estimate from ten draws of each urn, with or without the covariance as a control
    variate.
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

        return torch_job(problem, run)


@dataclass(frozen=True)
class TorchFloor:
    """torch.distributions without the constraint that makes an urn: independent binomials, or draws
    with replacement.
    """

    name: str
    role: str = "floor"

    def offers(self, case: Case) -> bool:
        return case.law == "fisher" and case.draws_counts

    def most_items(self, case: Case) -> int:
        elements = (
            case.groups if "Binomial" in self.name else case.draws
        )  # Multinomial draws every ball on its own
        if elements > _WINDOW_ELEMENTS:
            raise CannotDoError("draws ball by ball")
        return 10 * _WINDOW_ELEMENTS // elements

    def job(self, problem: Problem, items: int) -> Job:
        case = problem.case
        number = (items,) if case.operation == "many-draws" else ()
        log_weights = problem.log_weights[0] if number else problem.log_weights[:items]
        if "Binomial" in self.name:
            probabilities = torch.sigmoid(log_weights - 0.85)  # three tenths are drawn, about
            return torch_job(
                problem,
                lambda: torch.distributions.Binomial(case.group_size, probs=probabilities).sample(
                    number
                ),
            )
        return torch_job(
            problem,
            lambda: torch.distributions.Multinomial(case.draws, logits=log_weights).sample(number),
        )


def within_torch() -> list[Contender]:
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
        TorchFloor("torch Binomial"),
        TorchFloor("torch Multinomial"),
    ]
