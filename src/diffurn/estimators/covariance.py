"""The straight-through estimator whose backward pass is exact on average."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from diffurn.exact import TiltedUrn, marginal_tail, mean, sample


@dataclass(frozen=True)
class CovarianceST:
    r"""Hard, exact draws forward; multiplication by the exact covariance backward.

    For an exponential family :math:`∂\,E[x] / ∂ \log ω = \mathrm{Cov}[x]`, so sending the upstream gradient u back as Cov u is the
    gradient of f linearised at the draw: without bias or variance for linear f, O(c) per urn for any group sizes.

    Reference: the idea of SIMPLE (Ahmed, Zeng, Niepert, Van den Broeck, ICLR 2023), lifted from k-subsets to urns.

    Example:
        >>> from diffurn import FisherHypergeometric
        >>> log_weights = torch.zeros(3, requires_grad=True)
        >>> urn = FisherHypergeometric([5, 5, 5], 6, log_weights=log_weights, estimator=CovarianceST())
        >>> urn.rsample()[0].backward()
        >>> torch.allclose(log_weights.grad, urn.covariance_matrix[0])
        True
    """

    def rsample(self, urn: TiltedUrn, number: int) -> Tensor:
        average = mean(*urn)
        return sample(*urn, number, average.dtype) + (average - average.detach())

    def rank_indicators(self, urn: TiltedUrn, number: int, group: int) -> tuple[Tensor, Tensor]:
        """Hard indicators forward; backward the exact gradient of P(x_group ≥ i)."""
        counts = self.rsample(urn, number)
        largest = int(urn.group_sizes[..., group].max())
        ranks = torch.arange(1, largest + 1, dtype=counts.dtype, device=counts.device)
        hard = (ranks <= counts[..., group].detach().unsqueeze(-1)).to(counts.dtype)
        probability = marginal_tail(*urn, group, ranks)
        return counts, hard + (probability - probability.detach())
