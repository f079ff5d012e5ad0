"""Checks of arguments whose values are known; errors name the argument, its value and the rule.

Inside of `jit`, `grad` or `vmap` values of traced arrays cannot be read, and are not checked.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.errors import TracerArrayConversionError
from numpy.typing import NDArray


def known(value: Any) -> NDArray[Any] | None:
    """The numbers of a value, or None if it is traced."""
    if isinstance(value, jax.core.Tracer):
        return None
    try:
        return np.asarray(value)
    except TracerArrayConversionError:  # lists that hold traced numbers
        return None


def as_numbers(name: str, value: Any, kind: str) -> Any:
    """`value` as an array of NumPy or JAX, if it holds real numbers."""
    if not isinstance(value, jax.core.Tracer | jax.Array | np.ndarray):
        try:
            numbers = known(value)
            value = jnp.stack([jnp.asarray(each) for each in value]) if numbers is None else numbers
        except (TypeError, ValueError) as problem:
            raise ValueError(f"{name} cannot be read as {kind}: {problem}") from None
    if not (jnp.issubdtype(value.dtype, jnp.floating) or jnp.issubdtype(value.dtype, jnp.integer)):
        raise ValueError(f"{name} has dtype {value.dtype}, but must be {kind}")
    return value


def as_floats(name: str, value: Any) -> Any:
    """`value` as a floating-point array; numbers and integers take JAX's default dtype."""
    numbers = as_numbers(name, value, "real numbers")
    is_given = isinstance(value, jax.Array | np.ndarray | np.generic)
    if is_given and jnp.issubdtype(numbers.dtype, jnp.floating):
        return numbers
    return numbers.astype(jnp.result_type(float))


def as_counts(name: str, value: Any, check: bool) -> Any:
    """`value` as floating-point numbers that hold integers, in the dtype of the computation."""
    numbers = as_numbers(name, value, "integers")
    values = known(numbers) if check else None
    if values is not None:
        require(
            name,
            values,
            (values >= 0) & (values <= 2**53) & (values == np.floor(values)),
            "must be an integer from 0 to 2^53",
        )
    return numbers.astype(jnp.result_type(float))


def broadcast(value: Any, shape: tuple[int, ...]) -> Array:
    """`value` as an array of JAX of that shape; NumPy's arrays are broadcast by NumPy, without a
    compilation.
    """
    if isinstance(value, np.ndarray | np.generic):
        return jnp.asarray(np.broadcast_to(value, shape))
    return jnp.broadcast_to(value, shape)


def require(name: str, values: NDArray[Any], holds: Any, rule: str) -> None:
    """Raises a ValueError that points at the first entry for which `holds` is False."""
    holds = np.asarray(holds)
    if holds.all():
        return
    index = tuple(np.argwhere(~holds)[0].tolist())
    where = f" at index {index}" if index else ""
    entry = np.broadcast_to(values, holds.shape)[index]
    raise ValueError(f"{name}{where} is {entry.tolist()}, but {rule}")


def span(values: NDArray[Any]) -> str:
    """A limit across a batch, such as 7, or from 3 to 7."""
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"from {low} to {high}"


def common_shape(
    described: dict[str, tuple[int, ...]], *shapes: tuple[int, ...]
) -> tuple[int, ...]:
    """The common shape of `shapes`; a ValueError that lists the described ones if there is none."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = ", ".join(f"{name} {shape}" for name, shape in described.items())
        raise ValueError(f"shapes do not broadcast: {listed}") from None
