"""The exact law of an urn in plain NumPy, and chi-square tests of draws against it; diffurn is not
imported.

Fisher's law is that of independent binomials given their sum, so with f_j the mass of group j and g
that of all other groups' sum, P(X_j = x) ∝ f_j(x) g(n - x), and likewise for pairs. The f come from
the ratios of neighbouring terms, the sums from a Fourier transform.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit

from support.urns import NEVER, Urn

FEWEST_EXPECTED = 10  # of a bin; smaller ones are pooled
MARGINAL_BINS, PAIR_BINS = 60, 12  # at most, and along either axis of a pair

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Mass:
    """Probabilities of the consecutive counts lowest, lowest + 1, …; zero elsewhere."""

    lowest: int
    mass: Array

    @property
    def counts(self) -> Counts:
        return np.arange(self.lowest, self.lowest + len(self.mass))

    def at(self, counts: Counts) -> Array:
        inside = (counts >= self.lowest) & (counts < self.lowest + len(self.mass))
        return np.where(inside, self.mass[np.where(inside, counts - self.lowest, 0)], 0.0)

    def __add__(self, other: Mass) -> Mass:
        """The sum of two independent counts; all terms are positive, so that small masses, down to
        1e-60, are as accurate as large ones.
        """
        mass = np.convolve(self.mass, other.mass)
        likely = np.flatnonzero(mass > 1e-60)
        return Mass(self.lowest + other.lowest + int(likely[0]), mass[likely[0] : likely[-1] + 1])


def binomial(size: int, log_odds: float) -> Mass:
    """Binomial(size, σ(log_odds)) within 10 standard deviations and 60 balls, from the mode
    outwards by the ratio of neighbours.
    """
    odds, p = np.exp(log_odds), expit(log_odds)
    reach = 60 + 10 * np.sqrt(size * p * expit(-log_odds))
    mode = min(int((size + 1) * p), size)
    above = np.arange(mode, min(size, int(mode + reach)), dtype=float)
    below = np.arange(mode, max(0, int(mode - reach)), -1, dtype=float)
    up, down = (
        np.cumprod((size - above) / (above + 1) * odds),
        np.cumprod(below / (size - below + 1) / odds),
    )
    mass = np.concatenate([down[::-1], [1.0], up])
    return Mass(mode - len(down), mass / mass.sum())


class Law:
    """Masses of single groups and of pairs, to an absolute accuracy of about 1e-13."""

    def __init__(self, urn: Urn) -> None:
        self.draws = urn.draws
        self.groups = [
            binomial(m, eta) for m, eta in zip(urn.drawable, tilted_log_odds(urn), strict=True)
        ]
        lengths = [len(group.mass) - 1 for group in self.groups]
        deviation = np.sqrt(
            sum(
                np.cov(g.counts, aweights=g.mass, ddof=0) if len(g.mass) > 1 else 0.0
                for g in self.groups
            )
        )
        # a period that leaves 10 standard deviations between a sum and its alias
        self.period = (
            1 << int(min(sum(lengths), 20 * deviation + 120 + 2 * max(lengths))).bit_length()
        )
        transforms = np.stack([np.fft.rfft(group.mass, self.period) for group in self.groups])
        ones = np.ones_like(transforms[:1])
        self.transforms = transforms
        self.before = np.concatenate([ones, np.cumprod(transforms, 0)])
        self.after = np.concatenate([np.cumprod(transforms[::-1], 0)[::-1], ones])

    def _others(self, i: int, j: int) -> Array:
        """The transform of the sum of all groups but i ≤ j."""
        return self.before[i] * np.prod(self.transforms[i + 1 : j], 0) * self.after[j + 1]

    def _at(self, transform: Array, lowest: int, highest: int, counts: Counts) -> Array:
        """Masses at `counts` of the sum, between lowest and highest, that has this transform."""
        values = np.maximum(np.fft.irfft(transform, self.period), 0.0)
        return np.where(
            (counts >= lowest) & (counts <= highest),
            values[..., (counts - lowest) % self.period],
            0.0,
        )

    def _range_without(self, *left_out: int) -> tuple[int, int]:
        others = [group for j, group in enumerate(self.groups) if j not in left_out]
        return sum(g.lowest for g in others), sum(g.lowest + len(g.mass) - 1 for g in others)

    def marginal(self, j: int) -> Mass:
        own = self.groups[j]
        mass = own.mass * self._at(
            self._others(j, j), *self._range_without(j), self.draws - own.counts
        )
        return Mass(own.lowest, mass / mass.sum())

    def pair(self, i: int, j: int, labels_i: Counts, labels_j: Counts) -> Array:
        """P(label of X_i, label of X_j) for i < j, the labels given for each count of the groups'
        masses.
        """
        bins = np.arange(labels_j.max() + 1)[:, None]
        of_bin = np.fft.rfft(np.where(labels_j == bins, self.groups[j].mass, 0.0), self.period)
        rest = self._at(
            of_bin * self._others(i, j), *self._range_without(i), self.draws - self.groups[i].counts
        )
        cells = np.stack(
            [np.bincount(labels_i, self.groups[i].mass * of_one) for of_one in rest], 1
        )
        return cells / cells.sum()


def tilted_log_odds(urn: Urn) -> Array:
    """log r + log ω with a common r that makes n (or what is nearest to it between 1/2 and N - 1/2)
    the mean of the sum.
    """
    sizes = np.array(urn.drawable, dtype=float)
    log_weights = np.array([0.0 if lw == NEVER else lw for lw in urn.log_weights])
    target = min(max(urn.draws, 0.5), sizes.sum() - 0.5)
    low, high = -log_weights.max() - 50.0, -log_weights.min() + 50.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if (sizes * expit(middle + log_weights)).sum() < target
            else (low, middle)
        )
    return np.clip(middle + log_weights, -600.0, 600.0)


def quantile_bins(mass: Array, bins: int) -> Counts:
    """Labels 0, 1, … of consecutive counts that share the probability about equally."""
    shares = np.minimum((np.cumsum(mass) - mass / 2) * bins, bins - 1).astype(np.int64)
    return np.unique(shares, return_inverse=True)[1]


def chi_square_p_value(observed: Counts, probabilities: Array) -> float:
    """Pearson's test with rare bins pooled; outcomes too rare even together are tested by
    themselves, as a Poisson count.
    """
    observed, expected = observed.ravel(), observed.sum() * probabilities.ravel()
    rare = expected < FEWEST_EXPECTED
    pooled_observed, pooled_expected = observed[rare].sum(), expected[rare].sum()
    observed, expected = observed[~rare], expected[~rare]
    too_many = 1.0
    if pooled_expected >= FEWEST_EXPECTED:
        observed, expected = (
            np.append(observed, pooled_observed),
            np.append(expected, pooled_expected),
        )
    else:
        too_many = (
            float(stats.poisson.sf(pooled_observed - 1, pooled_expected))
            if pooled_observed
            else 1.0
        )
    misfit = (
        float(stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1))
        if len(expected) > 1
        else 1.0
    )
    return min(1.0, 2 * min(misfit, too_many))


class Yardstick:
    """Bins of every group of an urn and of pairs of groups, with their exact probabilities.

    All pairs if there are few groups, else those of neighbours and of the two ends.
    """

    def __init__(self, urn: Urn) -> None:
        law, groups = Law(urn), range(urn.groups)
        neighbours = [*itertools.pairwise(groups), *([(0, groups[-1])] if urn.groups > 2 else [])]
        self.pairs = list(itertools.combinations(groups, 2)) if urn.groups <= 6 else neighbours
        marginals = [law.marginal(j) for j in groups]
        self.ranges = [
            (marginal.lowest, marginal.lowest + len(marginal.mass)) for marginal in marginals
        ]
        self.labels = [quantile_bins(marginal.mass, MARGINAL_BINS) for marginal in marginals]
        self.pair_labels = [quantile_bins(marginal.mass, PAIR_BINS) for marginal in marginals]
        self.single = [
            np.bincount(labels, marginal.mass)
            for labels, marginal in zip(self.labels, marginals, strict=True)
        ]
        self.double = [
            law.pair(i, j, self.pair_labels[i], self.pair_labels[j]) for i, j in self.pairs
        ]

    def p_values(self, batches: Iterable[Counts]) -> list[float]:
        """One per group, one per pair of groups; a batch has the shape (number, c)."""
        observed = [
            np.zeros(expected.shape, dtype=np.int64) for expected in (*self.single, *self.double)
        ]
        for batch in batches:
            for total, seen in zip(observed, self._count(batch), strict=True):
                total += seen
        return [
            chi_square_p_value(*both)
            for both in zip(observed, [*self.single, *self.double], strict=True)
        ]

    def _count(self, batch: Counts) -> Iterator[Counts]:
        places = []
        for column, (lowest, end) in zip(np.ascontiguousarray(batch.T), self.ranges, strict=True):
            assert lowest <= column.min(), "a count far below all likely ones"
            assert column.max() < end, "a count far above all likely ones"
            places.append(column - lowest)
        for place, labels, expected in zip(places, self.labels, self.single, strict=True):
            yield np.bincount(labels[place], minlength=len(expected))
        coarse = [labels[place] for place, labels in zip(places, self.pair_labels, strict=True)]
        for (i, j), expected in zip(self.pairs, self.double, strict=True):
            cells = coarse[i] * expected.shape[1] + coarse[j]
            yield np.bincount(cells, minlength=expected.size).reshape(expected.shape)
