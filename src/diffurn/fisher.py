"""Fisher's multivariate noncentral hypergeometric distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from diffurn import _fisher as exact
from diffurn._fisher.tabulated import SmallUrn
from diffurn._numerics.tracing import asks_for_derivative, can_read, is_transforming
from diffurn._urn import Urn
from diffurn.estimators import CovarianceST, Estimator
from diffurn.estimators.estimator import takes_small_urns

# The weight that stands for zero, relative to the smallest other one, while derivatives are asked
# for.
_NEGLIGIBLE = math.exp(-300)


class FisherHypergeometric(Urn):
    r"""The counts of each group when n balls are taken at once from an urn in which a ball of group
    j has odds ω_j:

    .. math:: P(x) = \frac1Z \prod_{j=1}^c \binom{m_j}{x_j} ω_j^{x_j},
              \qquad 0 ≤ x_j ≤ m_j, \quad \sum_j x_j = n.

    Equivalently: independent Binomial(m_j, ·) counts with odds proportional to ω_j, conditioned on
    their sum. (Balls taken one after
    another, in competition, follow Wallenius' law instead.) Multiplying all weights by one factor
    changes nothing. For c = 2 this is SciPy's ``nchypergeom_fisher``, for equal weights
    ``multivariate_hypergeom``, for m ≡ 1 conditional Poisson sampling of n-subsets.

    Everything is exact up to float64 rounding, inside whatever the dtype of the weights, and costs
    the same for ten balls as for ten billion. Small urns with sizes given as plain numbers, or on
    the host, come from tables over their whole support: in a few operations that wait for nothing,
    so that they can stand in a compiled training step, or (after a first run) in a captured CUDA
    graph.

    Densities and moments are differentiable to any order in the weights (at a weight of zero: once,
    from the right); `log_prob` is
    differentiable in its argument as well (by the gamma function); `rsample` sends gradients
    through draws as its `estimator` does.

    References: R. A. Fisher, *The logic of inductive inference* (1935); A. Fog, *Sampling methods
    for Wallenius' and Fisher's noncentral
    hypergeometric distributions* (2008); T. M. Sutter et al., *Learning Group Importance using the
    Differentiable Hypergeometric Distribution* (ICLR 2023).

    Args:
        group_sizes: m, integers ≥ 0, shape ``(..., c)``.
        draws: n, integers from 0 to the number of balls with positive weight, shape ``(...)``.
        weights: ω ≥ 0, shape ``(..., c)``; a group of weight 0 is never drawn.
        log_weights: log ω instead, -inf allowed; exactly one of the two. All arguments broadcast.
        estimator: how `rsample` differentiates; `CovarianceST` by default.
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
        """The urn as the functions of `diffurn._fisher` and the estimators take it."""
        return self._with_log_tilt()[0]

    def _with_log_tilt(self) -> tuple[exact.TiltedUrn, Tensor]:
        group_sizes, draws = self.group_sizes.double(), self._draws_or_nan()
        parameter: Tensor = getattr(self, self._parameter).double()
        if self._keeps_weight_zero():
            log_weights = _without_zeros(parameter).log()
        else:
            never = self._never_drawn()
            log_weights, group_sizes = (
                self._as_log_weights(parameter).masked_fill(never, 0.0),
                group_sizes.masked_fill(never, 0.0),
            )
        log_tilt = exact.log_tilt(log_weights.detach(), group_sizes, draws)
        return exact.TiltedUrn(log_weights + log_tilt.unsqueeze(-1), group_sizes, draws), log_tilt

    def _keeps_weight_zero(self) -> bool:
        """Whether groups of weight zero stay in the urn, by `_without_zeros`, for the sake of their
        derivatives in ω.

        Otherwise they are emptied, which no other group can notice. Log-weights of -inf have no
        derivative.
        """
        if self._parameter == "log_weights" or not (
            asks_for_derivative(self.weights) or is_transforming()
        ):
            return False
        return not can_read(self.weights) or bool((self.weights == 0).any())

    def _small(self, number: int = 0) -> SmallUrn | None:
        """The urn for tables over its whole support, if its sizes were read on the CPU and if
        tables pay for so many draws.
        """
        composition = self._composition
        if composition is None or not composition.pays_for(
            self.batch_shape.numel(), number, self.draws.device
        ):
            return None
        parameter: Tensor = getattr(self, self._parameter).double()
        if self._keeps_weight_zero():
            parameter = _without_zeros(parameter)
        log_weights = self._as_log_weights(parameter)
        # tables are looked up by numbers; results of urns that are not valid become NaN afterwards
        if not self._is_checked():
            log_weights = torch.where(self._is_valid().unsqueeze(-1), log_weights, 0.0)
        return SmallUrn.build(composition, log_weights)

    def _central(self) -> exact.CentralUrn | None:
        """The urn for closed forms, if all its weights are known to be equal and no derivative in
        them is asked for.
        """
        parameter: Tensor = getattr(self, self._parameter)
        if not can_read(parameter) or asks_for_derivative(parameter):
            return None
        if (
            not bool((parameter == parameter[..., :1]).all())
            or not self._are_weights_positive_and_finite()
        ):
            return None
        return exact.CentralUrn(self.group_sizes.double(), self.draws.double())

    def log_prob(self, value: Any) -> Tensor:
        r"""log P(x), by the tilted form Σ_j log Bin(x_j; m_j, p_j) - log P(S = n), which subtracts
        nothing large.

        Real x are allowed with ``validate_args=False``, the binomial coefficients being continued
        by the gamma function: :math:`∂/∂x_j = \log ω_j - ψ(x_j + 1) + ψ(m_j - x_j + 1)`. The value
        is -inf outside 0 ≤ x_j ≤ m_j and where Σx is not n.
        """
        x = self._checked_value(value)
        surplus = self.draws - x.sum(
            -1
        )  # zero on the support; keeps the tilt out of the gradient in x
        impossible = (surplus.detach().abs() >= 0.5) | ((x > 0) & self._never_drawn()).any(-1)
        small = self._small()
        if small is not None:
            within = ((x >= 0) & (x <= self.group_sizes)).all(-1) | x.isnan().any(-1)
            return self._or_nan(
                torch.where(within & ~impossible, small.law().log_prob(x), -torch.inf)
            )
        central = self._central()
        if central is not None and not asks_for_derivative(x):
            return self._or_nan(torch.where(impossible, -torch.inf, central.log_prob(x)))
        (log_odds, group_sizes, draws), log_tilt = self._with_log_tilt()
        per_group = exact.binomial_log_pmf(x, group_sizes, log_odds)
        log_prob = (
            per_group.sum(-1) - exact.log_mass(log_odds, group_sizes, draws) + surplus * log_tilt
        )
        return self._or_nan(log_prob.masked_fill(impossible, -torch.inf))

    @property
    def log_normalizer(self) -> Tensor:
        r"""log Z, with Z the coefficient of :math:`z^n` in :math:`\prod_j (1 + ω_j z)^{m_j}`; its
        gradient in log ω is the mean.
        """
        (log_odds, group_sizes, draws), log_tilt = self._with_log_tilt()
        # Σ m log(1 + rω) - n log r cancels; balls drawn more often than not count by their weight
        # and by the odds against them instead.
        common = (log_odds > 0) & (group_sizes > 0)
        often = torch.where(common, group_sizes, 0.0)
        parameter: Tensor = getattr(self, self._parameter).double()
        log_weights = self._as_log_weights(torch.where(common, parameter, 1.0))
        weights = (often * log_weights).sum(-1) + (often.sum(-1) - draws) * log_tilt
        odds = (group_sizes * softplus(torch.where(common, -log_odds, log_odds), threshold=50)).sum(
            -1
        )
        return self._or_nan(weights + odds + exact.log_mass(log_odds, group_sizes, draws))

    @property
    def mean(self) -> Tensor:
        """E[x], shape (..., c)."""
        central = self._central()
        if central is not None:
            return self._or_nan(central.mean(), event_dims=1)
        small = self._small()
        mean = exact.mean(*self.tilted) if small is None else small.law().mean()
        return self._moment(mean, self._never_drawn, event_dims=1)

    @property
    def variance(self) -> Tensor:
        """Var[x_j] of each group, shape (..., c)."""
        central = self._central()
        if central is not None:
            return self._or_nan(central.variance(), event_dims=1)
        small = self._small() if self.event_shape[0] == 2 else None
        variance = exact.variance(*self.tilted) if small is None else small.law().variance()
        return self._moment(variance, self._fixed, event_dims=1)

    @property
    def covariance_matrix(self) -> Tensor:
        """Cov[x], shape (..., c, c); rows sum to zero."""
        central = self._central()
        if central is not None:
            return self._or_nan(central.covariance(), event_dims=2)
        return self._moment(exact.covariance(*self.tilted), self._fixed_pairs, event_dims=2)

    def _moment(self, moment: Tensor, vanishes: Callable[[], Tensor], event_dims: int) -> Tensor:
        """A moment with exact zeros where weights of zero make them; their derivatives stay, if
        they are asked for.
        """
        if self._keeps_weight_zero():
            moment = torch.where(vanishes(), moment - moment.detach(), moment)
        return self._or_nan(moment, event_dims)

    @property
    def mode(self) -> Tensor:
        """The most probable counts; a tied ball goes to the earlier group."""
        mode = exact.mode(
            self._detached_log_weights(), self.group_sizes.double(), self.draws.double()
        )
        return self._or_nan(mode, event_dims=1)

    def entropy(self) -> Tensor:
        """-E[log P(x)] in nats, shape (...)."""
        return self._or_nan(exact.entropy(*self.tilted))

    def marginal_log_prob(self, value: Any) -> Tensor:
        """log P(X_j = x_j), each group on its own: shape (..., c)."""
        x = self._checked_value(value, joint=False)
        lowest, highest = self._marginal_support()
        possible = (x >= lowest) & (x <= highest)
        return self._or_nan(
            torch.where(possible, exact.marginal_log_prob(*self.tilted, x), -torch.inf),
            event_dims=1,
        )

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
            return self._or_nan(counts.reshape(shape), event_dims=1)

    def _sample_from_tables(self, number: int) -> Tensor | None:
        """Where tables are kept, nothing is left to do but to look them up."""
        return exact.sample_from_tables(
            self._detached_log_weights(),
            self.group_sizes.double(),
            self._draws_or_nan(),
            number,
            self.dtype,
        )

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws that carry gradients, as the `estimator` defines them; with the default the same
        exact draws as `sample`.
        """
        shape, number = self._shape_of_draws(sample_shape)
        return self._or_nan(
            self.estimator.rsample(self._for_estimator(number), number).reshape(shape), event_dims=1
        )

    def _for_estimator(self, number: int) -> Any:
        """The urn in the form that the estimator takes, for so many draws."""
        small = self._small(number) if takes_small_urns(self.estimator) else None
        return self.tilted if small is None else small

    def rank_indicators(self, group: int, sample_shape: Any = ()) -> tuple[Tensor, Tensor]:
        """Draws as from `rsample`, and with them b_i = 1[i ≤ x_group] for i = 1, …, m_group, shape
        ``sample_shape + (..., m_group)``.

        For models that use a count as a threshold ("the first x"), where the count itself carries
        no gradient; what flows back through b is up to the `estimator`. In a batch of different
        group sizes the largest sets the length.
        """
        shape, number = self._shape_of_draws(sample_shape)
        counts, indicators = self.estimator.rank_indicators(
            self._for_estimator(number), number, group % self.event_shape[0]
        )
        return self._or_nan(counts.reshape(shape), event_dims=1), self._or_nan(
            indicators.reshape(*shape[:-1], indicators.shape[-1]), event_dims=1
        )


def _without_zeros(weights: Tensor) -> Tensor:
    """Weights of zero become too small to matter instead, e^-300 times the smallest other one, so
    that derivatives from the right survive.

    The smallest float64 is e^-708, so they matter where other weights are below e^-670, relative to
    which they would have to be smaller.
    """
    zero = weights == 0
    smallest = torch.where(zero, torch.inf, weights.detach()).amin(-1, keepdim=True)
    return weights + torch.where(zero, (_NEGLIGIBLE * smallest).clamp(1e-307, 1.0), 0.0)
