"""log_prob of outcomes from the centre to the ends of the support."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fuzzing.families import Floats, Integers
from fuzzing.outcomes import exchange, fluid, probes
from fuzzing.trial import Trial, Values, build
from support import tolerances
from support.tolerances import EPS

CERTAIN = 1e-11  # log P may exceed 0 by so much where the outcome is all but certain
MOST_RECURSION = 64  # urns of a batch, and groups


def promised(trial: Trial) -> Floats:
    """The relative error of log P that is allowed, one number an urn."""
    if trial.is_fisher:
        return np.full(len(trial.batch), tolerances.FISHER.log_prob)
    small = trial.batch.population <= 100
    return np.where(small, tolerances.WALLENIUS_SMALL.log_prob, tolerances.WALLENIUS.log_prob)


def counts_of(trial: Trial) -> Integers:
    rng = np.random.default_rng([trial.seed, 1])
    centre = (
        (trial.reference.mean, trial.reference.spread) if trial.is_fisher else fluid(trial.batch)
    )
    return probes(trial.batch, *centre, rng)


def log_probs(trial: Trial, name: str, counts: Integers) -> Values:
    """log P of counts (B, K, c), shape (B, K)."""

    def compute(urn, rows: Integers) -> torch.Tensor:
        return urn.log_prob(torch.tensor(counts[rows], device=trial.device).movedim(1, 0)).movedim(
            0, 1
        )

    return trial.get(f"log_prob({name})", compute, lambda row: f"log_prob({counts[row].tolist()})")


def allowed(trial: Trial, counts: Integers, exact: Floats) -> Floats:
    """What is promised, and what no float64 computation can avoid.

    ∂ log P/∂ log ω_j = x_j - E[x_j], and the log-odds of a group are rounded to half a unit of
    their last place. At 10¹² balls that is 1e-10 for a typical outcome. If weights are given, their
    logarithms are rounded as well.
    """
    log_odds = np.where(trial.batch.drawable > 0, trial.reference.log_odds, 0).astype(float)
    rounded = 1 + np.abs(log_odds)
    if trial.batch.by_weights:
        rounded = rounded + np.abs(np.where(trial.batch.drawable > 0, trial.batch.log_weights, 0.0))
    unavoidable = EPS * (
        np.abs(counts - trial.reference.mean[:, None, :]) * rounded[:, None, :]
    ).sum(-1)
    return promised(trial)[:, None] * np.maximum(1, np.abs(exact)) + unavoidable


def at(counts: Integers):
    return lambda row, index: f"log_prob({counts[row, index[0]].tolist()})"


def check_log_prob(trial: Trial) -> None:
    counts = counts_of(trial)
    ours = log_probs(trial, "probes", counts)
    trial.expect(
        "log_prob of a possible outcome is finite",
        np.isfinite(ours),
        at(counts),
        ours,
        "a finite number",
    )
    trial.expect("log_prob is not above 0", ~(ours > CERTAIN), at(counts), ours, "at most 0")
    if trial.is_fisher:
        exact = trial.reference.log_prob(counts)
        fine = np.abs(ours - exact) <= allowed(trial, counts, exact)
        trial.expect("log_prob is right", fine, at(counts), ours, exact)


def check_neighbours(trial: Trial) -> None:
    """P(x + e_i - e_j) / P(x) is a ratio of four integers and two weights (Fisher)."""
    if not trial.is_fisher:
        return
    centre = counts_of(trial)[:, 0]
    rows, to, source = exchange(trial.batch, centre, np.random.default_rng([trial.seed, 2]))
    if not len(rows):
        return
    moved = centre.copy()
    moved[rows, to] += 1
    moved[rows, source] -= 1
    pair = np.stack([centre, moved], 1)
    ours = log_probs(trial, "neighbours", pair)
    exact, difference = np.zeros(len(centre)), ours[:, 1] - ours[:, 0]
    to_all, source_all = np.zeros(len(centre), np.int64), np.zeros(len(centre), np.int64)
    to_all[rows], source_all[rows] = to, source
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = trial.reference.neighbour_ratio(centre, to_all, source_all)
    exact[rows] = ratio[rows]
    fine = np.abs(difference - exact) <= 2 * allowed(trial, pair, ours).max(1)
    trial.expect(
        "log_prob of neighbours differs by the ratio of their binomials",
        fine,
        lambda row, index: f"log_prob([{moved[row].tolist()}, {centre[row].tolist()}]).diff()",
        -difference,
        -exact,
    )


def check_recursion(trial: Trial) -> None:
    """The last ball came from some group (Wallenius): P_n(x) = Σ_j P_{n-1}(x - e_j) ω_j (m_j - x_j
    + 1) / Σ_i ω_i (m_i - x_i + [i = j]).
    """
    batch = trial.batch
    if trial.is_fisher or batch.groups > MOST_RECURSION:
        return
    counts = counts_of(trial)[:, [0, 2, 3, 5]]
    ours = log_probs(trial, "recursion", counts)
    steps = np.eye(batch.groups, dtype=np.int64)
    before = counts[:, :, None, :] - steps  # (B, K, j, c): the last ball was of group j
    possible = (before >= 0).all(-1) & (batch.drawable > 0)[:, None, :]
    flat = np.where(possible[..., None], before, 0).reshape(len(batch), -1, batch.groups)
    shorter = np.maximum(batch.draws - 1, 0)

    def compute(urn, rows: Integers) -> torch.Tensor:
        fewer = replace(batch.take(rows), draws=shorter[rows])
        previous = build(trial.distribution, fewer, trial.device)
        value = torch.tensor(
            np.where(
                possible.reshape(len(batch), -1, 1), flat, _any_outcome(trial, shorter)[:, None, :]
            )[rows]
        )
        return previous.log_prob(value.to(trial.device).movedim(1, 0)).movedim(0, 1)

    earlier = trial.get("log_prob(one ball before)", compute).reshape(possible.shape)
    log_weights = np.where(batch.drawable > 0, batch.exact_log_weights, -np.inf)
    left = (batch.drawable[:, None, :] - counts)[:, :, None, :] + steps
    with np.errstate(divide="ignore", invalid="ignore"):
        weight_left = np.logaddexp.reduce(
            np.log(left.astype(np.longdouble)) + log_weights[:, None, None, :], -1
        )
        own = (
            np.log((batch.drawable[:, None, :] - counts + 1).astype(np.longdouble))
            + log_weights[:, None, :]
        )
        terms = np.where(possible, earlier + own - weight_left, -np.inf)
    recursive = np.logaddexp.reduce(terms, -1).astype(float)
    exact = np.where(batch.draws[:, None] == 0, 0.0, recursive)
    fine = np.abs(ours - exact) <= 2 * promised(trial)[:, None] * np.maximum(1, np.abs(exact))
    trial.expect("log_prob follows from those of one draw less", fine, at(counts), ours, exact)


def _any_outcome(trial: Trial, draws: Integers) -> Integers:
    """Some possible counts, to stand where there are none."""
    left, counts = draws.copy(), np.zeros_like(trial.batch.group_sizes)
    for group in range(trial.batch.groups):
        counts[:, group] = np.minimum(left, trial.batch.drawable[:, group])
        left = left - counts[:, group]
    return counts
