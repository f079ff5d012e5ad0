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

INTERRUPTED = 130  # the exit status after Ctrl-C


def main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if sys.argv[1:] == ["--version"]:  # also where the command line's packages are missing
        print(f"diffurn {__version__}")
        return
    try:
        from diffurn.cli import app

        app(prog_name="diffurn")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as missing:
        print(
            f"diffurn: this command needs {missing.name}: {how_to_install(command)}",
            file=sys.stderr,
        )
        sys.exit(2)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Ctrl-C raises a KeyboardInterrupt, but ends the process while torch is being imported: there
    the exception would sometimes be lost, and sometimes abort the process with a message.
    """
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "torch":
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
