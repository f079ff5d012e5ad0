"""`fit`: group importance from counts, by exact maximum likelihood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from diffurn.inference.reading.columns import Column, read_labels
from diffurn.inference.reading.counts import (
    Read,
    find_group,
    identified,
    read_rows,
)
from diffurn.inference.reading.tables import Arguments, arguments_of_table, index_labels, is_table
from diffurn.inference.reading.together import described, read_together, spread
from diffurn.inference.results.fit_result import FitResult
from diffurn.inference.solving.bootstrap import bootstrapped, check_resamples
from diffurn.inference.solving.estimates import check_interval, estimates_of
from diffurn.inference.solving.likelihood import Objective, Progress, check_model
from diffurn.inference.solving.robust import chosen_covariance
from diffurn.inference.solving.rowwise import Clusters, with_errors
from diffurn.inference.solving.sample import Sample
from diffurn.inference.solving.solution import solve_sample

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# Profile intervals cost rows · groups²; up to this number they take about a second.
LARGEST_PROFILE = 10_000


def fit(
    counts: Any,
    group_sizes: Any = None,
    *,
    covariates: Any = None,
    formula: str | None = None,
    frequencies: Any = None,
    model: str = "fisher",
    groups: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    reference: str | int | None = None,
    level: float = 0.95,
    interval: str | None = None,
    covariance: str | None = None,
    cluster: Any = None,
    resamples: int = 999,
    seed: int = 0,
    penalty: str | None = None,
    ridge: float = 1.0,
    columns: Mapping[str, str] | None = None,
    na: str = "drop",
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
            frames (whose columns name the groups) or series. Or, without `group_sizes`, a table: a
            `CountTable`, or a data frame of pandas or polars with columns ``m_<group>`` and
            ``x_<group>`` (wide), or ``row``, ``group``, ``available``, ``drawn`` (long).
        group_sizes: m, of the same kinds; the shapes of both broadcast.
        covariates: features z of each group, shape ``(c, p)``, or ``(..., R, c, p)`` if they differ
            from row to row. For features of rows use `interactions`. None: every group has a weight
            of its own. With a table, names of its columns, of numbers or text (a factor): a column
            that is the same for all groups of a row gets a coefficient for every group but the
            reference.
        formula: of the columns of a table, such as ``"~ age + C(season)"``, in place of covariates.
            ``group`` in it is the name of the group, as in ``"~ group * age"``.
        frequencies: how often each row occurred, integers ≥ 0, shape ``(R,)`` or ``(..., R)``; once
            by default.
        model: ``"fisher"`` (balls taken at once) or ``"wallenius"`` (balls taken one after
            another).
        groups: names of the groups.
        names: names of the p coefficients.
        reference: name or index of the group with ω = 1. None: the geometric mean of the finite ω
            is 1. If some groups are not comparable, it is the mean over the largest set of groups
            that are comparable with each other. With covariates of a table, the group that the
            others are compared with, by default the first.
        level: confidence level of the intervals.
        interval: ``"profile"`` (by the profile likelihood: better in small samples), ``"wald"``
            (estimate ± z standard errors) or ``"bootstrap"`` (percentiles of fits to rows, or
            clusters, drawn anew). None: profile if rows · groups² ≤ 10,000 and the standard errors
            are not robust, else wald.
        covariance: of the coefficients. ``"model"``: the inverse information. For rows that differ
            by more than chance: ``"scaled"`` (times the dispersion), ``"HC0"`` and ``"HC1"``
            (sandwich of independent rows, with factors 1 and N / (N - k)) or ``"cluster"`` (of
            independent clusters, with factor G / (G - 1)). Intervals use Student's t with the
            degrees of freedom of the dispersion, N - k (HC1) and G - 1. None: ``"cluster"`` if
            there are clusters, else ``"HC1"`` with bootstrap intervals, else ``"model"``.
        cluster: a label for each row; rows with the same label belong together. With a table, the
            name of a column.
        resamples: how many fits the bootstrap makes.
        seed: of the bootstrap's random numbers.
        penalty: ``"ridge"`` or ``"firth"`` (half the log-determinant of the information: finite
            estimates with less bias).
        ridge: λ of the ridge penalty ½ λ ‖centred log ω‖², or ½ λ ‖β‖².
        columns: names of the columns of a data frame, by their usual names: ``{"group": "species",
            "drawn": "used"}``; ``m_`` and ``x_`` are beginnings of names.
        na: ``"drop"`` leaves out rows with missing values, and a note counts them; ``"raise"``
            makes them an error. Rows with nothing drawn have no information and are left out.
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

    chosen = "HC1" if interval == "bootstrap" and (covariance, cluster) == (None, None) else None
    kind = chosen_covariance(covariance or chosen, cluster)

    def read() -> tuple[Arguments, Read, Column | None]:
        check_interval(level, interval or "wald", "interval", kind)
        check_resamples(resamples)
        check_model(model, penalty, ridge)
        given = _arguments(
            *(counts, group_sizes, covariates, formula, frequencies, groups, names),
            *(cluster, reference, columns, na),
        )
        if given.covariates is not None and reference is not None and group_sizes is not None:
            raise ValueError(
                f"reference {reference!r} names a group with ω = 1, but with covariates no group "
                "has a weight of its own; leave it out"
            )
        labels = None if given.cluster is None else read_labels("cluster", given.cluster)
        rows = read_rows(
            given.counts,
            given.group_sizes,
            given.frequencies,
            given.groups,
            given.covariates,
            given.names,
            None if labels is None else labels.missing,
            na,
        )
        return given, rows, labels

    if process_group is None:
        given, rows, labels = read()
    else:
        _refuse_together(cluster, interval)
        options = {"model": model, "level": level, "interval": interval, "covariance": kind}
        options |= {"penalty": penalty, "ridge": ridge, "reference": reference}
        given, rows, labels = read_together(
            process_group, read, lambda found: described(found[1].sample), options
        )
        rows = spread(rows, process_group)
    sample = rows.sample
    anchor = find_group(given.compared_with or reference, sample.groups)
    if sample.design is not None:
        sample = identified(sample)
    elif anchor is not None and bool(sample.absent[:, anchor].all()):
        raise ValueError(
            f"reference {sample.groups[anchor]!r} has no ball in any row; choose a group that has"
        )
    clusters = None if labels is None else _clusters(labels, rows.kept)
    method = interval or _default_interval(kind, sample)
    with torch.no_grad():
        solution = solve_sample(Objective.of(model, sample, penalty, ridge, progress))
        solution = with_errors(solution, sample, kind, clusters)
        repeated = None
        if method == "bootstrap":
            estimates = estimates_of(solution, None if solution.blocks is None else anchor)
            repeated = bootstrapped(
                solution, estimates, sample, clusters, resamples, seed, progress
            )
        left_out = rows.left_out
        if any(given.left_out):
            left_out = left_out + torch.tensor(given.left_out, device=left_out.device)
        return FitResult.of(
            solution,
            sample,
            anchor,
            level,
            method,
            repeated,
            clusters=clusters,
            row_labels=_labels(given.row_labels, rows.kept),
            remarks=given.remarks,
            left_out=left_out.reshape(*sample.batch_shape, 2),
        )


def _arguments(
    counts: Any,
    group_sizes: Any,
    covariates: Any,
    formula: str | None,
    frequencies: Any,
    groups: Sequence[str] | None,
    names: Sequence[str] | None,
    cluster: Any,
    reference: str | int | None,
    columns: Mapping[str, str] | None,
    na: str,
) -> Arguments:
    """What the user gave, with a table taken apart."""
    if group_sizes is not None:
        if formula is not None or columns is not None:
            raise ValueError(
                f"{'columns' if formula is None else 'formula'} is for tables: a data frame or a "
                "CountTable in place of counts, and no group_sizes"
            )
        labels = index_labels(counts)
        return Arguments(
            counts, group_sizes, covariates, frequencies, groups, names, cluster, labels
        )
    if not is_table(counts):
        raise ValueError(
            "group_sizes is missing: give counts and group_sizes, or a table (a data frame with "
            "columns m_<group> and x_<group>, or a CountTable)"
        )
    for name, value in (("frequencies", frequencies), ("groups", groups), ("names", names)):
        if value is not None:
            raise ValueError(f"{name} is given, but a table has its own; leave it out")
    return arguments_of_table(counts, covariates, formula, cluster, reference, columns, na)


def _clusters(labels: Column, kept: Tensor) -> Clusters:
    codes = labels.values.to(kept.device)[kept]
    numbers, places = torch.unique(codes, return_inverse=True)
    if len(numbers) < 2:
        raise ValueError(
            "cluster is the same in all rows, but standard errors need two clusters or more"
        )
    return Clusters(places, len(numbers))


def _labels(labels: tuple[str, ...] | None, kept: Tensor) -> tuple[str, ...] | None:
    """The labels of the rows that are kept; of rows without labels their numbers, if some are left
    out.
    """
    rows = kept.tolist()
    if labels is None:
        return None if not rows or rows[-1] == len(rows) - 1 else tuple(map(str, rows))
    return labels if len(labels) == len(rows) else tuple(labels[row] for row in rows)


def _refuse_together(cluster: Any, interval: str | None) -> None:
    if cluster is not None or interval == "bootstrap":
        what = "cluster" if cluster is not None else 'interval "bootstrap"'
        raise ValueError(f"{what} needs all rows in one process; leave process_group out")


def _default_interval(kind: str, sample: Sample) -> str:
    sets, _, groups = sample.counts.shape
    small = sets * sample.all_units * groups**2 <= LARGEST_PROFILE
    return "profile" if small and kind in ("model", "scaled") else "wald"
