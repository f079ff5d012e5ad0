"""A process that times cells of one source tree, as `benchmarks.compare` asks for them.

It reads one JSON object per line on standard input and answers each with one on standard output.
Whatever the library prints goes to standard error.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import diffurn
from benchmarks.limits import OutOfTimeError, deadline
from benchmarks.ours import Cell, Inputs, Run
from benchmarks.registry import cells_of_ours

# Seconds for making inputs and compiling.
PREPARATION = 300.0
# How much longer than its processor time a run may take on a busy machine. (A limit on processor
# time itself would coarsen the clock: Linux counts it in ticks while such a timer is set.)
BUSY = 10


class Timer:
    """Times one cell at a time.

    Args:
        cells: by name.
        inputs: for `Cell.prepare`.
        clock: seconds; by default processor time, or on a GPU the time until it has finished.
    """

    def __init__(
        self,
        cells: dict[str, Cell],
        inputs: Inputs,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.cells = cells
        self.inputs = inputs
        on_gpu = inputs.device.type == "cuda"
        self.clock = clock or (_after_the_gpu if on_gpu else time.process_time)
        self.run: Run | None = None

    def prepare(self, cell: str, longest: float) -> float:
        """Processor seconds of one run after a warm-up; raises `OutOfTimeError` if that takes much
        more than `longest`.
        """
        self.run = None
        gc.collect()
        with deadline(PREPARATION):
            self.run = self.cells[cell].prepare(self.inputs)
        with deadline(BUSY * longest):
            first = self._seconds(1)
            return first if first > longest / 4 else min(first, self._seconds(1))

    def turn(self, runs: int) -> float:
        """Seconds of one run, on average over `runs` runs."""
        gc.disable()
        try:
            return self._seconds(runs)
        finally:
            gc.enable()

    def _seconds(self, runs: int) -> float:
        assert self.run is not None
        torch.manual_seed(0)
        start = self.clock()
        for _ in range(runs):
            self.run()
        return (self.clock() - start) / runs


def _after_the_gpu() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


def answer(timer: Timer, question: dict[str, Any]) -> dict[str, Any]:
    """A time, or the error that kept the cell from being timed; "stopped" says that the process
    should end, because a module whose import was stopped half-way stays broken.
    """
    try:
        if "cell" in question:
            return {"seconds": timer.prepare(question["cell"], question["longest"])}
        return {"seconds": timer.turn(question["runs"])}
    except OutOfTimeError as error:
        return {"error": str(error), "stopped": True}
    except Exception as error:  # the other cells can still be compared
        return {"error": " ".join(f"{type(error).__name__}: {error}".split())[:200]}


def main(device: str, folder: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    timer = Timer(cells_of_ours(), Inputs(torch.device(device), Path(folder)))
    gc.collect()
    gc.freeze()

    def write(found: dict[str, Any]) -> None:
        answers.write(json.dumps(found) + "\n")
        answers.flush()

    write({"source": diffurn.__file__, "torch": torch.__version__})
    for line in sys.stdin:
        write(answer(timer, json.loads(line)))


if __name__ == "__main__":
    main(*sys.argv[1:])
