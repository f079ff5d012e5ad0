"""Times a job: rounds after a warm-up, within a time limit."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch

from benchmarks.limits import Limits, deadline
from benchmarks.memory import Peak, tensor_memory

Value = TypeVar("Value")
Clock = Callable[[], float]
# Shorter jobs are repeated within a round, so that the resolution of the clock does not matter.
SHORTEST_ROUND = 0.005
# Seconds that kernels may take to compile.
COMPILATION = 30.0


@dataclass(frozen=True)
class Timing(Generic[Value]):
    """The rounds of a job.

    Attributes:
        rounds: seconds of one run, in each round.
        repeats: runs per round.
        value: the result of the first run.
    """

    rounds: tuple[float, ...]
    repeats: int
    value: Value

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """The distance between the quartiles, relative to the median."""
        low, high = np.quantile(self.rounds, [0.25, 0.75])
        return float((high - low) / self.median) if self.median else 0.0


@dataclass(frozen=True)
class Measured(Timing[np.ndarray]):
    """A job that was measured.

    Attributes:
        peak_bytes: the most memory held at one time beyond the memory in use before; None if it
            was not measured.
    """

    peak_bytes: int | None = None


class Job(Protocol):
    """A case as one contender does it."""

    def measure(self, limits: Limits) -> Measured: ...


@dataclass(frozen=True)
class PythonJob:
    """A job in this process.

    Attributes:
        run: does the job, and returns tensors or arrays.
        peak: measures the memory of a run.
        clock: seconds.
        compiles: whether the first run compiles kernels; if so, it is not measured.
    """

    run: Callable[[], Any]
    peak: Peak
    clock: Clock = time.perf_counter
    compiles: bool = False

    def measure(self, limits: Limits) -> Measured:
        timing = timed(self.run, limits, self.clock, self.compiles)
        # A run of several times the limit is not repeated to learn its memory.
        peak = self.peak(self.run) if timing.median < 3 * limits.seconds else None
        return Measured(timing.rounds, timing.repeats, as_array(timing.value), peak)


def torch_job(run: Callable[[], Any], device: torch.device) -> PythonJob:
    """A job of tensors on a device."""
    return PythonJob(run, tensor_memory(device), clock_of(device), device.type == "cuda")


def clock_of(device: torch.device) -> Clock:
    """A clock that waits until the device has finished its work."""
    if device.type != "cuda":
        return time.perf_counter

    def now() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return now


def timed(
    run: Callable[[], Value], limits: Limits, clock: Clock, compiles: bool = False
) -> Timing[Value]:
    """Rounds of a job; raises `OutOfTimeError` if one run takes too long."""
    if compiles:
        with deadline(limits.longest_run + COMPILATION):
            run()
    with deadline(limits.longest_run):
        start = clock()
        value = run()
        first = clock() - start
    if first >= limits.seconds:  # such a long warm-up counts as a round
        return Timing((first,), 1, value)
    repeats, rounds = plan(first, limits)
    times = []
    for _ in range(rounds):
        start = clock()
        for _ in range(repeats):
            run()
        times.append((clock() - start) / repeats)
    return Timing(tuple(times), repeats, value)


def plan(first: float, limits: Limits) -> tuple[int, int]:
    """Runs per round and rounds, after a first run of so many seconds.

    Example:
        >>> plan(0.001, Limits(seconds=1.0)), plan(0.4, Limits(seconds=1.0))
        ((5, 7), (1, 2))
    """
    repeats = max(1, math.ceil(SHORTEST_ROUND / max(first, 1e-7)))
    return repeats, max(1, min(limits.rounds, int(limits.seconds / max(first * repeats, 1e-7))))


def as_array(value: Any) -> np.ndarray:
    """A tensor, an array or a tuple of them as one float64 array with a row for each item."""
    if isinstance(value, tuple):
        return np.concatenate([as_array(part) for part in value], axis=-1)
    array = (
        value.detach().double().cpu().numpy()
        if isinstance(value, torch.Tensor)
        else np.asarray(value, dtype=np.float64)
    )
    return array.reshape(len(array), -1)
