"""Tensors that follow from the sizes of an urn alone, cached on its device.

A captured CUDA graph can read a cached tensor, but it cannot copy one from the CPU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from diffurn._composition import Composition
from diffurn._numerics.autograd import is_transforming
from diffurn._numerics.tracing import is_capturing

# The log-weight of an impossible count, and log ω of a ball of weight zero. Both are finite, so
# that no gradient contains inf - inf.
IMPOSSIBLE = -1e300
NEVER = -1e30

_captured: set[Any] = set()
_compiled = SimpleNamespace()
_names: dict[Any, str] = {}


class _Urn(NamedTuple):
    """One urn of a composition, and the group that a constant is for."""

    sizes: tuple[int, ...]
    draws: int
    all: Composition
    group: int

    @property
    def rising(self) -> range:
        """The counts of a table's columns, in rising order."""
        lowest, highest = self.all.window
        return range(lowest, highest + 1)

    @property
    def falling(self) -> range:
        return self.rising[::-1]

    @property
    def surplus(self) -> int:
        """N - n, the number of balls added to the last group, which are always drawn."""
        return self.all.most_draws - self.draws

    @property
    def last_counts(self) -> range:
        return range(-self.surplus, self.draws + 1)

    @property
    def later(self) -> tuple[int, ...]:
        return self.sizes[self.group + 1 :]


class _Constant:
    """A descriptor for an attribute of `Constants`, which is made on its first read.

    Args:
        numbers: maps an urn to its numbers.
        dtype: of the tensor.
        shared: whether all urns of a batch have the same numbers.
    """

    def __init__(
        self,
        numbers: Callable[[_Urn], Any],
        dtype: torch.dtype = torch.float64,
        shared: bool = False,
    ) -> None:
        self.numbers, self.dtype, self.shared = numbers, dtype, shared
        self.name = ""

    def __set_name__(self, owner: Any, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any = None) -> Tensor:
        if instance is None:
            return cast(Tensor, self)
        tensor = self.of_group(instance, 0)
        if _may_be_kept(tensor):
            instance.__dict__[self.name] = tensor  # the next read finds it there
        return tensor

    def of_group(self, constants: Constants, group: int) -> Tensor:
        if torch.compiler.is_compiling():
            sizes = constants.composition
            key = sizes.shape, sizes.group_sizes, sizes.draws, constants.device, group
            return cast(Tensor, getattr(_compiled, _place_in_graphs(self.name, *key)))
        return self.made(constants.composition, constants.device, group)

    def made(self, urns: Composition, device: torch.device, group: int) -> Tensor:
        pairs = zip(urns.group_sizes, urns.draws, strict=True)
        rows = [self.numbers(_Urn(sizes, n, urns, group)) for sizes, n in pairs]
        with torch.inference_mode(False):  # a training step cannot use tensors of inference mode
            tensor = torch.tensor(rows, dtype=self.dtype, device=device)
            return tensor[0] if self.shared else tensor.reshape(urns.shape + tensor.shape[1:])


def _may_be_kept(tensor: Tensor) -> bool:
    """Whether a tensor may be cached: not if it is traced, or made inside of a transform."""
    if torch.compiler.is_compiling():
        return False
    return type(tensor) is Tensor and not is_transforming()


def _place_in_graphs(name: str, *key: Any) -> str:
    """The attribute of `_compiled` that holds a constant.

    A compiled graph takes the attribute as an input. It would copy a constant that is made while
    tracing to the device in every call.
    """
    place = _names.setdefault((name, *key), f"constant_{len(_names)}")
    if not hasattr(_compiled, place):
        shape, group_sizes, draws, device, group = key
        sizes = Composition(shape, group_sizes, draws)
        setattr(_compiled, place, vars(Constants)[name].made(sizes, device, group))
    return place


# The effect of `torch.compiler.assume_constant_result`, which would import the compiler.
_place_in_graphs._dynamo_marked_constant = True  # type: ignore[attr-defined]


def constants_of(composition: Composition, device: torch.device) -> Constants:
    """The constants of a composition on a device."""
    if torch.compiler.is_compiling():
        return Constants(composition, device)
    known: Constants | None = composition.kept.get(device)
    if known is None:
        known = composition.kept[device] = Constants(composition, device)
    if device.type == "cuda" and is_capturing():
        _captured.add(known)  # keeps the memory that the graph will read
    return known


def _log_ways(size: int, counts: Sequence[int]) -> list[float]:
    """log C(size, count) of each count."""
    return [math.log(math.comb(size, k)) if 0 <= k <= size else IMPOSSIBLE for k in counts]


def _with_the_rest(first: int, later: int, left: int, counts: Sequence[int]) -> list[float]:
    """log C(first, k) + log C(later, left - k) of each count k."""
    rest = _log_ways(later, [left - k for k in counts])
    return [a + b for a, b in zip(_log_ways(first, counts), rest, strict=True)]


def _by_draws_left(urn: _Urn, values: Sequence[float], otherwise: float) -> list[list[float]]:
    """A table with values[n - k] in row n and the column of count k, or `otherwise`."""
    return [
        [values[n - k] if 0 <= n - k < len(values) else otherwise for k in urn.rising]
        for n in range(urn.all.most_draws + 1)
    ]


def _merged_rows(urn: _Urn) -> list[list[float]]:
    later = sum(urn.later)
    ways = _log_ways(later, range(min(later, urn.all.most_draws) + 1))
    own = _log_ways(urn.sizes[urn.group], urn.rising)
    rows = _by_draws_left(urn, ways, IMPOSSIBLE)
    return [[a + b for a, b in zip(own, row, strict=True)] for row in rows]


def _slopes(urn: _Urn) -> list[list[float]]:
    """∂ log C(later, s) / ∂ s = ψ(later - s + 1) - ψ(s + 1), for every number of draws left."""
    later = sum(urn.later)
    harmonic = [0.0, *itertools.accumulate(1 / i for i in range(1, later + 1))]
    slopes = [down - up for up, down in zip(harmonic, harmonic[::-1], strict=True)]
    return _by_draws_left(urn, slopes, 0.0)


def _log_shares(urn: _Urn) -> list[float]:
    balls = sum(urn.later)
    if not balls:  # without balls any weights are right
        return [0.0 for _ in urn.later]
    return [math.log(m / balls) if m else NEVER for m in urn.later]


class Constants:
    """The tensors of a composition, shape ``composition.shape + (...)``."""

    def __init__(self, composition: Composition, device: torch.device) -> None:
        self.composition, self.device = composition, device
        self._of_groups: dict[tuple[str, int], Tensor] = {}

    # m and n, in int64 and in float64.
    group_sizes = _Constant(lambda urn: urn.sizes, torch.int64)
    draws = _Constant(lambda urn: urn.draws, torch.int64)
    balls = _Constant(lambda urn: urn.sizes)
    total = _Constant(lambda urn: urn.draws)
    log_factorials = _Constant(lambda urn: [math.lgamma(m + 1) for m in urn.sizes])
    # The counts of a table's columns.
    falling = _Constant(lambda urn: urn.falling)
    rising = _Constant(lambda urn: urn.rising)

    # Two groups: log C(m_1, x) + log C(m_2, n - x) for falling counts x. Then the counts of both
    # groups if the first is smallest, if it is largest, and in the table's first column.
    pair = _Constant(lambda urn: _with_the_rest(urn.sizes[0], urn.sizes[1], urn.draws, urn.falling))
    fewest = _Constant(lambda urn: _both(max(0, urn.draws - urn.sizes[1]), urn.draws))
    most = _Constant(lambda urn: _both(min(urn.sizes[0], urn.draws), urn.draws))
    first_column = _Constant(lambda urn: _both(urn.all.window[1], urn.draws))
    signs = _Constant(lambda urn: (1, -1))

    # More groups: log C(m_j, x) of all groups but the last for falling counts x, and of the last.
    # All urns of a batch draw N balls, the most of any urn. For that, N - n balls that are always
    # drawn are added to the last group.
    own = _Constant(lambda urn: [_log_ways(m, urn.falling) for m in urn.sizes[:-1]])
    last = _Constant(lambda urn: _log_ways(urn.sizes[-1], urn.last_counts))
    last_counts = _Constant(lambda urn: urn.last_counts)
    surplus = _Constant(lambda urn: urn.surplus, torch.int64)
    surplus_minus_rising = _Constant(lambda urn: [urn.surplus - k for k in urn.rising], torch.int64)
    # The indices s, …, s + W - 1 of every row s.
    windows = _Constant(
        lambda urn: [s + w for s in range(urn.all.most_draws + 1) for w in range(urn.all.width)],
        torch.int64,
        shared=True,
    )

    # One group and all later ones merged: its law for n draws and for every number of draws left,
    # the slope of the latter, and log m_j / Σm of the later groups for the paper's merge rule.
    _merged = _Constant(
        lambda urn: _with_the_rest(urn.sizes[urn.group], sum(urn.later), urn.draws, urn.rising)
    )
    _merged_rows = _Constant(_merged_rows)
    _slopes = _Constant(_slopes)
    _log_shares = _Constant(_log_shares)

    def merged(self, group: int) -> Tensor:
        return self._of_group("_merged", group)

    def merged_rows(self, group: int) -> Tensor:
        return self._of_group("_merged_rows", group)

    def slopes(self, group: int) -> Tensor:
        return self._of_group("_slopes", group)

    def log_shares(self, group: int) -> Tensor:
        return self._of_group("_log_shares", group)

    def _of_group(self, name: str, group: int) -> Tensor:
        known = self._of_groups.get((name, group))
        if known is not None:
            return known
        tensor: Tensor = vars(Constants)[name].of_group(self, group)
        if _may_be_kept(tensor):
            self._of_groups[name, group] = tensor
        return tensor


def _both(first: int, draws: int) -> tuple[int, int]:
    return first, draws - first
