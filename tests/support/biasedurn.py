"""R's package BiasedUrn, asked today; tests that do are marked `needs("BiasedUrn")`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable


def evaluate(expressions: Iterable[str]) -> list[list[float]]:
    """Values of R expressions, one R process for all."""
    script = [
        "library(BiasedUrn)",
        *(f"cat(sprintf('%.17g', {expression}), '\\n')" for expression in expressions),
    ]
    command = ["Rscript", "--vanilla", "-"]  # the script is too long for a command line
    done = subprocess.run(
        command, input="\n".join(script), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]
