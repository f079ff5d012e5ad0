"""Draws: possible counts, near their mean, as wide as their variance. The rates of false alarms are
proven or stated.
"""

from __future__ import annotations

import numpy as np

from fuzzing.families import Floats
from fuzzing.trial import Trial, Values

SAMPLES = 8
# A false alarm has the probability 2e^-45 = 6e-20 for each group of each urn (Bennett's
# inequality): 1e-12 in a run.
NATS = 45.0
# Of a pooled statistic that is about normal: below 1e-20 for each batch.
DEVIATIONS = 10.0


def sampled(trial: Trial, method: str) -> Values:
    """Draws (B, S, c)."""
    return trial.get(
        f"{method}(({SAMPLES},))", lambda urn, rows: getattr(urn, method)((SAMPLES,)).movedim(0, 1)
    )


def _check_possible(trial: Trial, method: str) -> None:
    counts = sampled(trial, method)
    call = f"{method}(({SAMPLES},))[{{index}}]"
    trial.expect(
        f"{method} gives whole numbers", counts == np.floor(counts), call, counts, "a whole number"
    )
    lowest, highest = (end[:, None, :] for end in trial.support)
    inside = (counts >= lowest) & (counts <= highest)
    trial.expect(
        f"{method} gives possible counts", inside, call, counts, np.clip(counts, lowest, highest)
    )
    total = counts.sum(-1)
    trial.expect(
        f"{method} gives n balls",
        total == trial.batch.draws[:, None],
        call,
        total,
        trial.batch.draws[:, None],
    )


def check_draws(trial: Trial) -> None:
    _check_possible(trial, "sample")


def check_reparametrised_draws(trial: Trial) -> None:
    _check_possible(trial, "rsample")


def check_draws_against_moments(trial: Trial) -> None:
    """Fisher's counts are sums of independent Bernoulli variables, for which Bennett's inequality
    holds.

    Wallenius' are not, but nearly normal or nearly Poisson: with twice their variance no false
    alarm is known in a million urns.
    """
    counts = sampled(trial, "sample")
    if trial.is_fisher:
        mean, variance = (
            trial.reference.mean,
            np.diagonal(trial.reference.covariance, axis1=1, axis2=2),
        )
    else:
        mean, variance = trial.get("mean"), 2 * np.maximum(trial.get("variance"), 0)
    total = counts.sum(1)
    distance = np.maximum(np.abs(total - SAMPLES * mean) - 1e-9 * np.abs(mean), 0)
    call = f"sample(({SAMPLES},)).sum(0)[{{index}}]"
    trial.expect(
        "draws lie near the mean",
        bennett(distance, SAMPLES * variance) <= NATS,
        call,
        total,
        SAMPLES * mean,
    )
    if trial.is_fisher:
        _check_pooled(trial, counts, mean, variance)


def bennett(distance: Floats, variance: Floats) -> Floats:
    """-log of the bound on P(|S - E S| ≥ distance)/2 for sums of Bernoulli variables; a variance of
    0 makes them certain.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = distance / variance
        nats = variance * ((1 + ratio) * np.log1p(ratio) - ratio)
    return np.where(distance < 1e-6, 0.0, np.where(variance <= 0, np.inf, nats))


def _check_pooled(trial: Trial, counts: Values, mean: Floats, variance: Floats) -> None:
    """The widest group of every urn, standardised: its mean is 0, its mean square 1, and its
    kurtosis at most 3 + 1/9.
    """
    widest = variance.argmax(1)[:, None]
    deviation = np.sqrt(np.take_along_axis(variance, widest, 1))
    usable = (deviation[:, 0] >= 3) & ~trial.void
    if usable.sum() < 8:
        return
    z = (
        np.take_along_axis(counts, widest[:, :, None], 2)[..., 0]
        - np.take_along_axis(mean, widest, 1)
    )[usable] / deviation[usable]
    for name, values, spread in (
        ("centred on the mean", z, 1.0),
        ("as wide as the variance", z**2 - 1, np.sqrt(2.2)),
    ):
        statistic = values.sum() / (spread * np.sqrt(values.size))
        fine = np.ones(len(counts), dtype=bool)
        fine[np.flatnonzero(usable)[np.abs(values.sum(1)).argmax()]] = abs(statistic) <= DEVIATIONS
        trial.expect(
            f"draws of a batch are {name}",
            fine,
            f"sample(({SAMPLES},))",
            np.array(statistic),
            "0 on average, ±1",
        )
