"""Wallenius' multivariate noncentral hypergeometric distribution."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from diffurn._composition import Composition
from diffurn._fisher.tilt import holder_of
from diffurn._numerics.tracing import asks_for_derivative, can_check, can_read
from diffurn._urn import Urn
from diffurn._wallenius import integral as wallenius
from diffurn._wallenius import marginals as wallenius_tails
from diffurn._wallenius import moments as arrivals
from diffurn._wallenius import outcomes as wallenius_table
from diffurn._wallenius import sampling as race
from diffurn._wallenius import sequential as one_by_one

# Balls that are e^600 times as likely as the n-th heaviest one are all drawn, and those e^600 times
# less likely are not, to any digit of a moment. Logarithms of probabilities may be smaller, so they
# take weights as they are.
_FARTHEST = 600.0


class WalleniusHypergeometric(Urn):
    r"""The counts of each group when n balls are taken one after another, each with a probability
    proportional to its weight:

    .. math::
        P(x) = \prod_{j=1}^c \binom{m_j}{x_j} \int_0^1 \prod_{j=1}^c (1 - t^{ω_j / D})^{x_j}\, dt,
        \qquad D = \sum_j ω_j (m_j - x_j).

    **Wallenius or Fisher?** Wallenius' law is right where balls compete for a fixed number of
    places: each draw sees what those before it have left (prey taken by a predator until it is
    full, seats given out one by one). Fisher's law (`FisherHypergeometric`) is right where every
    ball is taken or not on its own, and the total is only known afterwards (survivors, infections,
    genes that are hit). The two agree for equal weights and for n = 1, are close for small n/N, and
    differ most where a heavy group runs out. Multiplying all weights by one factor changes neither.
    For c = 2 this is SciPy's ``nchypergeom_wallenius``.

    Everything is exact up to rounding, float64 inside, by one integral over the time of a race of
    exponential clocks: probabilities
    directly, moments and marginals on top of Fisher's exact law. Small urns with sizes given as
    plain numbers, or on the host, are followed ball by ball instead, so that a draw with its
    gradient can stand in a compiled training step. Densities are differentiable twice in the
    weights, the mean as well; a weight of zero gets no gradient. The law is no exponential family:
    `rsample`, whose draws are hard and exact, sends gradients back by ∂mean/∂log ω, which is not
    the covariance.

    References: K. T. Wallenius, *Biased sampling: the noncentral hypergeometric probability
    distribution* (1963); J. Chesson, *A
    non-central multivariate hypergeometric distribution arising from biased sampling* (1976); A.
    Fog, *Calculation methods for Wallenius' noncentral hypergeometric distribution* (2008).

    Args:
        group_sizes: m, integers ≥ 0, shape ``(..., c)``.
        draws: n, integers from 0 to the number of balls with positive weight, shape ``(...)``.
        weights: ω ≥ 0, shape ``(..., c)``; a group of weight 0 is never drawn.
        log_weights: log ω instead, -inf allowed; exactly one of the two. All arguments broadcast.
        validate_args: check arguments and values (the default, as in torch); checks are skipped
            under ``torch.compile`` and ``vmap``.

    Example:
        >>> weights = torch.tensor([1.0, 2.0, 0.5])
        >>> urn = WalleniusHypergeometric(group_sizes=[10, 7, 8], draws=9, weights=weights)
        >>> urn.log_prob(torch.tensor([4.0, 3.0, 2.0])).exp()
        tensor(0.0890)
        >>> urn.mean
        tensor([3.4572, 4.0292, 1.5136])
    """

    def log_prob(self, value: Any) -> Tensor:
        """log P(x), differentiable twice in the weights; -inf where Σx is not n and where a group
        of weight zero is drawn.
        """
        x = self._checked_value(value)
        possible = (x.sum(-1) == self.draws) & ((x >= 0) & (x <= self._drawable())).all(-1)
        urns, whole = self._operands(), torch.where(possible.unsqueeze(-1), x, 0.0)
        states = self._states_for_probabilities(*urns, possible.numel())
        log_prob = (
            wallenius.log_prob(*urns[:2], whole)
            if states is None
            else one_by_one.log_prob(states, *urns, whole)
        )
        log_prob = torch.where(self._fixed().all(-1), 0.0, log_prob)
        return self._or_nan(torch.where(possible, log_prob.clamp(max=0), -torch.inf))

    def _states_for_probabilities(
        self, log_weights: Tensor, group_sizes: Tensor, draws: Tensor, number: int
    ) -> one_by_one.States | None:
        """Where following the balls is faster than so many integrals, and not differentiated."""
        parameter: Tensor = getattr(self, self._parameter)
        if (
            asks_for_derivative(parameter)
            or not can_read(parameter)
            or (states := self._states()) is None
        ):
            return None
        return (
            states
            if one_by_one.pays_for_probabilities(states, log_weights, group_sizes, draws, number)
            else None
        )

    @property
    def mean(self) -> Tensor:
        """E[x], shape (..., c)."""
        urns = self._operands_within_reach()
        states = None if self._is_too_wide_to_differentiate(urns[0]) else self._states()
        return self._or_nan(
            arrivals.mean(*urns) if states is None else one_by_one.mean(states, *urns), event_dims=1
        )

    def _is_too_wide_to_differentiate(self, log_weights: Tensor) -> bool:
        """Whether derivatives of the law of all states, which hold squares of weights, would
        overflow.
        """
        if (
            not asks_for_derivative(getattr(self, self._parameter))
            or not can_read(log_weights)
            or not log_weights.numel()
        ):
            return False
        return float((log_weights.amax() - log_weights.amin()).detach()) > _FARTHEST / 2

    @property
    def variance(self) -> Tensor:
        """Var[x_j] of each group, shape (..., c)."""
        return self.covariance_matrix.diagonal(dim1=-2, dim2=-1)

    @property
    def covariance_matrix(self) -> Tensor:
        """Cov[x], shape (..., c, c); rows sum to zero."""
        states, urns = self._states(), self._operands_within_reach()
        covariance = (
            arrivals.covariance(*urns) if states is None else one_by_one.covariance(states, *urns)
        )
        return self._or_nan(torch.where(self._fixed_pairs(), 0.0, covariance), event_dims=2)

    def marginal_log_prob(self, value: Any) -> Tensor:
        """log P(X_j = x_j), each group on its own: shape (..., c)."""
        x = self._checked_value(value, joint=False)
        lowest, highest = self._marginal_support()
        possible = (x >= lowest) & (x <= highest)
        certain = lowest == highest
        log_prob = arrivals.marginal_log_prob(
            *self._operands(), torch.where(possible & ~certain, x, lowest)
        )
        return self._or_nan(
            torch.where(possible, torch.where(certain, 0.0, log_prob), -torch.inf), event_dims=1
        )

    def _marginal_log_tails(self, x: Tensor) -> tuple[Tensor, Tensor]:
        urns = self._operands()
        states = self._states_for_probabilities(*urns, x.numel())
        return (
            wallenius_tails.log_tails(*urns, x)
            if states is None
            else one_by_one.log_tails(states, *urns, x)
        )

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Exact draws, holding integers with 0 ≤ x ≤ m and Σx = n, in the dtype of the weights."""
        shape, number = self._shape_of_draws(sample_shape)
        with torch.no_grad():
            urns, small = self._operands_within_reach(), self._composition
            counts = self._sample_from_table(small, *urns, number)
            counts = self._sample_each(small, *urns, number) if counts is None else counts
            return self._or_nan(counts.reshape(shape), event_dims=1)

    def _sample_from_table(
        self,
        small: Composition | None,
        log_weights: Tensor,
        group_sizes: Tensor,
        draws: Tensor,
        number: int,
    ) -> Tensor | None:
        """Where all draws are of one urn, and it has few outcomes."""
        if self.batch_shape.numel() != 1 or (
            not self._is_checked() and can_check() and not bool(self._is_valid())
        ):
            return None
        urn = log_weights.flatten(), group_sizes.flatten(), draws.reshape(())
        return wallenius_table.sample_from_table(
            *urn, one_by_one.States.of(small), number, self.dtype
        )

    def _sample_each(
        self,
        small: Composition | None,
        log_weights: Tensor,
        group_sizes: Tensor,
        draws: Tensor,
        number: int,
    ) -> Tensor:
        groups = self.event_shape[0]
        log_weights, group_sizes, draws = (
            operand.expand(number, *operand.shape) for operand in (log_weights, group_sizes, draws)
        )
        rows = log_weights.reshape(-1, groups), group_sizes.reshape(-1, groups), draws.reshape(-1)
        if small is None or small.most_draws > one_by_one.MOST_DRAWS:
            return race.draw_by_race(*rows)
        return one_by_one.draw(small.most_draws, *rows)

    def _states(self) -> one_by_one.States | None:
        return one_by_one.States.of(self._composition)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """The draws of `sample`; backward they are E[x], whose exact Jacobian ∂mean/∂log ω carries
        the gradient.
        """
        mean = self.mean
        return self.sample(sample_shape) + (mean - mean.detach())

    def _operands(self) -> tuple[Tensor, Tensor, Tensor]:
        """log ω relative to the heaviest group, drawable group sizes, and n, in float64; log ω = 0
        for groups that cannot be drawn.
        """
        parameter: Tensor = getattr(self, self._parameter).double()
        group_sizes, draws = self._drawable().double(), self._draws_or_nan()
        some = group_sizes > 0
        log_weights = self._as_log_weights(torch.where(some, parameter, 1.0))
        heaviest = torch.where(some, log_weights.detach(), -torch.inf).amax(-1, keepdim=True)
        return torch.where(some, log_weights - heaviest, 0.0), group_sizes, draws

    def _operands_within_reach(self) -> tuple[Tensor, Tensor, Tensor]:
        """The same for moments and draws: log ω relative to the n-th heaviest ball, where some are
        too far apart to be exponentiated.
        """
        log_weights, group_sizes, draws = self._operands()
        if can_read(log_weights) and (
            not log_weights.numel() or float(log_weights.detach().amin()) >= -_FARTHEST
        ):
            return log_weights, group_sizes, draws
        some = group_sizes > 0
        holder, _, _ = holder_of(
            draws.clamp(min=1), torch.where(some, log_weights.detach(), -torch.inf), group_sizes
        )
        relative = torch.where(some, log_weights - holder.unsqueeze(-1), 0.0)
        return relative.clamp(-_FARTHEST, _FARTHEST), group_sizes, draws
