"""R's package BiasedUrn, asked today."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable

import pytest


def evaluate(expressions: Iterable[str]) -> list[list[float]]:
    """Values of R expressions, one R process for all; skips where R or its package BiasedUrn is not installed."""
    if shutil.which("Rscript") is None:
        pytest.skip("Rscript is not installed")
    script = ["if (!requireNamespace('BiasedUrn', quietly = TRUE)) quit(status = 3)", "library(BiasedUrn)"]
    script += [f"cat(sprintf('%.17g', {expression}), '\\n')" for expression in expressions]
    command = ["Rscript", "--vanilla", "-"]  # the script is too long for a command line
    done = subprocess.run(command, input="\n".join(script), capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 3:
        pytest.skip("the R package BiasedUrn is not installed")
    assert done.returncode == 0, done.stderr
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]
