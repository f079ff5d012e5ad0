"""Inversion of tabulated distributions in a few memory look-ups a draw."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# Pigeonholes a row has per column, at least: with more, fewer draws look at a second column, and the table leaves the cache.
_HOLES_PER_COLUMN = 4


@dataclass(frozen=True)
class Lookup:
    """R distributions over W columns, laid end to end: ``steps[r·W + a]`` is r + P(column ≤ a in row r).

    ``guide`` remembers for each of a row's equal pigeonholes of [0, 1) where a search has to start, so that a search takes one or two
    comparisons instead of log₂(RW) (Chen and Asau, 1974).
    """

    rows: int
    columns: int
    holes: int
    steps: Tensor
    guide: Tensor
    last_possible: Tensor

    @classmethod
    def build(cls, mass: Tensor) -> Lookup:
        """From unnormalised masses ``(R, W)``."""
        rows, columns = mass.shape
        cumulative = mass.cumsum(-1)
        whole = cumulative[:, -1:]
        cumulative = torch.where(whole > 0, cumulative / whole, 1.0)  # a row that underflowed is never asked for
        first = torch.arange(rows, dtype=mass.dtype, device=mass.device).unsqueeze(-1)
        steps = (cumulative + first).flatten()
        holes = 1 << math.ceil(math.log2(_HOLES_PER_COLUMN * columns))
        starts = first + torch.arange(holes, dtype=mass.dtype, device=mass.device) / holes
        guide = torch.searchsorted(steps, starts.flatten(), right=True, out_int32=True)
        last_possible = columns * torch.arange(rows, device=mass.device) + (cumulative < 1).sum(-1)
        return cls(rows, columns, holes, steps, guide, last_possible)

    def draw(self, row: Tensor) -> Tensor:
        """A column for each int64 entry of `row`."""
        uniform = torch.rand(row.shape, dtype=self.steps.dtype, device=row.device)
        hole = torch.add((uniform * self.holes).to(torch.int64), row, alpha=self.holes)
        target = uniform + row
        cell = self.guide.index_select(0, hole)
        cell += target >= self.steps.index_select(0, cell)
        cell.clamp_(max=len(self.steps) - 1)
        late = torch.nonzero(target >= self.steps.index_select(0, cell)).squeeze(-1)
        cell.index_copy_(0, late, torch.searchsorted(self.steps, target.index_select(0, late), right=True, out_int32=True))
        # u + row can round up to the next row, where the last possible outcome of this one is meant.
        cell = torch.minimum(cell, self.last_possible.index_select(0, row))
        return torch.sub(cell, row, alpha=self.columns)
