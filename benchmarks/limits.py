"""Time limits of a measurement, and the errors that say why a job was not done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


class CannotDoError(Exception):
    """A contender cannot do a job; the message is a short reason for the table."""


class OutOfTimeError(CannotDoError):
    """A job was stopped at its time limit."""


@dataclass(frozen=True)
class Limits:
    """How long the measurement of a cell may take.

    Attributes:
        seconds: for all rounds together.
        rounds: the largest number of rounds.
        patience: the first run is stopped after this many times `seconds`.
    """

    seconds: float = 1.0
    rounds: int = 7
    patience: float = 30.0

    @property
    def longest_run(self) -> float:
        return self.patience * self.seconds


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raises `OutOfTimeError` in the block after so many seconds.

    Windows has no such timers, and threads other than the main one cannot use them; there the block
    runs without a limit.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not hasattr(signal, "setitimer") or not in_main_thread:
        yield
        return

    error = OutOfTimeError(f"over {seconds:g} s")
    with interrupting(signal.ITIMER_REAL, signal.SIGALRM, seconds, error):
        yield


@contextmanager
def interrupting(timer: int, number: int, seconds: float, error: Exception) -> Iterator[None]:
    """Raises an error in the block after so many seconds of a timer, which sends that signal."""

    def stop(*_: Any) -> None:
        raise error

    before = signal.signal(number, stop)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)
