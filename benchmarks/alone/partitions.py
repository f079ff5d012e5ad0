"""Cells of random partitions of n items into K subsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks.cells import short
from benchmarks.ours import Cell, Inputs, Run
from diffurn import ConditionalST, RandomPartition, TwoStageGumbel
from diffurn.estimators import Estimator

_SIZES = ((1, 1000, 10), (64, 100, 10), (1, 10_000, 10))
# The order of the paper's method is a matrix, so it is measured for the smaller ones.
_ESTIMATORS = {
    "ConditionalST": (ConditionalST(), 10_000),
    "TwoStageGumbel": (TwoStageGumbel(), 1000),
}
_VALUES: dict[str, Callable[[RandomPartition], Any]] = {
    "sample": lambda partition: partition.sample(),
    "mode": lambda partition: partition.mode,
    "inclusion": lambda partition: partition.inclusion(),
}


Size = tuple[int, int, int]  # sets, items, subsets


def _words(size: Size) -> str:
    batch, items, subsets = size
    return f"{short(items)} items, K = {subsets}, B = {batch}"


def _leaves(size: Size, inputs: Inputs) -> tuple[Tensor, Tensor]:
    batch, items, subsets = size
    torch.manual_seed(0)
    options: Any = {"dtype": torch.float64, "device": inputs.device, "requires_grad": True}
    return torch.randn(batch, items, **options), torch.randn(batch, subsets, **options)


def values() -> Iterator[Cell]:
    """Draws, the mode and inclusion probabilities, without gradients."""
    for name in _VALUES:
        yield _of_value(name, _SIZES[0] if name == "sample" else (1, 100, 10))


def _of_value(name: str, size: Size) -> Cell:
    def prepare(inputs: Inputs) -> Run:
        scores, weights = (leaf.detach() for leaf in _leaves(size, inputs))
        return lambda: _VALUES[name](RandomPartition(scores, weights))

    return Cell(f"partition, {name}: {_words(size)}", size[0], prepare)


def gradients() -> Iterator[Cell]:
    """Log-probabilities and draws with their gradients."""
    for size in _SIZES:
        yield _of_log_prob(size)
        for name, (estimator, most) in _ESTIMATORS.items():
            if size[1] <= most:
                yield _of_draw(name, estimator, size)


def _of_log_prob(size: Size) -> Cell:
    def prepare(inputs: Inputs) -> Run:
        leaves = _leaves(size, inputs)
        value = RandomPartition(*leaves).sample()

        def run() -> tuple[Tensor, ...]:
            return torch.autograd.grad(RandomPartition(*leaves).log_prob(value).sum(), leaves)

        return run

    return Cell(f"partition, log_prob + gradient: {_words(size)}", size[0], prepare)


def _of_draw(name: str, estimator: Estimator, size: Size) -> Cell:
    def prepare(inputs: Inputs) -> Run:
        leaves = _leaves(size, inputs)
        values = torch.linspace(-1, 1, size[1] * size[2], dtype=torch.float64).view(size[1:])
        values = values.to(inputs.device)

        def run() -> tuple[Tensor, ...]:
            drawn = RandomPartition(*leaves, estimator=estimator).rsample()
            return torch.autograd.grad((drawn * values).sum(), leaves)

        return run

    return Cell(f"partition, draw + gradient, {name}: {_words(size)}", size[0], prepare)
