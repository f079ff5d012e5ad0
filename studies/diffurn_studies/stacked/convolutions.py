"""Convolutions for a stack of S independent models.

Images are channels-last, ``(S, B, H, W, C)``. Kernels are 4 × 4 with a zero padding of 1, or 2 × 2;
the stride is 2. Libraries are slow at grouped convolutions with few channels. On CUDA devices with
Triton installed, the kernels of `diffurn_studies.stacked.convolution_kernels` are used; elsewhere
torch's convolutions, one model after another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, conv_transpose2d

_HAS_TRITON = find_spec("triton") is not None


def _kernels() -> Any:
    from diffurn_studies.stacked import convolution_kernels

    return convolution_kernels


def blocks(x: Tensor) -> Tensor:
    """Pixels in blocks of 2 × 2: ``(S, B, H, W, C)`` to ``(S, B, H/2, W/2, 4C)``."""
    models, batch, height, width, channels = x.shape
    grid = x.reshape(models, batch, height // 2, 2, width // 2, 2, channels)
    return grid.permute(0, 1, 2, 4, 3, 5, 6).reshape(
        models, batch, height // 2, width // 2, 4 * channels
    )


def _one_by_one(
    convolve: Callable[..., Tensor], x: Tensor, weights: Tensor, biases: Tensor
) -> Tensor:
    """Torch's convolution for every model; torch has channels before height and width."""
    pictures = x.permute(0, 1, 4, 2, 3)
    layers = zip(pictures, weights.to(x.dtype), biases.flatten(1).to(x.dtype), strict=True)
    return torch.stack(
        [convolve(picture, weight, bias) for picture, weight, bias in layers]
    ).permute(0, 1, 3, 4, 2)


class StackedConvolution(nn.Module):
    """A convolution that halves height and width, followed by a ReLU if `relu`. The weights ``(S,
    kernel² · inputs, outputs)`` are initially zero.

    Example:
        >>> layer = StackedConvolution(models=3, inputs=1, outputs=8, kernel=4)
        >>> layer(torch.ones(3, 5, 64, 64, 1)).shape
        torch.Size([3, 5, 32, 32, 8])
    """

    def __init__(
        self, models: int, inputs: int, outputs: int, kernel: int, relu: bool = True
    ) -> None:
        super().__init__()
        if kernel not in (2, 4):
            raise ValueError(f"kernel is {kernel}, but must be 2 or 4")
        self.kernel, self.relu = kernel, relu
        self.fans = kernel * kernel * (inputs + outputs)
        self.weight = nn.Parameter(torch.zeros(models, kernel * kernel * inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(models, 1, 1, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        _require_even(x)
        if self.kernel == 2:  # windows do not overlap, so a matrix product of blocks suffices
            seen = blocks(x)
            product = torch.bmm(seen.flatten(1, 3), self.weight.to(x.dtype)).unflatten(
                1, seen.shape[1:4]
            )
            y = product + self.bias.to(x.dtype)
        elif x.is_cuda and _HAS_TRITON:
            return _kernels().convolved(x, self.weight, self.bias, self.relu)  # type: ignore[no-any-return]
        else:
            weights = self.weight.unflatten(1, (4, 4, -1)).permute(0, 4, 3, 1, 2)
            y = _one_by_one(partial(conv2d, stride=2, padding=1), x, weights, self.bias)
        return torch.relu(y) if self.relu else y


class StackedTransposedConvolution(nn.Module):
    """A transposed convolution with kernels of 4 × 4 that doubles height and width, followed by a
    ReLU if `relu`. The weights ``(S, inputs, 16 · outputs)`` are initially zero.

    Example:
        >>> layer = StackedTransposedConvolution(models=3, inputs=8, outputs=1)
        >>> layer(torch.ones(3, 5, 32, 32, 8)).shape
        torch.Size([3, 5, 64, 64, 1])
    """

    def __init__(self, models: int, inputs: int, outputs: int, relu: bool = True) -> None:
        super().__init__()
        self.relu = relu
        self.fans = 16 * (inputs + outputs)
        self.weight = nn.Parameter(torch.zeros(models, inputs, 16 * outputs))
        self.bias = nn.Parameter(torch.zeros(models, 1, 1, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda and _HAS_TRITON:
            return _kernels().transposed(x, self.weight, self.bias, self.relu)  # type: ignore[no-any-return]
        weights = self.weight.unflatten(2, (4, 4, -1)).permute(0, 1, 4, 2, 3)
        y = _one_by_one(partial(conv_transpose2d, stride=2, padding=1), x, weights, self.bias)
        return torch.relu(y) if self.relu else y


def _require_even(x: Tensor) -> None:
    height, width = x.shape[2:4]
    if height % 2 or width % 2:
        raise ValueError(f"a picture of {height} × {width} cannot be halved: both must be even")
