"""The work of the fuzzer in small pieces: a job is one batch of one family under one set of checks."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from fuzzing import draws, gradients, modes, moments, precision, probabilities, tails, tilts
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


FISHER_TAILS: tuple[Check, ...] = (
    tails.check_tails,
    tails.check_marginals,
    tails.check_sums,
    tails.check_quantiles,
    modes.check_mode,
    modes.check_entropy,
)
# Under a derivative no closed form and no table may be used, so that values are checked as well.
FISHER_GRADIENTS: tuple[Check, ...] = (
    probabilities.check_log_prob,
    moments.check_mean,
    moments.check_variance,
    gradients.check_slope_of_log_prob,
    gradients.check_slope_of_mean,
    gradients.check_slope_of_draws,
)
WALLENIUS_TAILS: tuple[Check, ...] = (tails.check_tails, tails.check_sums, tails.check_quantiles, modes.check_mode, modes.check_entropy)
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
    """

    law: str
    checks: tuple[Check, ...]
    rows: int
    share: float
    groups: tuple[int, int] = (1, 1000)
    requires_grad: bool = False


KINDS = {
    "fisher": Kind("fisher", FISHER, 512, 2.0),
    "fisher-tails": Kind("fisher", FISHER_TAILS, 32, 0.5),
    "fisher-gradients": Kind("fisher", FISHER_GRADIENTS, 64, 0.5, requires_grad=True),
    "fisher-precision": Kind("fisher", (precision.check_precision,), 4, 0.5, (1, 100)),
    "tilt": Kind("fisher", (tilts.check_tilt,), 20_000, 2.0),
    "wallenius": Kind("wallenius", WALLENIUS, 256, 0.5, (1, 100)),
    "wallenius-moments": Kind("wallenius", WALLENIUS_MOMENTS, 8, 0.5, (1, 12)),
    "wallenius-tails": Kind("wallenius", WALLENIUS_TAILS, 8, 0.2, (2, 2)),
    "wallenius-tails-of-many": Kind("wallenius", (tails.check_tails,), 1, 0.04, (3, 4)),
    "wallenius-gradients": Kind("wallenius", WALLENIUS_GRADIENTS, 4, 0.2, (1, 12), requires_grad=True),
    "wallenius-precision": Kind("wallenius", (precision.check_precision,), 2, 0.2, (1, 12)),
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
    batch = generate(job.family, job.seed, job.index, kind.rows, *kind.groups)
    trial = Trial(kind.law, batch, device, job.index, kind.requires_grad)
    return Result({job.kind: len(batch)}, run_checks(trial, kind.checks))


def schedule(seed: int, kinds: Sequence[str], families: Sequence[str]) -> Iterator[Job]:
    """Endless rounds over all families; in each round a kind has as many batches of a family as its share says."""
    made: Counter[tuple[str, str]] = Counter()
    for turn in itertools.count():
        for family, kind in itertools.product(families, kinds):
            share = KINDS[kind].share if groups_of(family, *KINDS[kind].groups) else 0
            for _ in range(int((turn + 1) * share) - int(turn * share)):
                yield Job(kind, family, seed, made[kind, family])
                made[kind, family] += 1
