"""The (penalised) log-likelihood of a sample with its first two derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from diffurn._fisher.moments import covariance as fisher_covariance
from diffurn._fisher.moments import log_prob_and_derivatives as fisher_derivatives
from diffurn._numerics.gauge import orthogonal_to, solve
from diffurn._validation import require_one_of
from diffurn._wallenius.probabilities import log_prob_and_derivatives as wallenius_derivatives
from diffurn.fisher import FisherHypergeometric
from diffurn.inference.solving.rows import Rows
from diffurn.inference.solving.sample import Sample
from diffurn.wallenius import WalleniusHypergeometric

Progress = Callable[[int, int], object]
AnyUrn = FisherHypergeometric | WalleniusHypergeometric


def _scaled_wallenius_derivatives(
    log_weights: Tensor, group_sizes: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """A common factor of the weights cancels; the integral is accurate if the largest is one."""
    log_weights = log_weights - log_weights.amax(-1, keepdim=True)
    return wallenius_derivatives(log_weights, group_sizes, counts)


@dataclass(frozen=True)
class Model:
    """An urn model, as `fit` needs it.

    Attributes:
        name: the user's name of the model.
        urn: the distribution; it gives the moments.
        derivatives: maps log ω, m, x of rows to log P(x), its gradient and minus its Hessian in
            log ω.
        averages: whether rows of equal m and n may be replaced by their average. They may in an
            exponential family.
    """

    name: str
    urn: type[FisherHypergeometric] | type[WalleniusHypergeometric]
    derivatives: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
    averages: bool


MODELS = {
    "fisher": Model("fisher", FisherHypergeometric, fisher_derivatives, averages=True),
    "wallenius": Model(
        "wallenius", WalleniusHypergeometric, _scaled_wallenius_derivatives, averages=False
    ),
}


def check_model(model: str, penalty: str | None, ridge: float) -> None:
    """Raises a ValueError for a model or a penalty that does not exist."""
    require_one_of("model", model, tuple(MODELS))
    require_one_of("penalty", penalty, (None, "ridge", "firth"))
    if not 0 < ridge < float("inf"):
        raise ValueError(f"ridge is {ridge}, but must be a finite number above 0")
    if penalty == "firth" and model != "fisher":
        raise ValueError('penalty "firth" needs model "fisher"; for model "wallenius" use "ridge"')


def penalty_of(name: str | None, ridge: float) -> Penalty | None:
    """The penalty of that name."""
    return None if name is None else Ridge(ridge) if name == "ridge" else Firth()


def log_weights_of(sample: Sample, coefficients: Tensor) -> Tensor:
    """log ω of every row, ``(D, R, c)``, at β ``(D, p)``."""
    if sample.design is None:
        return coefficients.unsqueeze(-2).expand(sample.counts.shape)
    return (sample.design @ coefficients[:, None, :, None]).squeeze(-1)


class Evaluation(NamedTuple):
    """An objective at one point per data set: its value ``(D,)``, gradient ``(D, p)`` and minus its
    Hessian ``(D, p, p)``.
    """

    value: Tensor
    score: Tensor
    information: Tensor

    def pick(self, data_sets: Tensor) -> Evaluation:
        return Evaluation(*(x[data_sets] for x in self))

    def newton_step(self, gauge: Tensor) -> Tensor:
        return solve(self.information, self.score.unsqueeze(-1), gauge).squeeze(-1)

    def replaced(self, where: Tensor, by: Evaluation) -> Evaluation:
        """A copy with new numbers for some data sets."""
        return Evaluation(
            *(old.index_copy(0, where, new) for old, new in zip(self, by, strict=True))
        )


@dataclass(frozen=True, eq=False)
class Objective:
    """The (penalised) log-likelihood of D data sets.

    Attributes:
        model: the urn model.
        sample: the rows.
        gauge: projection onto the directions in which coefficients do not move, ``(D, p, p)``: the
            likelihood is constant along them.
        penalty: None for plain maximum likelihood.
        progress: called with the rows done and the number of all rows, in every pass over them.
        many_rows: with as many rows, Newton's method starts from the fit of a random subsample.
        subsample: the number of rows in that subsample.
    """

    model: Model
    sample: Rows
    gauge: Tensor
    penalty: Penalty | None = None
    progress: Progress | None = None
    many_rows: int = 100_000
    subsample: int = 20_000

    @classmethod
    def of(
        cls,
        model: str,
        sample: Sample,
        penalty: str | None = None,
        ridge: float = 1.0,
        progress: Progress | None = None,
    ) -> Objective:
        """The objective of a sample, with equal rows merged where the model allows it."""
        chosen = MODELS[model]
        p = sample.parameters
        return cls(
            chosen,
            sample.merged(chosen.averages),
            sample.counts.new_zeros(len(sample.counts), p, p),
            penalty_of(penalty, ridge),
            progress,
        )

    @property
    def urns(self) -> Sample:
        """The sample of a fit to counts."""
        assert isinstance(self.sample, Sample)
        return self.sample

    def pick(self, data_sets: Tensor) -> Objective:
        return replace(self, sample=self.sample.pick(data_sets), gauge=self.gauge[data_sets])

    @cached_property
    def _tiles(self) -> list[tuple[slice, Any]]:
        return self.sample.tiles()

    def at(self, coefficients: Tensor) -> Evaluation:
        """The penalised log-likelihood at β ``(D, p)``."""
        likelihood = self.likelihood(coefficients)
        return likelihood if self.penalty is None else self.penalty(self, coefficients, likelihood)

    def likelihood(self, coefficients: Tensor) -> Evaluation:
        """The log-likelihood at β ``(D, p)``, without the penalty; summed tile by tile."""
        found, done = [], 0
        for some, part in self._tiles:
            found.append(self.of_tile(part, coefficients[some]))
            done += part.work
            if self.progress is not None:
                self.progress(done, self.sample.work)
        value, score, information = found[0] if len(found) == 1 else self._added(found)
        return Evaluation(*self.sample.summed(self.sample.constant + value, score, information))

    def _added(self, found: list[Evaluation]) -> Evaluation:
        """The sum of the evaluations of all tiles."""
        sets, p = self.gauge.shape[:2]
        zero = self.gauge.new_zeros
        total = Evaluation(zero(sets), zero(sets, p), zero(sets, p, p))
        for (some, _), of_tile in zip(self._tiles, found, strict=True):
            for sums, parts in zip(total, of_tile, strict=True):
                sums[some] += parts
        return total

    def of_tile(self, part: Any, coefficients: Tensor) -> Evaluation:
        """The log-likelihood of a tile of the sample."""
        p, frequencies = coefficients.shape[-1], part.frequencies.unsqueeze(-2)
        log_weights = log_weights_of(part, coefficients)
        log_prob, slope, curvature = self.model.derivatives(
            log_weights, part.group_sizes, part.counts
        )
        if part.design is not None:
            slope = (slope.unsqueeze(-2) @ part.design).squeeze(-2)
            curvature = part.design.mT @ curvature @ part.design
        return Evaluation(
            (frequencies @ log_prob.unsqueeze(-1)).flatten(),
            (frequencies @ slope).squeeze(-2),
            (frequencies @ curvature.flatten(-2)).reshape(-1, p, p),
        )

    def information_of_tile(self, part: Any, coefficients: Tensor) -> Tensor:
        """Fisher's information about β in a tile, ``(D, p, p)``, differentiable in β."""
        log_weights = log_weights_of(part, coefficients)
        covariance = fisher_covariance(log_weights, part.group_sizes, part.draws)
        if part.design is not None:
            covariance = part.design.mT @ covariance @ part.design
        total: Tensor = (part.frequencies[..., None, None] * covariance).sum(1)
        return total


# --- penalties


class Penalty(Protocol):
    """A term added to the log-likelihood."""

    @property
    def name(self) -> str:
        """The user's name of the penalty."""

    def __call__(
        self, objective: Objective, coefficients: Tensor, likelihood: Evaluation
    ) -> Evaluation:
        """The penalised evaluation, from that of the likelihood."""


@dataclass(frozen=True)
class Ridge:
    """-½ λ ‖β‖² of the coefficients orthogonal to the gauge: of the centred log ω, or of β."""

    strength: float
    name: str = "ridge"

    def __call__(
        self, objective: Objective, coefficients: Tensor, likelihood: Evaluation
    ) -> Evaluation:
        free = orthogonal_to(objective.gauge)
        shrunk = (free @ coefficients.unsqueeze(-1)).squeeze(-1)
        return Evaluation(
            likelihood.value - 0.5 * self.strength * shrunk.square().sum(-1),
            likelihood.score - self.strength * shrunk,
            likelihood.information + self.strength * free,
        )


@dataclass(frozen=True)
class Firth:
    """½ log det of the information (Jeffreys' prior). It removes the leading term of the bias and
    keeps every estimate finite. Only for Fisher's model, whose information is Cov[X].

    The information of the likelihood stays the metric of Newton's method.
    """

    name: str = "firth"

    def __call__(
        self, objective: Objective, coefficients: Tensor, likelihood: Evaluation
    ) -> Evaluation:
        inverse = solve(likelihood.information, orthogonal_to(objective.gauge), objective.gauge)
        log_det = torch.linalg.slogdet(likelihood.information + objective.gauge).logabsdet
        slope = 0.5 * _slope_of_trace(objective, coefficients, inverse)
        return Evaluation(
            likelihood.value + 0.5 * log_det, likelihood.score + slope, likelihood.information
        )


def _slope_of_trace(objective: Objective, coefficients: Tensor, fixed: Tensor) -> Tensor:
    """∂/∂β tr(fixed · information), ``(D, p)``: third cumulants, by autograd through the exact
    information.
    """
    sample, slope = objective.sample, torch.zeros_like(coefficients)
    for some, part in sample.tiles(differentiated=True):
        with torch.enable_grad():
            beta = coefficients[some].detach().requires_grad_()
            trace = (fixed[some] * objective.information_of_tile(part, beta)).sum()
            slope[some] += torch.autograd.grad(trace, beta)[0]
    return sample.summed(slope)[0]
