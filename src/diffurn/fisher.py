"""Fisher's multivariate noncentral hypergeometric distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions.kl import register_kl

from diffurn import _dispatch
from diffurn._fisher import fused
from diffurn._fisher.moments import kl_divergence
from diffurn._law import Law
from diffurn._urn import Urn, require_equal_sizes
from diffurn.estimators import Estimator


class FisherHypergeometric(Urn):
    r"""The counts of each group when n balls are taken at once and balls of group j have odds ω_j:

    .. math:: P(x) = \frac1Z \prod_{j=1}^c \binom{m_j}{x_j} ω_j^{x_j},
              \qquad 0 ≤ x_j ≤ m_j, \quad \sum_j x_j = n.

    Equivalently: independent Binomial(m_j, ·) counts with odds proportional to ω_j, conditioned on
    their sum. (Balls taken one after another, in competition, follow Wallenius' law instead.)
    Multiplying all weights by one factor changes nothing. For c = 2 this is SciPy's
    ``nchypergeom_fisher``, for equal weights ``multivariate_hypergeom``, for m ≡ 1 conditional
    Poisson sampling of n-subsets.

    Everything is exact up to float64 rounding, whatever the dtype of the weights, and costs the
    same for ten balls as for ten billion. Small urns with sizes given as plain numbers, or on the
    CPU, are computed from tables over their whole support, in a few operations without
    synchronisation. They can stand in a compiled training step, or (after a first run) in a
    captured CUDA graph.

    Densities and moments are differentiable to any order in the weights (at a weight of zero: once,
    from the right). `log_prob` is differentiable in its argument as well (by the gamma function).
    `rsample` sends gradients through draws as its `estimator` does.

    References: R. A. Fisher, *The logic of inductive inference* (1935); A. Fog, *Sampling methods
    for Wallenius' and Fisher's noncentral hypergeometric distributions* (2008); T. M. Sutter et
    al., *Learning Group Importance using the Differentiable Hypergeometric Distribution* (ICLR
    2023).

    Args:
        group_sizes: m, integers ≥ 0, shape ``(..., c)``.
        draws: n, integers from 0 to the number of balls with positive weight, shape ``(...)``.
        weights: ω ≥ 0, shape ``(..., c)``; a group of weight 0 is never drawn.
        log_weights: log ω instead, -inf allowed; exactly one of the two. All arguments broadcast.
        estimator: how `rsample` differentiates; `CovarianceST` by default. `has_rsample` is True
            only if one is given.
        validate_args: check arguments and values (the default, as in torch); checks are skipped
            under ``torch.compile``, under ``vmap`` and while a CUDA graph is captured.

    Example:
        >>> weights = torch.tensor([1.0, 2.0, 0.5])
        >>> urn = FisherHypergeometric(group_sizes=[3, 5, 4], draws=5, weights=weights)
        >>> urn.mean
        tensor([1.1726, 2.8982, 0.9292])
        >>> urn.log_prob(torch.tensor([1.0, 3.0, 1.0])).exp()
        tensor(0.2615)
    """

    def log_prob(self, value: Any) -> Tensor:
        r"""log P(x).

        Real x are allowed with ``validate_args=False``; the gamma function continues the binomial
        coefficients: :math:`∂/∂x_j = \log ω_j - ψ(x_j + 1) + ψ(m_j - x_j + 1)`. The value is -inf
        outside 0 ≤ x_j ≤ m_j and where Σx is not n.
        """
        x, checked = self._checked_counts(value)
        log_prob = _dispatch.fisher_for_values(self, x).log_prob(x)
        if not (checked and self._is_positive()):
            log_prob = log_prob.masked_fill(self._is_outside(x), -torch.inf)
        return self._or_nan(log_prob)

    @property
    def log_normalizer(self) -> Tensor:
        r"""log Z, with Z the coefficient of :math:`z^n` in :math:`\prod_j (1 + ω_j z)^{m_j}`.

        Its gradient in log ω is the mean.
        """
        return self._or_nan(_dispatch.fisher(self).log_normalizer())

    @property
    def mean(self) -> Tensor:
        """E[x], shape (..., c)."""
        mean = _dispatch.fisher_for_values(self).mean()
        return self._moment(mean, self._never_drawn, event_dims=1)

    @property
    def variance(self) -> Tensor:
        """Var[x_j] of each group, shape (..., c)."""
        variance = _dispatch.fisher_for_values(self).variance()
        return self._moment(variance, self._fixed, event_dims=1)

    @property
    def covariance_matrix(self) -> Tensor:
        """Cov[x], shape (..., c, c); rows sum to zero."""
        covariance = _dispatch.fisher_for_values(self).covariance()
        return self._moment(covariance, self._fixed_pairs, event_dims=2)

    def _moment(self, moment: Tensor, vanishes: Callable[[], Tensor], event_dims: int) -> Tensor:
        """A moment with exact zeros where weights are zero, and their derivatives if asked for."""
        if self._keeps_zeros():
            moment = torch.where(vanishes(), moment - moment.detach(), moment)
        return self._or_nan(moment, event_dims)

    @property
    def mode(self) -> Tensor:
        """The most probable counts; a tied ball goes to the earlier group."""
        return self._or_nan(_dispatch.fisher(self).mode(), event_dims=1)

    def entropy(self) -> Tensor:
        """-E[log P(x)] in nats, shape (...)."""
        return self._or_nan(_dispatch.fisher_for_values(self).entropy())

    def _law_for_marginals(self, x: Tensor) -> Law:
        return _dispatch.fisher(self)

    def _fused_draws(self, num_samples: int) -> Tensor | None:
        if not _dispatch.draws_are_fused(self, num_samples):
            return None
        arguments = self._given, self.group_sizes, self.draws, self._is_log
        return fused.draw(*arguments, num_samples, self._operands, self._has_single_balls())

    def _law_for_draws(self, num_samples: int) -> Law:
        return _dispatch.fisher_for_draws(self, num_samples)

    def _law_for_chains(self, num_samples: int) -> Law:
        return _dispatch.fisher_for_chains(self, num_samples)

    def _checked_estimator(self, estimator: Any) -> Estimator | None:
        checked = super()._checked_estimator(estimator)
        if checked is not None and checked.needs_perturbed_weights:
            raise NotImplementedError(
                f"{type(checked).__name__} draws the largest of perturbed weights, which follow "
                "Wallenius' law and not Fisher's; use CovarianceST or GumbelSoftmax, or "
                "WalleniusHypergeometric"
            )
        return checked


@register_kl(FisherHypergeometric, FisherHypergeometric)  # type: ignore[untyped-decorator]
def _kl_fisher_fisher(p: FisherHypergeometric, q: FisherHypergeometric) -> Tensor:
    """Exact; +inf where the draws differ or q never draws what p does."""
    require_equal_sizes(p, q)
    divergence = kl_divergence(_dispatch.fisher(p).tilted, _dispatch.fisher(q).tilted)
    may_be_drawn = ~p._never_drawn() & (p.group_sizes > 0) & (p.draws > 0).unsqueeze(-1)
    impossible = (may_be_drawn & q._never_drawn()).any(-1) | (p.draws != q.draws)
    return torch.where(impossible, torch.inf, divergence).to(p.dtype)
