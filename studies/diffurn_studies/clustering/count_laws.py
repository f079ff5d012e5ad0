r"""Laws of the counts x_k = #{i : c_i = k} of a batch of n samples, continued to real counts.

- `FisherCounts`: the samples are drawn from an urn with m balls of each cluster and odds π,

  .. math:: \log P(x) = \sum_k \Big[\log \binom{m}{x_k} + x_k \log π_k\Big] - \log Z(π).

- `MergedChainCounts`: the paper's chain. Group by group, all later groups count as one group with
  their average weight.
- `MultinomialCounts`: the limit m → ∞ of both, independent samples with probabilities π.

The gamma function continues the binomial coefficients to real counts, so that relaxed draws have a
gradient. Shapes: ``log_pi`` and counts ``(S, K)`` for S models and K clusters, float64;
probabilities ``(S,)``.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from diffurn import FisherHypergeometric

# -ψ(1) and ψ'(1): slope and curvature of log 1/(m - x)! at x = m.
_EULER, _TRIGAMMA = 0.5772156649015329, math.pi**2 / 6


class CountLaw(Protocol):
    """A law of the counts."""

    @property
    def mean(self) -> Tensor:
        """The expected counts, without a gradient: (S, K)."""

    def log_prob(self, counts: Tensor) -> Tensor:
        """log P(x): (S, K) to (S,)."""

    def bend(self, counts: Tensor) -> Tensor:
        """-∂² log P / ∂x_k², (S, K). The other second derivatives are zero."""


class MultinomialCounts:
    """Counts of n independent samples with probabilities π."""

    def __init__(self, log_pi: Tensor, samples: int) -> None:
        self._log_pi, self._samples = log_pi, samples

    @property
    def mean(self) -> Tensor:
        return self._samples * self._log_pi.detach().exp()

    def log_prob(self, counts: Tensor) -> Tensor:
        return (counts * self._log_pi).sum(-1) + log_orders(counts, self._samples)

    def bend(self, counts: Tensor) -> Tensor:
        return torch.polygamma(1, counts + 1)


class FisherCounts:
    """Counts of n balls from an urn with m balls of each cluster and odds π.

    Args:
        log_pi: log π.
        size: m.
        samples: n.
    """

    def __init__(self, log_pi: Tensor, size: float, samples: int) -> None:
        clusters = log_pi.shape[-1]
        if size * clusters < samples:
            raise ValueError(
                f"an urn of {clusters} × {size:g} balls has none left for the last of {samples} "
                "samples"
            )
        self._log_pi, self._size, self._samples = log_pi, size, samples
        # Tensors on the device: a CUDA graph cannot copy numbers from the CPU.
        sizes = torch.full_like(log_pi, size, requires_grad=False)
        draws = torch.full_like(sizes[..., 0], samples)
        self._urn = FisherHypergeometric(sizes, draws, log_weights=log_pi, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self._urn.mean.detach()

    def log_prob(self, counts: Tensor) -> Tensor:
        """Not `FisherHypergeometric.log_prob`, which is -inf where a count exceeds m."""
        return count_log_prob(counts, self._log_pi, self._urn.log_normalizer, self._size)

    def bend(self, counts: Tensor) -> Tensor:
        left = (self._size - counts).clamp(min=0)
        return torch.polygamma(1, left + 1) + torch.polygamma(1, counts + 1)


class MergedChainCounts(FisherCounts):
    """Counts by the paper's chain of merged groups. The mean is that of Fisher's law."""

    def log_prob(self, counts: Tensor) -> Tensor:
        return merged_count_log_prob(counts, self._log_pi, self._size, self._samples)

    def bend(self, counts: Tensor) -> Tensor:
        raise NotImplementedError("the second derivatives of the merged chain are not diagonal")


def log_orders(counts: Tensor, samples: int) -> Tensor:
    """log n! / ∏ x_k!, the number of assignments with these counts: (S, K) to (S,)."""
    return math.lgamma(samples + 1) - torch.lgamma(counts + 1).sum(-1)


def count_log_prob(counts: Tensor, log_pi: Tensor, log_normalizer: Tensor, size: float) -> Tensor:
    """log P(x) by Fisher's law: (S, K) to (S,).

    A batch may have more samples of a cluster than the urn has balls, x_k > m. The probability of
    that is zero. To have a gradient, log 1/(m - x)! is continued beyond m by the parabola with the
    same value, slope and curvature.
    """
    excess = torch.where(counts > size, counts - size, 0.0)
    inside = (
        math.lgamma(size + 1)
        - torch.lgamma(counts + 1)
        - torch.lgamma(size - counts.clamp(max=size) + 1)
    )
    binomials = inside + excess * (-_EULER - 0.5 * _TRIGAMMA * excess)
    return (binomials + counts * log_pi).sum(-1) - log_normalizer


def merged_count_log_prob(counts: Tensor, log_pi: Tensor, size: float, samples: int) -> Tensor:
    """log P(x) by the paper's chain: (S, K) to (S,).

    The counts of earlier groups decide how many draws are left for later ones, and the gradient
    flows through these, too. With real counts the draws left are real, so this is not a product of
    `FisherHypergeometric` laws: each normaliser sums over the whole counts up to the draws left.
    """
    clusters = counts.shape[-1]
    later = torch.arange(clusters - 1, 0, -1, dtype=counts.dtype, device=counts.device)
    rest_size = size * later
    backwards = torch.logcumsumexp(log_pi.flip(-1), -1).flip(-1)
    log_odds = log_pi[..., :-1] - (backwards[..., 1:] - later.log())  # to the average later weight
    left = samples - (counts.cumsum(-1) - counts)[..., :-1]
    possible = torch.arange(samples + 1, dtype=counts.dtype, device=counts.device)
    inside = possible <= left.unsqueeze(-1) + 0.5
    columns = torch.where(inside, possible, 0.0)
    over_all = _log_weight(
        columns, left.unsqueeze(-1), size, rest_size.unsqueeze(-1), log_odds.unsqueeze(-1)
    )
    log_normalizer = torch.logsumexp(torch.where(inside, over_all, -torch.inf), -1)
    return (_log_weight(counts[..., :-1], left, size, rest_size, log_odds) - log_normalizer).sum(-1)


def _log_weight(
    x: Tensor, left: Tensor, size: float, rest_size: Tensor, log_odds: Tensor
) -> Tensor:
    """log C(m, x) + log C(M, n - x) + x log ω, without log m! + log M!."""
    rest = (left - x).clamp(min=0)
    factorials = (
        torch.lgamma(x + 1)
        + torch.lgamma(size - x + 1)
        + torch.lgamma(rest + 1)
        + torch.lgamma(rest_size - rest + 1)
    )
    return x * log_odds - factorials
