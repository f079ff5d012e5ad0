"""Layers for a stack of S independent models: every tensor has a leading dimension S."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

Kind = TypeVar("Kind")


class StackedLinear(nn.Module):
    """y_s = x_s W_s + b_s for every model s, from ``(S, B, inputs)`` to ``(S, B, outputs)``. The
    initial weights are zero.

    Example:
        >>> layer = StackedLinear(models=3, inputs=4, outputs=2)
        >>> layer(torch.ones(3, 5, 4)).shape
        torch.Size([3, 5, 2])
    """

    def __init__(self, models: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.weight = nn.Parameter(torch.zeros(models, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(models, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        # baddbmm would write the bias into the result first. As a separate sum, torch.compile fuses
        # it with the operations that follow.
        return torch.bmm(x, self.weight.to(x.dtype)) + self.bias.to(x.dtype)


def stacked_layers(models: int, sizes: Sequence[int]) -> nn.ModuleList:
    return nn.ModuleList(StackedLinear(models, *pair) for pair in itertools.pairwise(sizes))


def linear_layers(*stacks: nn.ModuleList) -> list[StackedLinear]:
    """The linear layers of one or several stacks, with their type."""
    return [layer for stack in stacks for layer in stack if isinstance(layer, StackedLinear)]


def through(layers: nn.ModuleList, x: Tensor) -> Tensor:
    """`rectified` with weights that may be `half_copies`: computes in their dtype and returns the
    dtype of x.
    """
    outputs, weight = linear_layers(layers)[-1].outputs, linear_layers(layers)[0].weight
    x_filled_up = nn.functional.pad(x.to(weight.dtype), (0, weight.shape[-2] - x.shape[-1]))
    return rectified(layers, x_filled_up)[..., :outputs].to(x.dtype)


def rectified(layers: nn.ModuleList, x: Tensor) -> Tensor:
    """The layers one after another, with a ReLU after each but the last."""
    for layer in layers[:-1]:
        x = torch.relu(layer(x))
    last: Tensor = layers[-1](x)
    return last


class Groups(nn.Module, Generic[Kind]):
    """The models of a stack, grouped by kind: each kind computes once for all its models.

    Args:
        kinds: one for each model; equal ones form a group.

    Example:
        >>> groups = Groups(["a", "b", "a"])
        >>> values = torch.tensor([1.0, 2.0, 3.0])
        >>> places = range(len(groups.kinds))
        >>> groups.joined([10 * groups.of(values, place) for place in places])
        tensor([10., 20., 30.])
    """

    def __init__(self, kinds: Sequence[Kind]) -> None:
        super().__init__()
        self.kinds = list(dict.fromkeys(kinds))
        rows = [
            torch.tensor([model for model, own in enumerate(kinds) if own == kind])
            for kind in self.kinds
        ]
        for place, members in enumerate(rows):
            self.register_buffer(f"rows{place}", members, persistent=False)
        self.register_buffer("order", torch.cat(rows).argsort(), persistent=False)

    def of(self, values: Tensor, place: int) -> Tensor:
        """The values of the models of one group."""
        return values.index_select(0, self.get_buffer(f"rows{place}"))

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """The values of all groups, in the order of the models."""
        return torch.cat(list(parts)).index_select(0, self.get_buffer("order"))


@torch.no_grad()
def glorot_(weight: Tensor, seeds: Sequence[int], fans: int | None = None) -> None:
    """Glorot's uniform initialisation in place. Each model ``weight[s]`` depends on its own seed
    only.

    `fans` is the sum of fan-in and fan-out, for weights whose shape does not show it.
    """
    bound = math.sqrt(6 / (sum(weight.shape[1:]) if fans is None else fans))
    for own, seed in zip(weight, seeds, strict=True):
        own.copy_(
            bound
            * (
                2
                * torch.rand(
                    own.shape, dtype=own.dtype, generator=torch.Generator().manual_seed(seed)
                )
                - 1
            )
        )


# Tensor cores read rows of 16 bytes. Kernels for other widths have half the speed.
_ENTRIES_TOGETHER = 8


def half_copies(model: nn.Module) -> dict[str, Tensor]:
    """bfloat16 copies of the weights and biases of all stacked linear layers, by name, as leaves
    for ``functional_call``.

    A step with persistent copies, and with their gradients, reads half the bytes of a step that
    casts the weights. Inputs and outputs are padded with zeros to multiples of eight. The padded
    units do not change the result, see `through`.
    """
    layers = [
        (f"{name}.", layer)
        for name, layer in model.named_modules()
        if isinstance(layer, StackedLinear)
    ]
    return {
        prefix + name: copy.requires_grad_()
        for prefix, layer in layers
        for name, copy in _filled_up(layer).items()
    }


def _filled_up(layer: StackedLinear) -> dict[str, Tensor]:
    inputs, outputs = (-size % _ENTRIES_TOGETHER for size in layer.weight.shape[1:])
    weight, bias = (values.detach().to(torch.bfloat16) for values in (layer.weight, layer.bias))
    return {
        "weight": nn.functional.pad(weight, (0, outputs, 0, inputs)),
        "bias": nn.functional.pad(bias, (0, outputs)),
    }
