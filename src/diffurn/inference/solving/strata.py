"""The rows of a conditional logistic regression: strata of cases and controls, of any sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from diffurn._fisher import regression
from diffurn._kernels.dispatch import can_call
from diffurn._numerics.batching import elements_per_chunk
from diffurn._numerics.ragged import batches, grouped
from diffurn._wallenius.regression import log_prob_and_information
from diffurn.inference.solving.likelihood import Evaluation, Objective
from diffurn.inference.solving.rows import TIE
from diffurn.inference.solving.sample import all_reduced

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# The recursion over the balls is faster than the quadrature up to about so many numbers per step
# (measured), and it takes a step for every ball.
_STATE = 200
_STEPS = 64
# A differentiated tile keeps about so many numbers for each number of an ordinary one.
_KEPT = 30

ONE, FEW, ANY, WALLENIUS = range(4)
Derivatives = tuple[Tensor, Tensor, Tensor]


def _wallenius(log_weights: Tensor, present: Tensor, drawn: Tensor, vectors: Tensor) -> Derivatives:
    heaviest = torch.where(present > 0, log_weights, -torch.inf).amax(-1, keepdim=True)
    return log_prob_and_information(log_weights - heaviest, present, drawn, vectors)


METHODS: dict[int, Callable[[Tensor, Tensor, Tensor, Tensor], Derivatives]] = {
    ONE: regression.one_drawn,
    FEW: regression.few_drawn,
    ANY: regression.any_drawn,
    WALLENIUS: _wallenius,
}


@dataclass(frozen=True, eq=False)
class Tile:
    """Strata of similar size, computed by one method.

    Where few rows are controls, these are drawn: the controls are a subset with the weights 1/ω.

    Attributes:
        method: of `METHODS`.
        sign: 1, or -1 where controls are drawn.
        strata: their numbers, ``(B,)``.
        rows: the numbers of their rows, ``(B, c)``.
        present: 1, or 0 at a place without a row, ``(B, c)``.
        drawn: 1 for a row that is drawn, ``(B, c)``.
        design: ``(B, c, p)``.
        offset: ``(B, c)``.
        frequencies: ``(B,)``.
    """

    method: int
    sign: int
    strata: Tensor
    rows: Tensor
    present: Tensor
    drawn: Tensor
    design: Tensor
    offset: Tensor
    frequencies: Tensor

    @property
    def work(self) -> int:
        """In the unit of progress bars, for one data set."""
        return self.rows.numel()

    def log_weights(self, coefficients: Tensor) -> Tensor:
        """log ω of every row at β ``(p,)``, ``(B, c)``."""
        return self.design @ coefficients + self.offset

    def derivatives(self, coefficients: Tensor) -> Derivatives:
        """log P of every stratum at β ``(p,)``, its gradient and minus its Hessian."""
        log_weights = self.sign * self.log_weights(coefficients)
        method = METHODS[self.method]
        return method(log_weights, self.present, self.drawn, self.sign * self.design)


@dataclass(frozen=True, eq=False)
class Strata:
    """Strata of cases and controls, one after another; D data sets that are all the same.

    The strata of a limit distribution are parts of strata.

    Attributes:
        design: ``(N, p)``, float64, centred within strata.
        events: 1 for a case, 0 for a control, ``(N,)``.
        offset: ``(N,)``.
        numbers: of the stratum of each row, from 0 upwards, ``(N,)``.
        sizes: of the strata, ``(S,)``.
        frequencies: how often each stratum occurred, ``(S,)``.
        origins: the row as given that each row is, ``(N,)``.
        names: of the p coefficients.
        wallenius: whether cases are drawn one after another.
        sets: D.
        process_group: processes that hold more strata.
    """

    design: Tensor
    events: Tensor
    offset: Tensor
    numbers: Tensor
    sizes: Tensor
    frequencies: Tensor
    origins: Tensor
    names: tuple[str, ...]
    wallenius: bool = False
    sets: int = 1
    process_group: ProcessGroup | None = None

    @classmethod
    def of(
        cls,
        design: Tensor,
        events: Tensor,
        offset: Tensor,
        labels: Tensor,
        frequencies: Tensor,
        origins: Tensor,
        names: tuple[str, ...],
        wallenius: bool = False,
        process_group: ProcessGroup | None = None,
    ) -> Strata:
        """Sorted by the labels of strata, without strata that have no case or no control;
        `frequencies` are those of the rows.
        """
        order, numbers, sizes = grouped(labels)
        cases = _sum(events[order], numbers, len(sizes))
        kept = (cases > 0) & (cases < sizes)
        firsts = sizes.cumsum(0) - sizes
        frequencies = frequencies[order][firsts]
        kept = kept & (frequencies > 0)
        order = order[kept[numbers]]
        sizes, frequencies = sizes[kept], frequencies[kept]
        numbers = torch.repeat_interleave(torch.arange(len(sizes), device=order.device), sizes)
        columns = design[order]
        mean = _sum(columns, numbers, len(sizes)) / sizes.unsqueeze(-1)
        return cls(
            columns - mean[numbers],
            events[order],
            offset[order],
            numbers,
            sizes,
            frequencies,
            origins[order],
            names,
            wallenius,
            process_group=process_group,
        )

    # --- what the solver asks

    def summed(self, *parts: Tensor) -> tuple[Tensor, ...]:
        return parts if self.process_group is None else all_reduced(parts, self.process_group)

    @property
    def constant(self) -> Tensor:
        return self.design.new_zeros(self.sets)

    @property
    def parameters(self) -> int:
        """The number p of coefficients."""
        return self.design.shape[-1]

    @property
    def cases(self) -> Tensor:
        """Of each stratum, ``(S,)``."""
        return _sum(self.events, self.numbers, len(self.sizes))

    @property
    def drawn(self) -> Tensor:
        (cases,) = self.summed((self.cases * self.frequencies).sum())
        return cases.expand(self.sets)

    @property
    def units(self) -> int:
        return len(self.sizes)

    @cached_property
    def all_units(self) -> int:
        if self.process_group is None:
            return self.units
        return int(self.summed(torch.tensor(self.units, device=self.numbers.device))[0])

    @cached_property
    def work(self) -> int:
        return sum(tile.work for _, tile in self.tiles())

    def pick(self, data_sets: Tensor) -> Strata:
        return replace(self, sets=len(data_sets))

    def pick_rows(self, rows: Tensor) -> Strata:
        """Some of the strata."""
        chosen = torch.zeros(self.units, dtype=torch.bool, device=rows.device)
        chosen[rows] = True
        kept, number = chosen[self.numbers], chosen.cumsum(0) - 1
        return replace(
            self,
            design=self.design[kept],
            events=self.events[kept],
            offset=self.offset[kept],
            numbers=number[self.numbers[kept]],
            sizes=self.sizes[chosen],
            frequencies=self.frequencies[chosen],
            origins=self.origins[kept],
        )

    def tiles(self, differentiated: bool = False) -> list[tuple[slice, Tile]]:
        if differentiated:
            return self._cut(max(1, elements_per_chunk(self.design.device) // _KEPT))
        return self._tiles

    @cached_property
    def _tiles(self) -> list[tuple[slice, Tile]]:
        return self._cut(elements_per_chunk(self.design.device))

    def _cut(self, elements: int) -> list[tuple[slice, Tile]]:
        p, cases = self.parameters, self.cases.to(torch.int64)
        few = cases if self.wallenius else torch.minimum(cases, self.sizes - cases)
        # Strata of one number of draws share a tile if the recursion depends on it.
        # C kernels of the quadrature are faster than the recursion in PyTorch.
        recursive = ((few + 1) * (1 + p + p * p) <= _STATE) & (self.sizes <= _STEPS)
        recursive = recursive & (not can_call(self.design))
        method = torch.where(recursive, FEW, ANY)
        if self.wallenius:
            method = torch.full_like(few, WALLENIUS)
        method = torch.where(few == 1, ONE, method)
        mirrored = few < cases
        depth = torch.where(method == FEW, few, 0)
        kinds = (depth * len(METHODS) + method) * 2 + mirrored
        tiles = []
        for kind, batch in batches(self.sizes, kinds, max(1, elements // (p + 5))):
            sign = -1 if kind % 2 else 1
            events = self.events[batch.rows] * batch.present
            tiles.append(
                Tile(
                    kind // 2 % len(METHODS),
                    sign,
                    batch.groups,
                    batch.rows,
                    batch.present,
                    events if sign > 0 else batch.present - events,
                    self.design[batch.rows] * batch.present.unsqueeze(-1),
                    self.offset[batch.rows],
                    self.frequencies[batch.groups],
                )
            )
        return [(slice(None), tile) for tile in tiles]

    # --- maxima at infinity

    def gram(self) -> Tensor:
        weight = self.frequencies[self.numbers].unsqueeze(-1)
        mean = _sum(self.design, self.numbers, self.units) / self.sizes.unsqueeze(-1)
        centred = self.design - mean[self.numbers]
        return self.summed(centred.mT @ (weight * centred))[0].expand(self.sets, -1, -1)

    def no_labels(self) -> Tensor:
        return torch.zeros(self.sets, 1, len(self.events), dtype=torch.int64).to(self.numbers)

    def _along(self, direction: Tensor) -> tuple[Tensor, Tensor]:
        """z · direction, ``(N, D)``, and the size of its terms within each stratum, ``(S, D)``."""
        highest = _extreme(self.design, self.numbers, self.units, "amax")
        lowest = _extreme(self.design, self.numbers, self.units, "amin")
        return self.design @ direction.mT, (highest - lowest) @ direction.abs().mT

    def separates(self, direction: Tensor, tolerance: float) -> Tensor:
        values, scale = self._along(direction)
        case = self.events.bool().unsqueeze(-1)
        low, high = (
            _extreme(torch.where(case, values, torch.inf), self.numbers, self.units, "amin"),
            _extreme(torch.where(case, -torch.inf, values), self.numbers, self.units, "amax"),
        )
        lowest = _extreme(values, self.numbers, self.units, "amin")
        highest = _extreme(values, self.numbers, self.units, "amax")
        falls, rises = low - high < -tolerance * scale, highest - lowest > tolerance * scale
        falling, rising = self.summed(falls.sum(0), rises.sum(0))
        return (falling == 0) & (rising > 0)

    def refined(self, labels: Tensor, direction: Tensor) -> Tensor:
        values, scale = self._along(direction)
        firsts = self.sizes.cumsum(0) - self.sizes
        result = torch.empty_like(labels)
        for k, (value, size) in enumerate(zip(values.T, scale.T, strict=True)):
            # Neighbours in the order of stratum, label and value are told apart by a gap.
            group = firsts[self.numbers] + labels[k, 0]
            order = value.argsort(stable=True)
            order = order[group[order].argsort(stable=True)]
            gap = value[order].diff() > 2 * TIE * size[self.numbers[order[1:]]]
            new = gap | (group[order].diff() > 0)
            number = torch.cat([new.new_zeros(1), new]).cumsum(0)
            first = torch.full_like(number, len(number))
            first = first.scatter_reduce(0, number, order, "amin")[number]
            result[k, 0, order] = first - firsts[self.numbers[order]]
        return result

    def split(self, labels: Tensor) -> Strata:
        firsts = self.sizes.cumsum(0) - self.sizes
        parts = Strata.of(
            self.design,
            self.events,
            self.offset,
            firsts[self.numbers] + labels[0, 0],
            self.frequencies[self.numbers],
            self.origins,
            self.names,
            self.wallenius,
            self.process_group,
        )
        return replace(parts, sets=self.sets)

    def without(self, column: int) -> Strata:
        others = torch.arange(self.parameters, device=self.design.device) != column
        return replace(self, design=self.design * others)


class StrataObjective(Objective):
    """The (penalised) log-likelihood of strata."""

    def of_tile(self, part: Tile, coefficients: Tensor) -> Evaluation:
        return Evaluation(*self._total(part, coefficients))

    def information_of_tile(self, part: Tile, coefficients: Tensor) -> Tensor:
        return self._total(part, coefficients)[2]

    @staticmethod
    def _total(part: Tile, coefficients: Tensor) -> Derivatives:
        sums = [
            [(part.frequencies @ found.flatten(1)).reshape(found.shape[1:]) for found in three]
            for three in (
                tuple(x.unsqueeze(-1) if x.ndim == 1 else x for x in part.derivatives(beta))
                for beta in coefficients
            )
        ]
        value, score, information = (torch.stack(found) for found in zip(*sums, strict=True))
        return value.squeeze(-1), score, information


def _sum(values: Tensor, numbers: Tensor, groups: int) -> Tensor:
    """Sums of values ``(N, ...)`` over groups of rows."""
    return values.new_zeros(groups, *values.shape[1:]).index_add(0, numbers, values)


def _extreme(values: Tensor, numbers: Tensor, groups: int, which: str) -> Tensor:
    """The largest or smallest values ``(N, k)`` of each group of rows, ``(groups, k)``."""
    start = values.new_full(
        (groups, values.shape[-1]), torch.inf if which == "amin" else -torch.inf
    )
    index = numbers.unsqueeze(-1).expand_as(values)
    return start.scatter_reduce(0, index, values, which)
