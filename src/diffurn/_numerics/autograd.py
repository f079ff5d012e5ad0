"""Functions whose derivatives are known in closed form, in reverse and in forward mode."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from diffurn._numerics.tracing import is_forward_mode, is_transforming


class ClosedForm(torch.autograd.Function):
    """A function with its own formulas for derivatives, which are differentiable in turn.

    A subclass defines `forward(*operands)`, `backward(ctx, grad)` and, for forward mode,
    `tangent(ctx, *tangents)`. Operands are saved; those that are not tensors are `ctx.constants`.
    """

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*_keep_constants(ctx, inputs))

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        raise NotImplementedError(
            "this function has no derivative in forward mode; use reverse mode, such as "
            "torch.func.jacrev"
        )

    @classmethod
    def of(cls, *operands: Any) -> Tensor:
        if torch.compiler.is_compiling():  # torch.compile does not trace a forward mode
            return cast(Tensor, cls.apply(*operands))
        if not (is_transforming() or is_forward_mode() or _any_requires_grad(operands)):
            return cast(Tensor, cls.forward(*operands))
        return cast(Tensor, _with_forward_mode(cls).apply(*operands))


def _any_requires_grad(operands: tuple[Any, ...]) -> bool:
    return torch.is_grad_enabled() and any(
        isinstance(operand, Tensor) and operand.requires_grad for operand in operands
    )


@functools.cache
def _with_forward_mode(function: type[ClosedForm]) -> type[ClosedForm]:
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        tensors = _keep_constants(ctx, inputs)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    # torch asks for the signature in every call, and finding it out is slow.
    function.forward.__signature__ = inspect.signature(function.forward)  # type: ignore[attr-defined]
    methods = {"setup_context": staticmethod(setup_context), "jvp": staticmethod(function.tangent)}
    return type(function.__name__, (function,), methods)


def _keep_constants(ctx: Any, inputs: tuple[Any, ...]) -> list[Tensor]:
    """Keeps operands that are not tensors, and returns the tensors."""
    ctx.constants = [operand for operand in inputs if not isinstance(operand, Tensor)]
    return [operand for operand in inputs if isinstance(operand, Tensor)]


def pulled_back(
    function: Callable[[Tensor], tuple[Tensor, Any]], x: Tensor, grad: Tensor
) -> tuple[Tensor, Any]:
    """grad · ∂value/∂x of a function, evaluated anew, and what it returns beside its value;
    differentiable, if derivatives are recorded.
    """
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        x = x if again else x.detach().requires_grad_()
        value, beside = function(x)
        (slope,) = torch.autograd.grad(value, x, grad, create_graph=again)
    return slope, beside
