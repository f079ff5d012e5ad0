"""Draws from tabulated distributions in a few memory look-ups each."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# The share of a row below which a column is left out of it: smaller than what 63 random bits tell
# apart.
_NEGLIGIBLE = 2.0**-64


@dataclass(frozen=True)
class Alias:
    """R distributions over W columns, of which each draw looks at two entries and searches none
    (Walker, 1977).

    Every row is cut into ``places`` of equal probability, a power of two. A place belongs to one
    column up to ``limits`` and to another beyond: of 63 random bits the first choose the place, and
    all of them are compared with its limit. ``choices`` are the two columns of every place, counted
    from ``lowest``.
    """

    rows: int
    columns: int
    places: int
    lowest: int
    limits: Tensor
    choices: Tensor

    @classmethod
    def build(cls, mass: Tensor, lowest: int = 0) -> Alias:
        """From unnormalised masses ``(R, W)``; all rows at once, by prefix sums instead of Walker's
        two queues.
        """
        rows, columns = mass.shape
        mass, column = mass.sort(-1, descending=True)
        whole = mass.sum(-1, keepdim=True)
        mass = torch.where(
            whole > 0, mass / whole, 1 / columns
        )  # a row that underflowed is never asked for
        likely = int((mass > _NEGLIGIBLE).sum(-1).max())
        places = 1 << max(1, (likely - 1).bit_length())
        mass, column = (
            torch.nn.functional.pad(values[:, :likely], (0, places - likely))
            for values in (mass * places, column)
        )

        # Columns heavier than a place, which come first, give what they have too much to lighter
        # ones, in order. Light column k takes from the first giver that still has something after
        # the columns before k; a giver that runs out takes from the next giver.
        heavy, place = mass >= 1, torch.arange(places, device=mass.device)
        excess, deficit = (mass - 1).clamp(min=0).cumsum(-1), (1 - mass).clamp(min=0).cumsum(-1)
        giver = torch.searchsorted(
            excess, deficit.roll(1, -1).masked_fill(place == 0, 0.0), right=True
        )
        other = torch.where(heavy, place + 1, giver).minimum(
            (heavy.sum(-1, keepdim=True) - 1).clamp(min=0)
        )
        overdrawn = (
            deficit.gather(-1, torch.searchsorted(deficit, excess).clamp(max=places - 1)) - excess
        )
        share = torch.where(heavy, 1 - overdrawn, mass).clamp(0, 1)

        room = 1 << (64 - places.bit_length())
        limits = room * place + (share * room).to(torch.int64).clamp(max=room - 1)
        choices = lowest + torch.stack([column, column.gather(-1, other)], -1)
        return cls(rows, columns, places, lowest, limits.flatten(), choices.flatten())

    @property
    def shift(self) -> int:
        """Random bits that are left when the place is chosen."""
        return 64 - self.places.bit_length()

    def pick(self, row: Tensor) -> Tensor:
        """For each int64 entry of `row` the index of a choice."""
        bits = torch.empty_like(row).random_()
        place = torch.add(bits >> self.shift, row, alpha=self.places)
        return torch.add(bits >= self.limits.index_select(0, place), place, alpha=2)

    def draw(self, row: Tensor) -> Tensor:
        """A column for each int64 entry of `row`."""
        return self.choices.index_select(0, self.pick(row))

    @property
    def steps(self) -> Tensor:
        """``steps[r·W + a]`` is r + P(column ≤ a in row r): the law that the limits imply."""
        own = (self.limits.reshape(self.rows, -1) % (1 << self.shift)) * 2.0**-63
        both = torch.stack([own, 1 / self.places - own], -1).flatten(1)
        mass = both.new_zeros(self.rows, self.columns).scatter_add(
            -1, self.choices.reshape(self.rows, -1) - self.lowest, both
        )
        return (
            mass.cumsum(-1) + torch.arange(self.rows, device=mass.device).unsqueeze(-1)
        ).flatten()
