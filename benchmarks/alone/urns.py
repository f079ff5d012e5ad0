"""Batches of urns that the cells of this package are measured on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.cells import short


@dataclass(frozen=True)
class Urns:
    """A batch of urns whose groups are all of one size.

    Attributes:
        groups: c.
        group_size: m.
        draws: n.
        batch: B, how many log-weight vectors.
        given: how sizes and draws are given: as a "list" and an int, a "tensor" and an int, or a
            "batch" of tensors with sizes for every urn.
        dtype: of the weights.
    """

    groups: int
    group_size: int
    draws: int
    batch: int
    given: str = "tensor"
    dtype: torch.dtype = torch.float64

    def words(self) -> str:
        sizes = f"c = {self.groups:,}, m = {short(self.group_size)}, n = {short(self.draws)}"
        precision = "" if self.dtype == torch.float64 else f", {str(self.dtype)[6:]}"
        return f"{sizes}, B = {short(self.batch)}{precision}, sizes as a {self.given}"

    def sizes(self, device: torch.device) -> tuple[Any, Any]:
        """Group sizes and draws, as they are given."""
        if self.given == "list":
            return [self.group_size] * self.groups, self.draws
        if self.given == "tensor":
            return torch.full((self.groups,), self.group_size, device=device), self.draws
        sizes = torch.full((self.batch, self.groups), self.group_size, device=device)
        return sizes, torch.full((self.batch,), self.draws, device=device)

    def log_weights(self, device: torch.device) -> Tensor:
        shape = (self.groups,) if self.batch == 1 else (self.batch, self.groups)
        generator = torch.Generator().manual_seed(0)
        drawn = torch.randn(shape, dtype=torch.float64, generator=generator)
        return drawn.to(device, self.dtype)

    def counts(self, device: torch.device) -> Tensor:
        """The draws divided evenly over the groups."""
        share, rest = divmod(self.draws, self.groups)
        counts = torch.full((self.groups,), share, dtype=self.dtype)
        counts[:rest] += 1
        return counts.to(device).expand(self.log_weights(device).shape)
