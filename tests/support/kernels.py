"""Where Triton kernels run, and which of them are launched.

Without a CUDA device Triton's interpreter (``TRITON_INTERPRET=1``) runs them on the CPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar
from unittest.mock import patch

import torch
from torch import Tensor

from diffurn import _dispatch
from diffurn._kernels import dispatch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")

T = TypeVar("T")


@contextmanager
def _kernels_on(device_type: str | None) -> Iterator[None]:
    def has_kernels(device: torch.device) -> bool:
        return device.type == device_type

    with ExitStack() as stack:
        for module in (dispatch, _dispatch):
            stack.enter_context(patch.object(module, "has_kernels", has_kernels))
        stack.enter_context(patch.object(dispatch, "HAS_NATIVE", False))
        if device_type == "cpu":  # tensors of the interpreter look like those on a CUDA device
            stack.enter_context(patch.object(Tensor, "is_cuda", property(lambda _: True)))
        yield


@contextmanager
def with_kernels() -> Iterator[None]:
    """The library launches kernels, in the interpreter too."""
    with _kernels_on(DEVICE.type):
        yield


@contextmanager
def without_kernels() -> Iterator[None]:
    """The library uses PyTorch's own operations, on CUDA devices too."""
    with _kernels_on(None):
        yield


@contextmanager
def launched_kernels() -> Iterator[list[str]]:
    """`with_kernels`, and the names of those that are launched in place of a primitive."""
    names: list[str] = []

    def recorded(kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def launch(*operands: Tensor) -> Tensor:
            names.append(kernel.__name__)
            return kernel(*operands)

        return launch

    recording = {
        primitive: recorded(kernel)
        for primitive, kernel in dispatch._kernels.items()
        if kernel is not primitive.__wrapped__
    }
    with patch.dict(dispatch._kernels, recording), with_kernels():
        yield names


def recorded(step: Callable[[], T]) -> tuple[torch.cuda.CUDAGraph, T]:
    """A CUDA graph of a step, which runs once before on another stream, and its results."""
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    return graph, results
