"""Checks of arguments: each failure names the argument, the offending value and the rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from diffurn._numerics.batching import common_shape


def as_float_tensor(name: str, value: Any) -> Tensor:
    """A floating-point tensor for parameters, whose dtype results follow: Python numbers and
    integer arrays take torch's default dtype.
    """
    tensor = _as_numbers(name, value, None, None, "real numbers")
    return tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())


def as_float64_tensor(name: str, value: Any, device: torch.device | None = None) -> Tensor:
    """Data in float64, never rounded to torch's default dtype on the way."""
    return _as_numbers(name, value, device, torch.float64, "real numbers").double()


def _as_numbers(
    name: str, value: Any, device: torch.device | None, python_floats: torch.dtype | None, kind: str
) -> Tensor:
    """A tensor of the numbers; `python_floats` is the dtype for lists of Python floats, None for
    torch's default.
    """
    tensor = (
        value
        if isinstance(value, Tensor)
        else _tensor_of(name, usable_array(value), python_floats, kind)
    )
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise ValueError(f"{name} has dtype {tensor.dtype}; it must be {kind}")
    return torch.as_tensor(tensor, device=device)


def _tensor_of(name: str, value: Any, python_floats: torch.dtype | None, kind: str) -> Tensor:
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        try:  # integers beyond int64
            return torch.as_tensor(value, dtype=python_floats or torch.get_default_dtype())
        except (TypeError, ValueError, RuntimeError, OverflowError) as problem:
            raise ValueError(f"{name} cannot be read as {kind}: {problem}") from None
    if tensor.is_floating_point() and python_floats is not None and not hasattr(value, "dtype"):
        return torch.as_tensor(value, dtype=python_floats)
    return tensor


def usable_array(value: Any) -> Any:
    """A copy of an array that torch cannot take: read-only (as from pandas), reversed, of a foreign
    byte order, or of objects.
    """
    if not hasattr(value, "strides"):  # no array
        return value
    if value.dtype.hasobject:  # such as columns of different types in one data frame
        return value.tolist()
    if not value.dtype.isnative:
        return value.astype(value.dtype.newbyteorder("="))
    return value if value.flags.writeable and min(value.strides, default=0) >= 0 else value.copy()


def as_counts(name: str, value: Any, device: torch.device | None) -> Tensor:
    """Counts as they came, int64 unless floating-point."""
    tensor = _as_numbers(name, value, device, torch.float64, "integers")
    if tensor.dtype == torch.uint64:  # as int64 the largest would turn negative
        return tensor.double()
    return tensor if tensor.is_floating_point() else tensor.to(torch.int64)


def as_integer_tensor(name: str, value: Any, device: torch.device, check: bool) -> Tensor:
    """An int64 tensor; floating-point input is accepted where it holds integers. What the host
    knows is checked there.
    """
    tensor = as_counts(name, value, None)
    if check:
        within = (tensor >= 0) & (tensor <= 2**53)
        holds = within & (tensor == tensor.floor()) if tensor.is_floating_point() else within
        require(name, tensor, holds, "must be an integer from 0 to 2^53")
    return tensor.to(device, torch.int64)


def require(name: str, tensor: Tensor, holds: Tensor, rule: str) -> None:
    """Raises a ValueError that points at the first entry of `tensor` for which `holds` is False."""
    if bool(holds.all()):
        return
    index = torch.nonzero(~holds)[0].tolist()
    where = f" at index {tuple(index)}" if index else ""
    entry = tensor.detach().expand(holds.shape)[tuple(index)]
    raise ValueError(f"{name}{where} is {entry.tolist()}, but {rule}")


def require_one_of(name: str, value: object, allowed: Sequence[object]) -> None:
    """Raises a ValueError that lists what is allowed."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}, but must be one of {', '.join(map(repr, allowed))}")


def require_broadcast(described: Mapping[str, Sequence[int]], *shapes: Sequence[int]) -> torch.Size:
    """The common shape of `shapes`; where there is none, a ValueError that restates the shapes as
    `described` to the user.
    """
    try:
        return common_shape(shapes)
    except RuntimeError:
        listed = ", ".join(f"{name} {tuple(shape)}" for name, shape in described.items())
        raise ValueError(f"shapes do not broadcast: {listed}") from None
