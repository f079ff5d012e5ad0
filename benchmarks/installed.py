"""The contenders that are installed on this machine."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.biasedurn import MissingError, RProcess, biased_urns, r_command
from benchmarks.contenders import Contender, within_torch


@dataclass
class Installed:
    """Contenders.

    Attributes:
        contenders: those that can be measured.
        versions: of their packages.
        missing: a sentence for each one that is not installed.
    """

    contenders: list[Contender]
    versions: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


def installed(stack: ExitStack, rscript: str = "Rscript") -> Installed:
    """Finds the contenders; processes that it starts end with the stack.

    Args:
        stack: closes R.
        rscript: the program that starts R.
    """
    found = Installed(within_torch())
    try:
        from benchmarks.with_scipy import VERSION, SciPy

        found.contenders.append(SciPy())
        found.versions["scipy"] = VERSION
    except ImportError:
        found.missing.append("SciPy is left out: it is not installed")
    try:
        process = RProcess(r_command(rscript))
        stack.callback(process.close)
        found.contenders += biased_urns(process)
        found.versions |= {"R": process.r_version, "BiasedUrn": process.version}
    except MissingError as reason:
        found.missing.append(str(reason))
    return found
