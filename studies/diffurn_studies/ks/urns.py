"""The urns of the Kolmogorov-Smirnov study, and SciPy's draws from the paper's reference."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import stats  # type: ignore[import-untyped]

from diffurn import FisherHypergeometric, GumbelSoftmax
from diffurn_studies.ks.kolmogorov import Array, Counts
from diffurn_studies.ks.options import Options


@dataclass(frozen=True)
class Setting:
    """One urn of a part of the study; `value` is the number that this part varies."""

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


def settings(options: Options) -> dict[str, Setting]:
    """Every urn, by the name of its unit. The level study has the urns of the main study."""
    sizes, weights = (200, 200, 200), (1.0, 5.0, 1.0)
    main = [Setting("weight", w, sizes, 180, (1.0, w, 1.0)) for w in options.second_weights]
    other_draws = [Setting("draws", n, sizes, n, weights) for n in options.draws]
    other_sizes = [Setting("size", m, (200, m, 200), 200, weights) for m in options.second_sizes]
    level = [replace(setting, study="level") for setting in main]
    return {
        f"{setting.study}-{setting.value:g}": setting
        for setting in main + other_draws + other_sizes + level
    }


def histograms(
    counts: Array | Counts, setting: Setting, times: Counts | None = None
) -> list[Counts]:
    """How often each group had each count 0, 1, …; row i of `counts` was drawn ``times[i]`` times,
    or once.
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
    """Draws from the paper's reference: SciPy's univariate law, each group against all later ones
    merged into one.
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
