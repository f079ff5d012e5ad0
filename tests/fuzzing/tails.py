"""Single groups: marginal probabilities, cumulated ones on both sides, quantiles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fuzzing.families import Floats, Integers
from fuzzing.outcomes import complete, fluid
from fuzzing.reference import Reference
from fuzzing.trial import Trial, Values
from support import tolerances

WIDE = 40  # counts of a support that is summed as a whole
MOST_GROUPS = 8


def _values(trial: Trial, method: str, name: str, points: Values) -> Values:
    """A method of `urn.marginals` at points (B, G, c)."""

    def compute(urn, rows: Integers) -> torch.Tensor:
        return getattr(urn.marginals, method)(
            torch.tensor(points[rows], device=trial.device).movedim(1, 0)
        ).movedim(0, 1)

    call = f"marginals.{method}"
    return trial.get(f"{call}({name})", compute, lambda row: f"{call}({points[row].tolist()})")


def _points(trial: Trial) -> Integers:
    """Counts (B, G, c) around the mean, up to 12 deviations away, and at the ends of the
    support.
    """
    mean, spread = (
        (trial.reference.mean, trial.reference.spread) if trial.is_fisher else fluid(trial.batch)
    )
    lowest, highest = trial.support
    steps = np.array([-12.0, -3.0, -0.5, 0.5, 2.0, 9.0])
    near = np.rint(mean[:, None, :] + steps[:, None] * np.sqrt(spread)[:, None, :])
    ends = np.stack([lowest, highest, np.minimum(lowest + 1, highest)], 1)
    found = np.concatenate(
        [np.clip(near, lowest[:, None, :], highest[:, None, :]), ends], 1
    ).astype(np.int64)
    return (
        found if trial.is_fisher or trial.batch.groups <= 2 else found[:, 2:5:2]
    )  # one of Wallenius' takes a second


def promised(trial: Trial) -> tuple[float, float]:
    """Of tails and of marginals."""
    chosen = tolerances.FISHER if trial.is_fisher else tolerances.WALLENIUS
    return chosen.tails, chosen.marginal


def _at(method: str, points: Values):
    def call(row: int, index: tuple[int, ...]) -> str:
        return f"marginals.{method}({points[row, index[0]].tolist()})[{index[1]}]"

    return call


def _close(ours: Values, exact: Values, tolerance: float) -> Values:
    with np.errstate(invalid="ignore"):
        return (ours == exact) | (np.abs(ours - exact) <= tolerance * np.maximum(1, np.abs(exact)))


def check_tails(trial: Trial) -> None:
    """P(X ≤ x) + P(X > x) = 1; P(X ≤ x) = P(X ≤ x - 1) + P(X = x); nothing below the support, all
    within it.
    """
    if trial.batch.groups > MOST_GROUPS:
        return
    x, (tails, marginal) = _points(trial), promised(trial)
    lowest, highest = (end[:, None, :] for end in trial.support)
    log_cdf, log_sf = _values(trial, "log_cdf", "points", x), _values(trial, "log_sf", "points", x)
    below, above = (
        _values(trial, "log_cdf", "points - 1", x - 1),
        _values(trial, "log_sf", "points - 1", x - 1),
    )
    mass = _values(trial, "log_prob", "points", x)
    for method, values in (("log_cdf", log_cdf), ("log_sf", log_sf), ("log_prob", mass)):
        trial.expect(
            f"{method} is a log-probability", values <= tails, _at(method, x), values, "at most 0"
        )
    total = np.exp(log_cdf) + np.exp(log_sf)
    trial.expect(
        "cdf and sf sum to one",
        np.abs(total - 1) <= tails,
        _at("cdf", x),
        np.exp(log_cdf),
        1 - np.exp(log_sf),
    )
    fine = (x < highest) | ((log_cdf == 0) & (log_sf == -np.inf))
    trial.expect("the support has an upper end", fine, _at("log_sf", x), log_sf, "-inf")
    fine = (x > lowest) | ((below == -np.inf) & (above == 0))
    trial.expect("the support has a lower end", fine, _at("log_cdf", x - 1), below, "-inf")
    for method, whole, part in (("log_cdf", log_cdf, below), ("log_sf", above, log_sf)):
        steps = np.logaddexp(part, mass)
        trial.expect(
            f"{method} grows by the marginal probability",
            _close(whole, steps, tails + marginal),
            _at(method, x),
            whole,
            steps,
        )
    _check_far_tails(trial, x, log_cdf, above, mass)


def _check_far_tails(
    trial: Trial, x: Integers, log_cdf: Values, log_sf_before: Values, mass: Values
) -> None:
    """P(X ≥ x) lies between two geometric series, as Fisher's marginals are log-concave: 1 + r and
    1/(1 - r), r = P(x + 1)/P(x).
    """
    if not trial.is_fisher:
        return
    tails, marginal = promised(trial)
    lowest, highest = (end[:, None, :] for end in trial.support)
    for method, step, values in (("log_cdf", -1, log_cdf), ("log_sf", 1, log_sf_before)):
        further = _values(
            trial, "log_prob", f"points {step:+d}", np.clip(x + step, lowest, highest)
        )
        inside = (x + step >= lowest) & (x + step <= highest)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.where(inside, np.exp(np.minimum(further - mass, 1.0)), 0.0)
            low, high = (
                np.where(inside, np.logaddexp(mass, further), mass),
                mass - np.log1p(-np.minimum(ratio, 1.0)),
            )
        slack = (tails + 2 * marginal) * np.maximum(1, np.abs(mass)) / np.maximum(1 - ratio, 1e-3)
        fine = (values >= low - slack) & ((ratio >= 0.999) | (values <= high + slack))
        trial.expect(
            f"{method} is next to the first probabilities of its tail",
            fine,
            _at(method, x - (step > 0)),
            values,
            low,
        )


def check_marginals(trial: Trial) -> None:
    """P(X_j = x) P(the others | X_j = x) = P(all), and the others are an urn of their own
    (Fisher).
    """
    batch = trial.batch
    if not trial.is_fisher or not 2 <= batch.groups <= MOST_GROUPS:
        return
    x = _points(trial)
    ours = _values(trial, "log_prob", "points", x)
    group = int(np.random.default_rng([trial.seed, 3]).integers(batch.groups))
    others = [j for j in range(batch.groups) if j != group]
    exact = np.zeros(ours.shape[:2])
    for place in range(x.shape[1]):
        rest = replace(
            batch,
            group_sizes=batch.group_sizes[:, others],
            draws=batch.draws - x[:, place, group],
            log_weights=batch.log_weights[:, others],
        )
        conditional = Reference(rest)
        counts = np.zeros_like(batch.group_sizes)
        counts[:, group] = x[:, place, group]
        counts[:, others] = complete(
            conditional.mean, rest.drawable, rest.draws, np.argsort(-conditional.spread, axis=1)
        )
        together = trial.reference.log_prob(counts[:, None, :])[:, 0]
        exact[:, place] = together - conditional.log_prob(counts[:, None, others])[:, 0]
    fine = _close(ours[:, :, group], exact, promised(trial)[1]) | (
        np.abs(ours[:, :, group] - exact) <= _rounding(trial, x, group)
    )
    trial.expect(
        "log_prob of marginals is right",
        fine,
        lambda row, index: f"marginals.log_prob({x[row, index[0]].tolist()})[{group}]",
        ours[:, :, group],
        exact,
    )


def _rounding(trial: Trial, x: Integers, group: int) -> Floats:
    """The rounding of weights and of log-odds, times what the logarithm changes with them."""
    rounded = 1 + np.abs(np.where(trial.batch.drawable > 0, trial.reference.log_odds, 0)).astype(
        float
    )
    if trial.batch.by_weights:
        rounded = rounded + np.abs(np.where(trial.batch.drawable > 0, trial.batch.log_weights, 0.0))
    return (
        2
        * tolerances.EPS
        * np.abs(x[:, :, group] - trial.reference.mean[:, None, group])
        * rounded.sum(-1, keepdims=True)
    )


def check_sums(trial: Trial) -> None:
    """Where few counts are possible, their probabilities sum to one and have the mean and the
    variance.
    """
    lowest, highest = trial.support
    few = (highest - lowest < WIDE).all(-1)
    if trial.batch.groups > MOST_GROUPS or not few.any():
        return
    x = np.minimum(lowest[:, None, :] + np.arange(WIDE)[:, None], highest[:, None, :])
    first = lowest[:, None, :] + np.arange(WIDE)[:, None] <= highest[:, None, :]
    mass = np.where(first, np.exp(_values(trial, "log_prob", "support", x)), 0.0)
    mean, variance = trial.get("mean"), trial.get("variance")
    distance = x - mean[:, None, :]
    tolerance = WIDE * promised(trial)[1]
    unless = ~few[:, None]
    for name, ours, exact, scale in (
        ("sum to one", mass.sum(1), np.ones_like(mean), 1.0),
        ("have the mean", (mass * distance).sum(1) + mean, mean, WIDE),
        ("have the variance", (mass * distance**2).sum(1), variance, WIDE**2),
    ):
        fine = unless | (
            np.abs(ours - exact)
            <= tolerance * scale + tolerances.WALLENIUS.sum_of_means * np.abs(mean)
        )
        trial.expect(f"marginal probabilities {name}", fine, "mean[{index}]", ours, exact)


def check_quantiles(trial: Trial) -> None:
    """cdf(icdf(q)) ≥ q > cdf(icdf(q) - 1), to the last bit."""
    if trial.batch.groups > (MOST_GROUPS if trial.is_fisher else 2):
        return
    rng = np.random.default_rng([trial.seed, 4])
    q = rng.random((len(trial.batch), 3, trial.batch.groups))
    q[:, 2] = 10.0 ** -rng.uniform(1, 15, q[:, 2].shape)
    x = _values(trial, "icdf", "random", q)
    lowest, highest = (end[:, None, :] for end in trial.support)
    inside = (x >= lowest) & (x <= highest) & (x == np.floor(x))
    trial.expect("icdf is a possible count", inside, _at("icdf", q), x, np.clip(x, lowest, highest))
    at, before = (
        _values(trial, "cdf", "quantiles", x),
        _values(trial, "cdf", "quantiles - 1", x - 1),
    )
    trial.expect(
        "icdf inverts cdf", (at >= q) & (before < q), _at("icdf", q), x, "cdf(x - 1) < q ≤ cdf(x)"
    )
