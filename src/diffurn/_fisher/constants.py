"""Tensors that follow from the sizes of an urn alone, cached on its device.

A function here makes one of them, shape ``composition.shape + (...)``. A captured CUDA graph can
read a cached tensor, but it cannot copy one from the CPU.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor

from diffurn._composition import Composition
from diffurn._numerics.tracing import is_capturing, is_transforming

# The log-weight of an impossible count, and log ω of a ball of weight zero: finite, so that no
# gradient meets inf - inf.
IMPOSSIBLE = -1e300
NEVER = -1e30
# Constants that are kept for the next urn of the same composition.
_REMEMBERED = 1024

_remembered: OrderedDict[Any, Tensor] = OrderedDict()
_captured: dict[Any, Tensor] = {}
_compiled = SimpleNamespace()
_names: dict[Any, str] = {}


class _Maker(NamedTuple):
    """Numbers of one urn from its sizes and draws, the whole composition and a group."""

    numbers: Callable[[tuple[int, ...], int, Composition, int], Any]
    dtype: torch.dtype
    shared: bool  # the same for all urns of a batch


class _Constant(Protocol):
    def __call__(
        self, composition: Composition, device: torch.device, group: int = 0
    ) -> Tensor: ...


_makers: dict[str, _Maker] = {}


def _constant(
    dtype: torch.dtype = torch.float64, shared: bool = False
) -> Callable[[Any], _Constant]:
    def decorate(numbers: Callable[[tuple[int, ...], int, Composition, int], Any]) -> _Constant:
        name = numbers.__name__
        _makers[name] = _Maker(numbers, dtype, shared)

        def constant(composition: Composition, device: torch.device, group: int = 0) -> Tensor:
            key = (name, *composition, device, group)
            if torch.compiler.is_compiling():
                return cast(Tensor, getattr(_compiled, _name_in_graphs(*key)))
            return _cached(*key)

        constant.__doc__ = numbers.__doc__
        return constant

    return decorate


def _name_in_graphs(*key: Any) -> str:
    """Where a compiled graph finds a constant as an input; it would copy one made while tracing."""
    name = _names.setdefault(key, f"constant_{len(_names)}")
    if not hasattr(_compiled, name):
        setattr(_compiled, name, _cached(*key))
    return name


# As `torch.compiler.assume_constant_result` does, which would import the compiler.
_name_in_graphs._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _cached(
    name: str, shape: Any, group_sizes: Any, draws: Any, device: torch.device, group: int
) -> Tensor:
    key = (name, shape, group_sizes, draws, device, group)
    tensor = _remembered.get(key)
    if tensor is None:
        tensor = _made(_makers[name], Composition(shape, group_sizes, draws), device, group)
        if is_transforming() or type(tensor) is not Tensor:  # it lives as long as the transform
            return tensor
        _remembered[key] = tensor
        if len(_remembered) > _REMEMBERED:
            _remembered.popitem(last=False)
    elif is_capturing():
        _captured[key] = tensor  # a graph keeps reading this memory, and does not own it
    return tensor


def _made(maker: _Maker, urns: Composition, device: torch.device, group: int) -> Tensor:
    pairs = zip(urns.group_sizes, urns.draws, strict=True)
    rows = [maker.numbers(sizes, n, urns, group) for sizes, n in pairs]
    with torch.inference_mode(False):  # a training step cannot use tensors of inference mode
        tensor = torch.tensor(rows, dtype=maker.dtype, device=device)
        return tensor[0] if maker.shared else tensor.reshape(urns.shape + tensor.shape[1:])


# --------------------------------------------------------------------------------------------------
# Numbers of any urn
# --------------------------------------------------------------------------------------------------


@_constant(torch.int64)
def group_sizes(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    return sizes


@_constant(torch.int64)
def draws(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    return n


@_constant()
def balls(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    """The group sizes in float64."""
    return sizes


@_constant()
def total(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    """The draws in float64."""
    return n


@_constant()
def log_factorials(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    return [math.lgamma(m + 1) for m in sizes]


@_constant()
def falling(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    """The counts of a table's columns, from the highest down."""
    return _rising(urns)[::-1]


@_constant()
def rising(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    """The same from the lowest up."""
    return _rising(urns)


# --------------------------------------------------------------------------------------------------
# Two groups: the law of the first but for its weight
# --------------------------------------------------------------------------------------------------


@_constant()
def pair(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    """log C(m_1, x) + log C(m_2, n - x) for the falling counts x."""
    return _with_the_rest(sizes[0], sizes[1], n, _rising(urns)[::-1])


@_constant()
def fewest(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    """Both counts where the first is smallest."""
    first = max(0, n - sizes[1])
    return first, n - first


@_constant()
def most(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    """Both counts where the first is largest."""
    first = min(sizes[0], n)
    return first, n - first


@_constant()
def first_column(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    """Both counts in the first column of `pair`."""
    return urns.window[1], n - urns.window[1]


@_constant()
def signs(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    return (1, -1)


# --------------------------------------------------------------------------------------------------
# More groups. All urns of a batch draw N, the most draws: the last group of an urn with n < N holds
# N - n more balls, which are always drawn.
# --------------------------------------------------------------------------------------------------


@_constant()
def own(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    """log C(m_j, x) of all groups but the last, for the falling counts x."""
    return [_log_ways(m, _rising(urns)[::-1]) for m in sizes[:-1]]


@_constant()
def last(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    """log C(m_c, x) of the last group, for `last_counts` x."""
    return _log_ways(sizes[-1], _last_counts(n, urns))


@_constant()
def last_counts(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    return _last_counts(n, urns)


@_constant(torch.int64, shared=True)
def windows(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    """The indices s, …, s + W - 1 of every row s."""
    return [s + w for s in range(urns.most_draws + 1) for w in range(urns.width)]


@_constant(torch.int64)
def surplus(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    """N - n."""
    return urns.most_draws - n


@_constant(torch.int64)
def surplus_minus_rising(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    return [urns.most_draws - n - k for k in _rising(urns)]


# --------------------------------------------------------------------------------------------------
# Group i against all later ones as one
# --------------------------------------------------------------------------------------------------


@_constant()
def merged(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    """The law of group i but for its weight, if n draws are left."""
    return _with_the_rest(sizes[i], sum(sizes[i + 1 :]), n, _rising(urns))


@_constant()
def merged_rows(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    """The same for every number of draws left, one row each."""
    later = sum(sizes[i + 1 :])
    ways = _log_ways(later, range(min(later, urns.most_draws) + 1))
    ways_of_own = _log_ways(sizes[i], _rising(urns))
    rows = _by_draws_left(ways, IMPOSSIBLE, urns)
    return [[a + b for a, b in zip(ways_of_own, row, strict=True)] for row in rows]


@_constant()
def slopes(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    """The derivatives of `merged_rows` in the draws left."""
    return _by_draws_left(_slopes(sum(sizes[i + 1 :])), 0.0, urns)


@_constant()
def log_shares(sizes: tuple[int, ...], n: int, urns: Composition, i: int) -> Any:
    """log m_j / Σm of the later groups, the weights of the paper's merge rule."""
    later = sizes[i + 1 :]
    if not sum(later):  # without any balls any weights are right
        return [0.0 for _ in later]
    return [math.log(m / sum(later)) if m else NEVER for m in later]


def _rising(composition: Composition) -> range:
    lowest, highest = composition.window
    return range(lowest, highest + 1)


def _last_counts(n: int, composition: Composition) -> range:
    surplus = composition.most_draws - n
    return range(-surplus, composition.most_draws + 1 - surplus)


def _log_ways(size: int, counts: Sequence[int]) -> list[float]:
    """log C(size, count) of each count."""
    return [math.log(math.comb(size, k)) if 0 <= k <= size else IMPOSSIBLE for k in counts]


def _with_the_rest(first: int, later: int, left: int, counts: Sequence[int]) -> list[float]:
    """log C(first, k) + log C(later, left - k) of each count k."""
    rest = _log_ways(later, [left - k for k in counts])
    return [a + b for a, b in zip(_log_ways(first, counts), rest, strict=True)]


def _slopes(later: int) -> list[float]:
    """∂ log C(later, s) / ∂ s = ψ(later - s + 1) - ψ(s + 1) for s = 0, …, later."""
    harmonic = [0.0, *itertools.accumulate(1 / i for i in range(1, later + 1))]
    return [backward - forward for forward, backward in zip(harmonic, harmonic[::-1], strict=True)]


def _by_draws_left(
    values: Sequence[float], otherwise: float, urns: Composition
) -> list[list[float]]:
    """values[s] as a table: row n, column k holds s = n - k."""
    counts = _rising(urns)
    return [
        [values[n - k] if 0 <= n - k < len(values) else otherwise for k in counts]
        for n in range(urns.most_draws + 1)
    ]
