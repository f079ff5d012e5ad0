"""The straight-through estimator whose backward pass is exact on average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from diffurn._fisher.marginals import marginal_tail
from diffurn._fisher.straight_through import sample_straight_through
from diffurn._fisher.tabulated import SmallUrn, inverse, reordered, with_first
from diffurn._fisher.urn import AnyUrn


@dataclass(frozen=True)
class CovarianceST:
    r"""Hard, exact draws forward; multiplication by the exact covariance backward.

    For an exponential family :math:`∂\,E[x] / ∂ \log ω = \mathrm{Cov}[x]`, so sending the upstream
    gradient u back as Cov u is the gradient of f linearised at the draw: without bias or variance
    for linear f, O(c) per urn for any group sizes.

    Reference: the idea of SIMPLE (Ahmed, Zeng, Niepert, Van den Broeck, ICLR 2023), lifted from
    k-subsets to urns.

    Example:
        >>> from diffurn import FisherHypergeometric
        >>> log_weights = torch.zeros(3, requires_grad=True)
        >>> how = CovarianceST()
        >>> urn = FisherHypergeometric([5, 5, 5], 6, log_weights=log_weights, estimator=how)
        >>> urn.rsample()[0].backward()
        >>> torch.allclose(log_weights.grad, urn.covariance_matrix[0])
        True
    """

    takes_small_urns: ClassVar[bool] = True

    def rsample(self, urn: AnyUrn, number: int) -> Tensor:
        if isinstance(urn, SmallUrn):
            return urn.rsample(number)
        return sample_straight_through(*urn.as_tilted(), number)

    def rank_indicators(self, urn: AnyUrn, number: int, group: int) -> tuple[Tensor, Tensor]:
        """Hard indicators forward; backward the exact gradient of P(x_group ≥ i)."""
        if isinstance(urn, SmallUrn):
            order = with_first(group, urn.composition.groups)
            law, largest = urn.reordered(order).law(), urn.composition.largest(group)
            counts = reordered(_straight_through(law.sample(number), law.mean()), inverse(order))
            probability, ranks = (
                law.tail(largest),
                torch.arange(1, largest + 1, dtype=counts.dtype, device=counts.device),
            )
        else:
            tilted = urn.as_tilted()
            counts = self.rsample(tilted, number)
            ranks = torch.arange(
                1, tilted.largest(group) + 1, dtype=counts.dtype, device=counts.device
            )
            probability = marginal_tail(*tilted, group, ranks)
        hard = (ranks <= counts[..., group].detach().unsqueeze(-1)).to(counts.dtype)
        return counts, _straight_through(hard, probability)


def _straight_through(hard: Tensor, average: Tensor) -> Tensor:
    return hard + (average - average.detach())
