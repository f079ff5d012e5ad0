"""The alias method: draws from tabulated distributions in a few memory look-ups each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Columns of a smaller probability are left out, since 63 random bits cannot resolve them.
_NEGLIGIBLE = 2.0**-64


@dataclass(frozen=True)
class Alias:
    """Alias tables (Walker, 1977) of R distributions over W columns.

    Every row is cut into ``places`` of equal probability; their number is a power of two. A place
    belongs to one column up to its entry of ``limits``, and to another column beyond it. The first
    of 63 random bits choose the place, and all 63 are compared with its limit. ``choices`` are the
    two columns of every place, counted from ``lowest``.
    """

    rows: int
    columns: int
    places: int
    lowest: int
    limits: Tensor
    choices: Tensor

    @classmethod
    def build(cls, mass: Tensor, lowest: int = 0) -> Alias:
        """From unnormalised masses ``(R, W)``.

        Prefix sums in place of Walker's two queues build all rows at once.
        """
        rows, columns = mass.shape
        mass, column = mass.sort(-1, descending=True)
        whole = mass.sum(-1, keepdim=True)
        # A row whose masses have all underflowed is never drawn from.
        mass = torch.where(whole > 0, mass / whole, 1 / columns)
        likely = int((mass > _NEGLIGIBLE).sum(-1).max())
        places = 1 << max(1, (likely - 1).bit_length())
        mass, padding = mass * places, (0, places - likely)
        mass = torch.nn.functional.pad(mass[:, :likely], padding)
        column = torch.nn.functional.pad(column[:, :likely], padding)

        # Columns heavier than a place come first. They give their excess to lighter columns, in
        # order. A light column takes from the first giver that has some excess left after all
        # columns before it. A giver that runs out takes from the next giver.
        heavy, place = mass >= 1, torch.arange(places, device=mass.device)
        excess, deficit = (mass - 1).clamp(min=0).cumsum(-1), (1 - mass).clamp(min=0).cumsum(-1)
        deficit_before = deficit.roll(1, -1).masked_fill(place == 0, 0.0)
        giver = torch.searchsorted(excess, deficit_before, right=True)
        last_giver = (heavy.sum(-1, keepdim=True) - 1).clamp(min=0)
        other = torch.where(heavy, place + 1, giver).minimum(last_giver)
        last_taker = torch.searchsorted(deficit, excess).clamp(max=places - 1)
        overdrawn = deficit.gather(-1, last_taker) - excess
        share = torch.where(heavy, 1 - overdrawn, mass).clamp(0, 1)

        room = 1 << (64 - places.bit_length())
        limits = room * place + (share * room).to(torch.int64).clamp(max=room - 1)
        choices = lowest + torch.stack([column, column.gather(-1, other)], -1)
        return cls(rows, columns, places, lowest, limits.flatten(), choices.flatten())

    @property
    def shift(self) -> int:
        """The number of random bits after those that choose the place."""
        return 64 - self.places.bit_length()

    def pick(self, row: Tensor) -> Tensor:
        """The index of a random choice for each int64 entry of `row`."""
        bits = torch.empty_like(row).random_()
        place = torch.add(bits >> self.shift, row, alpha=self.places)
        return torch.add(bits >= self.limits.index_select(0, place), place, alpha=2)

    def draw(self, row: Tensor) -> Tensor:
        """A random column for each int64 entry of `row`."""
        return self.choices.index_select(0, self.pick(row))

    @property
    def steps(self) -> Tensor:
        """The law that the limits imply: ``steps[r·W + a]`` is r + P(column ≤ a in row r)."""
        own = (self.limits.reshape(self.rows, -1) % (1 << self.shift)) * 2.0**-63
        both = torch.stack([own, 1 / self.places - own], -1).flatten(1)
        column = self.choices.reshape(self.rows, -1) - self.lowest
        mass = both.new_zeros(self.rows, self.columns).scatter_add(-1, column, both)
        row = torch.arange(self.rows, device=mass.device).unsqueeze(-1)
        return (mass.cumsum(-1) + row).flatten()
