"""The urns of the Kolmogorov-Smirnov study: their laws over all outcomes, and SciPy's draws from
the paper's reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats  # type: ignore[import-untyped]
from torch import Tensor

from diffurn import FisherHypergeometric, GumbelSoftmax
from diffurn._fisher.merged import merged_log_prob
from diffurn_studies.ks.kolmogorov import Array, Counts

LEVEL = 0.05  # of every test


@dataclass(frozen=True)
class Setting:
    """One urn of one study; `value` is what the study varies."""

    study: str
    value: float
    group_sizes: tuple[int, int, int]
    draws: int
    weights: tuple[float, float, float]

    @property
    def urn(self) -> FisherHypergeometric:
        weights = torch.tensor(self.weights, dtype=torch.float64)
        return FisherHypergeometric(
            self.group_sizes,
            self.draws,
            weights=weights,
            estimator=GumbelSoftmax(conditionals="merged"),
        )


def histograms(
    counts: Array | Counts, setting: Setting, times: Counts | None = None
) -> list[Counts]:
    """How often each group had each count 0, 1, …; rows of `counts` stand for as many draws as
    `times` says, or for one.
    """
    columns = counts.astype(np.int64).T
    found = [
        np.bincount(column, times, size + 1)
        for column, size in zip(columns, largest_counts(setting), strict=True)
    ]
    return [histogram.astype(np.int64) for histogram in found]


def largest_counts(setting: Setting) -> list[int]:
    return [min(size, setting.draws) for size in setting.group_sizes]


def draw_by_scipy(setting: Setting, number: int, rng: np.random.Generator) -> Counts:
    """The paper's reference: SciPy's univariate law, each group against all later ones merged into
    one.
    """
    left, counts = np.full(number, setting.draws), []
    sizes, weights = np.array(setting.group_sizes), np.array(setting.weights)
    for i in range(len(sizes) - 1):
        later = sizes[i + 1 :].sum()
        odds = weights[i] / (weights[i + 1 :] @ sizes[i + 1 :] / later)
        count = np.empty(number, dtype=np.int64)
        for n in np.unique(left):
            rows = np.flatnonzero(left == n)
            count[rows] = stats.nchypergeom_fisher.rvs(
                sizes[i] + later, sizes[i], n, odds, size=len(rows), random_state=rng
            )
        counts.append(count)
        left = left - count
    return np.stack([*counts, left], -1)


def joint_laws(setting: Setting) -> tuple[Tensor, Tensor, Tensor]:
    """All outcomes, and the log-probability of each by Fisher's law and by the chain of merged
    groups.
    """
    urn = setting.urn
    outcomes = urn.enumerate_support()
    sizes, draws = torch.tensor(setting.group_sizes), torch.tensor(setting.draws)
    return (
        outcomes,
        urn.log_prob(outcomes),
        merged_log_prob(outcomes, sizes, draws, urn.log_weights),
    )


def marginals(setting: Setting) -> tuple[list[Array], list[Array]]:
    """P(X_j = 0), P(X_j = 1), … of every group by Fisher's law and by the chain."""
    outcomes, exact, merged = (values.numpy() for values in joint_laws(setting))

    def of_each_group(law: Array) -> list[Array]:
        columns = outcomes.astype(np.int64).T
        return [
            np.bincount(x, np.exp(law), size + 1).astype(np.float64)
            for x, size in zip(columns, largest_counts(setting), strict=True)
        ]

    return of_each_group(exact), of_each_group(merged)
