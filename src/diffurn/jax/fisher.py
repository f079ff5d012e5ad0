"""Fisher's multivariate noncentral hypergeometric distribution for NumPyro."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpyro.distributions import Distribution, constraints

from diffurn.jax import _checks, _moments
from diffurn.jax._sampling import draw
from diffurn.jax._tilt import tilted

# log of the weight that stands for zero, relative to the smallest other one, so that results have
# slopes there.
_NEGLIGIBLE = {"float64": -300.0, "float32": -40.0}


def _batched(function: Callable[..., Array], signature: str) -> Callable[..., Array]:
    mapped: Callable[..., Array] = jnp.vectorize(function, signature=signature)
    return mapped


_LOG_PROB = _batched(_moments.log_prob, "(c),(c),(),(c)->()")
_LOG_NORMALIZER = _batched(_moments.log_normalizer, "(c),(c),()->()")
_MEAN = _batched(_moments.mean, "(c),(c),()->(c)")
_VARIANCE = _batched(_moments.variance, "(c),(c),()->(c)")
_COVARIANCE = _batched(_moments.covariance, "(c),(c),()->(c,c)")
_WITH_SLOPE = _batched(_moments.with_slope_of_mean, "(c),(c),(),(c)->(c)")
_ENTROPY = _batched(_moments.entropy, "(c),(c),()->()")


class UrnCounts(constraints.Constraint):  # type: ignore[misc]
    """Integer vectors x with 0 ≤ x_j ≤ m_j and Σx = n.

    Example:
        >>> support = UrnCounts(jnp.array([2, 2]), jnp.array(3))
        >>> support(jnp.array([[1.0, 2.0], [3.0, 0.0], [1.5, 1.5]])).tolist()
        [True, False, False]
    """

    is_discrete = True
    event_dim = 1

    def __init__(self, group_sizes: Array, draws: Array) -> None:
        self.group_sizes = group_sizes
        self.draws = draws

    def __call__(self, x: Any) -> Array:
        x = jnp.asarray(x)
        within = (x >= 0) & (x <= self.group_sizes) & (x == jnp.floor(x))
        inside: Array = within.all(-1) & (x.sum(-1) == self.draws)
        return inside

    def feasible_like(self, prototype: Any) -> Array:
        """Counts in the support: groups are filled one after another."""
        sizes = jnp.asarray(self.group_sizes)
        before = jnp.cumsum(sizes, -1) - sizes
        filled = jnp.clip(jnp.asarray(self.draws)[..., None] - before, 0, sizes)
        return jnp.broadcast_to(filled, jnp.shape(prototype)).astype(jnp.result_type(prototype))

    def tree_flatten(self) -> tuple[tuple[Array, Array], tuple[tuple[str, str], dict[str, Any]]]:
        return (self.group_sizes, self.draws), (("group_sizes", "draws"), {})

    def __repr__(self) -> str:
        sizes, draws = (_shown(values) for values in (self.group_sizes, self.draws))
        return f"UrnCounts(group_sizes={sizes}, draws={draws})"


class FisherHypergeometric(Distribution):  # type: ignore[misc]
    r"""The counts of each group when n balls are taken at once and balls of group j have odds ω_j:

    .. math:: P(x) = \frac1Z \prod_{j=1}^c \binom{m_j}{x_j} ω_j^{x_j},
              \qquad 0 ≤ x_j ≤ m_j, \quad \sum_j x_j = n.

    It is `diffurn.FisherHypergeometric` for JAX and NumPyro: the same arguments, the same numbers,
    and the same accuracy where ``jax_enable_x64`` is on. Otherwise all is computed in float32.

    All methods work under `jit`, `vmap` and `grad`. Densities and moments are differentiable to any
    order in the weights, and `log_prob` also in its argument. The cost does not depend on the
    group sizes.

    Args:
        group_sizes: m, integers ≥ 0, shape ``(..., c)``.
        draws: n, integers from 0 to the number of balls with positive weight, shape ``(...)``.
        weights: ω ≥ 0, shape ``(..., c)``; a group of weight 0 is never drawn.
        log_weights: log ω instead, -inf allowed; exactly one of the two. All arguments broadcast.
        validate_args: check the values of arguments that are not traced, unless it is False; with
            True, check counts given to `log_prob` as well. Where a traced urn is not valid, results
            are NaN.

    Example:
        >>> urn = FisherHypergeometric([3, 5, 4], 5, weights=[1.0, 2.0, 0.5])
        >>> [round(float(mean), 4) for mean in urn.mean]
        [1.1726, 2.8982, 0.9292]
        >>> print(f"{jnp.exp(urn.log_prob(jnp.array([1.0, 3.0, 1.0]))):.4f}")
        0.2615
        >>> float(urn.sample(jax.random.key(0)).sum())
        5.0
    """

    arg_constraints = {  # noqa: RUF012 (NumPyro's own convention)
        "group_sizes": constraints.independent(constraints.nonnegative_integer, 1),
        "draws": constraints.nonnegative_integer,
        "weights": constraints.independent(constraints.nonnegative, 1),
        "log_weights": constraints.real_vector,
    }
    pytree_data_fields = ("group_sizes", "draws", "_given")
    pytree_aux_fields = ("_is_log",)

    def __init__(
        self,
        group_sizes: Any,
        draws: Any,
        weights: Any = None,
        log_weights: Any = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        if (weights is None) == (log_weights is None):
            given = "neither" if weights is None else "both"
            raise ValueError(f"give either weights or log_weights, got {given}")
        self._is_log = log_weights is not None
        name = "log_weights" if self._is_log else "weights"
        parameter = _checks.as_floats(name, log_weights if self._is_log else weights)
        check = validate_args is not False
        sizes = _checks.as_counts("group_sizes", group_sizes, check)
        number = _checks.as_counts("draws", draws, check)
        if not (sizes.ndim and parameter.ndim and sizes.shape[-1] and parameter.shape[-1]):
            shapes = f"group_sizes {sizes.shape} and {name} {parameter.shape}"
            raise ValueError(f"{shapes} both need a last dimension of groups, one or more")
        described = {"group_sizes": sizes.shape, name: parameter.shape, "draws": number.shape}
        full = _checks.common_shape(described, sizes.shape, parameter.shape, (*number.shape, 1))
        self._set(sizes, number, parameter, full)
        super().__init__(full[:-1], full[-1:], validate_args=False)
        self._validate_args = validate_args is True  # log_prob refuses counts
        if check:
            self._check_values(name)

    def _set(self, sizes: Any, draws: Any, given: Any, full: tuple[int, ...]) -> None:
        self.group_sizes = _checks.broadcast(sizes, full)
        self.draws = _checks.broadcast(draws, full[:-1])
        self._given = _checks.broadcast(given, full)

    def _check_values(self, name: str) -> None:
        given, sizes, draws = map(_checks.known, (self._given, self.group_sizes, self.draws))
        if given is not None:
            if self._is_log:
                rule = "a log-weight must be a number below +inf (-inf is weight zero)"
                _checks.require(name, given, given < np.inf, rule)
            else:
                rule = "a weight must be a finite number ≥ 0"
                _checks.require(name, given, (given >= 0) & (given < np.inf), rule)
        if sizes is None or draws is None or not draws.size:
            return
        balls = sizes.sum(-1)
        rule = f"cannot exceed the number of balls, {_checks.span(balls)}"
        _checks.require("draws", draws, draws <= balls, rule)
        if given is not None:
            drawable = np.where(given == (-np.inf if self._is_log else 0), 0, sizes).sum(-1)
            rule = "cannot exceed the number of balls with positive weight, "
            _checks.require("draws", draws, draws <= drawable, rule + _checks.span(drawable))

    def get_args(self) -> dict[str, Any]:
        name = "log_weights" if self._is_log else "weights"
        return {"group_sizes": self.group_sizes, "draws": self.draws, name: self._given}

    def expand(self, batch_shape: tuple[int, ...]) -> FisherHypergeometric:
        """The same urns with a larger batch shape."""
        new: FisherHypergeometric = type(self).__new__(type(self))
        new._is_log, full = self._is_log, (*batch_shape, *self.event_shape)
        new._set(self.group_sizes, self.draws, self._given, full)
        Distribution.__init__(new, tuple(batch_shape), self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def __repr__(self) -> str:
        name = "log_weights" if self._is_log else "weights"
        values = {"group_sizes": self.group_sizes, "draws": self.draws, name: self._given}
        shown = ", ".join(f"{key}={_shown(value)}" for key, value in values.items())
        return f"{type(self).__name__}({shown})"

    # ----------------------------------------------------------------------------------------------
    # Weights
    # ----------------------------------------------------------------------------------------------

    @property
    def log_weights(self) -> Array:
        return self._given if self._is_log else jnp.log(self._given)

    @property
    def weights(self) -> Array:
        return jnp.exp(self._given) if self._is_log else self._given

    @property
    def dtype(self) -> Any:
        """The dtype of the weights, of draws and of every result."""
        return self._given.dtype

    @property
    def support(self) -> UrnCounts:
        return UrnCounts(self.group_sizes, self.draws)

    def _never_drawn(self) -> Array:
        return lax.stop_gradient(self._given) == (-jnp.inf if self._is_log else 0)

    def _drawable(self) -> Array:
        """Group sizes with the groups of weight zero emptied."""
        return jnp.where(self._never_drawn(), 0.0, self.group_sizes)

    def _is_valid(self) -> Array:
        given = lax.stop_gradient(self._given)
        valid = given < jnp.inf if self._is_log else (given >= 0) & (given < jnp.inf)
        enough = (self.draws >= 0) & (self.draws <= self._drawable().sum(-1))
        return (valid & (self.group_sizes >= 0)).all(-1) & enough

    def _operands(self) -> tuple[Array, Array, Array]:
        """log ω, m and n, with finite log-weights; n is NaN where an urn is not valid."""
        given, never = self._given.astype(jnp.result_type(float)), self._never_drawn()
        sizes, draws = self.group_sizes, jnp.where(self._is_valid(), self.draws, jnp.nan)
        if self._is_log:
            return jnp.where(never, 0.0, given), jnp.where(never, 0.0, sizes), draws
        smallest = jnp.where(never, jnp.inf, lax.stop_gradient(given)).min(-1, keepdims=True)
        factor, tiny = math.exp(_NEGLIGIBLE[given.dtype.name]), jnp.finfo(given.dtype).tiny
        nearly_zero = jnp.clip(factor * smallest, 10 * tiny, 1.0)
        # Groups of weight zero stay in the urn, so that there are slopes in their weights.
        return jnp.log(given + jnp.where(never, nearly_zero, 0.0)), sizes, draws

    # ----------------------------------------------------------------------------------------------
    # Values
    # ----------------------------------------------------------------------------------------------

    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        r"""log P(x), for integers or real numbers x; -inf outside 0 ≤ x_j ≤ m_j, and where Σx is
        not n.
        """
        log_prob: Array = self._log_prob(self._counts(value))
        return log_prob

    @jax.jit
    def _log_prob(self, x: Array) -> Array:
        log_prob = _LOG_PROB(*self._operands(), x)
        fixed = lax.stop_gradient(x)
        outside = ((fixed < 0) | (fixed > self._drawable())).any(-1)
        outside = outside | (jnp.abs(self.draws - fixed.sum(-1)) >= 0.5)
        return jnp.where(outside & self._is_valid(), -jnp.inf, log_prob).astype(self.dtype)

    def _counts(self, value: Any) -> Array:
        numbers = _checks.as_numbers("value", value, "integers")
        if numbers.shape[-1:] != self.event_shape:
            raise ValueError(
                f"value has shape {numbers.shape}, but its last dimension must be the "
                f"{self.event_shape[0]} groups"
            )
        batches = {"value": numbers.shape[:-1], "batch_shape": self.batch_shape}
        _checks.common_shape(batches, *batches.values())
        known = _checks.known(numbers) if self._validate_args else None
        sizes, draws = _checks.known(self.group_sizes), _checks.known(self.draws)
        if known is not None and sizes is not None and draws is not None:
            possible = (known == np.floor(known)) & (known >= 0) & (known <= sizes)
            rule = "counts must be integers from 0 to the size of their group"
            _checks.require("value", known, possible, rule)
            total = known.sum(-1)
            rule = f"the counts must sum to the draws, {_checks.span(draws)}"
            _checks.require("value.sum(-1)", total, total == draws, rule)
        counts: Array = numbers.astype(jnp.result_type(float))
        return counts

    @property
    @jax.jit
    def log_normalizer(self) -> Array:
        """``log Σ_x ∏_j C(m_j, x_j) ω_j^x_j``; its gradient in log ω is the mean."""
        return _LOG_NORMALIZER(*self._operands()).astype(self.dtype)

    @property
    @jax.jit
    def mean(self) -> Array:
        """E[x], shape (..., c)."""
        return self._moment(_MEAN(*self._operands()), self._never_drawn())

    @property
    @jax.jit
    def variance(self) -> Array:
        """Var[x_j] of each group, shape (..., c)."""
        return self._moment(_VARIANCE(*self._operands()), self._fixed())

    @property
    @jax.jit
    def covariance_matrix(self) -> Array:
        """Cov[x], shape (..., c, c); rows sum to zero."""
        fixed = self._fixed()
        pairs = fixed[..., :, None] | fixed[..., None, :]
        return self._moment(_COVARIANCE(*self._operands()), pairs)

    def _fixed(self) -> Array:
        """Counts that cannot vary: of weight zero, and all if every ball or one group is drawn."""
        drawable = self._drawable()
        certain = (self.draws == drawable.sum(-1)) | ((drawable > 0).sum(-1) <= 1)
        return self._never_drawn() | certain[..., None]

    def _moment(self, moment: Array, vanishes: Array) -> Array:
        """A moment with exact zeros where weights are zero, and their derivatives."""
        zero = jnp.where(jnp.isnan(moment), moment, moment - lax.stop_gradient(moment))
        return jnp.where(vanishes, zero, moment).astype(self.dtype)

    @jax.jit
    def entropy(self) -> Array:
        """-E[log P(x)] in nats, shape (...)."""
        return _ENTROPY(*self._operands()).astype(self.dtype)

    # ----------------------------------------------------------------------------------------------
    # Draws
    # ----------------------------------------------------------------------------------------------

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        """Exact draws, holding integers with 0 ≤ x ≤ m and Σx = n, in the dtype of the weights."""
        self._check_dtype_holds_draws()
        urn = lax.stop_gradient(self)  # before the compiled function, which stays the same
        counts: Array = urn._sample(key, tuple(sample_shape))
        return counts

    @partial(jax.jit, static_argnums=2)
    def _sample(self, key: Any, sample_shape: tuple[int, ...]) -> Array:
        groups = self.event_shape[0]
        log_weights, sizes, draws = self._operands()
        sizes = jnp.where(self._never_drawn(), 0.0, sizes)
        log_weights, sizes = (each.reshape(-1, groups) for each in (log_weights, sizes))
        log_odds = jax.vmap(tilted)(log_weights, sizes, draws.reshape(-1))
        counts = draw(key, log_odds, sizes, draws.reshape(-1), math.prod(sample_shape))
        return counts.reshape(self.shape(sample_shape)).astype(self.dtype)

    @jax.jit
    def _with_slope_of_mean(self, counts: Array) -> Array:
        return _WITH_SLOPE(*self._operands(), counts).astype(self.dtype)

    def _check_dtype_holds_draws(self) -> None:
        exact = min(jnp.finfo(self.dtype).nmant, jnp.finfo(self.draws.dtype).nmant) + 1
        draws = _checks.known(self.draws)
        if draws is not None and draws.size:
            rule = f"{self.dtype} holds counts exactly only up to {2**exact}; enable jax_enable_x64"
            _checks.require("draws", draws, draws <= 2**exact, f"{rule} and use float64 weights")


def straight_through(
    key: Any, urn: FisherHypergeometric, sample_shape: tuple[int, ...] = ()
) -> Array:
    """Exact draws whose derivative in the log-weights is that of the mean, the exact covariance.

    It is the estimator `diffurn.CovarianceST`, of the urn's `sample`. The estimator is biased for
    functions that are not linear.

    Example:
        >>> def first(log_weights):
        ...     urn = FisherHypergeometric([3, 5, 4], 5, log_weights=log_weights)
        ...     return straight_through(jax.random.key(0), urn)[0]
        >>> [round(float(slope), 4) for slope in jax.grad(first)(jnp.zeros(3))]
        [0.5966, -0.3314, -0.2652]
    """
    counts: Array = urn._with_slope_of_mean(urn.sample(key, sample_shape))
    return counts


def _shown(values: Any) -> str:
    """Few numbers as they are, many as their shape."""
    numbers = _checks.known(values)
    if numbers is None or numbers.size > 8 or numbers.ndim > 1:
        return f"<shape {jnp.shape(values)}>"
    shown = ", ".join(f"{number:.6g}" for number in numbers.reshape(-1).tolist())
    return f"[{shown}]" if numbers.ndim else shown
