"""Profile likelihood: the largest likelihood that is left when one coefficient is held fixed.

The end of an interval is where the profile has fallen by half a χ² quantile. Venzon and Moolgavkar
(1988) move the coefficient and all others at once, by one quadratic model of the likelihood per
step; every end of every coefficient of every data set is one problem of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from diffurn.inference.likelihood import Evaluation
from diffurn.inference.newton import Objective, maximise, solve
from diffurn.inference.solution import Solution, held

_ITERATIONS = 100
# Off the ridge of the profile by more than this (in nats), first climb it.
_ON_RIDGE = 0.1
# What the last step, which is not checked any more, may correct: its own error is of the order of
# the square.
_CLOSE = 1e-5
_CLOSE_TO_RIDGE = 1e-9


@dataclass(frozen=True)
class Questions:
    """Linear combinations of the coefficients to be held fixed, each with the objective that it
    leaves.

    Attributes:
        objective: one data set for each question, split and with the gauge of the limit law that
            holds while the combination is finite.
        contrast: ``(Q, p)``.
        start: coefficients to start from, ``(Q, p)``.
    """

    objective: Objective
    contrast: Tensor
    start: Tensor


def ask(
    solution: Solution, data_sets: Tensor, contrast: Tensor, finite: Tensor
) -> list[tuple[Tensor, Questions]]:
    """Questions about combinations ``(Q, p)`` in given data sets ``(Q,)``, in batches of one kind,
    each with its positions among all.
    """
    split = solution.split[data_sets]
    kinds = [(~split, _as_it_is)]
    if solution.blocks is not None:
        kinds += [(split, _with_blocks)]
    else:
        kinds += [(split & finite, _in_the_limit)]
        kinds += [
            (split & ~finite & (contrast[:, k] != 0), _with_a_coefficient_held)
            for k in range(contrast.shape[-1])
        ]
    chosen = [(torch.nonzero(kind).flatten(), questions) for kind, questions in kinds]
    return [
        (where, questions(solution, data_sets[where], contrast[where]))
        for where, questions in chosen
        if len(where)
    ]


def _as_it_is(solution: Solution, data_sets: Tensor, contrast: Tensor) -> Questions:
    return Questions(
        solution.objective.pick(data_sets), contrast, solution.optimum.coefficients[data_sets]
    )


def _with_blocks(solution: Solution, data_sets: Tensor, contrast: Tensor) -> Questions:
    """Holding a combination at a finite value ties its groups together: larger blocks may
    result.
    """
    assert solution.blocks is not None
    blocks, objective = (
        solution.blocks.pick(data_sets).contracted(contrast != 0),
        solution.objective.pick(data_sets),
    )
    objective = replace(
        objective, sample=objective.sample.split(blocks.labels.unsqueeze(1)), gauge=blocks.gauge
    )
    return Questions(objective, contrast, solution.optimum.coefficients[data_sets])


def _in_the_limit(solution: Solution, data_sets: Tensor, contrast: Tensor) -> Questions:
    """What is finite in the limit law is asked of the limit law."""
    objective = solution.objective.pick(data_sets)
    objective = replace(
        objective,
        sample=objective.sample.split(solution.labels[data_sets]),
        gauge=solution.gauge[data_sets],
    )
    return Questions(objective, contrast, solution.optimum.coefficients[data_sets])


def _with_a_coefficient_held(solution: Solution, data_sets: Tensor, contrast: Tensor) -> Questions:
    """The same one of all; what the others do at infinity while it is finite is a limit law of its
    own.
    """
    objective = solution.objective.pick(data_sets)
    limit = held(objective, int(contrast[0].abs().argmax()))
    objective = replace(objective, sample=objective.sample.split(limit.labels), gauge=limit.gauge)
    return Questions(objective, contrast, limit.optimum.coefficients)


def profile_maximum(questions: Questions, value: float) -> Tensor:
    """The largest objective ``(Q,)`` with the combination held at a value."""
    contrast = questions.contrast
    length = contrast.square().sum(-1, keepdim=True)
    missing = value - (contrast * questions.start).sum(-1, keepdim=True)
    constrained = replace(
        questions.objective,
        gauge=questions.objective.gauge
        + contrast.unsqueeze(-1) * (contrast / length).unsqueeze(-2),
    )
    return maximise(constrained, questions.start + missing * contrast / length).evaluation.value


class _Step:
    """One step of Venzon and Moolgavkar from β towards the end on a given side.

    On the slice where the combination keeps its value the quadratic model has its maximum `climb`
    nats higher; from there the profile is modelled as height + slope·t - ½ t² / width, and t is
    where it meets the target.
    """

    def __init__(
        self,
        questions: Questions,
        evaluation: Evaluation,
        target: Tensor,
        side: Tensor,
        longest: Tensor,
    ) -> None:
        right = torch.stack([evaluation.score, questions.contrast], -1)
        newton, response = solve(evaluation.information, right, questions.objective.gauge).unbind(
            -1
        )
        self.width = (questions.contrast * response).sum(-1).clamp(min=1e-300)
        slope = (questions.contrast * newton).sum(-1) / self.width
        along = response / self.width.unsqueeze(-1)
        across = newton - (slope * self.width).unsqueeze(-1) * along
        self.climb = 0.5 * (evaluation.score * across).sum(-1)
        self.excess = evaluation.value + self.climb - target
        discriminant = slope.square() + 2 * self.excess / self.width
        meets = self.width * (slope + side * discriminant.clamp(min=0).sqrt())
        # Where the model stays below the target its tangent still leads back: the profile is
        # concave.
        t = torch.where(discriminant >= 0, meets, -self.excess / slope)
        self.t = torch.where(
            self.climb > _ON_RIDGE, 0.0, torch.nan_to_num(t).clamp(-longest, longest)
        )
        self.step = across + self.t.unsqueeze(-1) * along
        self.expected = target + self.excess + self.t * slope - 0.5 * self.t.square() / self.width

    @property
    def final(self) -> Tensor:
        return (self.excess.abs() <= _CLOSE) & (self.climb <= _CLOSE_TO_RIDGE)


def profile_ends(questions: Questions, target: Tensor, side: Tensor) -> Tensor:
    """Where the profile of each combination meets the target on one side (±1), all shapes ``(Q,)``;
    nan if it was not found.
    """
    beta, evaluation = questions.start.clone(), questions.objective.at(questions.start)
    unit = _Step(questions, evaluation, target, side, torch.full_like(target, torch.inf))
    longest = 2 * (unit.width * (2 * unit.excess.abs() + 1)).sqrt()
    ends, length = torch.full_like(target, torch.nan), torch.ones_like(target)
    active = torch.arange(len(target), device=target.device)
    for _ in range(_ITERATIONS):
        now = evaluation.pick(active)
        here = Questions(questions.objective.pick(active), questions.contrast[active], beta[active])
        step = _Step(here, now, target[active], side[active], longest[active])
        ends[active] = torch.where(
            step.final, (here.contrast * here.start).sum(-1) + step.t, ends[active]
        )
        going = ~step.final
        active = active[going]
        if not len(active):
            break
        trial = beta[active] + length[active, None] * step.step[going]
        result = questions.objective.pick(active).at(trial)
        # Climbing must not descend; moving along must not fall far below what both the model and
        # the target expect.
        before = now.value[going]
        floor = torch.where(
            step.t[going] == 0,
            before,
            torch.minimum(torch.minimum(before, step.expected[going]), target[active]) - 2.0,
        )
        better = result.value >= floor - 1e-9 * (1 + before.abs())
        length[active] = torch.where(better, 1.0, 0.5 * length[active])
        moved, kept = active[better], torch.nonzero(better).flatten()
        beta[moved] = trial[kept]
        evaluation = evaluation.replaced(moved, result.pick(kept))
    return ends
