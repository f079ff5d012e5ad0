"""Batch shapes, and the evaluation of long batches in chunks that fit the cache or memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor


def common_shape(shapes: Iterable[Sequence[int]]) -> torch.Size:
    """The shape to which all broadcast: a faster ``torch.broadcast_shapes`` for simple cases.

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
    if shape == frame[len(frame) - len(shape) :]:
        return True
    pairs = zip(reversed(shape), reversed(frame), strict=False)
    return all(size in (1, available) for size, available in pairs)


def elements_per_chunk(device: torch.device) -> int:
    """The most elements of an intermediate tensor of one chunk.

    On a CPU, 2^17 float64 numbers fill a megabyte, a core's share of the cache.
    """
    return 1 << 17 if device.type == "cpu" else 1 << 25


def in_chunks(
    function: Callable[..., Tensor], *operands: Tensor, events: tuple[int, ...], work: int
) -> Tensor:
    """function(*operands), evaluated chunk by chunk along the flattened batch.

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
