"""Many draws of one urn: a balanced binary tree over its groups, with a table at every split.

Going up, the windows of likely counts are convolved; going down, the known total of a node is split into its left and its right part by
a tabulated conditional distribution. A draw takes log₂ c steps one after another instead of c.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from diffurn.exact.binomial import binomial_variance
from diffurn.exact.lookup import Lookup
from diffurn.exact.windows import Window, group_window, window_of_sum


@dataclass(frozen=True)
class Split:
    """How the total of a node falls to its left child: row t of the look-up is the law of left - lowest_left given lowest_total + t."""

    left: Split | None  # None: a single group
    right: Split | None
    lowest_total: int
    lowest_left: int
    lookup: Lookup

    @classmethod
    def build(cls, left: Window, right: Window, totals: Window, children: tuple[Split | None, Split | None]) -> Split:
        rest = (totals.counts.unsqueeze(-1) - left.counts).to(torch.int64) - right.lowest
        possible = (rest >= 0) & (rest < len(right.mass))
        mass = torch.where(possible, left.mass * right.mass[rest.clamp(0, len(right.mass) - 1)], 0.0)
        return cls(*children, totals.lowest, left.lowest, Lookup.build(mass))

    def draw(self, totals: Tensor) -> list[Tensor]:
        """Counts of the groups below this node, one tensor a group, for the given int64 totals."""
        left = self.lowest_left + self.lookup.draw(totals - self.lowest_total)
        return _draw(self.left, left) + _draw(self.right, totals - left)


def _draw(node: Split | None, totals: Tensor) -> list[Tensor]:
    return [totals] if node is None else node.draw(totals)


@dataclass(frozen=True)
class Tree:
    """The tables of one urn."""

    root: Split | None
    draws: int
    device: torch.device

    @classmethod
    def build(cls, log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tree:
        """From tilted log-odds ``(c,)``."""
        mean, variance = group_sizes * torch.sigmoid(log_odds), binomial_variance(group_sizes, log_odds)
        number = int(draws)

        def grow(first: int, last: int) -> tuple[Window, Split | None]:
            if last - first == 1:
                return group_window(log_odds[first], group_sizes[first]), None
            middle = (first + last + 1) // 2
            (left, left_split), (right, right_split) = grow(first, middle), grow(middle, last)
            at_root = last - first == len(variance)
            moments = mean[first:last].sum(), variance[first:last].sum()
            totals = Window(number, draws.new_ones(1)) if at_root else window_of_sum(left, right, *moments)
            return totals, Split.build(left, right, totals, (left_split, right_split))

        return cls(grow(0, len(variance))[1], number, log_odds.device)

    def draw(self, number: int) -> Tensor:
        """Independent draws, shape (number, c), int64."""
        totals = torch.full((number,), self.draws, device=self.device)
        return torch.stack(_draw(self.root, totals), -1)
