r"""Closed forms for equal weights, the central hypergeometric law.

With M = Σ_j m_j balls in all,

.. math:: E[x_j] = n \frac{m_j}{M}, \qquad
          \mathrm{Cov}[x_i, x_j] =
          n \frac{M - n}{M - 1} \frac{m_i}{M} \Big(δ_{ij} - \frac{m_j}{M}\Big),

and P(x) = Π_j Bin(x_j; m_j, p) / Bin(n; M, p) for any p.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from diffurn._fisher.quadrature import FisherLaw, Quadrature
from diffurn._kernels.dispatch import primitive
from diffurn._numerics.binomial import binomial_log_pmf, typical_log_odds


@primitive
def log_prob_value(counts: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """log P(x) of counts that sum to n, without a derivative."""
    balls = group_sizes.sum(-1)
    log_odds = typical_log_odds(draws, balls)
    of_groups = binomial_log_pmf(counts, group_sizes, log_odds.unsqueeze(-1)).sum(-1)
    log_prob: Tensor = of_groups - binomial_log_pmf(draws, balls, log_odds)
    return log_prob


@dataclass(frozen=True)
class EqualWeights(FisherLaw):
    """Fisher's law of urns whose balls all have the same weight.

    Args:
        group_sizes: m, ``(..., c)``, float64; or one row that all urns share.
        draws: n, ``(...)``.

    Example:
        >>> double = torch.float64
        >>> sizes, draws = torch.tensor([2.0, 3.0], dtype=double), torch.tensor(2.0, dtype=double)
        >>> urn = EqualWeights(sizes, draws)
        >>> urn.mean(), urn.log_prob(torch.tensor([1.0, 1.0], dtype=torch.float64)).exp()
        (tensor([0.8000, 1.2000], dtype=torch.float64), tensor(0.6000, dtype=torch.float64))
    """

    group_sizes: Tensor
    draws: Tensor

    @property
    def general(self) -> Quadrature:
        sizes = self._sizes_of_each
        return Quadrature(torch.zeros_like(sizes), sizes, self.draws)

    @property
    def _sizes_of_each(self) -> Tensor:
        return self.group_sizes.expand(*self.draws.shape, -1)

    @cached_property
    def _balls(self) -> Tensor:
        return self.group_sizes.sum(-1)

    @cached_property
    def _shares(self) -> Tensor:
        return self.group_sizes / self._balls.clamp(min=1).unsqueeze(-1)

    @cached_property
    def _spread(self) -> Tensor:
        """n (M - n) / (M - 1)."""
        return self.draws * ((self._balls - self.draws) / (self._balls - 1).clamp(min=1))

    def log_prob(self, x: Tensor) -> Tensor:
        return log_prob_value(x, self._sizes_of_each, self.draws)

    def mean(self) -> Tensor:
        return self.draws.unsqueeze(-1) * self._shares

    def variance(self) -> Tensor:
        balls = self._balls.unsqueeze(-1)
        others = (balls - self.group_sizes) / balls.clamp(min=1)
        return self._spread.unsqueeze(-1) * (self._shares * others)

    def covariance(self) -> Tensor:
        between = -self._shares.unsqueeze(-1) * self._shares.unsqueeze(-2)
        off_diagonal = between - torch.diag_embed(between.diagonal(dim1=-2, dim2=-1))
        return self._spread[..., None, None] * off_diagonal + torch.diag_embed(self.variance())
