"""Conversion and checks of arguments; errors name the argument, its value and the rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from diffurn._numerics.batching import common_shape


def as_float_tensor(name: str, value: Any) -> Tensor:
    """`value` as a floating-point tensor, whose dtype is also that of the results.

    Python numbers and integer arrays take torch's default dtype.
    """
    tensor = _as_numbers(name, value, None, None, "real numbers")
    return tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())


def as_float64_tensor(name: str, value: Any, device: torch.device | None = None) -> Tensor:
    """`value` as a float64 tensor, never rounded to torch's default dtype in between."""
    return _as_numbers(name, value, device, torch.float64, "real numbers").double()


def _as_numbers(
    name: str, value: Any, device: torch.device | None, python_floats: torch.dtype | None, kind: str
) -> Tensor:
    """`value` as a tensor of numbers.

    Args:
        name: the argument's name, for errors.
        value: a tensor, an array, a number or nested lists of numbers.
        device: of the tensor; None leaves it where it is.
        python_floats: the dtype for lists of Python floats; None for torch's default.
        kind: the numbers that are allowed, for errors.
    """
    is_tensor = isinstance(value, Tensor)
    tensor = value if is_tensor else _tensor_of(name, usable_array(value), python_floats, kind)
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise ValueError(f"{name} has dtype {tensor.dtype}, but must be {kind}")
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
    """`value` in a form that torch can convert; an array that torch rejects is copied.

    torch rejects arrays that are read-only (as from pandas), reversed, of a foreign byte order or
    of objects.
    """
    if not hasattr(value, "strides"):  # not an array
        return value
    if value.dtype.hasobject:  # such as the columns of different types in one data frame
        return value.tolist()
    if not value.dtype.isnative:
        return value.astype(value.dtype.newbyteorder("="))
    return value if value.flags.writeable and min(value.strides, default=0) >= 0 else value.copy()


def as_counts(name: str, value: Any, device: torch.device | None) -> Tensor:
    """`value` as a tensor of counts: int64, or its own dtype if that is floating-point."""
    tensor = _as_numbers(name, value, device, torch.float64, "integers")
    if tensor.dtype == torch.uint64:  # int64 cannot hold its largest values
        return tensor.double()
    return tensor if tensor.is_floating_point() else tensor.to(torch.int64)


def as_integer_tensor(name: str, value: Any, device: torch.device, check: bool) -> Tensor:
    """`value` as an int64 tensor on `device`; floating-point input must hold integers.

    Values are checked before the copy to `device`. So values given on the CPU are checked without
    a CPU-GPU synchronisation.
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
    """Raises a ValueError that lists the allowed values, unless `value` is one of them."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}, but must be one of {', '.join(map(repr, allowed))}")


def require_broadcast(described: Mapping[str, Sequence[int]], *shapes: Sequence[int]) -> torch.Size:
    """The common shape of `shapes`; a ValueError if they do not broadcast.

    Args:
        described: the shapes of the user's arguments by name, for the error.
        shapes: the shapes to broadcast.
    """
    try:
        return common_shape(shapes)
    except RuntimeError:
        listed = ", ".join(f"{name} {tuple(shape)}" for name, shape in described.items())
        raise ValueError(f"shapes do not broadcast: {listed}") from None
