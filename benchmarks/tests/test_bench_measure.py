"""Rounds, time limits, memory and operations of a job."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from bench_fakes import CPU, Clock, Fake

from benchmarks.cells import Case, Problem
from benchmarks.limits import Limits, OutOfTimeError, deadline
from benchmarks.measure import PythonJob, Timing
from benchmarks.memory import array_memory, peak_tensor_bytes
from benchmarks.operations import operations_of


def test_short_jobs_are_repeated_within_rounds_and_long_ones_run_once() -> None:
    problem = Problem(Case("gradient", "fisher", 3, 10, 100), CPU)
    short = Fake("short", "peer", lambda case, items: 0.001).job(problem, 100).measure(Limits(1.0))
    assert (short.repeats, len(short.rounds), short.median, short.spread) == (
        5,
        7,
        pytest.approx(0.001),
        pytest.approx(0.0),
    )
    assert short.peak_bytes == 100_000
    assert (
        len(
            Fake("middle", "peer", lambda case, items: 0.4)
            .job(problem, 100)
            .measure(Limits(1.0))
            .rounds
        )
        == 2
    )
    assert Fake("long", "peer", lambda case, items: 3.0).job(problem, 100).measure(
        Limits(1.0)
    ).rounds == (3.0,)


def test_the_time_to_compile_kernels_is_not_measured() -> None:
    clock, durations = Clock(), iter([20.0])

    def work() -> np.ndarray:
        clock.now += next(durations, 0.4)
        return np.zeros((1, 1))

    job = PythonJob(work, lambda run: None, clock, compiles=True)
    assert job.measure(Limits(1.0)).rounds == pytest.approx((0.4, 0.4))


def test_the_median_and_spread_are_those_of_the_rounds() -> None:
    measured = Timing((1.0, 2.0, 3.0, 4.0, 10.0), 1, None)
    assert (measured.median, measured.spread) == (3.0, pytest.approx(2 / 3))


@pytest.mark.skipif(not hasattr(__import__("signal"), "setitimer"), reason="needs POSIX timers")
def test_a_job_that_runs_over_its_limit_is_stopped_and_leaves_no_timer_behind() -> None:
    with pytest.raises(OutOfTimeError, match=r"over 0\.05 s"), deadline(0.05):
        time.sleep(60)
    with deadline(0.05):
        pass
    time.sleep(0.08)


def test_peak_memory_is_that_of_all_tensors_held_at_one_time() -> None:
    def job() -> torch.Tensor:
        first = torch.zeros(1000, dtype=torch.float64)
        return torch.zeros(1000, dtype=torch.float64) + first

    assert peak_tensor_bytes(job, CPU) == 3 * 8000
    assert array_memory(lambda: np.zeros(1000).sum()) >= 8000


def test_operations_are_counted_without_views_and_with_the_backward_pass() -> None:
    x = torch.ones(3, requires_grad=True)
    assert operations_of(lambda: x.exp().unsqueeze(0)) == 1
    # exp, sum, ones_like, and the product with the derivative
    assert operations_of(lambda: torch.autograd.grad(x.exp().sum(), x)) == 4
