"""The rows of a fit: one wrapper around counts, group sizes, frequencies and design."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, distributed

from diffurn._numerics.batching import elements_per_chunk
from diffurn._numerics.binomial import binomial_log_pmf, typical_log_odds
from diffurn.inference.solving.rows import TIE

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# An evaluation of a row holds about this many float64 numbers per group at once.
_ELEMENTS_PER_GROUP = 25


@dataclass(frozen=True, eq=False)
class Sample:
    """D data sets of R rows each; all tensors are float64.

    Attributes:
        counts: x, shape ``(D, R, c)``; fractional where a row is the average of several rows.
        group_sizes: m, shape ``(D, R, c)``.
        frequencies: how often each row occurred, shape ``(D, R)``.
        design: features z of each group, shape ``(D, R, c, p)``, with log ω = z · β. None if every
            group has a weight of its own; β is log ω then.
        groups: names of the c groups.
        names: names of the p coefficients; without a design, the groups.
        batch_shape: shape of the batch of data sets; D is its product.
        constant: the part of the log-likelihood that averaging rows removed, shape ``(D,)``.
        row_numbers: the row as given that each row is, or is a part of, ``(R,)``.
        process_group: processes that hold more rows of the same data sets; None if this process
            holds all rows. Sums over rows must go through `summed`.
    """

    counts: Tensor
    group_sizes: Tensor
    frequencies: Tensor
    design: Tensor | None
    groups: tuple[str, ...]
    names: tuple[str, ...]
    batch_shape: torch.Size
    constant: Tensor
    row_numbers: Tensor
    process_group: ProcessGroup | None = None

    def summed(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """Adds the sums over the rows of all processes. Every process must call this with the same
        parts; all get the same numbers, to the last bit.
        """
        return parts if self.process_group is None else all_reduced(parts, self.process_group)

    # --- directions of covariates

    def centred_design(self) -> Tensor:
        """Features less their average over the competing groups of the row, and zero for other
        groups: ``(D, R, c, p)``.

        A common part of all groups of a row cancels in the likelihood. A large common part, such as
        that of dates, would cost digits if it stayed.
        """
        assert self.design is not None
        competing = self.competing.unsqueeze(-1)
        total = torch.where(competing, self.design, 0.0).sum(-2, keepdim=True)
        average = total / competing.sum(-2, keepdim=True).clamp(min=1)
        return torch.where(competing, self.design - average, 0.0)

    def gram(self) -> Tensor:
        """Σ f zᵀz of centred features z, ``(D, p, p)``: singular where β is not identified."""
        centred = self.centred_design().flatten(1, 2)
        weight = self.frequencies.repeat_interleave(self.counts.shape[-1], 1).unsqueeze(-1)
        return self.summed(centred.mT @ (weight * centred))[0]

    def _along(self, direction: Tensor) -> tuple[Tensor, Tensor]:
        """z · direction ``(D, R, c)`` and the size of its terms within each row ``(D, R)``."""
        assert self.design is not None
        extent = self.design.amax(-2) - self.design.amin(-2)
        values = (self.design @ direction[:, None, :, None]).squeeze(-1)
        return values, (extent @ direction.abs().unsqueeze(-1)).squeeze(-1)

    def separates(self, direction: Tensor, tolerance: float) -> Tensor:
        """Whether the likelihood never falls along a direction ``(D, p)``, and rises somewhere;
        ``(D,)``.
        """
        values, scale = self._along(direction)
        undetermined, competing = self.undetermined, self.competing
        happened = undetermined.unsqueeze(-1)
        drawn, left = self.counts > 0, self.counts < self.group_sizes
        lowest_drawn = torch.where(drawn & happened, values, torch.inf).amin(-1)
        highest_left = torch.where(left & happened, values, -torch.inf).amax(-1)
        never_falls = ~undetermined | (lowest_drawn - highest_left >= -tolerance * scale)
        highest, lowest = (
            torch.where(competing, sign * values, -torch.inf).amax(-1) for sign in (1, -1)
        )
        rises = undetermined & (highest + lowest > tolerance * scale)
        falling, rising = self.summed((~never_falls).sum(-1), rises.sum(-1))
        return (falling == 0) & (rising > 0)

    def no_labels(self) -> Tensor:
        """The labels of a sample that is not split."""
        return torch.zeros_like(self.counts, dtype=torch.int64)

    def refined(self, labels: Tensor, direction: Tensor) -> Tensor:
        """Labels ``(D, R, c)`` that also tell apart groups of a row of different z · direction."""
        values, scale = self._along(direction)
        distance = (values.unsqueeze(-1) - values.unsqueeze(-2)).abs()
        tied = distance <= 2 * TIE * scale[..., None, None]
        return (tied & (labels.unsqueeze(-1) == labels.unsqueeze(-2))).float().argmax(-1)

    def without(self, column: int) -> Sample:
        """The sample with one feature zero everywhere."""
        assert self.design is not None
        others = torch.arange(self.parameters, device=self.design.device) != column
        return replace(self, design=self.design * others)

    # --- properties of the rows

    @property
    def units(self) -> int:
        """The number R of rows of this process."""
        return self.counts.shape[1]

    @cached_property
    def all_units(self) -> int:
        """The number of rows of all processes."""
        if self.process_group is None:
            return self.units
        return int(self.summed(torch.tensor(self.units, device=self.counts.device))[0])

    @property
    def work(self) -> int:
        """What a pass over all rows costs, in the unit of progress bars: rows of all data sets."""
        return self.frequencies.numel()

    @property
    def drawn(self) -> Tensor:
        """Balls drawn in all rows, ``(D,)``."""
        return self.totals[0].sum(-1)

    @property
    def parameters(self) -> int:
        """The number p of coefficients."""
        return self.counts.shape[-1] if self.design is None else self.design.shape[-1]

    @property
    def draws(self) -> Tensor:
        """n of each row, ``(D, R)``."""
        return self.counts.sum(-1).round()

    @property
    def undetermined(self) -> Tensor:
        """Whether another outcome of the row was possible, ``(D, R)``."""
        several = (self.group_sizes > 0).sum(-1) > 1
        draws = self.draws
        some_left = (draws > 0) & (draws < self.group_sizes.sum(-1))
        return several & (self.frequencies > 0) & some_left

    @property
    def competing(self) -> Tensor:
        """Groups with balls in rows with more than one possible outcome, ``(D, R, c)``."""
        return (self.group_sizes > 0) & self.undetermined.unsqueeze(-1)

    @cached_property
    def totals(self) -> tuple[Tensor, Tensor]:
        """Balls drawn and balls available of each group, summed over rows: ``(D, c)`` each."""
        weight = self.frequencies.unsqueeze(-1)
        drawn, available = self.summed(
            (weight * self.counts).sum(1), (weight * self.group_sizes).sum(1)
        )
        return drawn, available

    @property
    def absent(self) -> Tensor:
        """Groups without a ball in any row, ``(D, c)``."""
        return self.totals[1] == 0

    def observed_log_odds(self) -> Tensor:
        """log((x + ½) / (m - x + ½)) relative to the average of its row, averaged over the rows
        with the balls as weights: ``(D, c)``, a rough estimate of log ω.
        """
        weight = self.group_sizes * self.frequencies.unsqueeze(-1)
        log_odds = typical_log_odds(self.counts, self.group_sizes)
        row = (weight * log_odds).sum(-1, keepdim=True) / weight.sum(-1, keepdim=True).clamp(min=1)
        surplus, balls = self.summed((weight * (log_odds - row)).sum(1), weight.sum(1))
        return surplus / balls.clamp(min=1)

    def estimate_from_one_row(self) -> Tensor:
        """The log ω that makes x of the only row its mean, up to a constant and O(1 / m²):
        log(x / (m - x)) + (1 - 2p) / (2 Σ mpq), ``(D, c)``.
        """
        size = self.group_sizes[:, 0] + 1
        p = (self.counts[:, 0] + 0.5) / size
        variance = size * p * (1 - p)
        inverse_sum = variance.sum(-1, keepdim=True).reciprocal()
        # log p/q = log(x / (m - x)) + (1 - 2p) / (2mpq)
        return torch.log(p / (1 - p)) + (0.5 - p) * (inverse_sum - variance.reciprocal())

    def central_expected(self) -> Tensor:
        """Counts expected if all balls were alike, n m_j / Σm summed over rows: ``(D, c)``."""
        share = self.frequencies * self.draws / self.group_sizes.sum(-1)
        return self.summed((share.unsqueeze(-2) @ self.group_sizes).squeeze(-2))[0]

    def central_log_likelihood(self) -> Tensor:
        """Log-likelihood if all balls were alike, ``(D,)``; the same for both models."""
        return self.summed(self.constant + self._central())[0]

    def _central(self) -> Tensor:
        """Σ f log [Π C(m_j, x_j) / C(Σm, n)] over the rows of this process, ``(D,)``.

        Each binomial coefficient is taken as a binomial probability at the odds of n in Σm. The
        powers of these odds cancel, and no term is large.
        """
        draws, total = self.draws.unsqueeze(-1), self.group_sizes.sum(-1, keepdim=True)
        log_pmf = binomial_log_pmf(
            torch.cat([self.counts, draws], -1),
            torch.cat([self.group_sizes, total], -1),
            typical_log_odds(draws, total),
        )
        per_row = log_pmf[..., :-1].sum(-1) - log_pmf[..., -1]
        return (self.frequencies * per_row).sum(-1)

    # --- parts of the rows

    def _each(self, of_rows: Callable[[Tensor], Tensor]) -> Sample:
        """The same selection of every tensor that has rows."""
        return replace(
            self,
            counts=of_rows(self.counts),
            group_sizes=of_rows(self.group_sizes),
            frequencies=of_rows(self.frequencies),
            design=None if self.design is None else of_rows(self.design),
        )

    def pick(self, data_sets: Tensor) -> Sample:
        """Some of the data sets; a data set may be picked several times."""
        picked = self._each(lambda tensor: _taken(tensor, data_sets))
        shape = torch.Size([len(data_sets)])
        return replace(picked, constant=_taken(self.constant, data_sets), batch_shape=shape)

    def pick_rows(self, rows: Tensor) -> Sample:
        """Some of the rows of every data set."""
        return replace(
            self._each(lambda tensor: tensor[:, rows]), row_numbers=self.row_numbers[rows]
        )

    def tiles(self, differentiated: bool = False) -> list[tuple[slice, Sample]]:
        """All rows in tiles that fit the cache, each with the slice of its data sets.

        A tile holds several whole data sets, or some rows of one. If the information is to be
        differentiated, a tile is smaller, since a covariance matrix is kept for each row.
        """
        sets, rows, groups = self.counts.shape
        work = groups * (groups if differentiated else 1) * _ELEMENTS_PER_GROUP
        rows_at_once = max(1, elements_per_chunk(self.counts.device) // work)
        if sets * rows <= rows_at_once:
            return [(slice(None), self)]
        sets_at_once = max(1, rows_at_once // rows)
        return [
            (some, self._tile(some, part))
            for some in _slices(sets, sets_at_once)
            for part in _slices(rows, rows_at_once)
        ]

    def _tile(self, some: slice, part: slice) -> Sample:
        return replace(
            self._each(lambda tensor: tensor[some, part]),
            constant=self.constant[some],
            row_numbers=self.row_numbers[part],
        )

    def split(self, labels: Tensor) -> Sample:
        """Every row becomes one row per label ``(D, R or 1, c)``: an urn of the groups with that
        label alone, with the balls drawn of these groups.
        """
        groups = self.counts.shape[-1]
        member = labels.unsqueeze(-2) == torch.arange(groups, device=labels.device).unsqueeze(-1)
        counts, sizes = (
            torch.where(member, x.unsqueeze(-2), 0.0).flatten(1, 2)
            for x in (self.counts, self.group_sizes)
        )
        design = self.design
        if design is not None:
            design = design.unsqueeze(2).expand(-1, -1, groups, -1, -1).flatten(1, 2)
        frequencies = self.frequencies.repeat_interleave(groups, 1)
        whole = replace(
            self,
            counts=counts,
            group_sizes=sizes,
            frequencies=frequencies,
            design=design,
            row_numbers=self.row_numbers.repeat_interleave(groups),
        )
        matters = whole.undetermined.any(0)
        matters[0] = True  # a sample has at least one row
        return whole.pick_rows(matters)

    def merged(self, average: bool) -> Sample:
        """Equal rows as one row with a higher frequency, if this at least halves their number.

        Rows are equal if they agree in every data set: in m and x, or, with `average`, in m and n;
        the row that is left then has their average x.
        """
        rows = self.counts.shape[1]
        if rows == 1 or self.design is not None:
            return self
        last = self.draws.unsqueeze(-1) if average else self.counts
        key = torch.cat([self.group_sizes, last], -1)
        key = key.transpose(0, 1).reshape(rows, -1).to(torch.int64)
        classes, first = _classes(key)
        if 2 * len(first) > rows or not torch.equal(key[first][classes], key):
            return self
        weight = self.frequencies.unsqueeze(-1)
        frequencies = _sum_by_class(weight, classes, len(first))
        counts = _sum_by_class(weight * self.counts, classes, len(first))
        counts = torch.where(
            frequencies > 0, counts / frequencies.clamp(min=1), self.counts[:, first]
        )
        merged = replace(
            self,
            counts=counts,
            group_sizes=self.group_sizes[:, first],
            frequencies=frequencies.squeeze(-1),
            row_numbers=self.row_numbers[first],
        )
        return replace(merged, constant=self.constant + self._central() - merged._central())


def all_reduced(parts: tuple[Tensor, ...], process_group: ProcessGroup) -> tuple[Tensor, ...]:
    """The sums of tensors over all processes, in one message, which is faster than many."""
    message = torch.cat([part.double().flatten() for part in parts])
    distributed.all_reduce(message, group=process_group)
    sums = message.split([part.numel() for part in parts])
    return tuple(
        total.reshape(part.shape).to(part.dtype) for total, part in zip(sums, parts, strict=True)
    )


def _slices(number: int, at_once: int) -> list[slice]:
    return [slice(first, first + at_once) for first in range(0, number, at_once)]


def _taken(values: Tensor, data_sets: Tensor) -> Tensor:
    """values[data_sets], without a copy if all data sets share one value."""
    if len(values) == 1 or values.stride(0) == 0:
        return values[:1].expand(len(data_sets), *values.shape[1:])
    return values[data_sets]


def _classes(key: Tensor) -> tuple[Tensor, Tensor]:
    """The class number of each row of `key`, and one row of each class. Rows of a class have equal
    hashes; the caller checks that they are equal.
    """
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**62), 2**62, (key.shape[-1],), generator=generator).to(key.device)
    hashes = (key * factors).sum(-1)  # integers wrap around, as a hash should
    _, classes = torch.unique(hashes, return_inverse=True)
    first = torch.zeros(int(classes.max()) + 1, dtype=torch.int64, device=key.device)
    first[classes] = torch.arange(len(key), device=key.device)
    return classes, first


def _sum_by_class(values: Tensor, classes: Tensor, number: int) -> Tensor:
    """Sums of values ``(D, R, k)`` over the rows of each class, ``(D, number, k)``."""
    sums = values.new_zeros(len(values), number, values.shape[-1])
    return sums.scatter_add(1, classes[:, None].expand_as(values), values)
