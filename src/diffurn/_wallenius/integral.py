"""Wallenius' law of any urn by integrals over time, and the base class of faster algorithms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from diffurn._fisher.tilt import holder_of
from diffurn._law import Chain, Noise, Relaxation, most_balls
from diffurn._numerics.autograd import straight_through
from diffurn._numerics.tracing import can_read
from diffurn._wallenius import marginals, moments, probabilities
from diffurn._wallenius.sampling import draw_each

# For moments and draws, log-weights are clamped to this distance from that of the n-th heaviest
# ball. A ball e^600 times as heavy is drawn, and one e^600 times lighter is not, up to rounding.
# Log-probabilities use the weights as they are.
FARTHEST = 600.0


@dataclass(frozen=True)
class Integral:
    """Wallenius' law of any urn.

    Args:
        log_weights: log ω relative to the heaviest group, ``(..., c)``; carries the gradient.
        group_sizes: m, ``(..., c)``; groups that are never drawn have no balls.
        draws: n, ``(...)``.
        most_draws: the largest n, if it is small enough to draw the balls one by one; or None.
    """

    log_weights: Tensor
    group_sizes: Tensor
    draws: Tensor
    most_draws: int | None

    @classmethod
    def build(
        cls,
        log_weights: Tensor,
        group_sizes: Tensor,
        draws: Tensor,
        most_draws: int | None = None,
    ) -> Integral:
        """From finite log-weights; groups that are never drawn have no balls."""
        some = group_sizes > 0
        weights = torch.where(some, log_weights.detach(), -torch.inf)
        heaviest = weights.amax(-1, keepdim=True)
        return cls(torch.where(some, log_weights - heaviest, 0.0), group_sizes, draws, most_draws)

    @property
    def operands(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.log_weights, self.group_sizes, self.draws

    def within_reach(self, farthest: float = FARTHEST) -> tuple[Tensor, Tensor, Tensor]:
        """The operands for moments and draws, with log ω clamped (see `FARTHEST`)."""
        log_weights, group_sizes, draws = self.operands
        detached = log_weights.detach()
        if can_read(detached) and not (detached < -farthest).any():
            return log_weights, group_sizes, draws
        some = group_sizes > 0
        known = torch.where(some, detached, -torch.inf)
        holder, _, _ = holder_of(draws.clamp(min=1), known, group_sizes)
        relative = torch.where(some, log_weights - holder.unsqueeze(-1), 0.0)
        return relative.clamp(-farthest, farthest), group_sizes, draws

    @property
    def groups(self) -> int:
        return self.log_weights.shape[-1]

    def largest(self, group: int) -> int:
        return most_balls(self.group_sizes, group)

    def log_prob(self, x: Tensor) -> Tensor:
        return probabilities.log_prob(self.log_weights, self.group_sizes, x)

    def mean(self) -> Tensor:
        return moments.mean(*self.within_reach())

    def variance(self) -> Tensor:
        return self.covariance().diagonal(dim1=-2, dim2=-1)

    def covariance(self) -> Tensor:
        return moments.covariance(*self.within_reach())

    def entropy(self) -> Tensor:
        raise NotImplementedError("the entropy of Wallenius' law has no closed form")

    def mode(self) -> Tensor:
        raise NotImplementedError("the mode of Wallenius' law has no closed form")

    def marginal_log_prob(self, x: Tensor) -> Tensor:
        return marginals.marginal_log_prob(*self.operands, x)

    def log_tails(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return marginals.log_tails(*self.operands, x)

    def tail(self, group: int) -> Tensor:
        return marginals.tail(*self.operands, group, self.largest(group))

    def sample(self, num_samples: int, dtype: torch.dtype) -> Tensor:
        counts = draw_each(*self.within_reach(), num_samples, self.most_draws)
        return counts.to(dtype).reshape(num_samples, *self.log_weights.shape)

    def rsample(self, num_samples: int) -> Tensor:
        with torch.no_grad():
            counts = self.sample(num_samples, self.log_weights.dtype)
        return straight_through(counts, self.mean())

    def rsample_with_tail(self, num_samples: int, group: int) -> tuple[Tensor, Tensor]:
        return self.rsample(num_samples), self.tail(group)

    def chain(
        self,
        num_samples: int,
        order: Sequence[int] | None,
        merged: bool,
        temperature: float | Tensor,
    ) -> Chain:
        raise NotImplementedError(
            "the conditional laws of Wallenius' law have no closed form; use the estimator "
            "CovarianceST"
        )

    def relaxed(
        self,
        num_samples: int,
        order: Sequence[int] | None,
        how: Relaxation,
        drawn: Callable[[Chain, Noise], Tensor],
    ) -> None:
        return None
