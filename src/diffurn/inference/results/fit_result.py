"""`FitResult`: the estimates of a fit, with intervals, tests and predictions."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from diffurn._validation import as_float64_tensor
from diffurn.inference.reading.counts import plain_values
from diffurn.inference.results.fit_report import dict_of, frame_of, line_of, summary_of
from diffurn.inference.results.fitted import Fitted, LikelihoodRatio
from diffurn.inference.results.nested import Anova, contains, equality
from diffurn.inference.results.notes import notes_on
from diffurn.inference.results.residuals import Residuals, residuals_of
from diffurn.inference.results.selection import Selection, selection_of
from diffurn.inference.solving.bootstrap import Bootstrap
from diffurn.inference.solving.estimates import (
    Contrasts,
    all_pairs,
    chi_squared_tail,
    estimates_of,
)
from diffurn.inference.solving.likelihood import AnyUrn
from diffurn.inference.solving.rowwise import (
    Clusters,
    Deviations,
    deviations,
    pearson_totals,
    surplus_totals,
)
from diffurn.inference.solving.sample import Sample
from diffurn.inference.solving.separation import Blocks, preferences
from diffurn.inference.solving.solution import Solution

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class GoodnessOfFit(NamedTuple):
    """Pearson's goodness of fit. The p-value and the dispersion (statistic / degrees of freedom)
    are nan for a saturated model.
    """

    statistic: Tensor
    degrees_of_freedom: Tensor
    p_value: Tensor
    dispersion: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class FitResult(Fitted):
    """Group importance estimated from counts; ``print(result)`` shows a summary.

    For a batch of data sets every tensor has the batch shape in front, and ``result[i]`` picks one
    data set.

    Attributes (besides those of `Fitted`):
        sample: the rows that were fitted.
        reference: name of the group with ω = 1; None if the weights are centred.
        rows: number of rows, ``(...)``.
        observed: balls drawn of each group, summed over rows, ``(..., c)``.
        available: balls of each group, summed over rows, ``(..., c)``.
        clusters: the cluster of each row, if there are clusters.
        bootstrap: the repeated estimates, if the intervals are made of them.
        row_labels: labels of the rows; None if they have none.
        remarks: sentences about the covariates, for `notes`.
        left_out: rows with missing values, and rows with nothing drawn, ``(..., 2)``.
    """

    sample: Sample
    reference: str | None
    rows: Tensor
    observed: Tensor
    available: Tensor
    left_out: Tensor
    clusters: Clusters | None = None
    bootstrap: Bootstrap | None = None
    row_labels: tuple[str, ...] | None = None
    remarks: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        solution: Solution,
        sample: Sample,
        reference: int | None = None,
        level: float = 0.95,
        interval: str = "wald",
        bootstrap: Bootstrap | None = None,
        **about: Any,
    ) -> FitResult:
        """The result of a solution, whose objective holds the sample with equal rows merged."""
        # With covariates the reference is the group that the others are compared with.
        estimates = estimates_of(solution, None if solution.blocks is None else reference)
        parameters = solution.free_parameters
        (rows,), (drawn, available) = sample.summed(sample.frequencies.sum(-1)), sample.totals
        shape = sample.batch_shape
        result = cls(
            solution,
            estimates,
            level,
            interval,
            sample=sample,
            reference=None if reference is None else sample.groups[reference],
            parameters=parameters.reshape(shape),
            rows=rows.to(torch.int64).reshape(shape),
            observed=drawn.reshape(*shape, -1),
            available=available.reshape(*shape, -1),
            bootstrap=bootstrap,
            **{"left_out": rows.new_zeros(*shape, 2), **about},
        )
        if sample.process_group is not None:
            # All processes are here now; later a single one may print a summary or draw a figure.
            _ = result.expected, result.central_expected, result.p_values, result._goodness_of_fit
            _ = result.central_log_likelihood, result._equality_test
            _ = result._without_penalty_finite, result._ends
        return result

    # --- the fit

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the c groups."""
        return self.sample.groups

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the p coefficients; without covariates, the groups."""
        return self.sample.names

    @property
    def log_weights(self) -> Tensor | None:
        """log ω of each group, ``(..., c)``; None with covariates, where it depends on the row."""
        return self.coefficients if self.solution.blocks is not None else None

    @property
    def weights(self) -> Tensor | None:
        """ω of each group, ``(..., c)``; None with covariates."""
        return None if self.log_weights is None else self.log_weights.exp()

    @property
    def baseline(self) -> tuple[str, ...]:
        """The groups whose geometric mean of ω is 1, of a single data set: the reference alone, or
        the largest set of groups with finite ratios. Empty with covariates and no reference.
        """
        self._require_single("baseline")
        if self.reference is not None:
            return (self.reference,)
        if self.log_weights is None:
            return ()
        contrasts = self.estimates.contrasts[0]
        anchor = (torch.eye(len(contrasts)).to(contrasts) - contrasts)[0] > 1e-12
        return tuple(
            name for name, inside in zip(self.groups, anchor.tolist(), strict=True) if inside
        )

    @property
    def draws(self) -> Tensor:
        """Balls drawn in all rows, ``(...)``."""
        return self.observed.sum(-1).to(torch.int64)

    @cached_property
    def central_log_likelihood(self) -> Tensor:
        """Log-likelihood with all balls alike, ``(...)``."""
        return self._shaped(self.solution.objective.urns.central_log_likelihood())

    @cached_property
    def central_expected(self) -> Tensor:
        """Counts expected if all balls were alike, summed over rows, ``(..., c)``."""
        return self._shaped(self.sample.central_expected())

    def __getitem__(self, index: Any) -> FitResult:
        """One data set, or some, of a batch."""
        if not self.batch_shape:
            raise IndexError("this is the fit of a single data set, not of a batch")
        numbers = torch.arange(self.batch_shape.numel(), device=self.rows.device)
        chosen = numbers.reshape(self.batch_shape)[index].flatten()
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        picked: dict[str, Any] = {
            name: value[index] for name, value in values.items() if isinstance(value, Tensor)
        }
        for name in ("sample", "solution", "estimates", "bootstrap"):
            if values[name] is not None:
                picked[name] = values[name].pick(chosen)
        result = replace(self, **picked)
        lower, upper = self._ends  # of the whole batch at once, which is faster
        vars(result)["_ends"] = lower[index], upper[index]
        return result

    # --- intervals and tests

    def _percentiles(self, level: float) -> tuple[Tensor, Tensor]:
        if self.bootstrap is None:
            raise ValueError(
                'method is "bootstrap", but the fit has no resamples: fit with '
                'interval="bootstrap", or use "wald" or "profile"'
            )
        return self.bootstrap.interval(self.bootstrap.values, level)

    def contrasts(self, correction: str | None = "holm") -> Contrasts:
        """All pairs of groups, with intervals. The p-values are corrected by ``"holm"``,
        ``"bonferroni"``, ``"benjamini-hochberg"``, or not at all (None).
        """
        with torch.no_grad():
            found = all_pairs(
                self.solution, self.groups, correction, self.level, self.interval, self.bootstrap
            )
        shaped = (self._shaped(x) if isinstance(x, Tensor) else x for x in found)
        return Contrasts(*shaped)  # type: ignore[arg-type]

    def likelihood_ratio_test(self) -> LikelihoodRatio:
        """Against the central urn, in which all balls are alike. With a penalty the test is
        approximate, since the estimate is not the maximum of the likelihood.
        """
        statistic = (2 * (self.log_likelihood - self.central_log_likelihood)).clamp(min=0)
        p_value = chi_squared_tail(statistic, self.parameters)
        return LikelihoodRatio(statistic, self.parameters, p_value)

    def equality_test(self) -> Anova:
        """Are all balls alike? The likelihood ratio; with ``covariance="scaled"`` divided by the
        dispersion, as F; with robust standard errors Wald's test, as F.
        """
        return self._equality_test

    @cached_property
    def _equality_test(self) -> Anova:
        return equality(self, self.likelihood_ratio_test().statistic)

    def contains(self, other: FitResult) -> bool:
        """Whether every set of weights of another fit to the same rows is possible in this one."""
        return contains(self.sample, other.sample)

    def goodness_of_fit(self) -> GoodnessOfFit:
        """Pearson's statistic. If the dispersion is well above one, rows differ by more than
        chance, and the standard errors are too small.
        """
        return self._goodness_of_fit

    @cached_property
    def _goodness_of_fit(self) -> GoodnessOfFit:
        statistic, rank = map(self._shaped, pearson_totals(self.solution, self.sample))
        parameters = self._shaped(self.solution.finite_parameters)
        degrees = (rank - parameters).clamp(min=0).to(torch.int64)
        dispersion = torch.where(degrees > 0, statistic / degrees.clamp(min=1), torch.nan)
        p_value = chi_squared_tail(statistic, degrees)
        return GoodnessOfFit(statistic, degrees, p_value, dispersion)

    # --- predictions

    @cached_property
    def expected(self) -> Tensor:
        """Counts expected under the fit, summed over rows, ``(..., c)``."""
        return self.observed + self._shaped(surplus_totals(self.solution, self.sample))

    def urn(self, group_sizes: Any, draws: Any, covariates: Any = None) -> AnyUrn:
        """The fitted distribution for another urn of the same groups, with its own features if the
        fit has covariates.
        """
        log_weights = self._log_weights_for(covariates)
        return self.solution.objective.model.urn(group_sizes, draws, log_weights=log_weights)

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
                raise ValueError("covariates are given, but the fit had none; leave them out")
            return self.log_weights
        if covariates is None:
            raise ValueError(
                f"the fit had covariates ({', '.join(self.names)}), so their values are needed "
                "here, too"
            )
        z = as_float64_tensor("covariates", plain_values(covariates), self.coefficients.device)
        if z.shape[-1:] != (len(self.names),):
            raise ValueError(
                f"covariates has shape {tuple(z.shape)}, but its last dimension must be the "
                f"{len(self.names)} features"
            )
        return (z * self.coefficients[..., None, :]).sum(-1)

    # --- rows

    def residuals(self) -> Residuals:
        """Of every row: expected counts, Pearson residuals and Pearson's statistic."""
        found = deviations(self.solution, self.sample)
        return residuals_of(self, Deviations(*map(self._shaped, found)))

    def selection(self) -> Selection:
        """Selection ratios and Manly's α of all groups, with standard errors."""
        if self.log_weights is None:
            raise ValueError(
                "selection ratios compare groups, but with covariates no group has one weight"
            )
        found = selection_of(
            self.solution,
            self.sample,
            self.estimates.value,
            self.estimates.covariance(self.solution),
            self.clusters,
        )
        return Selection(*map(self._shaped, found))

    # --- reports

    def __str__(self) -> str:
        """Tables for the terminal; of a batch, the line of `repr`."""
        return repr(self) if self.batch_shape else summary_of(self)

    def __repr__(self) -> str:
        return line_of(self)

    @property
    def notes(self) -> list[str]:
        """Sentences about what was left out, weights that the counts do not determine, and
        standard errors; of a single data set.
        """
        self._require_single("notes")
        return notes_on(self)

    @cached_property
    def _without_penalty_finite(self) -> bool:
        """Whether all ratios of weights would be finite without a penalty."""
        return self.log_weights is None or bool(Blocks.of(preferences(self.sample)).whole.all())

    def to_frame(self, selection: bool = False) -> Any:
        """A pandas data frame with a row per coefficient. Columns of log ω, with standard error and
        interval; of ω, with its interval; z and p. With covariates β and exp β. `selection` adds
        selection ratios and Manly's α. ``frame.attrs["relative_to"]`` names what ω is relative to.
        """
        self._require_single("to_frame")
        return frame_of(self, self.selection() if selection else None)

    def to_dict(
        self, contrasts: Contrasts | None = None, selection: Selection | None = None
    ) -> dict[str, Any]:
        """Everything as plain numbers, strings and lists, ready for JSON. Infinite numbers are
        ``"inf"`` or ``"-inf"``, missing numbers are None.
        """
        self._require_single("to_dict")
        return dict_of(self, contrasts, selection)

    def plot(self) -> Figure:
        """A figure of the weights with their intervals, and of observed and expected counts."""
        self._require_single("plot")
        from diffurn.inference.results.figure import forest_plot

        return forest_plot(self)

    def plot_residuals(self) -> Figure:
        """A figure of the Pearson residuals of the rows."""
        self._require_single("plot_residuals")
        from diffurn.inference.results.residuals import residual_plot

        return residual_plot(self)

    def _require_single(self, name: str) -> None:
        if self.batch_shape:
            raise ValueError(
                f"{name} is for a single data set, but this is a batch of shape "
                f"{tuple(self.batch_shape)}; pick one first, such as result[0]"
            )
