"""Two functions under torch.compile, each compiled once in a process: values of any urns, and a
training step with draws of a small one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from torch import Tensor

from diffurn import FisherHypergeometric
from fuzzing.families import Integers
from fuzzing.moments import error_of_mean
from fuzzing.probabilities import allowed
from fuzzing.trial import Trial, Values
from support.tolerances import FISHER

ROWS, GROUPS = 32, 3  # one shape, so that nothing is compiled twice
SIZES, DRAWS = [5, 7, 4], 8  # in a compiled step draws are offered for small urns of given sizes


def _values(sizes: Tensor, draws: Tensor, log_weights: Tensor, counts: Tensor) -> Tensor:
    urn = FisherHypergeometric(sizes, draws, log_weights=log_weights)
    return torch.cat([urn.mean, urn.log_prob(counts).unsqueeze(-1)], -1)


def _step(log_weights: Tensor) -> Tensor:
    return FisherHypergeometric(SIZES, DRAWS, log_weights=log_weights).rsample()


@cache
def _compiled(function: Callable[..., Tensor], *shapes: torch.Size) -> Callable[..., Tensor]:
    return torch.compile(function, dynamic=False)


def _call(function: Callable[..., Tensor], *operands: Tensor) -> Tensor:
    """Compiling takes a minute of processor time, so it happens before the limit on the call
    begins.
    """
    return _compiled(function, *(operand.shape for operand in operands))(*operands)


def check_compiled_values(trial: Trial) -> None:
    batch, counts = trial.batch, trial.get("mode")
    operands = batch.group_sizes, batch.draws, batch.log_weights, counts
    tensors = [torch.tensor(operand, device=trial.device) for operand in operands]
    found = _call(_values, *tensors).cpu().numpy()
    mean, log_prob, exact = found[:, :-1], found[:, -1:], trial.reference.mean
    trial.expect(
        "compiled: mean is right",
        np.abs(mean - exact) <= error_of_mean(trial),
        "mean[{index}]",
        mean,
        exact,
    )
    mode = counts.astype(np.int64)[:, None, :]
    wanted = trial.reference.log_prob(mode)
    fine = np.abs(log_prob - wanted) <= allowed(trial, mode, wanted)
    trial.expect(
        "compiled: log_prob is right",
        fine,
        lambda row, index: f"log_prob({counts[row].tolist()})",
        log_prob,
        wanted,
    )


def check_compiled_draws(trial: Trial) -> None:
    """Possible counts, and gradients that are the covariance."""
    rows = len(trial.batch)
    batch = replace(
        trial.batch,
        group_sizes=np.tile(SIZES, (rows, 1)),
        draws=np.full(rows, DRAWS),
        by_weights=False,
        as_lists=True,
    )
    small = Trial(trial.law, batch, trial.device, trial.seed, requires_grad=True)
    small.findings, small.failed = trial.findings, trial.failed
    log_weights = torch.tensor(batch.log_weights, device=trial.device, requires_grad=True)
    drawn = _call(_step, log_weights)
    (gradient,) = torch.autograd.grad(drawn[:, 0].sum(), log_weights)
    _check_step(small, drawn.detach().cpu().numpy(), gradient.cpu().numpy())


def _check_step(small: Trial, counts: Values, slope: Values) -> None:
    lowest, highest = small.support
    possible: Integers = (
        (counts >= lowest) & (counts <= highest) & (counts.sum(-1, keepdims=True) == DRAWS)
    )
    small.expect(
        "compiled: draws are possible",
        possible,
        "rsample()[{index}]",
        counts,
        np.clip(counts, lowest, highest),
    )
    covariance = small.reference.covariance
    error = FISHER.covariance * np.abs(covariance).max((1, 2))[
        :, None
    ] + 1e-13 * small.reference.spread.max(-1, keepdims=True)
    close = np.abs(slope - covariance[:, 0]) <= error
    small.expect(
        "compiled: the gradient of draws is the covariance",
        close,
        "rsample()[0]",
        slope,
        covariance[:, 0],
    )
