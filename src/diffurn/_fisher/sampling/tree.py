"""Many draws of one urn, from tables.

Few outcomes: one table holds them all (`Outcomes`). Else a binary tree over the groups, with a
table at every split (`Tree`): going up, the windows of likely counts are convolved; going down, the
known total of a node is split into its left and its right part by a tabulated conditional
distribution. Balanced, it has the fewest cells; as a chain, group after group, it can be walked
with nothing to remember.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from diffurn._fisher.sampling.alias import Alias
from diffurn._fisher.sampling.windows import Window, group_window, window_of_sum
from diffurn._numerics.binomial import binomial_variance


@dataclass(frozen=True)
class Split:
    """How the total of a node falls to its left child: row t of the look-up is the law of left
    given lowest_total + t.
    """

    left: Split | None  # None: a single group
    right: Split | None
    lowest_total: int
    lookup: Alias

    @classmethod
    def build(
        cls,
        left: Window,
        right: Window,
        totals: Window,
        children: tuple[Split | None, Split | None],
    ) -> Split:
        mass = left.mass * right.mass_at(totals.counts.unsqueeze(-1) - left.counts)
        return cls(*children, totals.lowest, Alias.build(mass, left.lowest))

    def draw(self, totals: Tensor) -> list[Tensor]:
        """Counts of the groups below this node, one tensor a group, for the given int64 totals."""
        left = self.lookup.draw(totals - self.lowest_total)
        return _draw(self.left, left) + _draw(self.right, totals - left)


def _draw(node: Split | None, totals: Tensor) -> list[Tensor]:
    return [totals] if node is None else node.draw(totals)


@dataclass(frozen=True)
class Tree:
    """The tables of one urn, a split above every pair of parts."""

    root: Split | None
    groups: int
    draws: int

    @classmethod
    def build(
        cls, log_odds: Tensor, group_sizes: Tensor, draws: Tensor, chain: bool = False
    ) -> Tree:
        """From tilted log-odds ``(c,)``; as a chain, every left child is a single group."""
        mean, variance = (
            group_sizes * torch.sigmoid(log_odds),
            binomial_variance(group_sizes, log_odds),
        )
        number = int(draws)

        def grow(first: int, last: int) -> tuple[Window, Split | None]:
            if last - first == 1:
                return group_window(log_odds[first], group_sizes[first]), None
            middle = first + 1 if chain else (first + last + 1) // 2
            (left, left_split), (right, right_split) = grow(first, middle), grow(middle, last)
            at_root = last - first == len(variance)
            moments = mean[first:last].sum(), variance[first:last].sum()
            totals = (
                Window(number, draws.new_ones(1))
                if at_root
                else window_of_sum(left, right, *moments)
            )
            return totals, Split.build(left, right, totals, (left_split, right_split))

        return cls(grow(0, len(variance))[1], len(variance), number)

    def fill(self, counts: Tensor) -> None:
        """Puts an independent draw into every row of counts ``(number, c)``."""
        totals = torch.full((len(counts),), self.draws, device=counts.device)
        for group, drawn in zip(counts.unbind(-1), _draw(self.root, totals), strict=True):
            group.copy_(drawn)


def _all_combinations(values: list[Tensor]) -> Tensor:
    """One entry of each list, in all ways: ``(number of ways, number of lists)``."""
    return torch.stack([grid.flatten() for grid in torch.meshgrid(*values, indexing="ij")], -1)


@dataclass(frozen=True)
class Outcomes:
    """All likely outcomes of one urn in one table: ``counts[i]`` is what choice i of the look-up,
    which has one row, stands for.
    """

    lookup: Alias
    counts: Tensor

    @classmethod
    def build(
        cls, log_odds: Tensor, group_sizes: Tensor, draws: Tensor, dtype: torch.dtype
    ) -> Outcomes:
        """From tilted log-odds ``(c,)``, for draws of the given dtype."""
        windows = [group_window(*group) for group in zip(log_odds, group_sizes, strict=True)]
        widest = max(
            range(len(windows)), key=lambda j: len(windows[j].mass)
        )  # gets what is left, and adds no outcomes
        last = windows.pop(widest)
        free = _all_combinations([window.counts for window in windows])
        mass = _all_combinations([window.mass for window in windows]).prod(-1)
        left = draws - free.sum(-1)
        mass = mass * last.mass_at(left)
        return cls.of(
            torch.cat([free[:, :widest], left.unsqueeze(-1), free[:, widest:]], -1), mass, dtype
        )

    @classmethod
    def of(cls, outcomes: Tensor, mass: Tensor, dtype: torch.dtype) -> Outcomes:
        """From outcomes ``(O, c)`` with their unnormalised masses ``(O,)``, whatever law they come
        from.
        """
        lookup = Alias.build(mass.unsqueeze(0))
        return cls(lookup, outcomes.to(dtype).index_select(0, lookup.choices))

    def fill(self, counts: Tensor) -> None:
        """Puts an independent draw into every row of counts ``(number, c)``."""
        row = torch.zeros((), dtype=torch.int64, device=counts.device).expand(len(counts))
        choice = self.lookup.pick(row)
        if counts.is_contiguous():
            torch.index_select(self.counts, 0, choice, out=counts)
        else:
            counts.copy_(self.counts.index_select(0, choice))
