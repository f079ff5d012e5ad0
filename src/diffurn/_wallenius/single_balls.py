"""Wallenius' law of urns whose groups have one ball each: draws by running the race itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

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

    def sample(self, num_samples: int, dtype: torch.dtype) -> Tensor:
        log_weights, sizes, draws = self.operands
        shape = num_samples, *log_weights.shape
        times = torch.empty(shape, dtype=sizes.dtype, device=sizes.device).exponential_().log_()
        times = torch.where(sizes > 0, times - log_weights.detach(), torch.inf)
        most = int(draws.nan_to_num().amax()) if draws.numel() else 0
        first = times.topk(most, largest=False).indices
        places = torch.arange(most, device=draws.device)
        taken = (places < draws.unsqueeze(-1)).to(dtype).expand(first.shape)
        counts = torch.zeros(shape, dtype=dtype, device=draws.device).scatter(-1, first, taken)
        return torch.where(draws.isnan().unsqueeze(-1), torch.nan, counts)
