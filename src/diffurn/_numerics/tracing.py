"""Whether tensors have values that can be read: the state of compilers, transforms and graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

_transform = torch._C._functorch.peek_interpreter_stack


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
    if torch.compiler.is_compiling() or _transform() is not None:
        return False
    return not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def can_read(value: Any) -> bool:
    """Whether the entries of an array can be read without a CPU-GPU synchronisation."""
    if torch.compiler.is_compiling() or _transform() is not None:
        return False
    if type(value) is Tensor:
        return value.device.type == "cpu"
    return not isinstance(value, Tensor) and hasattr(value, "tolist")


def reading_numbers(draw: Callable[..., T], *arguments: Any) -> T:
    """``draw(*arguments)`` of a sampler that reads values; under vmap an error says what to do."""
    if torch.compiler.is_compiling() or _transform() is None:
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
