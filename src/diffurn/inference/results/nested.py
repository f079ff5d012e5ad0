"""`anova`: does a larger fit explain the data better than a smaller one that it contains?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from diffurn._numerics.beta import f_tail
from diffurn.inference.results.words import listed, p_is
from diffurn.inference.solving.sample import Sample

if TYPE_CHECKING:
    from diffurn.inference.results.fit_result import FitResult

# Log-likelihoods of the same data may differ by rounding, relative to their size.
_SAME = 1e-8
# Rounding may leave this part of the sum of squares of a column that depends on others.
_WITHIN = 1e-9


class Comparable(Protocol):
    """What `anova` asks of a result; all tensors have the batch shape in front."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coefficients."""

    @property
    def model(self) -> str:
        """``"fisher"`` or ``"wallenius"``."""

    @property
    def penalty(self) -> str | None:
        """None for plain maximum likelihood."""

    @property
    def covariance_kind(self) -> str:
        """``"model"``, ``"scaled"``, ``"HC0"``, ``"HC1"`` or ``"cluster"``."""

    @property
    def coefficients(self) -> Tensor:
        """``(..., p)``."""

    @property
    def covariance(self) -> Tensor:
        """Of the coefficients, ``(..., p, p)``."""

    @property
    def degrees_of_freedom(self) -> Tensor:
        """Of Student's t behind the intervals, ``(...)``; inf for a normal distribution."""

    @property
    def dispersion(self) -> Tensor:
        """The factor on the covariance of ``"scaled"``, ``(...)``."""

    @property
    def log_likelihood(self) -> Tensor:
        """``(...)``."""

    @property
    def central_log_likelihood(self) -> Tensor:
        """With all coefficients zero, ``(...)``: equal for fits to the same data."""

    @property
    def parameters(self) -> Tensor:
        """Number of free parameters, ``(...)``."""

    @property
    def rows(self) -> Tensor:
        """Number of rows (or strata), ``(...)``."""

    def contains(self, other: Any) -> bool:
        """Whether every set of weights of the other fit is possible in this one."""


class Anova(NamedTuple):
    """A test of a smaller fit against a larger one that contains it; ``print`` shows it in words.

    Attributes:
        statistic: likelihood ratio (χ²), or F, ``(...)``.
        degrees_of_freedom: how many parameters the larger fit has in addition, ``(...)``.
        denominator: the degrees of freedom below F, ``(...)``; inf for χ².
        p_value: of the hypothesis that the smaller fit is right, ``(...)``.
        test: ``"likelihood ratio"``, ``"F test"`` or ``"Wald test"``.
        smaller: names of the coefficients of the smaller fit.
        larger: names of the coefficients of the larger fit.
    """

    statistic: Tensor
    degrees_of_freedom: Tensor
    denominator: Tensor
    p_value: Tensor
    test: str
    smaller: tuple[str, ...]
    larger: tuple[str, ...]

    @property
    def statistic_in_words(self) -> str:
        """Such as: χ² = 5.31 with 2 df, p = 0.0703; of a single data set."""
        statistic, degrees = float(self.statistic), int(self.degrees_of_freedom)
        found = f"χ² = {statistic:,.2f} with {degrees:,} df"
        if self.test != "likelihood ratio":
            below = float(self.denominator)
            found = f"F = {statistic:,.2f} with {degrees:,} and {below:g} df"
        return f"{found}, {p_is(float(self.p_value))}"

    def __str__(self) -> str:
        if self.statistic.ndim:
            return repr(self)
        extra = [name for name in self.larger if name not in self.smaller] or self.larger
        asked = f"{'Does' if len(extra) == 1 else 'Do'} {listed(extra)} improve the fit?"
        return f"{asked} {self.test[0].upper()}{self.test[1:]}: {self.statistic_in_words}."


def anova(result: Comparable, other: Comparable) -> Anova:
    """The test of the smaller of two nested fits to the same data, given in any order.

    - Model-based standard errors: the likelihood ratio, about χ² distributed.
    - ``covariance="scaled"``: F = likelihood ratio / extra parameters / dispersion of the larger
      fit, with the degrees of freedom of that dispersion below.
    - Robust or cluster-robust: Wald's test of the extra coefficients with that covariance, as F;
      the likelihood ratio would assume that the model is right.

    Args:
        result: a fit.
        other: a fit to the same rows with fewer or more coefficients.

    Raises:
        ValueError: one sentence that says why the two cannot be compared.

    Example:
        >>> from diffurn import fit
        >>> from diffurn.data import example_counts
        >>> from diffurn.inference import anova, interactions
        >>> ucb = example_counts("ucb")
        >>> one = fit(ucb.counts, ucb.group_sizes, groups=ucb.groups)
        >>> in_department_a = [[1.0]] + 5 * [[0.0]]
        >>> features, names = interactions(in_department_a, ucb.groups, ["A"])
        >>> two = fit(
        ...     ucb.counts, ucb.group_sizes, groups=ucb.groups, covariates=features, names=names
        ... )
        >>> print(anova(one, two))
        Does Women:A improve the fit? Likelihood ratio: χ² = 17.63 with 1 df, p < 0.0001.
    """
    smaller, larger = result, other
    _check_same_data(result, other)
    if bool((result.parameters > other.parameters).all()):
        smaller, larger = other, result
    extra = larger.parameters - smaller.parameters
    if not bool((extra > 0).all()):
        raise ValueError(
            f"both fits have {_shown(result.parameters)} free parameters, so neither is nested in "
            "the other; compare their AIC"
        )
    if not larger.contains(smaller):
        raise ValueError(
            f"the fits are not nested: the one with {', '.join(larger.names)} does not contain the "
            f"one with {', '.join(smaller.names)}; compare their AIC"
        )
    ratio = (2 * (larger.log_likelihood - smaller.log_likelihood)).clamp(min=0)
    kind = larger.covariance_kind
    unlimited = torch.full_like(ratio, torch.inf)
    if kind == "model":
        test, statistic, below = "likelihood ratio", ratio, unlimited
        p_value = f_tail(ratio / extra, extra.double(), unlimited)
    else:
        test, below = "F test", larger.degrees_of_freedom
        statistic = ratio / extra / larger.dispersion
        if kind != "scaled":
            test, statistic = "Wald test", _wald(smaller, larger) / extra
        p_value = f_tail(statistic, extra.double(), below)
    return Anova(statistic, extra, below, p_value, test, smaller.names, larger.names)


def contains(larger: Sample, smaller: Sample) -> bool:
    """Whether the features of the smaller sample are combinations of those of the larger one."""
    if larger.counts.shape != smaller.counts.shape:
        return False
    columns = []
    for sample in (larger, smaller):
        if sample.design is None:
            eye = torch.eye(
                sample.counts.shape[-1], dtype=torch.float64, device=larger.counts.device
            )
            sample = replace(sample, design=eye.expand(*sample.counts.shape, -1))
        centred = sample.centred_design().flatten(1, 2)
        weight = sample.frequencies.repeat_interleave(sample.counts.shape[-1], 1).unsqueeze(-1)
        columns.append((centred, weight))
    (x, weight), (z, _) = columns
    return spans(x, z, weight, larger.summed)


def spans(x: Tensor, z: Tensor, weight: Tensor, summed: Callable[..., tuple[Tensor, ...]]) -> bool:
    """Whether every column of z ``(D, N, q)`` is a combination of those of x ``(D, N, p)``, in rows
    of a positive weight ``(D, N, 1)``.
    """
    gram, cross, size = summed(x.mT @ (weight * x), x.mT @ (weight * z), (weight * z * z).sum(1))
    scale = gram.diagonal(dim1=-2, dim2=-1).sqrt().clamp(min=1e-300)
    unit = gram / (scale.unsqueeze(-1) * scale.unsqueeze(-2))
    scaled = cross / scale.unsqueeze(-1)
    rest = size - (scaled * torch.linalg.lstsq(unit, scaled, driver="gelsd").solution).sum(-2)
    return bool((rest <= _WITHIN * size).all())


def equality(result: FitResult, ratio: Tensor) -> Anova:
    """The test that all coefficients are zero, given the likelihood ratio against that."""
    errors, parameters = result.solution.errors, result.parameters
    unlimited = torch.full_like(ratio, torch.inf)
    test, statistic, below = "likelihood ratio", ratio, unlimited
    finite = bool((result.solution.finite_parameters.reshape(parameters.shape) == parameters).all())
    if errors.kind == "scaled":
        test, below = "F test", result.degrees_of_freedom
        statistic = ratio / parameters.clamp(min=1) / result.dispersion
    elif errors.kind != "model" and finite:
        gauge, b = result.solution.gauge, result.solution.optimum.coefficients
        solved = torch.linalg.solve_ex(errors.covariance + gauge, b.unsqueeze(-1))[0].squeeze(-1)
        wald = (b * solved).sum(-1).reshape(parameters.shape) / parameters.clamp(min=1)
        test, below = "Wald test", result.degrees_of_freedom
        enough = (errors.number.reshape(parameters.shape) > parameters) & (below > 0)
        statistic = torch.where(enough, wald, torch.nan)
    degrees = parameters.double()
    over = degrees.clamp(min=1) if test == "likelihood ratio" else torch.ones_like(degrees)
    p_value = f_tail(statistic / over, degrees, below)
    return Anova(statistic, parameters, below, p_value, test, (), result.names)


def _wald(smaller: Comparable, larger: Comparable) -> Tensor:
    """bᵀ V⁻¹ b of the coefficients that the smaller fit does not have."""
    extra = [k for k, name in enumerate(larger.names) if name not in smaller.names]
    if len(extra) != len(larger.names) - len(smaller.names):
        raise ValueError(
            f"with {larger.covariance_kind} standard errors, anova tests the coefficients that the "
            "larger fit has in addition, so every coefficient of the smaller fit "
            f"({', '.join(smaller.names)}) must be one of the larger fit "
            f"({', '.join(larger.names)})"
        )
    b, v = larger.coefficients[..., extra], larger.covariance[..., extra, :][..., extra]
    if not bool(b.isfinite().all()):
        raise ValueError(
            "a coefficient of the larger fit is infinite, so Wald's test does not apply; fit both "
            'with covariance="model"'
        )
    solved: Tensor = torch.linalg.solve(v, b.unsqueeze(-1)).squeeze(-1)
    return (b * solved).sum(-1)


def _check_same_data(result: Comparable, other: Comparable) -> None:
    for what, mine, theirs in (
        ("models", result.model, other.model),
        ("standard errors", result.covariance_kind, other.covariance_kind),
    ):
        if mine != theirs:
            raise ValueError(
                f"the fits have different {what}, {mine} and {theirs}; anova needs the same"
            )
    if result.penalty is not None or other.penalty is not None:
        raise ValueError(
            f"a fit has a {result.penalty or other.penalty} penalty, so it is not a maximum of the "
            "likelihood; anova needs fits without a penalty"
        )
    if result.rows.shape != other.rows.shape or not torch.equal(result.rows, other.rows):
        raise ValueError(
            f"the fits have {_shown(result.rows)} and {_shown(other.rows)} rows, but anova needs "
            "the same rows; leave out the rows with missing values before both fits"
        )
    here, there = result.central_log_likelihood, other.central_log_likelihood
    if not bool(((here - there).abs() <= _SAME * (1 + here.abs())).all()):
        raise ValueError(
            "the fits are to different counts: with all weights equal their log-likelihoods are "
            f"{_shown(here)} and {_shown(there)}, but anova needs the same data"
        )


def _shown(values: Tensor) -> str:
    unique = torch.unique(values).tolist()
    return f"{unique[0]:,.6g}" if len(unique) == 1 else "several numbers of"
