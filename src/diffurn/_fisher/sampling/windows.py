"""Windows: the few consecutive counts out of possibly billions that carry all the probability."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from diffurn._fisher.nodes import half_width
from diffurn._numerics.binomial import binomial_log_pmf, binomial_variance


@dataclass(frozen=True)
class Window:
    """Probabilities of the consecutive totals lowest, lowest + 1, …; everything outside is
    negligible.
    """

    lowest: int
    mass: Tensor

    @property
    def highest(self) -> int:
        return self.lowest + len(self.mass) - 1

    @property
    def counts(self) -> Tensor:
        return torch.arange(
            self.lowest, self.highest + 1, dtype=self.mass.dtype, device=self.mass.device
        )

    def mass_at(self, totals: Tensor) -> Tensor:
        """The probability of each total, any whole numbers; zero outside the window."""
        place = totals.to(torch.int64) - self.lowest
        inside = (place >= 0) & (place < len(self.mass))
        return torch.where(inside, self.mass[place.clamp(0, len(self.mass) - 1)], 0.0)


def likely_range(mean: Tensor, variance: Tensor) -> tuple[int, int]:
    """The totals that a sum of independent Bernoullis takes but for a probability of e^-33."""
    reach = half_width(variance)
    return int(torch.floor(mean - reach)), int(torch.ceil(mean + reach))


def group_window(log_odds: Tensor, group_size: Tensor) -> Window:
    """The likely counts of one group, Binomial(m, σ(log_odds))."""
    low, high = likely_range(
        group_size * torch.sigmoid(log_odds), binomial_variance(group_size, log_odds)
    )
    lowest, highest = max(0, low), min(int(group_size), high)
    counts = torch.arange(lowest, highest + 1, dtype=log_odds.dtype, device=log_odds.device)
    return Window(lowest, torch.exp(binomial_log_pmf(counts, group_size, log_odds)))


def window_of_sum(left: Window, right: Window, mean: Tensor, variance: Tensor) -> Window:
    """The convolution of two windows, cut back to the likely totals; all terms are positive, so
    tails stay relatively accurate.
    """
    mass = torch.nn.functional.conv1d(
        left.mass[None, None], right.mass.flip(0)[None, None], padding=len(right.mass) - 1
    )[0, 0]
    low, high = likely_range(mean, variance)
    lowest = left.lowest + right.lowest
    cut = max(0, low - lowest)
    return Window(lowest + cut, mass[cut : max(1, high - lowest + 1)])
