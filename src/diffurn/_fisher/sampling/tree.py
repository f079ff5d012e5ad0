"""Many draws of one urn, from alias tables.

If the urn has few outcomes, one table holds them all (`Outcomes`). Otherwise there is a binary tree
over the groups, with a table at every split (`Tree`). It is built from the leaves up, by convolving
the windows of likely counts. A draw goes from the root down: at each node a tabulated conditional
distribution splits the known total into its left and its right part. A balanced tree has the fewest
cells. A chain, in which every left child is a single group, needs no stack.
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
    """A node of a tree: the law of its left part, given its total.

    Row t of `lookup` is the law of the left part given the total ``lowest_total + t``.
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
        """Counts of the groups below this node, one tensor per group, given int64 totals."""
        left = self.lookup.draw(totals - self.lowest_total)
        return _draw(self.left, left) + _draw(self.right, totals - left)


def _draw(node: Split | None, totals: Tensor) -> list[Tensor]:
    return [totals] if node is None else node.draw(totals)


@dataclass(frozen=True)
class Tree:
    """A binary tree over the groups of one urn; `root` is None for a single group."""

    root: Split | None
    groups: int
    draws: int

    @classmethod
    def build(
        cls, log_odds: Tensor, group_sizes: Tensor, draws: Tensor, chain: bool = False
    ) -> Tree:
        """From tilted log-odds ``(c,)``; as a chain, every left child is a single group."""
        mean = group_sizes * torch.sigmoid(log_odds)
        variance = binomial_variance(group_sizes, log_odds)
        number = int(draws)

        def grow(first: int, last: int) -> tuple[Window, Split | None]:
            if last - first == 1:
                return group_window(log_odds[first], group_sizes[first]), None
            middle = first + 1 if chain else (first + last + 1) // 2
            (left, left_split), (right, right_split) = grow(first, middle), grow(middle, last)
            at_root = last - first == len(variance)
            moments = mean[first:last].sum(), variance[first:last].sum()
            if at_root:
                totals = Window(number, draws.new_ones(1))
            else:
                totals = window_of_sum(left, right, *moments)
            return totals, Split.build(left, right, totals, (left_split, right_split))

        return cls(grow(0, len(variance))[1], len(variance), number)

    def fill(self, counts: Tensor) -> None:
        """Puts an independent draw into every row of counts ``(number, c)``."""
        totals = torch.full((len(counts),), self.draws, device=counts.device)
        for group, drawn in zip(counts.unbind(-1), _draw(self.root, totals), strict=True):
            group.copy_(drawn)


def _all_combinations(values: list[Tensor]) -> Tensor:
    """All combinations of one entry of each list, ``(combinations, lists)``."""
    return torch.stack([grid.flatten() for grid in torch.meshgrid(*values, indexing="ij")], -1)


def likely_outcomes(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Outcomes ``(O, c)`` and their unnormalised masses ``(O,)``, from tilted log-odds ``(c,)``."""
    windows = [group_window(*group) for group in zip(log_odds, group_sizes, strict=True)]
    # The widest group gets the rest of n, so its window does not multiply the outcomes.
    widest = max(range(len(windows)), key=lambda j: len(windows[j].mass))
    last = windows.pop(widest)
    free = _all_combinations([window.counts for window in windows])
    mass = _all_combinations([window.mass for window in windows]).prod(-1)
    left = draws - free.sum(-1)
    mass = mass * last.mass_at(left)
    return torch.cat([free[:, :widest], left.unsqueeze(-1), free[:, widest:]], -1), mass


@dataclass(frozen=True)
class Outcomes:
    """An alias table of all likely outcomes of one urn.

    `lookup` has one row, and ``counts[i]`` is the outcome of its choice i.
    """

    lookup: Alias
    counts: Tensor

    @classmethod
    def build(
        cls, log_odds: Tensor, group_sizes: Tensor, draws: Tensor, dtype: torch.dtype
    ) -> Outcomes:
        """From tilted log-odds ``(c,)``, for draws of the given dtype."""
        return cls.of(*likely_outcomes(log_odds, group_sizes, draws), dtype)

    @classmethod
    def of(cls, outcomes: Tensor, mass: Tensor, dtype: torch.dtype) -> Outcomes:
        """From outcomes ``(O, c)`` of any law and their unnormalised masses ``(O,)``."""
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
