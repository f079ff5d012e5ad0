r"""Wallenius' law of small urns, by dynamic programming over all states of an urn.

In state x the next ball is of group j with probability :math:`ω_j (m_j - x_j) / D(x)`, with
:math:`D(x) = \sum_j ω_j (m_j - x_j)`, so

.. math:: P_{k+1}(x) = \sum_j P_k(x - e_j) \frac{ω_j (m_j - x_j + 1)}{D(x - e_j)}.

All terms are positive, so every probability and every mean is relatively accurate.

States are numbered in mixed radix. The digits are the counts of all groups but one, whose count is
the rest of k. A ball of group j adds that digit's stride, modulo the number of states. A digit
never overflows: at its largest value all balls of the group, or all draws, have been drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from diffurn._composition import Composition
from diffurn._kernels.dispatch import primitive
from diffurn._numerics.autograd import ClosedForm, pulled_back
from diffurn._numerics.batching import common_shape, elements_per_chunk, in_chunks
from diffurn._numerics.tracing import can_check
from diffurn._wallenius.integral import Integral


class States(NamedTuple):
    """The states of a batch of small urns.

    Attributes:
        rest: the group whose count is not a digit.
        bases: for each other group, one more than the most balls that any urn draws of it.
        draws: the most draws of any urn.
        ragged: whether some urns have fewer draws.
    """

    rest: int
    bases: tuple[int, ...]
    draws: int
    ragged: bool

    @classmethod
    def of(cls, urns: Composition) -> States:
        bases = [min(urns.largest(j), urns.most_draws) + 1 for j in range(urns.groups)]
        rest = max(range(urns.groups), key=bases.__getitem__)
        digits = tuple(bases[:rest] + bases[rest + 1 :])
        return cls(rest, digits, urns.most_draws, len(set(urns.draws)) > 1)

    @property
    def number(self) -> int:
        """F, the number of states."""
        return math.prod(self.bases)

    @property
    def strides(self) -> list[int]:
        return [math.prod(self.bases[i + 1 :]) for i in range(len(self.bases))]

    @property
    def work(self) -> int:
        """Steps × states × groups."""
        return (self.draws + 1) * self.number * (len(self.bases) + 1)

    def held(self, device: torch.device) -> int:
        """The work of an urn in a chunk; less on a CPU, where calls cost more than cache misses."""
        return -(-self.work // 8) if device.type == "cpu" else self.work

    def digits(self, like: Tensor) -> Tensor:
        """The digits of all states, ``(c - 1, F)``."""
        number = torch.arange(self.number, device=like.device)
        pairs = zip(self.strides, self.bases, strict=True)
        return torch.stack([number // stride % base for stride, base in pairs]).to(like.dtype)

    def counts(self, draws: Tensor) -> Tensor:
        """The counts of all states after n draws ``(...)``: ``(..., c, F)``.

        If the digits of a state sum to more than n, the rest is negative, and the state impossible.
        """
        digits = self.digits(draws)
        rest = draws[..., None, None] - digits.sum(0)
        digits = digits.expand(*rest.shape[:-2], *digits.shape)
        return torch.cat([digits[..., : self.rest, :], rest, digits[..., self.rest :, :]], -2)

    def number_of(self, counts: Tensor) -> Tensor:
        """The number of the state of possible counts ``(..., c)``, int64."""
        digits = self._counted(counts).to(torch.int64).unbind(-1)
        terms = [digit * stride for digit, stride in zip(digits, self.strides, strict=True)]
        return torch.stack(terms, -1).sum(-1)

    def law(self, log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
        """P(x) of every state after n draws, ``(..., F)``."""
        return law_of_states(log_weights, group_sizes, draws, self)

    def _rates(self, weights: Tensor, group_sizes: Tensor) -> tuple[Tensor, Tensor]:
        """The rates ω_j (m_j - x_j) in every state.

        Returns:
            Those of the groups with a digit, ``(..., c - 1, F)``, and those of the rest at every
            step, ``(..., n, F)``.
        """
        digits = self.digits(weights)
        left = (self._counted(group_sizes).unsqueeze(-1) - digits).clamp(min=0)
        step = torch.arange(self.draws, dtype=weights.dtype, device=weights.device).unsqueeze(-1)
        left_of_rest = group_sizes[..., self.rest, None, None] - (step - digits.sum(0))
        weight_of_rest = weights[..., self.rest, None, None]
        rates = self._counted(weights).unsqueeze(-1) * left
        return rates, weight_of_rest * left_of_rest.clamp(min=0)

    def _counted(self, values: Tensor) -> Tensor:
        """The columns ``(..., c - 1)`` of all groups but the rest."""
        return torch.cat([values[..., : self.rest], values[..., self.rest + 1 :]], -1)

    def _into(self, device: torch.device) -> Tensor:
        """Flat indices into ``(c - 1, F)``: each group's state with one ball less."""
        number = torch.arange(self.number, device=device)
        before = [(number - stride) % self.number for stride in self.strides]
        return torch.cat([i * self.number + state for i, state in enumerate(before)])


@primitive
def law_of_states(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, states: States
) -> Tensor:
    """P(x) of every state after n draws, ``(..., F)``."""
    rates, rates_of_rest = states._rates(log_weights.exp(), group_sizes)
    total = rates.sum(-2, keepdim=True) + rates_of_rest
    waits = torch.where(total > 0, total, 1.0).reciprocal()  # impossible states have no balls
    into = states._into(rates.device)
    law = torch.zeros_like(rates[..., 0, :]).index_fill(-1, into.new_zeros(1), 1.0)
    steps = zip(waits.unbind(-2), rates_of_rest.unbind(-2), strict=True)
    for step, (wait, rate_of_rest) in enumerate(steps):
        left = law * wait
        leaving = (left.unsqueeze(-2) * rates).flatten(-2)
        arriving = leaving.index_select(-1, into).unflatten(-1, rates.shape[-2:]).sum(-2)
        after = torch.addcmul(arriving, left, rate_of_rest)
        law = torch.where((draws > step).unsqueeze(-1), after, law) if states.ragged else after
    return law / law.sum(-1, keepdim=True)


@primitive
def mean_of_states(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, states: States
) -> Tensor:
    """E[X], ``(..., c)``."""
    law = law_of_states(log_weights, group_sizes, draws, states)
    mean = (law.unsqueeze(-2) * states.counts(draws)).sum(-1)
    return mean if states.draws else mean + 0 * log_weights  # without draws, derivatives are 0


@primitive
def covariance_of_states(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, states: States
) -> Tensor:
    """Cov[X], around the most probable state, so that little cancels if it is almost certain."""
    law = law_of_states(log_weights, group_sizes, draws, states)
    counts = states.counts(draws)
    counts = counts.expand(*law.shape[:-1], *counts.shape[-2:])
    likeliest = law.detach().argmax(-1)[..., None, None].expand(*counts.shape[:-1], 1)
    deviation = counts - counts.gather(-1, likeliest)
    weighted = law.unsqueeze(-2) * deviation
    shift = weighted.sum(-1)
    return weighted @ deviation.mT - shift.unsqueeze(-1) * shift.unsqueeze(-2)


@dataclass(frozen=True)
class Sequential(Integral):
    """Wallenius' law of small urns whose sizes are known on the CPU.

    Args:
        states: the states of the urns.
    """

    states: States

    @classmethod
    def of(cls, law: Integral, states: States) -> Sequential:
        return cls(*law.operands, law.most_draws, states)

    def log_prob(self, x: Tensor) -> Tensor:
        law = self._in_chunks(self.states.law, *self.operands)
        number = self.states.number_of(x)
        shape = common_shape([law.shape[:-1], number.shape])
        own = law.expand(*shape, -1).gather(-1, number.expand(shape).unsqueeze(-1))
        return own.squeeze(-1).log().clamp(max=0)

    def mean(self) -> Tensor:
        log_weights, group_sizes, draws = self.within_reach()
        device = log_weights.device
        held = math.prod(log_weights.shape[:-1]) * self.states.held(device)
        if can_check() and held > elements_per_chunk(device):
            return _Mean.of(log_weights, group_sizes, draws, self.states)
        return mean_of_states(log_weights, group_sizes, draws, self.states)

    def covariance(self) -> Tensor:
        def covariance(*urn: Tensor) -> Tensor:
            return covariance_of_states(*urn, self.states)

        return self._in_chunks(covariance, *self.within_reach())

    def log_tails(self, x: Tensor) -> tuple[Tensor, Tensor]:
        def both(log_weights: Tensor, sizes: Tensor, draws: Tensor, x: Tensor) -> Tensor:
            law = self.states.law(log_weights, sizes, draws).unsqueeze(-2)
            below = self.states.counts(draws) <= x.unsqueeze(-1)
            sides = [torch.where(side, law, 0.0).sum(-1) for side in (below, ~below)]
            return torch.stack(sides, -1)

        lower, upper = self._in_chunks(both, *self.operands, x).log().unbind(-1)
        return lower, upper

    def tail(self, group: int) -> Tensor:
        ranks = torch.arange(1, self.largest(group) + 1, device=self.draws.device)

        def at_least(log_weights: Tensor, sizes: Tensor, draws: Tensor) -> Tensor:
            law = self.states.law(log_weights, sizes, draws).unsqueeze(-2)
            counts = self.states.counts(draws)[..., group, :].unsqueeze(-2)
            return torch.where(counts >= ranks.unsqueeze(-1), law, 0.0).sum(-1)

        return self._in_chunks(at_least, *self.within_reach())

    def _in_chunks(self, function: Callable[..., Tensor], *operands: Tensor) -> Tensor:
        events = (1, 1, 0, 1)[: len(operands)]
        work = self.states.held(operands[0].device)
        return in_chunks(function, *operands, events=events, work=work)


class _Mean(ClosedForm):
    """The mean of long batches, evaluated in chunks again in the backward pass to save memory."""

    @staticmethod
    def forward(log_weights: Tensor, group_sizes: Tensor, draws: Tensor, states: States) -> Tensor:
        def mean(*urn: Tensor) -> Tensor:
            return mean_of_states(*urn, states)

        operands, work = (log_weights, group_sizes, draws), states.held(log_weights.device)
        return in_chunks(mean, *operands, events=(1, 1, 0), work=work)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (states,) = ctx.constants

        def product(log_weights: Tensor, sizes: Tensor, draws: Tensor, grad: Tensor) -> Tensor:
            def again(x: Tensor) -> tuple[Tensor, None]:
                return mean_of_states(x, sizes, draws, states), None

            return pulled_back(again, log_weights, grad)[0]

        operands, work = (*ctx.saved_tensors, grads[0]), states.held(grads[0].device)
        return in_chunks(product, *operands, events=(1, 1, 0, 1), work=work), None, None, None
