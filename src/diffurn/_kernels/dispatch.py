"""Where Triton kernels stand in for PyTorch operations: on CUDA devices, whose small operations
cost a launch each.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, cast

import torch
from torch import Tensor

from diffurn._numerics.tracing import asks_for_derivative, is_forward_mode, is_transforming

_HAS_TRITON = find_spec("triton") is not None
_imported = functools.cache(
    importlib.import_module
)  # Python's own looks for a while, in every call


def has_kernels(device: torch.device) -> bool:
    """Whether kernels of our own run on the device."""
    return _HAS_TRITON and device.type == "cuda"


def can_launch(operand: Tensor) -> bool:
    """Whether a kernel may be launched on a tensor: compilers, transforms and forward mode see
    nothing of what it does.
    """
    if torch.compiler.is_compiling() or is_transforming() or is_forward_mode():
        return False
    return has_kernels(operand.device) and operand.dtype == torch.float64


def in_one_launch(kernel: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Lets a kernel stand in for a function that says what it computes, unless a derivative is
    asked for, which kernels do not have.

    Args:
        kernel: where in `diffurn._kernels` a function with the same arguments is found.
    """
    module, _, name = f"diffurn._kernels.{kernel}".rpartition(".")

    def decorate(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(function)
        def dispatched(*operands: Any) -> Tensor:
            if can_launch(operands[0]) and not any(
                x is not None and asks_for_derivative(x) for x in operands
            ):
                return cast(Tensor, getattr(_imported(module), name)(*operands))
            return function(*operands)

        return dispatched

    return decorate
