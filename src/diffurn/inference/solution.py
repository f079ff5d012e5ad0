"""The maximum of the likelihood, wherever it lies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from diffurn.inference.likelihood import Evaluation, evaluate
from diffurn.inference.newton import Objective, Optimum, maximise, orthogonal_to, solve
from diffurn.inference.recession import (
    EXACT,
    TIE,
    cleaned,
    null_projection,
    refined,
    scales,
    separates,
)
from diffurn.inference.sample import Sample
from diffurn.inference.separation import Blocks, meetings, preferences
from diffurn.inference.start import starting_point

# Newton's method needs a handful of iterations; if it has not ended after a stage, it may be
# running after a maximum at infinity.
_STAGE = 12
_STAGES = 12
_LAST = 200


@dataclass(frozen=True)
class Solution:
    """A maximum for each data set; where it lies at infinity, of the limit law, whose rows are
    split by `labels`.

    Attributes:
        objective: as it was given.
        optimum: in the solver's coordinates, orthogonal to `gauge`.
        gauge: projection onto the directions in which the (limit) likelihood is constant, ``(D, p,
            p)``.
        labels: of the groups in each row, ``(D, R or 1, c)``; groups with different labels are
            drawn independently in the limit.
        blocks: of comparable groups; None with covariates.
        escape: where the maximum lies at infinity, the direction to it, ``(D, p)``; zero without
            covariates, where `blocks` tell more.
        log_likelihood: without penalty, ``(D,)``.
        covariance: inverse of the information, orthogonal to the gauge, ``(D, p, p)``.
    """

    objective: Objective
    optimum: Optimum
    gauge: Tensor
    labels: Tensor
    blocks: Blocks | None
    escape: Tensor
    log_likelihood: Tensor
    covariance: Tensor

    def pick(self, data_sets: Tensor) -> Solution:
        return Solution(
            objective=self.objective.pick(data_sets),
            optimum=self.optimum.pick(data_sets),
            gauge=self.gauge[data_sets],
            labels=self.labels[data_sets],
            blocks=None if self.blocks is None else self.blocks.pick(data_sets),
            escape=self.escape[data_sets],
            log_likelihood=self.log_likelihood[data_sets],
            covariance=self.covariance[data_sets],
        )

    @property
    def free_parameters(self) -> Tensor:
        """As many as the groups that meet could have, ``(D,)``; those at infinity count."""
        sample = self.objective.sample
        if self.blocks is None:
            return torch.full_like(self.optimum.iterations, sample.parameters)
        together = Blocks.of(meetings(sample)).labels
        return sample.counts.shape[-1] - (
            together == torch.arange(together.shape[-1], device=together.device)
        ).sum(-1)

    @cached_property
    def split(self) -> Tensor:
        """Data sets whose maximum lies at infinity, ``(D,)``."""
        (rows,) = self.objective.sample.summed((self.labels != 0).any(-1).sum(-1))
        return rows > 0

    @property
    def finite_parameters(self) -> Tensor:
        """Those of the limit law, ``(D,)``."""
        return self.gauge.shape[-1] - self.gauge.diagonal(dim1=-2, dim2=-1).sum(-1).round().to(
            torch.int64
        )

    def limit(self, sample: Sample) -> Sample:
        """The rows of a sample as the limit law has them."""
        return sample.split(self.labels) if bool(self.split.any()) else sample


def solve_groups(objective: Objective) -> Solution:
    """One weight per group; `separation` tells beforehand which ratios are finite. A penalty makes
    all ratios so that can be compared.
    """
    sample = objective.sample
    blocks = Blocks.of(preferences(sample) if objective.penalty is None else meetings(sample))
    objective = replace(objective, gauge=blocks.gauge)
    whole = blocks.whole if objective.penalty is None else torch.ones_like(blocks.whole)
    if bool(whole.all()):
        optimum = maximise(objective, starting_point(objective), _LAST)
    else:
        parts = [(torch.nonzero(whole).flatten(), False), (torch.nonzero(~whole).flatten(), True)]
        optimum = _joined(
            [
                (chosen, _maximise_limit(objective.pick(chosen), blocks.pick(chosen), split))
                for chosen, split in parts
            ]
        )
    labels = torch.where(whole.unsqueeze(-1), 0, blocks.labels).unsqueeze(1)
    return _finish(
        objective, optimum, blocks.gauge, labels, blocks, torch.zeros_like(optimum.coefficients)
    )


def _maximise_limit(objective: Objective, blocks: Blocks, split: bool) -> Optimum:
    if split:
        objective = replace(objective, sample=objective.sample.split(blocks.labels.unsqueeze(1)))
    return maximise(objective, starting_point(objective), _LAST)


def _joined(parts: list[tuple[Tensor, Optimum]]) -> Optimum:
    """The optima of some data sets each, in the order of the data sets."""
    order = torch.cat([chosen for chosen, _ in parts]).argsort()

    def join(*tensors: Tensor) -> Tensor:
        return torch.cat(tensors)[order]

    optima = [optimum for _, optimum in parts]
    evaluation = Evaluation(*map(join, *(optimum.evaluation for optimum in optima)))
    fields = (
        join(*(getattr(optimum, name) for optimum in optima))
        for name in ("coefficients", "step", "iterations", "converged")
    )
    coefficients, step, iterations, converged = fields
    return Optimum(coefficients, evaluation, step, iterations, converged)


def solve_features(objective: Objective) -> Solution:
    """log ω = features · β; a coefficient is infinite if holding it at any finite value costs
    likelihood, and nan if it costs none.
    """
    limit = follow(objective)
    unseen = limit.gauge.diagonal(dim1=-2, dim2=-1) > 1e-9
    escape = torch.where(unseen & (limit.escape == 0), torch.nan, limit.escape)
    for column in torch.nonzero((limit.escape != 0).any(0)).flatten().tolist():
        lost = torch.nonzero(limit.escape[:, column]).flatten()
        part = objective.pick(lost)
        null = null_projection(part.sample.split(held(part, column).labels), scales(part.sample))
        escape[lost, column] = torch.where(
            null[:, column, column] > 1e-9, torch.nan, escape[lost, column]
        )
    return _finish(objective, limit.optimum, limit.gauge, limit.labels, None, escape)


class Limit(NamedTuple):
    """The law at the end of all directions in which the likelihood rises for ever, and its maximum;
    as in `Solution`.
    """

    optimum: Optimum
    gauge: Tensor
    labels: Tensor
    escape: Tensor


def follow(objective: Objective) -> Limit:
    """Newton's method in stages; a direction in which the likelihood rises for ever is found on the
    way, and followed to its end.
    """
    sample, gauge = objective.sample, objective.gauge
    labels = torch.zeros_like(sample.counts, dtype=torch.int64)
    optimum = maximise(
        objective, starting_point(objective), _STAGE if objective.penalty is None else _LAST
    )
    escape = torch.zeros_like(optimum.coefficients)
    limit, before = objective, torch.zeros_like(optimum.coefficients)
    for _ in range(_STAGES if objective.penalty is None else 0):
        found = _escape(limit.sample, sample, labels, (optimum.coefficients - before, optimum.step))
        if found is not None:
            direction, labels = found
            limit = replace(objective, sample=sample.split(labels))
            gauge = null_projection(limit.sample, scales(sample))
            limit = replace(limit, gauge=gauge)
            # A later direction refines the limit along an earlier one, which has decided the signs
            # of its own coefficients.
            escape = torch.where(escape == 0, direction, escape)
        elif bool(optimum.converged.all()):
            break
        before = optimum.coefficients - (gauge @ optimum.coefficients.unsqueeze(-1)).squeeze(-1)
        later = maximise(limit, before, _STAGE)
        optimum = later._replace(iterations=optimum.iterations + later.iterations)
    return Limit(optimum, gauge, labels, escape)


def held(objective: Objective, column: int) -> Limit:
    """The limit law while one coefficient is held at a finite value: whichever, since it acts as an
    offset. The maximum is that at zero.
    """
    sample = objective.sample
    assert sample.features is not None
    own = torch.nn.functional.one_hot(torch.tensor(column), sample.parameters).to(sample.counts)
    alone = torch.outer(own, own)
    limit = follow(
        replace(
            objective,
            sample=replace(sample, features=sample.features * (1 - own)),
            gauge=objective.gauge + alone,
        )
    )
    return limit._replace(gauge=limit.gauge - alone)


def _escape(
    limit: Sample, sample: Sample, labels: Tensor, candidates: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor] | None:
    """A direction ``(D, p)``, zero for most data sets, along which the limit law's likelihood rises
    for ever, and the labels at its end.
    """
    scale = scales(sample)
    direction = torch.zeros_like(scale)
    for candidate in candidates:
        rough = cleaned(candidate, scale, 0.1 * TIE)
        ends = refined(labels, sample, rough)
        # The same direction with its ties made exact is what is checked.
        exact = (null_projection(sample.split(ends), scale) @ rough.unsqueeze(-1)).squeeze(-1)
        exact = cleaned(exact, scale, EXACT)
        found = (
            separates(limit, rough, TIE) & separates(limit, exact, EXACT) & (direction == 0).all(-1)
        )
        direction = torch.where(found.unsqueeze(-1), exact, direction)
        labels = torch.where(found[:, None, None], ends, labels)
    return (direction, labels) if bool((direction != 0).any()) else None


def _finish(
    objective: Objective,
    optimum: Optimum,
    gauge: Tensor,
    labels: Tensor,
    blocks: Blocks | None,
    escape: Tensor,
) -> Solution:
    evaluation = optimum.evaluation
    covariance = solve(evaluation.information, orthogonal_to(gauge), gauge)
    log_likelihood = evaluation.value
    if objective.penalty is not None:
        log_likelihood = evaluate(objective.law, objective.sample, optimum.coefficients).value
    return Solution(objective, optimum, gauge, labels, blocks, escape, log_likelihood, covariance)
