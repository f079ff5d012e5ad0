"""R's package BiasedUrn as a contender, in one R process that times itself, so that the start of R
does not count.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.cells import Case, Problem
from benchmarks.limits import CannotDoError, Limits, deadline
from benchmarks.measure import SHORTEST_ROUND, Job, Measured

_SCRIPT = Path(__file__).with_suffix(".R")
_MOST_GROUPS = 32
_LARGEST_COUNT = 2**31 - 1
# The precision that its functions are asked for. With its defaults, 1e-7 or 0.1, results are that
# far off.
TIGHT = 1e-12


class MissingError(Exception):
    """R or its package is not installed; the message is a sentence."""


def r_command(rscript: str = "Rscript") -> list[str]:
    """Starts R with BiasedUrn, to answer the questions of `RProcess`."""
    return [rscript, "--no-init-file", str(_SCRIPT)]


class RProcess:
    """R with BiasedUrn loaded. It stays for all cells, and starts anew after a cell was stopped.

    Args:
        command: starts it, such as `r_command()`.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._folder = Path(tempfile.mkdtemp(prefix="diffurn-"))
        try:
            self._process = self._start()
        except MissingError:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _start(self) -> subprocess.Popen[str]:
        errors = self._folder / "errors"
        try:
            with errors.open("w") as file:
                process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=file,
                    text=True,
                )
        except FileNotFoundError:
            raise MissingError(
                f"BiasedUrn is left out: {self._command[0]} was not found (install R and its "
                "package BiasedUrn)"
            ) from None
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if words[:1] != ["ready"]:
            process.kill()
            process.communicate()
            complaint = errors.read_text().split("\n")[0] or "without a message"
            raise MissingError(f"BiasedUrn is left out: R could not load it ({complaint})")
        self.version, self.r_version = words[1:3]
        return process

    def measure(
        self, line: str, weights: np.ndarray, counts: np.ndarray, longest: float
    ) -> tuple[list[str], np.ndarray]:
        """The words of R's answer, and its values."""
        weights.tofile(self._folder / "weights")
        counts.tofile(self._folder / "counts")
        if self._process.poll() is not None:
            self._process = self._start()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            with deadline(longest):
                self._process.stdin.write(f"{line} {self._folder}\n")
                self._process.stdin.flush()
                words = self._process.stdout.readline().split()
        except BaseException:
            self._end()
            raise
        if words[:1] != ["measured"]:
            raise CannotDoError("R: " + (" ".join(words[1:]) or "the process ended"))
        return words[1:], np.fromfile(self._folder / "value")

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def close(self) -> None:
        with suppress(OSError):
            self._end()
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclass(frozen=True)
class RJob:
    """A job that R does and times."""

    process: RProcess
    problem: Problem
    items: int
    precision: float | None

    def measure(self, limits: Limits) -> Measured:
        case = self.problem.case
        weights, counts = self.problem.arrays(self.items)
        tight = "NA" if self.precision is None else repr(self.precision)
        sizes = (
            self.items,
            case.groups,
            case.group_size,
            case.draws,
            tight,
            limits.seconds,
            SHORTEST_ROUND,
            limits.rounds,
        )
        line = " ".join(map(str, (case.operation, case.law, *sizes)))
        (repeats, peak, *times), value = self.process.measure(
            line, weights, counts, limits.longest_run
        )
        rounds = tuple(map(float, times))
        return Measured(rounds, int(repeats), value.reshape(self.items, -1), int(float(peak)))


@dataclass(frozen=True)
class BiasedUrn:
    """BiasedUrn, one urn after another, since its functions take one.

    Attributes:
        process: R.
        name, role: see `Contender`.
        precision: argument of its functions. None keeps the package's default, with which moments
            and estimates are approximations.
        operations: those that are measured.
    """

    process: RProcess
    name: str
    role: str
    precision: float | None
    operations: tuple[str, ...]

    def offers(self, case: Case) -> bool:
        exists = case.law == "fisher" or (case.law == "wallenius" and case.operation != "fit")
        return exists and case.operation in self.operations and case.dtype == "float64"

    def most_items(self, case: Case) -> int:
        if case.groups > _MOST_GROUPS:
            raise CannotDoError(f"{_MOST_GROUPS} groups at most")
        if case.groups * case.group_size > _LARGEST_COUNT:
            raise CannotDoError("counts above int32")
        return 10_000 if case.operation == "many-draws" else 1000

    def job(self, problem: Problem, items: int) -> Job:
        return RJob(self.process, problem, items, self.precision)


def biased_urns(process: RProcess) -> list[BiasedUrn]:
    """Its exact functions, and those that are approximations by default."""
    exact = ("log_prob", "moments", "many-draws", "one-draw-each")
    return [
        BiasedUrn(process, "BiasedUrn", "peer", TIGHT, exact),
        BiasedUrn(process, "BiasedUrn, default", "peer", None, ("moments", "fit")),
    ]
