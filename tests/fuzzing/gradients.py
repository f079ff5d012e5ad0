"""Derivatives in the weights."""

from __future__ import annotations

import numpy as np
import torch

from fuzzing.families import NEVER, Floats, Integers
from fuzzing.outcomes import fluid
from fuzzing.probabilities import counts_of
from fuzzing.trial import Trial, Values
from support.tolerances import EPS, FISHER


def _direction(trial: Trial) -> Floats:
    return np.random.default_rng([trial.seed, 5]).standard_normal(trial.batch.group_sizes.shape)


def _slope(trial: Trial, name: str, function) -> Values:
    """The gradient of a scalar for each urn in its log-weights; by way of the weights, if those are
    given.
    """

    def compute(urn, rows: Integers) -> torch.Tensor:
        parameter = urn.weights if trial.batch.by_weights else urn.log_weights
        (gradient,) = torch.autograd.grad(function(urn, rows).sum(), parameter)
        return gradient * parameter.detach() if trial.batch.by_weights else gradient

    return trial.get(f"gradient of {name}", compute, lambda row: f"{name}  # and its gradient")


def _tensor(trial: Trial, values: Values, rows: Integers) -> torch.Tensor:
    return torch.tensor(values[rows], dtype=torch.float64, device=trial.device)


def _never(trial: Trial) -> Values:
    return trial.batch.log_weights == NEVER


def check_slope_of_log_prob(trial: Trial) -> None:
    """Fisher: x - E[x]. Wallenius: zero in the direction of a common factor, and the quotient of
    differences.
    """
    counts = counts_of(trial)[:, 1]
    slope = _slope(trial, "log_prob", lambda urn, rows: urn.log_prob(_tensor(trial, counts, rows)))

    def call(row: int, index: tuple[int, ...]) -> str:
        return f"log_prob({counts[row].tolist()})  # ∂/∂ log ω_{index[0]}:"

    trial.expect(
        "the gradient of log_prob is finite", np.isfinite(slope), call, slope, "a finite number"
    )
    if trial.is_fisher:
        exact = counts - trial.reference.mean
        error = 1e-9 * (np.abs(exact) + np.sqrt(trial.reference.spread)) + 32 * EPS * np.maximum(
            trial.batch.drawable, 1
        )
        fine = _never(trial) | (np.abs(slope - exact) <= error)
        trial.expect("the gradient of log_prob is right", fine, call, slope, exact)
    else:
        spread = fluid(trial.batch)[1]
        scale = 1e-7 * (1 + np.abs(slope).max(-1) + np.sqrt(spread.max(-1)))
        total = slope.sum(-1, keepdims=True)
        trial.expect(
            "a common factor has no gradient",
            np.abs(total) <= scale[:, None],
            call,
            total,
            "0 as the sum over all groups",
        )


def check_slope_of_mean(trial: Trial) -> None:
    """Of Fisher's law the covariance; of both nothing in the direction of a common factor."""
    direction = _direction(trial)
    slope = _slope(
        trial, "mean", lambda urn, rows: (urn.mean * _tensor(trial, direction, rows)).sum(-1)
    )
    _check_product(trial, "mean", slope, direction)


def check_slope_of_draws(trial: Trial) -> None:
    """What flows back through rsample is the covariance as well (Fisher)."""
    if not trial.is_fisher:
        return
    direction = _direction(trial)
    slope = _slope(
        trial,
        "rsample()",
        lambda urn, rows: (urn.rsample() * _tensor(trial, direction, rows)).sum(-1),
    )
    _check_product(trial, "rsample()", slope, direction)


def _check_product(trial: Trial, name: str, slope: Values, direction: Floats) -> None:
    def call(row: int, index: tuple[int, ...]) -> str:
        return f"{name}  # ∂(x·{direction[row].tolist()})/∂ log ω_{index[0]}:"

    trial.expect(
        f"the gradient of {name} is finite", np.isfinite(slope), call, slope, "a finite number"
    )
    if not trial.is_fisher:
        return
    covariance = trial.reference.covariance
    exact = np.einsum("bij,bj->bi", covariance, direction)
    largest = np.abs(covariance).max((1, 2))[:, None] * np.abs(direction).sum(-1, keepdims=True)
    error = FISHER.covariance * largest + 1e-13 * trial.reference.spread.max(-1, keepdims=True)
    fine = _never(trial) | (np.abs(slope - exact) <= error)
    trial.expect(f"the gradient of {name} is the covariance", fine, call, slope, exact)
