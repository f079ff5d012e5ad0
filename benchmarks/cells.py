"""The grid: cases, the sweeps they belong to, and their inputs.

A case states a job for every contender: an operation, a law, the sizes of the urn, the number of
urns, and a dtype. A case with a contender is a cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from diffurn import FisherHypergeometric, WalleniusHypergeometric
from diffurn.estimators import Estimator

# One item of each operation.
OPERATIONS = {
    "log_prob": "log-probability of one draw of each urn",
    "moments": "mean and variance of each urn",
    "many-draws": "many draws of one urn",
    "one-draw-each": "one draw of each urn",
    "gradient": "one draw of each urn and its gradient in log ω (forward + backward)",
    "fit": "maximum-likelihood ω of each data set of one row",
}
LAWS = {"fisher": "Fisher's law", "central": "equal weights", "wallenius": "Wallenius' law"}
AXES = {"m": "balls per group, m", "c": "groups, c", "B": "urns or draws, B"}
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def short(number: int) -> str:
    """A size in short; large powers of ten as powers.

    Example:
        >>> short(200), short(1000), short(10**6)
        ('200', '1,000', '10⁶')
    """
    digits = str(number)
    is_large_power = len(digits) > 4 and number == 10 ** (len(digits) - 1)
    return f"10{str(len(digits) - 1).translate(_SUPERSCRIPTS)}" if is_large_power else f"{number:,}"


@dataclass(frozen=True)
class Case:
    """A job.

    Attributes:
        operation: a key of `OPERATIONS`.
        law: a key of `LAWS`.
        groups: c.
        group_size: m, the same for every group; three tenths of all balls are drawn.
        items: B, how many urns, draws or data sets.
        dtype: of weights and results.
    """

    operation: str
    law: str
    groups: int
    group_size: int
    items: int
    dtype: str = "float64"

    @property
    def draws(self) -> int:
        return max(1, 3 * self.groups * self.group_size // 10)

    @property
    def urns(self) -> int:
        return 1 if self.operation == "many-draws" else self.items

    @property
    def draws_counts(self) -> bool:
        """Whether the result is random counts."""
        return self.operation in ("many-draws", "one-draw-each")

    def size(self, axis: str) -> int:
        return {"m": self.group_size, "c": self.groups, "B": self.items}[axis]

    def words(self, without: str = "") -> str:
        """Its sizes, such as c = 3, m = 200; all but one axis."""
        named = {
            "c": f"c = {self.groups:,}",
            "m": f"m = {short(self.group_size)}",
            "B": f"B = {short(self.items)}",
        }
        precision = [] if self.dtype == "float64" else [self.dtype]
        return ", ".join([text for axis, text in named.items() if axis != without] + precision)


@dataclass(frozen=True)
class Sweep:
    """Cases that differ in one size, which grows; `axis` names it."""

    axis: str
    cases: tuple[Case, ...]

    @property
    def fixed(self) -> str:
        return self.cases[0].words(without=self.axis)


def _powers(low: int, high: int, step: int = 1) -> list[int]:
    return [10**exponent for exponent in range(low, high + 1, step)]


def _along_m(operation: str, law: str, groups: int, sizes: Sequence[int], items: int) -> Sweep:
    return Sweep("m", tuple(Case(operation, law, groups, size, items) for size in sizes))


def _along_c(operation: str, law: str, sizes: Sequence[int], group_size: int, items: int) -> Sweep:
    return Sweep("c", tuple(Case(operation, law, size, group_size, items) for size in sizes))


def _along_b(operation: str, law: str, groups: int, group_size: int, sizes: Sequence[int]) -> Sweep:
    return Sweep("B", tuple(Case(operation, law, groups, group_size, size) for size in sizes))


def sweeps(quick: bool = False) -> list[Sweep]:
    """The grid. Every peer offers two groups; the paper has three; with m = 20, c grows to ten
    thousand.
    """
    group_sizes = [10, 10_000, 10**9] if quick else _powers(1, 9)
    numbers_of_groups = [2, 32, 1000] if quick else [2, 4, 8, 16, 32, 100, 1000, 10_000]
    batches = [1, 100, 10_000] if quick else _powers(0, 6)
    found = []
    for operation in OPERATIONS:
        urns, few = {"many-draws": (10_000, 100), "fit": (100, 1)}.get(operation, (1000, 10))
        found += [_along_m(operation, "fisher", groups, group_sizes, urns) for groups in (2, 3)]
        found += [
            _along_c(operation, "fisher", numbers_of_groups, 20, few),
            _along_b(operation, "fisher", 3, 200, batches),
            _along_b(operation, "fisher", 2, 200, [1]),  # a single call, which SciPy offers too
        ]
        found += [
            Sweep(
                "dtype",
                (
                    Case(
                        operation,
                        "fisher",
                        3,
                        200,
                        100 if operation == "fit" else 10_000,
                        "float32",
                    ),
                ),
            )
        ]
    some = [10, 10**6] if quick else _powers(1, 9, 2)
    for operation in ("log_prob", "moments", "many-draws"):
        found += [
            _along_m(
                operation, "central", groups, some, 10_000 if operation == "many-draws" else 1000
            )
            for groups in (2, 3)
        ]
        found += [_along_b(operation, "central", 3, 200, [1, 10, 100])]
    for operation in ("log_prob", "moments", "many-draws", "one-draw-each"):
        found += [
            _along_m(operation, "wallenius", groups, some, 50 if operation == "moments" else 1000)
            for groups in (2, 3)
        ]
        found += [_along_b(operation, "wallenius", 3, 200, [1, 10, 100])]
    return found


class Problem:
    """The inputs of a case, the same for every contender.

    Args:
        case: the job.
        device: where tensors are; contenders outside torch get arrays.
    """

    def __init__(self, case: Case, device: torch.device) -> None:
        self.case = case
        self.device = device
        self.dtype: torch.dtype = getattr(torch, case.dtype)

    @cached_property
    def log_weights(self) -> Tensor:
        """log ω, standard normal, or zero for the central law; shape (urns, c)."""
        shape = self.case.urns, self.case.groups
        if self.case.law == "central":
            return torch.zeros(shape, dtype=self.dtype, device=self.device)
        generator = torch.Generator().manual_seed(0)
        return torch.randn(shape, dtype=torch.float64, generator=generator).to(
            self.device, self.dtype
        )

    @cached_property
    def group_sizes(self) -> Tensor:
        return torch.full((self.case.groups,), self.case.group_size, device=self.device)

    def urn(
        self, log_weights: Tensor, estimator: Estimator | None = None
    ) -> FisherHypergeometric | WalleniusHypergeometric:
        """Urns with their arguments checked, as by default."""
        if self.case.law == "wallenius":
            return WalleniusHypergeometric(
                self.group_sizes, self.case.draws, log_weights=log_weights
            )
        return FisherHypergeometric(
            self.group_sizes, self.case.draws, log_weights=log_weights, estimator=estimator
        )

    @cached_property
    def counts(self) -> Tensor:
        """Draws of the urns. For a fit, no group is empty or exhausted, since its odds would have
        no finite estimate.
        """
        torch.manual_seed(1)
        counts = self.urn(self.log_weights).sample()
        return counts.clamp(1, self.case.group_size - 1) if self.case.operation == "fit" else counts

    def arrays(self, items: int) -> tuple[np.ndarray, np.ndarray]:
        """Weights and counts of the first `items` urns for contenders outside torch; no counts if
        the job is to draw them.
        """
        weights = self.log_weights[:items].double().exp().cpu().numpy()
        counts = (
            np.empty((0, self.case.groups))
            if self.case.draws_counts
            else self.counts[:items].double().cpu().numpy()
        )
        return weights, counts
