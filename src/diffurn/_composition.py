"""The sizes of small urns as plain numbers, if they can be read without synchronisation."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from diffurn._numerics.tracing import can_read

# The most cells of an urn's tables. For larger urns quadratures are faster, even for one urn.
MOST_CELLS = 1024
# The most balls of one group: log-factorials of more lose digits.
_MOST_BALLS = 1024
# The most groups: they are drawn one after another, in ten operations each.
_MOST_GROUPS = 32
# The most numbers of an argument: reading more takes longer than tables save.
_MOST_NUMBERS = 512
# The number of compositions that are cached for later urns of the same sizes.
_MOST_REMEMBERED = 256

_remembered: OrderedDict[Any, Composition] = OrderedDict()


class Composition:
    """The group sizes and draws of a batch of urns, as plain numbers; cached by `of`.

    Attributes:
        shape: the shape of the batch; () if all urns have the same sizes.
        group_sizes: m, one row per urn.
        draws: n, one number per urn.
        groups: c, the number of groups.
        most_draws: the largest n.
        window: the lowest and the highest count of a group's table. For two groups these bound the
            possible counts of the first group; otherwise the lowest is 0.
        width: the number of counts in the window.
        cells: the number of cells of an urn's largest table.
        kept: tensors that follow from the sizes, by device (see `diffurn._fisher.constants`).
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        group_sizes: tuple[tuple[int, ...], ...],
        draws: tuple[int, ...],
    ) -> None:
        self.shape, self.group_sizes, self.draws = shape, group_sizes, draws
        self.groups, self.most_draws = len(group_sizes[0]), max(draws)
        if self.groups > 2:
            self.window = 0, min(max(map(max, group_sizes)), self.most_draws)
        else:
            rows = list(zip(group_sizes, draws, strict=True))
            lowest = min([max(0, n - row[1]) for row, n in rows])
            self.window = lowest, max([min(row[0], n) for row, n in rows])
        self.width = self.window[1] - self.window[0] + 1
        self.cells = self.width * (1 if self.groups == 2 else self.most_draws + 1)
        self.kept: dict[Any, Any] = {}
        self._reordered: dict[tuple[int, ...], Composition] = {}

    @classmethod
    def of(
        cls,
        shape: tuple[int, ...],
        group_sizes: tuple[tuple[int, ...], ...],
        draws: tuple[int, ...],
    ) -> Composition:
        """The composition of these sizes: the cached object, or a new one."""
        if torch.compiler.is_compiling():
            return cls(shape, group_sizes, draws)
        key = shape, group_sizes, draws
        known = _remembered.get(key)
        if known is None:
            known = _remembered[key] = cls(shape, group_sizes, draws)
            if len(_remembered) > _MOST_REMEMBERED:
                _remembered.popitem(last=False)
        return known

    def __repr__(self) -> str:
        return f"Composition({self.shape}, {self.group_sizes}, {self.draws})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Composition.of, (self.shape, self.group_sizes, self.draws)

    def largest(self, group: int) -> int:
        """The most balls that the group has in any urn."""
        return max([row[group] for row in self.group_sizes])

    def reordered(self, order: Sequence[int]) -> Composition:
        """The same urns with their groups in another order."""
        known = self._reordered.get(tuple(order))
        if known is None:
            rows = tuple([tuple([row[j] for j in order]) for row in self.group_sizes])
            known = self._reordered[tuple(order)] = Composition.of(self.shape, rows, self.draws)
        return known


def are_single_balls(group_sizes: Any) -> bool:
    """Whether group sizes given as plain numbers are at most 1."""
    if isinstance(group_sizes, (list, tuple)):
        return all(isinstance(size, int) and 0 <= size <= 1 for size in group_sizes)
    return isinstance(group_sizes, int) and 0 <= group_sizes <= 1


class PlainSizes(NamedTuple):
    """The group sizes and draws of a batch of urns, as plain numbers.

    Attributes:
        shape: the shape of the batch; () if all urns have the same sizes.
        group_sizes: m, one row per urn.
        draws: n, one number per urn.
        equal_rows: whether all urns were given the same group sizes.
    """

    shape: tuple[int, ...]
    group_sizes: tuple[tuple[int, ...], ...]
    draws: tuple[int, ...]
    equal_rows: bool

    @classmethod
    def read(cls, group_sizes: Any, draws: Any, weights_shape: Sequence[int]) -> PlainSizes | None:
        """The sizes of valid urns; None if they are invalid, too many or not readable."""
        if not weights_shape:
            return None
        sizes, numbers = _read(group_sizes), _read(draws)
        if sizes is None or numbers is None or not sizes.shape or not sizes.entries:
            return None
        groups, per_row = weights_shape[-1], sizes.shape[-1]
        if per_row not in (1, groups):
            return None
        if len(sizes.shape) == 1 and not numbers.shape:
            row = tuple(sizes.entries) * (groups // per_row)
            enough = numbers.entries[0] <= sum(row)
            return cls((), (row,), tuple(numbers.entries), True) if enough else None
        starts = range(0, len(sizes.entries), per_row)
        rows = [tuple(sizes.entries[i : i + per_row]) * (groups // per_row) for i in starts]
        shape, number = sizes.shape[:-1], numbers.entries
        if not numbers.shape:
            number = number * len(rows)
        elif not shape:
            shape, rows = numbers.shape, rows * len(number)
        elif shape != numbers.shape:
            return None
        if not rows or not _broadcasts(shape, weights_shape[:-1]):
            return None
        equal_rows = len(starts) == 1
        balls = [sum(rows[0])] * len(rows) if equal_rows else [sum(row) for row in rows]
        if any(n > most for most, n in zip(balls, number, strict=True)):
            return None
        return cls(shape, tuple(rows), tuple(number), equal_rows)


def composition_of(sizes: PlainSizes) -> Composition | None:
    """The composition of small urns; None if they are too large for tables.

    Example:
        >>> composition_of(PlainSizes.read([3, 5], 4, weights_shape=(2,)))
        Composition((), ((3, 5),), (4,))
    """
    rows = sizes.group_sizes
    if not 2 <= len(rows[0]) <= _MOST_GROUPS or max(map(max, rows)) > _MOST_BALLS:
        return None
    composition = Composition.of(sizes.shape, rows, sizes.draws)
    return composition if composition.cells <= MOST_CELLS else None


def _broadcasts(shape: Sequence[int], other: Sequence[int]) -> bool:
    pairs = zip(reversed(shape), reversed(other), strict=False)
    return all(ours == theirs or 1 in (ours, theirs) for ours, theirs in pairs)


class _Numbers(NamedTuple):
    shape: tuple[int, ...]
    entries: list[int]


def _read(value: Any) -> _Numbers | None:
    """The shape and entries of an array of whole numbers in range; None for anything else."""
    if isinstance(value, (int, float)):
        return _checked((), [value])
    if isinstance(value, (list, tuple)):
        return _read_list(value)
    if not can_read(value) or math.prod(value.shape) > _MOST_NUMBERS:
        return None
    entries = value.tolist() if len(value.shape) == 1 else value.reshape(-1).tolist()
    return _checked(tuple(value.shape), entries)


def _read_list(value: Sequence[Any]) -> _Numbers | None:
    if len(value) > _MOST_NUMBERS:
        return None
    if not any(isinstance(part, (list, tuple)) for part in value):
        return _checked((len(value),), value)
    parts = [_read_list(part) for part in value if isinstance(part, (list, tuple))]
    if len(parts) < len(value) or any(part is None for part in parts):
        return None
    shapes = {part.shape for part in parts if part is not None}
    entries = [entry for part in parts if part is not None for entry in part.entries]
    if len(shapes) > 1 or len(entries) > _MOST_NUMBERS:
        return None
    return _Numbers((len(value), *shapes.pop()), entries)


def _checked(shape: tuple[int, ...], entries: Sequence[Any]) -> _Numbers | None:
    if not torch.compiler.is_compiling() and {*map(type, entries)} == {int}:
        return _Numbers(shape, list(entries)) if _are_in_range(entries) else None
    whole = []
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, (int, float)):
            return None
        if not _are_in_range([entry]) or entry != int(entry):
            return None
        whole.append(len(range(int(entry))))  # makes torch.compile specialise on the number
    return _Numbers(shape, whole)


def _are_in_range(entries: Sequence[float]) -> bool:
    return min(entries) >= 0 and max(entries) <= 2**53
