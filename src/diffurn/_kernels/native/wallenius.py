"""C kernels for Wallenius' law: probabilities and moments."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from diffurn._kernels.dispatch import replaces
from diffurn._kernels.native.calls import Kernel, aligned
from diffurn._kernels.native.fisher import MOST_IN_MATRIX
from diffurn._wallenius import moments, probabilities, sequential
from diffurn._wallenius.sequential import States

_outcomes = Kernel("outcomes", 5)
_race_means = Kernel("race_means", 4)
_race_flows = Kernel("race_flows", 5)
_race_covariances = Kernel("race_covariances", 4)
_state_laws = Kernel("state_laws", 5, numbers=5)
_state_moments = Kernel("state_moments", 6, numbers=5)
# A probability takes about as long as Fisher's of so many times the groups.
_INTEGRAL = 16
# A group of Fisher's law takes about as long as so many groups of states.
_STATES_OF_A_GROUP = 100
# The same for a moment, which runs a race at about fifty times.
_RACES = 400


@replaces(probabilities.log_prob_value, on="cpu")
def log_prob(log_weights: Tensor, group_sizes: Tensor, counts: Tensor) -> Tensor:
    batch, operands = aligned(log_weights, group_sizes, counts, events=(1, 1, 1))
    values = log_weights.new_empty(batch)
    work, numbers = _INTEGRAL * operands[0].numel(), operands[0].shape[-1:]
    _outcomes(*operands, values, None, numbers=numbers, rows=values.numel(), work=work)
    return values


@replaces(probabilities.score_value, on="cpu")
def score(log_weights: Tensor, group_sizes: Tensor, counts: Tensor) -> Tensor:
    _, operands = aligned(log_weights, group_sizes, counts, events=(1, 1, 1))
    values = torch.empty_like(operands[0])
    work, groups = _INTEGRAL * values.numel(), values.shape[-1]
    rows = values.numel() // max(1, groups)
    _outcomes(*operands, None, values, numbers=(groups,), rows=rows, work=work)
    return values


@replaces(moments.mean_by_integrals, on="cpu")
def mean_by_integrals(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    _, operands = aligned(log_weights, group_sizes, draws, events=(1, 1, 0))
    values = torch.empty_like(operands[0])
    work, numbers = _RACES * values.numel(), operands[0].shape[-1:]
    _race_means(*operands, values, numbers=numbers, rows=operands[2].numel(), work=work)
    return values


@replaces(moments.flow_by_integrals, on="cpu")
def flow_by_integrals(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, vector: Tensor
) -> Tensor:
    given = log_weights, group_sizes, draws - 1, vector
    _, operands = aligned(*given, events=(1, 1, 0, 1))
    values = torch.empty_like(operands[0])
    work, numbers = _RACES * values.numel(), operands[0].shape[-1:]
    _race_flows(*operands, values, numbers=numbers, rows=operands[2].numel(), work=work)
    return values


@replaces(moments.covariance_by_integrals, on="cpu")
def covariance_by_integrals(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    groups = log_weights.shape[-1]
    if groups > MOST_IN_MATRIX:
        plain: Tensor = moments.covariance_by_integrals.__wrapped__(  # type: ignore[attr-defined]
            log_weights, group_sizes, draws
        )
        return plain
    batch, operands = aligned(log_weights, group_sizes, draws, events=(1, 1, 0))
    values = log_weights.new_empty((*batch, 1 + groups, groups))
    work, rows = _RACES * values.numel(), operands[2].numel()
    _race_covariances(*operands, values, numbers=(groups,), rows=rows, work=work)
    return values


@replaces(sequential.law_of_states, on="cpu")
def law_of_states(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, states: States
) -> Tensor:
    urns = aligned(log_weights, group_sizes, draws, events=(1, 1, 0))
    values = log_weights.new_empty((*urns[0], states.number))
    _of_states(_state_laws, urns[1], (values,), states)
    return values


@replaces(sequential.mean_of_states, on="cpu")
def mean_of_states(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, states: States
) -> Tensor:
    _, operands = aligned(log_weights, group_sizes, draws, events=(1, 1, 0))
    values = torch.empty_like(operands[0])
    _of_states(_state_moments, operands, (values, None), states)
    return values


@replaces(sequential.covariance_of_states, on="cpu")
def covariance_of_states(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, states: States
) -> Tensor:
    _, operands = aligned(log_weights, group_sizes, draws, events=(1, 1, 0))
    values = log_weights.new_empty((*operands[0].shape, operands[0].shape[-1]))
    _of_states(_state_moments, operands, (None, values), states)
    return values


def _of_states(
    kernel: Kernel, operands: list[Tensor], results: tuple[Tensor | None, ...], states: States
) -> None:
    rows, groups = operands[2].numel(), operands[0].shape[-1]
    bases = (ctypes.c_int64 * len(states.bases))(*states.bases)
    numbers = groups, states.rest, states.number, states.draws, int(states.ragged)
    work = rows * states.work // _STATES_OF_A_GROUP
    kernel(*operands, ctypes.addressof(bases), *results, numbers=numbers, rows=rows, work=work)
