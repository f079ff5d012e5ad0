"""Scores of a trained model: the errors of its numbers of shared factors, and the accuracy of
classifiers on its shared and independent latents.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from diffurn._validation import require

_FOREST = {"n_estimators": 10, "max_features": None, "min_samples_leaf": 20, "random_state": 0}


class Latents(NamedTuple):
    """One model's latents of N pairs. The first pairs train the classifiers, the others test them.
    For a stack, all arrays have a leading dimension S.
    """

    means: np.ndarray  # (N, 2, d) posterior means of both views, before they are averaged
    log_variances: np.ndarray  # (N, 2, d)
    independent: np.ndarray  # (N, d) bool: latents that the method calls independent
    factors: np.ndarray  # (N, 2, F) integers
    shared: np.ndarray  # (N, F) bool: truly equal in both views

    def of_model(self, number: int) -> Latents:
        """The latents of one model of a stack."""
        return Latents(*(values[number] for values in self))


class _Task(NamedTuple):
    """One factor to be predicted from one kind of features."""

    features: np.ndarray  # (n, d)
    labels: np.ndarray  # (n,)
    train: int  # how many of the n come first, for training

    def enough(self) -> bool:
        return all(
            len(np.unique(labels)) > 1
            for labels in (self.labels[: self.train], self.labels[self.train :])
        )


class _Grade(NamedTuple):
    score: float | None  # None if a class is missing
    converged: bool = True


def downstream(
    latents: Latents,
    train: int,
    sizes: Sequence[int],
    workers: int = 1,
    iterations: int = 10_000,
) -> dict[str, Any]:
    """Accuracies of scikit-learn's logistic regressions that predict each factor from the shared
    and from the independent latents.

    The *shared part* of a pair is the average ½(mean₁ + mean₂) of both views' posterior means in
    the shared latents, and 0 in the others; it does not depend on `Method.averaging`. The
    *independent part* of a view is its own posterior mean in the independent latents, and 0 in the
    others. As in the appendix of Sutter et al. (2023), every factor has three classifiers: one for
    the shared part, and one for the independent part of each view. Which factors are shared differs
    from pair to pair, and the paper does not say how its classifiers treat this. Here the
    classifier of the shared part is trained and tested on the pairs that truly share the factor.
    The classifiers of the independent parts use the pairs in which the factor truly differs; each
    view has its own label, and the factor's score is the mean of both views. A factor is left out
    (None) if training or testing would see fewer than two values.

    The score is the balanced accuracy, adjusted so that guessing scores 0 and a perfect classifier
    scores 1. As in scikit-learn, the accuracy of a guess is one over the number of values that
    *occur in the test pairs*, the largest that a constant prediction can reach. The classifiers
    have scikit-learn's default settings, except for the number of iterations.

    `whole_accuracy` is the same score of regressions on all latents of the first view.
    `disentanglement` is that of DCI (Eastwood & Williams 2018), see `disentanglement`, for the
    first view. The importances are those of random forests, one of their two choices. The forests
    have ten trees that may split on any latent; their leaves have at least 20 pairs, so that they
    do not overfit to single pairs. (Gradient boosted trees, as in disentanglement_lib, would need
    one tree per value and round.)

    Args:
        latents: of one model, with finite means.
        train: number of pairs for training, taken from the front; the others are for testing.
        sizes: the number of values of each factor.
        workers: processes for the classifiers, one core each; the result does not depend on their
            number.
        iterations: the largest number that a regression may take; the default is far more than a
            regression on a few latents needs.

    Returns:
        The entries of a score record: ``shared_accuracy``, ``independent_accuracy`` and
        ``whole_accuracy`` (means over factors; None if every factor is left out),
        ``disentanglement``, ``by_factor``, and ``unconverged``, the number of classifiers that did
        not converge.
    """
    from joblib import Parallel, delayed  # type: ignore[import-untyped, import-not-found, unused-ignore]

    _check(latents, train, sizes)
    tasks = [task for factor in range(len(sizes)) for task in _tasks(latents, train, factor)]
    whole = tasks[3::4]
    jobs = [delayed(_importances)(task) for task in whole] + [
        delayed(_grade)(task, iterations) for task in tasks
    ]  # the longest jobs come first
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
    """One task each for the shared part, the independent part of each view, and all latents of the
    first view.
    """
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


def _grade(task: _Task, iterations: int) -> _Grade:
    if not task.enough():
        return _Grade(None)
    from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped, import-not-found, unused-ignore]
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped, import-not-found, unused-ignore]
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, import-not-found, unused-ignore]

    with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model = LogisticRegression(max_iter=iterations).fit(
            task.features[: task.train], task.labels[: task.train]
        )
        predicted = model.predict(task.features[task.train :])
    converged = not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    return _Grade(adjusted_accuracy(task.labels[task.train :], predicted), converged)


def adjusted_accuracy(labels: np.ndarray, predicted: np.ndarray) -> float:
    """The mean recall over the v values that occur in `labels`, scaled so that 1/v becomes 0.

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
    r"""DCI's D of the importances R (latents, factors): 1 if each latent matters for one factor
    only, 0 if every latent matters equally for all factors.

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
    """MSE(s, ŝ) and MSE(F - s, k̂) over all pairs, for F factors, k̂ independent latents of d, and
    ŝ = d - k̂.

    Args:
        counts: for every true number s of shared factors, how many pairs have k̂ = 0, …, d.
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
