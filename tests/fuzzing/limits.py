"""A limit on the processor time of a call: a loop that does not end becomes an exception."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.limits import interrupting


class TimeLimitError(Exception):
    """The call has used more processor time than any urn needs."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Processor time, not time on the clock: a busy machine raises no false alarm.

    Python runs signal handlers between operations, so this ends loops of tensor operations. A
    single operation that does not return is ended by the pool, which kills the process.
    """
    error = TimeLimitError(f"no result after {seconds:g} s of processor time")
    with interrupting(signal.ITIMER_PROF, signal.SIGPROF, seconds, error):
        yield
