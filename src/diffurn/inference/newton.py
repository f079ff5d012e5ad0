"""Newton's method for many small concave problems at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from diffurn.inference.likelihood import Evaluation, Law, Progress, evaluate
from diffurn.inference.sample import Sample

_HALVINGS = 40
# The last step is one that moves β by less than 1e-9 of what a single ball tells about it: the step
# after it would be of order 1e-18.
_LAST_STEP = 1e-18
_ARMIJO = 1e-4
_ROUNDING = 1e-11


class Penalty(Protocol):
    """A term added to the log-likelihood."""

    @property
    def name(self) -> str:
        """As the user writes it."""

    def __call__(
        self, objective: Objective, coefficients: Tensor, likelihood: Evaluation
    ) -> Evaluation:
        """The penalised evaluation, from that of the likelihood."""


@dataclass(frozen=True)
class Objective:
    """A (penalised) log-likelihood of D data sets.

    Attributes:
        law: the urn law.
        sample: the rows.
        gauge: projection onto directions in which coefficients do not move, ``(D, p, p)``: those in
            which the likelihood is constant.
        penalty: None for plain maximum likelihood.
        progress: told of the rows done, and of all, in every pass over the sample.
    """

    law: Law
    sample: Sample
    gauge: Tensor
    penalty: Penalty | None = None
    progress: Progress | None = None

    def at(self, coefficients: Tensor) -> Evaluation:
        likelihood = evaluate(self.law, self.sample, coefficients, self.progress)
        return likelihood if self.penalty is None else self.penalty(self, coefficients, likelihood)

    def pick(self, data_sets: Tensor) -> Objective:
        return replace(self, sample=self.sample.pick(data_sets), gauge=self.gauge[data_sets])


def orthogonal_to(gauge: Tensor) -> Tensor:
    """Projection onto the directions in which coefficients move, ``(D, p, p)``."""
    return torch.eye(gauge.shape[-1], dtype=gauge.dtype, device=gauge.device) - gauge


def solve(information: Tensor, right: Tensor, gauge: Tensor) -> Tensor:
    """The solution of information @ y = right, right ``(D, p, k)``, among the y orthogonal to the
    gauge.

    Curvature of the wrong sign, or none, is taken as its opposite, or as next to none.
    """
    free = orthogonal_to(gauge)
    scale = information.diagonal(dim1=-2, dim2=-1).mean(-1).clamp(min=1e-30)[:, None, None]
    metric, right = free @ information @ free + scale * gauge, free @ right
    factor, failed = torch.linalg.cholesky_ex(metric)
    solution = torch.cholesky_solve(right, factor)
    odd = torch.nonzero((failed > 0) | ~solution.isfinite().all(-1).all(-1)).flatten()
    if len(odd):
        values, vectors = torch.linalg.eigh(torch.nan_to_num(metric[odd]))
        values = torch.maximum(values.abs(), 1e-14 * values.abs().amax(-1, keepdim=True)).clamp(
            min=1e-300
        )
        solution = solution.index_copy(
            0, odd, vectors @ (vectors.mT @ right[odd] / values.unsqueeze(-1))
        )
    return free @ solution


def newton_step(evaluation: Evaluation, gauge: Tensor) -> Tensor:
    return solve(evaluation.information, evaluation.score.unsqueeze(-1), gauge).squeeze(-1)


class Optimum(NamedTuple):
    """Where Newton's method ended, for each data set, and the evaluation there; `step` is the last
    one, taken or not.
    """

    coefficients: Tensor
    evaluation: Evaluation
    step: Tensor
    iterations: Tensor
    converged: Tensor

    def pick(self, data_sets: Tensor) -> Optimum:
        beta, step, iterations, converged = (
            x[data_sets] for x in (self.coefficients, self.step, self.iterations, self.converged)
        )
        return Optimum(beta, self.evaluation.pick(data_sets), step, iterations, converged)


def maximise(objective: Objective, start: Tensor, iterations: int = 100) -> Optimum:
    """Full Newton steps, halved while the objective falls; data sets that have converged are left
    alone.

    The Newton decrement, score · step, is twice what the step can still gain. Once it is below
    1e-18 per ball the step is taken without evaluating again: value and curvature then are those of
    a point closer than 1e-9 (in the units above) to the reported one.
    """
    tolerance = _LAST_STEP * objective.sample.totals[0].sum(-1).clamp(min=1)
    coefficients, evaluation = start.clone(), objective.at(start)
    step = newton_step(evaluation, objective.gauge)
    length, count = torch.ones_like(tolerance), torch.zeros_like(tolerance, dtype=torch.int64)
    converged = torch.zeros_like(tolerance, dtype=torch.bool)
    for _ in range(iterations):
        decrement = (evaluation.score * step).sum(-1)
        converged |= decrement <= tolerance
        active = torch.nonzero(~converged & (length > 0.5**_HALVINGS)).flatten()
        if not len(active):
            break
        # the whole sample is never copied
        part = objective if len(active) == len(converged) else objective.pick(active)
        trial = coefficients[active] + length[active, None] * step[active]
        result = part.at(trial)
        before = evaluation.value[active]
        wanted = (
            before + _ARMIJO * length[active] * decrement[active] - _ROUNDING * (1 + before.abs())
        )
        better = result.value >= wanted  # False for NaN
        count[active] += 1
        length[active] = torch.where(better, 1.0, 0.5 * length[active])
        moved, kept = active[better], torch.nonzero(better).flatten()
        if len(moved):
            accepted = result.pick(kept)
            coefficients[moved] = trial[kept]
            evaluation = evaluation.replaced(moved, accepted)
            step[moved] = newton_step(accepted, part.gauge[kept])
    coefficients = torch.where(converged.unsqueeze(-1), coefficients + step, coefficients)
    return Optimum(coefficients, evaluation, step, count, converged)
