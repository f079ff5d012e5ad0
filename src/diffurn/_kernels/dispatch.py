"""Triton kernels in place of PyTorch operations, on CUDA devices.

A function marked `primitive` may have a kernel. The kernel's module names the function that it
replaces (`@replaces(log_tilt)`), so that both definitions are found from either side.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar

import torch
from torch import Tensor

from diffurn._numerics.autograd import asks_for_derivative, is_forward_mode, is_transforming

HAS_TRITON = find_spec("triton") is not None

F = TypeVar("F", bound=Callable[..., Tensor])

_kernels: dict[Callable[..., Tensor], Callable[..., Tensor]] = {}


def has_kernels(device: torch.device) -> bool:
    """Whether our kernels run on the device."""
    return HAS_TRITON and device.type == "cuda"


def can_launch(operand: Tensor) -> bool:
    """Whether a kernel may run on a tensor: compilers, transforms and forward mode cannot see it."""
    if not has_kernels(operand.device) or operand.dtype != torch.float64:
        return False
    return not (torch.compiler.is_compiling() or is_transforming() or is_forward_mode())


def primitive(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of tensors that a kernel may replace, unless a derivative is asked for."""
    if not HAS_TRITON:
        return function

    @functools.wraps(function)
    def dispatched(*operands: Any) -> Tensor:
        if operands[0].is_cuda and can_launch(operands[0]) and not _asks(operands):
            return kernel_of(dispatched)(*operands)
        return function(*operands)

    return dispatched


def _asks(operands: tuple[Any, ...]) -> bool:
    return any(operand is not None and asks_for_derivative(operand) for operand in operands)


def replaces(function: Callable[..., Tensor]) -> Callable[[F], F]:
    """Registers a kernel, with the arguments of the primitive that it replaces."""

    def register(kernel: F) -> F:
        _kernels[function] = kernel
        return kernel

    return register


def sampling_kernels(device: torch.device) -> Any:
    """The module of kernels that draw, or None where there are none.

    They are custom operators of torch, so that compilers and graphs may call them.
    """
    if not has_kernels(device):
        return None
    from diffurn._kernels import sampling

    return sampling


def kernel_of(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The kernel that replaces a primitive; the first call imports Triton."""
    if function not in _kernels:
        from diffurn._kernels import fisher, pair, sampling  # noqa: F401 (each registers its own)
    return _kernels[function]
