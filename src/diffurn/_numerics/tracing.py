"""Whether numbers can be looked at."""

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
    """Whether `torch.func.vmap` is under way, by itself or inside of another transform, such as
    `torch.func.jacfwd`.
    """
    if torch.compiler.is_compiling():
        return False
    functorch = torch._C._functorch
    return any(
        level.key() == functorch.TransformType.Vmap
        for level in functorch.get_interpreter_stack() or ()
    )


def reading_numbers(draw: Callable[..., T], *arguments: Any) -> T:
    """``draw(*arguments)`` of a sampler whose steps depend on numbers; where `torch.func.vmap`
    hides them, an error says what to do.
    """
    if torch.compiler.is_compiling() or not is_transforming():
        return draw(*arguments)
    try:
        return draw(*arguments)
    except RuntimeError:
        if not is_vmapping():
            raise
    raise NotImplementedError(
        "draws of urns this large, so many draws, or draws of urns whose sizes are tensors cannot "
        "be vmapped (jacfwd vmaps as well); "
        "make one urn with a batch of weights and draw from it instead"
    )


def is_capturing() -> bool:
    """Whether work is recorded into a CUDA graph, during which nothing may wait for the device."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def can_check() -> bool:
    """Whether tensors have values to look at: not while `torch.compile` traces, in a transform of
    `torch.func`, or in a CUDA graph.
    """
    return not torch.compiler.is_compiling() and not is_transforming() and not is_capturing()


def can_read(value: Any) -> bool:
    """Whether an array's entries can be read without waiting for a device: those of NumPy, and
    tensors on the host.
    """
    if torch.compiler.is_compiling() or is_transforming():
        return False
    return (
        value.device.type == "cpu"
        if type(value) is Tensor
        else not isinstance(value, Tensor) and hasattr(value, "tolist")
    )


def is_forward_mode() -> bool:
    """Whether tensors may carry tangents."""
    return forward_ad._current_level >= 0


def asks_for_derivative(x: Tensor) -> bool:
    """Whether what is computed from a tensor will be differentiated in it, backward or forward."""
    return (x.requires_grad and torch.is_grad_enabled()) or is_forward_mode()
