"""Fisher's law of urns whose groups have one ball each: conditional Poisson sampling of subsets."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from diffurn._fisher import moments
from diffurn._fisher.quadrature import Quadrature


@dataclass(frozen=True)
class SingleBalls(Quadrature):
    """Fisher's law of urns with m_j ≤ 1 for every group."""

    def entropy(self) -> Tensor:
        """In O(c): without binomial coefficients, log P(x) is linear in x, so means suffice."""
        log_odds, sizes, draws = self.tilted
        drawn = self.mean()
        surprise = drawn * softplus(-log_odds) + (sizes - drawn) * softplus(log_odds)
        return surprise.sum(-1) + moments.log_mass(log_odds, sizes, draws)

    def mode(self) -> Tensor:
        return heaviest(self.log_weights.detach(), self.group_sizes, self.draws)


def heaviest(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """The n heaviest single balls, as counts; of ties, earlier ones.

    They are the most probable outcome of Fisher's law and of Wallenius'.

    Example:
        >>> log_weights = torch.tensor([0.0, 2.0, 1.0, 1.0], dtype=torch.float64)
        >>> heaviest(log_weights, torch.ones_like(log_weights), torch.tensor(2.0))
        tensor([0., 1., 1., 0.], dtype=torch.float64)
    """
    weights = torch.where(group_sizes > 0, log_weights, -torch.inf)
    order = weights.argsort(dim=-1, descending=True, stable=True)
    return first_of(order, draws, order.shape[-1], group_sizes.dtype)


def first_of(order: Tensor, draws: Tensor, groups: int, dtype: torch.dtype) -> Tensor:
    """Counts of one for the first n groups of an order ``(..., r)`` with r ≥ n places."""
    places = torch.arange(order.shape[-1], device=order.device)
    taken = (places < draws.unsqueeze(-1)).to(dtype).expand(order.shape)
    counts = torch.zeros(*order.shape[:-1], groups, dtype=dtype, device=order.device)
    return counts.scatter(-1, order, taken)
