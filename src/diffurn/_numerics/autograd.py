"""Autograd: whether a derivative is needed, and functions with derivatives in closed form."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad


def is_transforming() -> bool:
    """Whether a transform such as `torch.func.vmap` or `torch.func.grad` is active."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def is_forward_mode() -> bool:
    """Whether forward-mode differentiation is active, so that tensors may carry tangents."""
    return forward_ad._current_level >= 0


def asks_for_derivative(x: Tensor) -> bool:
    """Whether a result may be differentiated in `x`, in reverse or in forward mode."""
    return (x.requires_grad and torch.is_grad_enabled()) or is_forward_mode()


class ClosedForm(torch.autograd.Function):
    """A function with its own formulas for derivatives, which are differentiable in turn.

    A subclass defines `forward(*operands)`, `backward(ctx, grad)` and, for forward mode,
    `tangent(ctx, *tangents)`. Tensors among the operands are `ctx.saved_tensors`, all others are
    `ctx.constants`.
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
        if torch.compiler.is_compiling():  # torch.compile cannot trace forward mode
            return cast(Tensor, cls.apply(*operands))
        if is_transforming() or is_forward_mode():
            return cast(Tensor, _with_forward_mode(cls).apply(*operands))
        if _requires_grad(operands):
            return cast(Tensor, _in_reverse_mode(cls).apply(*operands))
        return cast(Tensor, cls.forward(*operands))


def _requires_grad(operands: tuple[Any, ...]) -> bool:
    if torch.is_grad_enabled():
        for operand in operands:
            if isinstance(operand, Tensor) and operand.requires_grad:
                return True
    return False


@functools.cache
def _with_forward_mode(function: type[ClosedForm]) -> type[ClosedForm]:
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        tensors = _keep_constants(ctx, inputs)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    # torch inspects the signature in every call. Storing it makes that fast.
    function.forward.__signature__ = inspect.signature(function.forward)  # type: ignore[attr-defined]
    methods = {"setup_context": staticmethod(setup_context), "jvp": staticmethod(function.tangent)}
    return type(function.__name__, (function,), methods)


@functools.cache
def _in_reverse_mode(function: type[ClosedForm]) -> type[torch.autograd.Function]:
    """The same function without forward mode and vmap, which torch calls much faster."""

    def forward(ctx: Any, *operands: Any) -> Tensor:
        result: Tensor = function.forward(*operands)
        function.setup_context(ctx, operands, result)
        return result

    methods = {"forward": staticmethod(forward), "backward": staticmethod(function.backward)}
    return type(function.__name__, (torch.autograd.Function,), methods)


def _keep_constants(ctx: Any, inputs: tuple[Any, ...]) -> list[Tensor]:
    """Stores the operands that are not tensors in `ctx.constants`, and returns the tensors."""
    ctx.constants = [operand for operand in inputs if not isinstance(operand, Tensor)]
    return [operand for operand in inputs if isinstance(operand, Tensor)]


class _StraightThrough(ClosedForm):
    @staticmethod
    def forward(value: Tensor, slope: Tensor) -> Tensor:
        return value + 0 * slope  # a slope without use would move its random numbers backward

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, grads[0].sum_to_size(ctx.saved_tensors[1].shape)

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        value, slope = ctx.saved_tensors
        return tangents[1].expand(torch.broadcast_shapes(value.shape, slope.shape))


def straight_through(value: Tensor, slope: Tensor) -> Tensor:
    """`value`, with the derivatives of `slope`.

    Compiled code may compute the two slopes of ``slope - slope.detach()`` with different rounding
    errors, so it gets a function of its own.

    Example:
        >>> x = torch.tensor(2.0, requires_grad=True)
        >>> y = straight_through(torch.round(x * 1.3), x * 1.3)
        >>> y.item(), torch.autograd.grad(y, x)[0].item()
        (3.0, 1.2999999523162842)
    """
    if torch.compiler.is_compiling():
        return _StraightThrough.of(value, slope)
    return value + (slope - slope.detach())


def pulled_back(
    function: Callable[[Tensor], tuple[Tensor, Any]], x: Tensor, grad: Tensor
) -> tuple[Tensor, Any]:
    """The product grad · ∂value/∂x for a function that returns (value, extra), and `extra`.

    The function is evaluated again. The product is differentiable if gradients are enabled.
    """
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        x = x if again else x.detach().requires_grad_()
        value, beside = function(x)
        (slope,) = torch.autograd.grad(value, x, grad, create_graph=again)
    return slope, beside
