"""The optional programs that some tests need: `pytest.mark.needs("chromium")` skips a test where
there is none.

`make test` leaves all of these tests out, so that it runs the same tests on every machine; `make
test-optional` runs them, and `make test-slow` those that are slow.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from functools import cache


def chromium() -> str | None:
    """Path of chromium, or of a browser that takes the same options."""
    return next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )


@cache
def missing(program: str) -> str | None:
    """A sentence about what is not installed, or None where all is there."""
    checks = {
        "BiasedUrn": lambda: _r_package("BiasedUrn"),
        "C++": _compiler,
        "chromium": _chromium,
        "playwright": _playwright,
        "survival": lambda: _r_package("survival"),
        "triton": _triton,
    }
    return checks[program]()


def _r_package(name: str) -> str | None:
    if shutil.which("Rscript") is None:
        return "R is not installed: there is no Rscript on the path"
    loaded = subprocess.run(
        ["Rscript", "--vanilla", "-e", f"library({name})"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    return f"the R package {name} is not installed" if loaded.returncode else None


def _compiler() -> str | None:
    """The one that torch.compile calls."""
    name = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    return (
        None
        if shutil.which(name)
        else f"no C++ compiler is installed: there is no {name} on the path"
    )


def _chromium() -> str | None:
    return (
        None
        if chromium()
        else "no browser is installed: there is no chromium or google-chrome on the path"
    )


def _playwright() -> str | None:
    return (
        None
        if importlib.util.find_spec("playwright")
        else "playwright is not installed: `make test-optional` installs it"
    )


def _triton() -> str | None:
    return None if importlib.util.find_spec("triton") else "triton is not installed"
