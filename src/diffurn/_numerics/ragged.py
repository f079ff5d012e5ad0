"""Ragged batches: groups of rows of different sizes, as a few padded batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

# Sizes up to this one have batches of their own; larger ones share a batch with sizes that are at
# most an eighth smaller.
_EXACT = 8


class Batch(NamedTuple):
    """Some groups of similar size.

    Attributes:
        groups: their numbers, ``(B,)``.
        rows: the numbers of their rows, ``(B, c)``; a padded place repeats the first row.
        present: 1, or 0 at a padded place, float64, ``(B, c)``.
    """

    groups: Tensor
    rows: Tensor
    present: Tensor


def grouped(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The order of the rows that sorts their labels ``(N,)``, the number of each row's group in
    that order, and the sizes of the groups.
    """
    ordered, order = labels.sort(stable=True)
    _, numbers, sizes = torch.unique_consecutive(ordered, return_inverse=True, return_counts=True)
    return order, numbers, sizes


def padded_size(sizes: Tensor) -> Tensor:
    """Sizes rounded up, by at most an eighth, to a few different ones."""
    step = torch.exp2(torch.floor(torch.log2(sizes.clamp(min=1).double())) - 3).clamp(min=1)
    rounded = (torch.ceil(sizes / step) * step).to(torch.int64)
    return torch.where(sizes <= _EXACT, sizes, rounded)


def batches(sizes: Tensor, kinds: Tensor, elements: int) -> Iterator[tuple[int, Batch]]:
    """Batches of groups that lie one after another, each of groups of one kind and similar size.

    Args:
        sizes: of the groups, ``(S,)``.
        kinds: a number of each group, ``(S,)``, 0 or above.
        elements: how many rows a batch may have; more if a single group has more.

    Returns:
        The kind and the batch, in the order of kinds and sizes.
    """
    starts = sizes.cumsum(0) - sizes
    most = int(padded_size(sizes.max())) + 1 if len(sizes) else 1
    order, _, numbers = grouped(kinds * most + padded_size(sizes))
    for chosen in order.split(numbers.tolist()):
        width = int(sizes[chosen].max())
        kind = int(kinds[chosen[0]])
        place = torch.arange(width, device=sizes.device)
        for groups in chosen.split(max(1, elements // max(1, width))):
            present = place < sizes[groups].unsqueeze(-1)
            rows = starts[groups].unsqueeze(-1) + torch.where(present, place, 0)
            yield kind, Batch(groups, rows, present.double())
