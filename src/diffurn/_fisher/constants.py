"""Tensors that follow from a composition alone, kept on the device: a captured graph can read, but
not copy them from the host.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from diffurn._composition import Composition
from diffurn._numerics.tracing import is_capturing, is_transforming

# Log-weight of what cannot happen, and log ω of a ball of weight zero: finite, so that no gradient
# meets inf - inf.
IMPOSSIBLE = -1e300
NEVER = -1e30
# Constants that are kept ready for the next urn of the same composition.
_REMEMBERED = 1024

_remembered: OrderedDict[Any, Tensor] = OrderedDict()
_captured: dict[Any, Tensor] = {}
_compiled = SimpleNamespace()
_names: dict[Any, str] = {}


def constant(name: str, composition: Composition, device: torch.device, group: int = 0) -> Tensor:
    """A tensor made from the composition alone, shape ``composition.shape + (...)``."""
    arguments = (name, *composition, device, group)
    if torch.compiler.is_compiling():
        return cast(Tensor, getattr(_compiled, _name_in_graphs(*arguments)))
    return _constant(*arguments)


def _name_in_graphs(*arguments: Any) -> str:
    """Where a compiled graph finds a constant, as one of its inputs: one made while tracing would
    be copied from the host each time.
    """
    name = _names.setdefault(arguments, f"constant_{len(_names)}")
    if not hasattr(_compiled, name):
        setattr(_compiled, name, _constant(*arguments))
    return name


# What `torch.compiler.assume_constant_result` does, which would import the compiler with the
# library.
_name_in_graphs._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _constant(
    name: str, shape: Any, group_sizes: Any, draws: Any, device: torch.device, group: int
) -> Tensor:
    key = (name, shape, group_sizes, draws, device, group)
    tensor = _remembered.get(key)
    if tensor is None:
        with torch.inference_mode(
            False
        ):  # what inference mode makes, a training step could not use
            urns = Composition(shape, group_sizes, draws)
            rows = [
                _MAKERS[name](sizes, n, urns, group)
                for sizes, n in zip(group_sizes, draws, strict=True)
            ]
            tensor = torch.tensor(
                rows, dtype=torch.int64 if name in _WHOLE else torch.float64, device=device
            )
            tensor = tensor[0] if name in _SHARED else tensor.reshape(shape + tensor.shape[1:])
        if is_transforming() or type(tensor) is not Tensor:  # it lives no longer than the transform
            return tensor
        _remembered[key] = tensor
        if len(_remembered) > _REMEMBERED:
            _remembered.popitem(last=False)
    elif is_capturing():
        _captured[key] = tensor  # a graph keeps reading this memory, and does not own it
    return tensor


def _log_ways(size: int, counts: Sequence[int]) -> list[float]:
    """log C(size, count) of each count."""
    return [
        math.log(math.comb(size, count)) if 0 <= count <= size else IMPOSSIBLE for count in counts
    ]


def _rising(composition: Composition) -> range:
    lowest, highest = composition.window
    return range(lowest, highest + 1)


def _with_the_rest(first: int, later: int, left: int, counts: Sequence[int]) -> list[float]:
    """log C(first, k) + log C(later, left - k) of each count k."""
    return [
        a + b
        for a, b in zip(
            _log_ways(first, counts), _log_ways(later, [left - k for k in counts]), strict=True
        )
    ]


def _slopes(later: int) -> list[float]:
    """∂ log C(later, s) / ∂ s = ψ(later - s + 1) - ψ(s + 1) for s = 0, …, later: differences of
    harmonic numbers.
    """
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


def _merged_rows(first: int, later: int, urns: Composition) -> list[list[float]]:
    own = _log_ways(first, _rising(urns))
    rest = _by_draws_left(
        _log_ways(later, range(min(later, urns.most_draws) + 1)), IMPOSSIBLE, urns
    )
    return [[a + b for a, b in zip(own, row, strict=True)] for row in rest]


def _log_shares(sizes: Sequence[int]) -> list[float]:
    """log m_j / Σm, the weights of the paper's merge rule; without any balls, any will do."""
    return [(math.log(m / sum(sizes)) if m else NEVER) if sum(sizes) else 0.0 for m in sizes]


# Each from the sizes and draws of one urn, the composition of all, and the number of a group where
# it matters.
_MAKERS: dict[str, Callable[[tuple[int, ...], int, Composition, int], Any]] = {
    "group sizes": lambda sizes, n, urns, i: sizes,
    "draws": lambda sizes, n, urns, i: n,
    "balls": lambda sizes, n, urns, i: sizes,
    "number": lambda sizes, n, urns, i: n,
    "log factorials": lambda sizes, n, urns, i: [math.lgamma(m + 1) for m in sizes],
    "falling": lambda sizes, n, urns, i: _rising(urns)[::-1],
    "rising": lambda sizes, n, urns, i: _rising(urns),
    # two groups: the law of the first, but for its weight; both counts where the first is smallest,
    # where largest, and in column 0
    "pair": lambda sizes, n, urns, i: _with_the_rest(sizes[0], sizes[1], n, _rising(urns)[::-1]),
    "fewest": lambda sizes, n, urns, i: _both(max(0, n - sizes[1]), n),
    "most": lambda sizes, n, urns, i: _both(min(sizes[0], n), n),
    "column 0": lambda sizes, n, urns, i: _both(urns.window[1], n),
    "signs": lambda sizes, n, urns, i: (1, -1),
    # more groups: the last one holds N - n balls more, which are always drawn, so that all urns of
    # a batch draw N
    "own": lambda sizes, n, urns, i: [_log_ways(m, _rising(urns)[::-1]) for m in sizes[:-1]],
    "last": lambda sizes, n, urns, i: _log_ways(sizes[-1], _last_counts(n, urns)),
    "last counts": lambda sizes, n, urns, i: _last_counts(n, urns),
    "windows": lambda sizes, n, urns, i: [
        s + w for s in range(urns.most_draws + 1) for w in range(urns.width)
    ],
    "surplus": lambda sizes, n, urns, i: urns.most_draws - n,
    "surplus - rising": lambda sizes, n, urns, i: [urns.most_draws - n - k for k in _rising(urns)],
    # group i against all later ones as one: its law and slope, for n and for every number of draws
    # left
    "merged": lambda sizes, n, urns, i: _with_the_rest(
        sizes[i], sum(sizes[i + 1 :]), n, _rising(urns)
    ),
    "merged rows": lambda sizes, n, urns, i: _merged_rows(sizes[i], sum(sizes[i + 1 :]), urns),
    "slopes": lambda sizes, n, urns, i: _by_draws_left(_slopes(sum(sizes[i + 1 :])), 0.0, urns),
    "log shares": lambda sizes, n, urns, i: _log_shares(sizes[i + 1 :]),
}
_WHOLE = {"group sizes", "draws", "windows", "surplus", "surplus - rising"}
_SHARED = {"windows"}  # the same for all urns of a batch


def _both(first: int, draws: int) -> tuple[int, int]:
    return first, draws - first


def _last_counts(draws: int, composition: Composition) -> range:
    surplus = composition.most_draws - draws
    return range(-surplus, composition.most_draws + 1 - surplus)
