"""How `diffurn bench` measures a job: rounds after a warm-up, within a time limit, and the most
memory held at one time.
"""

from __future__ import annotations

import math
import os
import statistics
import time
import tracemalloc
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from benchmarks.limits import Limits, deadline
from diffurn_studies.harness.environment import wait_for

Clock = Callable[[], float]
# Shorter jobs are repeated within a round, so that the clock's own grain and the interpreter's
# hiccups do not show.
SHORTEST_ROUND = 0.005
# Seconds that kernels may take to compile.
COMPILATION = 30.0


@dataclass(frozen=True)
class Measured:
    """What came out of a job.

    Attributes:
        rounds: seconds that one run took, in each round.
        repeats: runs per round.
        peak_bytes: the most memory held at one time beyond what was there before; None where
            nothing can tell.
        value: the result, shape (items, ...).
    """

    rounds: tuple[float, ...]
    repeats: int
    peak_bytes: int | None
    value: np.ndarray

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """Between the quartiles, relative to the median."""
        low, high = np.quantile(self.rounds, [0.25, 0.75])
        return float((high - low) / self.median) if self.median else 0.0


class Job(Protocol):
    """A case as one contender does it."""

    def measure(self, limits: Limits) -> Measured: ...


@dataclass(frozen=True)
class PythonJob:
    """A job in this process.

    Attributes:
        run: does it, and returns tensors or arrays.
        peak: measures the memory of a run.
        device: waited for before a clock is read.
        clock: seconds.
    """

    run: Callable[[], Any]
    peak: Callable[[Callable[[], Any]], int | None]
    device: torch.device = torch.device("cpu")  # noqa: RUF009 (a constant)
    clock: Clock = time.perf_counter

    def measure(self, limits: Limits) -> Measured:
        if (
            self.device.type == "cuda"
        ):  # a first call may compile its kernels, which is not what one waits for later
            with deadline(limits.longest_run + COMPILATION):
                self.run()
        with deadline(limits.longest_run):
            start = self._now()
            value = self.run()
            first = self._now() - start
        if first >= limits.seconds:  # a warm-up that long is a round like any other
            return Measured(
                (first,),
                1,
                self.peak(self.run) if first < 3 * limits.seconds else None,
                as_array(value),
            )
        repeats, rounds = plan(first, limits)
        times = []
        for _ in range(rounds):
            start = self._now()
            for _ in range(repeats):
                self.run()
            times.append((self._now() - start) / repeats)
        return Measured(tuple(times), repeats, self.peak(self.run), as_array(value))

    def _now(self) -> float:
        wait_for(self.device)
        return self.clock()


def plan(first: float, limits: Limits) -> tuple[int, int]:
    """Runs per round and rounds, after a first run of so many seconds.

    Example:
        >>> plan(0.001, Limits(seconds=1.0)), plan(0.4, Limits(seconds=1.0))
        ((5, 7), (1, 2))
    """
    repeats = max(1, math.ceil(SHORTEST_ROUND / max(first, 1e-7)))
    return repeats, max(1, min(limits.rounds, int(limits.seconds / max(first * repeats, 1e-7))))


def as_array(value: Any) -> np.ndarray:
    """Tensors, arrays or several of them side by side, as float64 with one row an item."""
    if isinstance(value, tuple):
        return np.concatenate([as_array(part) for part in value], axis=-1)
    array = (
        value.detach().double().cpu().numpy()
        if isinstance(value, torch.Tensor)
        else np.asarray(value, dtype=np.float64)
    )
    return array.reshape(len(array), -1)


def tensor_memory(device: torch.device) -> Callable[[Callable[[], Any]], int | None]:
    return lambda run: peak_tensor_bytes(run, device)


def peak_tensor_bytes(job: Callable[[], object], device: torch.device) -> int:
    """The most memory that tensors made by `job` held at one time."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        job()
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault(
        "KINETO_LOG_LEVEL", "99"
    )  # torch's profiler reports to the terminal otherwise
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # some releases announce that a profile holds one cycle only, which is what is wanted
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        ) as profile:
            job()
    events = [
        event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"
    ]
    held = torch.tensor(
        [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    ).cumsum(0)
    return int(held.max())


def array_memory(run: Callable[[], Any]) -> int | None:
    """The peak of what Python and NumPy allocated."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def available_bytes(device: torch.device) -> float:
    """Memory that is free; infinite where the system does not say."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def expected(points: Sequence[tuple[float, float]], size: float, growth: float) -> float:
    """What a growing size leads one to expect: the power law through the last two points,
    size^growth after one, nothing after none.

    Example:
        >>> round(expected([(1, 2.0), (10, 20.0)], 100, 0)), expected([(10, 3.0)], 100, 0)
        (200, 3.0)
    """
    known = [(x, y) for x, y in points if y > 0]
    if not known:
        return 0.0
    x, y = known[-1]
    if len(known) > 1:
        growth = max(0.0, math.log(y / known[-2][1]) / math.log(x / known[-2][0]))
    return y * math.exp(min(700.0, growth * math.log(size / x)))
