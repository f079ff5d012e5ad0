"""`Fitted`: the part of a result that needs only the maximum of a likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from diffurn.inference.solving.estimates import Estimates, check_interval, interval_of, p_values
from diffurn.inference.solving.solution import Solution


class LikelihoodRatio(NamedTuple):
    """A test by a statistic that is about χ² distributed. Every tensor has the shape of the batch
    of data sets.
    """

    statistic: Tensor
    degrees_of_freedom: Tensor
    p_value: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Fitted:
    """Coefficients with covariance, intervals and p-values.

    Attributes:
        solution: the maximum of the likelihood, in the solver's coordinates.
        estimates: the coefficients as combinations of the solver's coordinates.
        level: confidence level of `lower` and `upper`.
        interval: ``"wald"``, ``"profile"`` or ``"bootstrap"``.
        parameters: number of free parameters, ``(...)``.
    """

    solution: Solution
    estimates: Estimates
    level: float
    interval: str
    parameters: Tensor

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the p coefficients."""
        raise NotImplementedError

    @property
    def model(self) -> str:
        """``"fisher"`` or ``"wallenius"``."""
        return self.solution.objective.model.name

    @property
    def penalty(self) -> str | None:
        """None, ``"ridge"`` or ``"firth"``."""
        penalty = self.solution.objective.penalty
        return None if penalty is None else penalty.name

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch of data sets; ``()`` for a single one."""
        return self.parameters.shape

    @property
    def coefficients(self) -> Tensor:
        """log ω, or β with covariates, ``(..., p)``; ±inf or nan where the counts set no bound."""
        return self._shaped(self.estimates.value)

    @property
    def covariance_kind(self) -> str:
        """``"model"``, ``"scaled"``, ``"HC0"``, ``"HC1"`` or ``"cluster"``."""
        return self.solution.errors.kind

    @property
    def degrees_of_freedom(self) -> Tensor:
        """Of Student's t in intervals and p-values, ``(...)``; inf for a normal distribution."""
        return self._shaped(self.solution.errors.degrees)

    @property
    def dispersion(self) -> Tensor:
        """The factor on the model's covariance, ``(...)``: one unless that is scaled."""
        return self._shaped(self.solution.errors.dispersion)

    @cached_property
    def covariance(self) -> Tensor:
        """Covariance matrix of the coefficients, ``(..., p, p)``."""
        with torch.no_grad():
            return self._shaped(self.estimates.covariance(self.solution))

    @property
    def standard_errors(self) -> Tensor:
        """Standard errors of the coefficients, ``(..., p)``: 0 for the reference, inf where the
        estimate is infinite.
        """
        return self.covariance.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()

    @property
    def log_likelihood(self) -> Tensor:
        """Log-likelihood at the estimate, ``(...)``."""
        return self._shaped(self.solution.log_likelihood)

    @property
    def aic(self) -> Tensor:
        """Akaike's criterion, 2 · parameters - 2 log-likelihood, ``(...)``."""
        return 2 * self.parameters - 2 * self.log_likelihood

    @property
    def iterations(self) -> Tensor:
        """Iterations of Newton's method, ``(...)``."""
        return self._shaped(self.solution.optimum.iterations)

    @property
    def converged(self) -> Tensor:
        """Whether Newton's method converged, ``(...)``."""
        return self._shaped(self.solution.optimum.converged)

    def _shaped(self, tensor: Tensor) -> Tensor:
        return tensor.reshape(self.batch_shape + tensor.shape[1:])

    @property
    def lower(self) -> Tensor:
        """Lower end of each coefficient's confidence interval, ``(..., p)``."""
        return self._ends[0]

    @property
    def upper(self) -> Tensor:
        """Upper end of each coefficient's confidence interval, ``(..., p)``."""
        return self._ends[1]

    @cached_property
    def _ends(self) -> tuple[Tensor, Tensor]:
        """The interval of the fit, which costs more than the estimates."""
        return self.confidence_interval()

    def confidence_interval(
        self, level: float | None = None, method: str | None = None
    ) -> tuple[Tensor, Tensor]:
        """Lower and upper ends for each coefficient, ``(..., p)``. The level and the method are
        those of the fit by default.
        """
        level = self.level if level is None else level
        method = self.interval if method is None else method
        check_interval(level, method, "method", self.covariance_kind)
        with torch.no_grad():
            if method == "bootstrap":
                lower, upper = self._percentiles(level)
            else:
                lower, upper = interval_of(self.solution, self.estimates, level, method)
        return self._shaped(lower), self._shaped(upper)

    def _percentiles(self, level: float) -> tuple[Tensor, Tensor]:
        """Ends of the bootstrap's intervals, ``(D, p)``."""
        raise ValueError(
            'method is "bootstrap", but the result has no resamples: use "wald" or "profile"'
        )

    @cached_property
    def p_values(self) -> Tensor:
        """p-values of the hypotheses that a coefficient is zero, ``(..., p)``: by z, or by the
        likelihood ratio where the estimate is infinite.
        """
        with torch.no_grad():
            return self._shaped(p_values(self.solution, self.estimates))
