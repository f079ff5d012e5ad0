"""Laws of the assignments of a batch, with the weights π set, for a stack of models.

`diffurn_studies.clustering.priors` derives the formulas. Shapes: log-weights ``(S, K)``,
responsibilities ``(S, n, K)``, results ``(S,)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from diffurn_studies.clustering.count_laws import CountLaw, log_orders

Shares = Literal["pi", "mean", "batch"]
Counts = Literal["hard", "soft", "expected"]
LawOf = Literal["counts", "assignments"]

# Newton's steps of `log_shares_of_batch`.
_BATCH_STEPS = 6


class AssignmentLaw(Protocol):
    """A prior with its weights set, for the models of a stack that have this prior."""

    @property
    def mean(self) -> Tensor:
        """The expected number of samples of a batch in each cluster: (S, K)."""

    def log_shares(self, log_likelihoods: Tensor | None = None) -> Tensor:
        """log of the probability of each cluster, as Bayes' rule for q(c|x) takes it: (S, K).

        It may depend on the batch, given by log p(z_i | c_i = k), (S, n, K).
        """

    def expected_log_prob(self, log_q: Tensor, gumbel: Tensor, temperature: Tensor) -> Tensor:
        """E_q[log p(c|π)] of a batch, per sample: (S,). `gumbel` is noise of the shape of
        `log_q`.
        """


@dataclass(frozen=True, eq=False)
class IndependentAssignments:
    """The samples of a batch are independent, with probabilities π."""

    log_pi: Tensor
    samples: int

    @property
    def mean(self) -> Tensor:
        return self.samples * self.log_pi.exp()

    def log_shares(self, log_likelihoods: Tensor | None = None) -> Tensor:
        return self.log_pi

    def expected_log_prob(self, log_q: Tensor, gumbel: Tensor, temperature: Tensor) -> Tensor:
        return (log_q.exp().mean(-2) * self.log_pi).sum(-1)


@dataclass(frozen=True, eq=False)
class UrnAssignments:
    """The samples of a batch share an urn. Computes in float64.

    Args:
        count_law: of the counts.
        log_pi: log π, float64.
        samples: n.
        size: m; None is m → ∞.
        shares, counts, law: as of `Hypergeometric`.
        dtype: of the results.
    """

    count_law: CountLaw
    log_pi: Tensor
    samples: int
    size: float | None
    shares: Shares
    counts: Counts
    law: LawOf
    dtype: torch.dtype

    @property
    def mean(self) -> Tensor:
        return self.count_law.mean.to(self.dtype)

    def log_shares(self, log_likelihoods: Tensor | None = None) -> Tensor:
        if self.shares == "pi" or self.size is None:
            return self.log_pi.to(self.dtype)
        mean = self.count_law.mean
        if self.shares == "mean" or log_likelihoods is None:
            return (mean / self.samples).log().to(self.dtype)
        with torch.no_grad():
            return log_shares_of_batch(log_likelihoods, self.log_pi, mean, self.size).to(self.dtype)

    def expected_log_prob(self, log_q: Tensor, gumbel: Tensor, temperature: Tensor) -> Tensor:
        if self.counts == "expected":
            q = log_q.double().exp()
            total = self._log_prob(q.sum(-2)) + self._curvature(q)
        else:
            drawn = drawn_counts(log_q, gumbel, temperature, self.counts == "hard")
            total = self._log_prob(drawn.double())
        return (total / self.samples).to(self.dtype)

    def _log_prob(self, counts: Tensor) -> Tensor:
        log_prob = self.count_law.log_prob(counts)
        return log_prob if self.law == "counts" else log_prob - log_orders(counts, self.samples)

    def _curvature(self, q: Tensor) -> Tensor:
        """E log p(x) - log p(E x) to second order. Independent draws from q have a diagonal
        covariance, and only the diagonal of the Hessian matters.
        """
        counts = q.sum(-2)
        bend = self.count_law.bend(counts)
        if self.law == "assignments":
            bend = bend - torch.polygamma(1, counts + 1)
        return -0.5 * (bend * (q * (1 - q)).sum(-2)).sum(-1)


def drawn_counts(log_q: Tensor, gumbel: Tensor, temperature: Tensor, hard: bool) -> Tensor:
    """x_k = Σ_i c_ik of Gumbel-Softmax draws c_i ~ q(c_i|x_i), (S, n, K) to (S, K); hard draws are
    straight-through.
    """
    perturbed = log_q + gumbel
    soft = torch.softmax(perturbed / temperature, -1)
    if not hard:
        return soft.sum(-2)
    one_hot = torch.zeros_like(soft).scatter(-1, perturbed.argmax(-1, keepdim=True), 1.0)
    return (one_hot + (soft - soft.detach())).sum(-2)


def log_shares_of_batch(
    log_likelihoods: Tensor, log_pi: Tensor, mean: Tensor, size: float
) -> Tensor:
    """log π_k (m - x_k + ½), normalised, at the counts x_k = Σ_i q_ik that follow from it: (S, n,
    K) to (S, K).

    The equation is that of `diffurn_studies.clustering.mixtures.urn_log_weights`. Here Newton's
    steps treat each cluster by itself, without matrices, and start from the mean of the urn.
    """
    log_likelihoods = log_likelihoods.double() + log_pi.unsqueeze(-2)
    log_room = torch.log(size - mean + 0.5)
    for _ in range(_BATCH_STEPS):
        q, room = torch.softmax(log_likelihoods + log_room.unsqueeze(-2), -1), log_room.exp()
        step = (q.sum(-2) + room - (size + 0.5)) / ((q * (1 - q)).sum(-2) + room)
        log_room = log_room - step.clamp(-2, 2)
    return torch.log_softmax(log_pi + log_room, -1)
