r"""Wallenius' law as a race: every ball of group j arrives after an exponential time of rate ω_j,
and the first n are drawn.

At time s group j has lost Binomial(m_j, 1 - e^{-ω_j s}) balls, independently of the others, and the
state x is left at the rate D = Σ_j ω_j (m_j - x_j). The race passes through x with the probability
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

# The logarithm of rate × time beyond which all balls of a group have arrived, and below whose
# negative none has.
_LOG_LARGEST = 700.0


def arrived(log_y: Tensor) -> Tensor:
    """y = rate × time, kept within float64."""
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
    # as -log(1 + 1/(e^y - 1)): relatively accurate both where y is small and where the result is
    return (log_y - within).clamp(max=0) - torch.log1p(torch.expm1(torch.exp(within)).reciprocal())


def saturation(y: Tensor) -> Tensor:
    """b(y) = y / (e^y - 1): one for groups that are still full, zero for those that are used up."""
    return torch.where(y < 1e-8, 1 - 0.5 * y, y / torch.expm1(y.clamp(min=1e-8)))


@dataclass(frozen=True)
class _State:
    """A state x of the race and where in time it is left. All tensors have one batch shape; the
    last dimension is the groups.
    """

    log_weights: Tensor
    group_sizes: Tensor
    counts: Tensor
    certain: Tensor  # (...): nothing drawn or everything, so the race passes through x for sure
    log_rate: Tensor  # (...): log D, and 0 where certain
    rate_shares: Tensor  # ω_j (m_j - x_j) / D
    can_look: bool  # whether values can be read

    @classmethod
    def of(cls, log_weights: Tensor, group_sizes: Tensor, counts: Tensor) -> _State:
        left = group_sizes - counts
        log_rates = torch.where(left > 0, log_weights + torch.log(left), -torch.inf)
        certain = (counts.sum(-1) == 0) | (log_rates == -torch.inf).all(-1)
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
        drawn = (self.counts.unsqueeze(-2) * saturation(self.times(u))).sum(-1)
        return 1 + drawn - torch.exp(self.log_rate.unsqueeze(-1) + u)

    def log_density(self, u: Tensor, peak: Tensor) -> Tensor:
        """The logarithm of the integrand at u (..., T) less that at the peak (...), from
        differences instead of large terms.
        """
        distance = u - peak.unsqueeze(-1)
        log_at_peak = self.log_times(peak.unsqueeze(-1))
        at_peak = arrived(log_at_peak)
        # log (1 - e^-y) / (1 - e^-y*): relative to y* while that is small, by subtraction where y*
        # has long saturated.
        relative = torch.log1p(
            (-torch.expm1(-at_peak * torch.expm1(distance).unsqueeze(-1)))
            / torch.expm1(at_peak.clamp(max=50.0))
        )
        near = (distance.abs().unsqueeze(-1) < 0.5) & (at_peak < 50)
        if self.can_look and bool(near.all()):
            gain = relative
        else:
            far = log_share_arrived(self.log_times(u)) - log_share_arrived(log_at_peak)
            gain = torch.where(near, relative, far)
        gain = torch.where(
            self.counts.unsqueeze(-2) > 0, self.counts.unsqueeze(-2) * gain, 0.0
        ).sum(-1)
        return (
            distance + gain - torch.exp(self.log_rate + peak).unsqueeze(-1) * torch.expm1(distance)
        )

    def grid(self) -> TimeGrid:
        draws = self.counts.sum(-1)
        low, high = (
            -self.log_rate,
            torch.log1p(draws) - self.log_rate,
        )  # at the peak D s = 1 + Σ x b with 0 < b < 1
        return time_grid(lambda u: self.log_density(u, low), self.slope, low, high, draws)


def _grid(log_weights: Tensor, group_sizes: Tensor, counts: Tensor) -> TimeGrid:
    return _State.of(log_weights, group_sizes, counts).grid()


def _log_prob(
    grid: TimeGrid, number: int, log_weights: Tensor, group_sizes: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor]:
    state = _State.of(log_weights, group_sizes, counts)
    log_integral, disagreement = log_trapezoid(
        state.log_density(grid.nodes(number), grid.peak), grid.length
    )
    at_peak = binomial_log_pmf(
        counts, group_sizes, log_odds_of_arrival(log_weights + grid.peak.unsqueeze(-1))
    ).sum(-1)
    log_prob = at_peak + state.log_rate + grid.peak + log_integral
    return torch.where(state.certain, 0.0, log_prob), torch.where(state.certain, 0.0, disagreement)


def _derivatives(
    grid: TimeGrid, number: int, log_weights: Tensor, group_sizes: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """Score and observed information, stacked to shape (..., c + 1, c).

    With a_j = x_j b(y_j) - (m_j - x_j) y_j the derivative of the log-integrand in log ω_j, and
    averages over the normalised integrand, the score is E a_j + w_j, and the second derivatives are
    Cov(a_i, a_j) + δ_ij (E ∂a_j + w_j) - w_i w_j, where w = ω (m - x) / D.
    """
    state = _State.of(log_weights, group_sizes, counts)
    u = grid.nodes(number)
    log_density = state.log_density(u, grid.peak)
    _, disagreement = log_trapezoid(log_density, grid.length)
    share = torch.softmax(log_density, -1).unsqueeze(-1)
    y, x, left = state.times(u), counts.unsqueeze(-2), (group_sizes - counts).unsqueeze(-2)
    b = saturation(y)
    waiting = torch.where(left > 0, left * y, 0.0)
    a = x * b - waiting
    average = (share * a).sum(-2)
    spread = a - average.unsqueeze(-2)
    curvature = (share * (x * b * (1 - y - b) - waiting)).sum(-2)
    w = state.rate_shares
    hessian = (
        (share * spread).mT @ spread
        + torch.diag_embed(curvature + w)
        - w.unsqueeze(-1) * w.unsqueeze(-2)
    )
    stacked = torch.cat([(average + w).unsqueeze(-2), -hessian], -2)
    certain = state.certain
    return torch.where(certain[..., None, None], 0.0, stacked), torch.where(
        certain, 0.0, disagreement
    )


def _log_prob_and_derivatives(grid: TimeGrid, number: int, *state: Tensor) -> tuple[Tensor, Tensor]:
    """All of the two above on one grid, flattened to shape (..., 1 + (c + 1) c)."""
    log_prob, disagreement = _log_prob(grid, number, *state)
    stacked, _ = _derivatives(grid, number, *state)
    return torch.cat([log_prob.unsqueeze(-1), stacked.flatten(-2)], -1), disagreement


def _integrate(kernel: Any, *operands: Tensor) -> Tensor:
    work = operands[0].shape[-1]
    return integrate(
        _grid, kernel, *operands, events=(1, 1, 1), work=work, agreement=CLOSE_AGREEMENT
    )


def log_prob_and_derivatives(
    log_weights: Tensor, group_sizes: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """log P(x) ``(...)``, its gradient in log ω ``(..., c)`` and the negative of its Hessian
    ``(..., c, c)``.
    """
    flat = _integrate(_log_prob_and_derivatives, log_weights, group_sizes, counts)
    stacked = flat[..., 1:].unflatten(-1, (-1, log_weights.shape[-1]))
    return flat[..., 0], stacked[..., 0, :], stacked[..., 1:, :]


class _LogProb(ClosedForm):
    @staticmethod
    def forward(log_weights: Tensor, group_sizes: Tensor, counts: Tensor) -> Tensor:
        return _integrate(_log_prob, log_weights, group_sizes, counts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return grads[0].unsqueeze(-1) * _Score.of(*ctx.saved_tensors), None, None

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        return (tangents[0] * _Score.of(*ctx.saved_tensors)).sum(-1)


class _Score(ClosedForm):
    @staticmethod
    def forward(log_weights: Tensor, group_sizes: Tensor, counts: Tensor) -> Tensor:
        return _integrate(_derivatives, log_weights, group_sizes, counts)[..., 0, :]

    @staticmethod
    def _product(ctx: Any, vector: Tensor) -> Tensor:
        information = _integrate(_derivatives, *ctx.saved_tensors)[..., 1:, :]
        return -(information @ vector.unsqueeze(-1)).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _Score._product(ctx, grads[0]), None, None

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        return _Score._product(ctx, tangents[0])


def log_prob(log_weights: Tensor, group_sizes: Tensor, counts: Tensor) -> Tensor:
    """log P(x) for whole counts ``(..., c)`` within their groups, float64; differentiable twice in
    log ω.
    """
    return _LogProb.of(*torch.broadcast_tensors(log_weights, group_sizes, counts))
