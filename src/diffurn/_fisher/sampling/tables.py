"""Many draws of few urns, from alias tables that are built once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from diffurn._fisher.nodes import half_width
from diffurn._fisher.quadrature import FisherLaw, GivenDraws, Quadrature
from diffurn._fisher.sampling.tree import Outcomes, Tree, likely_outcomes
from diffurn._fisher.tilt import log_tilt
from diffurn._kernels.dispatch import can_call, sampling_kernels
from diffurn._numerics.batching import elements_per_chunk
from diffurn._numerics.binomial import binomial_variance

# Tables of up to this many cells, about ten megabytes, are cached for the next call.
_CELLS_TO_KEEP = 1 << 19

Kind = Literal["outcomes", "chain", "tree"]


class _PlainUrn(NamedTuple):
    """A tilted urn in plain numbers."""

    log_odds: tuple[float, ...]
    group_sizes: tuple[float, ...]
    draws: float


class PlainUrns(NamedTuple):
    """A batch of urns in plain numbers, and about the size of the largest urn's tables."""

    rows: tuple[_PlainUrn, ...]
    cells: float
    outcomes: float

    @classmethod
    def read(cls, log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> PlainUrns:
        """From tensors, with one CPU-GPU synchronisation; tilts are cached."""
        groups = log_weights.shape[-1]
        weights = log_weights.detach().reshape(-1, groups)
        rows = torch.cat([weights, group_sizes.reshape(-1, groups), draws.reshape(-1, 1)], -1)
        return _tilted(tuple(map(tuple, rows.tolist())))


@lru_cache(maxsize=16)
def _tilted(urns: tuple[tuple[float, ...], ...]) -> PlainUrns:
    """From rows that hold the log-weights, then the group sizes, then the draws."""
    numbers = torch.tensor(urns, dtype=torch.float64, device="cpu").reshape(len(urns), -1)
    groups = numbers.shape[-1] // 2
    log_weights, sizes, draws = numbers[:, :groups], numbers[:, groups:-1], numbers[:, -1]
    log_odds = log_weights + log_tilt(log_weights, sizes, draws).unsqueeze(-1)
    rows = zip(log_odds.tolist(), sizes.tolist(), draws.tolist(), strict=True)
    found = tuple(_PlainUrn(tuple(odds), tuple(balls), n) for odds, balls, n in rows)
    outcomes = _most_outcomes(log_odds, sizes) if found else 0.0
    return PlainUrns(found, _most_cells(log_odds, sizes), outcomes)


def _most_cells(log_odds: Tensor, group_sizes: Tensor) -> float:
    """About the cells of the largest urn's tree: at every split, totals × counts of the left."""
    variance, sizes = binomial_variance(group_sizes, log_odds), group_sizes
    cells = torch.zeros_like(variance[:, 0])
    while variance.shape[-1] > 1:
        odd = variance.shape[-1] % 2
        widths = torch.minimum(2 * half_width(variance), sizes) + 1
        variance = torch.nn.functional.pad(variance, (0, odd)).unflatten(-1, (-1, 2)).sum(-1)
        sizes = torch.nn.functional.pad(sizes, (0, odd)).unflatten(-1, (-1, 2)).sum(-1)
        rows = torch.ones_like(variance)
        if variance.shape[-1] > 1:
            rows = torch.minimum(2 * half_width(variance), sizes) + 1
        cells = cells + (rows * widths[:, ::2]).sum(-1)
    return math.inf if not len(cells) else float(cells.max())


def _most_outcomes(log_odds: Tensor, group_sizes: Tensor) -> float:
    """About the likely outcomes of the largest urn: those of all groups but the widest."""
    variance = binomial_variance(group_sizes, log_odds)
    widths = torch.minimum(2 * half_width(variance), group_sizes) + 1
    return float(widths.sort(-1).values[:, :-1].log().sum(-1).max().exp())


@dataclass(frozen=True)
class AliasTables(FisherLaw):
    """Fisher's law of a few urns, for many draws of each.

    Args:
        urns: the urns in plain numbers.
        kind: one table of all outcomes, or tables at the splits of a tree or of a chain.
        log_weights, group_sizes, draws: the same urns as tensors.
    """

    urns: PlainUrns
    kind: Kind
    log_weights: Tensor
    group_sizes: Tensor
    draws: Tensor

    @property
    def general(self) -> Quadrature:
        return Quadrature(self.log_weights, self.group_sizes, self.draws)

    def sample(self, num_samples: int, dtype: torch.dtype) -> Tensor:
        device, groups = self.draws.device, self.log_weights.shape[-1]
        build = _kept_table if self.urns.cells <= _CELLS_TO_KEEP else _kept_table.__wrapped__
        counts = torch.empty(num_samples, len(self.urns.rows), groups, dtype=dtype, device=device)
        per_piece = num_samples if self.kind == "chain" else elements_per_chunk(device) // 4
        for urn, own in zip(self.urns.rows, counts.unbind(1), strict=True):
            table = build(urn, self.kind, dtype, device, device.type == "cpu" and can_call())
            for piece in own.split(per_piece):
                table.fill(piece)
        return counts.reshape(num_samples, *self.log_weights.shape)

    def rsample(self, num_samples: int) -> Tensor:
        counts = self.sample(num_samples, self.log_weights.dtype)
        return GivenDraws.of(*self.general.tilted, counts)


@lru_cache(maxsize=4)
def _kept_table(
    urn: _PlainUrn, kind: Kind, dtype: torch.dtype, device: torch.device, in_c: bool
) -> Any:
    """A table with a method `fill`; those for kernels are built on the CPU, which is faster."""
    odds, sizes, draws = (torch.tensor(values, dtype=torch.float64, device="cpu") for values in urn)
    kernels = sampling_kernels(device)
    if kind == "chain":
        return kernels.ChainOnDevice.of(Tree.build(odds, sizes, draws, chain=True), device)
    if kind == "outcomes" and kernels is not None:
        return kernels.OutcomesOnDevice.of(Outcomes.build(odds, sizes, draws, dtype), device)
    if kind == "outcomes" and in_c:
        from diffurn._kernels.native.sampling import Table

        return Table(*likely_outcomes(odds, sizes, draws))
    on_device = odds.to(device), sizes.to(device), draws.to(device)
    if kind == "outcomes":
        return Outcomes.build(*on_device, dtype)
    return Tree.build(*on_device)
