"""The work of the fuzzer in small pieces: a job is one batch of one family under one set of checks."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from fuzzing import draws, moments, probabilities
from fuzzing.families import generate
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
WALLENIUS: tuple[Check, ...] = (
    probabilities.check_log_prob,
    probabilities.check_recursion,
    draws.check_draws,
)
WALLENIUS_MOMENTS: tuple[Check, ...] = (
    moments.check_mean,
    moments.check_closed_forms,
    moments.check_covariance,
    moments.check_variance,
    draws.check_reparametrised_draws,
    draws.check_draws_against_moments,
)


@dataclass(frozen=True)
class Kind:
    """A set of checks of one law.

    Attributes:
        rows: the most urns of a batch.
        share: batches of each family in a round.
        groups: the most groups of an urn.
    """

    law: str
    checks: tuple[Check, ...]
    rows: int
    share: float
    groups: int = 1000


KINDS = {
    "fisher": Kind("fisher", FISHER, 512, 2.0),
    "wallenius": Kind("wallenius", WALLENIUS, 256, 0.5, 100),
    "wallenius-moments": Kind("wallenius", WALLENIUS_MOMENTS, 8, 0.5, 12),
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
    """How many urns a job has checked, and what it found."""

    counts: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def prepare() -> None:
    """Once in every process."""
    torch.set_num_threads(1)  # processes must not compete for the same cores
    warnings.simplefilter("ignore")


def run(job: Job, device: torch.device) -> Result:
    kind = KINDS[job.kind]
    batch = generate(job.family, job.seed, job.index, kind.rows, kind.groups)
    trial = Trial(kind.law, batch, device, seed=job.index)
    return Result({job.kind: len(batch)}, run_checks(trial, kind.checks))


def schedule(seed: int, kinds: Sequence[str], families: Sequence[str]) -> Iterator[Job]:
    """Endless rounds over all families; in each round a kind has as many batches of a family as its share says."""
    made: Counter[tuple[str, str]] = Counter()
    for turn in itertools.count():
        for family, kind in itertools.product(families, kinds):
            share = KINDS[kind].share
            for _ in range(int((turn + 1) * share) - int(turn * share)):
                yield Job(kind, family, seed, made[kind, family])
                made[kind, family] += 1
