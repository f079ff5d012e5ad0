"""Ctrl-C while the command `diffurn` starts, of which torch takes a second: it ends quietly, with
exit status 130.

The package imports this module before anything else. It acts in the command alone: where the
package is imported by another program, Ctrl-C is that program's business.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

EXIT_STATUS = 130


def _is_the_command() -> bool:
    """Whether this process was started as ``diffurn`` or as ``python -m diffurn``."""
    as_module = sys.argv[:1] == ["-m"] and ("-m", "diffurn") in pairwise(sys.orig_argv)
    return as_module or Path(sys.argv[0] if sys.argv else "").stem == "diffurn"


def _end(*_: Any) -> None:
    os._exit(EXIT_STATUS)  # an exception could get lost, or show up, in the middle of an import


def raise_again() -> None:
    """From now on Ctrl-C raises a KeyboardInterrupt, as usual."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if _is_the_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)
