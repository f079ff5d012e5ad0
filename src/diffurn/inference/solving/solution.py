"""The maximum of the likelihood by Newton's method, finite or at infinity, for many data sets at
once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from diffurn._numerics.gauge import orthogonal_to, solve
from diffurn.inference.solving.likelihood import Evaluation, Objective
from diffurn.inference.solving.robust import Errors, model_errors
from diffurn.inference.solving.rows import EXACT, TIE, R, Rows
from diffurn.inference.solving.sample import Sample
from diffurn.inference.solving.separation import (
    Blocks,
    cleaned,
    meetings,
    null_projection,
    preferences,
    scales,
)

_HALVINGS = 40
# The last step moves β by less than 1e-9 of the information of a single ball; the step after it
# would be of order 1e-18.
_LAST_STEP = 1e-18
_ARMIJO = 1e-4
_ROUNDING = 1e-11
_ITERATIONS_OF_SUBSAMPLE = 20
# Newton's method needs a handful of iterations. If it has not converged after a stage, it may be
# following a maximum at infinity.
_STAGE = 12
_STAGES = 12
_LAST = 200


# --- Newton's method


class Optimum(NamedTuple):
    """Where Newton's method ended in each data set.

    Attributes:
        coefficients: ``(D, p)``.
        evaluation: at the last point that was evaluated.
        step: the last step, accepted or not, ``(D, p)``.
        iterations: ``(D,)``.
        converged: ``(D,)``.
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

    @staticmethod
    def joined(parts: list[tuple[Tensor, Optimum]]) -> Optimum:
        """Optima of some data sets each, in the order of the data sets."""
        order = torch.cat([chosen for chosen, _ in parts]).argsort()

        def join(tensors: list[Tensor]) -> Tensor:
            return torch.cat(tensors)[order]

        optima = [optimum for _, optimum in parts]
        return Optimum(
            join([optimum.coefficients for optimum in optima]),
            Evaluation(*(join(list(x)) for x in zip(*(o.evaluation for o in optima), strict=True))),
            join([optimum.step for optimum in optima]),
            join([optimum.iterations for optimum in optima]),
            join([optimum.converged for optimum in optima]),
        )


def maximise(objective: Objective, start: Tensor, iterations: int = 100) -> Optimum:
    """Full Newton steps, halved while the objective falls; data sets that have converged are left
    alone.

    The Newton decrement, score · step, is twice the gain that the step can still bring. Once it is
    below 1e-18 per ball, the step is taken without another evaluation: value and curvature then
    belong to a point closer than 1e-9 (in the units above) to the reported one.
    """
    tolerance = _LAST_STEP * objective.sample.drawn.clamp(min=1)
    coefficients, evaluation = start.clone(), objective.at(start)
    step = evaluation.newton_step(objective.gauge)
    length, count = torch.ones_like(tolerance), torch.zeros_like(tolerance, dtype=torch.int64)
    for _ in range(iterations):
        decrement = (evaluation.score * step).sum(-1)
        converged = decrement <= tolerance  # False for NaN
        moves = ~converged & (length > 0.5**_HALVINGS)
        active = torch.nonzero(moves).flatten()
        if not len(active):
            break
        count += moves
        trial, before = coefficients + length.unsqueeze(-1) * step, evaluation.value
        wanted = before + _ARMIJO * length * decrement - _ROUNDING * (1 + before.abs())
        part, everything = objective, len(active) == len(moves)
        if not everything:  # the whole sample is never copied
            part, trial, wanted = objective.pick(active), trial[active], wanted[active]
        result = part.at(trial)
        better = result.value >= wanted  # False for NaN
        if everything and bool(better.all()):
            coefficients, evaluation = trial, result
            step = result.newton_step(objective.gauge)
            length.fill_(1.0)
            continue
        length[active] = torch.where(better, 1.0, 0.5 * length[active])
        moved, kept = active[better], torch.nonzero(better).flatten()
        if len(moved):
            accepted = result.pick(kept)
            coefficients[moved] = trial[kept]
            evaluation = evaluation.replaced(moved, accepted)
            step[moved] = accepted.newton_step(part.gauge[kept])
    coefficients = torch.where(converged.unsqueeze(-1), coefficients + step, coefficients)
    return Optimum(coefficients, evaluation, step, count, converged)


def starting_point(objective: Objective) -> Tensor:
    """The observed log-odds, or zero with a design; with a single row, an estimate that saves a
    step or two; with very many rows, the fit of a random subsample, so that all rows are passed
    about three times only.
    """
    sample = objective.sample
    grouped = isinstance(sample, Sample) and sample.design is None
    if grouped and sample.all_units == 1 and objective.penalty is None:
        start = objective.urns.estimate_from_one_row()
    elif grouped:
        start = objective.urns.observed_log_odds()
    else:
        start = torch.zeros_like(objective.gauge[..., 0])
    start = start - (objective.gauge @ start.unsqueeze(-1)).squeeze(-1)
    if sample.all_units < objective.many_rows:
        return start
    rows = sample.units
    # The rows are chosen at random, since they may come in a regular pattern. The generator is
    # separate, so that a fit leaves torch's random state unchanged.
    number = max(1, objective.subsample * rows // sample.all_units)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(0))
    part = replace(
        objective, sample=sample.pick_rows(order[:number].to(start.device)), progress=None
    )
    optimum = maximise(part, start, _ITERATIONS_OF_SUBSAMPLE)
    usable = optimum.converged
    if grouped:  # a subsample may be separated where the sample is not
        mine, all_ = (Blocks.of(preferences(x)).labels for x in (part.urns, objective.urns))
        usable = usable & (mine == all_).all(-1)
    return torch.where(usable.unsqueeze(-1), optimum.coefficients, start)


# --- the solution


@dataclass(frozen=True, eq=False)
class Solution:
    """The maximum of each data set. Where it lies at infinity, it is the maximum of the limit
    distribution, whose rows are split by `labels`.

    Attributes:
        objective: the objective as it was given.
        optimum: in the solver's coordinates, orthogonal to `gauge`.
        gauge: projection onto the directions in which the likelihood (of the limit) is constant,
            ``(D, p, p)``.
        labels: of the groups in each row, ``(D, R or 1, c)``; groups with different labels are
            drawn independently in the limit.
        blocks: of comparable groups; None with a design.
        escape: where the maximum lies at infinity, the direction to it, ``(D, p)``; zero without a
            design, where `blocks` says more.
        log_likelihood: without the penalty, ``(D,)``.
        other_errors: standard errors, if they are not those of the model.
    """

    objective: Objective
    optimum: Optimum
    gauge: Tensor
    labels: Tensor
    blocks: Blocks | None
    escape: Tensor
    log_likelihood: Tensor
    other_errors: Errors | None = None

    @classmethod
    def of(
        cls,
        objective: Objective,
        optimum: Optimum,
        gauge: Tensor,
        labels: Tensor,
        blocks: Blocks | None,
        escape: Tensor,
    ) -> Solution:
        log_likelihood = optimum.evaluation.value
        if objective.penalty is not None:
            silent = replace(objective, progress=None)
            log_likelihood = silent.likelihood(optimum.coefficients).value
        return cls(objective, optimum, gauge, labels, blocks, escape, log_likelihood)

    def pick(self, data_sets: Tensor) -> Solution:
        return Solution(
            objective=self.objective.pick(data_sets),
            optimum=self.optimum.pick(data_sets),
            gauge=self.gauge[data_sets],
            labels=self.labels[data_sets],
            blocks=None if self.blocks is None else self.blocks.pick(data_sets),
            escape=self.escape[data_sets],
            log_likelihood=self.log_likelihood[data_sets],
            other_errors=self.other_errors and self.other_errors.pick(data_sets),
        )

    @cached_property
    def errors(self) -> Errors:
        """The covariance, orthogonal to the gauge. The model's is computed when it is needed."""
        if self.other_errors is not None:
            return self.other_errors
        with torch.no_grad():
            information = self.optimum.evaluation.information
            return model_errors(solve(information, orthogonal_to(self.gauge), self.gauge))

    @property
    def covariance(self) -> Tensor:
        """Of the coefficients, ``(D, p, p)``."""
        return self.errors.covariance

    @cached_property
    def split(self) -> Tensor:
        """Data sets whose maximum lies at infinity, ``(D,)``."""
        (rows,) = self.objective.sample.summed((self.labels != 0).any(-1).sum(-1))
        return rows > 0

    @property
    def free_parameters(self) -> Tensor:
        """The number of parameters, ``(D,)``; those at infinity count."""
        if self.blocks is None:
            return torch.full_like(self.optimum.iterations, self.gauge.shape[-1])
        comparable = self.blocks
        if self.objective.penalty is None and not comparable.connected:
            comparable = Blocks.of(meetings(self.objective.urns))
        if comparable.connected:
            return torch.full_like(self.optimum.iterations, self.gauge.shape[-1] - 1)
        return self.gauge.shape[-1] - comparable.number

    @property
    def finite_parameters(self) -> Tensor:
        """The number of parameters of the limit distribution, ``(D,)``."""
        fixed = self.gauge.diagonal(dim1=-2, dim2=-1).sum(-1).round().to(torch.int64)
        return self.gauge.shape[-1] - fixed

    def limit(self, sample: R) -> R:
        """The rows of a sample, split as in the limit distribution."""
        return sample.split(self.labels) if bool(self.split.any()) else sample


def solve_sample(objective: Objective) -> Solution:
    """The maximum likelihood estimate, with or without a design."""
    sample = objective.sample
    if isinstance(sample, Sample) and sample.design is None:
        return _solve_groups(objective, sample)
    return _solve_design(objective)


# --- a weight for every group


def _solve_groups(objective: Objective, sample: Sample) -> Solution:
    """The blocks tell beforehand which ratios are finite. With a penalty, all ratios of groups that
    meet are.
    """
    blocks = Blocks.of(preferences(sample) if objective.penalty is None else meetings(sample))
    gauge = blocks.gauge
    objective = replace(objective, gauge=gauge)
    labels = blocks.labels if objective.penalty is None else torch.zeros_like(blocks.labels)
    if blocks.connected or objective.penalty is not None:
        optimum = maximise(objective, starting_point(objective), _LAST)
    else:
        optimum = _maximise_each(objective, blocks)
    escape = torch.zeros_like(optimum.coefficients)
    return Solution.of(objective, optimum, gauge, labels.unsqueeze(1), blocks, escape)


def _maximise_each(objective: Objective, blocks: Blocks) -> Optimum:
    """Data sets with one block as they are; those with several blocks in the limit."""
    parts = []
    for separated in (False, True):
        chosen = torch.nonzero(blocks.whole != separated).flatten()
        if not len(chosen):
            continue
        part = objective.pick(chosen)
        if separated:
            labels = blocks.labels[chosen].unsqueeze(1)
            part = replace(part, sample=part.sample.split(labels))
        parts.append((chosen, maximise(part, starting_point(part), _LAST)))
    return Optimum.joined(parts)


# --- a coefficient for every feature


def _solve_design(objective: Objective) -> Solution:
    """A coefficient is infinite if every finite value of it costs likelihood, and nan if none
    does.
    """
    limit = _follow(objective)
    unseen = limit.gauge.diagonal(dim1=-2, dim2=-1) > 1e-9
    escape = torch.where(unseen & (limit.escape == 0), torch.nan, limit.escape)
    for column in torch.nonzero((limit.escape != 0).any(0)).flatten().tolist():
        lost = torch.nonzero(limit.escape[:, column]).flatten()
        part = objective.pick(lost)
        held = part.sample.split(hold(part, column).labels)
        null = null_projection(held, scales(part.sample))
        escape[lost, column] = torch.where(
            null[:, column, column] > 1e-9, torch.nan, escape[lost, column]
        )
    return Solution.of(objective, limit.optimum, limit.gauge, limit.labels, None, escape)


class Limit(NamedTuple):
    """The maximum of the limit distribution along all directions in which the likelihood keeps
    rising; the attributes are those of `Solution`.
    """

    optimum: Optimum
    gauge: Tensor
    labels: Tensor
    escape: Tensor


def _follow(objective: Objective) -> Limit:
    """Newton's method in stages. After each stage, a direction in which the likelihood keeps rising
    is looked for; if there is one, the next stage maximises the limit along it.
    """
    sample, gauge = objective.sample, objective.gauge
    labels = sample.no_labels()
    stages, longest = (_STAGES, _STAGE) if objective.penalty is None else (0, _LAST)
    optimum = maximise(objective, starting_point(objective), longest)
    escape = torch.zeros_like(optimum.coefficients)
    limit, before = objective, torch.zeros_like(optimum.coefficients)
    for _ in range(stages):
        if bool(optimum.converged.all()):  # along an escape, a Newton step gains one nat at most
            break
        found = _escape(limit.sample, sample, labels, (optimum.coefficients - before, optimum.step))
        if found is not None:
            direction, labels = found
            split = sample.split(labels)
            gauge = null_projection(split, scales(sample))
            limit = replace(objective, sample=split, gauge=gauge)
            # A later direction refines the limit along an earlier one, which has decided the signs
            # of its own coefficients.
            escape = torch.where(escape == 0, direction, escape)
        before = optimum.coefficients - (gauge @ optimum.coefficients.unsqueeze(-1)).squeeze(-1)
        later = maximise(limit, before, _STAGE)
        optimum = later._replace(iterations=optimum.iterations + later.iterations)
    return Limit(optimum, gauge, labels, escape)


def _escape(
    limit: Rows, sample: Rows, labels: Tensor, candidates: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor] | None:
    """A direction ``(D, p)`` along which the likelihood of the limit keeps rising, zero for most
    data sets, and the labels at its end.
    """
    scale = scales(sample)
    direction = torch.zeros_like(scale)
    for candidate in candidates:
        rough = cleaned(candidate, scale, 0.1 * TIE)
        ends = sample.refined(labels, rough)
        # The same direction with exact ties is checked as well.
        exact = (null_projection(sample.split(ends), scale) @ rough.unsqueeze(-1)).squeeze(-1)
        exact = cleaned(exact, scale, EXACT)
        found = limit.separates(rough, TIE) & limit.separates(exact, EXACT)
        found &= (direction == 0).all(-1)
        direction = torch.where(found.unsqueeze(-1), exact, direction)
        labels = torch.where(found[:, None, None], ends, labels)
    return (direction, labels) if bool((direction != 0).any()) else None


def hold(objective: Objective, column: int) -> Limit:
    """The limit distribution while one coefficient is held at zero. Its labels and gauge are those
    for any finite value, since a held coefficient acts as an offset.
    """
    own = torch.zeros_like(objective.gauge[0, 0])
    own[column] = 1
    alone = torch.outer(own, own)
    without = objective.sample.without(column)
    limit = _follow(replace(objective, sample=without, gauge=objective.gauge + alone))
    return limit._replace(gauge=limit.gauge - alone)
