r"""Wallenius' law of small urns as it is defined, ball by ball: for all states of an urn at once,
or for one draw each.

In state x the next ball is of group j with probability :math:`ω_j (m_j - x_j) / D(x)`, :math:`D(x)
= \sum_j ω_j (m_j - x_j)`, so

.. math:: P_{k+1}(x) = \sum_j P_k(x - e_j) \frac{ω_j (m_j - x_j + 1)}{D(x - e_j)}.

All terms are positive: every probability, and every mean, is relatively accurate. The number of a
state has the counts of all groups but one as its digits; what is left of k is the count of that
one. A ball more of group j leads so many places on as its digit is worth, modulo the number of
states: wrapping around would start where all balls of a group are drawn, and none comes from there.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from diffurn._composition import Composition
from diffurn._fisher.tabulated import chosen_column
from diffurn._numerics.autograd import ClosedForm, pulled_back
from diffurn._numerics.batching import elements_per_chunk, in_chunks
from diffurn._numerics.shapes import common_shape
from diffurn._numerics.tracing import can_check

# Steps × states × groups beyond which integrals over time are faster, if there are many urns.
_MOST_WORK = 1 << 16
# Balls of a draw beyond which a race is faster.
MOST_DRAWS = 64
# Of all laws together, where one probability each is wanted: per probability, and in any case.
_WORK_PER_PROBABILITY = 1500
_WORK_FOR_ANY = 1 << 17
# The smallest probabilities must not underflow: nats.
_DEEPEST = 600.0


class States(NamedTuple):
    """The states of a batch of small urns.

    Attributes:
        rest: the group whose count is no digit.
        bases: for each of the others one more than the most balls of it that any of the urns draws;
            F states in all.
        draws: the most that any of the urns draws.
        ragged: whether others draw less.
    """

    rest: int
    bases: tuple[int, ...]
    draws: int
    ragged: bool

    @classmethod
    def of(cls, urns: Composition | None) -> States | None:
        """None if there are too many of them, or if the host does not know."""
        if urns is None:
            return None
        bases = [min(urns.largest(j), urns.most_draws) + 1 for j in range(urns.groups)]
        rest = max(range(urns.groups), key=bases.__getitem__)
        states = cls(
            rest, tuple(bases[:rest] + bases[rest + 1 :]), urns.most_draws, len(set(urns.draws)) > 1
        )
        return states if states.work <= _MOST_WORK else None

    @property
    def number(self) -> int:
        return math.prod(self.bases)

    @property
    def places(self) -> list[int]:
        """What each digit is worth."""
        return [math.prod(self.bases[i + 1 :]) for i in range(len(self.bases))]

    @property
    def work(self) -> int:
        return (self.draws + 1) * self.number * (len(self.bases) + 1)

    def held(self, device: torch.device) -> int:
        """What counts for the length of pieces of a batch; on a CPU a step's calls cost more than
        memory that leaves the cache.
        """
        return -(-self.work // 8) if device.type == "cpu" else self.work

    def digits(self, like: Tensor) -> Tensor:
        """``(c - 1, F)``."""
        number = torch.arange(self.number, device=like.device)
        return torch.stack(
            [number // place % base for place, base in zip(self.places, self.bases, strict=True)]
        ).to(like.dtype)

    def counts(self, draws: Tensor) -> Tensor:
        """Of all groups after n draws ``(...)``: ``(..., c, F)``. Where digits are more than n they
        are negative, and impossible.
        """
        digits = self.digits(draws)
        rest = draws[..., None, None] - digits.sum(0)
        digits = digits.expand(*rest.shape[:-2], *digits.shape)
        return torch.cat([digits[..., : self.rest, :], rest, digits[..., self.rest :, :]], -2)

    def number_of(self, counts: Tensor) -> Tensor:
        """Of the state of possible counts ``(..., c)``, int64."""
        digits = self._counted(counts).to(torch.int64).unbind(-1)
        return torch.stack(
            [digit * place for digit, place in zip(digits, self.places, strict=True)], -1
        ).sum(-1)

    def law(self, log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
        """P(x) of every state after n draws, ``(..., F)``."""
        rates, rates_of_rest = self._rates(log_weights.exp(), group_sizes)
        total = rates.sum(-2, keepdim=True) + rates_of_rest
        waits = torch.where(
            total > 0, total, 1.0
        ).reciprocal()  # no ball is left in states that cannot be
        into = self._into(rates.device)
        law = torch.zeros_like(rates[..., 0, :]).index_fill(-1, into.new_zeros(1), 1.0)
        for step, (wait, rate_of_rest) in enumerate(
            zip(waits.unbind(-2), rates_of_rest.unbind(-2), strict=True)
        ):
            left = law * wait
            arriving = (
                (left.unsqueeze(-2) * rates)
                .flatten(-2)
                .index_select(-1, into)
                .unflatten(-1, rates.shape[-2:])
                .sum(-2)
            )
            after = torch.addcmul(arriving, left, rate_of_rest)
            law = torch.where((draws > step).unsqueeze(-1), after, law) if self.ragged else after
        return law / law.sum(-1, keepdim=True)

    def _rates(self, weights: Tensor, group_sizes: Tensor) -> tuple[Tensor, Tensor]:
        """ω_j (m_j - x_j) of the groups that are counted, ``(..., c - 1, F)``, and of the rest at
        every step, ``(..., n, F)``.
        """
        digits = self.digits(weights)
        rates = self._counted(weights).unsqueeze(-1) * (
            self._counted(group_sizes).unsqueeze(-1) - digits
        ).clamp(min=0)
        step = torch.arange(self.draws, dtype=weights.dtype, device=weights.device).unsqueeze(-1)
        left = group_sizes[..., self.rest, None, None] - (step - digits.sum(0))
        return rates, weights[..., self.rest, None, None] * left.clamp(min=0)

    def _counted(self, values: Tensor) -> Tensor:
        """All columns ``(..., c)`` but that of the rest."""
        return torch.cat([values[..., : self.rest], values[..., self.rest + 1 :]], -1)

    def _into(self, device: torch.device) -> Tensor:
        """For every state and counted group the state with one ball less, as a place in ``(c - 1,
        F)``.
        """
        number = torch.arange(self.number, device=device)
        return torch.cat(
            [
                i * self.number + (number - place) % self.number
                for i, place in enumerate(self.places)
            ]
        )


def _mean(states: States, log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    law = states.law(log_weights, group_sizes, draws)
    mean = (law.unsqueeze(-2) * states.counts(draws)).sum(-1)
    return (
        mean if states.draws else mean + 0 * log_weights
    )  # where nothing is drawn, weights have derivatives as well: zero


def _covariance(states: States, log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """Around the likeliest state, so that next to nothing is subtracted where that is almost
    certain.
    """
    law, counts = states.law(log_weights, group_sizes, draws), states.counts(draws)
    counts = counts.expand(*law.shape[:-1], *counts.shape[-2:])
    likeliest = law.detach().argmax(-1)[..., None, None].expand(*counts.shape[:-1], 1)
    deviation = counts - counts.gather(-1, likeliest)
    weighted = law.unsqueeze(-2) * deviation
    shift = weighted.sum(-1)
    return weighted @ deviation.mT - shift.unsqueeze(-1) * shift.unsqueeze(-2)


class _Mean(ClosedForm):
    """For long batches, whose steps should not all be held in memory until they are
    differentiated.
    """

    @staticmethod
    def forward(log_weights: Tensor, group_sizes: Tensor, draws: Tensor, states: States) -> Tensor:
        return in_chunks(
            partial(_mean, states),
            log_weights,
            group_sizes,
            draws,
            events=(1, 1, 0),
            work=states.held(log_weights.device),
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """Follows the balls once more, piece by piece."""
        (states,) = ctx.constants

        def product(
            log_weights: Tensor, group_sizes: Tensor, draws: Tensor, grad: Tensor
        ) -> Tensor:
            return pulled_back(
                lambda x: (_mean(states, x, group_sizes, draws), None), log_weights, grad
            )[0]

        return (
            in_chunks(
                product,
                *ctx.saved_tensors,
                grads[0],
                events=(1, 1, 0, 1),
                work=states.held(grads[0].device),
            ),
            None,
            None,
            None,
        )


def mean(states: States, log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """E[X]; log ω between ±600."""
    if can_check() and math.prod(log_weights.shape[:-1]) * states.held(
        log_weights.device
    ) > elements_per_chunk(log_weights.device):
        return _Mean.of(log_weights, group_sizes, draws, states)
    return _mean(states, log_weights, group_sizes, draws)


def covariance(states: States, log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """Cov[X], shape (..., c, c)."""
    return in_chunks(
        partial(_covariance, states),
        log_weights,
        group_sizes,
        draws,
        events=(1, 1, 0),
        work=states.held(log_weights.device),
    )


def pays_for_probabilities(
    states: States, log_weights: Tensor, group_sizes: Tensor, draws: Tensor, number: int
) -> bool:
    """Whether so many of them are had faster from whole laws, and without underflow: a ball has at
    least the probability ω_j / Σωm.
    """
    if math.prod(log_weights.shape[:-1]) * states.work > max(
        _WORK_FOR_ANY, _WORK_PER_PROBABILITY * number
    ):
        return False
    depth = draws * (
        group_sizes.sum(-1).clamp(min=1).log() + log_weights.amax(-1) - log_weights.amin(-1)
    )
    return not depth.numel() or bool(depth.max() <= _DEEPEST)


def log_prob(
    states: States, log_weights: Tensor, group_sizes: Tensor, draws: Tensor, counts: Tensor
) -> Tensor:
    """log P(x) of possible counts ``(..., c)``; log ω between ±600."""
    law = in_chunks(
        states.law,
        log_weights,
        group_sizes,
        draws,
        events=(1, 1, 0),
        work=states.held(log_weights.device),
    )
    number = states.number_of(counts)
    shape = common_shape([law.shape[:-1], number.shape])
    return law.expand(*shape, -1).gather(-1, number.expand(shape).unsqueeze(-1)).squeeze(-1).log()


def log_tails(
    states: States, log_weights: Tensor, group_sizes: Tensor, draws: Tensor, x: Tensor
) -> tuple[Tensor, Tensor]:
    """log P(X_j ≤ x_j) and log P(X_j > x_j) of every group: shapes (..., c)."""

    def both(log_weights: Tensor, group_sizes: Tensor, draws: Tensor, x: Tensor) -> Tensor:
        law, counts = (
            states.law(log_weights, group_sizes, draws).unsqueeze(-2),
            states.counts(draws),
        )
        below = counts <= x.unsqueeze(-1)
        return torch.stack([torch.where(side, law, 0.0).sum(-1) for side in (below, ~below)], -1)

    work = states.held(log_weights.device)
    lower, upper = (
        in_chunks(both, log_weights, group_sizes, draws, x, events=(1, 1, 0, 1), work=work)
        .log()
        .unbind(-1)
    )
    return lower, upper


def draw(most_draws: int, log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """One exact draw for each row of finite log-weights ``(..., c)``; groups that cannot be drawn
    have size zero.
    """

    def rows(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
        weights, left = log_weights.exp(), group_sizes
        for step in range(most_draws):
            group = chosen_column((weights * left).cumsum(-1)).unsqueeze(-1)
            left = left.scatter_add(-1, group, -(draws > step).to(left.dtype).unsqueeze(-1))
        return group_sizes - left

    return in_chunks(
        rows, log_weights, group_sizes, draws, events=(1, 1, 0), work=log_weights.shape[-1]
    )
