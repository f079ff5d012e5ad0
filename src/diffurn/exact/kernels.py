"""Where Triton kernels stand in for PyTorch operations: on CUDA devices, whose small operations cost a launch each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad

from diffurn.exact.tracing import is_transforming

_HAS_TRITON = find_spec("triton") is not None


def has_kernels(device: torch.device) -> bool:
    """Whether kernels of our own run on the device."""
    return _HAS_TRITON and device.type == "cuda"


def _wants_numbers_alone(operands: tuple[Tensor, ...]) -> bool:
    """Whether nobody looks at how a result comes about: kernels have no derivative, and compilers and transforms see nothing of them."""
    if torch.compiler.is_compiling() or is_transforming() or forward_ad._current_level >= 0:
        return False
    return not (torch.is_grad_enabled() and any(operand.requires_grad for operand in operands))


def in_one_launch(kernel: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Lets a function of `law_kernels` with the same arguments stand in for the decorated one, which says what it computes."""

    def decorate(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(function)
        def dispatched(*operands: Any) -> Tensor:
            tensors = tuple(operand for operand in operands if operand is not None)
            if _wants_numbers_alone(tensors) and has_kernels(tensors[0].device) and tensors[0].dtype == torch.float64:
                from diffurn.exact import law_kernels

                return cast(Tensor, getattr(law_kernels, kernel)(*operands))
            return function(*operands)

        return dispatched

    return decorate
