"""All pairs of groups, with p-values adjusted for their number."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from diffurn._validation import require_one_of
from diffurn.inference.coefficients import combine
from diffurn.inference.intervals import p_values
from diffurn.inference.solution import Solution

CORRECTIONS = ("holm", "bonferroni", "benjamini-hochberg", None)


class Contrasts(NamedTuple):
    """log ω of a first group less that of a second, for all pairs; tensors have the pairs as their
    last dimension.

    Attributes:
        pairs: names of the two groups.
        estimate: log odds ratio, ±inf or nan where the counts set no bound.
        standard_error: inf where the estimate is infinite.
        z: estimate / standard error; nan where the estimate is infinite.
        p_value: by z, or by the likelihood ratio where the estimate is infinite.
        adjusted_p_value: for the number of pairs that can be compared.
    """

    pairs: tuple[tuple[str, str], ...]
    estimate: Tensor
    standard_error: Tensor
    z: Tensor
    p_value: Tensor
    adjusted_p_value: Tensor


def all_pairs(solution: Solution, groups: tuple[str, ...], correction: str | None) -> Contrasts:
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
    absent = solution.objective.sample.absent
    order = solution.blocks.order()[:, first, second]
    shift = torch.where(absent[:, first] | absent[:, second], torch.nan, order)
    pairs = combine(solution, contrasts, shift)
    p = p_values(solution, pairs)
    z = torch.where(shift == 0, pairs.estimate / pairs.standard_errors, torch.nan)
    named = tuple(
        (groups[j], groups[k]) for j, k in zip(first.tolist(), second.tolist(), strict=True)
    )
    return Contrasts(named, pairs.estimate, pairs.standard_errors, z, p, adjusted(p, correction))


def adjusted(p: Tensor, correction: str | None) -> Tensor:
    """p-values ``(..., k)`` corrected for those that are not nan."""
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
