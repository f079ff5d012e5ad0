r"""Probabilities of Wallenius' law, as integrals over the time of a race of all balls.

Every ball of group j arrives after an exponential time of rate ω_j, and the first n balls are
drawn. By time s, Binomial(m_j, 1 - e^{-ω_j s}) balls of group j have arrived, independently of the
other groups. The race leaves state x at the rate D = Σ_j ω_j (m_j - x_j). P(x) is the probability
that it ever leaves x,

.. math:: P(x) = \int_0^∞ D \prod_j \mathrm{Bin}(x_j; m_j, 1 - e^{-ω_j s})\, ds,

which is Wallenius' integral (K. T. Wallenius, *Biased sampling*, 1963) with t = e^{-Ds}. The
logarithm of the integrand is concave in u = log s, with the derivative

.. math:: 1 + \sum_j x_j b(y_j) - D s, \qquad y_j = ω_j s, \quad b(y) = y / (e^y - 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from diffurn._kernels.dispatch import can_call, primitive
from diffurn._numerics.autograd import ClosedForm
from diffurn._numerics.binomial import binomial_log_pmf
from diffurn._numerics.tracing import can_read
from diffurn._wallenius.quadrature import (
    CLOSE_AGREEMENT,
    TimeGrid,
    integrate,
    log_trapezoid,
    time_grid,
)

# The largest |log of rate × time|, which keeps rate × time within float64. Beyond it all balls of a
# group have arrived, or none.
_LOG_LARGEST = 700.0
# From so many groups on, those that are not drawn are merged if they are the majority.
_FEWEST_TO_MERGE = 32


def arrived(log_y: Tensor) -> Tensor:
    """y = rate × time, clamped to the range of float64."""
    return torch.exp(log_y.clamp(-_LOG_LARGEST, _LOG_LARGEST))


def log_odds_of_arrival(log_y: Tensor) -> Tensor:
    """log(e^y - 1), the log-odds that an exponential time of rate one is below y."""
    y = arrived(log_y)
    late = y > 1
    early = torch.where(late, 1.0, y)
    return torch.where(
        late,
        y + torch.log1p(-torch.exp(-torch.where(late, y, 1.0))),
        log_y + torch.log(torch.expm1(early) / early),
    )


def log_share_arrived(log_y: Tensor) -> Tensor:
    """log(1 - e^-y), the log-probability that an exponential time of rate one is below y."""
    within = log_y.clamp(-_LOG_LARGEST, _LOG_LARGEST)
    # As -log(1 + 1/(e^y - 1)) it is relatively accurate for small y and for small results.
    return (log_y - within).clamp(max=0) - torch.log1p(torch.expm1(torch.exp(within)).reciprocal())


def saturation(y: Tensor) -> Tensor:
    """b(y) = y / (e^y - 1), which falls from one for full groups to zero for exhausted ones."""
    return torch.where(y < 1e-8, 1 - 0.5 * y, y / torch.expm1(y.clamp(min=1e-8)))


@dataclass(frozen=True)
class _State:
    """A state x of the race, and the density of the time at which the race leaves it."""

    log_weights: Tensor  # (..., c)
    group_sizes: Tensor  # (..., c)
    counts: Tensor  # x, (..., c)
    certain: Tensor  # whether no ball, every ball or one group is drawn: P(x) = 1, (...)
    log_rate: Tensor  # log D; arbitrary if certain, (...)
    rate_shares: Tensor  # ω_j (m_j - x_j) / D, (..., c)
    can_look: bool  # whether values can be read

    @classmethod
    def of(cls, log_weights: Tensor, group_sizes: Tensor, counts: Tensor) -> _State:
        left = group_sizes - counts
        log_rates = torch.where(left > 0, log_weights + torch.log(left), -torch.inf)
        certain = (counts.sum(-1) == 0) | (log_rates == -torch.inf).all(-1)
        certain = certain | ((group_sizes > 0).sum(-1) <= 1)
        log_rates = torch.where(certain.unsqueeze(-1), 0.0, log_rates)
        log_rate = torch.logsumexp(log_rates, -1)
        shares = torch.exp(log_rates - log_rate.unsqueeze(-1))
        can_look = can_read(log_weights)
        return cls(log_weights, group_sizes, counts, certain, log_rate, shares, can_look)

    def log_times(self, u: Tensor) -> Tensor:
        """log y_j = log ω_j + u at log times u (..., T): shape (..., T, c)."""
        return self.log_weights.unsqueeze(-2) + u.unsqueeze(-1)

    def times(self, u: Tensor) -> Tensor:
        return arrived(self.log_times(u))

    def slope(self, u: Tensor) -> Tensor:
        """The derivative of the log-integrand at u (..., T)."""
        drawn = (self.counts.unsqueeze(-2) * saturation(self.times(u))).sum(-1)
        return 1 + drawn - torch.exp(self.log_rate.unsqueeze(-1) + u)

    def log_density(self, u: Tensor, peak: Tensor) -> Tensor:
        """The log-integrand at u (..., T) minus that at the peak (...), without large terms."""
        distance = u - peak.unsqueeze(-1)
        log_at_peak = self.log_times(peak.unsqueeze(-1))
        at_peak = arrived(log_at_peak)
        # log (1 - e^-y) / (1 - e^-y*), with y* at the peak: near the peak relative to y*, elsewhere
        # and for saturated groups (large y*) by subtraction.
        change = -torch.expm1(-at_peak * torch.expm1(distance).unsqueeze(-1))
        relative = torch.log1p(change / torch.expm1(at_peak.clamp(max=50.0)))
        near = (distance.abs().unsqueeze(-1) < 0.5) & (at_peak < 50)
        if self.can_look and bool(near.all()):
            gain = relative
        else:
            far = log_share_arrived(self.log_times(u)) - log_share_arrived(log_at_peak)
            gain = torch.where(near, relative, far)
        some_drawn = self.counts.unsqueeze(-2) > 0
        gain = torch.where(some_drawn, self.counts.unsqueeze(-2) * gain, 0.0).sum(-1)
        rate = torch.exp(self.log_rate + peak).unsqueeze(-1)  # D s at the peak
        return distance + gain - rate * torch.expm1(distance)

    def grid(self) -> TimeGrid:
        draws = self.counts.sum(-1)
        # At the peak D s = 1 + Σ x b with 0 < b < 1.
        low, high = -self.log_rate, torch.log1p(draws) - self.log_rate
        return time_grid(lambda u: self.log_density(u, low), self.slope, low, high, draws)


def _grid(log_weights: Tensor, group_sizes: Tensor, counts: Tensor, *vectors: Tensor) -> TimeGrid:
    return _State.of(log_weights, group_sizes, counts).grid()


def _log_prob(
    grid: TimeGrid, number: int, log_weights: Tensor, group_sizes: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor]:
    state = _State.of(log_weights, group_sizes, counts)
    log_density = state.log_density(grid.nodes(number), grid.peak)
    log_integral, disagreement = log_trapezoid(log_density, grid.length)
    log_odds = log_odds_of_arrival(log_weights + grid.peak.unsqueeze(-1))
    at_peak = binomial_log_pmf(counts, group_sizes, log_odds).sum(-1)
    log_prob = at_peak + state.log_rate + grid.peak + log_integral
    return torch.where(state.certain, 0.0, log_prob), torch.where(state.certain, 0.0, disagreement)


@dataclass(frozen=True)
class _Slopes:
    """Derivatives of log P(x) in log ω.

    Let a_j = x_j b(y_j) - (m_j - x_j) y_j be the derivative of the log-integrand in log ω_j, and E
    the average over the normalised integrand. Then the score is E a_j + w_j, and the second
    derivatives are Cov(a_i, a_j) + δ_ij (E ∂a_j + w_j) - w_i w_j, where w = ω (m - x) / D.
    """

    certain: Tensor
    disagreement: Tensor  # of the rule with half the nodes, (...)
    share: Tensor  # the normalised integrand, (..., T, 1)
    a: Tensor  # (..., T, c)
    curvature: Tensor  # E ∂a, (..., c)
    w: Tensor  # (..., c)

    @classmethod
    def of(
        cls,
        grid: TimeGrid,
        number: int,
        twice: bool,
        log_weights: Tensor,
        group_sizes: Tensor,
        counts: Tensor,
    ) -> _Slopes:
        """The first derivatives, and if asked for the second ones."""
        state = _State.of(log_weights, group_sizes, counts)
        u = grid.nodes(number)
        log_density = state.log_density(u, grid.peak)
        _, disagreement = log_trapezoid(log_density, grid.length)
        disagreement = torch.where(state.certain, 0.0, disagreement)
        share = torch.softmax(log_density, -1).unsqueeze(-1)
        y, x, left = state.times(u), counts.unsqueeze(-2), (group_sizes - counts).unsqueeze(-2)
        b = saturation(y)
        waiting = torch.where(left > 0, left * y, 0.0)
        a, curvature = x * b - waiting, state.rate_shares
        if twice:
            curvature = (share * (x * b * (1 - y - b) - waiting)).sum(-2)
        return cls(state.certain, disagreement, share, a, curvature, state.rate_shares)

    @property
    def score(self) -> Tensor:
        score = (self.share * self.a).sum(-2) + self.w
        return torch.where(self.certain.unsqueeze(-1), 0.0, score)

    @property
    def _spread(self) -> Tensor:
        return self.a - (self.share * self.a).sum(-2, keepdim=True)

    def hessian(self) -> Tensor:
        spread, w = self._spread, self.w
        hessian = (self.share * spread).mT @ spread + torch.diag_embed(self.curvature + w)
        hessian = hessian - w.unsqueeze(-1) * w.unsqueeze(-2)
        return torch.where(self.certain[..., None, None], 0.0, hessian)

    def hessian_product(self, vector: Tensor) -> Tensor:
        spread, w, column = self._spread, self.w, vector.unsqueeze(-1)
        product = ((self.share * spread).mT @ (spread @ column)).squeeze(-1)
        product = product + (self.curvature + w) * vector - w * (w * vector).sum(-1, keepdim=True)
        return torch.where(self.certain.unsqueeze(-1), 0.0, product)


def _score(grid: TimeGrid, number: int, *state: Tensor) -> tuple[Tensor, Tensor]:
    slopes = _Slopes.of(grid, number, False, *state)
    return slopes.score, slopes.disagreement


def _hessian_product(
    grid: TimeGrid,
    number: int,
    log_weights: Tensor,
    group_sizes: Tensor,
    counts: Tensor,
    vector: Tensor,
) -> tuple[Tensor, Tensor]:
    slopes = _Slopes.of(grid, number, True, log_weights, group_sizes, counts)
    return slopes.hessian_product(vector), slopes.disagreement


def _log_prob_and_derivatives(grid: TimeGrid, number: int, *state: Tensor) -> tuple[Tensor, Tensor]:
    """log P(x), its score and minus its Hessian on one grid, flattened to (..., 1 + (c + 1) c)."""
    log_prob, disagreement = _log_prob(grid, number, *state)
    slopes = _Slopes.of(grid, number, True, *state)
    flat = log_prob.unsqueeze(-1), slopes.score, -slopes.hessian().flatten(-2)
    return torch.cat(flat, -1), disagreement


def _integrate(kernel: Any, *operands: Tensor) -> Tensor:
    work, events = operands[0].shape[-1], (1,) * len(operands)
    return integrate(_grid, kernel, *operands, events=events, work=work, agreement=CLOSE_AGREEMENT)


def log_prob_and_derivatives(
    log_weights: Tensor, group_sizes: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """log P(x), its gradient in log ω and minus its Hessian.

    Returns:
        Tensors of shape ``(...)``, ``(..., c)`` and ``(..., c, c)``.
    """
    flat = _integrate(_log_prob_and_derivatives, log_weights, group_sizes, counts)
    stacked = flat[..., 1:].unflatten(-1, (-1, log_weights.shape[-1]))
    return flat[..., 0], stacked[..., 0, :], stacked[..., 1:, :]


@primitive
def log_prob_value(log_weights: Tensor, group_sizes: Tensor, counts: Tensor) -> Tensor:
    """`log_prob` of operands of one shape, without a derivative."""
    return _integrate(_log_prob, log_weights, group_sizes, counts).clamp(max=0)


@primitive
def score_value(log_weights: Tensor, group_sizes: Tensor, counts: Tensor) -> Tensor:
    """The derivative of `log_prob` in log ω, without a derivative of its own."""
    return _integrate(_score, log_weights, group_sizes, counts)


class _LogProb(ClosedForm):
    forward = staticmethod(log_prob_value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0].unsqueeze(-1) * _Score.of(*ctx.saved_tensors), None, None

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        return (tangents[0] * _Score.of(*ctx.saved_tensors)).sum(-1)


class _Score(ClosedForm):
    forward = staticmethod(score_value)

    @staticmethod
    def _product(ctx: Any, vector: Tensor) -> Tensor:
        return _integrate(_hessian_product, *ctx.saved_tensors, vector)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _Score._product(ctx, grads[0]), None, None

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        return _Score._product(ctx, tangents[0])


def log_prob(log_weights: Tensor, group_sizes: Tensor, counts: Tensor) -> Tensor:
    """log P(x) of possible counts ``(..., c)``, all float64; differentiable twice in log ω."""
    urn = log_weights, group_sizes, counts
    if not (log_weights.shape == group_sizes.shape == counts.shape):
        urn = torch.broadcast_tensors(*urn)
    if can_call(log_weights.detach(), group_sizes, counts):  # the C kernel merges groups itself
        return _LogProb.of(*urn)
    if urn[2].shape[-1] >= _FEWEST_TO_MERGE and can_read(counts) and counts.numel():
        drawn = int((urn[2] > 0).sum(-1).amax())
        if 2 * drawn < urn[2].shape[-1]:
            urn = _merged(drawn, *urn)
    return _LogProb.of(*urn)


def _merged(
    drawn: int, log_weights: Tensor, group_sizes: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """An urn ``(..., drawn + 1)`` in which groups that are not drawn are one ball of weight Σωm.

    They matter only by the time of their first arrival, whose rate is Σωm.
    """
    places = (counts > 0).to(torch.uint8).topk(drawn, sorted=False).indices
    apart = torch.zeros_like(counts, dtype=torch.bool).scatter(-1, places, True)
    merged = ~apart & (group_sizes > 0)
    some = merged.any(-1, keepdim=True)
    rates = torch.where(merged, log_weights + group_sizes.clamp(min=1).log(), -torch.inf)
    rate = torch.logsumexp(torch.where(some, rates, 0.0), -1, keepdim=True)
    rest = torch.where(some, rate, 0.0), some.to(counts.dtype), torch.zeros_like(rate)
    columns = (x.gather(-1, places) for x in (log_weights, group_sizes, counts))
    weights, sizes, x = (torch.cat(pair, -1) for pair in zip(columns, rest, strict=True))
    return weights, sizes, x
