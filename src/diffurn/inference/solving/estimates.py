"""Reported coefficients: estimates, confidence intervals, p-values and contrasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from diffurn._numerics.beta import f_tail, student_quantile, student_tail
from diffurn._numerics.gauge import orthogonal_to
from diffurn._validation import require_one_of
from diffurn.inference.solving.profile import problems, profile_ends, profile_maximum
from diffurn.inference.solving.separation import Blocks, main_block
from diffurn.inference.solving.solution import Solution

if TYPE_CHECKING:
    from diffurn.inference.solving.bootstrap import Bootstrap

INTERVALS = ("wald", "profile", "bootstrap")
CORRECTIONS = ("holm", "bonferroni", "benjamini-hochberg", None)


def check_interval(level: float, method: str, name: str, covariance: str = "model") -> None:
    """Raises a ValueError for a bad level or method, or one that does not suit the kind of standard
    errors; `name` is the argument's name.
    """
    if not 0 < level < 1:
        raise ValueError(f"level is {level}, but must lie between 0 and 1, such as 0.95")
    require_one_of(name, method, INTERVALS)
    if method == "profile" and covariance not in ("model", "scaled"):
        raise ValueError(
            f'{name} "profile" needs the likelihood to be right, which covariance "{covariance}" '
            f'does not assume; use {name} "wald" or "bootstrap"'
        )


# --- from the solver's coordinates to coefficients


@dataclass(frozen=True, eq=False)
class Estimates:
    """Linear combinations of the solver's coordinates.

    Attributes:
        contrasts: row j gives coefficient j, ``(D, k, p)``; a row of zeros is the reference.
        shift: 0 where a coefficient is finite, ±inf or nan elsewhere, ``(D, k)``.
        value: ``(D, k)``.
    """

    contrasts: Tensor
    shift: Tensor
    value: Tensor

    @classmethod
    def of(cls, solution: Solution, contrasts: Tensor, shift: Tensor) -> Estimates:
        """Of combinations ``(D, k, p)`` that are infinite or undetermined where `shift` is."""
        value = (contrasts @ solution.optimum.coefficients.unsqueeze(-1)).squeeze(-1) + shift
        return cls(contrasts, shift, value)

    def covariance(self, solution: Solution) -> Tensor:
        """``(D, k, k)``; where an estimate is infinite, inf on the diagonal and nan beside it."""
        shift, covariance = self.shift, self.contrasts @ solution.covariance @ self.contrasts.mT
        open_ended = (shift != 0).unsqueeze(-1) | (shift != 0).unsqueeze(-2)
        if not bool(open_ended.any()):
            return covariance
        infinite = torch.where(shift != 0, torch.inf, 0.0)
        diagonal = torch.diag_embed(torch.where(shift.isnan(), torch.nan, infinite))
        own = torch.eye(shift.shape[-1], dtype=torch.bool, device=shift.device)
        return torch.where(open_ended, torch.where(own, diagonal, torch.nan), covariance)

    def standard_errors(self, solution: Solution) -> Tensor:
        return self.covariance(solution).diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()

    def pick(self, data_sets: Tensor) -> Estimates:
        return Estimates(*(x[data_sets] for x in (self.contrasts, self.shift, self.value)))


def estimates_of(solution: Solution, reference: int | None) -> Estimates:
    """β with a design. Otherwise log ω relative to the reference group, or to the geometric mean of
    the main block of groups.
    """
    if solution.blocks is None:
        contrasts = torch.eye(
            solution.escape.shape[-1], dtype=torch.float64, device=solution.escape.device
        ).expand_as(solution.gauge)
        shift = torch.where(solution.escape == 0, 0.0, solution.escape * torch.inf)
    else:
        contrasts, shift = _relative_to(solution, solution.blocks, reference)
    return Estimates.of(solution, contrasts, shift)


def _relative_to(
    solution: Solution, blocks: Blocks, reference: int | None
) -> tuple[Tensor, Tensor]:
    """Contrasts and shifts of all groups relative to one, or to the main block."""
    sample = solution.objective.urns
    groups = sample.counts.shape[-1]
    if reference is None and blocks.connected:
        return orthogonal_to(blocks.gauge), torch.zeros_like(solution.escape)
    if reference is None:
        anchor = main_block(blocks, sample).double()
        anchor = anchor / anchor.sum(-1, keepdim=True).clamp(min=1)
    else:
        anchor = torch.zeros_like(sample.counts[:, 0])
        anchor[:, reference] = 1.0
    contrasts = torch.eye(groups, dtype=anchor.dtype, device=anchor.device) - anchor.unsqueeze(-2)
    representative = anchor.argmax(-1)[:, None, None].expand(-1, groups, 1)
    shift = blocks.order().gather(-1, representative).squeeze(-1)
    return contrasts, torch.where(sample.absent, torch.nan, shift)


# --- intervals and p-values


def chi_squared_tail(statistic: Tensor, degrees_of_freedom: Tensor) -> Tensor:
    """P(χ² ≥ statistic); nan for zero degrees of freedom."""
    half = degrees_of_freedom.double() / 2
    tail = torch.special.gammaincc(half.clamp(min=0.5), statistic.clamp(min=0) / 2)
    return torch.where(half > 0, tail, torch.nan)


def interval_of(
    solution: Solution, estimates: Estimates, level: float, method: str
) -> tuple[Tensor, Tensor]:
    """Lower and upper ends, ``(D, k)``. The one finite end of an infinite estimate is always that
    of the profile likelihood.
    """
    quantile = student_quantile(level, solution.errors.degrees)
    shift, errors = estimates.shift, estimates.standard_errors(solution)
    varies = (estimates.contrasts != 0).any(-1) & ~shift.isnan()
    ends = []
    for side in (-1.0, 1.0):
        end = torch.where(
            shift == 0, estimates.value + side * quantile.unsqueeze(-1) * errors, estimates.value
        )
        profiled = varies & (shift != side * torch.inf)
        profiled = profiled & (shift != 0) if method == "wald" else profiled
        where, which = torch.nonzero(profiled, as_tuple=True)
        if len(where):
            end[where, which] = _profile(solution, estimates, where, which, side, quantile)
        ends.append(end)
    return ends[0], ends[1]


def _profile(
    solution: Solution,
    estimates: Estimates,
    where: Tensor,
    which: Tensor,
    side: float,
    quantile: Tensor,
) -> Tensor:
    """Ends of the profile intervals of chosen coefficients, on one side. A dispersion divides twice
    the log-likelihood.
    """
    contrast, finite = estimates.contrasts[where, which], estimates.shift[where, which] == 0
    fall = 0.5 * quantile.square() * solution.errors.dispersion
    target = solution.optimum.evaluation.value[where] - fall[where]
    ends = torch.empty_like(target)
    for chosen, problem in problems(solution, where, contrast, finite):
        aim = target[chosen]
        ends[chosen] = profile_ends(problem, aim, torch.full_like(aim, side))
    return ends


def p_values(solution: Solution, estimates: Estimates) -> Tensor:
    """Of the hypothesis that a coefficient is zero, ``(D, k)``: by its standard error, or by the
    likelihood ratio where the estimate is infinite.
    """
    z, degrees = estimates.value / estimates.standard_errors(solution), solution.errors.degrees
    p = torch.where(estimates.shift == 0, student_tail(z, degrees.unsqueeze(-1)), torch.nan)
    where, which = torch.nonzero(estimates.shift.isinf(), as_tuple=True)
    if len(where):
        contrast = estimates.contrasts[where, which]
        best, ratio = solution.optimum.evaluation.value[where], torch.empty_like(contrast[:, 0])
        finite = torch.zeros_like(where, dtype=torch.bool)
        for chosen, problem in problems(solution, where, contrast, finite):
            ratio[chosen] = 2 * (best[chosen] - profile_maximum(problem, 0.0))
        ratio = ratio / solution.errors.dispersion[where]
        p[where, which] = f_tail(ratio, torch.ones_like(ratio), degrees[where])
    return p


# --- contrasts


class Contrasts(NamedTuple):
    """log ω of a first group less that of a second, for all pairs. The pairs are the last dimension
    of every tensor.

    Attributes:
        pairs: names of the two groups.
        estimate: log of the ratio of ω; ±inf or nan where the counts set no bound.
        standard_error: inf where the estimate is infinite.
        lower: lower end of the interval of the log ratio, with the level and the method of the fit.
            Each interval stands for itself: it is not corrected for the number of pairs.
        upper: upper end.
        z: estimate / standard error; nan where the estimate is infinite.
        p_value: by z, or by the likelihood ratio where the estimate is infinite.
        adjusted_p_value: corrected for the number of pairs that can be compared.
        correction: how, such as ``"holm"``.
    """

    pairs: tuple[tuple[str, str], ...]
    estimate: Tensor
    standard_error: Tensor
    lower: Tensor
    upper: Tensor
    z: Tensor
    p_value: Tensor
    adjusted_p_value: Tensor
    correction: str | None

    def to_list(self) -> list[dict[str, Any]]:
        """One dictionary per pair of a single data set; the keys say the scale of the numbers."""
        columns = {
            "log_ratio": self.estimate,
            "log_ratio_se": self.standard_error,
            "log_ratio_lower": self.lower,
            "log_ratio_upper": self.upper,
            "ratio": self.estimate.exp(),
            "ratio_lower": self.lower.exp(),
            "ratio_upper": self.upper.exp(),
            "z": self.z,
            "p": self.p_value,
            f"p_{self.correction or 'uncorrected'}": self.adjusted_p_value,
        }
        rows = zip(self.pairs, *(column.tolist() for column in columns.values()), strict=True)
        return [
            {"groups": list(pair), **dict(zip(columns, numbers, strict=True))}
            for pair, *numbers in rows
        ]


def all_pairs(
    solution: Solution,
    groups: tuple[str, ...],
    correction: str | None,
    level: float,
    method: str,
    bootstrap: Bootstrap | None = None,
) -> Contrasts:
    """Contrasts of shape ``(D, pairs)``."""
    require_one_of("correction", correction, CORRECTIONS)
    if solution.blocks is None:
        raise ValueError(
            "contrasts compare groups, but with covariates no group has a weight of its own; "
            "compare coefficients instead"
        )
    c = len(groups)
    first, second = torch.triu_indices(c, c, offset=1, device=solution.gauge.device)
    identity = torch.eye(c, dtype=solution.gauge.dtype, device=solution.gauge.device)
    contrasts = (identity[first] - identity[second]).expand(len(solution.gauge), -1, -1)
    absent = solution.objective.urns.absent
    order = solution.blocks.order()[:, first, second]
    shift = torch.where(absent[:, first] | absent[:, second], torch.nan, order)
    pairs = Estimates.of(solution, contrasts, shift)
    p, errors = p_values(solution, pairs), pairs.standard_errors(solution)
    if bootstrap is None:
        lower, upper = interval_of(solution, pairs, level, method)
    else:
        values = bootstrap.values[..., first] - bootstrap.values[..., second]
        lower, upper = bootstrap.interval(values, level)
    z = torch.where(shift == 0, pairs.value / errors, torch.nan)
    named = tuple(
        (groups[j], groups[k]) for j, k in zip(first.tolist(), second.tolist(), strict=True)
    )
    corrected = adjusted(p, correction)
    return Contrasts(named, pairs.value, errors, lower, upper, z, p, corrected, correction)


def adjusted(p: Tensor, correction: str | None) -> Tensor:
    """p-values ``(..., k)``, corrected for the number of those that are not nan."""
    if correction is None:
        return p
    number = (~p.isnan()).sum(-1, keepdim=True)
    if correction == "bonferroni":
        return (p * number).clamp(max=1)
    ascending, order = torch.where(p.isnan(), torch.inf, p).sort(-1)
    rank = torch.arange(1, p.shape[-1] + 1, dtype=p.dtype, device=p.device)
    if correction == "holm":
        stepped = (ascending * (number - rank + 1)).cummax(-1).values
    else:
        stepped = (ascending * number / rank).flip(-1).cummin(-1).values.flip(-1)
    result = torch.empty_like(p).scatter(-1, order, stepped.clamp(max=1))
    return torch.where(p.isnan(), torch.nan, result)
