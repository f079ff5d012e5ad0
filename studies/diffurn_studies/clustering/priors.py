r"""Priors over the cluster assignments c = (c_1, …, c_n) of a batch; the clustering models differ
in nothing else.

`Uniform` and `Categorical` (learned π) treat the samples of a batch as independent.
`Hypergeometric` takes them from an urn with m balls of each cluster and odds π: the *counts* x_k =
#{i : c_i = k} follow Fisher's law, with normaliser Z,

.. math:: \log P(x) = \sum_k \Big[\log \binom{m}{x_k} + x_k \log π_k\Big] - \log Z(π).

Two laws can take the place of p(c|π) in the evidence bound:

- ``law="counts"``, the paper's: P(x) itself, its Definition 3.1. The gamma function continues it to
  real counts, with slope :math:`\log π_k + ψ(m - x_k + 1) - ψ(x_k + 1)` and curvature :math:`-ψ'(m
  - x_k + 1) - ψ'(x_k + 1)`. P sums to one over the counts. It is *not normalised over assignments*:
  many assignments have the same counts, and each of them gets all of P(x).
- ``law="assignments"``: given the counts every order is equally likely, and :math:`n! / \prod_k
  x_k!` orders have the same counts, so

  .. math:: \log p(c|π) = \log P(x) - \log n! + \sum_k \log x_k!
            = \sum_k \Big[\log \frac{m!}{(m - x_k)!} + x_k \log π_k\Big] - \log Z(π) - \log n!,

  which sums to one over the assignments. Its slope is :math:`\log π_k + ψ(m - x_k + 1)`, its
  curvature :math:`-ψ'(m - x_k + 1)`.

The slopes differ most once π has settled, that is where the mean of the urn is the mean of the
batches. There π_k is nearly proportional to x_k / (m - x_k). So the slope of the assignment law is
log x_k and a constant, as for the categorical prior. The slope of the count law is the same for all
clusters, up to terms of order 1/x_k: a large cluster gains nothing from being large, and one that
is larger than usual is held back.

As m → ∞ the count law becomes the multinomial one, :math:`\log n! - \sum_k \log x_k! + \sum_k x_k
\log π_k`, and the assignment law becomes the categorical prior, :math:`\sum_k x_k \log π_k`.

Bayes' rule for q(c_i|x_i) needs the probability of a cluster. The paper takes π. But π are odds,
and with few balls they must be extreme to allow moderately different counts. The best factorised q
has :math:`q_{ik} ∝ N(z_i; μ_k, σ_k^2) \exp(∂ \log p / ∂x_k)`. For the assignment law that factor is
:math:`π_k (m - x_k + ½)` up to terms of order 1/m², and at x = E x it is proportional to E x_k: the
urn's mean (``shares="mean"``). With the counts of the batch itself, x = Σ_i q_i, it is the best q
of that batch (``shares="batch"``). For the count law the factor at x = E x is nearly the same for
all clusters, so these two are for the assignment law only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from diffurn_studies.clustering.assignments import (
    AssignmentLaw,
    Counts,
    IndependentAssignments,
    LawOf,
    Shares,
    UrnAssignments,
)
from diffurn_studies.clustering.count_laws import (
    CountLaw,
    FisherCounts,
    MergedChainCounts,
    MultinomialCounts,
)
from diffurn_studies.clustering.fused import FusedFisherCounts, tilt_of

Conditionals = Literal["exact", "merged"]


@dataclass(frozen=True)
class Prior:
    """A prior over the assignments of a batch. ``str(prior)`` names it in records and tables.

    Attributes:
        kind: uniform, categorical or hypergeometric.
        learned: whether π is learned.
    """

    kind: ClassVar[str]
    learned: ClassVar[bool] = True

    def __str__(self) -> str:
        return self.kind

    def with_weights(
        self, log_weights: Tensor, samples: int, tilt: Tensor | None = None
    ) -> AssignmentLaw:
        """The law of the assignments of a batch.

        Args:
            log_weights: log π up to a constant, (S, K).
            samples: n, the samples of a batch.
            tilt: for a compiled step (`diffurn_studies.clustering.fused`), that of about these
                weights.
        """
        raise NotImplementedError

    def tilt(self, log_weights: Tensor, samples: int) -> Tensor:
        """For `with_weights`, (S,), float64; zero if the prior needs none."""
        return torch.zeros_like(log_weights[..., 0], dtype=torch.float64)


@dataclass(frozen=True)
class Categorical(Prior):
    """Independent samples with learned π."""

    kind: ClassVar[str] = "categorical"

    def with_weights(
        self, log_weights: Tensor, samples: int, tilt: Tensor | None = None
    ) -> AssignmentLaw:
        return IndependentAssignments(torch.log_softmax(log_weights, -1), samples)


@dataclass(frozen=True)
class Uniform(Prior):
    """Independent samples with π_k = 1/K."""

    kind: ClassVar[str] = "uniform"
    learned: ClassVar[bool] = False

    def with_weights(
        self, log_weights: Tensor, samples: int, tilt: Tensor | None = None
    ) -> AssignmentLaw:
        log_pi = torch.full_like(log_weights, -math.log(log_weights.shape[-1]))
        return IndependentAssignments(log_pi, samples)


@dataclass(frozen=True)
class Hypergeometric(Prior):
    """The n samples of a batch share an urn with m balls of each cluster and learned odds π.

    Args:
        balls: m / n; None is the limit m → ∞. Below 1 a cluster cannot hold a whole batch; a batch
            with more samples of a cluster is very expensive (`count_laws.count_log_prob`).
        shares: the probability of a cluster in Bayes' rule for q(c|x). "pi" is the paper's. "mean"
            is the urn's mean divided by n, without a gradient. "batch" is the share of the balls
            that the batch leaves in the urn, or the mean where there is no batch. "mean" and
            "batch" follow from the law of assignments and need it.
        counts: "hard" straight-through Gumbel-Softmax draws, as in the paper; "soft" draws; or
            "expected", the expectation over q itself to second order in the counts.
        conditionals: "exact" for Fisher's law of the counts, "merged" for the paper's chain of
            merged groups.
        law: "counts" for the probability of the counts in the place of p(c|π), as in the paper,
            which is not normalised over assignments; "assignments" for that probability divided by
            the number of assignments with these counts, which is.

    Example:
        >>> prior = Hypergeometric(balls=2.0)
        >>> print(prior)
        hypergeometric-2n
        >>> law = prior.with_weights(torch.tensor([[0.0, 0.5, 1.0]]), samples=12)
        >>> law.mean
        tensor([[2.4537, 3.8123, 5.7340]])
    """

    kind: ClassVar[str] = "hypergeometric"

    balls: float | None = 1.0
    shares: Shares = "pi"
    counts: Counts = "hard"
    conditionals: Conditionals = "exact"
    law: LawOf = "counts"

    def __post_init__(self) -> None:
        if self.balls is not None and not 0 < self.balls < math.inf:
            raise ValueError(
                f"balls is {self.balls}, but must be a number of balls of each cluster per sample, "
                "above 0 and finite; None is the limit of many balls"
            )
        if self.balls is not None and self.balls < 1 and self.conditionals == "merged":
            raise ValueError(
                "the merged chain needs a ball of each cluster for every sample: balls of 1 or more"
            )
        if self.counts == "expected" and self.conditionals == "merged":
            raise ValueError(
                "expected counts are for the exact law: the merged chain takes drawn ones, hard or "
                "soft"
            )
        if self.shares != "pi" and self.law == "counts":
            raise ValueError(
                f"the shares {self.shares!r} follow from the law of assignments: choose that law, "
                "or the shares 'pi'"
            )

    def __str__(self) -> str:
        """The fields that differ from the defaults, behind the kind. The paper does not state m."""
        parts = [self.kind]
        if self.balls != 1:
            parts.append("inf" if self.balls is None else f"{self.balls:g}n")
        usual = Hypergeometric
        for own, default in (
            (self.shares, usual.shares),
            (self.counts, usual.counts),
            (self.conditionals, usual.conditionals),
            (self.law, usual.law),
        ):
            parts += [own] * (own != default)
        return "-".join(parts)

    def group_size(self, samples: int) -> float | None:
        """m, a whole number; None is m → ∞."""
        return None if self.balls is None else float(round(self.balls * samples))

    def with_weights(
        self, log_weights: Tensor, samples: int, tilt: Tensor | None = None
    ) -> AssignmentLaw:
        log_pi, size = torch.log_softmax(log_weights.double(), -1), self.group_size(samples)
        return UrnAssignments(
            self._count_law(log_pi, size, samples, tilt),
            log_pi,
            samples,
            size,
            self.shares,
            self.counts,
            self.law,
            log_weights.dtype,
        )

    def _count_law(
        self, log_pi: Tensor, size: float | None, samples: int, tilt: Tensor | None
    ) -> CountLaw:
        if size is None:
            return MultinomialCounts(log_pi, samples)
        if self.conditionals == "merged":
            return MergedChainCounts(log_pi, size, samples)
        if tilt is None:
            return FisherCounts(log_pi, size, samples)
        return FusedFisherCounts(log_pi, size, samples, tilt)

    def tilt(self, log_weights: Tensor, samples: int) -> Tensor:
        size = self.group_size(samples)
        if size is None or self.conditionals == "merged":
            return super().tilt(log_weights, samples)
        return tilt_of(torch.log_softmax(log_weights.detach().double(), -1), size, samples)
