"""LeNets for two tasks, a stack of S models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, dropout, dropout2d, max_pool2d

from diffurn_studies.partitions.ways import TASKS, WAYS, released, settled
from diffurn_studies.stacked.modules import StackedLinear, glorot_, linear_layers, stacked_layers

_CHANNELS, _KERNEL, _LEFT_OVER = (10, 20), 5, 4 * 4
_HIDDEN, _CLASSES = 50, 10
# Of channels and of hidden units, in training.
_DROPPED = 0.5


class StackedConvolutions(nn.Module):
    """The convolutions of LeNet, and a dense layer: pictures (S, B, 28, 28) to (S, B, neurons)."""

    def __init__(self, models: int, neurons: int) -> None:
        super().__init__()
        first, second = _CHANNELS
        shapes = ((first, 1), (second, first))
        self.weights = nn.ParameterList(
            torch.zeros(models, *shape, _KERNEL, _KERNEL) for shape in shapes
        )
        self.biases = nn.ParameterList(torch.zeros(models, shape[0]) for shape in shapes)
        self.dense = StackedLinear(models, second * _LEFT_OVER, neurons)

    def forward(self, pictures: Tensor) -> Tensor:
        models = len(pictures)
        x = pictures.transpose(0, 1)  # the models side by side, as groups of channels
        x = torch.relu(max_pool2d(self._convolved(x, 0), 2))
        x = dropout2d(self._convolved(x, 1), _DROPPED, self.training)
        x = torch.relu(max_pool2d(x, 2))
        x = x.unflatten(1, (models, -1)).flatten(2).transpose(0, 1)
        features: Tensor = torch.relu(self.dense(x))
        return features

    def _convolved(self, x: Tensor, layer: int) -> Tensor:
        weight, bias = self.weights[layer], self.biases[layer]
        return conv2d(x, weight.flatten(0, 1), bias.flatten(), groups=len(weight))


class Outputs(NamedTuple):
    """The results of a stack of S models.

    Attributes:
        logits: of the classes of both tasks, (2, S, B, 10).
        features: of the last shared layer, (S, B, neurons).
        memberships: of its neurons in the two tasks, (S, B, neurons, 2); ones where all neurons
            serve both tasks.
    """

    logits: Tensor
    features: Tensor
    memberships: Tensor


class TwoTasks(nn.Module):
    """S models of one way to share the neurons of the last shared layer among the tasks.

    The partition of each picture depends on the picture, by a network of its own.

    Args:
        way: a key of `METHODS`.
        seeds: of the initial weights, one for each model; equal seeds give equal shared layers.
        neurons: of the last shared layer.
        coldest: the temperature at which `released` is evaluated.
    """

    def __init__(self, way: str, seeds: Sequence[int], neurons: int, coldest: float) -> None:
        super().__init__()
        models = len(seeds)
        self.way, self.coldest = way, coldest
        self.trunk = StackedConvolutions(models, neurons)
        self.left, self.right = (
            stacked_layers(models, (neurons, _HIDDEN, _CLASSES)) for _ in range(TASKS)
        )
        if way in WAYS:
            self.chooser = StackedConvolutions(models, neurons)
            self.scores = StackedLinear(models, neurons, neurons)
            self.log_weights = StackedLinear(models, neurons, TASKS)
        self._start(seeds)

    def _start(self, seeds: Sequence[int]) -> None:
        """Glorot's initialisation of the weights; biases are zero."""
        for number, layer in enumerate(self.modules()):
            if isinstance(layer, StackedLinear):
                glorot_(layer.weight, [1_000 * seed + number for seed in seeds])
            elif isinstance(layer, StackedConvolutions):
                for place, weight in enumerate(layer.weights):
                    own = [1_000 * seed + 100 * (place + 1) + number for seed in seeds]
                    outputs, inputs, height, width = weight.shape[1:]
                    glorot_(weight, own, height * width * (inputs + outputs))

    def forward(self, pictures: Tensor, temperature: Tensor) -> Outputs:
        """For inputs (S, B, 28, 28)."""
        features = self.trunk(pictures)
        memberships = self._memberships(pictures, features, temperature)
        logits = []
        for task, head in enumerate((self.left, self.right)):
            first, second = linear_layers(head)
            hidden = torch.relu(first(memberships[..., task] * features))
            logits.append(second(dropout(hidden, _DROPPED, self.training)))
        return Outputs(torch.stack(logits), features, memberships)

    def _memberships(self, pictures: Tensor, features: Tensor, temperature: Tensor) -> Tensor:
        if self.way not in WAYS:
            return fixed(self.way, features)
        chosen_by = self.chooser(pictures)
        scores, log_weights = self.scores(chosen_by), self.log_weights(chosen_by)
        if self.training:
            return WAYS[self.way](scores, log_weights, temperature)
        if self.way == "released":
            return released(scores, log_weights, torch.full_like(temperature, self.coldest))
        return settled(scores, log_weights)


def fixed(way: str, features: Tensor) -> Tensor:
    """Memberships that are not learned: all neurons for both tasks, or halves."""
    ones = torch.ones_like(features).unsqueeze(-1).expand(*features.shape, TASKS)
    if way == "shared":
        return ones
    neurons = features.shape[-1]
    first = (torch.arange(neurons, device=features.device) < (neurons + 1) // 2).to(features.dtype)
    return torch.stack([first, 1 - first], -1) * ones
