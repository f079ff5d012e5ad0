"""From the solver's coordinates to the coefficients that are reported."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from diffurn.inference.separation import main_block
from diffurn.inference.solution import Solution


@dataclass(frozen=True)
class Coefficients:
    """Linear combinations of the solver's coordinates.

    Attributes:
        contrasts: row j gives coefficient j, ``(D, p, p)``; a row of zeros is the reference itself.
        shift: 0 where a coefficient is finite, ±inf or nan where it is not, ``(D, p)``.
        estimate: ``(D, p)``.
        covariance: ``(D, p, p)``, with inf on the diagonal where the estimate is infinite, nan
            beside it.
    """

    contrasts: Tensor
    shift: Tensor
    estimate: Tensor
    covariance: Tensor

    @property
    def standard_errors(self) -> Tensor:
        return self.covariance.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()

    def pick(self, data_sets: Tensor) -> Coefficients:
        return Coefficients(
            *(x[data_sets] for x in (self.contrasts, self.shift, self.estimate, self.covariance))
        )


def report(solution: Solution, reference: int | None) -> Coefficients:
    """With covariates β; otherwise log ω relative to the reference group, or to the geometric mean
    of the main block of groups.
    """
    if solution.blocks is None:
        contrasts = torch.eye(
            solution.escape.shape[-1], dtype=torch.float64, device=solution.escape.device
        ).expand_as(solution.gauge)
        shift = torch.where(solution.escape == 0, 0.0, solution.escape * torch.inf)
    else:
        contrasts, shift = _relative_to(solution, reference)
    return combine(solution, contrasts, shift)


def combine(solution: Solution, contrasts: Tensor, shift: Tensor) -> Coefficients:
    """Estimates and covariance of linear combinations ``(D, k, p)``, known to be infinite where
    `shift` says so.
    """
    estimate = (contrasts @ solution.optimum.coefficients.unsqueeze(-1)).squeeze(-1) + shift
    covariance = contrasts @ solution.covariance @ contrasts.mT
    open_ended = (shift != 0).unsqueeze(-1) | (shift != 0).unsqueeze(-2)
    diagonal = torch.diag_embed(
        torch.where(shift.isnan(), torch.nan, torch.where(shift != 0, torch.inf, 0.0))
    )
    own = torch.eye(shift.shape[-1], dtype=torch.bool, device=shift.device)
    return Coefficients(
        contrasts,
        shift,
        estimate,
        torch.where(open_ended, torch.where(own, diagonal, torch.nan), covariance),
    )


def _relative_to(solution: Solution, reference: int | None) -> tuple[Tensor, Tensor]:
    assert solution.blocks is not None
    sample = solution.objective.sample
    groups = sample.counts.shape[-1]
    if reference is None:
        anchor = main_block(solution.blocks, sample).double()
        anchor = anchor / anchor.sum(-1, keepdim=True).clamp(min=1)
    else:
        anchor = (
            torch.nn.functional.one_hot(torch.tensor(reference), groups)
            .to(sample.counts)
            .expand(len(sample.counts), -1)
        )
    contrasts = torch.eye(groups, dtype=anchor.dtype, device=anchor.device) - anchor.unsqueeze(-2)
    representative = anchor.argmax(-1)[:, None, None].expand(-1, groups, 1)
    shift = solution.blocks.order().gather(-1, representative).squeeze(-1)
    return contrasts, torch.where(sample.absent, torch.nan, shift)
