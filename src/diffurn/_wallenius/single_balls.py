"""Wallenius' law of urns whose groups have one ball each: draws by running the race itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from diffurn._fisher.single_balls import first_of, heaviest
from diffurn._numerics.tracing import can_read
from diffurn._wallenius import moments
from diffurn._wallenius.integral import Integral


@dataclass(frozen=True)
class SingleBalls(Integral):
    """Wallenius' law of urns with m_j ≤ 1 for every group.

    The ball of group j arrives at an exponential time of rate ω_j, and the first n are drawn. So a
    draw is a top-n of log ω_j plus Gumbel noise.
    """

    @classmethod
    def of(cls, law: Integral) -> SingleBalls:
        return cls(*law.operands, law.most_draws)

    def mode(self) -> Tensor:
        return heaviest(self.log_weights.detach(), self.group_sizes, self.draws)

    def perturbed(self, num_samples: int) -> Tensor:
        """Log-weights with Gumbel noise; the draw is the n largest of them."""
        log_weights, sizes, _ = self.operands
        shape = num_samples, *log_weights.shape
        times = torch.empty(shape, dtype=sizes.dtype, device=sizes.device).exponential_().log()
        return torch.where(sizes > 0, log_weights - times, -torch.inf)

    def sample(self, num_samples: int, dtype: torch.dtype) -> Tensor:
        with torch.no_grad():
            return self.first(self.perturbed(num_samples), dtype)

    def rsample(self, num_samples: int) -> Tensor:
        counts = self.sample(num_samples, self.log_weights.dtype)
        return moments.given_draws(*self.within_reach(), counts)

    def first(self, perturbed: Tensor, dtype: torch.dtype) -> Tensor:
        """The draw that belongs to perturbed log-weights."""
        most = perturbed.shape[-1]
        if can_read(self.draws) and self.draws.numel():
            most = int(self.draws.nan_to_num().amax())
        elif self.most_draws is not None:
            most = self.most_draws
        order = perturbed.topk(most).indices
        counts = first_of(order, self.draws, perturbed.shape[-1], dtype)
        return torch.where(self.draws.isnan().unsqueeze(-1), torch.nan, counts)
