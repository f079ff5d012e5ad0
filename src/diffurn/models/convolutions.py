r"""Convolutions of many small networks as one program: S models side by side, which never meet.

Pictures are channels-last, ``(S, B, H, W, C)``. A layer is a rearrangement of the picture, in which every place gets a copy of the pixels
its kernel sees, and one matrix product per model: libraries are slow at grouped convolutions of few channels, and fast at batched products.
Kernels are 4 × 4 or 2 × 2 with stride 2; the first see a border of one zero around the picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, conv_transpose2d

# Rows of a product over which one block of threads sums in the gradient of the weights: without a limit few threads would do all the work.
ROWS_PER_PRODUCT = 8192


def stacked_product(x: Tensor, weight: Tensor) -> Tensor:
    """x_s W_s for every model, ``(S, ..., K)`` and ``(S, K, O)`` to ``(S, ..., O)``; on CUDA devices several products a model."""
    models, inner, outputs = weight.shape
    rows = x.numel() // (models * inner)
    parts = math.gcd(rows, max(1, rows // ROWS_PER_PRODUCT)) if x.is_cuda else 1
    repeated = weight.unsqueeze(1).expand(-1, parts, -1, -1).reshape(models * parts, inner, outputs)
    return torch.bmm(x.reshape(models * parts, rows // parts, inner), repeated).reshape(*x.shape[:-1], outputs)


class Windows(nn.Module):
    """Which pixels of a picture each window of a kernel sees, and which windows see each pixel.

    Args:
        height, width: of the picture, even.
        kernel: 4 (with a border of one) or 2.
    """

    seen: Tensor  # (places, kernel²): the pixel each window has at each of its entries
    inside: Tensor  # whether there is one, (places, kernel², 1)
    seers: Tensor  # (pixels, windows): the entry of `seen`, flattened, that each window of a pixel has for it
    existing: Tensor

    def __init__(self, height: int, width: int, kernel: int) -> None:
        super().__init__()
        if kernel not in (2, 4):
            raise ValueError(f"kernel is {kernel}, but must be 2 or 4")
        if height % 2 or width % 2:
            raise ValueError(f"a picture of {height} × {width} cannot be halved: both must be even")
        self.pixels, self.places, self.entries = (height, width), (height // 2, width // 2), kernel * kernel
        rows, columns = _seen(height, kernel), _seen(width, kernel)
        seen, inside = _crossed(rows, columns, width)
        rows, columns = _seers(height, kernel), _seers(width, kernel)
        window, existing = _crossed(rows[:2], columns[:2], width // 2)
        entry, _ = _crossed((rows[2], rows[1]), (columns[2], columns[1]), kernel)
        self.register_buffer("seen", seen * inside, persistent=False)
        self.register_buffer("inside", inside.unsqueeze(-1), persistent=False)
        self.register_buffer("seers", (window * self.entries + entry) * existing, persistent=False)
        self.register_buffer("existing", existing.unsqueeze(-1), persistent=False)

    def spread(self, picture: Tensor) -> Tensor:
        """Copies pixels to the windows that see them: ``(S, B, H, W, C)`` to ``(S, B, H/2, W/2, kernel² · C)``."""
        spread: Tensor = _Spread.apply(picture.flatten(2, 3), self.seen, self.inside, self.seers, self.existing)  # type: ignore[no-untyped-call]
        return spread.reshape(*picture.shape[:2], *self.places, -1)

    def gather(self, windows: Tensor) -> Tensor:
        """The adjoint: adds up what windows have for each pixel, ``(S, B, H/2, W/2, kernel² · C)`` to ``(S, B, H, W, C)``."""
        entries = windows.reshape(*windows.shape[:2], self.places[0] * self.places[1] * self.entries, -1)
        gathered: Tensor = _Gathered.apply(entries, self.seen, self.inside, self.seers, self.existing)  # type: ignore[no-untyped-call]
        return gathered.unflatten(2, self.pixels)


def _seen(length: int, kernel: int) -> tuple[Tensor, Tensor]:
    """Along one side: the pixel each window (row) has at each entry of its kernel (column), and whether there is one."""
    border = (kernel - 2) // 2
    pixel = 2 * torch.arange(length // 2).unsqueeze(-1) + torch.arange(kernel) - border
    return pixel, (pixel >= 0) & (pixel < length)


def _seers(length: int, kernel: int) -> tuple[Tensor, Tensor, Tensor]:
    """Along one side: the windows that see each pixel (row), whether there is such a window, and the pixel's entry in it."""
    border = (kernel - 2) // 2
    place = torch.arange(length).unsqueeze(-1) + border
    window = place // 2 - torch.arange(kernel // 2)
    return window, (window >= 0) & (window < length // 2), place - 2 * window


def _crossed(rows: tuple[Tensor, Tensor], columns: tuple[Tensor, Tensor], width: int) -> tuple[Tensor, Tensor]:
    """Two sides as one table of flattened positions in something of this width, with the mask of those that exist."""
    (row, of_rows), (column, of_columns) = rows, columns
    position = row[:, None, :, None] * width + column[None, :, None, :]
    exists = of_rows[:, None, :, None] & of_columns[None, :, None, :]
    return position.flatten(2).flatten(0, 1), exists.flatten(2).flatten(0, 1)


def _spread(pixels: Tensor, seen: Tensor, inside: Tensor) -> Tensor:
    return torch.where(inside, pixels[:, :, seen], 0.0)


def _gathered(entries: Tensor, seers: Tensor, existing: Tensor) -> Tensor:
    return torch.where(existing, entries[:, :, seers], 0.0).sum(-2)


class _Spread(torch.autograd.Function):
    """Either direction is a gather, also backward, where plain indexing would scatter with atomic additions."""

    @staticmethod
    def forward(ctx: Any, pixels: Tensor, seen: Tensor, inside: Tensor, seers: Tensor, existing: Tensor) -> Tensor:
        ctx.save_for_backward(seers, existing)
        return _spread(pixels, seen, inside)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        return _gathered(upstream.flatten(2, 3), *ctx.saved_tensors), None, None, None, None


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, entries: Tensor, seen: Tensor, inside: Tensor, seers: Tensor, existing: Tensor) -> Tensor:
        ctx.save_for_backward(seen, inside)
        return _gathered(entries, seers, existing)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        return _spread(upstream, *ctx.saved_tensors).flatten(2, 3), None, None, None, None


def _one_by_one(convolve: Callable[..., Tensor], x: Tensor, weights: Tensor, biases: Tensor) -> Tensor:
    """Torch's convolution of every model, which has channels before height and width."""
    pictures = x.permute(0, 1, 4, 2, 3)
    layers = zip(pictures, weights.to(x.dtype), biases.flatten(1).to(x.dtype), strict=True)
    return torch.stack([convolve(picture, weight, bias) for picture, weight, bias in layers]).permute(0, 1, 3, 4, 2)


class StackedConvolution(nn.Module):
    """Halves height and width; weights ``(S, kernel² · inputs, outputs)`` and biases start at zero.

    Example:
        >>> layer = StackedConvolution(models=3, size=64, inputs=1, outputs=8, kernel=4)
        >>> layer(torch.ones(3, 5, 64, 64, 1)).shape
        torch.Size([3, 5, 32, 32, 8])
    """

    def __init__(self, models: int, size: int, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        self.windows = Windows(size, size, kernel)
        self.weight = nn.Parameter(torch.zeros(models, kernel * kernel * inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(models, 1, 1, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_cuda:  # few models, small batches: torch's own, one model after another
            kernel = int(math.sqrt(self.windows.entries))
            weights = self.weight.unflatten(1, (kernel, kernel, -1)).permute(0, 4, 3, 1, 2)
            return _one_by_one(partial(conv2d, stride=2, padding=kernel // 2 - 1), x, weights, self.bias)
        product = stacked_product(self.windows.spread(x), self.weight)
        return product + self.bias.to(product.dtype)


class StackedTransposedConvolution(nn.Module):
    """Doubles height and width to `size`, with kernels of 4 × 4; weights ``(S, inputs, 16 · outputs)`` and biases start at zero.

    Example:
        >>> layer = StackedTransposedConvolution(models=3, size=64, inputs=8, outputs=1)
        >>> layer(torch.ones(3, 5, 32, 32, 8)).shape
        torch.Size([3, 5, 64, 64, 1])
    """

    def __init__(self, models: int, size: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.windows = Windows(size, size, kernel=4)
        self.weight = nn.Parameter(torch.zeros(models, inputs, 16 * outputs))
        self.bias = nn.Parameter(torch.zeros(models, 1, 1, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_cuda:
            weights = self.weight.unflatten(2, (4, 4, -1)).permute(0, 1, 4, 2, 3)
            return _one_by_one(partial(conv_transpose2d, stride=2, padding=1), x, weights, self.bias)
        gathered = self.windows.gather(stacked_product(x, self.weight))
        return gathered + self.bias.to(gathered.dtype)
