"""C kernels for Wallenius' law: probabilities and moments."""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn._kernels.dispatch import replaces
from diffurn._kernels.native.calls import Kernel, aligned
from diffurn._kernels.native.fisher import MOST_IN_MATRIX
from diffurn._wallenius import moments, probabilities

_outcomes = Kernel("outcomes", 5)
_race_means = Kernel("race_means", 4)
_race_flows = Kernel("race_flows", 5)
_race_covariances = Kernel("race_covariances", 4)
# A probability takes about as long as Fisher's of so many times the groups.
_INTEGRAL = 16
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
