"""`fit`: group importance from counts, by exact maximum likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from diffurn._validation import require_one_of
from diffurn.inference.design import check_identified, read_features
from diffurn.inference.intervals import check_interval
from diffurn.inference.likelihood import LAWS, Progress
from diffurn.inference.newton import Objective
from diffurn.inference.penalties import penalty_of
from diffurn.inference.result import FitResult
from diffurn.inference.sample import Sample
from diffurn.inference.shards import read_together
from diffurn.inference.solution import solve_features, solve_groups
from diffurn.inference.tables import Table, find_group, read_table

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
    penalty: str | None = None,
    ridge: float = 1.0,
    progress: Progress | None = None,
    process_group: ProcessGroup | None = None,
) -> FitResult:
    r"""How much more readily was a ball of one group taken than a ball of another? The
    maximum-likelihood estimate of ω from counts,

    .. math:: \hat β = \arg\max_β \sum_i f_i \log P(x_i; m_i, ω_i),
              \qquad \log ω_{ij} = β_j \quad\text{or}\quad \log ω_{ij} = z_{ij} · β,

    exact for populations of any size, with standard errors, intervals and tests. In survey terms: a
    conditional logistic regression with
    strata of any size. Rows are independent; the number of draws of a row is Σx.

    Where the counts do not bound a ratio of weights (a group that was never drawn, say), the
    estimate is 0 or ∞ with an interval that is bounded on one side, and nan where two groups were
    never in competition; `FitResult.summary` says so in words.

    References: J. Cornfield, *A statistical problem arising from retrospective studies* (1956), for
    two groups; D. J. Venzon and S. H.
    Moolgavkar, *A method for computing profile-likelihood-based confidence intervals* (1988); D.
    Firth, *Bias reduction of maximum likelihood estimates* (1993).

    Args:
        counts: x, integers from 0 to m: shape ``(c,)`` for one row, ``(R, c)`` for R rows, ``(...,
            R, c)`` for many data sets, which are fitted as one batch. Tensors, arrays, lists, data
            frames (whose columns name the groups) or series.
        group_sizes: m, likewise; the two broadcast.
        covariates: features z of each group, shape ``(c, p)``, or ``(..., R, c, p)`` if they differ
            from row to row. Features of rows act through `interactions`. None: every group has a
            weight of its own.
        frequencies: how often each row occurred, integers ≥ 0, shape ``(R,)`` or ``(..., R)``; once
            by default.
        model: ``"fisher"``, balls taken at once, or ``"wallenius"``, balls taken one after another.
        groups: names of the groups.
        names: names of the p coefficients.
        reference: name or index of the group with ω = 1. None: the geometric mean of the ω is 1 (of
            those that are finite; if no group is comparable with all others, of the largest set of
            groups that are comparable with each other).
        level: of the confidence intervals.
        interval: ``"wald"``, estimate ± z standard errors, or ``"profile"``, by the profile
            likelihood: slower, better in small samples.
        penalty: ``"ridge"`` or ``"firth"`` (half the log-determinant of the information: finite
            estimates with less bias).
        ridge: λ of the ridge penalty ½ λ ‖centred log ω‖², or ½ λ ‖β‖².
        progress: called as ``progress(done, total)`` while the rows are worked off, anew in each
            pass over them.
        process_group: of `torch.distributed`, if the rows are spread over its processes: each
            passes its own rows, at least one, and all else alike, and gets the result for all rows.
            Any one of them may then print a `FitResult.summary`; what needs the rows again (profile
            intervals, tests of infinite estimates, ``result[i]`` of a batch) all must ask for
            together.

    Example:
        Who got a place in the Titanic's boats? (first, second, third class, crew: 711 of 2,201
        people survived)

        >>> classes = ["first", "second", "third", "crew"]
        >>> saved, aboard = [203, 118, 178, 212], [325, 285, 706, 885]
        >>> result = fit(saved, aboard, groups=classes, reference="crew")
        >>> result.weights
        tensor([5.2776, 2.2422, 1.0702, 1.0000], dtype=torch.float64)
        >>> print(f"{result.log_likelihood:.3f}")
        -8.988
    """
    options = {
        "model": model,
        "level": level,
        "interval": interval,
        "penalty": penalty,
        "ridge": ridge,
    }

    def read() -> _Data:
        _check_options(model, level, interval, penalty, ridge)
        return _Data.of(
            read_table(counts, group_sizes, frequencies, groups), covariates, names, reference
        )

    data = read_together(process_group, read, lambda data: {**data.described, **options})
    sample, anchor = replace(data.sample, process_group=process_group), data.reference
    if covariates is not None:
        check_identified(sample, data.names)
        sample = replace(sample, features=sample.centred_features)
    elif anchor is not None and bool(sample.absent[:, anchor].all()):
        raise ValueError(
            f"reference {data.names[anchor]!r} has no ball in any row; choose a group that has"
        )
    law = LAWS[model]
    merged = sample.merged(law.averages)
    gauge = sample.counts.new_zeros(len(sample.counts), sample.parameters, sample.parameters)
    objective = Objective(law, merged, gauge, penalty_of(penalty, ridge), progress)
    with torch.no_grad():
        solution = solve_groups(objective) if covariates is None else solve_features(objective)
        result = FitResult.of(solution, data.table, sample, data.names, anchor, level, interval)
    if process_group is not None:
        result.see_all_rows()
    return result


class _Data(NamedTuple):
    """What a process has been given: its rows, with features if there are covariates, and the names
    of the coefficients.
    """

    table: Table
    sample: Sample
    names: tuple[str, ...]
    reference: int | None

    @classmethod
    def of(
        cls, table: Table, covariates: Any, names: Sequence[str] | None, reference: str | int | None
    ) -> _Data:
        anchor = find_group(reference, table.groups)
        if covariates is None:
            if names is not None:
                raise ValueError(
                    "names are those of covariates, but there are none; name the groups with "
                    "groups="
                )
            return cls(table, table.sample, table.groups, anchor)
        if reference is not None:
            raise ValueError(
                "reference names a group with ω = 1, but with covariates no group has a weight of "
                "its own; leave it out"
            )
        features, columns = read_features(covariates, names, table)
        return cls(table, replace(table.sample, features=features), columns, None)

    @property
    def described(self) -> dict[str, Any]:
        """What does not differ between processes that have rows of the same data sets."""
        shape, groups, names, reference = (
            tuple(self.table.batch_shape),
            self.table.groups,
            self.names,
            self.reference,
        )
        return {
            "the batch of data sets": shape,
            "groups": groups,
            "the coefficients": names,
            "reference": reference,
        }


def _check_options(
    model: str, level: float, interval: str, penalty: str | None, ridge: float
) -> None:
    check_interval(level, interval, "interval")
    require_one_of("model", model, tuple(LAWS))
    require_one_of("penalty", penalty, (None, "ridge", "firth"))
    if not 0 < ridge < float("inf"):
        raise ValueError(f"ridge is {ridge}, but must be a finite number above 0")
    if penalty == "firth" and model != "fisher":
        raise ValueError('penalty "firth" needs model "fisher"; for model "wallenius" use "ridge"')
