"""Confidence intervals and tail probabilities."""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn._validation import require_one_of
from diffurn.inference.coefficients import Coefficients
from diffurn.inference.profile import ask, profile_ends, profile_maximum
from diffurn.inference.solution import Solution

INTERVALS = ("wald", "profile")


def check_interval(level: float, method: str, name: str) -> None:
    """A ValueError if there is no such interval; `name` is what the caller calls the method."""
    if not 0 < level < 1:
        raise ValueError(f"level is {level}, but must lie between 0 and 1, such as 0.95")
    require_one_of(name, method, INTERVALS)


def normal_quantile(level: float) -> float:
    """z such that a standard normal lies within ±z with probability `level`."""
    return float(torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64)))


def two_sided_p(z: Tensor) -> Tensor:
    """P(|Z| ≥ |z|) of a standard normal."""
    return torch.erfc(z.abs() / 2**0.5)


def chi_squared_tail(statistic: Tensor, degrees_of_freedom: Tensor) -> Tensor:
    """P(χ² ≥ statistic); nan for zero degrees of freedom."""
    half = degrees_of_freedom.double() / 2
    tail = torch.special.gammaincc(half.clamp(min=0.5), statistic.clamp(min=0) / 2)
    return torch.where(half > 0, tail, torch.nan)


def interval_of(
    solution: Solution, coefficients: Coefficients, level: float, method: str
) -> tuple[Tensor, Tensor]:
    """Lower and upper ends, ``(D, p)``; an infinite estimate has one end, by the profile likelihood
    whatever the method.
    """
    z = normal_quantile(level)
    estimate, errors = coefficients.estimate, coefficients.standard_errors
    varies = (coefficients.contrasts != 0).any(-1) & ~coefficients.shift.isnan()
    ends = []
    for side in (-1.0, 1.0):
        end = torch.where(
            coefficients.shift == 0, estimate + side * z * errors, coefficients.estimate
        )
        wanted = varies & (coefficients.shift != side * torch.inf)
        wanted = wanted & (coefficients.shift != 0) if method == "wald" else wanted
        where, which = torch.nonzero(wanted, as_tuple=True)
        if len(where):
            end[where, which] = _profile(solution, coefficients, where, which, side, z)
        ends.append(end)
    return ends[0], ends[1]


def _profile(
    solution: Solution,
    coefficients: Coefficients,
    where: Tensor,
    which: Tensor,
    side: float,
    z: float,
) -> Tensor:
    contrast, finite = coefficients.contrasts[where, which], coefficients.shift[where, which] == 0
    target = solution.optimum.evaluation.value[where] - 0.5 * z * z
    ends = torch.empty_like(target)
    for chosen, questions in ask(solution, where, contrast, finite):
        ends[chosen] = profile_ends(
            questions, target[chosen], torch.full_like(target[chosen], side)
        )
    return ends


def p_values(solution: Solution, coefficients: Coefficients) -> Tensor:
    """Of each combination being zero: by its standard error, or, where the estimate is infinite, by
    the likelihood ratio.
    """
    p = two_sided_p(coefficients.estimate / coefficients.standard_errors)
    p = torch.where(coefficients.shift == 0, p, torch.nan)
    where, which = torch.nonzero(coefficients.shift.isinf(), as_tuple=True)
    if len(where):
        contrast = coefficients.contrasts[where, which]
        best, ratio = solution.optimum.evaluation.value[where], torch.empty_like(contrast[:, 0])
        for chosen, questions in ask(
            solution, where, contrast, torch.zeros_like(where, dtype=torch.bool)
        ):
            ratio[chosen] = 2 * (best[chosen] - profile_maximum(questions, 0.0))
        p[where, which] = chi_squared_tail(ratio, torch.ones_like(ratio))
    return p
