"""Shapes of batches, and long batches in pieces that fit the cache or the memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor


def common_shape(shapes: Iterable[Sequence[int]]) -> torch.Size:
    """As ``torch.broadcast_shapes``, which costs a small operation; this mostly costs nothing.

    Example:
        >>> common_shape([(3,), (5, 3), (5, 1)])
        torch.Size([5, 3])
    """
    shapes = list(shapes)
    longest = max(shapes, key=len)
    for shape in shapes:
        if shape != longest and not _fits(shape, longest):
            return torch.Size(torch.broadcast_shapes(*shapes))
    return torch.Size(longest)


def _fits(shape: Sequence[int], frame: Sequence[int]) -> bool:
    pairs = zip(reversed(shape), reversed(frame), strict=False)
    return all(size in (1, available) for size, available in pairs)


def elements_per_chunk(device: torch.device) -> int:
    """2^17 float64 fill a megabyte, a CPU core's share of the cache; GPUs have more memory."""
    return 1 << 17 if device.type == "cpu" else 1 << 25


def in_chunks(
    function: Callable[..., Tensor], *operands: Tensor, events: tuple[int, ...], work: int
) -> Tensor:
    """function(*operands), evaluated piece by piece along the flattened batch.

    Args:
        function: maps operands of shape ``(B, *event)`` to a result ``(B, ...)``, row by row.
        operands: tensors whose batch shapes broadcast.
        events: the number of event dimensions of each operand.
        work: elements of the largest intermediate per row.
    """
    batch = common_shape([x.shape[: x.ndim - e] for x, e in zip(operands, events, strict=True)])
    rows = math.prod(batch)
    per_chunk = max(1, elements_per_chunk(operands[0].device) // max(1, work))
    if rows <= per_chunk or torch.compiler.is_compiling():
        return function(*operands)
    flat = []
    for x, event_dims in zip(operands, events, strict=True):
        event = x.shape[x.ndim - event_dims :]
        flat.append(x.expand(batch + event).reshape((rows,) + event).split(per_chunk))
    result = torch.cat([function(*piece) for piece in zip(*flat, strict=True)])
    return result.reshape(batch + result.shape[1:])
