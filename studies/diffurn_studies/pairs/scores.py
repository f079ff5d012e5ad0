"""How well a model of pairs tells shared from independent: the errors of its counts, and what
classifiers read from its two parts.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from diffurn._validation import require

_ITERATIONS = 10_000  # far more than a logistic regression of a few latents needs
_FOREST = {"n_estimators": 10, "max_features": None, "min_samples_leaf": 20, "random_state": 0}


class Latents(NamedTuple):
    """What one model makes of N pairs; the first pairs train the classifiers, the rest test them.
    Of a stack, all begin with (S, …).
    """

    means: np.ndarray  # (N, 2, d) the encoder's, of both views, before they are averaged
    log_variances: np.ndarray  # (N, 2, d)
    independent: np.ndarray  # (N, d) bool: the latents that the method calls independent
    factors: np.ndarray  # (N, 2, F) integers
    shared: np.ndarray  # (N, F) bool: truly equal in both views

    def of_model(self, number: int) -> Latents:
        """One model's, from those of a stack."""
        return Latents(*(values[number] for values in self))


class _Task(NamedTuple):
    """One factor to be told from one kind of features."""

    features: np.ndarray  # (n, d)
    labels: np.ndarray  # (n,)
    train: int  # how many of the n come first, for training

    def enough(self) -> bool:
        return all(
            len(np.unique(labels)) > 1
            for labels in (self.labels[: self.train], self.labels[self.train :])
        )


class _Grade(NamedTuple):
    score: float | None  # None where a class is missing
    converged: bool = True


def downstream(
    latents: Latents, train: int, sizes: Sequence[int], workers: int = 1
) -> dict[str, Any]:
    """What scikit-learn's logistic regressions tell of each factor from the shared and from the
    independent part of the latents.

    The *shared part* of a pair is the average of both views' means, ½(mean₁ + mean₂) whatever
    average the model itself takes, in the latents that the method calls shared, and 0 in the
    others; the *independent part* of a view is its own mean in the latents called independent, and
    0 in the others. Every factor has three classifiers, as in the appendix of Sutter et al. (2023):
    one for the shared part and one for the independent part of each view. Which factors are shared
    differs from pair to pair, and the paper does not say what its classifiers did about that. Our
    reading: a factor's classifier of the shared part is trained and tested on the pairs that truly
    share the factor, those of the independent parts on the pairs in which it truly differs, where
    each view has its own label and the factor's score is the mean of both views'. A factor is left
    out (None) where training or testing would see fewer than two values.

    The score is the balanced accuracy, adjusted so that guessing has 0 and no error 1. As in
    scikit-learn a guess is right once in the number of values that *occur in the test pairs*, which
    is what any guess that ignores the features can reach at best. The classifiers have
    scikit-learn's default settings, with as many iterations as they need.

    `whole_accuracy` is the same score of regressions on all latents of the first view.
    `disentanglement` is DCI's (Eastwood & Williams 2018), see `disentanglement`, for the first
    view: importances of latents are those of random forests, one of their two choices, with ten
    trees that may split on any latent and end in leaves of at least 20 pairs, so that they do not
    learn single pairs by heart. (Gradient boosted trees, as disentanglement_lib has them, would
    grow one tree per value and round.)

    Args:
        latents: of one model, with finite means.
        train: how many of the first pairs are for training; the others are for testing.
        sizes: the number of values of each factor.
        workers: processes to spread the classifiers over; each computes on one core, and the result
            does not depend on their number.

    Returns:
        The fields of a score record: ``shared_accuracy``, ``independent_accuracy``,
            ``whole_accuracy`` (means over factors; None where
        every factor is left out), ``disentanglement``, ``by_factor`` and ``unconverged``, the
        number of classifiers that needed more than 10,000 iterations.
    """
    from joblib import Parallel, delayed  # type: ignore[import-untyped, import-not-found, unused-ignore]

    _check(latents, train, sizes)
    tasks = [task for factor in range(len(sizes)) for task in _tasks(latents, train, factor)]
    whole = tasks[3::4]
    jobs = [delayed(_importances)(task) for task in whole] + [
        delayed(_grade)(task) for task in tasks
    ]  # the longest come first
    found = Parallel(n_jobs=workers, max_nbytes=None)(jobs)
    importances, grades = found[: len(sizes)], found[len(sizes) :]
    scores = [grade.score for grade in grades]
    by_factor = {
        "shared": scores[::4],
        "independent": [
            _mean(views) if None not in views else None
            for views in zip(scores[1::4], scores[2::4], strict=True)
        ],
        "whole": scores[3::4],
    }
    averages = {f"{part}_accuracy": _mean(values) for part, values in by_factor.items()}
    unconverged = sum(not grade.converged for grade in grades)
    return averages | {
        "disentanglement": disentanglement(np.stack(importances, 1)),
        "by_factor": by_factor,
        "unconverged": unconverged,
    }


def _check(latents: Latents, train: int, sizes: Sequence[int]) -> None:
    pairs = len(latents.means)
    if not 0 < train < pairs:
        raise ValueError(
            f"train is {train}, but it must leave at least one of the {pairs} pairs for training "
            "and one for testing"
        )
    factors = torch.from_numpy(latents.factors.astype(np.int64))
    if factors.shape[-1] != len(sizes):
        raise ValueError(
            f"there are {len(sizes)} sizes, but the pairs have {factors.shape[-1]} factors"
        )
    possible = (factors >= 0) & (factors < torch.tensor(sizes))
    require(
        "factors",
        factors,
        possible,
        f"factors of sizes {tuple(sizes)} start at 0 and end at size - 1",
    )
    means = torch.from_numpy(latents.means.astype(np.float64))
    require("means", means, means.isfinite(), "they must be finite")


def _tasks(latents: Latents, train: int, factor: int) -> list[_Task]:
    """The shared part, the independent parts of both views, and the whole first view."""
    means, values = latents.means.astype(np.float64), latents.factors[..., factor].astype(np.int64)
    first, second = (np.where(latents.independent, means[:, view], 0.0) for view in (0, 1))
    average = np.where(latents.independent, 0.0, means.mean(1))
    shared = latents.shared[:, factor]
    parts = (
        (average, values[:, 0], shared),
        (first, values[:, 0], ~shared),
        (second, values[:, 1], ~shared),
        (means[:, 0], values[:, 0], np.ones_like(shared)),
    )
    return [
        _Task(features[rows], labels[rows], int(rows[:train].sum()))
        for features, labels, rows in parts
    ]


def _mean(scores: Sequence[float | None]) -> float | None:
    present = [score for score in scores if score is not None]
    return math.fsum(present) / len(present) if present else None


def _grade(task: _Task) -> _Grade:
    if not task.enough():
        return _Grade(None)
    from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped, import-not-found, unused-ignore]
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, import-not-found, unused-ignore]
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, import-not-found, unused-ignore]

    with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model = LogisticRegression(max_iter=_ITERATIONS).fit(
            task.features[: task.train], task.labels[: task.train]
        )
        predicted = model.predict(task.features[task.train :])
    converged = not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    return _Grade(adjusted_accuracy(task.labels[task.train :], predicted), converged)


def adjusted_accuracy(labels: np.ndarray, predicted: np.ndarray) -> float:
    """The mean over the v values that occur in `labels` of the share of them predicted rightly,
    scaled so that 1/v becomes 0.

    Example:
        >>> adjusted_accuracy(np.array([0, 0, 0, 1]), np.array([0, 0, 0, 2]))
        0.0
    """
    total = np.bincount(labels)
    right = np.bincount(labels[labels == predicted], minlength=len(total))
    recalls = right[total > 0] / total[total > 0]
    chance = 1 / len(recalls)
    return float((recalls.mean() - chance) / (1 - chance))


def _importances(task: _Task) -> np.ndarray:
    from sklearn.ensemble import RandomForestClassifier  # type: ignore[import-untyped, import-not-found, unused-ignore]

    forest = RandomForestClassifier(**_FOREST).fit(
        task.features[: task.train], task.labels[: task.train]
    )
    return np.asarray(forest.feature_importances_)


def disentanglement(importances: np.ndarray) -> float:
    r"""DCI's D of the importances R (latents, factors): 1 where each latent matters for one factor
    alone, 0 where for all alike.

    .. math:: D = \sum_i \frac{R_{i·}}{R_{··}} (1 - H_i),
              \qquad H_i = -\sum_j P_{ij} \log_F P_{ij}, \quad P_{ij} = R_{ij} / R_{i·}.

    Reference: C. Eastwood, C. K. I. Williams, *A framework for the quantitative evaluation of
    disentangled representations* (ICLR 2018).

    Example:
        >>> disentanglement(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
        1.0
    """
    weights = importances.sum(1)
    if not weights.any():
        return 0.0
    shares = importances[weights > 0] / weights[weights > 0, None]
    entropies = -np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    order = 1 - (shares * entropies).sum(1) / np.log(importances.shape[1])
    return float((weights[weights > 0] * order).sum() / weights.sum())


def squared_errors(counts: Mapping[str, Sequence[float]], factors: int) -> tuple[float, float]:
    """MSE(s, ŝ) and MSE(F - s, k̂) over all pairs, for F `factors`, k̂ independent latents of d and
    ŝ = d - k̂.

    Args:
        counts: by the true number s of shared factors, how many pairs got k̂ = 0, …, d.
        factors: F.

    Example:
        >>> squared_errors({"3": [0, 0, 0, 0, 5, 5]}, factors=7)  # d = 5, k̂ is 4 or 5
        (6.5, 0.5)
    """
    total = math.fsum(number for row in counts.values() for number in row)
    if total <= 0:
        raise ValueError(f"counts are {dict(counts)}, but they must count at least one pair")
    pairs = [
        (int(s), len(row) - 1, k, number)
        for s, row in counts.items()
        for k, number in enumerate(row)
    ]
    shared = math.fsum(number * (s - (latents - k)) ** 2 for s, latents, k, number in pairs)
    independent = math.fsum(number * (factors - s - k) ** 2 for s, latents, k, number in pairs)
    return shared / total, independent / total
