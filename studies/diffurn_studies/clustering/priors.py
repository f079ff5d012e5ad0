r"""Priors over the cluster assignments c = (c_1, …, c_n) of a batch: all in which the three
clustering methods differ.

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

All functions work on a stack of S models: log-weights ``(S, K)``, responsibilities ``(S, B, K)``,
results ``(S,)``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, get_args

import torch
from torch import Tensor
from torch.nn.functional import softplus

from diffurn._fisher.quadrature import Quadrature
from diffurn._fisher.tilt import log_tilt

Shares = Literal["pi", "mean", "batch"]
Counts = Literal["hard", "soft", "expected"]
Conditionals = Literal["exact", "merged"]
LawOf = Literal["counts", "assignments"]

# -ψ(1) and ψ'(1): slope and curvature of log 1/(m - x)! at x = m.
_EULER, _TRIGAMMA = 0.5772156649015329, math.pi**2 / 6
_BATCH_STEPS = 6


class Law(Protocol):
    """A prior with its weights set, for a stack of models."""

    def log_shares(self, log_likelihoods: Tensor | None = None) -> Tensor:
        """log of the probability that a sample belongs to each cluster, as Bayes' rule for q(c|x)
        takes it: (S, K).

        It may depend on the batch, if that is known by its log p(z_i | c_i = k), (S, n, K).
        """

    @property
    def mean(self) -> Tensor:
        """How many samples of a batch are expected in each cluster: (S, K)."""

    def expected_log_prob(self, log_q: Tensor, gumbel: Tensor, temperature: Tensor) -> Tensor:
        """E_q[log p(c|π)] of a batch, per sample: (S,). `gumbel` is noise of the shape of
        `log_q`.
        """


class Prior(Protocol):
    """One of the three, ready for any weights."""

    learned: ClassVar[bool]

    def tilt(self, log_weights: Tensor, samples: int) -> Tensor:
        """What helps `with_weights` and may be kept over some steps, since the law does not depend
        on it: (S,).
        """

    def with_weights(self, log_weights: Tensor, samples: int, tilt: Tensor) -> Law:
        """With log π up to a constant (S, K), for batches of so many samples."""


@dataclass(frozen=True, eq=False)
class Independent:
    """The law of samples that know nothing of each other."""

    log_pi: Tensor
    samples: int

    def log_shares(self, log_likelihoods: Tensor | None = None) -> Tensor:
        return self.log_pi

    @property
    def mean(self) -> Tensor:
        return self.samples * self.log_pi.exp()

    def expected_log_prob(self, log_q: Tensor, gumbel: Tensor, temperature: Tensor) -> Tensor:
        return (log_q.exp().mean(-2) * self.log_pi).sum(-1)


@dataclass(frozen=True)
class Categorical:
    """Independent samples with learned π."""

    learned: ClassVar[bool] = True

    def tilt(self, log_weights: Tensor, samples: int) -> Tensor:
        return torch.zeros_like(log_weights[..., 0])

    def with_weights(self, log_weights: Tensor, samples: int, tilt: Tensor) -> Law:
        return Independent(torch.log_softmax(log_weights, -1), samples)


@dataclass(frozen=True)
class Uniform(Categorical):
    """Independent samples, π_k = 1/K."""

    learned: ClassVar[bool] = False

    def with_weights(self, log_weights: Tensor, samples: int, tilt: Tensor) -> Law:
        return Independent(torch.full_like(log_weights, -math.log(log_weights.shape[-1])), samples)


@dataclass(frozen=True)
class Hypergeometric:
    """The samples of a batch of n share an urn with m balls of each cluster and learned odds π.

    Args:
        balls: m / n. At infinity the counts are those of independent samples with probabilities π;
            below 1 a cluster cannot hold a whole batch, and what it cannot hold is not impossible
            but very expensive, see `count_log_prob`.
        shares: what Bayes' rule for q(c|x) takes for the probability of a cluster: "pi", the
            paper's equation, or "mean", the urn's mean divided by n, which is the probability that
            a sample of the batch belongs to the cluster (without a gradient), or "batch", what is
            left in the urn when the batch has taken its balls; where no batch is at hand, the mean.
            The last two are derived from the law of assignments and need it.
        counts: of which assignments the prior is taken: "hard" straight-through Gumbel-Softmax
            draws, as in the paper, the same "soft", or "expected": no draws, but the expectation
            over q itself, to second order in the deviation of the counts.
        conditionals: "exact" for Fisher's law of the counts, "merged" for the paper's chain of
            merged groups.
        law: "counts" for the probability of the counts in the place of p(c|π), as in the paper,
            which is not normalised over assignments; "assignments" for that probability divided by
            the number of assignments with these counts, which is.
    """

    balls: float = 1.0
    shares: Shares = "pi"
    counts: Counts = "hard"
    conditionals: Conditionals = "exact"
    law: LawOf = "counts"

    learned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.balls > 0:
            raise ValueError(
                f"balls is {self.balls}, but must be a number of balls of each cluster per sample, "
                "above 0"
            )
        if self.balls < 1 and self.conditionals == "merged":
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

    def group_size(self, samples: int) -> float:
        """m, a whole number."""
        return self.balls if math.isinf(self.balls) else float(round(self.balls * samples))

    def tilt(self, log_weights: Tensor, samples: int) -> Tensor:
        """log r of `diffurn._fisher.log_tilt`: that of some steps ago gives the same law, as
        accurately as that of now.
        """
        size = self.group_size(samples)
        if math.isinf(size):
            return torch.zeros_like(log_weights[..., 0])
        log_pi = torch.log_softmax(log_weights.detach().double(), -1)
        return log_tilt(
            log_pi, torch.full_like(log_pi, size), torch.full_like(log_pi[..., 0], samples)
        ).to(log_weights.dtype)

    def with_weights(self, log_weights: Tensor, samples: int, tilt: Tensor) -> Law:
        return _Urn(self, log_weights, samples, tilt)


class _Urn:
    """The law of samples that share an urn; float64 inside."""

    def __init__(
        self, prior: Hypergeometric, log_weights: Tensor, samples: int, tilt: Tensor
    ) -> None:
        self._prior, self._samples, self._size = prior, samples, prior.group_size(samples)
        self._dtype = log_weights.dtype
        self._log_pi = torch.log_softmax(log_weights.double(), -1)
        if self._size * log_weights.shape[-1] < samples:
            raise ValueError(
                f"an urn of {log_weights.shape[-1]} × {self._size:g} balls has none left for the "
                f"last of {samples} samples"
            )
        if math.isinf(self._size):  # of falling factorials only powers of m are left, which cancel
            self._log_normalizer, self._mean = (
                torch.zeros_like(self._log_pi[..., 0]),
                samples * self._log_pi.exp(),
            )
        else:
            self._log_normalizer, self._mean = log_normalizer_and_mean(
                self._log_pi, self._size, samples, tilt.double()
            )

    @property
    def mean(self) -> Tensor:
        return self._mean.to(self._dtype)

    def log_shares(self, log_likelihoods: Tensor | None = None) -> Tensor:
        if self._prior.shares == "pi" or math.isinf(self._size):
            return self._log_pi.to(self._dtype)
        if self._prior.shares == "mean" or log_likelihoods is None:
            return (self._mean / self._samples).log().to(self._dtype)
        with torch.no_grad():
            return log_shares_of_batch(log_likelihoods, self._log_pi, self._mean, self._size).to(
                self._dtype
            )

    def expected_log_prob(self, log_q: Tensor, gumbel: Tensor, temperature: Tensor) -> Tensor:
        if self._prior.counts == "expected":
            q = log_q.double().exp()
            total = self._log_prob(q.sum(-2)) + self._curvature(q)
        else:
            total = self._log_prob(
                drawn_counts(log_q, gumbel, temperature, self._prior.counts == "hard").double()
            )
        return (total / self._samples).to(self._dtype)

    def _log_prob(self, counts: Tensor) -> Tensor:
        log_prob = self._count_log_prob(counts)
        return (
            log_prob
            if self._prior.law == "counts"
            else log_prob - log_orders(counts, self._samples)
        )

    def _count_log_prob(self, counts: Tensor) -> Tensor:
        if math.isinf(self._size):
            return (counts * self._log_pi).sum(-1) + log_orders(counts, self._samples)
        if self._prior.conditionals == "merged":
            return merged_count_log_prob(counts, self._log_pi, self._size, self._samples)
        return count_log_prob(counts, self._log_pi, self._log_normalizer, self._size)

    def _curvature(self, q: Tensor) -> Tensor:
        """E log p(x) - log p(E x) to second order: the Hessian in the counts is diagonal, as are
        the independent draws from q.
        """
        counts = q.sum(-2)
        bend = torch.zeros_like(counts)  # less the Hessian's diagonal
        if not math.isinf(self._size):
            bend = bend + torch.polygamma(1, (self._size - counts).clamp(min=0) + 1)
        if self._prior.law == "counts":
            bend = bend + torch.polygamma(1, counts + 1)
        return -0.5 * (bend * (q * (1 - q)).sum(-2)).sum(-1)


_WORDS = {
    "shares": get_args(Shares),
    "counts": get_args(Counts),
    "conditionals": get_args(Conditionals),
    "law": get_args(LawOf),
}


def prior_named(name: str) -> Prior:
    """The prior a name stands for: ``uniform``, ``categorical``, or ``hypergeometric`` with details
    behind dashes, in any order.

    Details are m as ``0.2n``, ``1n``, ``10n`` or ``inf``, how π enters q(c|x) (``pi``, ``mean``,
    ``batch``), the counts (``hard``, ``soft``, ``expected``), the conditionals (``exact``,
    ``merged``) and the law (``counts``, ``assignments``).

    Example:
        >>> prior_named("hypergeometric-10n-merged")
        Hypergeometric(balls=10.0, shares='pi', counts='hard', conditionals='merged', law='counts')
    """
    kind, *details = name.split("-")
    if kind in ("uniform", "categorical") and not details:
        return Uniform() if kind == "uniform" else Categorical()
    if kind != "hypergeometric":
        raise ValueError(
            f"there is no prior {name!r}: choose uniform, categorical or hypergeometric, the last "
            "with details as in -2n-mean"
        )
    given: dict[str, float | str] = {}
    for detail in details:
        field = next((field for field, words in _WORDS.items() if detail in words), "balls")
        if field in given:
            raise ValueError(
                f"the prior {name!r} has two words for one thing, the second of them {detail!r}"
            )
        given[field] = _balls(name, detail) if field == "balls" else detail
    return Hypergeometric(**given)  # type: ignore[arg-type]


def _balls(name: str, detail: str) -> float:
    if matched := re.fullmatch(r"(inf)|(\d+\.?\d*)n", detail):
        return float(matched[1] or matched[2])
    words = [word for choices in _WORDS.values() for word in choices]
    raise ValueError(
        f"the prior {name!r} has a detail {detail!r}: known are 0.2n, 1n, 2n, …, inf, "
        f"{', '.join(words)}"
    )


def log_shares_of_batch(
    log_likelihoods: Tensor, log_pi: Tensor, mean: Tensor, size: float
) -> Tensor:
    """log π_k (m - x_k + ½), normalised, where x_k = Σ_i q_ik are the counts that it leads to
    itself: (S, n, K) to (S, K).

    As `diffurn_studies.clustering.mixtures.urn_log_weights`, without matrices: Newton's steps for
    each cluster by itself, from the mean of the urn on.
    """
    log_likelihoods = log_likelihoods.double() + log_pi.unsqueeze(-2)
    log_room = torch.log(size - mean + 0.5)
    for _ in range(_BATCH_STEPS):
        q, room = torch.softmax(log_likelihoods + log_room.unsqueeze(-2), -1), log_room.exp()
        step = (q.sum(-2) + room - (size + 0.5)) / ((q * (1 - q)).sum(-2) + room)
        log_room = log_room - step.clamp(-2, 2)
    return torch.log_softmax(log_pi + log_room, -1)


def drawn_counts(log_q: Tensor, gumbel: Tensor, temperature: Tensor, hard: bool) -> Tensor:
    """x_k = Σ_i c_ik of Gumbel-Softmax draws c_i ~ q(c_i|x_i), (S, B, K) to (S, K); hard draws are
    straight-through.
    """
    perturbed = log_q + gumbel
    soft = torch.softmax(perturbed / temperature, -1)
    if not hard:
        return soft.sum(-2)
    one_hot = torch.zeros_like(soft).scatter(-1, perturbed.argmax(-1, keepdim=True), 1.0)
    return (one_hot + (soft - soft.detach())).sum(-2)


def log_normalizer_and_mean(
    log_pi: Tensor, size: float, samples: int, tilt: Tensor
) -> tuple[Tensor, Tensor]:
    """log Z of an urn with `size` balls of every group, and the mean of its counts; all float64.

    The gradient of log Z in log π is that mean, so nothing has to be traced through the quadrature;
    the mean itself has none.
    """
    with torch.no_grad():
        log_odds = log_pi + tilt.unsqueeze(-1)
        nodes = Quadrature.build(
            log_odds, torch.full_like(log_pi, size), torch.full_like(tilt, samples)
        )
        value = (
            size * softplus(log_odds, threshold=50).sum(-1) - samples * tilt + nodes.mass().log()
        )
        mean = nodes.mean()
    return value + ((log_pi - log_pi.detach()) * mean).sum(-1), mean


def log_orders(counts: Tensor, samples: int) -> Tensor:
    """log n! / ∏ x_k!, the number of assignments with these counts: (S, K) to (S,)."""
    return math.lgamma(samples + 1) - torch.lgamma(counts + 1).sum(-1)


def count_log_prob(counts: Tensor, log_pi: Tensor, log_normalizer: Tensor, size: float) -> Tensor:
    """log P(x) of real counts by Fisher's law: (S, K) to (S,).

    A batch may have more of a cluster than there are balls, x_k > m. Its probability is zero; for
    the sake of a gradient log 1/(m - x)! goes on as the parabola that it touches at m.
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
    """The same where the counts come from the paper's chain: group by group, all later groups as
    one with their average weight.

    Differentiable in the counts also through the draws that they leave for later groups.
    """
    clusters = counts.shape[-1]
    later = torch.arange(
        clusters - 1, 0, -1, dtype=counts.dtype, device=counts.device
    )  # groups behind each but the last
    rest_size = size * later
    backwards = torch.logcumsumexp(log_pi.flip(-1), -1).flip(-1)
    log_odds = log_pi[..., :-1] - (
        backwards[..., 1:] - later.log()
    )  # against the average of the later weights
    left = samples - (counts.cumsum(-1) - counts)[..., :-1]
    possible = torch.arange(samples + 1, dtype=counts.dtype, device=counts.device)
    inside = possible <= left.unsqueeze(-1) + 0.5  # with real counts the draws left are real, too
    columns = torch.where(inside, possible, 0.0)
    over_all = _log_weight(
        columns, left.unsqueeze(-1), size, rest_size.unsqueeze(-1), log_odds.unsqueeze(-1)
    )
    log_normalizer = torch.logsumexp(torch.where(inside, over_all, -torch.inf), -1)
    return (_log_weight(counts[..., :-1], left, size, rest_size, log_odds) - log_normalizer).sum(-1)


def _log_weight(
    x: Tensor, left: Tensor, size: float, rest_size: Tensor, log_odds: Tensor
) -> Tensor:
    """log C(m, x) + log C(M, n - x) + x log ω, less log m! + log M!."""
    rest = (left - x).clamp(min=0)
    factorials = (
        torch.lgamma(x + 1)
        + torch.lgamma(size - x + 1)
        + torch.lgamma(rest + 1)
        + torch.lgamma(rest_size - rest + 1)
    )
    return x * log_odds - factorials
