"""`ClogitResult`: the estimates of a conditional logistic regression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from diffurn._fisher.moments import mean
from diffurn._fisher.tilt import log_tilt
from diffurn._numerics.beta import f_tail
from diffurn._numerics.gauge import orthogonal_to, solve
from diffurn.inference.results.clogit_report import dict_of, frame_of, line_of, notes_on, summary_of
from diffurn.inference.results.fitted import Fitted, LikelihoodRatio
from diffurn.inference.results.nested import spans
from diffurn.inference.solving.estimates import chi_squared_tail, estimates_of
from diffurn.inference.solving.robust import sandwich_errors
from diffurn.inference.solving.rowwise import Clusters
from diffurn.inference.solving.solution import Solution
from diffurn.inference.solving.strata import ONE, Strata, Tile
from diffurn.wallenius import WalleniusHypergeometric

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class StratumResiduals(NamedTuple):
    """How far each stratum is from the fit; the strata are the first dimension.

    Attributes:
        first_row: the row as given at which the stratum begins, ``(S,)``.
        deviance: -2 log P of the cases, ``(S,)``.
        score: derivative of the log-likelihood, ``(S, p)``: large where a stratum pulls on a
            coefficient.
        influence: about how much the stratum moves each coefficient, ``(S, p)`` (R's dfbeta).
    """

    first_row: Tensor
    deviance: Tensor
    score: Tensor
    influence: Tensor


class Given(NamedTuple):
    """The rows as they were given, before rows and strata were left out.

    Attributes:
        events: 1 for a case, 0 for a control, nan in a row with missing values, ``(N,)``.
        rows: the numbers of the rows without missing values, ``(n,)``; `Strata.origins` refers to
            them.
        outcome: name of the response.
        notes: sentences about rows and strata that were left out.
        read: makes the parts of `Strata` of other data, for predictions.
    """

    events: Tensor
    rows: Tensor
    outcome: str
    notes: tuple[str, ...]
    read: Callable[[Any, Any, Any, Any, Any], tuple[Tensor, Tensor, Tensor, Tensor]]


@dataclass(frozen=True, eq=False, repr=False)
class ClogitResult(Fitted):
    """A conditional logistic regression; ``print(result)`` shows a summary.

    Attributes (besides those of `Fitted`):
        strata: the rows that were fitted, sorted by stratum.
        given: the rows as they were given.
        rows: how many strata have a case and a control; a stratum that occurred twice counts twice.
        cases: how many cases these strata have.
        observations: how many rows these strata have.
        null_log_likelihood: log-likelihood with all coefficients zero.
        clusters: of the strata, for cluster-robust standard errors.
    """

    strata: Strata
    given: Given
    rows: Tensor
    cases: Tensor
    observations: Tensor
    null_log_likelihood: Tensor
    clusters: Clusters | None

    @classmethod
    def of(
        cls,
        solution: Solution,
        strata: Strata,
        given: Given,
        level: float = 0.95,
        interval: str = "wald",
        covariance: str = "model",
        clusters: Clusters | None = None,
    ) -> ClogitResult:
        """The result of a solution for the strata."""
        solution = _with_errors(solution, strata, covariance, clusters)
        estimates = estimates_of(solution, None)
        rows, observations = strata.summed(
            strata.frequencies.sum(), strata.frequencies @ strata.sizes.double()
        )
        result = cls(
            solution,
            estimates,
            level,
            interval,
            parameters=solution.free_parameters[0],
            strata=strata,
            given=given,
            rows=rows.to(torch.int64),
            cases=strata.drawn[0].to(torch.int64),
            observations=observations.to(torch.int64),
            null_log_likelihood=_null_log_likelihood(solution),
            clusters=clusters,
        )
        if strata.process_group is not None:
            # All processes are here now; later a single one may print a summary or draw a figure.
            _ = result.p_values, result.score_test(), result._ends, solution.split
        return result

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the p coefficients."""
        return self.strata.names

    @property
    def central_log_likelihood(self) -> Tensor:
        """The same as `null_log_likelihood`."""
        return self.null_log_likelihood

    @property
    def odds_ratios(self) -> Tensor:
        """exp β, ``(p,)``."""
        return self.coefficients.exp()

    # --- tests

    def likelihood_ratio_test(self) -> LikelihoodRatio:
        """Of the hypothesis that all coefficients are zero."""
        statistic = (2 * (self.log_likelihood - self.null_log_likelihood)).clamp(min=0)
        return self._tested(statistic)

    def wald_test(self) -> LikelihoodRatio:
        """Of the hypothesis that all coefficients are zero, by the covariance of the estimate; nan
        if an estimate is infinite. The p-value is that of F if the intervals are those of Student's
        t.
        """
        beta, degrees = self.coefficients, self.degrees_of_freedom
        if not bool(beta.isfinite().all() & self.covariance.isfinite().all()):
            return self._tested(torch.full_like(self.log_likelihood, torch.nan))
        statistic = beta @ torch.linalg.lstsq(self.covariance, beta.unsqueeze(-1)).solution[:, 0]
        number = self.parameters.double()
        p_value = f_tail(statistic / number, number, degrees)
        return LikelihoodRatio(statistic, self.parameters, p_value)

    def score_test(self) -> LikelihoodRatio:
        """Of the hypothesis that all coefficients are zero, by the slope of the likelihood there
        (Rao's test; with one binary covariate and one stratum per table, that of Mantel and
        Haenszel).
        """
        return self._score_test

    @cached_property
    def _score_test(self) -> LikelihoodRatio:
        objective = replace(self.solution.objective, progress=None)
        with torch.no_grad():
            zero = objective.likelihood(torch.zeros_like(self.solution.optimum.coefficients))
            step = solve(zero.information, zero.score.unsqueeze(-1), objective.gauge)
        return self._tested((zero.score * step.squeeze(-1)).sum())

    def _tested(self, statistic: Tensor) -> LikelihoodRatio:
        return LikelihoodRatio(
            statistic, self.parameters, chi_squared_tail(statistic, self.parameters)
        )

    def contains(self, other: ClogitResult) -> bool:
        """Whether every law of another fit to the same rows is possible in this one."""
        mine, theirs = self.strata, other.strata
        if not torch.equal(mine.origins, theirs.origins):
            return False
        weight = mine.frequencies[mine.numbers].unsqueeze(-1)
        return spans(mine.design[None], theirs.design[None], weight[None], mine.summed)

    # --- predictions and residuals

    def predict(
        self,
        X: Any = None,
        strata: Any = None,
        *,
        cases: Any = 1,
        data: Any = None,
        offset: Any = None,
    ) -> Tensor:
        """The probability of every row to be a case, given the number of cases in its stratum.

        Without arguments it is that of the rows that were fitted, ``(N,)``: nan in a row that was
        left out for a missing value, and 1 or 0 in a stratum without a control or without a case.

        Args:
            X: other rows, with the same columns as in the fit.
            strata: their strata; by default all rows are one stratum.
            cases: how many cases there are in every stratum, a number or one number for each row.
            data: other rows as a data frame, if the fit had a formula; `strata` and `offset` may
                name columns.
            offset: of the other rows; zero by default.
        """
        self._require_finite()
        if X is None and data is None:
            return self._inclusion
        design, labels, offset, cases = self.given.read(X, strata, cases, data, offset)
        rows = torch.arange(len(design), device=design.device)
        order = labels.argsort(stable=True)
        first = torch.searchsorted(labels[order], labels[order])
        events = torch.zeros_like(offset)
        events[order] = (rows - first < cases[order]).double()
        ones = torch.ones_like(offset)
        wallenius = self.strata.wallenius
        new = Strata.of(design, events, offset, labels, ones, rows, self.names, wallenius)
        return _inclusion(new, self.coefficients, events)

    @cached_property
    def _inclusion(self) -> Tensor:
        limit, beta = self.solution.limit(self.strata), self.solution.optimum.coefficients[0]
        result, rows = self.given.events.clone(), self.given.rows
        result[rows] = _inclusion(limit, beta, result[rows])
        return result

    def residuals(self, kind: str = "martingale") -> Tensor:
        """Of every row, ``(N,)``, nan in a row that was left out for a missing value.

        Args:
            kind: ``"martingale"``, the outcome less its probability; or ``"pearson"``, that divided
                by its standard deviation under the fit.
        """
        if kind not in ("martingale", "pearson"):
            raise ValueError(f"kind is {kind!r}, but must be one of 'martingale', 'pearson'")
        probability = self._inclusion
        residual = self.given.events - probability
        if kind == "martingale":
            return residual
        deviation = (probability * (1 - probability)).sqrt()
        return torch.where(deviation > 0, residual / deviation, residual)

    @cached_property
    def stratum_residuals(self) -> StratumResiduals:
        """Of every stratum that has a case and a control."""
        with torch.no_grad():
            deviance, score = _per_stratum(self.solution, self.strata)
        firsts = self.strata.sizes.cumsum(0) - self.strata.sizes
        gauge, information = self.solution.gauge, self.solution.optimum.evaluation.information
        influence = score @ solve(information, orthogonal_to(gauge), gauge)[0]
        first_rows = self.given.rows[self.strata.origins[firsts]]
        return StratumResiduals(first_rows, deviance, score, influence)

    def _require_finite(self) -> None:
        if not bool(self.coefficients.isfinite().all()):
            raise ValueError(
                "some coefficients are infinite or not estimable, so there are no probabilities; "
                "fit with a penalty"
            )

    # --- reports

    def __str__(self) -> str:
        return summary_of(self)

    def __repr__(self) -> str:
        return line_of(self)

    @property
    def notes(self) -> list[str]:
        """Sentences about rows and strata that were left out, and about infinite estimates."""
        return notes_on(self)

    def to_frame(self) -> Any:
        """A pandas data frame with a row per coefficient: estimate, odds_ratio, se, lower and upper
        (of the odds ratio), z, p.
        """
        return frame_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings and lists, ready for JSON. Infinite numbers are
        ``"inf"`` or ``"-inf"``, missing numbers are None.
        """
        return dict_of(self)

    def plot(self) -> Figure:
        """A figure of the odds ratios with their intervals."""
        from diffurn.inference.results.figure import odds_ratio_plot

        return odds_ratio_plot(self)


# --- strata at the estimate


def _null_log_likelihood(solution: Solution) -> Tensor:
    """With all coefficients zero; without an offset, every subset of a stratum is as likely."""
    strata = solution.objective.sample
    assert isinstance(strata, Strata)
    if bool(strata.summed((strata.offset != 0).sum())[0] > 0):
        silent = replace(solution.objective, progress=None)
        return silent.likelihood(torch.zeros_like(solution.optimum.coefficients)).value[0]
    cases, sizes = strata.cases, strata.sizes.double()
    subsets = torch.lgamma(sizes + 1) - torch.lgamma(cases + 1) - torch.lgamma(sizes - cases + 1)
    return strata.summed(-(strata.frequencies * subsets).sum())[0]


def _with_errors(
    solution: Solution, strata: Strata, kind: str, clusters: Clusters | None
) -> Solution:
    """The solution with standard errors of the kind."""
    if kind == "model":
        return solution
    errors = sandwich_errors(
        solution.covariance,
        _per_stratum(solution, strata)[1].unsqueeze(0),
        strata.frequencies.unsqueeze(0),
        kind,
        solution.finite_parameters,
        None if clusters is None else clusters.numbers,
        None if clusters is None else clusters.total,
        strata.summed,
    )
    return replace(solution, other_errors=errors)


def _per_stratum(solution: Solution, strata: Strata) -> tuple[Tensor, Tensor]:
    """-2 log P of each stratum, ``(S,)``, and its score, ``(S, p)``. In a limit distribution, they
    are sums over the parts of the stratum.
    """
    beta = solution.optimum.coefficients[0]
    home = strata.numbers.new_zeros(int(strata.origins.max()) + 1)
    home[strata.origins] = strata.numbers
    limit = solution.limit(strata)
    deviance, score = beta.new_zeros(strata.units), beta.new_zeros(strata.units, len(beta))
    for _, tile in limit.tiles():
        log_prob, slope, _ = tile.derivatives(beta)
        number = home[limit.origins[tile.rows[:, 0]]]
        deviance.index_add_(0, number, -2 * log_prob)
        score.index_add_(0, number, slope)
    return deviance, score


@torch.no_grad()
def _inclusion(strata: Strata, coefficients: Tensor, events: Tensor) -> Tensor:
    """The probability of each row to be a case, ``(N,)``; that of a row outside the strata is its
    outcome.
    """
    result = events.clone()
    for _, tile in strata.tiles():
        probability = _drawn_with(tile, coefficients, strata.wallenius)
        probability = probability if tile.sign > 0 else 1 - probability
        here = tile.present > 0
        result[strata.origins[tile.rows[here]]] = probability[here]
    return result


def _drawn_with(tile: Tile, coefficients: Tensor, wallenius: bool) -> Tensor:
    """The probability of each row of a tile to be drawn, ``(B, c)``."""
    log_weights, draws = tile.sign * tile.log_weights(coefficients), tile.drawn.sum(-1)
    if tile.method == ONE:
        return torch.softmax(torch.where(tile.present > 0, log_weights, -torch.inf), -1)
    if wallenius:
        return WalleniusHypergeometric(tile.present, draws, log_weights=log_weights).mean
    tilt = log_tilt(log_weights, tile.present, draws)
    return mean(log_weights + tilt.unsqueeze(-1), tile.present, draws)
