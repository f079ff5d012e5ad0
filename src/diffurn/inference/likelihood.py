"""The log-likelihood of a sample with its first two derivatives, for either urn law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from diffurn import _fisher as exact
from diffurn._fisher import moments as fisher
from diffurn._fisher.nodes import NODES
from diffurn._wallenius import moments as arrivals
from diffurn._wallenius import probabilities as wallenius
from diffurn.inference.sample import Sample

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Law:
    """What a fit needs to know of an urn law.

    Attributes:
        name: as the user writes it.
        derivatives: log ω, m, x of rows ↦ log P(x), its gradient and minus its Hessian in log ω.
        mean: log ω, m, n of rows ↦ E[X].
        covariance: log ω, m, n of rows ↦ Cov[X].
        averages: whether rows of equal m and n may be replaced by their average (in an exponential
            family they may).
    """

    name: str
    derivatives: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
    mean: Callable[[Tensor, Tensor, Tensor], Tensor]
    covariance: Callable[[Tensor, Tensor, Tensor], Tensor]
    averages: bool


def _fisher_mean(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    return exact.mean(
        log_weights + exact.log_tilt(log_weights, group_sizes, draws).unsqueeze(-1),
        group_sizes,
        draws,
    )


def _wallenius_derivatives(
    log_weights: Tensor, group_sizes: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return wallenius.log_prob_and_derivatives(_scaled(log_weights), group_sizes, counts)


def _wallenius_mean(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    return arrivals.mean(_scaled(log_weights), group_sizes, draws)


def _wallenius_covariance(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    return arrivals.covariance(_scaled(log_weights), group_sizes, draws)


def _scaled(log_weights: Tensor) -> Tensor:
    """A common factor changes nothing, but the integrals over time want the largest weight near
    one.
    """
    return log_weights - log_weights.amax(-1, keepdim=True)


LAWS = {
    "fisher": Law(
        "fisher", fisher.log_prob_and_derivatives, _fisher_mean, exact.covariance, averages=True
    ),
    "wallenius": Law(
        "wallenius", _wallenius_derivatives, _wallenius_mean, _wallenius_covariance, averages=False
    ),
}


class Evaluation(NamedTuple):
    """An objective at one point per data set: its value ``(D,)``, gradient ``(D, p)`` and minus its
    Hessian ``(D, p, p)``.
    """

    value: Tensor
    score: Tensor
    information: Tensor

    def pick(self, data_sets: Tensor) -> Evaluation:
        return Evaluation(*(x[data_sets] for x in self))

    def replaced(self, where: Tensor, by: Evaluation) -> Evaluation:
        """A copy with other numbers for some data sets."""
        return Evaluation(
            *(old.index_copy(0, where, new) for old, new in zip(self, by, strict=True))
        )


def evaluate(
    law: Law, sample: Sample, coefficients: Tensor, progress: Progress | None = None
) -> Evaluation:
    """The log-likelihood at β ``(D, p)``, worked off in tiles of data sets × rows, of which only
    the sums are kept.
    """
    sets, rows, groups = sample.counts.shape
    p, done = coefficients.shape[-1], 0
    value, score = sample.constant.clone(), torch.zeros_like(coefficients)
    information = coefficients.new_zeros(sets, p, p)
    for some, part in sample.tiles(groups * NODES[1]):
        log_prob, slope, curvature = law.derivatives(
            part.log_weights(coefficients[some]), part.group_sizes, part.counts
        )
        if part.features is not None:
            slope = (slope.unsqueeze(-2) @ part.features).squeeze(-2)
            curvature = part.features.mT @ curvature @ part.features
        frequencies = part.frequencies.unsqueeze(-2)
        value[some] += (frequencies @ log_prob.unsqueeze(-1)).flatten()
        score[some] += (frequencies @ slope).squeeze(-2)
        information[some] += (frequencies @ curvature.flatten(-2)).reshape(-1, p, p)
        done += part.frequencies.numel()
        if progress is not None:
            progress(done, sets * rows)
    return Evaluation(*sample.summed(value, score, information))


def central_log_likelihood(sample: Sample) -> Tensor:
    """Of the urn in which all balls are alike, ``(D,)``: Π C(m_j, x_j) / C(N, n), whichever the
    law.
    """
    draws, total = sample.draws, sample.group_sizes.sum(-1)
    log_odds = exact.typical_log_odds(draws, total)
    per_row = exact.binomial_log_pmf(sample.counts, sample.group_sizes, log_odds.unsqueeze(-1)).sum(
        -1
    )
    per_row = per_row - exact.binomial_log_pmf(draws, total, log_odds)
    return sample.summed(sample.constant + (sample.frequencies * per_row).sum(-1))[0]
