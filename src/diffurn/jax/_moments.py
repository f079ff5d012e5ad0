"""Fisher's law of one urn: `diffurn._fisher.moments` and `diffurn._fisher.marginals` in JAX.

Every function takes log-weights ``(c,)`` of any tilt, group sizes m ``(c,)`` and draws n, all
floating-point, and returns values that are differentiable in the log-weights to any order.
`diffurn.jax.fisher` maps them over batches.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.nn import softplus

from diffurn._fisher.accuracy import GRID
from diffurn.jax import _binomial as binomial
from diffurn.jax._nodes import Nodes, half_width
from diffurn.jax._tilt import centred, log_tilt, tilted

# --------------------------------------------------------------------------------------------------
# Moments
# --------------------------------------------------------------------------------------------------


def _is_determined(group_sizes: Array, draws: Array) -> Array:
    return (draws <= 0) | (draws >= group_sizes.sum())


def covariance_product(
    log_weights: Array, group_sizes: Array, draws: Array, vector: Array
) -> Array:
    """Cov[X] @ vector in O(c)."""
    log_odds = centred(log_weights, group_sizes, draws)
    product = Nodes.build(log_odds, group_sizes, draws).covariance_product(vector)
    return jnp.where(_is_determined(group_sizes, draws), 0.0, product)


def variance(log_weights: Array, group_sizes: Array, draws: Array) -> Array:
    """Var[X_j] of every group."""
    log_odds = centred(log_weights, group_sizes, draws)
    diagonal = Nodes.build(log_odds, group_sizes, draws).variance()
    return jnp.where(_is_determined(group_sizes, draws), 0.0, diagonal)


def covariance(log_weights: Array, group_sizes: Array, draws: Array) -> Array:
    """Cov[X], shape (c, c), with rows that sum to zero."""
    log_odds = centred(log_weights, group_sizes, draws)
    matrix = Nodes.build(log_odds, group_sizes, draws).covariance()
    return jnp.where(_is_determined(group_sizes, draws), 0.0, matrix)


@jax.custom_jvp
def tilted_mean(log_odds: Array, group_sizes: Array, draws: Array) -> Array:
    """E[X], relatively accurate in each entry, for tilted log-odds."""
    average = Nodes.build(log_odds, group_sizes, draws).mean()
    return jnp.where(draws <= 0, 0.0, jnp.where(draws >= group_sizes.sum(), group_sizes, average))


@tilted_mean.defjvp
def _(primals: tuple[Array, Array, Array], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    return tilted_mean(*primals), covariance_product(*primals, tangents[0])


def mean(log_weights: Array, group_sizes: Array, draws: Array) -> Array:
    """E[X]; its Jacobian is the covariance."""
    return tilted_mean(tilted(log_weights, group_sizes, draws), group_sizes, draws)


@jax.custom_jvp
def with_slope_of_mean(
    log_weights: Array, group_sizes: Array, draws: Array, counts: Array
) -> Array:
    """The given counts, with the derivative of the mean in the log-weights."""
    return counts


@with_slope_of_mean.defjvp
def _(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    log_weights, group_sizes, draws, _ = primals
    slope = covariance_product(log_weights, group_sizes, draws, tangents[0])
    return with_slope_of_mean(*primals), slope


# --------------------------------------------------------------------------------------------------
# Probabilities
# --------------------------------------------------------------------------------------------------


@jax.custom_jvp
def log_mass(log_odds: Array, group_sizes: Array, draws: Array) -> Array:
    """log P(S = n) for tilted log-odds."""
    return jnp.log(Nodes.build(log_odds, group_sizes, draws).mass())


@log_mass.defjvp
def _(primals: tuple[Array, Array, Array], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    return log_mass(*primals), (tangents[0] * mean_shift(*primals)).sum()


@jax.custom_jvp
def mean_shift(log_odds: Array, group_sizes: Array, draws: Array) -> Array:
    """E[X | S = n] - E[X] for tilted log-odds, without cancellation."""
    return Nodes.build(log_odds, group_sizes, draws).mean_shift()


@mean_shift.defjvp
def _(primals: tuple[Array, Array, Array], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    log_odds, group_sizes, _ = primals
    unconditional = binomial.variance(group_sizes, log_odds) * tangents[0]
    return mean_shift(*primals), covariance_product(*primals, tangents[0]) - unconditional


@jax.custom_jvp
def tilted_log_prob(log_odds: Array, group_sizes: Array, draws: Array, counts: Array) -> Array:
    """`log_prob` for tilted log-odds."""
    per_group = binomial.log_pmf(counts, group_sizes, log_odds).sum()
    return per_group - log_mass(log_odds, group_sizes, draws)


@tilted_log_prob.defjvp
def _(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    log_odds, group_sizes, draws, counts = primals
    in_weights = counts - tilted_mean(log_odds, group_sizes, draws)
    in_counts = binomial.slope_in_count(counts, group_sizes, log_odds)
    return tilted_log_prob(*primals), (tangents[0] * in_weights + tangents[3] * in_counts).sum()


def log_prob(log_weights: Array, group_sizes: Array, draws: Array, counts: Array) -> Array:
    """log P(X = x) of counts that sum to n."""
    tilt = log_tilt(log_weights, group_sizes, draws)
    value = tilted_log_prob(log_weights + tilt, group_sizes, draws, counts)
    # The tilt adds nothing to counts that sum to n, and is taken from others.
    return value + (draws - counts.sum()) * tilt


def log_normalizer(log_weights: Array, group_sizes: Array, draws: Array) -> Array:
    """log Σ_x ∏_j C(m_j, x_j) ω_j^x_j."""
    # log(1 + rω) of common groups is log rω + log(1 + 1/(rω)), since the large terms of
    # Σ m log(1 + rω) - n log r cancel.
    tilt = log_tilt(log_weights, group_sizes, draws)
    log_odds = log_weights + tilt
    common = (log_odds > 0) & (group_sizes > 0)
    often = jnp.where(common, group_sizes, 0.0)
    given = (often * jnp.where(common, log_weights, 0.0)).sum()
    weights = given + (often.sum() - draws) * tilt
    odds = (group_sizes * softplus(jnp.where(common, -log_odds, log_odds))).sum()
    return weights + odds + log_mass(log_odds, group_sizes, draws)


# --------------------------------------------------------------------------------------------------
# Entropy
# --------------------------------------------------------------------------------------------------


def entropy(log_weights: Array, group_sizes: Array, draws: Array) -> Array:
    """-E log P(X) = log P(S = n) - Σ_j E log Bin(X_j; m_j, p_j), in O(c²)."""
    log_odds = tilted(log_weights, group_sizes, draws)
    own = jnp.eye(len(log_odds), dtype=bool)
    others = jnp.where(own, 0.0, group_sizes)
    expected = jax.vmap(_expected_log_pmf, (None, 0, None, 0, 0))(
        log_odds, others, draws, log_odds, group_sizes
    )
    return log_mass(log_odds, group_sizes, draws) - expected.sum()


def _expected_log_pmf(
    log_odds: Array, other_sizes: Array, draws: Array, own_log_odds: Array, own_size: Array
) -> Array:
    """E log Bin(X; m, p) of one group's count, over a grid of typical counts."""
    fixed, fixed_own = jax.lax.stop_gradient((log_odds, own_log_odds))
    centre = jnp.round(own_size * jax.nn.sigmoid(fixed_own))
    own_variance = binomial.variance(own_size, fixed_own)
    other_variance = binomial.variance(other_sizes, fixed).sum()
    reach = jnp.floor(half_width(jnp.minimum(own_variance, other_variance))) + 2
    lowest = jnp.maximum(jnp.maximum(centre - reach, draws - other_sizes.sum()), 0)
    highest = jnp.minimum(jnp.minimum(centre + reach, own_size), draws)
    stride = jnp.maximum(jnp.ceil((highest - lowest + 1) / GRID), 1)
    steps = lowest + stride * jnp.arange(GRID, dtype=log_odds.dtype)
    counts = jnp.minimum(steps, highest)
    size, odds = (jnp.broadcast_to(each, counts.shape) for each in (own_size, own_log_odds))
    log_pmf = binomial.differentiable_log_pmf(counts, size, odds)
    others = Nodes.build(log_odds, other_sizes, draws - centre, span=2)
    mass = jnp.where(steps <= highest, jnp.exp(log_pmf) * others.mass_at(centre - counts), 0.0)
    return (mass * log_pmf).sum() / mass.sum()
