"""Judges estimators of gradients through a draw: bias, spread, time and memory against the exact
gradient.

Each estimator gives many independent one-draw gradients G of each problem, and is judged by

- relative bias ‖mean G - ∇‖ / ‖∇‖, with its standard error; the share of the noise is subtracted,
- spread, the standard deviation of one draw's G relative to ‖∇‖,
- time and peak memory per draw, of the draw, f and the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.gradient_problems import Problem
from benchmarks.measure import clock_of
from benchmarks.memory import peak_tensor_bytes
from diffurn import CovarianceST, FisherHypergeometric, GumbelSoftmax, score_surrogate
from diffurn_studies.harness.machine import usable_device

# Draws of one leave-one-out group. Its estimate is as good as that many draws; the spread is scaled
# accordingly.
SCORE_GROUP = 10
# An estimator: gradients (number, c) for a problem, and the number of draws of each row.
Estimate = Callable[[Problem, int, torch.device], tuple[Tensor, int]]


def pathwise(estimator: Any) -> Estimate:
    def estimate(problem: Problem, number: int, device: torch.device) -> tuple[Tensor, int]:
        log_weights = problem.log_weights(device).repeat(number, 1).requires_grad_()
        urns = FisherHypergeometric(
            problem.group_sizes,
            problem.draws,
            log_weights=log_weights,
            estimator=estimator,
            validate_args=False,
        )
        return torch.autograd.grad(problem.f(urns.rsample()).sum(), log_weights)[0], 1

    return estimate


def by_score(control_variate: Any) -> Estimate:
    def estimate(problem: Problem, number: int, device: torch.device) -> tuple[Tensor, int]:
        log_weights = (
            problem.log_weights(device).repeat(max(2, number // SCORE_GROUP), 1).requires_grad_()
        )
        urns = FisherHypergeometric(
            problem.group_sizes, problem.draws, log_weights=log_weights, validate_args=False
        )
        return torch.autograd.grad(
            score_surrogate(urns, problem.f, SCORE_GROUP, control_variate).sum(), log_weights
        )[0], SCORE_GROUP

    return estimate


def estimators() -> dict[str, Estimate]:
    found = {
        "covariance": pathwise(CovarianceST()),
        "score": by_score(None),
        "score, covariance control": by_score("covariance"),
    }
    for temperature in (1.0, 0.5, 0.1):
        for conditionals in ("exact", "merged"):
            found[f"gumbel {conditionals}, τ = {temperature}"] = pathwise(
                GumbelSoftmax(temperature, conditionals=conditionals)
            )
    found["gumbel exact, τ = 0.1, Rao 8"] = pathwise(GumbelSoftmax(0.1, rao_blackwell=8))
    found["gumbel exact, τ = 1.0, draws left cut"] = pathwise(
        GumbelSoftmax(1.0, through_draws_left=False)
    )
    return found


@dataclass(frozen=True)
class Judgement:
    """One estimator on one problem."""

    urn: str
    function: str
    estimator: str
    draws: int
    bias: float
    bias_error: float
    spread: float
    microseconds_per_draw: float
    kilobytes_per_draw: float


@dataclass(frozen=True)
class Options:
    """Options of `python -m benchmarks gradients`.

    Attributes:
        draws: one-draw gradients per estimator and problem.
        slow_draws: the same for exact Gumbel chains on urns with groups of 200 balls and more,
            where every count costs a quadrature.
        seed: of all draws.
        device: where to run.
    """

    draws: int = 100_000
    slow_draws: int = 4_000
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        usable_device(self.device)


def cases(problems: Sequence[Problem]) -> Iterator[tuple[Problem, str, Estimate, bool]]:
    """Every problem with every estimator that is feasible, and whether it is slow there."""
    for problem in problems:
        largest = max(problem.group_sizes)
        for name, estimate in estimators().items():
            slow = name.startswith("gumbel exact") and largest > 100
            # Above 1,000 balls, exact Gumbel chains take thousands of quadratures per draw.
            if not (slow and largest > 1000):
                yield problem, name, estimate, slow


def run(options: Options, problems: Sequence[Problem]) -> Iterator[Judgement]:
    """Judges every estimator on every problem, one after another."""
    device = torch.device(options.device)
    for problem, name, estimate, slow in cases(problems):
        torch.manual_seed(options.seed)
        yield _judge(problem, name, estimate, options.slow_draws if slow else options.draws, device)


def _judge(
    problem: Problem, name: str, estimate: Estimate, number: int, device: torch.device
) -> Judgement:
    truth, clock = problem.exact_gradient(device), clock_of(device)
    batch = max(20, min(number, 2_000_000 // sum(problem.group_sizes)))
    estimate(problem, batch, device)  # warm-up
    rows, per_row, seconds = [], 1, 0.0
    for _ in range(max(1, round(number / batch))):
        start = clock()
        gradients, per_row = estimate(problem, batch, device)
        seconds += clock() - start
        rows.append(gradients)
    gradients = torch.cat(rows)
    variance = gradients.var(0).sum()
    scale = truth.norm()
    error = (variance / len(gradients)).sqrt() / scale
    distance = (gradients.mean(0) - truth).norm() / scale
    drawn = len(gradients) * per_row
    return Judgement(
        urn=problem.urn,
        function=problem.function,
        estimator=name,
        draws=drawn,
        bias=float((distance.square() - error.square()).clamp(min=0).sqrt()),
        bias_error=float(error),
        spread=float((variance * per_row).sqrt() / scale),
        microseconds_per_draw=1e6 * seconds / drawn,
        kilobytes_per_draw=peak_tensor_bytes(lambda: estimate(problem, batch, device), device)
        / 1024
        / batch,
    )


def report(
    options: Options, environment: dict[str, str], judgements: Sequence[Judgement]
) -> dict[str, Any]:
    """All judgements, with the command and the environment."""
    return {
        "command": f"python -m benchmarks gradients --draws {options.draws} --slow-draws "
        f"{options.slow_draws} --seed {options.seed}",
        "environment": environment,
        "judgements": [asdict(judgement) for judgement in judgements],
    }
