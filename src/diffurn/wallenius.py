"""Wallenius' multivariate noncentral hypergeometric distribution."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions.kl import register_kl

from diffurn import _dispatch
from diffurn._law import Law, Race
from diffurn._urn import Urn, require_equal_sizes
from diffurn.estimators import Estimator
from diffurn.fisher import FisherHypergeometric

# Log-probabilities that are as close as this, relatively, are those of tied outcomes.
_TIED = 1e-13


class WalleniusHypergeometric(Urn):
    r"""The counts of each group when n balls are taken one by one, by their weights:

    .. math::
        P(x) = \prod_{j=1}^c \binom{m_j}{x_j} \int_0^1 \prod_{j=1}^c (1 - t^{ω_j / D})^{x_j}\, dt,
        \qquad D = \sum_j ω_j (m_j - x_j).

    **Wallenius or Fisher?** Wallenius' law is right where balls compete for a fixed number of
    places: each draw sees what those before it have left (prey taken by a predator until it is
    full, seats given out one by one). Fisher's law (`FisherHypergeometric`) is right where every
    ball is taken or not on its own, and the total is only known afterwards (survivors, infections,
    genes that are hit). The two agree for equal weights and for n = 1, are close for small n/N, and
    differ most where a heavy group runs out. Multiplying all weights by one factor changes neither.
    For c = 2 this is SciPy's ``nchypergeom_wallenius``.

    Everything is exact up to float64 rounding, by one integral over the time of a race of
    exponential clocks: probabilities directly, moments and marginals on top of Fisher's exact law.
    Small urns with sizes given as plain numbers, or on the CPU, are computed by dynamic programming
    instead, ball by ball, so that a draw with its gradient can stand in a compiled training step.
    Entropy, mode and KL divergence are sums over the support, so they need an urn of at most a
    million outcomes.

    Densities are differentiable twice in the weights, the mean as well; a weight of zero gets no
    gradient. The law is no exponential family: `rsample`, whose draws are hard and exact, sends
    gradients back by ∂mean/∂log ω, which is not the covariance.

    References: K. T. Wallenius, *Biased sampling: the noncentral hypergeometric probability
    distribution* (1963); J. Chesson, *A non-central multivariate hypergeometric distribution
    arising from biased sampling* (1976); A. Fog, *Calculation methods for Wallenius' noncentral
    hypergeometric distribution* (2008).

    Args:
        group_sizes: m, integers ≥ 0, shape ``(..., c)``.
        draws: n, integers from 0 to the number of balls with positive weight, shape ``(...)``.
        weights: ω ≥ 0, shape ``(..., c)``; a group of weight 0 is never drawn.
        log_weights: log ω instead, -inf allowed; exactly one of the two. All arguments broadcast.
        estimator: how `rsample` differentiates; `CovarianceST` by default. `GumbelSoftmax` needs
            conditional laws, which Wallenius' law does not have in closed form.
        validate_args: check arguments and values (the default, as in torch); checks are skipped
            under ``torch.compile`` and ``vmap``.

    Example:
        >>> weights = torch.tensor([1.0, 2.0, 0.5])
        >>> urn = WalleniusHypergeometric(group_sizes=[10, 7, 8], draws=9, weights=weights)
        >>> urn.log_prob(torch.tensor([4.0, 3.0, 2.0])).exp()
        tensor(0.0890)
        >>> urn.mean
        tensor([3.4572, 4.0292, 1.5136])
    """

    _has_slopes_at_zero = False

    def _checked_estimator(self, estimator: Any) -> Estimator | None:
        checked = super()._checked_estimator(estimator)
        if checked is not None and checked.needs_conditionals:
            raise NotImplementedError(
                f"{type(checked).__name__} needs the conditional laws of the groups, which "
                "Wallenius' law does not have in closed form; use CovarianceST"
            )
        return checked

    def log_prob(self, value: Any) -> Tensor:
        """log P(x), differentiable twice in the weights; -inf outside the support."""
        x, checked = self._checked_counts(value)
        rows = x.numel() // self.event_shape[0]
        law = _dispatch.wallenius_for_values(self, max(rows, self.batch_shape.numel()))
        if checked and self._is_positive():
            return self._or_nan(law.log_prob(x))
        possible = (x.sum(-1) == self.draws) & ((x >= 0) & (x <= self._drawable())).all(-1)
        counts = torch.where(possible.unsqueeze(-1), x, 0.0)
        return self._or_nan(torch.where(possible, law.log_prob(counts), -torch.inf))

    @property
    def mean(self) -> Tensor:
        """E[x], shape (..., c)."""
        return self._or_nan(_dispatch.wallenius_for_means(self).mean(), event_dims=1)

    @property
    def variance(self) -> Tensor:
        """Var[x_j] of each group, shape (..., c)."""
        # Rounding errors may be larger than the variances of an urn whose outcome is almost sure.
        return self.covariance_matrix.diagonal(dim1=-2, dim2=-1).clamp(min=0)

    @property
    def covariance_matrix(self) -> Tensor:
        """Cov[x], shape (..., c, c); rows sum to zero."""
        covariance = _dispatch.wallenius_for_moments(self).covariance()
        return self._or_nan(torch.where(self._fixed_pairs(), 0.0, covariance), event_dims=2)

    @property
    def mode(self) -> Tensor:
        """The most probable counts; of tied ones the last in lexicographic order."""
        if _dispatch.has_single_balls(self):
            return self._or_nan(_dispatch.wallenius_of_single_balls(self).mode(), event_dims=1)
        outcomes, log_prob = _enumerated(self, "the mode")
        # Tied outcomes may differ by rounding errors.
        largest = log_prob.amax(0)
        tied = log_prob >= largest - _TIED * largest.abs().clamp(min=1)
        likeliest = (len(outcomes) - 1 - tied.flip(0).int().argmax(0))[None, ..., None]
        outcomes = outcomes.expand(-1, *self.batch_shape, -1)
        mode = outcomes.gather(0, likeliest.expand(1, *outcomes.shape[1:])).squeeze(0)
        return self._or_nan(mode, event_dims=1)

    def entropy(self) -> Tensor:
        """-E[log P(x)] in nats, shape (...)."""
        _, log_prob = _enumerated(self, "the entropy")
        return self._or_nan(0 - _expected(log_prob, log_prob))  # never -0

    def _law_for_marginals(self, x: Tensor) -> Law:
        return _dispatch.wallenius_for_values(self, x.numel())

    def _law_for_draws(self, num_samples: int) -> Law:
        return _dispatch.wallenius_for_draws(self, num_samples)

    def _law_for_chains(self, num_samples: int) -> Law:
        return _dispatch.wallenius(self)  # which refuses, with a reason

    def _law_for_races(self) -> Race:
        if not _dispatch.has_single_balls(self):
            raise NotImplementedError(
                f"{type(self.estimator).__name__} needs groups of at most one ball each, but "
                "group_sizes hold more or are not known; use CovarianceST"
            )
        return _dispatch.wallenius_of_single_balls(self)


def _enumerated(urn: Urn, result: str) -> tuple[Tensor, Tensor]:
    """All outcomes ``(O, 1, …, c)`` and their log-probabilities ``(O, ...)``, in float64.

    The sum over them, the `result`, is named in the error for supports that are too large.
    """
    try:
        outcomes = urn.enumerate_support(expand=False).double()
    except (NotImplementedError, ValueError) as problem:
        raise NotImplementedError(
            f"{result} of Wallenius' law is computed over the whole support, but {problem}"
        ) from None
    return outcomes, urn._unchecked().log_prob(outcomes)


def _expected(values: Tensor, log_prob: Tensor) -> Tensor:
    """E[values] over outcomes, dimension 0; those of probability zero do not count."""
    possible = log_prob > -torch.inf
    probability = torch.where(possible, log_prob, 0.0).exp()
    return torch.where(possible, probability * torch.where(possible, values, 0.0), 0.0).sum(0)


def _kl_by_enumeration(p: Urn, q: Urn) -> Tensor:
    """Exact, over the whole support; +inf where the draws differ or q never draws what p does."""
    require_equal_sizes(p, q)
    dtype, batch = p.dtype, torch.broadcast_shapes(p.batch_shape, q.batch_shape)
    p, q = p.expand(batch), q.expand(batch)
    outcomes, log_p = _enumerated(p, "the KL divergence")
    log_q = q._unchecked().log_prob(outcomes)
    impossible = ((log_p > -torch.inf) & (log_q == -torch.inf)).any(0)
    difference = log_p - torch.where(log_q > -torch.inf, log_q, 0.0)
    divergence = torch.where(impossible, torch.inf, _expected(difference, log_p))
    return q._or_nan(p._or_nan(divergence)).to(dtype)


for _p, _q in (
    (WalleniusHypergeometric, WalleniusHypergeometric),
    (WalleniusHypergeometric, FisherHypergeometric),
    (FisherHypergeometric, WalleniusHypergeometric),
):
    register_kl(_p, _q)(_kl_by_enumeration)
