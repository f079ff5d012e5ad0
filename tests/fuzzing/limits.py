"""A limit on the processor time of a call: a loop that does not end becomes an exception."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeLimitError(Exception):
    """The call has used more processor time than any urn needs."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Processor time, not time on the clock: a busy machine raises no false alarm.

    Python runs signal handlers between operations, so this ends loops of tensor operations. A
    single operation that does not return is ended by the pool, which kills the process.
    """

    def expire(number: int, frame: FrameType | None) -> None:
        raise TimeLimitError(f"no result after {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, expire)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
