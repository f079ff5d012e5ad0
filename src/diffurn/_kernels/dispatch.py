"""Kernels in place of PyTorch operations: Triton on CUDA devices, C on CPUs.

A function marked `primitive` may have a kernel for each kind of device. A kernel names the function
that it replaces: `@replaces(log_tilt)` or `@replaces(log_tilt, on="cpu")`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from diffurn._kernels.library import library
from diffurn._numerics.autograd import asks_for_derivative, is_forward_mode, is_transforming

HAS_TRITON = find_spec("triton") is not None
HAS_NATIVE = library() is not None

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_kernels: dict[Callable[..., Any], Callable[..., Any]] = {}
_native_kernels: dict[Callable[..., Any], Callable[..., Any]] = {}


def has_kernels(device: torch.device) -> bool:
    """Whether Triton kernels run on the device."""
    return HAS_TRITON and device.type == "cuda"


def can_launch(operand: Tensor) -> bool:
    """Whether a Triton kernel may run on a tensor."""
    return has_kernels(operand.device) and operand.dtype == torch.float64 and is_eager()


def can_call(*operands: Any) -> bool:
    """Whether a C kernel may run on tensors, and no derivative is needed.

    Operations of PyTorch must not be recorded, as by ``torch.jit.trace`` and ``make_fx``.
    """
    if (
        not HAS_NATIVE
        or torch.compiler.is_compiling()
        or is_transforming()
        or is_forward_mode()
        or _traced() is not None
        or _number_of_modes()
    ):
        return False
    differentiates = torch.is_grad_enabled()
    for x in operands:
        if type(x) in _PLAIN:
            if x.dtype is not torch.float64 or (differentiates and x.requires_grad):
                return False
            if not x.is_cpu:
                return False
        elif isinstance(x, Tensor):
            return False
    return True


# Subclasses of tensors may hold no numbers.
_PLAIN = {Tensor, torch.nn.Parameter}
_traced = torch._C._get_tracing_state
_number_of_modes = torch._C._len_torch_dispatch_stack


def is_eager() -> bool:
    """Whether torch neither compiles nor transforms, nor computes tangents."""
    return not (torch.compiler.is_compiling() or is_transforming() or is_forward_mode())


def primitive(function: Callable[..., T]) -> Callable[..., T]:
    """Marks a function of tensors that kernels may replace, unless a derivative is needed."""
    if not (HAS_TRITON or HAS_NATIVE):
        return function

    @functools.wraps(function)
    def dispatched(*operands: Any) -> T:
        if can_call(*operands):
            return cast(T, native_kernel_of(dispatched)(*operands))
        if operands[0].is_cuda and can_launch(operands[0]) and not _asks(operands):
            return cast(T, kernel_of(dispatched)(*operands))
        return function(*operands)

    return dispatched


def _asks(operands: tuple[Any, ...]) -> bool:
    return any(isinstance(x, Tensor) and asks_for_derivative(x) for x in operands)


def replaces(function: Callable[..., Any], on: str = "cuda") -> Callable[[F], F]:
    """Registers a kernel for a primitive, which has the same arguments."""

    def register(kernel: F) -> F:
        (_kernels if on == "cuda" else _native_kernels)[function] = kernel
        return kernel

    return register


def sampling_kernels(device: torch.device) -> Any:
    """The module of sampling kernels, or None if the device has no kernels.

    They are custom operators of torch, so torch.compile and CUDA graphs can call them.
    """
    if not has_kernels(device):
        return None
    from diffurn._kernels import sampling

    return sampling


def chain_kernels(device: torch.device) -> Any:
    """The module of kernels for the Gumbel-Softmax chain, or None if the device has no kernels."""
    if not has_kernels(device):
        return None
    from diffurn._kernels import chain

    return chain


def operand_kernels(device: torch.device) -> Any:
    """The module of the kernel that reads an urn's arguments, or None if there are no kernels."""
    if not has_kernels(device):
        return None
    from diffurn._kernels import operands

    return operands


def kernel_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The Triton kernel that replaces a primitive; the first call imports Triton.

    A primitive without a kernel is computed by the primitives that it is made of.
    """
    kernel = _kernels.get(function)
    if kernel is None:
        # Each registers its own kernels.
        from diffurn._kernels import covariance, fisher, pair, sampling  # noqa: F401

        kernel = _kernels.setdefault(function, function.__wrapped__)  # type: ignore[attr-defined]
    return kernel


def native_kernel_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The C kernel that replaces a primitive, in the same way."""
    kernel = _native_kernels.get(function)
    if kernel is None:
        # Each registers its own kernels.
        from diffurn._kernels.native import fisher, gauge, sampling, subsets, wallenius  # noqa: F401

        kernel = _native_kernels.setdefault(function, function.__wrapped__)  # type: ignore[attr-defined]
    return kernel
