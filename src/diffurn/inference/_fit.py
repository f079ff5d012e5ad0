"""`fit`: group importance from counts, by exact maximum likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from diffurn.inference.estimates import check_interval
from diffurn.inference.likelihood import Objective, Progress, check_model
from diffurn.inference.reading import (
    described,
    find_group,
    identified,
    read_sample,
    read_together,
)
from diffurn.inference.result import FitResult
from diffurn.inference.robust import chosen_covariance, numbered
from diffurn.inference.rowwise import Clusters
from diffurn.inference.sample import Sample
from diffurn.inference.solution import solve_sample

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def fit(
    counts: Any,
    group_sizes: Any,
    *,
    covariates: Any = None,
    frequencies: Any = None,
    model: str = "fisher",
    groups: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    reference: str | int | None = None,
    level: float = 0.95,
    interval: str = "wald",
    covariance: str | None = None,
    cluster: Any = None,
    penalty: str | None = None,
    ridge: float = 1.0,
    progress: Progress | None = None,
    process_group: ProcessGroup | None = None,
) -> FitResult:
    r"""The maximum-likelihood estimate of the weights ω from counts,

    .. math:: \hat β = \arg\max_β \sum_i f_i \log P(x_i; m_i, ω_i),
              \qquad \log ω_{ij} = β_j \quad\text{or}\quad \log ω_{ij} = z_{ij} · β,

    with standard errors, intervals and tests. The likelihood is exact for populations of any size.
    In survey terms, this is a conditional logistic regression with strata of any size. Rows are
    independent; row i draws n = Σ x_i balls. ``print(fit(...))`` shows a summary.

    Where the counts do not bound a ratio of weights (for example, a group was never drawn), the
    estimate is 0 or ∞, and its interval is bounded on one side. Where two groups never competed,
    their ratio is nan. `FitResult.notes` explains each case in words.

    References: J. Cornfield, *A statistical problem arising from retrospective studies* (1956), for
    two groups; D. J. Venzon and S. H. Moolgavkar, *A method for computing
    profile-likelihood-based confidence intervals* (1988); D. Firth, *Bias reduction of maximum
    likelihood estimates* (1993).

    Args:
        counts: x, integers from 0 to m: shape ``(c,)`` for one row, ``(R, c)`` for R rows, ``(...,
            R, c)`` for many data sets, which are fitted as one batch. Tensors, arrays, lists, data
            frames (whose columns name the groups) or series.
        group_sizes: m, of the same kinds; the shapes of both broadcast.
        covariates: features z of each group, shape ``(c, p)``, or ``(..., R, c, p)`` if they differ
            from row to row. For features of rows use `interactions`. None: every group has a weight
            of its own.
        frequencies: how often each row occurred, integers ≥ 0, shape ``(R,)`` or ``(..., R)``; once
            by default.
        model: ``"fisher"`` (balls taken at once) or ``"wallenius"`` (balls taken one after
            another).
        groups: names of the groups.
        names: names of the p coefficients.
        reference: name or index of the group with ω = 1. None: the geometric mean of the finite ω
            is 1. If some groups are not comparable, it is the mean over the largest set of groups
            that are comparable with each other.
        level: confidence level of the intervals.
        interval: ``"wald"`` (estimate ± z standard errors) or ``"profile"`` (by the profile
            likelihood: slower, better in small samples).
        penalty: ``"ridge"`` or ``"firth"`` (half the log-determinant of the information: finite
            estimates with less bias).
        ridge: λ of the ridge penalty ½ λ ‖centred log ω‖², or ½ λ ‖β‖².
        progress: called as ``progress(rows done, all rows)`` in every pass over the rows.
        process_group: of `torch.distributed`, if the rows are spread over its processes. Each
            process passes its own rows, at least one, and the same other arguments; each gets the
            result for all rows. A single process may then print the result. Methods that need the
            rows again (profile intervals, tests of infinite estimates, ``result[i]`` of a batch)
            must be called by all processes together.

    Example:
        The survivors of the Titanic, 711 of 2,201 people, by class:

        >>> classes = ["first", "second", "third", "crew"]
        >>> saved, aboard = [203, 118, 178, 212], [325, 285, 706, 885]
        >>> result = fit(saved, aboard, groups=classes, reference="crew")
        >>> result.weights
        tensor([5.2776, 2.2422, 1.0702, 1.0000], dtype=torch.float64)
        >>> print(f"{result.log_likelihood:.3f}")
        -8.988
    """

    def read() -> Sample:
        check_interval(level, interval, "interval", kind)
        check_model(model, penalty, ridge)
        if covariates is not None and reference is not None:
            raise ValueError(
                f"reference {reference!r} names a group with ω = 1, but with covariates no group "
                "has a weight of its own; leave it out"
            )
        return read_sample(counts, group_sizes, frequencies, groups, covariates, names)

    kind = chosen_covariance(covariance, cluster)
    if process_group is None:
        sample = read()
    else:
        options = {"model": model, "level": level, "interval": interval}
        options |= {"penalty": penalty, "ridge": ridge, "reference": reference}
        sample = read_together(process_group, read, described, options)
        sample = replace(sample, process_group=process_group)
    anchor = find_group(reference, sample.groups)
    clusters = None if cluster is None else Clusters(*numbered(cluster, sample.counts.shape[1]))
    if sample.design is not None:
        sample = identified(sample)
    elif anchor is not None and bool(sample.absent[:, anchor].all()):
        raise ValueError(
            f"reference {sample.groups[anchor]!r} has no ball in any row; choose a group that has"
        )
    with torch.no_grad():
        solution = solve_sample(Objective.of(model, sample, penalty, ridge, progress))
        return FitResult.of(solution, sample, anchor, level, interval, kind, clusters)
