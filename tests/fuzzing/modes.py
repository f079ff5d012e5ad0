"""Mode and entropy."""

from __future__ import annotations

import numpy as np

from fuzzing.probabilities import log_probs
from fuzzing.trial import Trial, Values
from support.tolerances import EPS, FISHER, WALLENIUS

SAMPLES = 64
FEW = 200  # outcomes of two groups that are summed


def check_mode(trial: Trial) -> None:
    """A possible outcome that no draw and, in Fisher's law, no exchange of two balls improves on.

    Wallenius' law offers the mode of urns that share their sizes and have few outcomes.
    """
    mode, batch = trial.get("mode"), trial.batch
    lowest, highest = trial.support
    possible = (mode >= lowest) & (mode <= highest) & (mode == np.floor(mode))
    trial.expect(
        "mode is a possible outcome",
        possible,
        "mode[{index}]",
        mode,
        np.clip(mode, lowest, highest),
    )
    trial.expect(
        "mode has n balls", mode.sum(-1) == batch.draws, "mode.sum()", mode.sum(-1), batch.draws
    )
    if trial.void.any() or not possible.all():
        return
    if trial.is_fisher:
        _check_exchanges(trial, mode)
    draws = trial.get("sample()", lambda urn, rows: urn.sample()).astype(np.int64)
    both = log_probs(trial, "mode and draw", np.stack([mode.astype(np.int64), draws], 1))
    promised = FISHER if trial.is_fisher else WALLENIUS
    slack = promised.log_prob * np.maximum(1, np.abs(both[:, 0])) * 10
    trial.expect(
        "no draw is more probable than the mode",
        both[:, 1] <= both[:, 0] + slack,
        "mode",
        both[:, 0],
        both[:, 1],
    )


def _check_exchanges(trial: Trial, mode: Values) -> None:
    batch = trial.batch
    x, m = mode.astype(np.longdouble), batch.drawable
    log_weights = np.where(m > 0, batch.exact_log_weights, 0)
    with np.errstate(divide="ignore"):
        gain = np.log(np.maximum(m - x, 0)) - np.log(x + 1) + log_weights
        price = np.log(m - x + 1) - np.log(x) + log_weights
    gain, price = np.where(m > x, gain, -np.inf).max(-1), np.where(x > 0, price, np.inf).min(-1)
    # The library compares float64 logarithms: of counts, below 28, and of weights.
    rounding = 8 * EPS * (32 + np.abs(log_weights).max(-1)).astype(float)
    with np.errstate(invalid="ignore"):
        fine = ~((gain - price).astype(float) > rounding)
    trial.expect(
        "no exchange of two balls improves on the mode",
        fine,
        "mode",
        (gain - price).astype(float),
        "at most 0",
    )


def check_entropy(trial: Trial) -> None:
    """Of two groups the sum over all outcomes; of more the average of -log P over draws, to a few
    tenths.
    """
    entropy = trial.get("entropy()", lambda urn, rows: urn.entropy())
    trial.expect("entropy is not negative", entropy >= -1e-12, "entropy()", entropy, "at least 0")
    if not trial.is_fisher:
        return
    lowest, highest = trial.support
    if trial.batch.groups == 2:
        first = np.minimum(lowest[:, :1] + np.arange(FEW), highest[:, :1])
        counts = np.stack([first, trial.batch.draws[:, None] - first], -1)
        log_p = trial.reference.log_prob(counts)
        once = lowest[:, :1] + np.arange(FEW) <= highest[:, :1]
        exact = -np.where(once, np.exp(log_p) * log_p, 0.0).sum(-1)
        summed = highest[:, 0] - lowest[:, 0] < FEW
        fine = ~summed | (np.abs(entropy - exact) <= FISHER.entropy * exact + 1e-12)
        trial.expect("entropy is right", fine, "entropy()", entropy, exact)
    draws = trial.get(
        f"sample(({SAMPLES},))", lambda urn, rows: urn.sample((SAMPLES,)).movedim(0, 1)
    )
    average = -trial.reference.log_prob(np.nan_to_num(draws).astype(np.int64)).mean(-1)
    # -log P has a variance of about (c - 1)/2 and exponential tails: 12 deviations of the average
    # are exceeded once in 1e12 urns.
    slack = 12 * np.sqrt(trial.batch.groups / SAMPLES)
    trial.expect(
        "entropy is what draws show",
        np.abs(entropy - average) <= slack,
        "entropy()",
        entropy,
        average,
    )
