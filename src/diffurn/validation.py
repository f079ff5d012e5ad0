"""Checks of arguments: each failure names the argument, the offending value and the rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def can_check() -> bool:
    """Whether tensors have values to look at: not while tracing for `torch.compile`, nor inside `torch.func.vmap`."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is None


def as_float_tensor(name: str, value: Any) -> Tensor:
    """A floating-point tensor; Python numbers and integer arrays take torch's default dtype."""
    tensor = torch.as_tensor(value)
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise ValueError(f"{name} has dtype {tensor.dtype}; it must be real numbers")
    return tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())


def as_integer_tensor(name: str, value: Any, device: torch.device, check: bool) -> Tensor:
    """An int64 tensor; floating-point input is accepted where it holds integers."""
    tensor = torch.as_tensor(value, device=device)
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise ValueError(f"{name} has dtype {tensor.dtype}; it must be integers")
    if check:
        require(name, tensor, (tensor >= 0) & (tensor == torch.floor(tensor)) & (tensor < 2**53), "must be an integer from 0 to 2^53")
    return tensor.to(torch.int64)


def require(name: str, tensor: Tensor, holds: Tensor, rule: str) -> None:
    """Raises a ValueError that points at the first entry of `tensor` for which `holds` is False."""
    if bool(holds.all()):
        return
    index = torch.nonzero(~holds)[0].tolist()
    where = f" at index {tuple(index)}" if index else ""
    entry = tensor.detach()[tuple(index)]
    raise ValueError(f"{name}{where} is {entry.tolist()}, but {rule}")


def broadcast_shapes(**shapes: Sequence[int]) -> torch.Size:
    """The common shape; where there is none, a ValueError that restates every shape."""
    try:
        return torch.Size(torch.broadcast_shapes(*(tuple(shape) for shape in shapes.values())))
    except RuntimeError:
        listed = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise ValueError(f"shapes do not broadcast: {listed}") from None
