"""The command `diffurn`, also as ``python -m diffurn``: it starts without the extras, and says
which are missing.
"""

from __future__ import annotations

import sys

from diffurn import __version__
from diffurn import _interrupts as interrupts


def main() -> None:
    try:
        from diffurn.cli import app

        interrupts.raise_again()
        app(prog_name="diffurn")
    except KeyboardInterrupt:
        sys.exit(interrupts.EXIT_STATUS)
    except ModuleNotFoundError as missing:  # the library itself needs torch alone
        if sys.argv[1:] == ["--version"]:
            print(f"diffurn {__version__}")
            return
        extra = "explore" if sys.argv[1:2] == ["explore"] else "experiments"
        print(
            f"diffurn: this command needs {missing.name}: pip install 'diffurn[{extra}]'",
            file=sys.stderr,
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
