"""What a fit returns."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from diffurn._urn import Urn
from diffurn._validation import as_float64_tensor
from diffurn.fisher import FisherHypergeometric
from diffurn.inference.coefficients import Coefficients, report
from diffurn.inference.contrasts import Contrasts, all_pairs
from diffurn.inference.intervals import check_interval, interval_of, p_values
from diffurn.inference.likelihood import central_log_likelihood
from diffurn.inference.notes import notes_on
from diffurn.inference.report import dict_of, frame_of, summary_of
from diffurn.inference.sample import Sample
from diffurn.inference.solution import Solution
from diffurn.inference.tables import Table, plain_values
from diffurn.inference.tests_of_fit import (
    GoodnessOfFit,
    LikelihoodRatio,
    expected_surplus,
    likelihood_ratio,
    pearson,
)
from diffurn.wallenius import WalleniusHypergeometric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

URNS: dict[str, type[Urn]] = {"fisher": FisherHypergeometric, "wallenius": WalleniusHypergeometric}


@dataclass(frozen=True)
class FitResult:
    """Group importance estimated from counts. For a batch of data sets every tensor has the batch
    shape in front; ``result[i]`` picks one.

    Attributes:
        groups: names of the c groups.
        names: of the p coefficients: the groups themselves, unless there are covariates.
        model: ``"fisher"`` or ``"wallenius"``.
        reference: name of the group with ω = 1; None if centred.
        level: of `lower` and `upper`.
        interval: ``"wald"`` or ``"profile"``.
        penalty: None, ``"ridge"`` or ``"firth"``.
        coefficients: log ω, or β with covariates, ``(..., p)``; ±inf and nan where the counts set
            no bound.
        covariance: of the coefficients, ``(..., p, p)``.
        lower: end of each coefficient's confidence interval, ``(..., p)``.
        upper: its other end.
        log_likelihood: at the estimate, ``(...)``.
        central_log_likelihood: with all balls alike, ``(...)``.
        parameters: free ones, ``(...)``.
        iterations: of Newton's method, ``(...)``.
        converged: ``(...)``.
        rows: how many there were, ``(...)``.
        draws: balls drawn, ``(...)``.
        observed: counts summed over rows, ``(..., c)``.
        solution, sample, reported: the maximum in the solver's terms, the rows as they came, and
            what ties the coefficients to both.
    """

    groups: tuple[str, ...]
    names: tuple[str, ...]
    model: str
    reference: str | None
    level: float
    interval: str
    penalty: str | None
    coefficients: Tensor
    covariance: Tensor
    lower: Tensor
    upper: Tensor
    log_likelihood: Tensor
    central_log_likelihood: Tensor
    parameters: Tensor
    iterations: Tensor
    converged: Tensor
    rows: Tensor
    draws: Tensor
    observed: Tensor
    solution: Solution = field(repr=False, compare=False)
    sample: Sample = field(repr=False, compare=False)
    reported: Coefficients = field(repr=False, compare=False)

    @classmethod
    def of(
        cls,
        solution: Solution,
        table: Table,
        sample: Sample,
        names: tuple[str, ...],
        reference: int | None,
        level: float,
        interval: str,
    ) -> FitResult:
        """The report on a solution, whose objective holds the sample with its rows merged."""
        reported = report(solution, reference)
        lower, upper = interval_of(solution, reported, level, interval)
        (rows,), (drawn, _) = sample.summed(sample.frequencies.sum(-1)), sample.totals
        shape = table.batch_shape

        def shaped(tensor: Tensor) -> Tensor:
            return tensor.reshape(shape + tensor.shape[1:])

        return cls(
            groups=table.groups,
            names=names,
            model=solution.objective.law.name,
            reference=None if reference is None else table.groups[reference],
            level=level,
            interval=interval,
            penalty=None if solution.objective.penalty is None else solution.objective.penalty.name,
            coefficients=shaped(reported.estimate),
            covariance=shaped(reported.covariance),
            lower=shaped(lower),
            upper=shaped(upper),
            log_likelihood=shaped(solution.log_likelihood),
            central_log_likelihood=shaped(central_log_likelihood(sample)),
            parameters=shaped(solution.free_parameters),
            iterations=shaped(solution.optimum.iterations),
            converged=shaped(solution.optimum.converged),
            rows=shaped(rows.to(torch.int64)),
            draws=shaped(drawn.sum(-1).to(torch.int64)),
            observed=shaped(drawn),
            solution=solution,
            sample=sample,
            reported=reported,
        )

    @property
    def batch_shape(self) -> torch.Size:
        return self.log_likelihood.shape

    @property
    def log_weights(self) -> Tensor | None:
        """log ω of each group, ``(..., c)``; None with covariates, where it depends on the row."""
        return self.coefficients if self.solution.blocks is not None else None

    @property
    def weights(self) -> Tensor | None:
        """ω of each group, ``(..., c)``; None with covariates."""
        return None if self.log_weights is None else self.log_weights.exp()

    @property
    def standard_errors(self) -> Tensor:
        """Of the coefficients, ``(..., p)``: 0 for the reference itself, inf where the estimate is
        infinite.
        """
        return self._shaped(self.reported.standard_errors)

    @property
    def aic(self) -> Tensor:
        """Akaike's criterion, 2 · parameters - 2 log-likelihood."""
        return 2 * self.parameters - 2 * self.log_likelihood

    @property
    def notes(self) -> list[str]:
        """What the counts leave open, in words; of a single data set."""
        self._require_single("notes")
        return notes_on(self.solution, self.groups, self.names)

    @cached_property
    def expected(self) -> Tensor:
        """Counts expected under the fit, summed over rows, ``(..., c)``."""
        with torch.no_grad():
            solution = self.solution
            surplus = expected_surplus(
                solution.objective.law, solution.limit(self.sample), solution.optimum.coefficients
            )
            return self.observed + self._shaped(surplus)

    @cached_property
    def central_expected(self) -> Tensor:
        """Counts expected if all balls were alike, n m_j / Σm summed over rows, ``(..., c)``."""
        sample = self.sample
        taken = sample.frequencies * sample.draws / sample.group_sizes.sum(-1)
        return self._shaped(*sample.summed((taken.unsqueeze(-2) @ sample.group_sizes).squeeze(-2)))

    @cached_property
    def p_values(self) -> Tensor:
        """Of each coefficient being zero, ``(..., p)``: by z, or by the likelihood ratio where the
        estimate is infinite.
        """
        with torch.no_grad():
            return self._shaped(p_values(self.solution, self.reported))

    def see_all_rows(self) -> None:
        """Works out at once what a summary and a figure show, while all processes that have rows
        are at hand.
        """
        _ = self.expected, self.central_expected, self.p_values, self._goodness_of_fit

    def _shaped(self, tensor: Tensor) -> Tensor:
        return tensor.reshape(self.batch_shape + tensor.shape[1:])

    def _require_single(self, what: str) -> None:
        if self.batch_shape:
            raise ValueError(
                f"{what} is for a single data set; pick one of the batch {tuple(self.batch_shape)} "
                "first, such as result[0]"
            )

    def __getitem__(self, index: Any) -> FitResult:
        """One data set, or some, of a batch."""
        if not self.batch_shape:
            raise IndexError("this is the fit of a single data set, not of a batch")
        chosen = (
            torch.arange(self.batch_shape.numel(), device=self.rows.device)
            .reshape(self.batch_shape)[index]
            .flatten()
        )
        tensors = {
            f.name: getattr(self, f.name)[index]
            for f in fields(self)
            if isinstance(getattr(self, f.name), Tensor)
        }
        return replace(
            self,
            **tensors,
            solution=self.solution.pick(chosen),
            sample=self.sample.pick(chosen),
            reported=self.reported.pick(chosen),
        )

    def confidence_interval(
        self, level: float | None = None, method: str | None = None
    ) -> tuple[Tensor, Tensor]:
        """Lower and upper ends for each coefficient, ``(..., p)``, at another level or by another
        method than the fit's.
        """
        level, method = (
            self.level if level is None else level,
            self.interval if method is None else method,
        )
        check_interval(level, method, "method")
        with torch.no_grad():
            lower, upper = interval_of(self.solution, self.reported, level, method)
        return self._shaped(lower), self._shaped(upper)

    def likelihood_ratio_test(self) -> LikelihoodRatio:
        """Against the central urn, in which all balls are alike; with a penalty approximate, since
        the estimate is no maximum.
        """
        return likelihood_ratio(self.log_likelihood, self.central_log_likelihood, self.parameters)

    def goodness_of_fit(self) -> GoodnessOfFit:
        """Pearson's statistic. A dispersion well above one says that rows differ by more than
        chance, and standard errors are too small.
        """
        return self._goodness_of_fit

    @cached_property
    def _goodness_of_fit(self) -> GoodnessOfFit:
        solution = self.solution
        with torch.no_grad():
            fit = pearson(
                solution.objective.law,
                solution.limit(self.sample),
                solution.optimum.coefficients,
                solution.finite_parameters,
            )
        return GoodnessOfFit(*map(self._shaped, fit))

    def contrasts(self, correction: str | None = "holm") -> Contrasts:
        """All pairs of groups; p-values corrected by ``"holm"``, ``"bonferroni"``,
        ``"benjamini-hochberg"`` or not at all (None).
        """
        with torch.no_grad():
            pairs, *tensors = all_pairs(self.solution, self.groups, correction)
        return Contrasts(pairs, *map(self._shaped, tensors))

    def urn(self, group_sizes: Any, draws: Any, covariates: Any = None) -> Urn:
        """The fitted law for another urn of the same groups, with features of its own if the fit
        has covariates.
        """
        return URNS[self.model](group_sizes, draws, log_weights=self._log_weights_for(covariates))

    def predict(self, group_sizes: Any, draws: Any, covariates: Any = None) -> Tensor:
        """Expected counts of another urn of the same groups."""
        return self.urn(group_sizes, draws, covariates).mean

    def _log_weights_for(self, covariates: Any) -> Tensor:
        usable = self.coefficients.isfinite()
        if self.log_weights is not None:  # a group may have weight zero
            usable = usable | (self.coefficients == -torch.inf)
        if not bool(usable.all()):
            raise ValueError(
                "some coefficients are infinite or not estimable, so there is no fitted urn; fit "
                "with a penalty"
            )
        if self.log_weights is not None:
            if covariates is not None:
                raise ValueError("covariates are given, but the fit had none")
            return self.log_weights
        if covariates is None:
            raise ValueError(
                f"the fit had covariates ({', '.join(self.names)}), so their values are needed "
                "here, too"
            )
        z = as_float64_tensor("covariates", plain_values(covariates), self.coefficients.device)
        if z.shape[-1] != len(self.names):
            raise ValueError(
                f"covariates has shape {tuple(z.shape)}, but its last dimension must be the "
                f"{len(self.names)} features"
            )
        return (z * self.coefficients[..., None, :]).sum(-1)

    def summary(self) -> str:
        """A table for people to read, at most 100 columns wide; of a single data set."""
        self._require_single("summary")
        return summary_of(self)

    def to_frame(self) -> Any:
        """A pandas data frame with a row per coefficient: estimate (log), weight, se, lower and
        upper (of the weight), z, p.
        """
        self._require_single("to_frame")
        return frame_of(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings and lists, ready for JSON; infinite and missing
        numbers are None or ±"inf".
        """
        self._require_single("to_dict")
        return dict_of(self)

    def plot(self) -> Figure:
        """A forest plot of the weights with their intervals, and observed against expected
        counts.
        """
        self._require_single("plot")
        from diffurn.inference.figure import forest_plot

        return forest_plot(self)
