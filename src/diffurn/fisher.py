"""Fisher's multivariate noncentral hypergeometric distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.nn.functional import softplus

from diffurn import constraints as urn_constraints
from diffurn import exact
from diffurn.estimators import CovarianceST, Estimator
from diffurn.validation import as_counts, as_float_tensor, as_integer_tensor, can_check, require, require_broadcast

ENUMERATION_LIMIT = 1_000_000


class _Derived:
    """A parameter made from the one that was given; never remembered, since optimisers change weights in place."""

    def __init__(self, derive: Callable[[Any], Tensor]) -> None:
        self.derive = derive

    def __get__(self, instance: Any, owner: type) -> Tensor:
        return cast(Tensor, self if instance is None else self.derive(instance))


class FisherHypergeometric(Distribution):
    r"""The counts of each group when n balls are taken at once from an urn in which a ball of group j has odds ω_j:

    .. math:: P(x) = \frac1Z \prod_{j=1}^c \binom{m_j}{x_j} ω_j^{x_j}, \qquad 0 ≤ x_j ≤ m_j, \quad \sum_j x_j = n.

    Equivalently: independent Binomial(m_j, ·) counts with odds proportional to ω_j, conditioned on their sum. (Balls taken one after
    another, in competition, follow Wallenius' law instead.) Multiplying all weights by one factor changes nothing. For c = 2 this is
    SciPy's ``nchypergeom_fisher``, for equal weights ``multivariate_hypergeom``, for m ≡ 1 conditional Poisson sampling of n-subsets.

    Everything is exact up to float64 rounding, inside whatever the dtype of the weights, and costs the same for ten balls as for ten
    billion. Densities and moments are differentiable to any order in the weights (at a weight of zero: once, from the right);
    `log_prob` is differentiable in its argument as well (by the gamma function); `rsample` sends gradients through draws as its
    `estimator` does.

    References: R. A. Fisher, *The logic of inductive inference* (1935); A. Fog, *Sampling methods for Wallenius' and Fisher's noncentral
    hypergeometric distributions* (2008); T. M. Sutter et al., *Learning Group Importance using the Differentiable Hypergeometric
    Distribution* (ICLR 2023).

    Args:
        group_sizes: m, integers ≥ 0, shape ``(..., c)``.
        draws: n, integers from 0 to the number of balls with positive weight, shape ``(...)``.
        weights: ω ≥ 0, shape ``(..., c)``; a group of weight 0 is never drawn.
        log_weights: log ω instead, -inf allowed; exactly one of the two. All arguments broadcast.
        estimator: how `rsample` differentiates; `CovarianceST` by default.
        validate_args: check arguments and values (the default, as in torch); checks are skipped under ``torch.compile`` and ``vmap``.

    Example:
        >>> urn = FisherHypergeometric(group_sizes=[3, 5, 4], draws=5, weights=torch.tensor([1.0, 2.0, 0.5]))
        >>> urn.mean
        tensor([1.1726, 2.8982, 0.9292])
        >>> urn.log_prob(torch.tensor([1.0, 3.0, 1.0])).exp()
        tensor(0.2615)
    """

    arg_constraints = {  # noqa: RUF012 (torch's own convention)
        "group_sizes": urn_constraints.group_sizes,
        "draws": urn_constraints.draws,
        "weights": urn_constraints.weights,
        "log_weights": urn_constraints.log_weights,
    }
    has_rsample = True
    has_enumerate_support = True

    group_sizes: Tensor
    draws: Tensor

    def __init__(
        self,
        group_sizes: Any,
        draws: Any,
        weights: Any = None,
        log_weights: Any = None,
        estimator: Estimator | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if (weights is None) == (log_weights is None):
            raise ValueError(f"give either weights or log_weights, got {'neither' if weights is None else 'both'}")
        self._parameter = "weights" if log_weights is None else "log_weights"
        parameter = as_float_tensor(self._parameter, weights if log_weights is None else log_weights)
        check = (Distribution._validate_args if validate_args is None else validate_args) and can_check()
        sizes = as_integer_tensor("group_sizes", group_sizes, parameter.device, check)
        number = as_integer_tensor("draws", draws, parameter.device, check)
        if 0 in (*sizes.shape[-1:], *parameter.shape[-1:]) or sizes.ndim == 0 or parameter.ndim == 0:
            shapes = f"group_sizes {tuple(sizes.shape)} and {self._parameter} {tuple(parameter.shape)}"
            raise ValueError(f"{shapes} both need a last dimension of groups, one or more")
        described = {"group_sizes": sizes.shape, self._parameter: parameter.shape, "draws": number.shape}
        full = require_broadcast(described, sizes.shape, parameter.shape, (*number.shape, 1))
        self.group_sizes, self.draws = sizes.expand(full), number.expand(full[:-1])
        # A leaf stays the leaf it is, so that an urn with learned weights can be copied.
        setattr(self, self._parameter, parameter if parameter.shape == full else parameter.expand(full))
        self.estimator: Estimator = CovarianceST() if estimator is None else estimator
        # Our own checks say more than torch's, so torch is told to skip its.
        super().__init__(full[:-1], full[-1:], validate_args=False)
        self._validate_args = Distribution._validate_args if validate_args is None else validate_args
        if check:
            self._check_arguments()

    def _check_arguments(self) -> None:
        parameter = getattr(self, self._parameter).detach()
        if self._parameter == "weights":
            require("weights", parameter, (parameter >= 0) & (parameter < torch.inf), "a weight must be a finite number ≥ 0")
        else:
            require("log_weights", parameter, parameter < torch.inf, "a log-weight must be a number below +inf (-inf is weight zero)")
        total = self.group_sizes.sum(-1)
        require("draws", self.draws, self.draws <= total, f"cannot exceed the number of balls, {_span(total)}")
        drawable = self._drawable().sum(-1)
        require("draws", self.draws, self.draws <= drawable, f"cannot exceed the number of balls with positive weight, {_span(drawable)}")

    @_Derived
    def log_weights(self) -> Tensor:
        return self.weights.log()

    @_Derived
    def weights(self) -> Tensor:
        return self.log_weights.exp()

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights, of draws and of every result."""
        parameter: Tensor = getattr(self, self._parameter)
        return parameter.dtype

    @property
    def support(self) -> constraints.Constraint:
        return urn_constraints.urn_counts(self.group_sizes, self.draws)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {tuple(getattr(self, name).shape)}" for name in ("group_sizes", "draws", self._parameter))
        return f"{type(self).__name__}({shapes})"

    @property
    def _log_tilt(self) -> Tensor:
        return exact.log_tilt(self._detached_log_weights(), self.group_sizes.double(), self.draws.double())

    def _detached_log_weights(self) -> Tensor:
        parameter: Tensor = getattr(self, self._parameter).detach().double()
        return parameter.log() if self._parameter == "weights" else parameter

    @property
    def tilted(self) -> exact.TiltedUrn:
        """The urn as the functions of `diffurn.exact` and the estimators take it."""
        return self._tilted_by(self._log_tilt)

    def _tilted_by(self, log_tilt: Tensor) -> exact.TiltedUrn:
        tilt = log_tilt.unsqueeze(-1)
        parameter: Tensor = getattr(self, self._parameter).double()
        if self._parameter == "weights":
            # Weight zero becomes too small to matter instead of log 0, so that the one-sided derivative in ω comes out right.
            parameter = (parameter + torch.where(parameter == 0, torch.exp(exact.ZERO_WEIGHT_LOG_ODDS - tilt), 0.0)).log()
        log_odds = torch.where(parameter == -torch.inf, exact.ZERO_WEIGHT_LOG_ODDS, parameter + tilt)
        return exact.TiltedUrn(log_odds, self.group_sizes.double(), self.draws.double())

    def _never_drawn(self) -> Tensor:
        return self._detached_log_weights() == -torch.inf

    def _drawable(self) -> Tensor:
        """Group sizes with the groups of weight zero emptied."""
        return torch.where(self._never_drawn(), 0, self.group_sizes)

    def _vanishing(self, moment: Tensor, where: Tensor) -> Tensor:
        """Exact zeros where weights of zero make them, with the gradient left in place."""
        return torch.where(where, moment - moment.detach(), moment).to(self.dtype)

    def _fixed(self) -> Tensor:
        """Counts that cannot vary: of groups of weight zero, and all if every other ball is drawn or one group alone can be."""
        drawable = self._drawable()
        certain = (self.draws == drawable.sum(-1)) | ((drawable > 0).sum(-1) <= 1)
        return self._never_drawn() | certain.unsqueeze(-1)

    def expand(self, batch_shape: Any, _instance: Any = None) -> FisherHypergeometric:
        new = self._get_checked_instance(FisherHypergeometric, _instance)
        batch_shape = torch.Size(batch_shape)
        full = batch_shape + self.event_shape
        new._parameter, new.estimator = self._parameter, self.estimator
        new.group_sizes, new.draws = self.group_sizes.expand(full), self.draws.expand(batch_shape)
        setattr(new, self._parameter, getattr(self, self._parameter).expand(full))
        super(FisherHypergeometric, new).__init__(batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return cast(FisherHypergeometric, new)

    def log_prob(self, value: Any) -> Tensor:
        r"""log P(x), by the tilted form Σ_j log Bin(x_j; m_j, p_j) - log P(S = n), which subtracts nothing large.

        Real x are allowed with ``validate_args=False``, the binomial coefficients being continued by the gamma function:
        :math:`∂/∂x_j = \log ω_j - ψ(x_j + 1) + ψ(m_j - x_j + 1)`. The value is -inf outside 0 ≤ x_j ≤ m_j and where Σx is not n.
        """
        x = self._checked_value(value)
        log_tilt = self._log_tilt
        log_odds, group_sizes, draws = self._tilted_by(log_tilt)
        surplus = draws - x.sum(-1)  # zero on the support; keeps the tilt out of the gradient in x
        per_group = exact.binomial_log_pmf(x, group_sizes, log_odds)
        log_prob = per_group.sum(-1) - exact.log_mass(log_odds, group_sizes, draws) + surplus * log_tilt
        impossible = (surplus.abs() >= 0.5) | ((x > 0) & self._never_drawn()).any(-1)
        return torch.where(impossible, -torch.inf, log_prob).to(self.dtype)

    @property
    def log_normalizer(self) -> Tensor:
        r"""log Z, with Z the coefficient of :math:`z^n` in :math:`\prod_j (1 + ω_j z)^{m_j}`; its gradient in log ω is the mean."""
        log_tilt = self._log_tilt
        log_odds, group_sizes, draws = self._tilted_by(log_tilt)
        scale = (group_sizes * softplus(log_odds, threshold=50)).sum(-1) - draws * log_tilt
        return (scale + exact.log_mass(log_odds, group_sizes, draws)).to(self.dtype)

    @property
    def mean(self) -> Tensor:
        return self._vanishing(exact.mean(*self.tilted), self._never_drawn())

    @property
    def variance(self) -> Tensor:
        return self._vanishing(exact.variance(*self.tilted), self._fixed())

    @property
    def covariance_matrix(self) -> Tensor:
        """Cov[x], shape (..., c, c); rows sum to zero."""
        fixed = self._fixed()
        return self._vanishing(exact.covariance(*self.tilted), fixed.unsqueeze(-1) | fixed.unsqueeze(-2))

    @property
    def mode(self) -> Tensor:
        """The most probable counts; a tied ball goes to the earlier group."""
        return exact.mode(self._detached_log_weights(), self.group_sizes.double(), self.draws.double()).to(self.dtype)

    def entropy(self) -> Tensor:
        return exact.entropy(*self.tilted).to(self.dtype)

    def marginal_log_prob(self, value: Any) -> Tensor:
        """log P(X_j = x_j), each group on its own: shape (..., c)."""
        x = self._checked_value(value, joint=False)
        drawable = self._drawable()
        others = drawable.sum(-1, keepdim=True) - drawable
        possible = (x <= drawable) & (self.draws.unsqueeze(-1) - x <= others)
        return torch.where(possible, exact.marginal_log_prob(*self.tilted, x), -torch.inf).to(self.dtype)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Exact draws, holding integers with 0 ≤ x ≤ m and Σx = n, in the dtype of the weights."""
        self._check_dtype_holds_draws()
        shape = self._extended_shape(torch.Size(sample_shape))
        with torch.no_grad():
            return exact.sample(*self.tilted, math.prod(sample_shape), self.dtype).reshape(shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws that carry gradients, as the `estimator` defines them; with the default the same exact draws as `sample`."""
        self._check_dtype_holds_draws()
        shape = self._extended_shape(torch.Size(sample_shape))
        return self.estimator.rsample(self.tilted, math.prod(sample_shape)).reshape(shape).to(self.dtype)

    def rank_indicators(self, group: int, sample_shape: Any = ()) -> tuple[Tensor, Tensor]:
        """Draws as from `rsample`, and with them b_i = 1[i ≤ x_group] for i = 1, …, m_group, shape ``sample_shape + (..., m_group)``.

        For models that use a count as a threshold ("the first x"), where the count itself carries no gradient; what flows back through b
        is up to the `estimator`. In a batch of different group sizes the largest sets the length.
        """
        self._check_dtype_holds_draws()
        shape = self._extended_shape(torch.Size(sample_shape))
        counts, indicators = self.estimator.rank_indicators(self.tilted, math.prod(sample_shape), group % self.event_shape[0])
        return counts.reshape(shape).to(self.dtype), indicators.reshape(*shape[:-1], -1).to(self.dtype)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All outcomes in lexicographic order, shape ``(outcomes, ..., c)``; urns of one batch must share m and n."""
        sizes, number = self.group_sizes.reshape(-1, *self.event_shape), self.draws.reshape(-1)
        if not (bool((sizes == sizes[:1]).all()) and bool((number == number[:1]).all())):
            raise NotImplementedError("enumerate_support needs the same group sizes and draws in the whole batch")
        outcomes = exact.enumerate_counts(sizes[0].tolist(), int(number[0]), ENUMERATION_LIMIT)
        if outcomes is None:
            raise ValueError(f"the support of m = {sizes[0].tolist()}, n = {int(number[0])} has more than {ENUMERATION_LIMIT:,} outcomes")
        outcomes = outcomes.to(self.dtype).to(self.draws.device)
        outcomes = outcomes.reshape(-1, *(1,) * len(self.batch_shape), *self.event_shape)
        return outcomes.expand(-1, *self.batch_shape, *self.event_shape) if expand else outcomes

    def _checked_value(self, value: Any, joint: bool = True) -> Tensor:
        """Counts in float64; those of one draw (`joint`) or of each group on its own."""
        value = as_counts("value", value, self.draws.device)
        if value.shape[-1:] != self.event_shape:
            raise ValueError(f"value has shape {tuple(value.shape)}, but its last dimension must be the {self.event_shape[0]} groups")
        batches = {"value": value.shape[:-1], "batch_shape": self.batch_shape}
        require_broadcast(batches, *batches.values())
        x: Tensor = value.double()
        if self._validate_args and can_check():
            whole = x.detach() == x.detach().floor()
            if joint:
                within = (x.detach() >= 0) & (x.detach() <= self.group_sizes)
                require("value", value, whole & within, "counts must be integers from 0 to the size of their group")
                total = x.detach().sum(-1)
                require("value.sum(-1)", total, total == self.draws, f"the counts must sum to the draws, {_span(self.draws)}")
            else:
                require("value", value, whole & (x.detach().abs() < torch.inf), "counts must be integers")
        return x

    def _check_dtype_holds_draws(self) -> None:
        if self._validate_args and can_check():
            largest = int(2 / torch.finfo(self.dtype).eps)
            require(
                "draws", self.draws, self.draws <= largest, f"{self.dtype} holds counts exactly only up to {largest}; use float64 weights"
            )


def _span(values: Tensor) -> str:
    """A limit across a batch, such as 7, or from 3 to 7."""
    if not values.numel():
        return "of which there are none"
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"from {low} to {high}"
