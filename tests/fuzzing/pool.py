"""Processes that work off jobs, and a watchdog that kills those which do not come back."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

Work = Callable[[Any], Any]
GOODBYE = 5.0  # seconds for a process to end


@dataclass(frozen=True)
class Lost:
    """A job without a result: its process died, was killed, or raised an exception of the fuzzer's
    own.
    """

    reason: str


def _serve(work: Work, start: Callable[[], None], connection: Connection) -> None:
    start()
    connection.send(None)  # the limit on a job does not count the start
    while (job := connection.recv()) is not None:
        try:
            connection.send(work(job))
        except Exception:
            connection.send(Lost(traceback.format_exc()))


class _Worker:
    def __init__(self, work: Work, start: Callable[[], None]) -> None:
        # A fresh interpreter: a fork would copy torch's threads in an unknown state.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(work, start, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.job: Any = None
        self.since = 0.0
        self.is_ready = False

    def give(self, job: Any) -> None:
        if not self.is_ready:
            self.connection.recv()
            self.is_ready = True
        self.job, self.since = job, time.monotonic()
        self.connection.send(job)

    def stop(self) -> None:
        """An idle process ends by itself, in good order; any other is killed."""
        if self.job is None and self.is_ready and self.process.is_alive():
            self.connection.send(None)
            self.process.join(GOODBYE)
        self.process.kill()
        self.process.join()
        self.connection.close()


def work_off(
    jobs: Iterable[Any],
    work: Work,
    start: Callable[[], None],
    workers: int,
    limit: float,
    seconds: float,
) -> Iterator[tuple[Any, Any]]:
    """Pairs of a job and its result, as they finish; no new job begins after so many seconds, and
    none takes longer than the limit.
    """
    queue, end = iter(jobs), time.monotonic() + seconds
    team = [_Worker(work, start) for _ in range(workers)]
    try:
        while True:
            for worker in team:
                if (
                    worker.job is None
                    and time.monotonic() < end
                    and (job := next(queue, None)) is not None
                ):
                    worker.give(job)
            busy = [worker for worker in team if worker.job is not None]
            if not busy:
                return
            ready = wait([worker.connection for worker in busy], timeout=1.0)
            for place, worker in enumerate(team):
                if worker.job is None:
                    continue
                if worker.connection in ready:
                    job, result = worker.job, _received(worker)
                    worker.job = None
                elif time.monotonic() - worker.since > limit:
                    job, result = (
                        worker.job,
                        Lost(f"no result after {limit:g} s; the process was killed"),
                    )
                else:
                    continue
                if isinstance(result, Lost) and "Traceback" not in result.reason:
                    worker.stop()
                    team[place] = _Worker(work, start)
                yield job, result
    finally:
        for worker in team:
            worker.stop()


def _received(worker: _Worker) -> Any:
    try:
        return worker.connection.recv()
    except (EOFError, ConnectionError):
        worker.process.join()
        return Lost(f"the process ended with exit code {worker.process.exitcode}")
