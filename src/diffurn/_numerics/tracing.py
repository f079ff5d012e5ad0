"""Whether tensors have values that can be read: the state of compilers, transforms and graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

T = TypeVar("T")


def is_transforming() -> bool:
    """Whether a transform such as `torch.func.vmap` or `torch.func.grad` is under way."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_vmapping() -> bool:
    """Whether `torch.func.vmap` is under way, also inside of `torch.func.jacfwd` and the like."""
    if torch.compiler.is_compiling():
        return False
    functorch = torch._C._functorch
    levels = functorch.get_interpreter_stack() or ()
    return any(level.key() == functorch.TransformType.Vmap for level in levels)


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured, during which nothing may synchronise."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def can_check() -> bool:
    """Whether tensors have values: not while compiling, transforming or capturing a graph."""
    return not torch.compiler.is_compiling() and not is_transforming() and not is_capturing()


def can_read(value: Any) -> bool:
    """Whether the entries of an array can be read without a CPU-GPU synchronisation."""
    if torch.compiler.is_compiling() or is_transforming():
        return False
    if type(value) is Tensor:
        return value.device.type == "cpu"
    return not isinstance(value, Tensor) and hasattr(value, "tolist")


def is_forward_mode() -> bool:
    """Whether tensors may carry tangents."""
    return forward_ad._current_level >= 0


def asks_for_derivative(x: Tensor) -> bool:
    """Whether results will be differentiated in a tensor, in reverse or in forward mode."""
    return (x.requires_grad and torch.is_grad_enabled()) or is_forward_mode()


def reading_numbers(draw: Callable[..., T], *arguments: Any) -> T:
    """``draw(*arguments)`` of a sampler that reads values; under vmap an error says what to do."""
    if torch.compiler.is_compiling() or not is_transforming():
        return draw(*arguments)
    try:
        return draw(*arguments)
    except RuntimeError:
        if not is_vmapping():
            raise
    raise NotImplementedError(
        "draws of urns this large, so many draws, or draws of urns whose sizes are tensors cannot "
        "be vmapped (jacfwd vmaps as well); make one urn with a batch of weights and draw from it "
        "instead"
    )
