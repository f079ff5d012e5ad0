"""The straight-through estimator whose backward pass is exact on average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from diffurn._numerics.autograd import straight_through
from diffurn.estimators.estimator import Estimator

if TYPE_CHECKING:
    from diffurn._law import Law


@dataclass(frozen=True)
class CovarianceST(Estimator):
    r"""Hard, exact draws forward; the exact Jacobian of the mean backward.

    For Fisher's law, an exponential family, that is multiplication by the covariance:
    :math:`∂\,E[x] / ∂ \log ω = \mathrm{Cov}[x]`. Sending the upstream gradient u back as Cov u is
    the gradient of f linearised at the draw: without bias or variance for linear f, O(c) per urn
    for any group sizes.

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

    def rsample(self, law: Law, num_samples: int) -> Tensor:
        return law.rsample(num_samples)

    def rank_indicators(self, law: Law, num_samples: int, group: int) -> tuple[Tensor, Tensor]:
        """Hard indicators forward; backward the exact gradient of P(x_group ≥ i)."""
        counts, tail = law.rsample_with_tail(num_samples, group)
        ranks = torch.arange(1, tail.shape[-1] + 1, dtype=counts.dtype, device=counts.device)
        hard = (ranks <= counts[..., group].detach().unsqueeze(-1)).to(counts.dtype)
        return counts, straight_through(hard, tail)
