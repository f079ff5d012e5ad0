"""The work of the fuzzer in small pieces: a job is one batch of one family under one set of
checks.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from diffurn import FisherHypergeometric
from fuzzing import (
    compiled,
    draws,
    gradients,
    modes,
    moments,
    precision,
    probabilities,
    tails,
    tilts,
)
from fuzzing.families import generate, groups_of
from fuzzing.findings import Finding
from fuzzing.trial import Check, Trial, run_checks

FISHER: tuple[Check, ...] = (
    probabilities.check_log_prob,
    probabilities.check_neighbours,
    moments.check_mean,
    moments.check_closed_forms,
    moments.check_variance,
    moments.check_covariance,
    draws.check_draws,
    draws.check_reparametrised_draws,
    draws.check_draws_against_moments,
)
FISHER_TAILS: tuple[Check, ...] = (
    tails.check_tails,
    tails.check_marginals,
    tails.check_sums,
    tails.check_quantiles,
    modes.check_mode,
    modes.check_entropy,
)
# Under a derivative no closed form may be used, so values are checked as well.
FISHER_GRADIENTS: tuple[Check, ...] = (
    probabilities.check_log_prob,
    moments.check_mean,
    moments.check_variance,
    gradients.check_slope_of_log_prob,
    gradients.check_slope_of_mean,
    gradients.check_slope_of_draws,
)
FISHER_COMPILED: tuple[Check, ...] = (compiled.check_compiled_values, compiled.check_compiled_draws)
WALLENIUS: tuple[Check, ...] = (
    probabilities.check_log_prob,
    probabilities.check_recursion,
    draws.check_draws,
)
WALLENIUS_MEANS: tuple[Check, ...] = (
    moments.check_mean,
    moments.check_closed_forms,
    draws.check_reparametrised_draws,
)
WALLENIUS_MOMENTS: tuple[Check, ...] = (
    moments.check_mean,
    moments.check_closed_forms,
    moments.check_covariance,
    moments.check_variance,
    draws.check_draws_against_moments,
)
WALLENIUS_TAILS: tuple[Check, ...] = (
    tails.check_tails,
    tails.check_sums,
    tails.check_quantiles,
    modes.check_mode,
    modes.check_entropy,
)
WALLENIUS_GRADIENTS: tuple[Check, ...] = (
    probabilities.check_log_prob,
    probabilities.check_recursion,
    gradients.check_slope_of_log_prob,
    gradients.check_slope_of_mean,
)


@dataclass(frozen=True)
class Kind:
    """A set of checks of one law.

    Attributes:
        rows: the most urns of a batch.
        share: batches of each family in a round.
        groups: the fewest and the most groups of an urn.
        requires_grad: whether the weights ask for a derivative.
        families: the only ones that are tried; all of them if there are none.
    """

    law: str
    checks: tuple[Check, ...]
    rows: int
    share: float
    groups: tuple[int, int] = (1, 1000)
    requires_grad: bool = False
    families: tuple[str, ...] = ()

    def has(self, family: str) -> bool:
        return (not self.families or family in self.families) and bool(
            groups_of(family, *self.groups)
        )


# Wallenius' moments and tails are slow where they are integrals, hence their small batches and
# shares. In 90 rounds there are a million of Fisher's urns, a hundred thousand of Wallenius' and
# fifty million tilts.
KINDS = {
    "fisher": Kind("fisher", FISHER, 512, 2.0),
    "fisher-tails": Kind("fisher", FISHER_TAILS, 32, 0.25),
    "fisher-gradients": Kind("fisher", FISHER_GRADIENTS, 64, 0.125, requires_grad=True),
    "fisher-precision": Kind("fisher", (precision.check_precision,), 4, 0.4, (1, 100)),
    "fisher-compiled": Kind(
        "fisher",
        FISHER_COMPILED,
        compiled.ROWS,
        0.1,
        (compiled.GROUPS,) * 2,
        families=("everyday", "ties", "wide"),
    ),
    "tilt": Kind("fisher", (tilts.check_tilt,), 20_000, 2.0),
    "wallenius": Kind("wallenius", WALLENIUS, 256, 0.3, (1, 100)),
    "wallenius-means": Kind("wallenius", WALLENIUS_MEANS, 16, 0.5, (1, 12)),
    "wallenius-moments": Kind("wallenius", WALLENIUS_MOMENTS, 8, 0.3, (1, 12)),
    "wallenius-tails": Kind("wallenius", WALLENIUS_TAILS, 8, 0.1, (2, 2)),
    "wallenius-tails-of-many": Kind("wallenius", (tails.check_tails,), 1, 0.04, (3, 4)),
    "wallenius-gradients": Kind(
        "wallenius", WALLENIUS_GRADIENTS, 4, 0.2, (1, 12), requires_grad=True
    ),
    "wallenius-precision": Kind("wallenius", (precision.check_precision,), 2, 0.15, (1, 12)),
}


@dataclass(frozen=True)
class Job:
    kind: str
    family: str
    seed: int
    index: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.family}:{self.index}"


@dataclass
class Result:
    """How many urns a job has checked in how many seconds of processor time, and what it found."""

    urns: int
    seconds: float
    findings: list[Finding]

    def add(self, other: Result) -> None:
        self.urns += other.urns
        self.seconds += other.seconds


def prepare(device: torch.device) -> None:
    """Once in every process. A first draw imports and compiles what is needed: a time limit must
    not end that half-way.
    """
    torch.set_num_threads(1)  # processes must not compete for the same cores
    warnings.simplefilter("ignore")
    for size in (5, 500):
        log_weights = torch.zeros(3, dtype=torch.float64, device=device, requires_grad=True)
        FisherHypergeometric([size] * 3, size, log_weights=log_weights).rsample(
            (2,)
        ).sum().backward()


def run(job: Job, device: torch.device) -> Result:
    kind, began = KINDS[job.kind], time.process_time()
    batch = generate(job.family, job.seed, job.index, kind.rows, *kind.groups)
    findings = run_checks(
        Trial(kind.law, batch, device, job.index, kind.requires_grad), kind.checks
    )
    return Result(len(batch), time.process_time() - began, findings)


def schedule(seed: int, kinds: Sequence[str], families: Sequence[str]) -> Iterator[Job]:
    """Endless rounds over all families; in each round a kind has as many batches of a family as its
    share says.
    """
    pairs = [
        (kind, family)
        for family, kind in itertools.product(families, kinds)
        if KINDS[kind].has(family)
    ]
    made: Counter[tuple[str, str]] = Counter()
    for turn in itertools.count(1) if pairs else ():
        for kind, family in pairs:
            while made[kind, family] < int(turn * KINDS[kind].share):
                yield Job(kind, family, seed, made[kind, family])
                made[kind, family] += 1
