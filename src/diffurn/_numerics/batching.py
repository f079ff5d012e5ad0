"""Long batches are worked off in pieces that stay in the processor's cache, or in memory at all;
the results are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from diffurn._numerics.shapes import common_shape


def elements_per_chunk(device: torch.device) -> int:
    """2^17 float64 fill a megabyte, a CPU core's share of the cache; elsewhere only memory is a
    limit.
    """
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
    batch = common_shape(x.shape[: x.ndim - e] for x, e in zip(operands, events, strict=True))
    rows = math.prod(batch)
    per_chunk = max(1, elements_per_chunk(operands[0].device) // max(1, work))
    if rows <= per_chunk or torch.compiler.is_compiling():
        return function(*operands)
    flat = [
        x.expand(batch + x.shape[x.ndim - e :]).reshape((rows,) + x.shape[x.ndim - e :])
        for x, e in zip(operands, events, strict=True)
    ]
    pieces = [function(*piece) for piece in zip(*(x.split(per_chunk) for x in flat), strict=True)]
    result = torch.cat(pieces)
    return result.reshape(batch + result.shape[1:])
