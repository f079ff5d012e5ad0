"""Whether numbers can be looked at."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


def is_transforming() -> bool:
    """Whether a transform such as `torch.func.vmap` or `torch.func.grad` is under way."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_capturing() -> bool:
    """Whether work is recorded into a CUDA graph, during which nothing may wait for the device."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def can_check() -> bool:
    """Whether tensors have values to look at: not while `torch.compile` traces, in a transform of `torch.func`, or in a CUDA graph."""
    return not torch.compiler.is_compiling() and not is_transforming() and not is_capturing()


def can_read(value: Any) -> bool:
    """Whether an array's entries can be read without waiting for a device: those of NumPy, and tensors on the host."""
    if torch.compiler.is_compiling() or is_transforming():
        return False
    return value.device.type == "cpu" if type(value) is Tensor else not isinstance(value, Tensor) and hasattr(value, "tolist")


def is_forward_mode() -> bool:
    """Whether tensors may carry tangents."""
    return forward_ad._current_level >= 0


def asks_for_derivative(x: Tensor) -> bool:
    """Whether what is computed from a tensor will be differentiated in it, backward or forward."""
    return (x.requires_grad and torch.is_grad_enabled()) or is_forward_mode()
