"""A few urns of every family against oracles in 40 and more digits, with the tolerances of the
accuracy tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import numpy as np
import torch
from mpmath import mp, mpf

from fuzzing.moments import covariance_floor
from fuzzing.outcomes import centre_and_spread, probes
from fuzzing.probabilities import allowed
from fuzzing.trial import Trial
from support import oracles, tolerances, wallenius_oracles
from support.distributions import error
from support.tolerances import Tolerances
from support.urns import ENUMERABLE, NEVER, Urn, support_size
from support.wallenius_oracles import Balls

MOST_WEIGHTS = 40  # different ones; the oracles' time grows with them
MOST_OUTCOMES = 400  # of an urn whose draws are followed one by one
MOST_DRAWS = 60


def check_precision(trial: Trial) -> None:
    """One urn after another, each with the oracles that can bear it."""
    for row in range(len(trial.batch)):
        urn = trial.batch.urn(row)
        if urn.distinct_weights <= MOST_WEIGHTS:
            with suppress(
                oracles.TooFewDigitsError
            ):  # the oracle's own word: weights too far apart for it
                (_check_fisher if trial.is_fisher else _check_wallenius)(_Row(trial, row, urn))


class _Row:
    """One urn of a trial, and its comparisons with exact numbers."""

    def __init__(self, trial: Trial, row: int, urn: Urn) -> None:
        self.single, self.urn = trial.alone(row), urn
        self.trial = trial

    def compare(
        self,
        check: str,
        call: str,
        ours: Sequence[float],
        exact: Iterable[mpf],
        allowed_errors: Iterable[float],
    ) -> None:
        triples = list(zip(ours, exact, allowed_errors, strict=True))
        fine = np.array(
            [[error(value, reference) <= tolerance for value, reference, tolerance in triples]]
        )
        self.single.expect(
            check,
            fine,
            call,
            np.array([ours]),
            np.array([[float(reference) for reference in (t[1] for t in triples)]]),
        )
        self.trial.findings += self.single.findings
        for finding in self.single.findings:
            finding.is_of_a_call = True  # it is about a single urn already
        self.single.findings = []

    def get(self, name: str, compute=None) -> list:
        result = self.single.get(name, compute)[0]
        self.trial.findings += self.single.findings
        self.single.findings = []
        return result.tolist()

    def log_probs(self, counts: np.ndarray) -> list[float]:
        return self.get(
            "log_prob(probes)",
            lambda urn, rows: urn.log_prob(
                torch.tensor(counts, device=self.single.device)
            ).unsqueeze(0),
        )


def _outcomes(row: _Row) -> np.ndarray:
    batch = row.single.batch
    found = probes(
        batch, *centre_and_spread(batch, row.single.law), np.random.default_rng([row.trial.seed, 6])
    )[0]
    return np.array(list(dict.fromkeys(map(tuple, found.tolist()))))


def _relative(exact: Sequence[mpf], tolerance: float, least: float = 0.0) -> list[float]:
    return [max(tolerance * abs(float(value)), least) for value in exact]


def _check_fisher(row: _Row) -> None:
    urn, promised, counts = row.urn, tolerances.FISHER, _outcomes(row)
    exact = [oracles.log_prob(urn, x) for x in counts.tolist()]
    errors = allowed(row.single, counts[None], np.array([[float(value) for value in exact]]))[0]
    row.compare(
        "log_prob has its digits",
        f"log_prob({counts.tolist()})[{{index}}]",
        row.log_probs(counts),
        exact,
        errors,
    )
    moments = oracles.moments(urn)
    row.compare(
        "mean has its digits",
        "mean[{index}]",
        row.get("mean"),
        moments.mean,
        _relative(moments.mean, promised.mean, promised.mean_floor),
    )
    _check_covariance(
        row,
        {pair: value for pair, value in moments.covariance.items() if urn.groups <= 12},
        promised,
    )
    terms = max(
        [
            1.0,
            *(
                abs(lw) * min(m, urn.draws)
                for m, lw in zip(urn.drawable, urn.log_weights, strict=True)
                if m > 0
            ),
        ]
    )
    if not row.single.batch.by_weights:
        exact = [moments.log_normalizer]
        row.compare(
            "log_normalizer has its digits",
            "log_normalizer",
            [row.get("log_normalizer")],
            exact,
            [max(1e-13 * abs(float(exact[0])), 1e-14 * terms + 1e-12)],
        )
    if urn.population <= 10**4 and support_size(urn) <= ENUMERABLE:
        enumerated = oracles.enumeration(urn)
        entropy = enumerated.entropy()
        row.compare(
            "entropy has its digits",
            "entropy()",
            [row.get("entropy()", lambda urn, rows: urn.entropy())],
            [entropy],
            _relative([entropy], promised.entropy, 1e-12),
        )
        with mp.workdps(60):
            marginals = [
                {x: mp.exp(log_p) for x, log_p in marginal.items()}
                for marginal in enumerated.marginals()
            ]
        _check_tails(row, marginals, promised, most=40)


def _check_covariance(row: _Row, exact: dict[tuple[int, int], mpf], promised: Tolerances) -> None:
    if not exact:
        return
    ours, largest = row.get("covariance_matrix"), float(max(abs(value) for value in exact.values()))
    values = [ours[i][j] for i, j in exact]
    errors = [promised.covariance * largest + float(covariance_floor(row.single)[0])] * len(exact)
    row.compare(
        "covariance has its digits",
        f"covariance_matrix  # entry {{index}} of {list(exact)}:",
        values,
        exact.values(),
        errors,
    )


def _check_tails(
    row: _Row, marginals: Sequence[dict[int, mpf]], promised: Tolerances, most: int
) -> None:
    """So many counts of every group of a small urn, among all that some group can have."""
    highest = max(max(marginal) for marginal in marginals)
    xs = list(range(0, highest + 1, 1 + highest // most))
    grid = (
        torch.tensor(xs, dtype=torch.float64, device=row.single.device)
        .unsqueeze(-1)
        .expand(-1, row.urn.groups)
    )
    for method, tolerance in (
        ("log_prob", promised.marginal),
        ("log_cdf", promised.tails),
        ("log_sf", promised.tails),
    ):
        ours = row.get(
            f"marginals.{method}",
            lambda urn, rows, method=method: getattr(urn.marginals, method)(grid).unsqueeze(0),
        )
        for group, marginal in enumerate(marginals):
            exact = [_log_probability(method, marginal, x) for x in xs]
            bounds = [
                tolerance * max(1.0, abs(float(value))) if mp.isfinite(value) else 0.0
                for value in exact
            ]
            call = f"marginals.{method}  # of group {group} at {{index}} in {xs}:"
            row.compare(
                f"marginals.{method} has its digits",
                call,
                [values[group] for values in ours],
                exact,
                bounds,
            )


def _log_probability(method: str, marginal: dict[int, mpf], x: int) -> mpf:
    chosen = {
        "log_prob": lambda k: k == x,
        "log_cdf": lambda k: k <= x,
        "log_sf": lambda k: k > x,
    }[method]
    with mp.workdps(60):
        masses = [mass for k, mass in marginal.items() if chosen(k)]
        if len(masses) == len(marginal):
            return mpf(0)
        return mp.log(mp.fsum(masses)) if masses else -mp.inf


# --------------------------------------------------------------------------------------------------
# Wallenius
# --------------------------------------------------------------------------------------------------


def _balls(urn: Urn) -> Balls:
    """A common factor of the weights changes nothing, and the oracle's search for a time is limited
    to moderate weights.
    """
    heaviest = max(
        (lw for m, lw in zip(urn.drawable, urn.log_weights, strict=True) if m > 0), default=0.0
    )
    with mp.workdps(80):
        weights = tuple(
            mpf(0) if lw == NEVER else mp.exp(mpf(lw) - mpf(heaviest)) for lw in urn.log_weights
        )
    return Balls(urn.group_sizes, urn.draws, weights)


def _check_wallenius(row: _Row) -> None:
    urn, balls, counts = row.urn, _balls(row.urn), _outcomes(row)
    small = (
        urn.draws <= MOST_DRAWS
        and urn.groups <= 6
        and support_size(urn, MOST_OUTCOMES) <= MOST_OUTCOMES
    )
    promised = tolerances.WALLENIUS_SMALL if urn.population <= 100 else tolerances.WALLENIUS
    law = wallenius_oracles.DrawByDraw(balls) if small else None
    exact = []
    for x in counts.tolist():
        try:
            exact.append(
                law.log_prob(x) if law else wallenius_oracles.log_prob(balls, x, digits=20)
            )
        except (AssertionError, ArithmeticError, ValueError, StopIteration):
            exact.append(None)  # the oracle's own panels do not agree: weights too far apart for it
    kept = [i for i, value in enumerate(exact) if value is not None]
    if kept:
        bounds = [promised.log_prob * max(1.0, abs(float(exact[i]))) for i in kept]
        ours = row.log_probs(counts[kept])
        row.compare(
            "log_prob has its digits",
            f"log_prob({counts[kept].tolist()})[{{index}}]",
            ours,
            [exact[i] for i in kept],
            bounds,
        )
    if law:
        row.compare(
            "mean has its digits",
            "mean[{index}]",
            row.get("mean"),
            law.mean,
            _relative(law.mean, promised.mean, promised.mean_floor),
        )
        groups = range(urn.groups)
        _check_covariance(
            row, {(i, j): law.covariance[i][j] for i in groups for j in groups}, promised
        )
        _check_tails(
            row, law.marginals, promised, most=40 if urn.groups <= 2 else 2
        )  # of more groups they take long
    elif urn.distinct_weights == 2 and urn.groups <= 6 and _is_bell(row):
        _check_bell(row, balls, promised)


def _is_bell(row: _Row) -> bool:
    """Whether the number of balls of each weight is spread over so many counts that the oracle may
    take every so-manieth.
    """
    _, spread = centre_and_spread(row.single.batch, "wallenius")
    return bool((spread[row.single.batch.drawable > 0] > 400).all())


def _check_bell(row: _Row, balls: Balls, promised: Tolerances) -> None:
    held = [
        j
        for j, (m, w) in enumerate(zip(balls.sizes, balls.weights, strict=True))
        if m > 0 and w > 0
    ]
    law = wallenius_oracles.large_law(
        Balls(
            tuple(balls.sizes[j] for j in held), balls.draws, tuple(balls.weights[j] for j in held)
        )
    )
    if abs(law.total - 1) > 1e-11:
        return  # the oracle's lattice does not fit
    mean = row.get("mean")
    row.compare(
        "mean has its digits",
        "mean[{index}]",
        [mean[j] for j in held],
        law.mean,
        _relative(law.mean, promised.mean),
    )
    exact = {(i, j): law.covariance[a][b] for a, i in enumerate(held) for b, j in enumerate(held)}
    _check_covariance(row, exact, promised)
