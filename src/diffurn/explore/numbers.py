"""What the page shows, as numbers: the law of a small urn over all its outcomes, draws, the paper's
merged law, gradients of E[f(x)].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from diffurn import CovarianceST, FisherHypergeometric, GumbelSoftmax, WalleniusHypergeometric
from diffurn._fisher.conditionals import merged_log_prob
from diffurn._numerics.enumeration import enumerate_counts
from diffurn._urn import Urn
from diffurn.explore import limits
from diffurn.explore.limits import COUNT, DIVERSITY, FISHER, SPREAD, SQUARE, THRESHOLD, WALLENIUS

# The page lists all outcomes, anew for every step of a slider.
MOST_OUTCOMES = 5_000


@dataclass(frozen=True)
class Setting:
    """An urn as a person sets it up. What no urn can be is refused with a sentence for them.

    Example:
        >>> Setting("Fisher", (3, 5, 4), 5, (1.0, 2.0, 0.5)).urn().mean
        tensor([1.1726, 2.8982, 0.9292], dtype=torch.float64)
    """

    law: str
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
        if enumerate_counts(list(self.group_sizes), self.draws, MOST_OUTCOMES) is None:
            raise ValueError(
                f"This urn has more than {MOST_OUTCOMES:,} outcomes, too many to list at every "
                "step. Take smaller groups, or fewer of them."
            )

    @property
    def log_weights(self) -> Tensor:
        return torch.tensor(self.weights, dtype=torch.float64).log()

    def urn(self, log_weights: Tensor | None = None, estimator: Any = None) -> Urn:
        log_weights = self.log_weights if log_weights is None else log_weights
        if self.law == WALLENIUS:
            return WalleniusHypergeometric(self.group_sizes, self.draws, log_weights=log_weights)
        return FisherHypergeometric(
            self.group_sizes, self.draws, log_weights=log_weights, estimator=estimator
        )

    @property
    def largest(self) -> int:
        """The largest count that any group can have."""
        return min(self.draws, max(self.group_sizes))


@dataclass(frozen=True)
class Law:
    """A law over all outcomes: counts (K, c), their probabilities (K,) and scores ∂ log p(x) / ∂
    log ω, (K, c).
    """

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
        """E[f(x)] for the values f takes at the outcomes."""
        return self.probabilities @ values

    def gradient(self, values: Tensor) -> Tensor:
        """∂E[f(x)] / ∂ log ω = E[f(x) ∂ log p(x) / ∂ log ω]; values (K, ...) give (..., c)."""
        gradient: Tensor = torch.tensordot(
            values, self.probabilities.unsqueeze(-1) * self.scores, ([0], [0])
        )
        return gradient


@lru_cache(maxsize=8)  # both halves of the page ask for the same one
def law_of(setting: Setting) -> Law:
    """The law of an urn, by listing its outcomes."""
    urn = setting.urn()
    outcomes = urn.enumerate_support()
    if setting.law == FISHER:  # an exponential family, whose score is x - E[x]
        return Law(outcomes, urn.log_prob(outcomes).exp(), outcomes - urn.mean)
    # Every outcome gets weights of its own, so that one backward pass gives all scores.
    log_weights = setting.log_weights.repeat(len(outcomes), 1).requires_grad_()
    log_prob = setting.urn(log_weights).log_prob(outcomes)
    (scores,) = torch.autograd.grad(log_prob.sum(), log_weights)
    return Law(outcomes, log_prob.detach().exp(), scores)


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


def draw(setting: Setting, number: int, seed: int) -> Tensor:
    """Draws by the library's own sampler, (number, c)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return setting.urn().sample((number,))


def shares(counts: Tensor, largest: int) -> Tensor:
    """How often each count came, as a share of all draws: shape (largest + 1, c)."""
    return marginals(
        counts, torch.full((len(counts),), 1 / len(counts), dtype=torch.float64), largest
    )


def merged_probabilities(setting: Setting) -> Tensor:
    """What the paper's chain gives each outcome, instead of Fisher's law: every group against all
    later ones as one.
    """
    sizes, draws = torch.tensor(setting.group_sizes), torch.tensor(setting.draws)
    return merged_log_prob(law_of(setting).outcomes, sizes, draws, setting.log_weights).exp()


def total_variation(law: Tensor, other: Tensor) -> Tensor:
    """Half the sum of |p - q| over the first dimension: the most by which the two can disagree
    about any event.
    """
    return (law - other).abs().sum(0) / 2


@dataclass(frozen=True)
class Question:
    """A function f of the counts: of one group (the first is 0) or, for diversity, of all."""

    function: str
    group: int = 0
    threshold: int = 1

    def f(self, law: Law) -> Callable[[Tensor], Tensor]:
        """Counts (..., c) to values (...); the centre of the spread stays where it is."""
        centre, draws = law.mean[self.group], law.outcomes[0].sum()
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
    """What an estimator says of a gradient: its average (c,), the standard deviation of one draw
    (c,), and both relative to |∇|.
    """

    average: Tensor
    deviation: Tensor
    bias: float
    spread: float


@dataclass(frozen=True)
class Gradient:
    """E[f(x)], its exact gradient in log ω, and what the estimators make of it from one draw at a
    time.
    """

    value: float
    exact: Tensor
    estimates: dict[str, Estimate]


def gradient(
    setting: Setting, question: Question, temperature: float, number: int, seed: int
) -> Gradient:
    """The exact gradient by summing over all outcomes, beside the estimators' averages over
    `number` independent one-draw gradients.
    """
    law = law_of(setting)
    values = question.f(law)(law.outcomes)
    exact = law.gradient(values)
    found = one_draw_gradients(setting, question, temperature, number, seed)
    return Gradient(
        float(law.expectation(values)),
        exact,
        {name: _judged(rows, exact) for name, rows in found.items()},
    )


def _judged(rows: Tensor, exact: Tensor) -> Estimate:
    average, deviation, length = rows.mean(0), rows.std(0), float(exact.norm())
    relative = (
        (lambda size: float(size.norm()) / length) if length > 1e-12 else lambda size: float("nan")
    )
    return Estimate(average, deviation, relative(average - exact), relative(deviation))


def one_draw_gradients(
    setting: Setting, question: Question, temperature: float, number: int, seed: int
) -> dict[str, Tensor]:
    """Independent estimates of ∂E[f(x)] / ∂ log ω from one draw each, (number, c) for every
    estimator that there is.
    """
    if setting.law == WALLENIUS:
        return _through_the_mean(setting, question, number, seed)
    estimators = {
        "CovarianceST": CovarianceST(),
        "Gumbel, exact": GumbelSoftmax(temperature),
        "Gumbel, merged": GumbelSoftmax(temperature, conditionals="merged"),
    }
    found = {}
    for name, estimator in estimators.items():
        log_weights = setting.log_weights.repeat(number, 1).requires_grad_()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            values = _values_of_draws(setting.urn(log_weights, estimator), setting, question)
        found[name] = torch.autograd.grad(values.sum() + 0 * log_weights.sum(), log_weights)[0]
    return found


def _values_of_draws(urns: Any, setting: Setting, question: Question) -> Tensor:
    if question.function != THRESHOLD:
        return question.f(law_of(setting))(urns.rsample())
    if question.threshold > setting.group_sizes[question.group]:
        return torch.zeros(urns.batch_shape, dtype=torch.float64)
    # A threshold is flat almost everywhere: the indicators carry the gradient that the count itself
    # would not.
    reached: Tensor = urns.rank_indicators(question.group)[1][..., question.threshold - 1]
    return reached


def _through_the_mean(
    setting: Setting, question: Question, number: int, seed: int
) -> dict[str, Tensor]:
    """`WalleniusHypergeometric.rsample` sends gradients back by ∂mean/∂log ω: the same Jacobian,
    from the listed outcomes.
    """
    if question.function == THRESHOLD:
        return {}
    law = law_of(setting)
    counts = draw(setting, number, seed).requires_grad_()
    (slopes,) = torch.autograd.grad(question.f(law)(counts).sum(), counts)
    return {"rsample": slopes @ law.gradient(law.outcomes)}


def as_setting(
    law: Any, groups: Any, draws: Any, sizes: Sequence[Any], log2_weights: Sequence[Any]
) -> Setting:
    """A setting from the values of the page's fields, all of them checked; fields of groups that
    are not shown are not read.
    """
    shown = slice(limits.GROUPS.checked(groups))
    group_sizes = tuple(
        limit.checked(size) for limit, size in zip(limits.SIZES[shown], sizes[shown], strict=True)
    )
    weights = tuple(
        2.0 ** limit.checked(value)
        for limit, value in zip(limits.LOG2_WEIGHTS[shown], log2_weights[shown], strict=True)
    )
    return Setting(limits.LAW.checked(law), group_sizes, limits.DRAWS.checked(draws), weights)
