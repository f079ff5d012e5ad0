"""Parts of a training step of a stack: random draws, Adam, and replay as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def to_gumbel_(uniforms: Tensor) -> None:
    """Turns uniform numbers into standard Gumbel variates, in place."""
    limits = torch.finfo(uniforms.dtype)
    inside = uniforms.clamp(limits.tiny, 1 - limits.eps / 2)  # keeps both logarithms finite
    uniforms.copy_(-torch.log(-torch.log(inside)))


class Blocks:
    """The random numbers of the training steps, drawn in blocks of steps: draws that a subclass
    defines, normals and Gumbel noise.

    Each model has its own generator on the device. Its draws depend on its seed and the lengths of
    the blocks only, not on the other models.

    Args:
        seeds: one per model; equal seeds give equal draws.
        own, normal, gumbel: buffers on the device, each (S, steps of the longest block, …).
    """

    def __init__(self, seeds: Sequence[int], own: Tensor, normal: Tensor, gumbel: Tensor) -> None:
        self.own, self.normal, self.gumbel = own, normal, gumbel
        self.position = torch.zeros(1, dtype=torch.int64, device=own.device)
        self._generators = [torch.Generator(own.device).manual_seed(seed) for seed in seeds]

    def _fill_own(self, model: int, steps: int, generator: torch.Generator) -> None:
        """Fills the first `steps` of ``own[model]``."""
        raise NotImplementedError

    def refill(self, steps: int) -> None:
        """Prepares the next `steps` steps of every model, from position 0 on."""
        block = self.own.shape[1]
        if not 0 < steps <= block:
            raise ValueError(f"a block has 1 to {block} steps, not {steps}")
        for model, generator in enumerate(self._generators):
            self._fill_own(model, steps, generator)
            self.normal[model, :steps].normal_(generator=generator)
            self.gumbel[model, :steps].uniform_(generator=generator)
        to_gumbel_(self.gumbel[:, :steps])
        self.position.zero_()

    def next(self) -> tuple[Tensor, Tensor, Tensor]:
        """The draws of the next step, (S, …), without CPU–GPU synchronisation."""
        own, normal, gumbel = (
            buffer.index_select(1, self.position).squeeze(1)
            for buffer in (self.own, self.normal, self.gumbel)
        )
        self.position.add_(1)
        return own, normal, gumbel

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint between two blocks."""
        return {"generators": [generator.get_state() for generator in self._generators]}

    def load_state(self, state: dict[str, Any]) -> None:
        for generator, saved in zip(self._generators, state["generators"], strict=True):
            generator.set_state(saved.cpu())


class Batches(Blocks):
    """Shuffled batches, as the indices of their items (S, B), and noise for every item.

    An epoch of a model is ⌊N_s / batch_size⌋ full batches of a fresh shuffle of its own N_s items;
    the rest of the shuffle is dropped.

    Args:
        items: the indices of every model's own data set, one tensor per model.
        seeds: one per model; equal seeds with equal items give equal batches and noise.
        batch_size: items per batch.
        block: the largest number of steps that `refill` can prepare at once.
        normals: standard normal variates per item.
        gumbels: standard Gumbel variates per item.
    """

    def __init__(
        self,
        items: Sequence[Tensor],
        seeds: Sequence[int],
        batch_size: int,
        block: int,
        normals: int,
        gumbels: int,
    ) -> None:
        for each in items:
            if len(each) < batch_size:
                raise ValueError(
                    f"a data set of {len(each)} items does not fill one batch of {batch_size}"
                )
        shape, device = (len(items), block, batch_size), items[0].device
        numbers = torch.zeros(shape, dtype=torch.int64, device=device)
        super().__init__(
            seeds,
            numbers,
            torch.zeros(*shape, normals, device=device),
            torch.zeros(*shape, gumbels, device=device),
        )
        self._items, self._batch_size = list(items), batch_size
        self._orders = [each[:0] for each in items]
        self._taken = [0 for _ in items]

    def _fill_own(self, model: int, steps: int, generator: torch.Generator) -> None:
        done = 0
        while done < steps:
            done += self._take(model, done, steps - done, generator)

    def _take(self, model: int, start: int, wanted: int, generator: torch.Generator) -> int:
        """Takes up to `wanted` batches of the current shuffle, or of a new one if no full batch is
        left; returns their number.
        """
        size, items = self._batch_size, self._items[model]
        if len(self._orders[model]) - self._taken[model] < size:
            order = torch.randperm(len(items), generator=generator, device=items.device)
            self._orders[model], self._taken[model] = items[order], 0
        taken = self._taken[model]
        number = min(wanted, (len(items) - taken) // size)
        self.own[model, start : start + number] = self._orders[model][
            taken : taken + number * size
        ].view(number, size)
        self._taken[model] = taken + number * size
        return number

    def state(self) -> dict[str, Any]:
        return {**super().state(), "orders": list(self._orders), "taken": list(self._taken)}

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self._orders, self._taken = list(state["orders"]), list(state["taken"])


class StackedAdam:
    """Adam (Kingma, Ba 2015) with one learning rate per model of a stack.

    Args:
        parameters: each with a leading dimension of models.
        rates: one per model, (S,); every replay of a captured step reads the current values.
        compiled: fuse the update by ``torch.compile``.
        copies: of the parameters in another dtype, possibly padded, in the same order; None for a
            parameter without a copy. Gradients are taken with respect to the copies, and every
            update is written to them.
    """

    DECAYS, EPSILON = (0.9, 0.999), 1e-8

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        rates: Tensor,
        compiled: bool = False,
        copies: Sequence[Tensor | None] | None = None,
    ) -> None:
        self.parameters = list(parameters)
        self.copies = [None for _ in self.parameters] if copies is None else list(copies)
        self.rates = rates
        self.firsts = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.seconds = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.steps = torch.zeros((), device=rates.device)
        self._update = (
            torch.compile(_adam_update_, fullgraph=True, dynamic=False)
            if compiled
            else _adam_update_
        )

    @torch.no_grad()
    def step(self, loss: Tensor) -> None:
        """One update of all parameters that the loss depends on."""
        self.steps.add_(1)
        leaves = [
            parameter if copy is None else copy
            for parameter, copy in zip(self.parameters, self.copies, strict=True)
        ]
        # .backward() would copy some of the gradients
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        everything = zip(
            self.parameters, self.copies, self.firsts, self.seconds, gradients, strict=True
        )
        self._update([row for row in everything if row[-1] is not None], self.rates, self.steps)

    @torch.no_grad()
    def renew_copies(self) -> None:
        """Updates the copies after the parameters were set by other code."""
        for parameter, copy in zip(self.parameters, self.copies, strict=True):
            if copy is not None:
                _own_part(copy, parameter).copy_(parameter)

    def moments(self, parameter: nn.Parameter) -> tuple[Tensor, Tensor]:
        """The first and second moments of one parameter."""
        place = next(place for place, own in enumerate(self.parameters) if own is parameter)
        return self.firsts[place], self.seconds[place]

    def state(self) -> dict[str, Any]:
        return {"firsts": self.firsts, "seconds": self.seconds, "steps": self.steps}

    @torch.no_grad()
    def load_state(self, state: dict[str, Any]) -> None:
        for own, saved in (
            (self.firsts, state["firsts"]),
            (self.seconds, state["seconds"]),
            ([self.steps], [state["steps"]]),
        ):
            for value, other in zip(own, saved, strict=True):
                value.copy_(other)


def _own_part(filled: Tensor, parameter: Tensor) -> Tensor:
    """The part of a padded copy that belongs to the parameter."""
    return filled[tuple(slice(size) for size in parameter.shape)]


def _adam_update_(moving: Sequence[Any], rates: Tensor, steps: Tensor) -> None:
    """`moving` holds for every parameter: itself, its copy, its two moments and its gradient."""
    slow, slower = StackedAdam.DECAYS
    scale = rates / (1 - slow**steps)
    root = (1 - slower**steps).sqrt()
    for parameter, copy, first, second, given in moving:
        gradient = _own_part(given, parameter).to(first.dtype)
        first.lerp_(gradient, 1 - slow)
        second.mul_(slower).addcmul_(gradient, gradient, value=1 - slower)
        rate = scale.view(-1, *[1] * (parameter.ndim - 1))
        parameter.addcdiv_(
            rate * first, second.sqrt().div_(root).add_(StackedAdam.EPSILON), value=-1
        )
        if copy is not None:
            _own_part(copy, parameter).copy_(parameter)


class Replayed:
    """Repeats a step without arguments and result. On a CUDA device the first few calls run the
    step itself; later ones replay it as a CUDA graph.

    Args:
        step: works in place on tensors of fixed shape, without CPU–GPU synchronisation.
        device: where the step computes.
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
        elif self._called < self.WARM_UP:  # these are real steps: nothing has to be undone
            self._call_aside()
        else:
            if self._graph is None:
                self._graph = self._capture()
            self._graph.replay()
        self._called += 1

    def _call_aside(self) -> None:
        """Runs the step on a side stream, as the capture will."""
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
