r"""Moments of Wallenius' law, as integrals over time of moments of Fisher's law.

In the race of `probabilities`, the counts at time s, given that n balls have arrived, follow
Fisher's law with the odds e^{ω_j s} - 1. The race leaves the states of n balls at the rate
D(X) = Σ_j ω_j (m_j - X_j), so for any function h

.. math:: E[h(X)] = \int_0^∞ P(S_s = n)\, E[D(X) h(X) \mid S_s = n]\, ds.

With h = 1 the integrand is the density of the time of draw n + 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from diffurn._fisher import moments as fisher
from diffurn._fisher.accuracy import NODES
from diffurn._fisher.tilt import log_tilt
from diffurn._kernels.dispatch import primitive
from diffurn._numerics.autograd import ClosedForm, pulled_back
from diffurn._numerics.tracing import can_check
from diffurn._wallenius.probabilities import (
    arrived,
    log_odds_of_arrival,
    log_share_arrived,
    saturation,
)
from diffurn._wallenius.quadrature import (
    DEPTH_OF_ALL_STATES,
    TimeGrid,
    averages_on_grid,
    disagreement_of_mass,
    integrate,
    time_grid,
)

# The largest log-odds that a ball has arrived. Larger ones change no probability, but lose digits
# of the other groups.
_LARGEST_LOG_ODDS = 1000.0
# The largest log of rate × time, beyond which derivatives would overflow.
_LARGEST_LOG_TIME = 100.0
# Means below this share of the draws have integrals of their own, since the sum over all states is
# cut off DEPTH_OF_ALL_STATES nats below its peak.
_RARE = 1e-18


@dataclass(frozen=True)
class Moment:
    """Fisher's urn of the balls that have arrived at log times u ``(..., T)``, given n arrivals."""

    log_odds: Tensor  # (..., T, c)
    group_sizes: Tensor  # (..., T, c)
    draws: Tensor  # (..., T)
    arrivals: Tensor  # ω_j s, (..., T, c)

    @classmethod
    def at(cls, u: Tensor, log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Moment:
        log_times = log_weights.unsqueeze(-2) + u.unsqueeze(-1)
        sizes = group_sizes.unsqueeze(-2).expand(log_times.shape)
        log_odds = log_odds_of_arrival(log_times).clamp(max=_LARGEST_LOG_ODDS)
        n = draws.unsqueeze(-1).expand(u.shape)
        return cls(log_odds, sizes, n, arrived(log_times.clamp(max=_LARGEST_LOG_TIME)))

    @cached_property
    def _tilts(self) -> tuple[Tensor, Tensor]:
        """The tilts to n - ½, for the balls drawn, and to n + ½, for the balls left."""
        low, high = fisher.tilts_around(self.log_odds, self.group_sizes, self.draws).unbind(0)
        return low, high

    def log_mass(self) -> Tensor:
        """log P(S_s = n)."""
        return fisher.retilted_log_mass(self.log_odds, self.group_sizes, self.draws, self._tilts[0])

    @cached_property
    def drawn(self) -> Tensor:
        """E[X_j | S_s = n]."""
        tilted = self.log_odds + self._tilts[0].unsqueeze(-1)
        return fisher.mean(tilted, self.group_sizes, self.draws)

    @cached_property
    def left(self) -> Tensor:
        """E[m_j - X_j | S_s = n], relatively accurate in each entry.

        The balls that are left follow Fisher's law, too, with inverse odds.
        """
        tilted = -self.log_odds - self._tilts[1].unsqueeze(-1)
        return fisher.mean(tilted, self.group_sizes, self.group_sizes.sum(-1) - self.draws)

    def slope(self) -> Tensor:
        """The derivative of log(P(S_s = n) s) in u."""
        return (self.drawn * saturation(self.arrivals) - self.left * self.arrivals).sum(-1) + 1

    def rate(self) -> Tensor:
        """E[D s | S_s = n], the rate of the next draw in log time."""
        return (self.left * self.arrivals).sum(-1)

    def log_next_draw(self) -> Tensor:
        """The log-density in u of the time of draw n + 1, log P(S_s = n) + log E[D s | S_s = n]."""
        return self.log_mass() + torch.log(self.rate())

    def drawn_before_next(self) -> Tensor:
        """E[X] just before draw n + 1, given its time: E[D X] / E[D] = μ - Cov[X] ω / E[D]."""
        centring = 0.5 * (self._tilts[0] + self._tilts[1])
        product = fisher.covariance_product(
            self.log_odds, self.group_sizes, self.draws, self.arrivals, centring
        )
        return self.drawn - product / self.rate().unsqueeze(-1)

    def meeting(self, v: Tensor) -> Tensor:
        """Σ_i y_i v_i E[L_i L_j | S_s = n] y_j for balls left L: shape (..., T, c)."""
        centring = 0.5 * (self._tilts[0] + self._tilts[1])
        vector = self.arrivals * v
        spread = fisher.covariance_product(
            self.log_odds, self.group_sizes, self.draws, vector, centring
        )
        return self.arrivals * (self.left * (self.left * vector).sum(-1, keepdim=True) + spread)


def bracket(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Log times between which `Moment.slope`, 1 + E Σ X b - E[D] s, changes its sign.

    This holds because 0 < b < 1 and at least one ball is left.
    """
    some = group_sizes > 0
    total = torch.logsumexp(torch.where(some, log_weights + torch.log(group_sizes), -torch.inf), -1)
    slowest = torch.where(some, log_weights, torch.inf).amin(-1)
    return -total, torch.log1p(draws) - slowest


def _grid(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> TimeGrid:
    urn = log_weights, group_sizes, draws
    low, high = bracket(*urn)
    return time_grid(
        lambda u: Moment.at(u, *urn).log_next_draw(),
        lambda u: Moment.at(u, *urn).slope(),
        low,
        high,
        draws,
        DEPTH_OF_ALL_STATES,
    )


def _grid_of_last_draw(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> TimeGrid:
    return _grid(log_weights, group_sizes, draws - 1)


def _mean(
    grid: TimeGrid, number: int, log_weights: Tensor, group_sizes: Tensor, draws: Tensor
) -> tuple[Tensor, Tensor]:
    moment = Moment.at(grid.nodes(number), log_weights, group_sizes, draws)
    return averages_on_grid(moment.log_next_draw(), moment.drawn_before_next())


def _covariance(
    grid: TimeGrid, number: int, log_weights: Tensor, group_sizes: Tensor, draws: Tensor
) -> tuple[Tensor, Tensor]:
    """E[X], and Cov[X] below it, as those of a mixture over the time and group k of the next draw.

    Given these, a ball of group k is left, and the counts follow Fisher's law of the urn without
    that ball. The shape is (..., 1 + c, c).
    """
    moment = Moment.at(grid.nodes(number), log_weights, group_sizes, draws)
    rates = moment.left * moment.arrivals
    # (..., T, k), -inf where no ball of k is left.
    log_density = moment.log_mass().unsqueeze(-1) + torch.log(rates)
    log_odds, sizes, n = _one_ball_fewer(moment)
    tilted = log_odds + log_tilt(log_odds, sizes, n).unsqueeze(-1)
    drawn = fisher.mean(tilted, sizes, n)
    within = fisher.covariance(log_odds, sizes, n)
    halves = (
        (log_density[..., ::step, :], drawn[..., ::step, :, :], within[..., ::step, :, :, :])
        for step in (1, 2)
    )
    fine, coarse = (_mixed(*nodes) for nodes in halves)
    apart = (fine - coarse).abs() / fine.abs().clamp(min=torch.finfo(fine.dtype).tiny)
    return fine, apart.diagonal(-1, -2, -1).amax(-1)


def _one_ball_fewer(moment: Moment) -> tuple[Tensor, Tensor, Tensor]:
    """Fisher's urns without one ball of group k, for every k: ``(..., T, k, c)``.

    The full urn takes their place if too few balls are left.
    """
    sizes, draws = moment.group_sizes.unsqueeze(-2), moment.draws.unsqueeze(-1)
    own = torch.eye(sizes.shape[-1], dtype=sizes.dtype, device=sizes.device)
    fewer = (sizes - own).clamp(min=0)
    fewer = torch.where((fewer.sum(-1) >= draws).unsqueeze(-1), fewer, sizes)
    log_odds = moment.log_odds.unsqueeze(-2).expand_as(fewer)
    return log_odds, fewer, draws.expand(fewer.shape[:-1])


def _mixed(log_density: Tensor, means: Tensor, covariances: Tensor) -> Tensor:
    """The mean of a mixture, and its covariance below it: ``(..., 1 + c, c)``.

    Args:
        log_density: the unnormalised log-weights, ``(..., T, k)``.
        means: of the components, ``(..., T, k, c)``.
        covariances: of the components, ``(..., T, k, c, c)``.
    """
    share = torch.softmax(log_density.flatten(-2), -1).unsqueeze(-1)
    means = means.flatten(-3, -2)
    mean = (share * means).sum(-2, keepdim=True)
    spread = means - mean
    within = (share.unsqueeze(-1) * covariances.flatten(-4, -3)).sum(-3)
    return torch.cat([mean, within + (share * spread).mT @ spread], -2)


def with_a_ball_left(group_sizes: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Group sizes with one more ball in each group if all balls are drawn.

    This avoids divisions by zero. The second result says which rows are unchanged.
    """
    as_it_was = draws < group_sizes.sum(-1)
    return group_sizes + (~as_it_was).unsqueeze(-1), as_it_was


def _rare_mean(
    grid: TimeGrid, number: int, log_weights: Tensor, group_sizes: Tensor, draws: Tensor
) -> tuple[Tensor, Tensor]:
    """The means of groups that are so rare that they do not affect the time of draw n.

    A ball of such a group is drawn if it arrives before that time.
    """
    u = grid.nodes(number)
    moment = Moment.at(u, log_weights, group_sizes, draws - 1)
    by_then = torch.exp(log_share_arrived(log_weights.unsqueeze(-2) + u.unsqueeze(-1)))
    return averages_on_grid(moment.log_next_draw(), group_sizes.unsqueeze(-2) * by_then)


class _Mean(ClosedForm):
    @staticmethod
    def forward(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            from diffurn._wallenius import compiled

            return compiled.mean(log_weights, group_sizes, draws)
        return mean_value(log_weights, group_sizes, draws)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        log_weights, group_sizes, draws = ctx.saved_tensors
        return _product_with_jacobian(log_weights, group_sizes, draws, grads[0]), None, None


class _GivenDraws(ClosedForm):
    """Given draws ``(num_samples, ..., c)``, with the derivatives of the mean."""

    @staticmethod
    def forward(log_weights: Tensor, group_sizes: Tensor, draws: Tensor, counts: Tensor) -> Tensor:
        return counts.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        log_weights, group_sizes, draws, _ = ctx.saved_tensors
        vector = grads[0].sum(0)
        product = _product_with_jacobian(log_weights, group_sizes, draws, vector)
        return product, None, None, None


def _product_with_jacobian(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, vector: Tensor
) -> Tensor:
    operands = log_weights, group_sizes, draws, vector
    if torch.compiler.is_compiling():
        from diffurn._wallenius import compiled

        return compiled.mean_product(*operands)
    if torch.is_grad_enabled():  # the product may be differentiated in turn
        return _by_autograd(*operands)
    return mean_product(*operands)


def mean_value(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """E[X] of urns in which a ball is left, without a derivative."""
    urns = log_weights, group_sizes, draws
    mean = mean_by_integrals(*urns)
    rare = (mean < _RARE * draws.unsqueeze(-1)) & (group_sizes > 0)
    if not can_check() or not bool(rare.any()):
        return mean
    row, groups = torch.nonzero(rare.any(-1).reshape(-1)).squeeze(-1), mean.shape[-1]
    weights, sizes = (x.expand(mean.shape).reshape(-1, groups)[row] for x in urns[:2])
    total = draws.expand(mean.shape[:-1]).reshape(-1)[row].clamp(min=1)
    rows, work = (weights, sizes, total), NODES[1] * groups
    own = integrate(_grid_of_last_draw, _rare_mean, *rows, events=(1, 1, 0), work=work)
    flat = mean.reshape(-1, groups)
    own = torch.where(rare.reshape(-1, groups)[row], own, flat[row])
    return flat.index_put((row,), own).reshape(mean.shape)


@primitive
def mean_by_integrals(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """E[X] of groups that are not rare."""
    work = NODES[1] * log_weights.shape[-1]
    return integrate(_grid, _mean, log_weights, group_sizes, draws, events=(1, 1, 0), work=work)


def mean_product(log_weights: Tensor, group_sizes: Tensor, draws: Tensor, vector: Tensor) -> Tensor:
    r"""The product of a vector v with the Jacobian of the mean, without a derivative.

    A ball changes the outcome where it overtakes the last ball that is drawn, and so takes the
    place of it. Two balls of groups i and j meet at time s at the rate ω_i ω_j L_i L_j, with
    L = m - X the balls left. So with y = ωs and the log time u = log s,

    .. math:: \frac{∂E[X_i]}{∂\log ω_j} = -\int P(S_s = n - 1)\, y_i y_j\,
              E[L_i L_j \mid S_s = n - 1]\, du, \qquad i ≠ j,

    and the rows and columns of this symmetric matrix sum to zero.
    """
    # Without draws all derivatives are zero.
    some = (draws > 0).unsqueeze(-1)
    product = flow_by_integrals(log_weights, group_sizes, draws.clamp(min=1), vector)
    return torch.where(some, product, 0.0)


@primitive
def flow_by_integrals(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, vector: Tensor
) -> Tensor:
    """`mean_product` of urns with one draw or more."""
    operands, work = (log_weights, group_sizes, draws, vector), NODES[1] * log_weights.shape[-1]
    return integrate(
        lambda *urn: _grid_of_last_draw(*urn[:3]),
        _mean_product,
        *operands,
        events=(1, 1, 0, 1),
        work=work,
    )


def _mean_product(
    grid: TimeGrid,
    number: int,
    log_weights: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    vector: Tensor,
) -> tuple[Tensor, Tensor]:
    moment = Moment.at(grid.nodes(number), log_weights, group_sizes, draws - 1)
    rates = moment.left * moment.arrivals
    # The product depends on differences of v alone. Those from the group of the largest rate keep
    # its own, large terms out of the sums, in which they would cancel.
    v = vector.unsqueeze(-2)
    v = v - v.expand_as(rates).gather(-1, rates.argmax(-1, keepdim=True))
    meeting = moment.meeting(torch.ones_like(v))
    flow = v * meeting - moment.meeting(v)
    values = torch.cat([flow, meeting], -1) / moment.rate().unsqueeze(-1)
    log_density = moment.log_next_draw()
    both, _ = averages_on_grid(log_density, values)
    # The flow may cancel to zero, so nodes are enough if they are for its positive terms.
    _, apart = averages_on_grid(log_density, values[..., vector.shape[-1] :])
    apart = apart.maximum(disagreement_of_mass(log_density))
    return both[..., : vector.shape[-1]], apart


def _by_autograd(log_weights: Tensor, group_sizes: Tensor, draws: Tensor, vector: Tensor) -> Tensor:
    """`mean_product` with derivatives, in chunks.

    Each chunk evaluates the integral again, so that memory never holds all of it.
    """

    def product(
        times: TimeGrid, number: int, log_weights: Tensor, *fixed: Tensor
    ) -> tuple[Tensor, Tensor]:
        group_sizes, draws, vector = fixed

        def mean(x: Tensor) -> tuple[Tensor, Tensor]:
            # At equal weights the mean is the same at all times, but its derivatives are not. So
            # the nodes must be enough for the density as well.
            moment = Moment.at(times.nodes(number), x, group_sizes, draws)
            log_density = moment.log_next_draw()
            value, apart = averages_on_grid(log_density, moment.drawn_before_next())
            return value, apart.maximum(disagreement_of_mass(log_density.detach()))

        return pulled_back(mean, log_weights, vector)

    def grid(log_weights: Tensor, group_sizes: Tensor, draws: Tensor, vector: Tensor) -> TimeGrid:
        return _grid(log_weights, group_sizes, draws)

    work = NODES[1] * vector.shape[-1]
    operands = log_weights, group_sizes, draws, vector
    return integrate(grid, product, *operands, events=(1, 1, 0, 1), work=work)


def mean(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """E[X], shape (..., c), for finite log ω."""
    sizes, open_ended = with_a_ball_left(group_sizes, draws)
    open_ended = open_ended.unsqueeze(-1)
    # If all balls are drawn, the weights do not matter, and their derivatives must not become NaN.
    log_weights = torch.where(open_ended, log_weights, 0.0)
    return torch.where(open_ended, _Mean.of(log_weights, sizes, draws), group_sizes)


def given_draws(log_weights: Tensor, group_sizes: Tensor, draws: Tensor, counts: Tensor) -> Tensor:
    """Draws ``(num_samples, ..., c)``, with the derivatives of `mean`, which is not computed."""
    sizes, open_ended = with_a_ball_left(group_sizes, draws)
    log_weights = torch.where(open_ended.unsqueeze(-1), log_weights, 0.0)
    return _GivenDraws.of(log_weights, sizes, draws, counts)


@primitive
def covariance_by_integrals(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """E[X] and below it Cov[X], shape (..., 1 + c, c), of urns in which a ball is left."""
    work = NODES[1] * log_weights.shape[-1] ** 2
    urns = log_weights, group_sizes, draws
    return integrate(_grid, _covariance, *urns, events=(1, 1, 0), work=work)


def covariance(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """Cov[X], shape (..., c, c)."""
    sizes, open_ended = with_a_ball_left(group_sizes, draws)
    both = covariance_by_integrals(log_weights, sizes, draws)
    average, moment = both[..., 0, :], both[..., 1:, :]
    # Rows sum to zero. The entries of the group of the largest mean, which has the largest rounding
    # errors, follow from those of the others.
    largest = torch.nn.functional.one_hot(average.argmax(-1), sizes.shape[-1]).to(sizes.dtype)
    across = largest.unsqueeze(-1)
    kept = open_ended[..., None, None] & (across == 0) & (across.mT == 0)
    moment = torch.where(kept, moment, 0.0)
    sums = moment.sum(-1, keepdim=True)
    of_largest = sums.sum(-2, keepdim=True).clamp(min=0)
    return moment - sums * across.mT - across * sums.mT + of_largest * across * across.mT
