"""Images with known generative factors: the interface of a data set, and one that is held in
memory.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class FactorImages(Protocol):
    """An image for every combination of the values of F factors."""

    @property
    def name(self) -> str: ...

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the F factors."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each factor."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""

    def images(self, factors: Tensor) -> Tensor:
        """Images (..., H, W, C), float32 from 0 to 1, of factors (..., F), int64 on the data's
        device. Must not synchronise the CPU with the device.
        """

    def to(self, device: torch.device | str) -> FactorImages: ...


class StoredImages:
    """Images stored as bytes, one for every combination of the factors' values, the last factor
    fastest. They become floats when they are looked up.

    Args:
        name: of the data set.
        names: of the factors.
        sizes: values of each factor, at least two.
        pictures: uint8, ``(∏ sizes, H, W, C)``; with a palette ``(∏ sizes, H, W)``, the index of
            each pixel's colour.
        palette: uint8, ``(colours, C)``.

    Example:
        >>> pictures = torch.arange(6, dtype=torch.uint8).reshape(6, 1, 1, 1)
        >>> data = StoredImages("steps", ("coarse", "fine"), (2, 3), pictures)
        >>> data.images(torch.tensor([1, 2])) * 255
        tensor([[[5.]]])
    """

    def __init__(
        self,
        name: str,
        names: Sequence[str],
        sizes: Sequence[int],
        pictures: Tensor,
        palette: Tensor | None = None,
    ) -> None:
        self.name, self.names, self.sizes = name, tuple(names), tuple(sizes)
        self._require_factors()
        _require_bytes(
            "pictures",
            pictures,
            "(pictures, height, width, channels)"
            if palette is None
            else "(pictures, height, width)",
        )
        if len(pictures) != math.prod(self.sizes):
            raise ValueError(
                f"there are {len(pictures)} pictures, but the factors {self.sizes} have "
                f"{math.prod(self.sizes)} combinations"
            )
        if palette is not None:
            _require_bytes("palette", palette, "(colours, channels)")
            if int(pictures.max()) >= len(palette):
                raise ValueError(
                    f"a pixel has the colour number {int(pictures.max())}, but the palette has "
                    f"{len(palette)} colours"
                )
        height, width, channels = (
            *pictures.shape[1:3],
            (pictures if palette is None else palette).shape[-1],
        )
        self.shape = (height, width, channels)
        self._pictures = pictures
        self._palette = None if palette is None else palette.to(torch.float32) / 255
        self._strides = torch.tensor(
            [math.prod(self.sizes[i + 1 :]) for i in range(len(sizes))], device=pictures.device
        )

    def _require_factors(self) -> None:
        if len(self.names) != len(self.sizes):
            raise ValueError(
                f"there are {len(self.names)} names of factors, {self.names}, but "
                f"{len(self.sizes)} sizes, {self.sizes}"
            )
        if not self.sizes or min(self.sizes) < 2:
            raise ValueError(
                f"the factors have {self.sizes} values, but each must have at least two"
            )

    def images(self, factors: Tensor) -> Tensor:
        """Images (..., H, W, C), float32 from 0 to 1, of factors (..., F): integers below `sizes`,
        which are not checked.
        """
        pictures = self._pictures[(factors * self._strides).sum(-1)]
        return (
            pictures.to(torch.float32) / 255
            if self._palette is None
            else self._palette[pictures.int()]
        )

    def to(self, device: torch.device | str) -> StoredImages:
        moved = copy.copy(self)
        moved._pictures, moved._strides = self._pictures.to(device), self._strides.to(device)
        moved._palette = None if self._palette is None else self._palette.to(device)
        return moved


def held(images: FactorImages, device: torch.device | str, chunk: int = 4096) -> StoredImages:
    """Every image of a data set that renders on demand, rendered once and stored as bytes: a lookup
    is faster than a rendering.

    Args:
        images: the data set, on `device`.
        device: where the images are stored; arm scenes take 12.7 GB.
        chunk: images rendered at a time.
    """
    number = math.prod(images.sizes)
    pictures = torch.empty(number, *images.shape, dtype=torch.uint8, device=device)
    for start in range(0, number, chunk):
        numbers = torch.arange(start, min(number, start + chunk), device=device)
        drawn = images.images(torch.stack(torch.unravel_index(numbers, images.sizes), -1))
        pictures[start : start + chunk] = (drawn * 255).round().to(torch.uint8)
    return StoredImages(images.name, images.names, images.sizes, pictures)


def _require_bytes(what: str, values: Tensor, axes: str) -> None:
    if values.dtype != torch.uint8 or values.ndim != axes.count(",") + 1 or not values.numel():
        raise ValueError(
            f"{what} has dtype {values.dtype} and shape {tuple(values.shape)}, but must hold bytes "
            f"(uint8) of shape {axes}"
        )
