"""The start of VaDE: an autoencoder, trained layer by layer or released by VaDE's authors, and a
Gaussian mixture of its latents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from diffurn_studies.clustering.mixtures import Mixture
from diffurn_studies.clustering.vade import VaDE
from diffurn_studies.stacked.modules import glorot_, linear_layers, rectified, stacked_layers
from diffurn_studies.stacked.steps import Batches, Replayed

# Steps prepared at once.
_BLOCK = 64
_MOMENTUM = 0.9


class Autoencoder(nn.Module):
    """S deterministic autoencoders: the sizes of `VaDE`, without a variance.

    Args:
        models: S.
        pixels, widths, latent: as of `VaDE`.
    """

    def __init__(self, models: int, pixels: int, widths: Sequence[int], latent: int) -> None:
        super().__init__()
        sizes = (pixels, *widths, latent)
        self.encoder = stacked_layers(models, sizes)
        self.decoder = stacked_layers(models, sizes[::-1])

    def forward(self, x: Tensor) -> Tensor:
        """Log-odds of the pixels."""
        return rectified(self.decoder, rectified(self.encoder, x))

    @torch.no_grad()
    def latents(self, images: Tensor, model: int, chunk: int = 4096) -> Tensor:
        """z of images (N, pixels), bytes, by one of the models: (N, latent).

        Computed in float64 and rounded once: in TF32 z would differ in the fourth digit, and a
        mixture fitted to it might end elsewhere.
        """
        *hidden, last = (
            (layer.weight[model].double(), layer.bias[model].double())
            for layer in linear_layers(self.encoder)
        )
        pieces = []
        for piece in images.split(chunk):
            x = as_pixels(piece).double()
            for weight, bias in hidden:
                x = torch.relu(torch.addmm(bias, x, weight))
            pieces.append(torch.addmm(last[1], x, last[0]))
        return torch.cat(pieces).to(torch.get_default_dtype())


def as_pixels(images: Tensor) -> Tensor:
    """Bytes as numbers in [0, 1]."""
    return images.to(torch.get_default_dtype()) / 255


def read_vade_weights(
    path: str | Path, pixels: int, widths: Sequence[int], latent: int
) -> Autoencoder:
    """VaDE's released autoencoder from an npz with the arrays ``encoder1_W``, ``encoder1_b``, …,
    ``decoder4_b`` (y = xW + b).
    """
    import numpy as np

    autoencoder = Autoencoder(1, pixels, widths, latent)
    try:
        with np.load(path) as arrays, torch.no_grad():
            for half in ("encoder", "decoder"):
                for number, layer in enumerate(linear_layers(getattr(autoencoder, half)), start=1):
                    _fill(layer.weight[0], arrays, f"{half}{number}_W", path)
                    _fill(layer.bias[0, 0], arrays, f"{half}{number}_b", path)
    except (OSError, EOFError) as error:
        raise ValueError(f"{path} cannot be read as an npz of VaDE's weights: {error}") from error
    return autoencoder


def _fill(parameter: Tensor, arrays: Any, name: str, path: str | Path) -> None:
    if name not in arrays:
        raise ValueError(f"{path} holds no array {name}, only {', '.join(sorted(arrays))}")
    values = torch.from_numpy(arrays[name])
    if values.shape != parameter.shape:
        raise ValueError(
            f"{name} in {path} has shape {tuple(values.shape)}, but the network needs "
            f"{tuple(parameter.shape)}"
        )
    parameter.copy_(values)


def pretrain(
    images: Tensor,
    items: Sequence[Tensor],
    seeds: Sequence[int],
    widths: Sequence[int],
    latent: int,
    layer_epochs: int,
    joint_epochs: int,
    batch_size: int,
    learning_rate: float,
    corruption: float = 0.2,
) -> Autoencoder:
    """Trains denoising autoencoders layer by layer, then as a whole, as VaDE and DEC (Xie et al.
    2016) do.

    Every pair of an encoder layer and its decoder layer learns to restore its input from a copy
    with a fifth of the entries dropped; hidden units are dropped as well. Then all layers together
    restore the clean pixels. The loss is the squared error, the optimiser gradient descent with
    momentum. Adam with cross-entropies restores better, but its latents form worse clusters.

    Args:
        images: (N, pixels), bytes, on the device to train on.
        items: the images of each model.
        seeds: one per model.
        widths, latent: as of `VaDE`.
        layer_epochs: for each pair of layers.
        joint_epochs: for all layers together.
        batch_size: images per step.
        learning_rate: on the mean squared error of an entry, for pixels of mean square 1. It is
            divided by the mean square of the pixels, since dark pictures move the weights less.
        corruption: the share of entries dropped.
    """
    torch.manual_seed(seeds[0])  # of the dropout
    autoencoder = Autoencoder(len(items), images.shape[1], widths, latent).to(images.device)
    for place, layer in enumerate(linear_layers(autoencoder.encoder, autoencoder.decoder)):
        glorot_(layer.weight, [seed * 1_009 + place for seed in seeds])
    batches = Batches(items, seeds, batch_size, _BLOCK, normals=0, gumbels=0)
    rate = learning_rate / as_pixels(images).square().mean().item()
    steps_per_epoch = max(len(own) for own in items) // batch_size
    for depth, pair in enumerate(
        zip(autoencoder.encoder, reversed(autoencoder.decoder), strict=True)
    ):
        parameters = [parameter for layer in pair for parameter in layer.parameters()]
        _minimise(
            _layer_error(autoencoder, depth, corruption),
            parameters,
            images,
            batches,
            layer_epochs * steps_per_epoch,
            rate,
        )

    def whole(x: Tensor) -> Tensor:
        log_odds: Tensor = autoencoder(x)
        return log_odds.sigmoid() - x

    _minimise(
        whole, list(autoencoder.parameters()), images, batches, joint_epochs * steps_per_epoch, rate
    )
    if not all(bool(parameter.isfinite().all()) for parameter in autoencoder.parameters()):
        raise ValueError(
            f"pretraining diverges at the learning rate {learning_rate:g}; a smaller one would be "
            "right"
        )
    return autoencoder


def _layer_error(
    autoencoder: Autoencoder, depth: int, corruption: float
) -> Callable[[Tensor], Tensor]:
    """The function of the input that a pair of layers should make zero: the restored input less the
    input.
    """
    encoder, decoder = autoencoder.encoder[depth], autoencoder.decoder[-1 - depth]
    last = depth == len(autoencoder.encoder) - 1
    as_input = torch.relu if depth else torch.sigmoid

    def error(x: Tensor) -> Tensor:
        with torch.no_grad():
            for below in autoencoder.encoder[:depth]:
                x = torch.relu(below(x))
        hidden = encoder(dropout(x, corruption))
        if not last:
            hidden = torch.relu(hidden)
        return as_input(decoder(dropout(hidden, corruption))) - x

    return error


def _minimise(
    error: Callable[[Tensor], Tensor],
    parameters: list[nn.Parameter],
    images: Tensor,
    batches: Batches,
    steps: int,
    learning_rate: float,
) -> None:
    """Gradient descent on each model's mean squared error (S, B, entries)."""
    optimizer = torch.optim.SGD(parameters, learning_rate, _MOMENTUM)

    def step() -> None:
        numbers, _, _ = batches.next()
        error(as_pixels(images[numbers])).square().mean((-2, -1)).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    replayed = Replayed(step, images.device)
    for start in range(0, steps, _BLOCK):
        block = min(_BLOCK, steps - start)
        batches.refill(block)
        replayed.run(block)


@torch.no_grad()
def start_from(
    model: VaDE,
    autoencoder: Autoencoder,
    rows: Sequence[int],
    mixtures: Sequence[Mixture],
    seeds: Sequence[int],
) -> None:
    """Sets the parameters of a stack: model s takes autoencoder ``rows[s]`` and ``mixtures[s]``.

    As in VaDE, the layer of the log-variances starts at Glorot's uniform numbers, with the seed
    ``seeds[s]``, and the cluster weights start equal.
    """
    place = torch.tensor(rows, device=model.means.device)

    def chosen(values: Tensor) -> Tensor:
        return values.to(place.device).index_select(0, place)

    *own_hidden, head = linear_layers(model.encoder)
    *trained_hidden, trained_head = linear_layers(autoencoder.encoder)
    own, trained = (
        own_hidden + linear_layers(model.decoder),
        trained_hidden + linear_layers(autoencoder.decoder),
    )
    for layer, source in zip(own, trained, strict=True):
        layer.weight.copy_(chosen(source.weight))
        layer.bias.copy_(chosen(source.bias))
    means, log_variances = head.weight.chunk(2, -1)
    means.copy_(chosen(trained_head.weight))
    glorot_(log_variances, seeds)
    head.bias.copy_(nn.functional.pad(chosen(trained_head.bias), (0, model.latent)))
    model.means.copy_(torch.stack([mixture.means for mixture in mixtures]))
    model.log_variances.copy_(torch.stack([mixture.variances for mixture in mixtures]).log())
    model.log_weights.zero_()
