"""The tilt: the factor r on all weights with which independent balls are expected to make n - ½
draws.
"""

from __future__ import annotations

import numpy as np
import torch

from diffurn._fisher.tilt import log_tilt
from fuzzing.families import Batch
from fuzzing.limits import time_limit
from fuzzing.reference import surplus
from fuzzing.trial import Trial, Values

# The quadrature behind every number allows for a sum that is off by a fraction of its deviation;
# the tilt promises this much.
DEVIATIONS = 0.01


def targets(batch: Batch) -> Values:
    """n - ½; of no draws as of one, of more draws than balls as of all."""
    return np.clip(batch.draws, 1, np.maximum(batch.drawable.sum(-1), 1)) - 0.5


def check_tilt(trial: Trial) -> None:
    batch = trial.batch
    operands = (batch.log_weights, batch.group_sizes.astype(float), batch.draws.astype(float))
    with time_limit(trial.limit):
        tilt = (
            log_tilt(
                *(
                    torch.tensor(operand, dtype=torch.float64, device=trial.device)
                    for operand in operands
                )
            )
            .cpu()
            .numpy()
        )
    held = batch.drawable > 0
    log_odds = np.where(held, batch.log_weights, 0.0) + tilt[:, None]
    # Rounding log r to float64 moves the sum by 1e-13 of its variance at most, that is 1e-7 of its
    # deviation at 10¹² balls.
    missed = surplus(log_odds, batch.drawable, targets(batch))
    with np.errstate(over="ignore"):
        odds = np.exp(-np.abs(log_odds))
    deviation = np.sqrt((batch.drawable * odds / (1 + odds) ** 2).sum(-1))
    empty = ~held.any(-1)
    fine = empty | (np.abs(missed) <= DEVIATIONS * deviation)
    found = missed / np.maximum(deviation, 1e-300)
    trial.expect(
        "the tilt meets its target",
        fine,
        _written(batch),
        found,
        f"{DEVIATIONS} at most",
        is_complete=True,
    )


def _written(batch: Batch):
    def call(row: int, index: tuple[int, ...]) -> str:
        tensors = ", ".join(
            f"torch.tensor({values}, dtype=torch.float64)".replace("inf", "torch.inf")
            for values in (
                batch.log_weights[row].tolist(),
                batch.group_sizes[row].tolist(),
                batch.draws[row].tolist(),
            )
        )
        return f"diffurn._fisher.tilt.log_tilt({tensors})  # misses its target, in deviations, by"

    return call
