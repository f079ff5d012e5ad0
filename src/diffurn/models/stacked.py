"""Many small networks as one program: everything has a leading dimension of S models, which never meet."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class StackedLinear(nn.Module):
    """y_s = x_s W_s + b_s for every model s, inputs ``(S, B, inputs)`` to ``(S, B, outputs)``; starts at zero.

    Example:
        >>> layer = StackedLinear(models=3, inputs=4, outputs=2)
        >>> layer(torch.ones(3, 5, 4)).shape
        torch.Size([3, 5, 2])
    """

    def __init__(self, models: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(models, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(models, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


def stacked_layers(models: int, sizes: Sequence[int]) -> nn.ModuleList:
    return nn.ModuleList(StackedLinear(models, *pair) for pair in itertools.pairwise(sizes))


def linear_layers(*stacks: nn.ModuleList) -> list[StackedLinear]:
    """The layers of one or several stacks as what they are."""
    return [layer for stack in stacks for layer in stack if isinstance(layer, StackedLinear)]


def rectified(layers: nn.ModuleList, x: Tensor) -> Tensor:
    """The layers one after another, with a ReLU between them but not after the last."""
    for layer in layers[:-1]:
        x = torch.relu(layer(x))
    last: Tensor = layers[-1](x)
    return last


@torch.no_grad()
def glorot_(weight: Tensor, seeds: Sequence[int]) -> None:
    """Glorot's uniform start in place, each model ``weight[s]`` from its own seed, whatever stands beside it in the stack."""
    bound = math.sqrt(6 / sum(weight.shape[1:]))
    for own, seed in zip(weight, seeds, strict=True):
        own.copy_(bound * (2 * torch.rand(own.shape, dtype=own.dtype, generator=torch.Generator().manual_seed(seed)) - 1))


class Batches:
    """Shuffled batches and noise, block by block, each model from a generator of its own on the device.

    A model's epoch is ⌊N_s / batch_size⌋ full batches of a fresh shuffle of its own N_s items; what is left of the shuffle is dropped. A
    model's batches and noise depend on its seed and the lengths of the blocks alone, not on the models beside it.

    Args:
        items: the item numbers of every model's own data set, one tensor a model.
        seeds: one a model; equal seeds with equal items give equal batches and noise.
        batch_size: items a batch.
        block: the most steps that `refill` may prepare at once.
        normals: standard normal variates per item.
        gumbels: standard Gumbel variates per item.
    """

    def __init__(self, items: Sequence[Tensor], seeds: Sequence[int], batch_size: int, block: int, normals: int, gumbels: int) -> None:
        device = items[0].device
        for each in items:
            if len(each) < batch_size:
                raise ValueError(f"a data set of {len(each)} items does not fill one batch of {batch_size}")
        self._items, self._batch_size, self._block = list(items), batch_size, block
        self._generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        self._orders = [each[:0] for each in items]
        self._taken = [0 for _ in items]
        models = len(self._items)
        self.indices = torch.zeros(models, block, batch_size, dtype=torch.int64, device=device)
        self.normal = torch.zeros(models, block, batch_size, normals, device=device)
        self.gumbel = torch.zeros(models, block, batch_size, gumbels, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)

    def refill(self, steps: int) -> None:
        """Prepares the next `steps` steps of every model, from position 0 on."""
        if not 0 < steps <= self._block:
            raise ValueError(f"a block has 1 to {self._block} steps, not {steps}")
        for model, generator in enumerate(self._generators):
            done = 0
            while done < steps:
                done += self._take(model, done, steps - done)
            self.normal[model, :steps].normal_(generator=generator)
            self.gumbel[model, :steps].uniform_(generator=generator)
        prepared = self.gumbel[:, :steps]
        tiny = torch.finfo(prepared.dtype).tiny
        prepared.copy_(-torch.log(-torch.log(prepared.clamp(tiny, 1 - torch.finfo(prepared.dtype).eps / 2))))  # both logs finite
        self.position.zero_()

    def _take(self, model: int, start: int, wanted: int) -> int:
        """Up to `wanted` batches of the current shuffle, or of a new one where no full batch is left."""
        size, items = self._batch_size, self._items[model]
        if len(self._orders[model]) - self._taken[model] < size:
            order = torch.randperm(len(items), generator=self._generators[model], device=items.device)
            self._orders[model], self._taken[model] = items[order], 0
        taken = self._taken[model]
        number = min(wanted, (len(items) - taken) // size)
        self.indices[model, start : start + number] = self._orders[model][taken : taken + number * size].view(number, size)
        self._taken[model] = taken + number * size
        return number

    def next(self) -> tuple[Tensor, Tensor, Tensor]:
        """Item numbers (S, B), normals (S, B, ·) and Gumbel noise (S, B, ·) of the next step, without a word to the host."""
        batch = tuple(buffer.index_select(1, self.position).squeeze(1) for buffer in (self.indices, self.normal, self.gumbel))
        self.position.add_(1)
        return batch[0], batch[1], batch[2]

    def state(self) -> dict[str, Any]:
        """For a checkpoint between two blocks."""
        return {"generators": [g.get_state() for g in self._generators], "orders": list(self._orders), "taken": list(self._taken)}

    def load_state(self, state: dict[str, Any]) -> None:
        for generator, saved in zip(self._generators, state["generators"], strict=True):
            generator.set_state(saved.cpu())
        self._orders, self._taken = list(state["orders"]), list(state["taken"])


class Replayed:
    """Calls a step that takes and returns nothing; on a CUDA device a few times as it is, then as a captured graph.

    Args:
        step: works on tensors that stay where they are, with fixed shapes and without asking the host.
        device: where it computes.
    """

    WARM_UP = 3

    def __init__(self, step: Callable[[], None], device: torch.device) -> None:
        self._step, self._device = step, device
        self._called = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def run(self, times: int) -> None:
        for _ in range(times):
            self._call()

    def _call(self) -> None:
        if self._device.type != "cuda":
            self._step()
        elif self._called < self.WARM_UP:  # real steps, so nothing has to be undone before the capture
            self._call_aside()
        else:
            if self._graph is None:
                self._graph = self._capture()
            self._graph.replay()
        self._called += 1

    def _call_aside(self) -> None:
        """On another stream, as the capture will be."""
        here, aside = torch.cuda.current_stream(self._device), torch.cuda.Stream(self._device)
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            self._step()
        here.wait_stream(aside)

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._device)
        with torch.cuda.graph(graph):
            self._step()
        return graph
