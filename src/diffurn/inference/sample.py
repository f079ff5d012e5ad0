"""The rows that a likelihood is summed over: many data sets side by side, merged where rows repeat,
split where a limit law factorises.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from diffurn import _fisher as exact
from diffurn._numerics.batching import elements_per_chunk
from diffurn.inference.shards import summed_over_processes

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


@dataclass(frozen=True)
class Sample:
    """D data sets of R rows each, all in float64.

    Attributes:
        counts: x, shape ``(D, R, c)``; fractional where a row stands for the average of several.
        group_sizes: m, shape ``(D, R, c)``.
        frequencies: how often each row occurred, shape ``(D, R)``.
        features: of each ball's group, shape ``(D, R, c, p)``; None if every group has a weight of
            its own.
        constant: what averaging rows took out of the log-likelihood, shape ``(D,)``.
        process_group: those who have more rows of the same data sets; None if nobody has. What is
            summed over rows has to be `summed`.
    """

    counts: Tensor
    group_sizes: Tensor
    frequencies: Tensor
    features: Tensor | None
    constant: Tensor
    process_group: ProcessGroup | None = None

    def summed(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """Sums over the rows in this process as sums over all rows; every process must ask for the
        same.
        """
        return (
            parts
            if self.process_group is None
            else summed_over_processes(self.process_group, parts)
        )

    @property
    def parameters(self) -> int:
        return self.counts.shape[-1] if self.features is None else self.features.shape[-1]

    @property
    def draws(self) -> Tensor:
        return self.counts.sum(-1).round()

    @property
    def undetermined(self) -> Tensor:
        """Rows in which something could have come out differently, ``(D, R)``."""
        several = (self.group_sizes > 0).sum(-1) > 1
        return (
            several
            & (self.frequencies > 0)
            & (self.draws > 0)
            & (self.draws < self.group_sizes.sum(-1))
        )

    @property
    def competing(self) -> Tensor:
        """Groups with balls in rows in which something could have come out differently, ``(D, R,
        c)``.
        """
        return (self.group_sizes > 0) & self.undetermined.unsqueeze(-1)

    @cached_property
    def totals(self) -> tuple[Tensor, Tensor]:
        """Balls that were drawn and balls that were available, of each group in all rows, ``(D,
        c)`` each.
        """
        weight = self.frequencies.unsqueeze(-1)
        drawn, available = self.summed(
            (weight * self.counts).sum(1), (weight * self.group_sizes).sum(1)
        )
        return drawn, available

    @property
    def absent(self) -> Tensor:
        """Groups without a ball in any row, ``(D, c)``."""
        return self.totals[1] == 0

    @property
    def centred_features(self) -> Tensor:
        """Features less their average over the competing groups of the row, zero for other groups,
        ``(D, R, c, p)``.

        What all groups of a row have in common cancels; left in, a large common part, as of dates,
        would cost digits.
        """
        assert self.features is not None
        competing = self.competing.unsqueeze(-1)
        average = torch.where(competing, self.features, 0.0).sum(-2, keepdim=True) / competing.sum(
            -2, keepdim=True
        ).clamp(min=1)
        return torch.where(competing, self.features - average, 0.0)

    def log_weights(self, coefficients: Tensor) -> Tensor:
        """log ω of every row, ``(D, R, c)``, at β ``(D, p)``: the coefficients themselves, or
        features · β.
        """
        if self.features is None:
            return coefficients.unsqueeze(-2).expand(self.counts.shape)
        return (self.features @ coefficients[:, None, :, None]).squeeze(-1)

    def tiles(self, work: int) -> Iterator[tuple[slice, Sample]]:
        """All rows in tiles that stay in the cache, each with its data sets: whole ones, or a piece
        of one; `work` elements per row.
        """
        sets, rows, _ = self.counts.shape
        rows_at_once = max(1, elements_per_chunk(self.counts.device) // work)
        sets_at_once = max(1, rows_at_once // rows)
        for some in (slice(first, first + sets_at_once) for first in range(0, sets, sets_at_once)):
            for part in (
                slice(first, first + rows_at_once) for first in range(0, rows, rows_at_once)
            ):
                features = None if self.features is None else self.features[some, part]
                counts, sizes, frequencies = (
                    x[some, part] for x in (self.counts, self.group_sizes, self.frequencies)
                )
                yield (
                    some,
                    Sample(
                        counts,
                        sizes,
                        frequencies,
                        features,
                        self.constant[some],
                        self.process_group,
                    ),
                )

    def pick(self, data_sets: Tensor) -> Sample:
        """Some of the data sets, repeated if asked for more than once."""
        features = None if self.features is None else _taken(self.features, data_sets)
        counts, sizes, frequencies, constant = (
            _taken(x, data_sets)
            for x in (self.counts, self.group_sizes, self.frequencies, self.constant)
        )
        return Sample(counts, sizes, frequencies, features, constant, self.process_group)

    def pick_rows(self, rows: Tensor) -> Sample:
        features = None if self.features is None else self.features[:, rows]
        return replace(
            self,
            counts=self.counts[:, rows],
            group_sizes=self.group_sizes[:, rows],
            frequencies=self.frequencies[:, rows],
            features=features,
        )

    def split(self, labels: Tensor) -> Sample:
        """Each row as one row per label ``(D, R or 1, c)`` of its groups: the urn of those groups
        alone, with what they gave as draws.
        """
        groups = self.counts.shape[-1]
        member = labels.unsqueeze(-2) == torch.arange(groups, device=labels.device).unsqueeze(-1)
        counts, sizes = (
            torch.where(member, x.unsqueeze(-2), 0.0).flatten(1, 2)
            for x in (self.counts, self.group_sizes)
        )
        features = (
            None
            if self.features is None
            else self.features.unsqueeze(2).expand(-1, -1, groups, -1, -1).flatten(1, 2)
        )
        whole = Sample(
            counts,
            sizes,
            self.frequencies.repeat_interleave(groups, 1),
            features,
            self.constant,
            self.process_group,
        )
        matters = whole.undetermined.any(0)
        matters[0] = True  # a sample has at least one row
        return whole.pick_rows(matters)

    def merged(self, average: bool) -> Sample:
        """Rows that are alike in every data set as one row, if that at least halves them: alike in
        m and n (`average`), or in m and x.
        """
        rows = self.counts.shape[1]
        if rows == 1 or self.features is not None:
            return self
        key = torch.cat(
            [self.group_sizes, self.draws.unsqueeze(-1) if average else self.counts], -1
        )
        key = key.transpose(0, 1).reshape(rows, -1).to(torch.int64)
        alike, first = _alike(key)
        if 2 * len(first) > rows or not torch.equal(key[first][alike], key):
            return self
        frequencies = _sum_alike(self.frequencies.unsqueeze(-1), alike, len(first))
        counts = _sum_alike(
            self.frequencies.unsqueeze(-1) * self.counts, alike, len(first)
        ) / frequencies.clamp(min=1)
        sizes = self.group_sizes[:, first]
        counts = torch.where(frequencies > 0, counts, self.counts[:, first])
        constant = (
            self.constant
            + self._coefficients()
            - Sample(counts, sizes, frequencies[..., 0], None, self.constant)._coefficients()
        )
        return Sample(counts, sizes, frequencies[..., 0], None, constant, self.process_group)

    def _coefficients(self) -> Tensor:
        """Σ f log C(m, x) up to a term that depends on m and n alone, ``(D,)``; at the odds of n in
        Σm nothing large is involved.
        """
        draws, total = self.draws.unsqueeze(-1), self.group_sizes.sum(-1, keepdim=True)
        log_pmf = exact.binomial_log_pmf(
            self.counts, self.group_sizes, exact.typical_log_odds(draws, total)
        )
        return (self.frequencies * log_pmf.sum(-1)).sum(-1)


def _taken(values: Tensor, data_sets: Tensor) -> Tensor:
    """values[data_sets], without copying what all data sets share."""
    if len(values) == 1 or values.stride(0) == 0:
        return values[:1].expand(len(data_sets), *values.shape[1:])
    return values[data_sets]


def _alike(key: Tensor) -> tuple[Tensor, Tensor]:
    """For each row of `key` the number of its class, and for each class one row; by a random hash,
    which the caller checks.
    """
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**62), 2**62, (key.shape[-1],), generator=generator).to(key.device)
    hashes = (key * factors).sum(-1)  # integers wrap around, as a hash should
    _, alike = torch.unique(hashes, return_inverse=True)
    classes = int(alike.max()) + 1
    first = torch.zeros(classes, dtype=torch.int64, device=key.device)
    first[alike] = torch.arange(len(key), device=key.device)
    return alike, first


def _sum_alike(values: Tensor, alike: Tensor, classes: int) -> Tensor:
    """Sums of values ``(D, R, k)`` over the rows of each class."""
    index = alike[:, None].expand(values.shape[1:])
    return torch.stack(
        [
            torch.zeros(
                classes, values.shape[-1], dtype=values.dtype, device=values.device
            ).scatter_add(0, index, v)
            for v in values
        ]
    )
