"""Worker processes, each with one source tree of the library."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[1]
# Seconds without an answer after which a worker is ended.
SILENCE = 600.0
# A process that returns freed memory to the system gets it back at another price each time, so
# allocations below 32 MiB are kept, up to 1 GiB of them.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


class WorkerError(Exception):
    """A worker could not time a cell; the message says why."""


class Timed(Protocol):
    """A source tree that can be asked for times; see `benchmarks.worker` for the questions."""

    def seconds(self, **question: Any) -> float: ...


class Worker:
    """A worker process of one source tree, started anew where it died.

    Args:
        source: the folder that holds the package `diffurn`.
        inputs: a folder that both workers share.
        device: where cells run.
    """

    def __init__(self, source: Path, inputs: Path, device: str = "cpu") -> None:
        self.source = source
        self._command = [sys.executable, "-m", "benchmarks.worker", device, str(inputs)]
        self._inputs = inputs
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Worker:
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def seconds(self, **question: Any) -> float:
        """The answer to a question; raises `WorkerError` where there is none."""
        if self._process is None:
            self._start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        with suppress(OSError):  # a process that has ended is noticed when its answer is read
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
        found = self._read()
        if "stopped" in found:
            self._end()
        if "error" in found:
            raise WorkerError(found["error"])
        return float(found["seconds"])

    def _start(self) -> None:
        path = os.pathsep.join([str(self.source), str(ROOT)])
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._inputs,
            env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": path},
        )
        try:
            source = Path(self._read()["source"])
        except WorkerError as error:
            raise WorkerError(f"the library in {self.source} cannot be loaded: {error}") from None
        if self.source not in source.resolve().parents:
            self._end()
            raise WorkerError(f"Python loads {source} instead of the library in {self.source}")

    def _read(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], SILENCE)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            self._end()
            reason = "the process ended" if ready else f"no answer in {SILENCE:g} s"
            raise WorkerError(reason)
        found: dict[str, Any] = json.loads(line)
        return found

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
