"""The command `diffurn`, also as ``python -m diffurn``.

It starts without the extras, and names the one that is missing.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from diffurn import __version__
from diffurn._install import how_to_install
from diffurn._kernels.library import described

INTERRUPTED = 130  # the exit status after Ctrl-C
LOADED_FIRST = ("diffurn", "torch", "typer")


def main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if sys.argv[1:] == ["--version"]:  # also where the command line's packages are missing
        print(f"diffurn {__version__}, {described()}")
        return
    try:
        from diffurn.cli import app

        app(prog_name="diffurn")
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)  # before a command began; sys.exit would not keep the status
    except ModuleNotFoundError as missing:
        print(
            f"diffurn: this command needs {missing.name}: {how_to_install(command)}",
            file=sys.stderr,
        )
        sys.exit(2)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Ctrl-C raises a KeyboardInterrupt, except while a command is still loading its packages.

    An exception inside an import can be lost, abort the process with a message or change the exit
    status, so there the process ends at once.
    """
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if frame.f_code.co_name == "<module>" and package in LOADED_FIRST:
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
