"""Many draws of one urn by Wallenius' law, from an alias table of all outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from diffurn._fisher.sampling.tree import Outcomes
from diffurn._kernels.dispatch import can_call
from diffurn._numerics.batching import elements_per_chunk
from diffurn._wallenius.integral import Integral
from diffurn._wallenius.sequential import Sequential, States


@dataclass(frozen=True)
class OutcomeTable(Integral):
    """Wallenius' law of one urn with few outcomes, for many draws of it.

    Args:
        law: the law of the urn.
        outcomes: all outcomes, ``(O, c)``.
        probabilities: their probabilities, ``(O,)``.
    """

    law: Integral
    outcomes: Tensor
    probabilities: Tensor

    @classmethod
    def of_states(cls, states: Sequential, law: Integral) -> OutcomeTable:
        """From the states of the dynamic programme."""
        log_weights, group_sizes, draws = states.within_reach()
        urn = log_weights.flatten(), group_sizes.flatten(), draws.reshape(())
        outcomes = _outcomes(states.states, urn[2].device)
        return cls(*law.operands, law.most_draws, law, outcomes, states.states.law(*urn))

    @classmethod
    def of_support(cls, law: Integral, support: Tensor) -> OutcomeTable:
        """From all outcomes ``(O, c)``, with probabilities by integrals."""
        log_prob = law.log_prob(support.double().reshape(-1, *law.log_weights.shape))
        return cls(*law.operands, law.most_draws, law, support, log_prob.flatten().exp())

    def mean(self) -> Tensor:
        return self.law.mean()

    def tail(self, group: int) -> Tensor:
        return self.law.tail(group)

    def sample(self, num_samples: int, dtype: torch.dtype) -> Tensor:
        if can_call(self.outcomes, self.probabilities):
            from diffurn._kernels.native import sampling

            drawn = sampling.Table(self.outcomes, self.probabilities).draw(
                num_samples, sampling.new_seed()
            )
            return drawn.to(dtype).reshape(num_samples, *self.log_weights.shape)
        table = Outcomes.of(self.outcomes, self.probabilities, dtype)
        groups, device = self.outcomes.shape[-1], self.outcomes.device
        counts = torch.empty(num_samples, groups, dtype=dtype, device=device)
        for piece in counts.split(elements_per_chunk(device) // 4):
            table.fill(piece)
        return counts.reshape(num_samples, *self.log_weights.shape)


@lru_cache(maxsize=16)
def _outcomes(states: States, device: torch.device) -> Tensor:
    """The counts of all states of an urn, ``(F, c)``, which are to be read only."""
    draws = torch.tensor(float(states.draws), dtype=torch.float64, device=device)
    return states.counts(draws).mT.contiguous()
