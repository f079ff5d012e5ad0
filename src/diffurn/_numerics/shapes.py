"""The common shape of tensors that broadcast."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch


def common_shape(shapes: Iterable[Sequence[int]]) -> torch.Size:
    """As ``torch.broadcast_shapes``, which takes as long as a small operation; where the longest
    shape holds the others, next to nothing.

    Example:
        >>> common_shape([(3,), (5, 3), (5, 1)])
        torch.Size([5, 3])
    """
    shapes = list(shapes)
    longest = max(shapes, key=len)
    return torch.Size(
        longest
        if all(shape == longest or _fits(shape, longest) for shape in shapes)
        else torch.broadcast_shapes(*shapes)
    )


def _fits(shape: Sequence[int], frame: Sequence[int]) -> bool:
    return all(
        size in (1, available)
        for size, available in zip(reversed(shape), reversed(frame), strict=False)
    )
