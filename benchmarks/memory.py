"""The memory that a job needs, and the memory that is free."""

from __future__ import annotations

import math
import os
import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import torch

Peak = Callable[[Callable[[], Any]], int | None]


def tensor_memory(device: torch.device) -> Peak:
    """A function that measures `peak_tensor_bytes` on a device."""
    return lambda run: peak_tensor_bytes(run, device)


def peak_tensor_bytes(job: Callable[[], object], device: torch.device) -> int:
    """The largest total size of tensors that `job` holds at one time."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        job()
        return torch.cuda.max_memory_allocated(device) - before
    # Without this, torch's profiler writes log messages to the terminal.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with warnings.catch_warnings():
        # Some versions of torch warn that the profile has one cycle only; more are not needed.
        warnings.simplefilter("ignore")
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        ) as profile:
            job()
    events = profile.profiler.kineto_results.events()
    memory = [event for event in events if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(memory, key=lambda event: event.start_ns())]
    return int(torch.tensor(changes).cumsum(0).max()) if changes else 0


def array_memory(run: Callable[[], Any]) -> int | None:
    """The peak of the memory that Python and NumPy allocate."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def available_bytes(device: torch.device) -> float:
    """Free memory; infinite if the system does not report it."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return math.inf
