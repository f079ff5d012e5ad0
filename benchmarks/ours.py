"""Jobs of this package, written against its public interface only.

The same code therefore measures any revision of the library: `python -m benchmarks compare` runs it
against two source trees. A call whose spelling differs between revisions is adapted here, and
nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from benchmarks.cells import Case, Problem
from diffurn import fit
from diffurn.estimators import Estimator

Run = Callable[[], Any]


def marginals(urn: Any) -> Any:
    """The distributions of single groups: `urn.marginals`, or the methods that the urn itself had
    in earlier revisions, under the new names.
    """
    if hasattr(urn, "marginals"):
        return urn.marginals
    return SimpleNamespace(
        log_prob=urn.marginal_log_prob, cdf=urn.cdf, sf=urn.sf, icdf=urn.icdf, mean=urn.mean
    )


class Inputs:
    """The inputs of cells.

    Args:
        device: where tensors are made.
        folder: where drawn inputs are kept, so that a second source tree computes with the same
            ones; None keeps nothing.
    """

    def __init__(self, device: torch.device, folder: Path | None = None) -> None:
        self.device = device
        self.folder = folder

    def kept(self, name: str, draw: Callable[[], Any]) -> Any:
        """What `draw` returned the first time that this name was asked for."""
        if self.folder is None:
            return draw()
        path = self.folder / f"{name}.pt"
        if not path.exists():
            torch.save(draw(), path)
        return torch.load(path, map_location=self.device)


@dataclass(frozen=True)
class Cell:
    """A job of this package.

    Attributes:
        name: unique; it names the operation first and the urns last.
        items: how many urns, draws or rows one run handles.
        prepare: makes the inputs, and returns the function to be timed.
        is_compiled: whether `torch.compile` is used, under which operations cannot be counted.
    """

    name: str
    items: int
    prepare: Callable[[Inputs], Run]
    is_compiled: bool = False


def of_case(case: Case) -> Cell:
    """A case of the grid as a cell."""

    def prepare(inputs: Inputs) -> Run:
        problem = Problem(case, inputs.device)
        if case.operation in ("log_prob", "fit"):
            sizes = case.groups, case.group_size, case.items
            name = "-".join(map(str, (case.operation, case.law, *sizes, case.dtype)))
            problem.counts = inputs.kept(name, lambda: problem.counts)
        return run_of(problem, case.items)

    return Cell(f"{case.operation}, {case.law}: {case.words()}", case.items, prepare)


def run_of(problem: Problem, items: int) -> Run:
    """This package with its defaults: the covariance estimator, Wald intervals."""
    log_weights = problem.log_weights

    def moments() -> tuple[Tensor, Tensor]:
        urn = problem.urn(log_weights)
        return urn.mean, urn.variance

    runs: dict[str, Run] = {
        "log_prob": lambda: problem.urn(log_weights).log_prob(problem.counts),
        "moments": moments,
        "many-draws": lambda: problem.urn(log_weights[0]).sample((items,)),
        "one-draw-each": lambda: problem.urn(log_weights).sample(),
        "gradient": through_draws(problem, items, None),
        "fit": lambda: fit(problem.counts.unsqueeze(-2), problem.group_sizes).coefficients,
    }
    if problem.case.operation in ("log_prob", "fit"):
        _ = problem.counts  # drawn before the clock starts
    return runs[problem.case.operation]


def through_draws(
    problem: Problem, items: int, estimator: Estimator | None
) -> Callable[[], Tensor]:
    """A draw of each urn, and the gradient of its squared length in log ω."""
    log_weights = problem.log_weights[:items].clone().requires_grad_()

    def run() -> Tensor:
        drawn = problem.urn(log_weights, estimator).rsample()
        return torch.autograd.grad(squared_length(drawn).sum(), log_weights)[0]

    return run


def squared_length(x: Tensor) -> Tensor:
    return x.square().sum(-1)
