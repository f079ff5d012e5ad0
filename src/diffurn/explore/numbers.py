"""The numbers on the page, for an urn that is small enough to list its outcomes: probabilities,
draws, the paper's approximation, and gradients of E[f(x)] with their estimates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from diffurn import CovarianceST, FisherHypergeometric, GumbelSoftmax, WalleniusHypergeometric
from diffurn.explore import limits
from diffurn.explore.limits import COUNT, DIVERSITY, FISHER, SPREAD, SQUARE, THRESHOLD, WALLENIUS

MOST_OUTCOMES = 5_000  # they are listed again at every step of a slider

Urn = FisherHypergeometric | WalleniusHypergeometric


@dataclass(frozen=True)
class Setting:
    """An urn as the sliders describe it. An impossible one is refused with a sentence for the page.

    Example:
        >>> Setting("Fisher", (3, 5, 4), 5, (1.0, 2.0, 0.5)).urn().mean
        tensor([1.1726, 2.8982, 0.9292], dtype=torch.float64)
    """

    model: str
    group_sizes: tuple[int, ...]
    draws: int
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        balls = sum(self.group_sizes)
        if balls == 0:
            raise ValueError("All groups are empty. Put a ball into one of them.")
        if self.draws > balls:
            raise ValueError(
                f"{self.draws} balls cannot be drawn from an urn of {balls}. Draw fewer, or put "
                "more balls into the groups."
            )
        if number_of_outcomes(self.group_sizes, self.draws) > MOST_OUTCOMES:
            raise ValueError(
                f"This urn has more than {MOST_OUTCOMES:,} outcomes, too many to list at every "
                "step. Take smaller groups, or fewer of them."
            )

    @property
    def log_weights(self) -> Tensor:
        return torch.tensor(self.weights, dtype=torch.float64).log()

    def urn(self, log_weights: Tensor | None = None, estimator: Any = None) -> Urn:
        """The urn, or one with other weights, and with an estimator where its model takes one."""
        log_weights = self.log_weights if log_weights is None else log_weights
        if self.model == WALLENIUS:
            return WalleniusHypergeometric(self.group_sizes, self.draws, log_weights=log_weights)
        return FisherHypergeometric(
            self.group_sizes, self.draws, log_weights=log_weights, estimator=estimator
        )

    @property
    def largest(self) -> int:
        """The largest count that any group can have."""
        return min(self.draws, max(self.group_sizes))


def number_of_outcomes(group_sizes: Sequence[int], draws: int) -> int:
    """How many vectors of counts sum to the draws.

    Example:
        >>> number_of_outcomes([2, 1, 1], draws=2)
        4
    """
    ways = [1] + [0] * draws  # by the number of balls drawn from the groups so far
    for size in group_sizes:
        ways = [sum(ways[max(0, n - size) : n + 1]) for n in range(draws + 1)]
    return ways[draws]


@dataclass(frozen=True)
class Distribution:
    """All outcomes (K, c), their probabilities (K,) and scores ∂ log p(x) / ∂ log ω, (K, c)."""

    outcomes: Tensor
    probabilities: Tensor
    scores: Tensor

    @cached_property
    def mean(self) -> Tensor:
        return self.probabilities @ self.outcomes

    @cached_property
    def deviation(self) -> Tensor:
        """The standard deviation of each count."""
        return (self.probabilities @ (self.outcomes - self.mean).square()).sqrt()

    def expectation(self, values: Tensor) -> Tensor:
        """E[f(x)], from the values of f at the outcomes."""
        return self.probabilities @ values

    def gradient(self, values: Tensor) -> Tensor:
        """∂E[f(x)] / ∂ log ω = E[f(x) ∂ log p(x) / ∂ log ω]; values (K, ...) give (..., c)."""
        gradient: Tensor = torch.tensordot(
            values, self.probabilities.unsqueeze(-1) * self.scores, ([0], [0])
        )
        return gradient


@lru_cache(maxsize=8)  # both halves of the page ask for the same one
def distribution_of(setting: Setting) -> Distribution:
    """The distribution of the counts, by listing all outcomes."""
    urn = setting.urn()
    outcomes = urn.enumerate_support()
    if setting.model == FISHER:  # an exponential family, whose score is x - E[x]
        return Distribution(outcomes, urn.log_prob(outcomes).exp(), outcomes - urn.mean)
    # Each outcome gets its own copy of the weights, so that one backward pass gives all scores.
    log_weights = setting.log_weights.repeat(len(outcomes), 1).requires_grad_()
    log_prob = setting.urn(log_weights).log_prob(outcomes)
    (scores,) = torch.autograd.grad(log_prob.sum(), log_weights)
    return Distribution(outcomes, log_prob.detach().exp(), scores)


def marginals(outcomes: Tensor, probabilities: Tensor, largest: int) -> Tensor:
    """P(X_j = 0), …, P(X_j = largest) of every group: shape (largest + 1, c).

    Example:
        >>> marginals(torch.tensor([[0, 2], [1, 1]]), torch.tensor([0.25, 0.75]), 2)
        tensor([[0.2500, 0.0000],
                [0.7500, 0.7500],
                [0.0000, 0.2500]])
    """
    return torch.stack(
        [
            torch.bincount(counts, probabilities, largest + 1)
            for counts in outcomes.to(torch.int64).unbind(-1)
        ],
        -1,
    )


def draw(setting: Setting, num_samples: int, seed: int) -> Tensor:
    """Samples of the urn, (num_samples, c)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return setting.urn().sample((num_samples,))


def shares(counts: Tensor, largest: int) -> Tensor:
    """The share of each count among the samples: shape (largest + 1, c)."""
    return marginals(
        counts, torch.full((len(counts),), 1 / len(counts), dtype=torch.float64), largest
    )


def merged_probabilities(setting: Setting) -> Tensor:
    """The probabilities of all outcomes in the paper's approximation to Fisher's distribution.

    It draws one group after another, and merges all later groups into one of average weight.
    """
    outcomes = distribution_of(setting).outcomes
    sizes = torch.tensor(setting.group_sizes, dtype=torch.float64)
    weights = torch.tensor(setting.weights, dtype=torch.float64)
    log_prob = torch.zeros(len(outcomes), dtype=torch.float64)
    left = outcomes.sum(-1)
    for i in range(len(sizes) - 1):
        later = sizes[i + 1 :].sum()
        average = (sizes * weights)[i + 1 :].sum() / later.clamp(min=1)
        left = left - outcomes[:, i]
        pairs, place = torch.stack([outcomes[:, i], left], -1).unique(dim=0, return_inverse=True)
        pair = FisherHypergeometric(
            torch.stack([sizes[i], later]),
            pairs.sum(-1),
            weights=torch.stack([weights[i], torch.where(later > 0, average, weights[i])]),
        )
        log_prob += pair.log_prob(pairs)[place]
    return log_prob.exp()


def total_variation(first: Tensor, second: Tensor) -> Tensor:
    """Half the sum of |p - q| over the first dimension: the largest difference between the two
    probabilities of any event.
    """
    return (first - second).abs().sum(0) / 2


@dataclass(frozen=True)
class Question:
    """A function f of the counts: of one group (the first is 0) or, for diversity, of all."""

    function: str
    group: int = 0
    threshold: int = 1

    def f(self, distribution: Distribution) -> Callable[[Tensor], Tensor]:
        """Counts (..., c) to values (...). The distance from the mean takes the mean as fixed."""
        centre, draws = distribution.mean[self.group], distribution.outcomes[0].sum()
        functions: dict[str, Callable[[Tensor], Tensor]] = {
            COUNT: lambda x: x[..., self.group],
            SQUARE: lambda x: x[..., self.group].square(),
            SPREAD: lambda x: (x[..., self.group] - centre).square(),
            THRESHOLD: lambda x: (x[..., self.group] >= self.threshold).to(x.dtype),
            DIVERSITY: lambda x: 1 - (x / draws).square().sum(-1),
        }
        return functions[self.function]


@dataclass(frozen=True)
class Estimate:
    """An estimator's average (c,) and the standard deviation of one estimate (c,); bias and spread
    are relative to the length of the exact gradient.
    """

    average: Tensor
    deviation: Tensor
    bias: float
    spread: float


@dataclass(frozen=True)
class Gradient:
    """E[f(x)], its exact gradient in log ω, and the estimates by name."""

    value: float
    exact: Tensor
    estimates: dict[str, Estimate]


def gradient(
    setting: Setting, question: Question, temperature: float, num_samples: int, seed: int
) -> Gradient:
    """The exact gradient as a sum over all outcomes, and `num_samples` one-sample estimates of it
    by each estimator.
    """
    distribution = distribution_of(setting)
    values = question.f(distribution)(distribution.outcomes)
    exact = distribution.gradient(values)
    found = one_sample_gradients(setting, question, temperature, num_samples, seed)
    return Gradient(
        float(distribution.expectation(values)),
        exact,
        {name: _judged(rows, exact) for name, rows in found.items()},
    )


def _judged(rows: Tensor, exact: Tensor) -> Estimate:
    average, deviation, length = rows.mean(0), rows.std(0), float(exact.norm())

    def relative(error: Tensor) -> float:
        return float(error.norm()) / length if length > 1e-12 else float("nan")

    return Estimate(average, deviation, relative(average - exact), relative(deviation))


def one_sample_gradients(
    setting: Setting, question: Question, temperature: float, num_samples: int, seed: int
) -> dict[str, Tensor]:
    """Independent estimates of ∂E[f(x)] / ∂ log ω from one sample each, (num_samples, c), by the
    name of the estimator.
    """
    if setting.model == WALLENIUS:
        return _through_the_mean(setting, question, num_samples, seed)
    estimators = {
        "CovarianceST": CovarianceST(),
        "Gumbel, exact": GumbelSoftmax(temperature),
        "Gumbel, merged": GumbelSoftmax(temperature, conditionals="merged"),
    }
    found = {}
    for name, estimator in estimators.items():
        log_weights = setting.log_weights.repeat(num_samples, 1).requires_grad_()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            values = _values_of_samples(setting.urn(log_weights, estimator), setting, question)
        found[name] = torch.autograd.grad(values.sum() + 0 * log_weights.sum(), log_weights)[0]
    return found


def _values_of_samples(urns: Any, setting: Setting, question: Question) -> Tensor:
    if question.function != THRESHOLD:
        return question.f(distribution_of(setting))(urns.rsample())
    if question.threshold > setting.group_sizes[question.group]:
        return torch.zeros(urns.batch_shape, dtype=torch.float64)
    # A threshold has derivative zero in the count; rank indicators carry its gradient.
    reached: Tensor = urns.rank_indicators(question.group)[1][..., question.threshold - 1]
    return reached


def _through_the_mean(
    setting: Setting, question: Question, num_samples: int, seed: int
) -> dict[str, Tensor]:
    """The gradients of `WalleniusHypergeometric.rsample`, which are ∂f/∂x · ∂mean/∂log ω; the
    Jacobian of the mean comes from the listed outcomes.
    """
    if question.function == THRESHOLD:
        return {}
    distribution = distribution_of(setting)
    counts = draw(setting, num_samples, seed).requires_grad_()
    (slopes,) = torch.autograd.grad(question.f(distribution)(counts).sum(), counts)
    return {"rsample": slopes @ distribution.gradient(distribution.outcomes)}


def as_setting(
    model: Any, groups: Any, draws: Any, sizes: Sequence[Any], log2_weights: Sequence[Any]
) -> Setting:
    """The setting that the values of the page's fields describe. All values are checked, except
    those of hidden groups, which are ignored.
    """
    shown = slice(limits.GROUPS.checked(groups))
    group_sizes = tuple(
        limit.checked(size) for limit, size in zip(limits.SIZES[shown], sizes[shown], strict=True)
    )
    weights = tuple(
        2.0 ** limit.checked(value)
        for limit, value in zip(limits.LOG2_WEIGHTS[shown], log2_weights[shown], strict=True)
    )
    return Setting(limits.MODEL.checked(model), group_sizes, limits.DRAWS.checked(draws), weights)
