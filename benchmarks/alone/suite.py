"""Measures the cells that no peer offers: time, memory, and operations of torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from benchmarks.attempt import Progress, Record, attempt, times_of
from benchmarks.limits import Limits
from benchmarks.measure import clock_of, timed
from benchmarks.memory import peak_tensor_bytes
from benchmarks.operations import operations_of
from benchmarks.ours import Cell, Inputs


def run(
    cells: Sequence[Cell], device: torch.device, seconds: float, progress: Progress | None = None
) -> Iterator[Record]:
    """A record for every cell."""
    for done, cell in enumerate(cells, 1):
        yield record(cell, Inputs(device), Limits(seconds))
        if progress is not None:
            progress(done, len(cells))


def record(cell: Cell, inputs: Inputs, limits: Limits) -> Record:
    return {
        "cell": cell.name,
        "items": cell.items,
        **attempt(lambda: _measure(cell, inputs, limits)),
    }


def _measure(cell: Cell, inputs: Inputs, limits: Limits) -> Record:
    torch.manual_seed(0)
    run = cell.prepare(inputs)
    timing = timed(run, limits, clock_of(inputs.device), compiles=True)
    found = times_of(timing, cell.items)
    if timing.median > limits.seconds:
        return found
    found["peak_bytes"] = peak_tensor_bytes(run, inputs.device)
    if not cell.is_compiled:
        found["operations"] = operations_of(run)
    return found
