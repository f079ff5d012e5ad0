"""MultiMNIST and noisyMultiMNIST: two digits on one canvas, with noise on the right one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from diffurn_studies.clustering.images import Images

SIDE = 28
_CANVAS = 36  # the left digit lies in one corner
_LEFT, _RIGHT = (0, 8, 0, 8), (6, 2, 6, 2)  # margins of the digits
_CHUNK = 10_000
# Of pixels from 0 to 1, as the authors normalise MNIST.
_MEAN, _DEVIATION = 0.1307, 0.3081


class TwoDigits(NamedTuple):
    """Canvases with each level of noise, (levels, N, 28, 28) bytes, and the digits on them, left
    and right, (2, N).
    """

    pictures: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> TwoDigits:
        return TwoDigits(*(values.to(device) for values in self))


def two_digits(
    images: Tensor, labels: Tensor, shape: tuple[int, int], noises: Sequence[float], seed: int
) -> TwoDigits:
    """Each image on the left of one canvas, and a random one of them on the right.

    With the noise p, each pixel of the right digit is black with probability p. All levels have the
    same pairs; a pixel that is black stays so at higher levels. The pairs and the noise are fixed.
    """
    generator = torch.Generator().manual_seed(seed)
    number = len(images)
    right = torch.randint(number, (number,), generator=generator)
    canvases = torch.empty(len(noises), number, SIDE, SIDE, dtype=torch.uint8)
    for start in range(0, number, _CHUNK):
        part = slice(start, start + _CHUNK)
        left_digits, right_digits = (
            _of_size(images[which].view(-1, *shape)) for which in (part, right[part])
        )
        uniforms = torch.rand(right_digits.shape, generator=generator)
        for level, noise in enumerate(noises):
            noisy = torch.where(uniforms < noise, 0.0, right_digits)
            both = torch.maximum(pad(left_digits, _LEFT), pad(noisy, _RIGHT))
            canvases[level, part] = _of_size(both).round().byte()
    return TwoDigits(canvases, torch.stack([labels, labels[right]]))


def _of_size(pictures: Tensor) -> Tensor:
    """Pictures (N, H, W) in 28 × 28 pixels."""
    if pictures.shape[1:] == (SIDE, SIDE):
        return pictures.float()
    return interpolate(
        pictures.unsqueeze(1).float(), (SIDE, SIDE), mode="bilinear", antialias=True
    ).squeeze(1)


def parts_of(images: Images, noises: Sequence[float], seed: int) -> tuple[TwoDigits, TwoDigits]:
    """The training part and the test part."""
    return (
        two_digits(images.train, images.train_labels, images.shape, noises, 2 * seed),
        two_digits(images.test, images.test_labels, images.shape, noises, 2 * seed + 1),
    )


def as_inputs(pictures: Tensor) -> Tensor:
    """Bytes as the inputs of a network."""
    return (pictures.to(torch.get_default_dtype()) / 255 - _MEAN) / _DEVIATION
