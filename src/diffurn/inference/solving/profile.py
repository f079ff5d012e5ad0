"""Profile likelihood: the largest likelihood with one combination of coefficients held fixed.

An interval ends where the profile has fallen by half a χ² quantile. The method of Venzon and
Moolgavkar (1988) moves the combination and all other coefficients at once, by one quadratic model
of the likelihood per step. Every end of every coefficient of every data set is one problem of a
batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from diffurn._numerics.gauge import solve
from diffurn.inference.solving.likelihood import Evaluation, Objective
from diffurn.inference.solving.solution import Solution, hold, maximise

_ITERATIONS = 100
# If the profile is more than this (in nats) above the current point, climb to it first.
_ON_RIDGE = 0.1
# The last step is not checked; it may correct at most this much. Its own error is of the order of
# the square.
_CLOSE = 1e-5
_CLOSE_TO_RIDGE = 1e-9


@dataclass(frozen=True, eq=False)
class Problems:
    """Linear combinations of coefficients to hold fixed, each with its objective.

    Attributes:
        objective: one data set per problem, split and with the gauge of the limit distribution that
            applies while the combination is finite.
        contrast: the combinations, ``(Q, p)``.
        start: coefficients to start from, ``(Q, p)``.
    """

    objective: Objective
    contrast: Tensor
    start: Tensor

    def pick(self, chosen: Tensor) -> Problems:
        return Problems(self.objective.pick(chosen), self.contrast[chosen], self.start[chosen])


def problems(
    solution: Solution, data_sets: Tensor, contrast: Tensor, finite: Tensor
) -> list[tuple[Tensor, Problems]]:
    """Combinations ``(Q, p)`` of data sets ``(Q,)`` as batches of one kind, each with its positions
    among all. `finite` says whose estimates are finite.
    """
    split = solution.split[data_sets]
    kinds = [(~split, _unsplit)]
    if solution.blocks is not None:
        kinds += [(split, _with_blocks)]
    else:
        kinds += [(split & finite, _in_the_limit)]
        kinds += [
            (split & ~finite & (contrast[:, k] != 0), _with_a_coefficient_held)
            for k in range(contrast.shape[-1])
        ]
    chosen = [(torch.nonzero(kind).flatten(), make) for kind, make in kinds]
    return [
        (where, make(solution, data_sets[where], contrast[where]))
        for where, make in chosen
        if len(where)
    ]


def _unsplit(solution: Solution, data_sets: Tensor, contrast: Tensor) -> Problems:
    start = solution.optimum.coefficients[data_sets]
    return Problems(solution.objective.pick(data_sets), contrast, start)


def _with_blocks(solution: Solution, data_sets: Tensor, contrast: Tensor) -> Problems:
    """A combination held at a finite value makes the ratios of its groups finite, so blocks may
    grow.
    """
    assert solution.blocks is not None
    blocks = solution.blocks.pick(data_sets).contracted(contrast != 0)
    problem = _unsplit(solution, data_sets, contrast)
    return _split(problem, blocks.labels.unsqueeze(1), blocks.gauge)


def _in_the_limit(solution: Solution, data_sets: Tensor, contrast: Tensor) -> Problems:
    """A combination that is finite in the limit distribution is profiled there."""
    problem = _unsplit(solution, data_sets, contrast)
    return _split(problem, solution.labels[data_sets], solution.gauge[data_sets])


def _with_a_coefficient_held(solution: Solution, data_sets: Tensor, contrast: Tensor) -> Problems:
    """The same coefficient in all problems. While it is finite, the others have a limit
    distribution of their own.
    """
    problem = _unsplit(solution, data_sets, contrast)
    limit = hold(problem.objective, int(contrast[0].abs().argmax()))
    return replace(_split(problem, limit.labels, limit.gauge), start=limit.optimum.coefficients)


def _split(problem: Problems, labels: Tensor, gauge: Tensor) -> Problems:
    sample = problem.objective.sample.split(labels)
    return replace(problem, objective=replace(problem.objective, sample=sample, gauge=gauge))


def profile_maximum(problem: Problems, value: float) -> Tensor:
    """The largest objective ``(Q,)`` with the combination held at a value."""
    contrast = problem.contrast
    length = contrast.square().sum(-1, keepdim=True)
    missing = value - (contrast * problem.start).sum(-1, keepdim=True)
    along = contrast.unsqueeze(-1) * (contrast / length).unsqueeze(-2)
    constrained = replace(problem.objective, gauge=problem.objective.gauge + along)
    start = problem.start + missing * contrast / length
    return maximise(constrained, start).evaluation.value


@dataclass(frozen=True, eq=False)
class _Search:
    """The problems whose ends are still searched for; all tensors begin with their number.

    Attributes:
        problem: the problems, each at its current point `start`.
        evaluation: the objective there.
        target: the value at which the interval ends.
        side: -1 for the lower end, +1 for the upper end.
        longest: the longest step of the combination.
        length: the part of the next step that is taken, halved after every failure.
        number: the position of each problem among all.
    """

    problem: Problems
    evaluation: Evaluation
    target: Tensor
    side: Tensor
    longest: Tensor
    length: Tensor
    number: Tensor

    def pick(self, chosen: Tensor) -> _Search:
        rest = (self.target, self.side, self.longest, self.length, self.number)
        return _Search(
            self.problem.pick(chosen),
            self.evaluation.pick(chosen),
            *(tensor[chosen] for tensor in rest),
        )


class _Step:
    """One step of Venzon and Moolgavkar towards the end of the interval.

    On the slice where the combination keeps its value, the quadratic model has its maximum `climb`
    nats above the current point. From there the profile is modelled as height + slope·t -
    ½ t² / width, and t is where it meets the target.
    """

    def __init__(self, search: _Search) -> None:
        evaluation, contrast = search.evaluation, search.problem.contrast
        right = torch.stack([evaluation.score, contrast], -1)
        gauge = search.problem.objective.gauge
        newton, response = solve(evaluation.information, right, gauge).unbind(-1)
        self.width = (contrast * response).sum(-1).clamp(min=1e-300)
        slope = (contrast * newton).sum(-1) / self.width
        along = response / self.width.unsqueeze(-1)
        across = newton - (slope * self.width).unsqueeze(-1) * along
        self.climb = 0.5 * (evaluation.score * across).sum(-1)
        self.excess = evaluation.value + self.climb - search.target
        discriminant = slope.square() + 2 * self.excess / self.width
        meets = self.width * (slope + search.side * discriminant.clamp(min=0).sqrt())
        # Where the model stays below the target, its tangent leads back, since the profile is
        # concave.
        t = torch.where(discriminant >= 0, meets, -self.excess / slope)
        t = torch.nan_to_num(t).clamp(-search.longest, search.longest)
        self.t = torch.where(self.climb > _ON_RIDGE, 0.0, t)
        self.step = across + self.t.unsqueeze(-1) * along
        gain = self.t * slope - 0.5 * self.t.square() / self.width
        expected = search.target + self.excess + gain
        # A climb must not descend. A move along the profile must not fall far below the values that
        # the model and the target expect.
        before = evaluation.value
        lowest = torch.minimum(torch.minimum(before, expected), search.target) - 2.0
        floor = torch.where(self.t == 0, before, lowest)
        self.floor = floor - 1e-9 * (1 + before.abs())

    @property
    def final(self) -> Tensor:
        return (self.excess.abs() <= _CLOSE) & (self.climb <= _CLOSE_TO_RIDGE)


def profile_ends(problem: Problems, target: Tensor, side: Tensor) -> Tensor:
    """Where the profile of each combination meets the target on one side (±1), all of shape
    ``(Q,)``; nan if the search failed.
    """
    ends = torch.full_like(target, torch.nan)
    unlimited, number = torch.full_like(target, torch.inf), torch.arange(len(target))
    search = _Search(
        problem,
        problem.objective.at(problem.start),
        target,
        side,
        unlimited,
        torch.ones_like(target),
        number.to(target.device),
    )
    unit = _Step(search)
    longest = 2 * (unit.width * (2 * unit.excess.abs() + 1)).sqrt()
    search = replace(search, longest=longest)
    for _ in range(_ITERATIONS):
        step = _Step(search)
        here = search.problem
        reached = (here.contrast * here.start).sum(-1) + step.t
        ends[search.number] = torch.where(step.final, reached, torch.nan)
        going = torch.nonzero(~step.final).flatten()
        if not len(going):
            break
        if len(going) < len(step.t):  # otherwise nothing is copied
            search = search.pick(going)
        search = _advanced(search, step.step[going], step.floor[going])
    return ends


def _advanced(search: _Search, step: Tensor, floor: Tensor) -> _Search:
    """The search after a step, or with half its length where the objective falls below a floor."""
    here = search.problem
    trial = here.start + search.length.unsqueeze(-1) * step
    result = here.objective.at(trial)
    better = result.value >= floor
    moved = torch.nonzero(better).flatten()
    return replace(
        search,
        problem=replace(here, start=torch.where(better.unsqueeze(-1), trial, here.start)),
        evaluation=search.evaluation.replaced(moved, result.pick(moved)),
        length=torch.where(better, 1.0, 0.5 * search.length),
    )
