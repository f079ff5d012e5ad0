"""Fisher's multivariate noncentral hypergeometric distribution."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from diffurn import exact
from diffurn.estimators import CovarianceST, Estimator
from diffurn.estimators.estimator import takes_small_urns
from diffurn.exact.small import SmallUrn
from diffurn.exact.tracing import asks_for_derivative, can_check, can_read
from diffurn.urn import Urn


class FisherHypergeometric(Urn):
    r"""The counts of each group when n balls are taken at once from an urn in which a ball of group j has odds ω_j:

    .. math:: P(x) = \frac1Z \prod_{j=1}^c \binom{m_j}{x_j} ω_j^{x_j}, \qquad 0 ≤ x_j ≤ m_j, \quad \sum_j x_j = n.

    Equivalently: independent Binomial(m_j, ·) counts with odds proportional to ω_j, conditioned on their sum. (Balls taken one after
    another, in competition, follow Wallenius' law instead.) Multiplying all weights by one factor changes nothing. For c = 2 this is
    SciPy's ``nchypergeom_fisher``, for equal weights ``multivariate_hypergeom``, for m ≡ 1 conditional Poisson sampling of n-subsets.

    Everything is exact up to float64 rounding, inside whatever the dtype of the weights, and costs the same for ten balls as for ten
    billion. Small urns with sizes given as plain numbers, or on the host, come from tables over their whole support: in a few operations
    that wait for nothing, so that they can stand in a compiled training step, or (after a first run) in a captured CUDA graph.

    Densities and moments are differentiable to any order in the weights (at a weight of zero: once, from the right); `log_prob` is
    differentiable in its argument as well (by the gamma function); `rsample` sends gradients through draws as its `estimator` does.

    References: R. A. Fisher, *The logic of inductive inference* (1935); A. Fog, *Sampling methods for Wallenius' and Fisher's noncentral
    hypergeometric distributions* (2008); T. M. Sutter et al., *Learning Group Importance using the Differentiable Hypergeometric
    Distribution* (ICLR 2023).

    Args:
        group_sizes: m, integers ≥ 0, shape ``(..., c)``.
        draws: n, integers from 0 to the number of balls with positive weight, shape ``(...)``.
        weights: ω ≥ 0, shape ``(..., c)``; a group of weight 0 is never drawn.
        log_weights: log ω instead, -inf allowed; exactly one of the two. All arguments broadcast.
        estimator: how `rsample` differentiates; `CovarianceST` by default.
        validate_args: check arguments and values (the default, as in torch); checks are skipped under ``torch.compile``, under ``vmap``
            and while a CUDA graph is captured.

    Example:
        >>> urn = FisherHypergeometric(group_sizes=[3, 5, 4], draws=5, weights=torch.tensor([1.0, 2.0, 0.5]))
        >>> urn.mean
        tensor([1.1726, 2.8982, 0.9292])
        >>> urn.log_prob(torch.tensor([1.0, 3.0, 1.0])).exp()
        tensor(0.2615)
    """

    def __init__(
        self,
        group_sizes: Any,
        draws: Any,
        weights: Any = None,
        log_weights: Any = None,
        estimator: Estimator | None = None,
        validate_args: bool | None = None,
    ) -> None:
        super().__init__(group_sizes, draws, weights, log_weights, validate_args)
        self.estimator: Estimator = CovarianceST() if estimator is None else estimator

    def expand(self, batch_shape: Any, _instance: Any = None) -> FisherHypergeometric:
        new = super().expand(batch_shape, _instance)
        new.estimator = self.estimator
        return new

    @property
    def tilted(self) -> exact.TiltedUrn:
        """The urn as the functions of `diffurn.exact` and the estimators take it."""
        return self._with_log_tilt()[0]

    def _with_log_tilt(self) -> tuple[exact.TiltedUrn, Tensor]:
        group_sizes, draws = self.group_sizes.double(), self.draws.double()
        parameter: Tensor = getattr(self, self._parameter).double()
        log_tilt = exact.log_tilt(self._as_log_weights(parameter.detach()), group_sizes, draws)
        tilt = log_tilt.unsqueeze(-1)
        if self._parameter == "weights":
            # Weight zero becomes too small to matter instead of log 0, so that the one-sided derivative in ω comes out right.
            parameter = (parameter + torch.where(parameter == 0, torch.exp(exact.ZERO_WEIGHT_LOG_ODDS - tilt), 0.0)).log()
        log_odds = (parameter + tilt).masked_fill_(parameter == -torch.inf, exact.ZERO_WEIGHT_LOG_ODDS)
        return exact.TiltedUrn(log_odds, group_sizes, draws), log_tilt

    def _small(self, number: int = 0) -> SmallUrn | None:
        """The urn for tables over its whole support, if the host knows its sizes and if tables pay for so many draws."""
        if self._composition is None or not self._composition.pays_for(self.batch_shape.numel(), number, self.draws.device):
            return None
        # Tables would give an outcome where there is none; the general path says so. What was checked when built need not be again.
        if number and not self._validate_args and can_check() and not self._is_possible():
            return None
        parameter: Tensor = getattr(self, self._parameter).double()
        if self._parameter == "weights":
            # Weight zero becomes too small to matter, as in `_with_log_tilt`: relative to the smallest other weight.
            smallest = torch.where(parameter > 0, parameter, torch.inf).detach().amin(-1, keepdim=True)
            negligible = (math.exp(exact.ZERO_WEIGHT_LOG_ODDS) * smallest).clamp(1e-307, 1.0)
            parameter = (parameter + torch.where(parameter == 0, negligible, 0.0)).log()
        return SmallUrn.build(self._composition, parameter)

    def _central(self) -> exact.CentralUrn | None:
        """The urn for closed forms, if all its weights are known to be equal and no derivative in them is asked for."""
        parameter: Tensor = getattr(self, self._parameter)
        if not can_read(parameter) or asks_for_derivative(parameter):
            return None
        if not bool((parameter == parameter[..., :1]).all()) or not self._are_weights_positive_and_finite():
            return None
        return exact.CentralUrn(self.group_sizes.double(), self.draws.double())

    def log_prob(self, value: Any) -> Tensor:
        r"""log P(x), by the tilted form Σ_j log Bin(x_j; m_j, p_j) - log P(S = n), which subtracts nothing large.

        Real x are allowed with ``validate_args=False``, the binomial coefficients being continued by the gamma function:
        :math:`∂/∂x_j = \log ω_j - ψ(x_j + 1) + ψ(m_j - x_j + 1)`. The value is -inf outside 0 ≤ x_j ≤ m_j and where Σx is not n.
        """
        x = self._checked_value(value)
        surplus = self.draws - x.sum(-1)  # zero on the support; keeps the tilt out of the gradient in x
        impossible = (surplus.detach().abs() >= 0.5) | ((x > 0) & self._never_drawn()).any(-1)
        small = self._small()
        if small is not None:
            within = ((x >= 0) & (x <= self.group_sizes)).all(-1) | x.isnan().any(-1)
            return torch.where(within & ~impossible, small.law().log_prob(x), -torch.inf).to(self.dtype)
        central = self._central()
        if central is not None and not asks_for_derivative(x):
            return torch.where(impossible, -torch.inf, central.log_prob(x)).to(self.dtype)
        (log_odds, group_sizes, draws), log_tilt = self._with_log_tilt()
        per_group = exact.binomial_log_pmf(x, group_sizes, log_odds)
        log_prob = per_group.sum(-1) - exact.log_mass(log_odds, group_sizes, draws) + surplus * log_tilt
        return log_prob.masked_fill(impossible, -torch.inf).to(self.dtype)

    @property
    def log_normalizer(self) -> Tensor:
        r"""log Z, with Z the coefficient of :math:`z^n` in :math:`\prod_j (1 + ω_j z)^{m_j}`; its gradient in log ω is the mean."""
        (log_odds, group_sizes, draws), log_tilt = self._with_log_tilt()
        scale = (group_sizes * softplus(log_odds, threshold=50)).sum(-1) - draws * log_tilt
        return (scale + exact.log_mass(log_odds, group_sizes, draws)).to(self.dtype)

    @property
    def mean(self) -> Tensor:
        """E[x], shape (..., c)."""
        central = self._central()
        if central is not None:
            return central.mean().to(self.dtype)
        small = self._small()
        if small is None:
            return self._vanishing(exact.mean(*self.tilted), self._never_drawn())
        mean = small.law().mean()
        # a log-weight of -inf makes an exact zero by itself
        return self._vanishing(mean, self._never_drawn()) if self._parameter == "weights" else mean.to(self.dtype)

    @property
    def variance(self) -> Tensor:
        """Var[x_j] of each group, shape (..., c)."""
        central = self._central()
        if central is not None:
            return central.variance().to(self.dtype)
        small = self._small() if self.event_shape[0] == 2 else None
        variance = exact.variance(*self.tilted) if small is None else small.law().variance()
        return self._vanishing(variance, self._fixed())

    @property
    def covariance_matrix(self) -> Tensor:
        """Cov[x], shape (..., c, c); rows sum to zero."""
        central = self._central()
        if central is not None:
            return central.covariance().to(self.dtype)
        fixed = self._fixed()
        return self._vanishing(exact.covariance(*self.tilted), fixed.unsqueeze(-1) | fixed.unsqueeze(-2))

    @property
    def mode(self) -> Tensor:
        """The most probable counts; a tied ball goes to the earlier group."""
        return exact.mode(self._detached_log_weights(), self.group_sizes.double(), self.draws.double()).to(self.dtype)

    def entropy(self) -> Tensor:
        """-E[log P(x)] in nats, shape (...)."""
        return exact.entropy(*self.tilted).to(self.dtype)

    def marginal_log_prob(self, value: Any) -> Tensor:
        """log P(X_j = x_j), each group on its own: shape (..., c)."""
        x = self._checked_value(value, joint=False)
        lowest, highest = self._marginal_support()
        possible = (x >= lowest) & (x <= highest)
        return torch.where(possible, exact.marginal_log_prob(*self.tilted, x), -torch.inf).to(self.dtype)

    def _marginal_log_tails(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return exact.Marginal.of_each_group(*self.tilted).log_tails(x)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Exact draws, holding integers with 0 ≤ x ≤ m and Σx = n, in the dtype of the weights."""
        shape, number = self._shape_of_draws(sample_shape)
        with torch.no_grad():
            small = self._small(number)
            counts = self._sample_from_tables(number) if small is None else small.sample(number)
            if counts is None:
                counts = exact.sample_by_rejection(*self.tilted, number, self.dtype)
            return counts.reshape(shape).to(self.dtype)

    def _sample_from_tables(self, number: int) -> Tensor | None:
        """Where tables are kept, nothing is left to do but to look them up."""
        return exact.sample_from_tables(self._detached_log_weights(), self.group_sizes.double(), self.draws.double(), number, self.dtype)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws that carry gradients, as the `estimator` defines them; with the default the same exact draws as `sample`."""
        shape, number = self._shape_of_draws(sample_shape)
        return self.estimator.rsample(self._for_estimator(number), number).reshape(shape).to(self.dtype)

    def _for_estimator(self, number: int) -> Any:
        """The urn in the form that the estimator takes, for so many draws."""
        small = self._small(number) if takes_small_urns(self.estimator) else None
        return self.tilted if small is None else small

    def rank_indicators(self, group: int, sample_shape: Any = ()) -> tuple[Tensor, Tensor]:
        """Draws as from `rsample`, and with them b_i = 1[i ≤ x_group] for i = 1, …, m_group, shape ``sample_shape + (..., m_group)``.

        For models that use a count as a threshold ("the first x"), where the count itself carries no gradient; what flows back through b
        is up to the `estimator`. In a batch of different group sizes the largest sets the length.
        """
        shape, number = self._shape_of_draws(sample_shape)
        counts, indicators = self.estimator.rank_indicators(self._for_estimator(number), number, group % self.event_shape[0])
        return counts.reshape(shape).to(self.dtype), indicators.reshape(*shape[:-1], indicators.shape[-1]).to(self.dtype)
