"""Calls of the C kernels on the memory of tensors, on several threads where the work pays."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from diffurn._kernels.library import library
from diffurn._numerics.batching import common_shape

# Handing rows to another thread costs about as much as computing so many groups of urns.
_GROUPS_PER_THREAD = 1000

_pools: dict[int, ThreadPoolExecutor] = {}
if hasattr(os, "register_at_fork"):  # a child process inherits no threads
    os.register_at_fork(after_in_child=_pools.clear)


def set_constants(name: str, values: Sequence[float]) -> None:
    """Sets a structure of doubles in the library."""
    loaded = library()
    assert loaded is not None
    for place, value in enumerate(values):
        (ctypes.c_double * len(values)).in_dll(loaded, name)[place] = value


class Kernel:
    """A C function of tensors that computes a range of rows.

    Its arguments are addresses, then whole numbers, then the first row and the last.
    """

    def __init__(self, name: str, tensors: int, numbers: int = 1) -> None:
        loaded = library()
        assert loaded is not None
        self._function: Any = getattr(loaded, name)
        self._function.argtypes = [ctypes.c_void_p] * tensors + [ctypes.c_int64] * (numbers + 2)
        self._function.restype = None

    def __call__(
        self, *tensors: Tensor | int | None, numbers: tuple[int, ...] = (), rows: int, work: int
    ) -> None:
        """Computes all rows, on torch's number of threads if the work is long.

        Args:
            tensors: contiguous; or addresses, or None.
            numbers: after the tensors.
            rows: the number of rows.
            work: about the number of groups in all rows.
        """
        call = self._function
        arguments = [x.data_ptr() if isinstance(x, Tensor) else x for x in tensors]
        arguments += numbers
        if work < 2 * _GROUPS_PER_THREAD:
            call(*arguments, 0, rows)
            return
        threads = min(torch.get_num_threads(), work // _GROUPS_PER_THREAD, rows)
        if threads < 2:
            call(*arguments, 0, rows)
            return
        own, *ranges = pairwise(rows * i // threads for i in range(threads + 1))
        pool = _pool(threads - 1)
        others = [pool.submit(call, *arguments, *bounds) for bounds in ranges]
        call(*arguments, *own)
        for other in others:
            other.result()


def _pool(workers: int) -> ThreadPoolExecutor:
    pool = _pools.get(workers)
    if pool is None:
        pool = _pools.setdefault(workers, ThreadPoolExecutor(workers, "diffurn"))
    return pool


def aligned(*operands: Tensor, events: tuple[int, ...]) -> tuple[torch.Size, list[Tensor]]:
    """The common batch shape, and the operands expanded to it and contiguous.

    The first operand has a last dimension of groups. `events` are the dimensions of an event.
    """
    event = operands[0].shape
    batch = event[:-1]
    for x, dimensions in zip(operands, events, strict=True):
        if x.shape != (event if dimensions else batch):
            break
    else:
        return batch, [x.contiguous() for x in operands]
    batch = common_shape(x.shape[: x.ndim - e] for x, e in zip(operands, events, strict=True))
    groups = common_shape(x.shape[-1:] for x, e in zip(operands, events, strict=True) if e)
    shapes = batch, torch.Size(batch + groups)
    return batch, [x.expand(shapes[e]).contiguous() for x, e in zip(operands, events, strict=True)]
