"""A slice of ``make fuzz`` with fixed seeds: every family of hard urns under every set of checks;
and whether the fuzzer finds failures.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from diffurn import FisherHypergeometric, WalleniusHypergeometric
from fuzzing import jobs, moments, pool, probabilities
from fuzzing.draws import check_draws
from fuzzing.families import FAMILIES, generate
from fuzzing.jobs import KINDS
from fuzzing.moments import check_mean
from fuzzing.reference import Reference
from fuzzing.trial import Trial, run_checks
from support import oracles
from support.urns import probe_counts

CPU = torch.device("cpu")
# Batches and the urns of each: few, where they take long.
SLICE = {
    "fisher": (3, 512),
    "fisher-tails": (1, 12),
    "fisher-gradients": (2, 64),
    "fisher-precision": (1, 2),
    "tilt": (2, 20_000),
    "wallenius": (2, 64),
    "wallenius-means": (1, 6),
    "wallenius-moments": (1, 3),
    "wallenius-tails": (1, 2),
    "wallenius-gradients": (1, 2),
    "wallenius-precision": (1, 1),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # limits are on processor time, of all threads together
    yield
    torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "family"),
    [(kind, family) for kind in SLICE for family in FAMILIES if KINDS[kind].has(family)],
)
def test_hard_urns_pass_every_check(kind: str, family: str, device: torch.device) -> None:
    chosen, (batches, rows) = KINDS[kind], SLICE[kind]
    for index in range(batches):
        batch = generate(family, 0, index, rows, *chosen.groups)
        findings = run_checks(
            Trial(chosen.law, batch, device, requires_grad=chosen.requires_grad), chosen.checks
        )
        assert not findings, "\n" + "\n".join(map(str, findings))


# --------------------------------------------------------------------------------------------------
# The fuzzer itself
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_gives_the_same_urns_again(family: str) -> None:
    first, again, other = generate(family, 3, 1), generate(family, 3, 1), generate(family, 4, 1)
    assert (first.group_sizes == again.group_sizes).all()
    assert (first.log_weights == again.log_weights).all()
    assert (
        first.group_sizes.shape != other.group_sizes.shape
        or not (first.log_weights == other.log_weights).all()
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_all_urns_of_a_family_are_possible(family: str) -> None:
    for index in range(5):
        batch = generate(family, 0, index)
        assert (batch.group_sizes >= 0).all()
        assert (batch.draws >= 0).all()
        assert (batch.draws <= batch.drawable.sum(-1)).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_reference_agrees_with_the_oracles(family: str) -> None:
    batch = generate(family, 1, 0, 2, 1, 40)
    reference = Reference(batch)
    for row in range(len(batch)):
        urn = batch.urn(row)
        counts = np.array(probe_counts(urn, near=1))
        exact = np.array([float(oracles.log_prob(urn, x)) for x in counts.tolist()])
        trial = Trial("fisher", batch.take([row]), CPU)
        allowed = probabilities.allowed(trial, counts[None], exact[None])[0]
        assert (
            np.abs(Reference(batch.take([row])).log_prob(counts[None])[0] - exact) <= 0.1 * allowed
        ).all()
        mean = np.array([float(value) for value in oracles.moments(urn).mean])
        assert (np.abs(reference.mean[row] - mean) <= 0.1 * moments.error_of_mean(trial)[0]).all()


def test_a_mean_that_is_wrong_in_the_tenth_digit_is_found() -> None:
    class Wrong(FisherHypergeometric):
        @property
        def mean(self) -> torch.Tensor:
            return super().mean * (1 + 1e-10)

    trial = Trial("fisher", generate("everyday", 0, 0, 20), CPU, distribution=Wrong)
    findings = run_checks(trial, [check_mean])
    assert "mean is right" in {finding.check for finding in findings}
    line = findings[0].examples[0].line
    assert eval(line.split("  #")[0]).dtype == torch.float64  # a reader can paste it


def test_a_single_bad_urn_in_a_batch_is_named() -> None:
    batch = generate("everyday", 0, 0, 20)
    culprit = batch.group_sizes[7].tolist()

    class Wrong(WalleniusHypergeometric):
        def log_prob(self, value: torch.Tensor) -> torch.Tensor:
            bad = (self.group_sizes == torch.tensor(culprit)).all(-1)
            return torch.where(bad, torch.nan, super().log_prob(value))

    trial = Trial("wallenius", batch, CPU, distribution=Wrong)
    (finding,) = run_checks(trial, [probabilities.check_log_prob])
    assert finding.count == 1
    assert str(culprit) in finding.examples[0].line


def test_draws_that_never_come_are_a_finding_not_the_end() -> None:
    batch = generate("everyday", 0, 0, 8)
    culprit = batch.group_sizes[5].tolist()

    class Endless(FisherHypergeometric):
        def sample(self, sample_shape: tuple[int, ...] = ()) -> torch.Tensor:
            while culprit in self.group_sizes.tolist():
                pass
            return super().sample(sample_shape)

    trial = Trial("fisher", batch, CPU, distribution=Endless, limit=0.5)
    (finding,) = run_checks(trial, [check_draws])
    assert finding.check == "sample does not return"
    assert str(culprit) in finding.examples[0].line


def test_processes_that_hang_or_die_are_replaced() -> None:
    hangs, dies, fails = "__import__('time').sleep(600)", "__import__('os')._exit(3)", "1 / 0"
    found = dict(
        pool.work_off(
            ["1 + 1", hangs, dies, fails, "2 + 2"], eval, int, workers=1, limit=2.0, seconds=60.0
        )
    )
    assert (found["1 + 1"], found["2 + 2"]) == (2, 4)
    assert "killed" in found[hangs].reason
    assert "exit code 3" in found[dies].reason
    assert "ZeroDivisionError" in found[fails].reason


def test_every_kind_and_family_is_in_the_schedule() -> None:
    seen = set()
    for job in jobs.schedule(0, list(KINDS), list(FAMILIES)):
        seen.add((job.kind, job.family))
        if job.kind == "fisher" and job.index > 60:
            break
    assert seen == {
        (kind, family) for kind in KINDS for family in FAMILIES if KINDS[kind].has(family)
    }
