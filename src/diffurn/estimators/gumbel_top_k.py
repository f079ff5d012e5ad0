"""Gumbel top-k with a relaxed gradient, for Wallenius' law of single balls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

import torch
from torch import Tensor

from diffurn._fisher.tilt import log_tilt
from diffurn._numerics.autograd import straight_through
from diffurn.estimators.estimator import Estimator

if TYPE_CHECKING:
    from diffurn._law import Law, Race

# The tilt is within a hundredth of a standard deviation of its target. Newton's method squares the
# error in each step.
_STEPS = 3


@dataclass(frozen=True)
class GumbelTopK(Estimator):
    r"""The k largest of log-weights with Gumbel noise; backward, the gradient of a relaxation.

    The hard draws are exact draws of Wallenius' law of single balls (not of Fisher's). The
    relaxation is :math:`\sigma((r_j - λ) / τ)` of the perturbed log-weights r, with λ such that it
    sums to k. It costs O(d), whatever k. The gradient is biased, as that of every relaxation.

    References: Kool, van Hoof, Welling, *Stochastic beams and where to find them* (ICML 2019), for
    the draw; Xie, Ermon, *Reparameterizable subset sampling via continuous relaxations* (IJCAI
    2019), for relaxed subsets.

    Args:
        temperature: τ > 0.
        hard: whole counts forward (default); otherwise the relaxed ones.

    Example:
        >>> from diffurn import WalleniusHypergeometric
        >>> logits = torch.zeros(5, requires_grad=True)
        >>> how = GumbelTopK(temperature=0.5)
        >>> urn = WalleniusHypergeometric([1] * 5, 2, log_weights=logits, estimator=how)
        >>> urn.rsample((3,)).sum(-1)
        tensor([2., 2., 2.], grad_fn=<SumBackward1>)
    """

    needs_perturbed_weights: ClassVar[bool] = True

    temperature: float | Tensor = 1.0
    hard: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.temperature, Tensor) and not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}, but must be > 0")

    def rsample(self, law: Law, num_samples: int) -> Tensor:
        race = cast("Race", law)
        perturbed = race.perturbed(num_samples)
        some = perturbed > -torch.inf
        scores = torch.where(some, perturbed / self.temperature, 0.0)
        hard = race.first(perturbed.detach(), scores.dtype)
        soft = relaxed_top(scores, some.to(scores.dtype), hard.detach().sum(-1))
        return straight_through(hard, soft) if self.hard else soft


def relaxed_top(scores: Tensor, sizes: Tensor, number: Tensor) -> Tensor:
    """σ(scores - λ) with λ such that it sums to `number`; zero where `sizes` are.

    Example:
        >>> scores = torch.tensor([3.0, 1.0, 0.0, -5.0], dtype=torch.float64)
        >>> soft = relaxed_top(scores, torch.ones_like(scores), torch.tensor(2.0))
        >>> print(f"{soft.sum():.12f}")
        2.000000000000
    """
    balls = sizes.sum(-1)
    certain = (number <= 0) | (number >= balls)
    target = torch.where(certain, 0.5 * balls, number)
    # log_tilt aims half a ball below its argument.
    shift = log_tilt(scores.detach(), sizes, target + 0.5).unsqueeze(-1)
    for _ in range(_STEPS):
        # Under autograd, a Newton step from the root has the derivatives of the root.
        expected = sizes * torch.sigmoid(scores + shift.detach())
        slope = (expected * (1 - expected)).detach().sum(-1, keepdim=True)
        smallest = torch.finfo(slope.dtype).tiny
        shift = shift.detach() + (target.unsqueeze(-1) - expected.sum(-1, keepdim=True)) / (
            slope.clamp(min=smallest)
        )
    soft = sizes * torch.sigmoid(scores + shift)
    ends = torch.where((number > 0).unsqueeze(-1), sizes, 0.0)
    return torch.where(certain.unsqueeze(-1), ends, soft)
