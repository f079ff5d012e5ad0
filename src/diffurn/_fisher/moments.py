"""Fisher's law as independent binomials conditioned on their sum: masses, moments and divergence.

Every function takes the *log-odds* log r + log ω of each ball, shape ``(..., c)``, the group sizes
m ``(..., c)`` and the number of draws n ``(...)``, all float64. No result depends on log r, but
accuracy does: unless said otherwise the log-odds are expected to be tilted to n by `log_tilt`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from diffurn._fisher.quadrature import NODES, Quadrature
from diffurn._fisher.tilt import log_tilt, surplus
from diffurn._fisher.urn import TiltedUrn
from diffurn._kernels.dispatch import in_one_launch
from diffurn._numerics.autograd import ClosedForm
from diffurn._numerics.batching import in_chunks
from diffurn._numerics.binomial import bernoulli_kl, binomial_variance

_NOISE = math.exp(-36)


def _evaluate(
    method: Callable[..., Tensor],
    log_odds: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    *vectors: Tensor,
) -> Tensor:
    """A method of the urns' quadratures, in chunks."""

    def evaluate(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, *vectors: Tensor) -> Tensor:
        return method(Quadrature.build(log_odds, group_sizes, draws), *vectors)

    events = (1, 1, 0) + (1,) * len(vectors)
    return in_chunks(
        evaluate,
        log_odds,
        group_sizes,
        draws,
        *vectors,
        events=events,
        work=log_odds.shape[-1] * NODES[1],
    )


def _aligned(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The three with their batch shapes made equal, so that gradients have the shape of what they
    belong to.
    """
    if log_odds.shape == group_sizes.shape and log_odds.shape[:-1] == draws.shape:
        return log_odds, group_sizes, draws
    log_odds, group_sizes, draws = torch.broadcast_tensors(
        log_odds, group_sizes, draws.unsqueeze(-1)
    )
    return log_odds, group_sizes, draws[..., 0]


class _LogMass(ClosedForm):
    @staticmethod
    @in_one_launch("fisher.log_mass")
    def forward(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
        return torch.log(_evaluate(Quadrature.mass, log_odds, group_sizes, draws))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0].unsqueeze(-1) * mean_shift(*ctx.saved_tensors), None, None

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        return (tangents[0] * mean_shift(*ctx.saved_tensors)).sum(-1)


def log_mass(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    r"""log P(S = n) of S = Σ_j Binomial(m_j, σ(log_odds_j)); its derivative is E[X | S = n] -
    E[X].
    """
    return _LogMass.of(*_aligned(log_odds, group_sizes, draws))


class _RetiltedLogMass(ClosedForm):
    @staticmethod
    def forward(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, tilt: Tensor) -> Tensor:
        tilted = log_odds + tilt.unsqueeze(-1)
        divergence = (group_sizes * bernoulli_kl(tilted, log_odds)).sum(-1)
        return (
            log_mass(tilted, group_sizes, draws)
            - divergence
            + surplus(tilted, group_sizes, draws) * tilt
        )

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
    """log P(S = total), relatively accurate also in the far tails of S, for log-odds of any tilt;
    -inf outside 0..Σm.

    Re-tilting by r moves the mass to `total`:  log P(S = n) = log P_r(S = n) - KL(P_r ‖ P) + (E_r S
    - n) log r.
    """
    log_odds, group_sizes, total = _aligned(log_odds, group_sizes, total)
    possible = (total >= 0) & (total <= group_sizes.sum(-1))
    total = torch.where(possible, total, 0.0)
    tilt = log_tilt(log_odds.detach(), group_sizes, total)
    return torch.where(possible, retilted_log_mass(log_odds, group_sizes, total, tilt), -torch.inf)


def retilted_log_mass(log_odds: Tensor, group_sizes: Tensor, total: Tensor, tilt: Tensor) -> Tensor:
    """log P(S = total) of a possible total, whose tilt is known."""
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
            nodes = Quadrature.build(log_odds, group_sizes, centre, span=2)
            mass = nodes.mass_at(offsets)
            return nodes.slope_of_mass_at(
                offsets, torch.where(mass > _NOISE, grad / mass.clamp(min=_NOISE), 0.0)
            )

        work = NODES[2] * max(grads[0].shape[-1], ctx.saved_tensors[0].shape[-1])
        return (
            in_chunks(slopes, *ctx.saved_tensors, grads[0], events=(1, 1, 0, 1, 1), work=work),
            None,
            None,
            None,
        )


def _masses_near(log_odds: Tensor, group_sizes: Tensor, centre: Tensor, offsets: Tensor) -> Tensor:
    def masses(log_odds: Tensor, group_sizes: Tensor, centre: Tensor, offsets: Tensor) -> Tensor:
        return (
            Quadrature.build(log_odds, group_sizes, centre, span=2)
            .mass_at(offsets)
            .clamp(min=_NOISE)
        )

    work = NODES[2] * max(offsets.shape[-1], log_odds.shape[-1])
    return in_chunks(masses, log_odds, group_sizes, centre, offsets, events=(1, 1, 0, 1), work=work)


def log_masses_near(log_odds: Tensor, group_sizes: Tensor, totals: Tensor) -> Tensor:
    """log P(S = total) for many totals ``(..., W)`` at once, from one set of nodes around the mean
    of S.

    Accurate absolutely: masses below e^-36 are noise and returned as that. Where tails matter, use
    `log_mass_anywhere`.
    """
    centre = torch.round(surplus(log_odds.detach(), group_sizes, torch.zeros_like(totals[..., 0])))
    return _LogMassesNear.of(log_odds, group_sizes, centre, totals - centre.unsqueeze(-1))


class _Mean(ClosedForm):
    @staticmethod
    @in_one_launch("fisher.mean")
    def forward(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
        average = _evaluate(Quadrature.mean, log_odds, group_sizes, draws)
        n = draws.unsqueeze(-1)
        return torch.where(
            n <= 0, 0.0, torch.where(n >= group_sizes.sum(-1, keepdim=True), group_sizes, average)
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        log_odds, group_sizes, draws = ctx.saved_tensors
        return covariance_product(log_odds, group_sizes, draws, grads[0]), None, None

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        log_odds, group_sizes, draws = ctx.saved_tensors
        return covariance_product(log_odds, group_sizes, draws, tangents[0])


def mean(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """E[X], each entry relatively accurate; its Jacobian is the covariance."""
    return _Mean.of(*_aligned(log_odds, group_sizes, draws))


class _MeanShift(ClosedForm):
    @staticmethod
    @in_one_launch("fisher.mean_shift")
    def forward(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
        return _evaluate(Quadrature.mean_shift, log_odds, group_sizes, draws)

    @staticmethod
    def _product(ctx: Any, vector: Tensor) -> Tensor:
        log_odds, group_sizes, draws = ctx.saved_tensors
        return (
            covariance_product(log_odds, group_sizes, draws, vector)
            - binomial_variance(group_sizes, log_odds) * vector
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _MeanShift._product(ctx, grads[0]), None, None

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        return _MeanShift._product(ctx, tangents[0])


def mean_shift(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """E[X | S = n] - E[X], what conditioning on the sum does to the mean, without the cancellation
    of the two.
    """
    return _MeanShift.of(*_aligned(log_odds, group_sizes, draws))


@in_one_launch("fisher.centring_tilt")
def centring_tilt(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """The tilt half way between those to n - ½ and to n + ½, for covariances.

    Where the outcome is almost sure, this makes a ball too many as likely as a ball too few; the
    covariance, which is of the order of the product of the two, then has no term larger than
    itself.
    """
    return tilts_around(log_odds, group_sizes, draws).mean(0)


def tilts_around(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """The tilts to n - ½ and to n + ½, stacked: one call with twice as many urns takes less time
    than two.
    """
    log_odds, group_sizes, draws = _aligned(log_odds.detach(), group_sizes, draws)
    both = (2, *log_odds.shape)
    return log_tilt(
        log_odds.expand(both), group_sizes.expand(both), torch.stack([draws, draws + 1])
    )


def _centred(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, tilt: Tensor | None = None
) -> Tensor:
    return log_odds + (
        centring_tilt(log_odds, group_sizes, draws) if tilt is None else tilt
    ).unsqueeze(-1)


def _unless_determined(
    moment: Tensor, group_sizes: Tensor, draws: Tensor, event_dims: int
) -> Tensor:
    """Zero where nothing or everything is drawn."""
    determined = (draws <= 0) | (draws >= group_sizes.sum(-1))
    return torch.where(determined[(...,) + (None,) * event_dims], 0.0, moment)


@in_one_launch("fisher.covariance_product")
def covariance_product(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, vector: Tensor, tilt: Tensor | None = None
) -> Tensor:
    """Cov[X] @ vector in O(c) time and memory; log-odds of any tilt, unless the centring one is
    given.
    """
    centred = _centred(log_odds, group_sizes, draws, tilt)
    return _unless_determined(
        _evaluate(Quadrature.covariance_product, centred, group_sizes, draws, vector),
        group_sizes,
        draws,
        1,
    )


def covariance(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """Cov[X], shape (..., c, c), with rows that sum to zero; log-odds of any tilt."""
    centred = _centred(log_odds, group_sizes, draws)
    return _unless_determined(
        _evaluate(Quadrature.covariance, centred, group_sizes, draws), group_sizes, draws, 2
    )


@in_one_launch("fisher.variance")
def variance(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """Var[X_j] for every group, in O(c); log-odds of any tilt."""
    centred = _centred(log_odds, group_sizes, draws)
    return _unless_determined(
        _evaluate(Quadrature.variance, centred, group_sizes, draws), group_sizes, draws, 1
    )


def kl_divergence(urn: TiltedUrn, other: TiltedUrn) -> Tensor:
    r"""KL(ω ‖ ω') between two urns of equal n, from terms no larger than needed:

    .. math:: \sum_j [m_j \mathrm{kl}(p_j ‖ p'_j) + (μ_j - m_j p_j)(η_j - η'_j)]
              + \log P'(S = n) - \log P(S = n).

    The group sizes agree but where one urn has emptied a group of weight zero. There p = 0, and
    kl(0 ‖ p') = -log(1 - p').
    """
    shared = torch.where(other.group_sizes > 0, urn.group_sizes, 0.0)
    shift = torch.where(shared > 0, mean_shift(*urn), 0.0)
    per_group = shared * bernoulli_kl(urn.log_odds, other.log_odds) + shift * (
        urn.log_odds - other.log_odds
    )
    emptied = (other.group_sizes - urn.group_sizes).clamp(min=0) * softplus(
        other.log_odds, threshold=50
    )
    divergence = (per_group + emptied).sum(-1) + log_mass(*other) - log_mass(*urn)
    return torch.where(
        urn.draws == 0, 0.0, divergence
    )  # where nothing is drawn, groups that only one urn can draw do not matter
