"""Standard errors for data that vary more than the model says, or whose rows are not independent.

The model's covariance of the estimate is the inverse I⁻¹ of the information. Where rows differ by
more than chance it is too small. Two remedies:

- *scaled*: φ I⁻¹ with the dispersion φ = Pearson's statistic / its degrees of freedom (quasi-
  likelihood; R's ``family = quasi…``). It assumes that all variances are φ times the model's.
- *sandwich*: I⁻¹ (Σ u uᵀ) I⁻¹ with the scores u of independent rows or of clusters of rows (Huber
  1967; Liang and Zeger 1986). It assumes only that these are independent.

Nothing here knows what kind of fit the scores and the information come from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

COVARIANCES = ("model", "scaled", "HC0", "HC1", "cluster")
Summed = Callable[..., tuple[Tensor, ...]]


class Errors(NamedTuple):
    """The covariance of an estimate, and what its intervals and p-values need to know.

    Attributes:
        kind: one of `COVARIANCES`.
        covariance: ``(D, p, p)``.
        degrees: degrees of freedom of Student's t, ``(D,)``; inf for a normal distribution.
        factor: the factor on the model's covariance (scaled) or the finite-sample factor on the
            sandwich, ``(D,)``.
        number: how many independent rows or clusters carry information, ``(D,)``; zero where that
            does not matter, as for the model's errors.
    """

    kind: str
    covariance: Tensor
    degrees: Tensor
    factor: Tensor
    number: Tensor

    @property
    def dispersion(self) -> Tensor:
        """By how much twice the log-likelihood exceeds χ², ``(D,)``: one unless scaled."""
        return self.factor if self.kind == "scaled" else torch.ones_like(self.factor)

    def pick(self, data_sets: Tensor) -> Errors:
        return Errors(self.kind, *(tensor[data_sets] for tensor in self[1:]))


def model_errors(inverse: Tensor) -> Errors:
    """The inverse of the information ``(D, p, p)`` as it is."""
    one = torch.ones_like(inverse[:, 0, 0])
    return Errors("model", inverse, torch.full_like(one, torch.inf), one, torch.zeros_like(one))


def scaled_errors(inverse: Tensor, dispersion: Tensor, degrees: Tensor, rows: Tensor) -> Errors:
    """The inverse of the information times the dispersion ``(D,)``, with the degrees of freedom of
    the dispersion. A dispersion below one is used as it is, as R's quasi-likelihood does.
    """
    factor = torch.where(degrees > 0, dispersion, torch.nan)
    covariance = inverse * factor[:, None, None]
    return Errors("scaled", covariance, degrees.double(), factor, rows.double())


def sandwich_errors(
    inverse: Tensor,
    scores: Tensor,
    frequencies: Tensor,
    kind: str,
    parameters: Tensor,
    clusters: Tensor | None = None,
    number_of_clusters: int | None = None,
    summed: Summed = lambda *parts: parts,
) -> Errors:
    """The sandwich covariance.

    With N rows, G clusters and k estimated parameters, the factor on the sandwich is

    - ``"HC0"``: 1 (R's ``coxph(robust=TRUE)`` and ``vcovHC(type="HC0")``);
    - ``"HC1"``: N / (N - k);
    - ``"cluster"``: G / (G - 1) (R's ``vcovCL(type="HC0")``; ``coxph(cluster=)`` has 1),

    and the degrees of freedom of Student's t are inf, N - k and G - 1. Only rows with information
    (frequency > 0 and a score that could differ from zero) count; the caller sets the frequency of
    others to zero.

    Args:
        inverse: inverse of the information, ``(D, p, p)``, zero along directions that are fixed.
        scores: derivative of each row's log-likelihood, ``(D, R, p)``.
        frequencies: how often each row occurred, ``(D, R)``. The copies of a row are independent,
            unless there are clusters: then they belong to the row's cluster.
        kind: ``"HC0"``, ``"HC1"`` or ``"cluster"``.
        parameters: k, ``(D,)``.
        clusters: numbers of the clusters from 0, ``(R,)``.
        number_of_clusters: how many numbers there are (of all processes).
        summed: adds up sums over rows of several processes.
    """
    weight = frequencies.unsqueeze(-1)
    if kind == "cluster":
        assert clusters is not None
        assert number_of_clusters is not None
        shape = len(scores), number_of_clusters, scores.shape[-1]
        totals = scores.new_zeros(shape).index_add(1, clusters, weight * scores)
        present = scores.new_zeros(shape[:2]).index_add(1, clusters, frequencies.clone())
        totals, present = summed(totals, present)
        meat, number = totals.mT @ totals, (present > 0).sum(-1).double()
        degrees = number - 1
        factor = number / degrees
    else:
        meat, number = summed(scores.mT @ (weight * scores), frequencies.sum(-1))
        left = number - parameters
        factor, degrees = torch.ones_like(number), torch.full_like(number, torch.inf)
        if kind == "HC1":
            factor, degrees = number / left, left
    usable = (degrees > 0) & (number > 0)
    factor = torch.where(usable, factor, torch.nan)
    covariance = factor[:, None, None] * (inverse @ meat @ inverse)
    return Errors(kind, covariance, degrees.clamp(min=0), factor, number)


def chosen_covariance(covariance: str | None, cluster: Any) -> str:
    """The kind of covariance: as asked for, else by clusters if there are any, else the model's."""
    if covariance is None:
        return "model" if cluster is None else "cluster"
    if covariance not in COVARIANCES:
        raise ValueError(
            f"covariance is {covariance!r}, but must be one of {', '.join(map(repr, COVARIANCES))}"
        )
    if (covariance == "cluster") != (cluster is not None):
        reason = "needs cluster=, a label per row" if cluster is None else "does not use cluster="
        raise ValueError(f'covariance={covariance!r} {reason}; covariance="cluster" uses clusters')
    return covariance


def words_on(errors: Errors) -> str:
    """The kind of standard errors in words, for a single data set."""
    number, factor = int(errors.number[0]), float(errors.factor[0])
    degrees = float(errors.degrees[0])
    return {
        "model": "standard errors of the model",
        "scaled": f"standard errors of the model times √dispersion = {factor**0.5:.3g}, "
        f"Student's t with {degrees:g} df",
        "HC0": f"robust standard errors (HC0) from {number:,} rows",
        "HC1": f"robust standard errors (HC1, factor N / (N - k)) from {number:,} rows, "
        f"Student's t with {degrees:g} df",
        "cluster": f"cluster-robust standard errors (factor G / (G - 1)) from G = {number:,} "
        f"clusters, Student's t with {degrees:g} df",
    }[errors.kind]
