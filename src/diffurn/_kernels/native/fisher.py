"""C kernels for Fisher's law: tilts, masses, moments and binomial masses."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from diffurn._fisher import equal_weights, moments, tilt
from diffurn._fisher.accuracy import (
    BISECTIONS,
    HASTY_STEPS,
    NEWTON_STEPS,
    NODE_NATS,
    ROUNDING,
    SETTLED,
    TAIL_NATS,
)
from diffurn._kernels.dispatch import replaces
from diffurn._kernels.native.calls import Kernel, aligned, set_constants
from diffurn._numerics import binomial, enumeration

# The C structure `Constants`.
_VALUES = (TAIL_NATS, NODE_NATS, SETTLED**2, ROUNDING, HASTY_STEPS, BISECTIONS, NEWTON_STEPS)
set_constants("constants", _VALUES)

MOST_IN_MATRIX = 64  # of nodes.c

_log_tilts = Kernel("log_tilts", 4)
_centring_tilts = Kernel("centring_tilts", 4)
_log_masses = Kernel("log_masses", 4)
_means = Kernel("means", 4)
_means_anywhere = Kernel("means_anywhere", 4)
_mean_shifts = Kernel("mean_shifts", 4)
_covariance_products = Kernel("covariance_products", 6)
_covariances = Kernel("covariances", 4)
_log_probs = Kernel("log_probs", 5)
_log_probs_and_derivatives = Kernel("log_probs_and_derivatives", 7)
_not_outcomes = Kernel("not_outcomes", 4)
_binomials = Kernel("binomials", 4, numbers=0)
_central_log_probs = Kernel("central_log_probs", 4)


def _of_each_urn(kernel: Kernel, log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    batch, operands = aligned(log_odds, group_sizes, draws, events=(1, 1, 0))
    values = log_odds.new_empty(batch)
    work = operands[0].numel()
    kernel(*operands, values, numbers=(operands[0].shape[-1],), rows=values.numel(), work=work)
    return values


def _of_each_group(kernel: Kernel, log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    _, operands = aligned(log_odds, group_sizes, draws, events=(1, 1, 0))
    values = torch.empty_like(operands[0])
    work, groups = values.numel(), values.shape[-1]
    kernel(*operands, values, numbers=(groups,), rows=operands[2].numel(), work=work)
    return values


@replaces(tilt.log_tilt, on="cpu")
def log_tilt(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    return _of_each_urn(_log_tilts, log_weights, group_sizes, draws)


@replaces(moments.centring_tilt, on="cpu")
def centring_tilt(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    return _of_each_urn(_centring_tilts, log_odds, group_sizes, draws)


@replaces(moments.log_mass_value, on="cpu")
def log_mass(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    return _of_each_urn(_log_masses, log_odds, group_sizes, draws)


@replaces(moments.mean_value, on="cpu")
def mean(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    return _of_each_group(_means, log_odds, group_sizes, draws)


@replaces(moments.mean_anywhere_value, on="cpu")
def mean_anywhere(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    return _of_each_group(_means_anywhere, log_weights, group_sizes, draws)


@replaces(moments.mean_shift_value, on="cpu")
def mean_shift(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    return _of_each_group(_mean_shifts, log_odds, group_sizes, draws)


@replaces(moments.covariance_product, on="cpu")
def covariance_product(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, vector: Tensor, tilt: Tensor | None = None
) -> Tensor:
    operands = [log_odds, group_sizes, draws, vector]
    if tilt is None:
        _, operands = aligned(*operands, events=(1, 1, 0, 1))
        of_rows, vector = [*operands[:3], None], operands[3]
    else:
        _, operands = aligned(*operands, tilt, events=(1, 1, 0, 1, 0))
        of_rows, vector = [*operands[:3], operands[4]], operands[3]
    values = torch.empty_like(vector)
    work, groups = values.numel(), values.shape[-1]
    rows = operands[2].numel()
    _covariance_products(*of_rows, vector, values, numbers=(groups,), rows=rows, work=work)
    return values


@replaces(moments.covariance, on="cpu")
def covariance(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    groups = log_odds.shape[-1]
    if groups > MOST_IN_MATRIX:
        plain: Tensor = moments.covariance.__wrapped__(log_odds, group_sizes, draws)  # type: ignore[attr-defined]
        return plain
    batch, operands = aligned(log_odds, group_sizes, draws, events=(1, 1, 0))
    values = log_odds.new_empty(batch + (groups, groups))
    rows, work = operands[2].numel(), values.numel()
    _covariances(*operands, values, numbers=(groups,), rows=rows, work=work)
    return values


@replaces(moments.variance, on="cpu")
def variance(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    _, operands = aligned(log_odds, group_sizes, draws, events=(1, 1, 0))
    values = torch.empty_like(operands[0])
    work, groups = values.numel(), values.shape[-1]
    rows = operands[2].numel()
    _covariance_products(*operands, None, None, values, numbers=(groups,), rows=rows, work=work)
    return values


@replaces(binomial.log_pmf_value, on="cpu")
def binomial_log_pmf(x: Tensor, size: Tensor, log_odds: Tensor) -> Tensor:
    """The binomial log-masses of operands of one shape."""
    operands = [operand.contiguous() for operand in (x, size, log_odds)]
    values = torch.empty_like(operands[0])
    number = values.numel()
    _binomials(*operands, values, rows=number, work=number)
    return values


@replaces(moments.log_prob_value, on="cpu")
def log_prob(log_weights: Tensor, group_sizes: Tensor, draws: Tensor, counts: Tensor) -> Tensor:
    batch, operands = aligned(log_weights, group_sizes, draws, counts, events=(1, 1, 0, 1))
    values = log_weights.new_empty(batch)
    work, groups = operands[0].numel(), operands[0].shape[-1]
    _log_probs(*operands, values, numbers=(groups,), rows=values.numel(), work=work)
    return values


@replaces(moments.log_prob_and_derivatives, on="cpu")
def log_prob_and_derivatives(
    log_weights: Tensor, group_sizes: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    groups, draws = counts.shape[-1], counts.sum(-1).round()
    if groups > MOST_IN_MATRIX:
        certain = (draws <= 0) | (draws >= group_sizes.sum(-1))
        value = log_prob(log_weights, group_sizes, draws, counts)
        score = counts - mean_anywhere(log_weights, group_sizes, draws)
        information = covariance(log_weights, group_sizes, draws)
        return torch.where(certain, 0.0, value), score, information
    batch, operands = aligned(log_weights, group_sizes, draws, counts, events=(1, 1, 0, 1))
    values, scores = log_weights.new_empty(batch), torch.empty_like(operands[0])
    information = log_weights.new_empty(batch + (groups, groups))
    rows, work = values.numel(), information.numel()
    outputs = values, scores, information
    _log_probs_and_derivatives(*operands, *outputs, numbers=(groups,), rows=rows, work=work)
    return outputs


@replaces(equal_weights.log_prob_value, on="cpu")
def central_log_prob(counts: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    batch, operands = aligned(counts, group_sizes, draws, events=(1, 1, 0))
    values = counts.new_empty(batch)
    work, groups = operands[0].numel(), operands[0].shape[-1]
    _central_log_probs(*operands, values, numbers=(groups,), rows=values.numel(), work=work // 4)
    return values


@replaces(enumeration.are_outcomes, on="cpu")
def are_outcomes(counts: Tensor, group_sizes: Tensor, draws: Tensor) -> bool:
    _, operands = aligned(counts, group_sizes, draws, events=(1, 1, 0))
    found = ctypes.c_int64(0)
    work, rows, groups = operands[0].numel(), operands[2].numel(), operands[0].shape[-1]
    address = ctypes.addressof(found)
    _not_outcomes(*operands, address, numbers=(groups,), rows=rows, work=work // 100)
    return not found.value
