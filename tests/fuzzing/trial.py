"""One batch of urns under test: every quantity is computed once, under a time limit, and each
failure is pinned to a single urn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution

from diffurn import FisherHypergeometric, WalleniusHypergeometric
from fuzzing.families import NUMBERS_READ, Batch, Integers
from fuzzing.findings import EXAMPLES, Example, Finding
from fuzzing.limits import TimeLimitError, time_limit
from fuzzing.reference import Reference

LAWS = {"fisher": FisherHypergeometric, "wallenius": WalleniusHypergeometric}
MOST_CULPRITS = 2  # isolated when a call on a batch fails as a whole
# Seconds of processor time for one call on a batch; the slowest need a tenth of it. On a GPU the
# first call compiles kernels.
LIMITS = {"fisher": 5.0, "wallenius": 30.0}
LONGER_ON_A_GPU = 20.0

Values = NDArray[Any]
Compute = Callable[[Any, Integers], Tensor]  # of a distribution and the numbers of its rows
Call = (
    str | Callable[[int, tuple[int, ...]], str]
)  # as written after the distribution; of a row and an index within it


def build(
    distribution: type[Distribution],
    batch: Batch,
    device: torch.device,
    requires_grad: bool = False,
) -> Any:
    """The distribution, with sizes and weights in the form that the batch asks for."""
    parameter = torch.tensor(
        batch.weights if batch.by_weights else batch.log_weights, dtype=torch.float64, device=device
    )
    parameter.requires_grad_(requires_grad)
    sizes: Any = (
        batch.group_sizes.tolist()
        if batch.as_lists
        else torch.tensor(batch.group_sizes, device=device)
    )
    draws: Any = (
        batch.draws.tolist() if batch.as_lists else torch.tensor(batch.draws, device=device)
    )
    return distribution(
        sizes, draws, **{"weights" if batch.by_weights else "log_weights": parameter}
    )


def written(
    law: str, batch: Batch, row: int, device: torch.device, requires_grad: bool = False
) -> str:
    """The constructor's call for one urn, to paste into Python."""
    parameter = "weights" if batch.by_weights else "log_weights"
    sizes, draws = _list(batch.group_sizes[row]), str(batch.draws[row])
    options = (
        ["dtype=torch.float64"]
        + ["requires_grad=True"] * requires_grad
        + [f"device={str(device)!r}"] * (device.type != "cpu")
    )
    values = ", ".join(
        [_list((batch.weights if batch.by_weights else batch.log_weights)[row]), *options]
    )
    return f"{LAWS[law].__name__}({sizes}, {draws}, {parameter}=torch.tensor({values}))"


def _list(values: Values) -> str:
    numbers = [repr(value).replace("inf", "torch.inf") for value in values.tolist()]
    return (
        f"[{numbers[0]}] * {len(numbers)}"
        if len(numbers) > 3 and len(set(numbers)) == 1
        else f"[{', '.join(numbers)}]"
    )


class Trial:
    """A law and a batch, with what was found.

    ``void`` marks urns for which a call failed; they are reported once and left out of later
    checks.
    """

    def __init__(
        self,
        law: str,
        batch: Batch,
        device: torch.device,
        seed: int = 0,
        requires_grad: bool = False,
        distribution: type[Distribution] | None = None,
        limit: float | None = None,
    ) -> None:
        """``distribution`` is the library's unless another one is given, and so is ``limit``."""
        self.law, self.batch, self.device, self.seed, self.requires_grad = (
            law,
            batch,
            device,
            seed,
            requires_grad,
        )
        longer = 1.0 if device.type == "cpu" else LONGER_ON_A_GPU
        self.limit = LIMITS[law] * longer if limit is None else limit
        self.distribution = distribution or LAWS[law]
        self.findings: list[Finding] = []
        self.failed: dict[str, Integers] = {}
        self.void = np.zeros(len(batch), dtype=bool)
        self._cache: dict[str, Values] = {}
        torch.manual_seed(seed)

    @cached_property
    def reference(self) -> Reference:
        return Reference(self.batch)

    @property
    def is_fisher(self) -> bool:
        return self.law == "fisher"

    @property
    def support(self) -> tuple[Integers, Integers]:
        """The lowest and the highest possible count of each group."""
        sizes, draws = self.batch.drawable, self.batch.draws[:, None]
        return np.maximum(0, draws - (sizes.sum(-1, keepdims=True) - sizes)), np.minimum(
            sizes, draws
        )

    def alone(self, row: int, copies: int = 1, requires_grad: bool = False) -> Trial:
        return Trial(
            self.law,
            self.batch.take([row] * copies),
            self.device,
            self.seed,
            self.requires_grad or requires_grad,
            self.distribution,
            self.limit,
        )

    # ----------------------------------------------------------------------------------------------
    # computing

    def get(
        self, call: str, compute: Compute | None = None, shown: Callable[[int], str] | None = None
    ) -> Values:
        """A property such as ``mean``, or what ``compute`` makes of the distribution; batch first,
        NaN for urns that are void.

        ``shown`` writes the call for one row, where ``call`` itself is not what to paste into
        Python.
        """
        if call not in self._cache:
            self._cache[call] = self._isolating(
                call, compute or (lambda urn, rows: getattr(urn, call)), shown or (lambda row: call)
            )
        return self._cache[call]

    def _attempt(self, compute: Compute, rows: Integers, limit: float) -> Values:
        with time_limit(limit):
            result = compute(
                build(self.distribution, self.batch.take(rows), self.device, self.requires_grad),
                rows,
            )
            return result.detach().cpu().numpy()

    def _isolating(self, call: str, compute: Compute, shown: Callable[[int], str]) -> Values:
        """Without the urns on which the call fails: they are found by halving the batch."""
        for _ in range(MOST_CULPRITS + 1):
            rows = np.flatnonzero(~self.void)
            if not len(rows):
                break
            try:
                found = self._attempt(compute, rows, self.limit)
            except NotImplementedError:
                raise
            except Exception:
                self._void(call, shown, *self._culprit(compute, rows))
                continue
            result = np.full((len(self.batch), *found.shape[1:]), np.nan)
            result[rows] = found
            return result
        self.void[:] = True
        raise GivenUpError(call)

    def _culprit(self, compute: Compute, rows: Integers) -> tuple[int | None, str]:
        """A single urn that makes the call fail, and how; None if only the whole batch does."""
        reason = ""
        while True:
            halves = [rows] if len(rows) == 1 else [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
            for half in halves:
                try:
                    self._attempt(compute, half, self.limit / 5)
                except Exception as error:
                    reason = (
                        "does not return"
                        if isinstance(error, TimeLimitError)
                        else f"{type(error).__name__}: {error}".split("\n")[0]
                    )
                    rows = half
                    break
            else:
                return None, reason
            if len(rows) == 1:
                return int(rows[0]), reason

    def _void(self, call: str, shown: Callable[[int], str], row: int | None, reason: str) -> None:
        kind = "does not return" if reason == "does not return" else "raises"
        if row is None:
            where, note = (
                int(np.flatnonzero(~self.void)[0]),
                f"only in batch {self.batch.index} of {self.batch.family}",
            )
        else:
            where, note = row, ""
        line = f"{self.written(where)}.{shown(where)}  # {reason}"
        self._report(
            f"{call.split('(')[0]} {kind}",
            np.array([where]),
            [Example(self.size(where), line, note)],
            is_of_a_call=True,
        )
        self.void[where] = True

    # ----------------------------------------------------------------------------------------------
    # reporting

    def expect(
        self,
        check: str,
        fine: Values,
        call: Call,
        got: Values,
        expected: Values | str,
        is_complete: bool = False,
    ) -> None:
        """Reports the urns for which ``fine``, of shape (B, ...), does not hold everywhere; NaN
        compares false and is found.

        ``call`` is what a reader has to evaluate: of the distribution, unless it ``is_complete`` in
        itself.
        """
        bad = ~fine.reshape(len(self.batch), -1).all(1) & ~self.void
        rows = np.flatnonzero(bad)
        if not len(rows):
            return
        smallest = sorted(rows, key=self.size)[:EXAMPLES]
        got = np.broadcast_to(got, fine.shape)
        wanted = expected if isinstance(expected, str) else np.broadcast_to(expected, fine.shape)
        examples = []
        for row in smallest:
            index = tuple(int(i) for i in np.argwhere(~fine[row])[0])
            after = (
                call.format(index=", ".join(map(str, index)))
                if isinstance(call, str)
                else call(int(row), index)
            )
            want = wanted if isinstance(wanted, str) else f"{wanted[(row, *index)]:.17g}"
            line = after if is_complete else f"{self.written(row)}.{after}"
            examples.append(
                Example(self.size(row), f"{line}  # {got[(row, *index)]:.17g}, expected {want}")
            )
        self._report(check, rows, examples)

    def _report(
        self, check: str, rows: Integers, examples: Sequence[Example], is_of_a_call: bool = False
    ) -> None:
        self.failed[check] = rows
        self.findings.append(
            Finding(
                self.law,
                check,
                len(rows),
                {self.batch.family: len(rows)},
                list(examples),
                is_of_a_call,
            )
        )

    def written(self, row: int) -> str:
        return written(self.law, self.batch, row, self.device, self.requires_grad)

    def size(self, row: int) -> tuple[int, int]:
        return self.batch.groups, int(self.batch.population[row])


class GivenUpError(Exception):
    """A call failed for several urns of the batch; the rest is left out."""


Check = Callable[[Trial], None]


def run_checks(trial: Trial, checks: Sequence[Check]) -> list[Finding]:
    """All checks of a batch; urns that fail one are tried alone, since a failure that needs the
    batch is another mechanism.
    """
    singles = _Singles(trial)
    for check in checks:
        before = len(trial.findings)
        _run(trial, check)
        for finding in trial.findings[before:]:
            if len(trial.batch) > 1 and not finding.is_of_a_call:
                rows = sorted(trial.failed[finding.check], key=trial.size)
                finding.examples = [
                    singles.reproduced(row, check, finding.check, example)
                    for row, example in zip(rows, finding.examples, strict=False)
                ]
    return trial.findings


def _run(trial: Trial, check: Check) -> None:
    try:
        check(trial)
    except (GivenUpError, NotImplementedError):  # reported already; or not offered by this law
        return


class _Singles:
    """Urns of a batch one by one; with a derivative, which rules closed forms out; as copies, which
    are too many numbers for tables.
    """

    def __init__(self, trial: Trial) -> None:
        copies = NUMBERS_READ // trial.batch.groups + 1
        self.trial = trial
        self.ways = [
            (1, False, ""),
            (1, True, ""),
            (copies, False, f"as {copies} copies of the urn"),
        ]
        if not trial.is_fisher:  # no closed forms, and copies take long
            del self.ways[1:]
        self._trials: dict[tuple[int, int], Trial] = {}

    def reproduced(self, row: int, check: Check, name: str, example: Example) -> Example:
        for way, (copies, requires_grad, note) in enumerate(self.ways):
            if (row, way) not in self._trials:
                self._trials[row, way] = self.trial.alone(row, copies, requires_grad)
            single = self._trials[row, way]
            single.findings.clear()
            _run(single, check)
            same = next((finding for finding in single.findings if finding.check == name), None)
            if same is not None:
                return replace(same.examples[0], note=note)
        return replace(
            example, note=f"only in batch {self.trial.batch.index} of {self.trial.batch.family}"
        )
