"""R's package survival, whose `clogit` is exact for one stratum as well."""

from __future__ import annotations

import subprocess
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.limits import CannotDoError

_SCRIPT = Path(__file__).with_suffix(".R")


def fits(cases: Tensor, covariates: Tensor, rscript: str = "Rscript") -> Callable[[], Tensor]:
    """A function that fits β in an R process, which waits for its next call.

    The process ends when nothing holds the function any more.
    """
    command = [rscript, "--no-init-file", str(_SCRIPT)]
    with tempfile.TemporaryDirectory(prefix="diffurn-") as folder:
        for name, values in (("cases", cases), ("covariates", covariates)):
            values.double().numpy().tofile(Path(folder, name))
        try:
            process = subprocess.Popen(
                [*command, folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except FileNotFoundError:
            raise CannotDoError(f"{rscript} was not found") from None
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline().split() != ["ready"]:
            process.communicate()
            raise CannotDoError("R could not load its package survival")

    def fit() -> Tensor:
        process.stdin.write("fit\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        words = process.stdout.readline().split()  # type: ignore[union-attr]
        return torch.tensor(list(map(float, words)), dtype=torch.float64)

    weakref.finalize(fit, process.communicate)  # closes its input, which ends it
    return fit
