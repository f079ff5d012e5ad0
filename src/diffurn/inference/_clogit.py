"""`clogit`: conditional logistic regression, exact for strata of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from diffurn._validation import require_one_of
from diffurn.inference.reading.cases import (
    Again,
    Arguments,
    Read,
    clusters_of,
    identified,
    informative_strata,
    read_rows,
    strata_of,
)
from diffurn.inference.reading.together import read_together
from diffurn.inference.results.clogit_result import ClogitResult, Given
from diffurn.inference.solving.estimates import check_interval
from diffurn.inference.solving.likelihood import MODELS, Progress, check_model, penalty_of
from diffurn.inference.solving.robust import chosen_covariance
from diffurn.inference.solving.solution import solve_sample
from diffurn.inference.solving.strata import Strata, StrataObjective

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# Profile intervals cost rows · coefficients²; up to this number they take about a second.
LARGEST_PROFILE = 10_000
COVARIANCES = ("model", "HC0", "HC1", "cluster")


def clogit(
    y: Any,
    X: Any = None,
    strata: Any = None,
    *,
    data: Any = None,
    offset: Any = None,
    weights: Any = None,
    cluster: Any = None,
    names: Sequence[str] | None = None,
    model: str = "fisher",
    level: float = 0.95,
    interval: str | None = None,
    covariance: str | None = None,
    penalty: str | None = None,
    ridge: float = 1.0,
    na: str = "drop",
    progress: Progress | None = None,
    process_group: ProcessGroup | None = None,
) -> ClogitResult:
    r"""Conditional logistic regression: which rows of a stratum are cases?

    .. math:: P(\text{cases} \mid \text{their number}) = \frac{\prod_{i \in \text{cases}} e^{x_i β}}
              {\sum_{\text{subsets of that size}} \prod_{i \in \text{subset}} e^{x_i β}}

    The likelihood is exact for strata of any size with any number of cases, in time proportional to
    the number of rows. It is Fisher's noncentral hypergeometric distribution with one ball per row
    and log ω = xβ. ``print(clogit(...))`` shows a summary.

    The same as R's ``clogit(..., method = "exact")``. Strata without a case or without a control
    have no information; they are left out, with a note that counts them. Where the covariates
    separate cases from controls, the estimate is infinite, and its interval is bounded on one side.

    References: N. E. Breslow and N. E. Day, *Statistical methods in cancer research I* (1980);
    D. Firth, *Bias reduction of maximum likelihood estimates* (1993).

    Args:
        y: 1 for a case and 0 for a control, ``(N,)``; or a formula, with `data`, such as ``"case ~
            age + C(smoker)"``. The right side may contain ``strata(set)``, ``offset(log(dose))``
            and ``cluster(family)``, as in R.
        X: covariates, ``(N, p)``: a tensor, an array, or a data frame, whose columns of text are
            factors. No intercept, since it cancels.
        strata: the stratum of each row, ``(N,)``, numbers or text in any order; or the name of a
            column of `data`, or several names. None: all rows are one stratum.
        data: a data frame of pandas or polars, or a dictionary of columns.
        offset: added to xβ, ``(N,)``, or the name of a column.
        weights: how often each stratum occurred, integers ≥ 0 that are equal in all rows of a
            stratum, ``(N,)``, or the name of a column.
        cluster: labels of clusters of strata that are not independent, ``(N,)``, or the name of a
            column; standard errors are then cluster-robust.
        names: names of the columns of X.
        model: ``"fisher"``, or ``"wallenius"`` for cases that are chosen one after another, in an
            order that is not known.
        level: confidence level of the intervals.
        interval: ``"wald"`` (estimate ± z standard errors) or ``"profile"`` (by the profile
            likelihood: slower, better in small samples). By default ``"profile"`` if rows ·
            coefficients² ≤ 10,000 and the standard errors are the model's, else ``"wald"``.
        covariance: ``"model"``; ``"HC0"`` or ``"HC1"``, robust against a wrong model of the odds;
            ``"cluster"``. By default ``"cluster"`` if `cluster` is given, else ``"model"``.
        penalty: ``"firth"`` (finite estimates with less bias) or ``"ridge"``.
        ridge: λ of the ridge penalty ½ λ ‖β‖².
        na: ``"drop"`` leaves rows with missing values out, with a note that counts them;
            ``"raise"`` raises a ValueError.
        progress: called as ``progress(rows done, all rows)`` in every pass over the rows.
        process_group: of `torch.distributed`, if the strata are spread over its processes. Each
            process passes whole strata and the same other arguments; each gets the result for all.

    Example:
        Two cases in each of three strata of five:

        >>> from diffurn import clogit
        >>> case = [1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0]
        >>> dose = [3.0, 1.5, 0.5, 1.0, 2.0, 1.0, 2.5, 0.0, 0.5, 2.0, 1.0, 1.5, 2.0, 3.5, 0.5]
        >>> stratum = [1] * 5 + [2] * 5 + [3] * 5
        >>> result = clogit(case, dose, stratum, names=["dose"])
        >>> print(f"{result.coefficients.item():.4f} ± {result.standard_errors.item():.4f}")
        1.0040 ± 0.6336
    """

    arguments = Arguments(y, X, strata, data, offset, weights, cluster, names, na)

    def read() -> Read:
        require_one_of("covariance", covariance, (None, *COVARIANCES))
        require_one_of("interval", interval, (None, "wald", "profile"))
        check_model(model, penalty, ridge)
        rows = read_rows(arguments)
        kind = chosen_covariance(covariance, rows.clusters)
        check_interval(level, "wald", "interval")
        if interval == "profile" and kind != "model":
            raise ValueError(
                'interval "profile" needs the likelihood to be right, which robust standard errors '
                'do not assume; use interval="wald"'
            )
        return rows

    if process_group is None:
        rows = read()
    else:
        options = {"model": model, "level": level, "interval": interval}
        options |= {"covariance": covariance, "penalty": penalty, "ridge": ridge}
        rows = read_together(process_group, read, lambda x: {"names": x.design.names}, options)
        if rows.clusters is not None:
            raise ValueError("cluster cannot be used with process_group; leave one of them out")
    with torch.no_grad():
        table, left_out = informative_strata(rows, model == "wallenius")
        table = replace(table, process_group=process_group)
        rows, table, useless = identified(rows, table)
        gauge = torch.zeros_like(table.gram())
        objective = StrataObjective(
            MODELS[model], table, gauge, penalty_of(penalty, ridge), progress
        )
        solution = solve_sample(objective)
        given = Given(
            rows.events,
            rows.rows,
            rows.outcome,
            (*rows.notes, *left_out, *useless),
            Again(rows.design, rows.formula, strata_of(arguments, rows)).read,
        )
        kind, clusters = chosen_covariance(covariance, rows.clusters), clusters_of(rows, table)
        method = interval or _default_interval(kind, table)
        return ClogitResult.of(solution, table, given, level, method, kind, clusters)


def _default_interval(kind: str, strata: Strata) -> str:
    (rows,) = strata.summed(strata.sizes.sum().double())
    small = float(rows) * strata.parameters**2 <= LARGEST_PROFILE
    return "profile" if small and kind == "model" else "wald"
