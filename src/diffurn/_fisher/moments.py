"""Fisher's law as independent binomials conditioned on their sum: masses, moments and divergence.

Every function takes the *log-odds* log r + log ω of each ball, shape ``(..., c)``, the group sizes
m ``(..., c)`` and the number of draws n ``(...)``, all float64. No result depends on log r, but the
accuracy does: unless stated otherwise, the log-odds must be tilted to n by `log_tilt`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from diffurn._fisher.accuracy import NODES
from diffurn._fisher.nodes import Nodes, surplus
from diffurn._fisher.tilt import log_tilt
from diffurn._kernels.dispatch import primitive
from diffurn._numerics.autograd import ClosedForm
from diffurn._numerics.batching import in_chunks
from diffurn._numerics.binomial import (
    bernoulli_kl,
    binomial_log_pmf,
    binomial_variance,
    log_pmf_value,
    slope_in_count,
)

# Masses below this are rounding errors of the quadrature.
_NOISE = math.exp(-36)


def _evaluate(
    method: Callable[..., Tensor],
    log_odds: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    *vectors: Tensor,
) -> Tensor:
    """The result of a method of `Nodes` for a batch of urns, evaluated in chunks."""

    def evaluate(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, *vectors: Tensor) -> Tensor:
        return method(Nodes.build(log_odds, group_sizes, draws), *vectors)

    work = log_odds.shape[-1] * NODES[1]
    events = (1, 1, 0) + (1,) * len(vectors)
    return in_chunks(evaluate, log_odds, group_sizes, draws, *vectors, events=events, work=work)


def _aligned(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The operands with equal batch shapes, so that gradients have the shapes of their operands."""
    if log_odds.shape == group_sizes.shape and log_odds.shape[:-1] == draws.shape:
        return log_odds, group_sizes, draws
    log_odds, group_sizes, draws = torch.broadcast_tensors(
        log_odds, group_sizes, draws.unsqueeze(-1)
    )
    return log_odds, group_sizes, draws[..., 0]


# --------------------------------------------------------------------------------------------------
# Masses of the sum
# --------------------------------------------------------------------------------------------------


@primitive
def log_mass_value(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """`log_mass` without a derivative."""
    return torch.log(_evaluate(Nodes.mass, log_odds, group_sizes, draws))


class _LogMass(ClosedForm):
    forward = staticmethod(log_mass_value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0].unsqueeze(-1) * mean_shift(*ctx.saved_tensors), None, None

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        return (tangents[0] * mean_shift(*ctx.saved_tensors)).sum(-1)


def log_mass(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    r"""log P(S = n) of S = Σ_j Binomial(m_j, σ(log_odds_j)).

    Its derivative is E[X | S = n] - E[X].
    """
    return _LogMass.of(*_aligned(log_odds, group_sizes, draws))


class _RetiltedLogMass(ClosedForm):
    @staticmethod
    def forward(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, tilt: Tensor) -> Tensor:
        tilted = log_odds + tilt.unsqueeze(-1)
        divergence = (group_sizes * bernoulli_kl(tilted, log_odds)).sum(-1)
        shift = surplus(tilted, group_sizes, draws) * tilt
        return log_mass(tilted, group_sizes, draws) - divergence + shift

    @staticmethod
    def _slope(ctx: Any) -> Tensor:
        log_odds, group_sizes, draws, tilt = ctx.saved_tensors
        unconditional: Tensor = group_sizes * torch.sigmoid(log_odds)
        return mean(log_odds + tilt.unsqueeze(-1), group_sizes, draws) - unconditional

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return grads[0].unsqueeze(-1) * _RetiltedLogMass._slope(ctx), None, None, None

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        return (tangents[0] * _RetiltedLogMass._slope(ctx)).sum(-1)


def log_mass_anywhere(log_odds: Tensor, group_sizes: Tensor, total: Tensor) -> Tensor:
    """log P(S = total) for log-odds of any tilt, accurate also in the far tails of S.

    It is -inf outside 0..Σm. A tilt by r makes `total` typical:
    log P(S = n) = log P_r(S = n) - KL(P_r ‖ P) + (E_r S - n) log r.
    """
    log_odds, group_sizes, total = _aligned(log_odds, group_sizes, total)
    possible = (total >= 0) & (total <= group_sizes.sum(-1))
    total = torch.where(possible, total, 0.0)
    tilt = log_tilt(log_odds.detach(), group_sizes, total)
    return torch.where(possible, retilted_log_mass(log_odds, group_sizes, total, tilt), -torch.inf)


def retilted_log_mass(log_odds: Tensor, group_sizes: Tensor, total: Tensor, tilt: Tensor) -> Tensor:
    """log P(S = total) for a possible total and the tilt to it."""
    return _RetiltedLogMass.of(log_odds, group_sizes, total, tilt)


class _LogMassesNear(ClosedForm):
    @staticmethod
    def forward(log_odds: Tensor, group_sizes: Tensor, centre: Tensor, offsets: Tensor) -> Tensor:
        return torch.log(_masses_near(log_odds, group_sizes, centre, offsets))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        def slopes(
            log_odds: Tensor, group_sizes: Tensor, centre: Tensor, offsets: Tensor, grad: Tensor
        ) -> Tensor:
            nodes = Nodes.build(log_odds, group_sizes, centre, span=2)
            mass = nodes.mass_at(offsets)
            relative = torch.where(mass > _NOISE, grad / mass.clamp(min=_NOISE), 0.0)
            return nodes.slope_of_mass_at(offsets, relative)

        operands = *ctx.saved_tensors, grads[0]
        work = NODES[2] * max(grads[0].shape[-1], operands[0].shape[-1])
        return in_chunks(slopes, *operands, events=(1, 1, 0, 1, 1), work=work), None, None, None


def _masses_near(log_odds: Tensor, group_sizes: Tensor, centre: Tensor, offsets: Tensor) -> Tensor:
    def masses(log_odds: Tensor, group_sizes: Tensor, centre: Tensor, offsets: Tensor) -> Tensor:
        nodes = Nodes.build(log_odds, group_sizes, centre, span=2)
        return nodes.mass_at(offsets).clamp(min=_NOISE)

    work = NODES[2] * max(offsets.shape[-1], log_odds.shape[-1])
    return in_chunks(masses, log_odds, group_sizes, centre, offsets, events=(1, 1, 0, 1), work=work)


def log_masses_near(log_odds: Tensor, group_sizes: Tensor, totals: Tensor) -> Tensor:
    """log P(S = total) for many totals ``(..., W)``, from one set of nodes around the mean.

    The error of a mass is absolute: masses below e^-36 are noise, and returned as e^-36. If tails
    matter, use `log_mass_anywhere`.
    """
    nothing = torch.zeros_like(totals[..., 0])
    centre = torch.round(surplus(log_odds.detach(), group_sizes, nothing))
    return _LogMassesNear.of(log_odds, group_sizes, centre, totals - centre.unsqueeze(-1))


# --------------------------------------------------------------------------------------------------
# Means
# --------------------------------------------------------------------------------------------------


@primitive
def mean_value(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """`mean` without a derivative."""
    average = _evaluate(Nodes.mean, log_odds, group_sizes, draws)
    n, balls = draws.unsqueeze(-1), group_sizes.sum(-1, keepdim=True)
    return torch.where(n <= 0, 0.0, torch.where(n >= balls, group_sizes, average))


class _Mean(ClosedForm):
    forward = staticmethod(mean_value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return covariance_product(*ctx.saved_tensors, grads[0]), None, None

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        return covariance_product(*ctx.saved_tensors, tangents[0])


def mean(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """E[X], relatively accurate in each entry; its Jacobian is the covariance."""
    return _Mean.of(*_aligned(log_odds, group_sizes, draws))


@primitive
def mean_anywhere_value(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """`mean_anywhere` without a derivative."""
    tilt = log_tilt(log_weights, group_sizes, draws)
    return mean_value(log_weights + tilt.unsqueeze(-1), group_sizes, draws)


class _MeanAnywhere(_Mean):
    forward = staticmethod(mean_anywhere_value)


def mean_anywhere(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """`mean` for log-weights of any tilt."""
    return _MeanAnywhere.of(*_aligned(log_weights, group_sizes, draws))


@primitive
def mean_shift_value(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """`mean_shift` without a derivative."""
    return _evaluate(Nodes.mean_shift, log_odds, group_sizes, draws)


class _MeanShift(ClosedForm):
    forward = staticmethod(mean_shift_value)

    @staticmethod
    def _product(ctx: Any, vector: Tensor) -> Tensor:
        log_odds, group_sizes, draws = ctx.saved_tensors
        unconditional = binomial_variance(group_sizes, log_odds) * vector
        return covariance_product(log_odds, group_sizes, draws, vector) - unconditional

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _MeanShift._product(ctx, grads[0]), None, None

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        return _MeanShift._product(ctx, tangents[0])


def mean_shift(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """E[X | S = n] - E[X], the change of the mean by conditioning, without cancellation."""
    return _MeanShift.of(*_aligned(log_odds, group_sizes, draws))


# --------------------------------------------------------------------------------------------------
# Covariances
# --------------------------------------------------------------------------------------------------


@primitive
def centring_tilt(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """The tilt half way between those to n - ½ and to n + ½, for covariances.

    If one outcome is almost certain, this tilt makes one ball too many as likely as one too few.
    The covariance is of the order of the product of these two probabilities. With this tilt it is
    computed from terms that are not larger.
    """
    return tilts_around(log_odds, group_sizes, draws).mean(0)


def tilts_around(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """The tilts to n - ½ and to n + ½, stacked; one call is faster than two."""
    log_odds, group_sizes, draws = _aligned(log_odds.detach(), group_sizes, draws)
    both = (2, *log_odds.shape)
    totals = torch.stack([draws, draws + 1])
    return log_tilt(log_odds.expand(both), group_sizes.expand(both), totals)


def _centred(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, tilt: Tensor | None = None
) -> Tensor:
    tilt = centring_tilt(log_odds, group_sizes, draws) if tilt is None else tilt
    return log_odds + tilt.unsqueeze(-1)


def _unless_determined(
    moment: Tensor, group_sizes: Tensor, draws: Tensor, event_dims: int
) -> Tensor:
    """`moment`, but zero if no ball or every ball is drawn."""
    determined = (draws <= 0) | (draws >= group_sizes.sum(-1))
    return torch.where(determined[(...,) + (None,) * event_dims], 0.0, moment)


@primitive
def covariance_product(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, vector: Tensor, tilt: Tensor | None = None
) -> Tensor:
    """Cov[X] @ vector in O(c) time and memory, for log-odds of any tilt.

    `tilt` is the centring tilt of the log-odds, if it is known.
    """
    centred = _centred(log_odds, group_sizes, draws, tilt)
    product = _evaluate(Nodes.covariance_product, centred, group_sizes, draws, vector)
    return _unless_determined(product, group_sizes, draws, 1)


@primitive
def information(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, vectors: Tensor) -> Tensor:
    """Vᵀ Cov[X] V of p vectors V ``(..., c, p)``: shape (..., p, p), for log-odds of any tilt.

    If log ω = Vβ, it is Fisher's information about β. No c × c matrix is formed.
    """

    def evaluate(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, vectors: Tensor) -> Tensor:
        return Nodes.build(log_odds, group_sizes, draws).information(vectors)

    urn = _aligned(log_odds, group_sizes, draws)
    operands = _centred(*urn), *urn[1:], vectors
    work = log_odds.shape[-1] * max(NODES[1], vectors.shape[-1])
    matrix = in_chunks(evaluate, *operands, events=(1, 1, 0, 2), work=work)
    return _unless_determined(matrix, *urn[1:], 2)


@primitive
def covariance(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """Cov[X], shape (..., c, c), with rows that sum to zero, for log-odds of any tilt."""
    centred = _centred(log_odds, group_sizes, draws)
    matrix = _evaluate(Nodes.covariance, centred, group_sizes, draws)
    return _unless_determined(matrix, group_sizes, draws, 2)


@primitive
def variance(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """Var[X_j] of every group, in O(c), for log-odds of any tilt."""
    centred = _centred(log_odds, group_sizes, draws)
    diagonal = _evaluate(Nodes.variance, centred, group_sizes, draws)
    return _unless_determined(diagonal, group_sizes, draws, 1)


# --------------------------------------------------------------------------------------------------
# Likelihood and divergence
# --------------------------------------------------------------------------------------------------


@primitive
def log_prob_value(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, counts: Tensor
) -> Tensor:
    """`log_prob` of operands of one shape, without a derivative."""
    tilt = log_tilt(log_weights.detach(), group_sizes, draws)
    log_odds = log_weights + tilt.unsqueeze(-1)
    per_group = log_pmf_value(counts, group_sizes, log_odds).sum(-1)
    # The tilt adds nothing to counts that sum to n, and is taken from others.
    untilted = per_group + (draws - counts.sum(-1)) * tilt
    log_prob: Tensor = untilted - log_mass_value(log_odds, group_sizes, draws)
    return log_prob


class _LogProb(ClosedForm):
    forward = staticmethod(log_prob_value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None, Tensor | None]:
        log_weights, group_sizes, draws, counts = ctx.saved_tensors
        grad, in_weights, in_counts = grads[0].unsqueeze(-1), None, None
        if ctx.needs_input_grad[0]:
            in_weights = grad * (counts - mean_anywhere(log_weights, group_sizes, draws))
        if ctx.needs_input_grad[3]:
            in_counts = grad * slope_in_count(counts, group_sizes, log_weights)
        return in_weights, None, None, in_counts

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        log_weights, group_sizes, draws, counts = ctx.saved_tensors
        change = tangents[0] * (counts - mean_anywhere(log_weights, group_sizes, draws))
        change = change + tangents[3] * slope_in_count(counts, group_sizes, log_weights)
        total: Tensor = change.sum(-1)
        return total


def log_prob(log_weights: Tensor, group_sizes: Tensor, draws: Tensor, counts: Tensor) -> Tensor:
    r"""log P(X = x | S = n), for counts that sum to n and log-weights of any tilt.

    It is Σ_j log Bin(x_j; m_j, p_j) - log P(S = n). With the tilt to n no term is large.
    """
    shape = counts.shape
    if not (log_weights.shape == group_sizes.shape == shape and draws.shape == shape[:-1]):
        log_weights, group_sizes, n, counts = torch.broadcast_tensors(
            log_weights, group_sizes, draws.unsqueeze(-1), counts
        )
        draws = n[..., 0]
    return _LogProb.of(log_weights, group_sizes, draws, counts)


@primitive
def log_prob_and_derivatives(
    log_weights: Tensor, group_sizes: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    r"""log P(x), its gradient x - E[X] and minus its Hessian, Cov[X], in log ω.

    The law is an exponential family in log ω, so the Hessian does not depend on x. x may be the
    average of several draws from urns of equal m and n, since the gamma function continues the
    binomial coefficients to real x.

    Args:
        log_weights: log ω, finite, shape ``(..., c)``.
        group_sizes: m, shape ``(..., c)``.
        counts: x, shape ``(..., c)``, with an integer sum n.

    Returns:
        Tensors of shape ``(...)``, ``(..., c)`` and ``(..., c, c)``; all zero if no ball or every
        ball is drawn.
    """
    draws = counts.sum(-1).round()
    determined = ((draws <= 0) | (draws >= group_sizes.sum(-1))).unsqueeze(-1)
    log_odds = log_weights + log_tilt(log_weights, group_sizes, draws).unsqueeze(-1)
    nodes = Nodes.build(log_odds, group_sizes, draws)
    log_prob = binomial_log_pmf(counts, group_sizes, log_odds).sum(-1) - nodes.mass().log()
    score, information = counts - nodes.mean(), nodes.covariance()
    return (
        torch.where(determined.squeeze(-1), 0.0, log_prob),
        torch.where(determined, 0.0, score),
        torch.where(determined.unsqueeze(-1), 0.0, information),
    )


def kl_divergence(
    urn: tuple[Tensor, Tensor, Tensor], other: tuple[Tensor, Tensor, Tensor]
) -> Tensor:
    r"""KL(ω ‖ ω') between two urns of equal n, without large terms that cancel:

    .. math:: \sum_j [m_j \mathrm{kl}(p_j ‖ p'_j) + (μ_j - m_j p_j)(η_j - η'_j)]
              + \log P'(S = n) - \log P(S = n).

    The group sizes agree, except that an urn has no balls in a group of weight zero. There p = 0,
    and kl(0 ‖ p') = -log(1 - p').

    Args:
        urn, other: tilted log-odds, group sizes and draws of each.
    """
    (log_odds, sizes, draws), (other_log_odds, other_sizes, _) = urn, other
    shared = torch.where(other_sizes > 0, sizes, 0.0)
    shift = torch.where(shared > 0, mean_shift(*urn), 0.0)
    per_group = shared * bernoulli_kl(log_odds, other_log_odds)
    per_group = per_group + shift * (log_odds - other_log_odds)
    emptied = (other_sizes - sizes).clamp(min=0) * softplus(other_log_odds, threshold=50)
    divergence = (per_group + emptied).sum(-1) + log_mass(*other) - log_mass(*urn)
    # Without draws both laws are the same, even if only one urn can draw some group.
    return torch.where(draws == 0, 0.0, divergence)
