"""The contenders: ways to draw k of d items and to estimate the gradient of the expected loss.

Each is written here from its paper's formulas. Two of them are written a second time, as the code
that was released with the paper behaves, since it draws from another law than it scores:

- SIMPLE (Ahmed, Zeng, Niepert, Van den Broeck, ICLR 2023) is straight-through by the Jacobian of
  the exact inclusion probabilities of Fisher's law. Its paper draws from this law, and so is our
  `CovarianceST`. The second version of its code draws by Gumbel top-k, from Wallenius' law.
- SFESS (Wijk, Vinuesa, Azizpour, ICLR 2025) is the score function of Fisher's law with a
  leave-one-out baseline. With draws of this law it is our `ScoreFunction`. Its code draws by Gumbel
  top-k, its baseline is the mean of all samples, and its normaliser is clamped from below to the
  rounding error of float32, which stops its gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from diffurn import CovarianceST, FisherHypergeometric, GumbelTopK, ScoreFunction
from diffurn.estimators import Estimator
from diffurn.nn import SubsetSampler

# Maps subsets (samples, ..., d) to values (samples, ...); a value that depends on several subsets
# lacks the last dimensions.
Loss = Callable[[Tensor], Tensor]
Law = Literal["fisher", "wallenius"]


@dataclass(frozen=True)
class Contender:
    """A way to draw subsets and to estimate gradients.

    Args:
        temperature: of its relaxation or of its noise, if it has one.
    """

    # In tables; whether it is this package's; which law its probabilities and its draws are of, if
    # it has such a law; whether its gradient is unbiased; whether a temperature is to be tuned.
    words: ClassVar[str]
    ours: ClassVar[bool] = False
    scored: ClassVar[Law | None] = None
    drawn: ClassVar[Law | None] = None
    unbiased: ClassVar[bool] = False
    tempered: ClassVar[bool] = False

    temperature: float = 1.0

    def draw(self, logits: Tensor, k: int, samples: int) -> Tensor:
        """Hard subsets (samples, ..., d)."""
        raise NotImplementedError

    def expectation(self, f: Loss, logits: Tensor, k: int, samples: int) -> Tensor:
        """The mean of f over samples and items, a scalar with the contender's gradient."""
        raise NotImplementedError


# The field's.


class StraightThrough(Contender):
    """Gumbel top-k; backward, k times the softmax of the perturbed logits."""

    words = "Gumbel top-k, straight-through"
    drawn: ClassVar[Law | None] = "wallenius"
    tempered = True

    def draw(self, logits: Tensor, k: int, samples: int) -> Tensor:
        return largest(perturbed(logits, samples), k)

    def expectation(self, f: Loss, logits: Tensor, k: int, samples: int) -> Tensor:
        scores = perturbed(logits, samples)
        soft = k * torch.softmax(scores / self.temperature, -1)
        return f(largest(scores, k) + soft - soft.detach()).mean()


class MaximumOfConcretes(Contender):
    """L2X (Chen, Song, Wainwright, Jordan, ICML 2018): the largest of k relaxed one-hots."""

    words = "L2X, relaxed"
    tempered = True

    def draw(self, logits: Tensor, k: int, samples: int) -> Tensor:
        """Up to k items: the one-hots may coincide."""
        chosen = perturbed(logits, samples * k).argmax(-1, keepdim=True)
        one_hots = torch.zeros_like(logits.expand(samples * k, *logits.shape))
        drawn: Tensor = one_hots.scatter(-1, chosen, 1.0).unflatten(0, (samples, k)).amax(1)
        return drawn

    def expectation(self, f: Loss, logits: Tensor, k: int, samples: int) -> Tensor:
        soft = torch.softmax(perturbed(logits, samples * k) / self.temperature, -1)
        return f(soft.unflatten(0, (samples, k)).amax(1)).mean()


class ImplicitLikelihood(Contender):
    """I-MLE (Niepert, Minervini, Franceschi, NeurIPS 2021): the difference of two most probable
    subsets under the same sum-of-gamma noise, of the logits and of logits moved by the gradient.
    """

    words = "I-MLE"
    scored: ClassVar[Law | None] = "fisher"
    tempered = True
    step: ClassVar[float] = 10.0

    def draw(self, logits: Tensor, k: int, samples: int) -> Tensor:
        return largest(logits + self.temperature * gamma_sums(logits, k, samples), k)

    def expectation(self, f: Loss, logits: Tensor, k: int, samples: int) -> Tensor:
        noise = self.temperature * gamma_sums(logits, k, samples)
        items: list[int] = []  # known when f has been called
        copies = logits.expand(samples, *logits.shape)
        values: Tensor = f(_Moved.apply(copies, noise, k, self.step, items))
        items.append(values.numel())
        return values.mean()


class _Moved(torch.autograd.Function):
    """The k largest of noisy logits; backward, what moving the logits by `step` times the gradient
    of the item's own loss changes. That gradient is `items` times the one of the mean loss.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, noise: Tensor, k: int, step: float, items: list[int]
    ) -> Tensor:
        ctx.save_for_backward(logits, noise)
        ctx.k, ctx.step, ctx.items = k, step, items
        return largest(logits + noise, k)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        logits, noise = ctx.saved_tensors
        step = ctx.step * ctx.items[0]
        moved = largest(logits - step * slopes[0] + noise, ctx.k)
        change = (largest(logits + noise, ctx.k) - moved) / step
        return change, None, None, None, None


class SimpleCode(Contender):
    """SIMPLE as its code behaves: Gumbel top-k draws, and the exact Jacobian of Fisher's law."""

    words = "SIMPLE, its code"
    scored: ClassVar[Law | None] = "fisher"
    drawn: ClassVar[Law | None] = "wallenius"

    def draw(self, logits: Tensor, k: int, samples: int) -> Tensor:
        return largest(perturbed(logits, samples), k)

    def expectation(self, f: Loss, logits: Tensor, k: int, samples: int) -> Tensor:
        mean = SubsetSampler(k).inclusion(logits)
        return f(self.draw(logits.detach(), k, samples) + mean - mean.detach()).mean()


class SfessCode(Contender):
    """SFESS as its code behaves: Gumbel top-k draws, the score of Fisher's law with a clamped
    normaliser, and the mean of all samples as their baseline.
    """

    words = "SFESS, its code"
    scored: ClassVar[Law | None] = "fisher"
    drawn: ClassVar[Law | None] = "wallenius"

    def draw(self, logits: Tensor, k: int, samples: int) -> Tensor:
        return largest(perturbed(logits, samples), k)

    def expectation(self, f: Loss, logits: Tensor, k: int, samples: int) -> Tensor:
        subsets = self.draw(logits.detach(), k, samples)
        values = f(subsets)
        baseline = values.detach().mean(0)
        log_prob = summed(clamped_log_prob(logits, subsets, k), values.ndim)
        score = (values.detach() - baseline) * (log_prob - log_prob.detach())
        return (values + score).mean()


def clamped_log_prob(logits: Tensor, subsets: Tensor, k: int) -> Tensor:
    """log P(subset), with the logarithm of P(Σ of d Bernoulli variables = k) clamped."""
    independent = (subsets * logits).sum(-1) - softplus(logits).sum(-1)
    urn = FisherHypergeometric([1], k, log_weights=logits, validate_args=False)
    condition = urn.log_normalizer - softplus(logits).sum(-1)
    smallest = torch.finfo(torch.float32).eps
    limits = torch.tensor([smallest, 1 - smallest], dtype=torch.float64).log().tolist()
    return independent - condition.clamp(*limits)


# Ours: draws, scores and gradients of one law.


class Ours(Contender):
    """Our layer."""

    ours = True
    law: ClassVar[Law] = "fisher"

    def estimator(self) -> Estimator:
        raise NotImplementedError

    def draw(self, logits: Tensor, k: int, samples: int) -> Tensor:
        drawn: Tensor = SubsetSampler(k, self.law)(logits.detach(), num_samples=samples)
        return drawn

    def expectation(self, f: Loss, logits: Tensor, k: int, samples: int) -> Tensor:
        layer = SubsetSampler(k, self.law, self.estimator())
        return layer.expectation(f, logits, num_samples=samples).mean()


class Covariance(Ours):
    words = "exact covariance (SIMPLE, its paper)"
    scored: ClassVar[Law | None] = "fisher"
    drawn: ClassVar[Law | None] = "fisher"

    def estimator(self) -> Estimator:
        return CovarianceST()


class Score(Ours):
    words = "score, leave-one-out (SFESS, its paper)"
    scored: ClassVar[Law | None] = "fisher"
    drawn: ClassVar[Law | None] = "fisher"
    unbiased = True

    def estimator(self) -> Estimator:
        return ScoreFunction()


class ControlledScore(Score):
    words = "score, covariance control"

    def estimator(self) -> Estimator:
        return ScoreFunction("covariance")


class WalleniusScore(Score):
    words = "score, Wallenius' law"
    scored: ClassVar[Law | None] = "wallenius"
    drawn: ClassVar[Law | None] = "wallenius"
    law: ClassVar[Law] = "wallenius"


class RelaxedGumbel(Ours):
    words = "relaxed Gumbel top-k"
    scored: ClassVar[Law | None] = "wallenius"
    drawn: ClassVar[Law | None] = "wallenius"
    law: ClassVar[Law] = "wallenius"
    tempered = True

    def estimator(self) -> Estimator:
        return GumbelTopK(self.temperature)


CONTENDERS: dict[str, type[Contender]] = {
    "gumbel-st": StraightThrough,
    "l2x": MaximumOfConcretes,
    "imle": ImplicitLikelihood,
    "simple-code": SimpleCode,
    "sfess-code": SfessCode,
    "covariance": Covariance,
    "score": Score,
    "control": ControlledScore,
    "wallenius-score": WalleniusScore,
    "relaxed": RelaxedGumbel,
}


def perturbed(logits: Tensor, samples: int) -> Tensor:
    """The logits with Gumbel noise, (samples, ..., d)."""
    noise = torch.empty(samples, *logits.shape, dtype=logits.dtype, device=logits.device)
    smallest = torch.finfo(noise.dtype).tiny
    return logits - noise.exponential_().clamp(min=smallest).log()


def gamma_sums(logits: Tensor, k: int, samples: int, terms: int = 10) -> Tensor:
    """Noise of which the sum of k has nearly a Gumbel law: I-MLE's Sum-of-Gamma."""
    shape = torch.full((samples, *logits.shape), 1 / k, dtype=logits.dtype, device=logits.device)
    total = torch.zeros_like(shape)
    for term in range(1, terms + 1):
        total += torch._standard_gamma(shape) * (k / term)
    return (total - math.log(terms)) / k


def largest(scores: Tensor, k: int) -> Tensor:
    """Ones at the k largest scores, without a gradient."""
    with torch.no_grad():
        return torch.zeros_like(scores).scatter(-1, scores.topk(k, -1).indices, 1.0)


def summed(terms: Tensor, dimensions: int) -> Tensor:
    """The terms summed over the dimensions that follow the first ones."""
    return terms.flatten(dimensions).sum(-1) if terms.ndim > dimensions else terms
