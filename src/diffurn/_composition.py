"""What the host knows of small urns, and whether tables pay for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from diffurn._numerics.tracing import can_read

# The largest table of an urn, in numbers: beyond it, ways that do not look at every count are
# faster even for one urn.
MOST_CELLS = 1024
# The same for all tables of a batch, measured on one CPU core; where operations wait for their
# launch rather than for memory, more is affordable. Beyond it, tables of so many cells an urn still
# pay; those of more than two groups, which are convolved, do not.
_MOST_CELLS_OF_A_BATCH = 1 << 17
_MOST_CELLS_OF_EACH = {2: 160, 3: 0}
_CELLS_PER_LAUNCH = 32
# Of one group: log-factorials of more balls than this lose digits that are promised.
_MOST_BALLS = 1024
# Groups are drawn one after another, ten operations each.
_MOST_GROUPS = 32
# More sizes than this are a data set: reading them again for every urn would cost more than it
# saves.
_MOST_NUMBERS = 512


class Composition(NamedTuple):
    """What the host knows of a batch of urns.

    Attributes:
        shape: of the batch; () stands for one composition of all urns.
        group_sizes: m, one row an urn.
        draws: n, one number an urn.
    """

    shape: tuple[int, ...]
    group_sizes: tuple[tuple[int, ...], ...]
    draws: tuple[int, ...]

    @property
    def groups(self) -> int:
        return len(self.group_sizes[0])

    @property
    def most_draws(self) -> int:
        return max(self.draws)

    @property
    def window(self) -> tuple[int, int]:
        """The counts that the table of a group holds: of two groups those that are possible for the
        first, otherwise all from 0.
        """
        if self.groups > 2:
            return 0, min(max(max(row) for row in self.group_sizes), self.most_draws)
        rows = list(zip(self.group_sizes, self.draws, strict=True))
        return min(max(0, n - row[1]) for row, n in rows), max(min(row[0], n) for row, n in rows)

    @property
    def width(self) -> int:
        lowest, highest = self.window
        return highest - lowest + 1

    @property
    def cells(self) -> int:
        """Of the largest table of an urn."""
        return self.width if self.groups == 2 else (self.most_draws + 1) * self.width

    def pays_for(self, urns: int, draws: int, device: torch.device) -> bool:
        """Whether tables are the faster way to so many draws of each of so many urns; a compiled or
        captured step has no other.
        """
        cells = urns * (self.groups - 1) * (self.cells + draws * self.width)
        affordable = (
            _MOST_CELLS_OF_A_BATCH + urns * (1 + draws) * _MOST_CELLS_OF_EACH[min(self.groups, 3)]
        )
        return cells <= (
            affordable
            if device.type == "cpu" and not torch.compiler.is_compiling()
            else affordable * _CELLS_PER_LAUNCH
        )

    def largest(self, group: int) -> int:
        return max(row[group] for row in self.group_sizes)

    def reordered(self, order: Sequence[int]) -> Composition:
        return Composition(
            self.shape, tuple(tuple(row[j] for j in order) for row in self.group_sizes), self.draws
        )


def composition_of(
    group_sizes: Any, draws: Any, weights_shape: Sequence[int]
) -> Composition | None:
    """The composition of valid, small urns with weights of that shape, if it can be read without
    waiting for a device.

    Example:
        >>> composition_of([3, 5], 4, weights_shape=(2,))
        Composition(shape=(), group_sizes=((3, 5),), draws=(4,))
    """
    if not weights_shape or not 2 <= weights_shape[-1] <= _MOST_GROUPS:
        return None
    groups = weights_shape[-1]
    sizes, numbers = _read(group_sizes), _read(draws)
    if (
        sizes is None
        or numbers is None
        or not sizes[0]
        or not sizes[1]
        or sizes[0][-1] not in (1, groups)
    ):
        return None
    per_row = sizes[0][-1]
    rows = [
        tuple(sizes[1][i : i + per_row]) * (groups // per_row)
        for i in range(0, len(sizes[1]), per_row)
    ]
    shape, number = sizes[0][:-1], numbers[1]
    if not numbers[0]:
        number = number * len(rows)
    elif not shape:
        shape, rows = numbers[0], rows * len(number)
    elif shape != numbers[0]:
        return None
    if not rows:  # an empty batch has no largest table
        return None
    if any(
        ours != theirs and 1 not in (ours, theirs)
        for ours, theirs in zip(shape[::-1], weights_shape[-2::-1], strict=False)
    ):
        return None
    if max(max(row) for row in rows) > _MOST_BALLS or not all(
        n <= sum(row) for row, n in zip(rows, number, strict=True)
    ):
        return None
    composition = Composition(shape, tuple(rows), tuple(number))
    return composition if composition.cells <= MOST_CELLS else None


class _Numbers(NamedTuple):
    shape: tuple[int, ...]
    entries: list[int]


def _read(value: Any) -> _Numbers | None:
    """An array of whole numbers; None for anything else, and for what cannot be looked at."""
    if not isinstance(value, (int, float, list, tuple)):
        if not can_read(value) or math.prod(value.shape) > _MOST_NUMBERS:
            return None
        value = value.tolist()
    numbers = _flattened(value)
    return None if numbers is None or len(numbers.entries) > _MOST_NUMBERS else numbers


def _flattened(value: Any) -> _Numbers | None:
    if isinstance(value, (list, tuple)):
        if len(value) > _MOST_NUMBERS:
            return None
        entries: list[int] = []
        inner: tuple[int, ...] | None = None
        for part in value:
            numbers = _flattened(part)
            if numbers is None or (inner is not None and numbers.shape != inner):
                return None
            inner = numbers.shape
            entries += numbers.entries
        return _Numbers((len(value), *(inner or ())), entries)
    if isinstance(value, float):
        value = int(value) if value.is_integer() else None
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or not 0 <= value <= _MOST_GROUPS * _MOST_BALLS
    ):
        return None
    return _Numbers(
        (), [len(range(value))]
    )  # `torch.compile` would rather leave a number open than look at it
