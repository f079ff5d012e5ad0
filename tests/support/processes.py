"""Commands that tests start, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple


@contextmanager
def interruptible(
    command: Sequence[str], env: Mapping[str, str] | None = None, **options: Any
) -> Iterator[subprocess.Popen[Any]]:
    """A process that hears Ctrl-C, which children of tests in the background would ignore; killed
    if it is still there at the end.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(command, env=env, **options)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        try:
            yield process
        finally:
            process.kill()


class Ended(NamedTuple):
    """How a command ended: its exit status, and the text it wrote."""

    status: int
    output: str
    errors: str


def diffurn_without(packages: Sequence[str], folder: Path, *arguments: str) -> Ended:
    """Runs `diffurn` as if some packages were not installed, by modules in the folder that fail."""
    for package in packages:
        error = f'ModuleNotFoundError("No module named {package!r}", name={package!r})'
        (folder / f"{package}.py").write_text(f"raise {error}\n")
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "diffurn", *arguments],
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)
