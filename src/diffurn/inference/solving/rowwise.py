"""Rows at the estimate: scores, expected counts, residuals, and standard errors from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from diffurn.inference.solving.likelihood import AnyUrn, log_weights_of
from diffurn.inference.solving.robust import sandwich_errors, scaled_errors
from diffurn.inference.solving.sample import Sample
from diffurn.inference.solving.solution import Solution


class Clusters(NamedTuple):
    """The cluster of each row, ``(R,)``, and how many clusters there are in all processes."""

    numbers: Tensor
    total: int


def fitted_parts(solution: Solution, sample: Sample) -> Iterator[tuple[slice, Sample, AnyUrn]]:
    """The fitted urns of the rows, tile by tile; in a limit distribution, of the parts of rows."""
    for some, part in solution.limit(sample).tiles():
        log_weights = log_weights_of(part, solution.optimum.coefficients[some])
        urn = solution.objective.model.urn(part.group_sizes, part.draws, log_weights=log_weights)
        yield some, part, urn


# --- standard errors


@torch.no_grad()
def with_errors(
    solution: Solution, sample: Sample, kind: str, clusters: Clusters | None = None
) -> Solution:
    """The solution with standard errors of a kind."""
    if kind == "model":
        return solution
    informative = torch.where(sample.undetermined, sample.frequencies, 0.0)
    inverse, parameters = solution.covariance, solution.finite_parameters
    if kind == "scaled":
        (rows,) = sample.summed(informative.sum(-1))
        statistic, rank = pearson_totals(solution, sample)
        degrees = (rank - parameters).clamp(min=0)
        errors = scaled_errors(inverse, statistic / degrees.clamp(min=1), degrees, rows)
    else:
        errors = sandwich_errors(
            inverse,
            scores(solution, sample),
            informative,
            kind,
            parameters,
            None if clusters is None else clusters.numbers,
            None if clusters is None else clusters.total,
            sample.summed,
        )
    return replace(solution, other_errors=errors)


def scores(solution: Solution, sample: Sample) -> Tensor:
    """The derivative of each row's log-likelihood at the estimate, ``(D, R, p)``."""
    coefficients = solution.optimum.coefficients
    sets, rows, _ = sample.counts.shape
    result = coefficients.new_zeros(sets, rows, coefficients.shape[-1])
    for some, part in solution.limit(sample).tiles():
        log_weights = log_weights_of(part, coefficients[some])
        slope = solution.objective.model.derivatives(log_weights, part.group_sizes, part.counts)[1]
        if part.design is not None:
            slope = (slope.unsqueeze(-2) @ part.design).squeeze(-2)
        slope = torch.where(part.undetermined.unsqueeze(-1), slope, 0.0)
        result[some].index_add_(1, part.row_numbers, slope)
    return result


# --- residuals


class Deviations(NamedTuple):
    """How far the counts are from those that the fit expects.

    Attributes:
        surplus: counts less expected counts, ``(D, R, c)``.
        variance: of the counts under the fit, ``(D, R, c)``.
        distance: Pearson's (x - μ)ᵀ Cov⁻ (x - μ) of each row, ``(D, R)``.
        rank: the rank of Cov, the expectation of the distance, ``(D, R)``.
    """

    surplus: Tensor
    variance: Tensor
    distance: Tensor
    rank: Tensor


@torch.no_grad()
def deviations(solution: Solution, sample: Sample) -> Deviations:
    """Of every row."""
    result = Deviations(
        *(torch.zeros_like(sample.counts) for _ in range(2)),
        *(torch.zeros_like(sample.counts[..., 0]) for _ in range(2)),
    )
    for some, part, urn in fitted_parts(solution, sample):
        found = _deviations(part, urn)
        for whole, piece in zip(result, found, strict=True):
            whole[some].index_add_(1, part.row_numbers, piece)
    return result


@torch.no_grad()
def pearson_totals(solution: Solution, sample: Sample) -> tuple[Tensor, Tensor]:
    """Σ f (x - μ)ᵀ Cov⁻ (x - μ) and Σ f rank(Cov) over the rows, ``(D,)`` each."""
    statistic, rank = torch.zeros_like(sample.constant), torch.zeros_like(sample.constant)
    for some, part, urn in fitted_parts(solution, sample):
        found = _deviations(part, urn)
        statistic[some] += (part.frequencies * found.distance).sum(-1)
        rank[some] += (part.frequencies * found.rank).sum(-1)
    statistic, rank = sample.summed(statistic, rank)
    return statistic, rank


def _deviations(part: Sample, urn: AnyUrn) -> Deviations:
    covariance, competing = urn.covariance_matrix, part.competing
    deviation = torch.where(competing, part.counts - urn.mean, 0.0)
    # Within the competing groups the covariance is singular along ones alone; elsewhere it is zero.
    ones = competing.double()
    number = ones.sum(-1)
    gauge = ones.unsqueeze(-1) * ones.unsqueeze(-2) / number.clamp(min=1)[..., None, None]
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    scale = variance.mean(-1).clamp(min=1e-300)
    regular = covariance / scale[..., None, None] + gauge + torch.diag_embed(1 - ones)
    solved = torch.linalg.solve_ex(regular, deviation.unsqueeze(-1))[0].squeeze(-1)
    distance = (deviation * solved).sum(-1) / scale
    variance = torch.where(competing, variance, 0.0)
    return Deviations(deviation, variance, distance, (number - 1).clamp(min=0))


@torch.no_grad()
def variance_totals(solution: Solution, sample: Sample) -> Tensor:
    """Σ f Var[X] over the rows, ``(D, c)``."""
    total = torch.zeros_like(sample.counts[:, 0])
    for some, part, urn in fitted_parts(solution, sample):
        variance = torch.where(part.competing, urn.variance, 0.0)
        total[some] += (part.frequencies.unsqueeze(-2) @ variance).squeeze(-2)
    return sample.summed(total)[0]


@torch.no_grad()
def surplus_totals(solution: Solution, sample: Sample) -> Tensor:
    """Σ f (E[X] - x) over the rows, ``(D, c)``. Rows with a single outcome add nothing."""
    surplus = torch.zeros_like(sample.counts[:, 0])
    for some, part, urn in fitted_parts(solution, sample):
        weight = torch.where(part.undetermined, part.frequencies, 0.0).unsqueeze(-2)
        surplus[some] += (weight @ (urn.mean - part.counts)).squeeze(-2)
    return sample.summed(surplus)[0]
