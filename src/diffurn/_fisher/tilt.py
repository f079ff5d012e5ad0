"""The tilt: a common factor r on all weights that makes the required total typical.

Independent X_j ~ Binomial(m_j, p_j) with p_j = rω_j / (1 + rω_j), conditioned on ΣX = n, follow
Fisher's law for *every* r > 0. So r is free and carries no gradient. It only decides how well
conditioned the arithmetic is.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from diffurn._fisher.accuracy import (
    BISECTIONS,
    HASTY_STEPS,
    NEWTON_STEPS,
    ROUNDING,
    SETTLED,
)
from diffurn._kernels.dispatch import primitive
from diffurn._numerics.tracing import can_read


@primitive
def log_tilt(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    r"""log r with :math:`\sum_j m_j \sigma(\log r + \log ω_j) ≈ n - ½`.

    The sum is within a hundredth of its standard deviation of n - ½.

    The target is half a ball below n for two reasons. The variance of ΣX is then 1/4 or more,
    whatever the weights, since an integer with a half-integer mean is never certain. And both
    P(ΣX = n) and P(ΣX = n - 1) are large: from these two numbers the mean and the covariance follow
    without cancellation.

    **The bracket.** Sort the groups by weight, and draw balls from the heaviest group down. The
    group that holds the n-th ball gives a bracket of log r, relative to its own weight. The width
    depends on the number of balls N only: it is at most 2 log 2N, below 76 for 2^53 balls.

    **The equation.** Call a group common if its balls are drawn with p > ½, and rare otherwise.
    With the expected exceptions, E balls drawn of the rare groups and D balls left of the common
    ones, and with t = n - ½ - Σ_common m, the equation is E + t⁺ - t = D + t⁺. Its logarithmic form
    h = log(E + t⁺ - t) - log(D + t⁺) = 0 has no plateaus between groups of different weights: log E
    rises with a slope of ½ to 1, log D falls with a slope of ½ to 1, and one of t⁺ and t⁺ - t is
    zero, so ½ ≤ h' ≤ 2. Also |h''| ≤ ¾. All terms are exceptions, so rounding errors are relative
    to the variance instead of n.

    **The iteration.** Newton's method on h starts from a guess that takes the log-weights for
    normally distributed, and mostly settles after two or three evaluations. That is not proven, so
    the residual is checked. If an urn has not settled after eight steps, or if values cannot be
    read, ten bisections first shrink the bracket to ±0.04. From there the error after a Newton step
    is at most 3 times the square of the error before it, so five steps leave only rounding errors.

    Args:
        log_weights: log ω, shape ``(..., c)``; -inf marks balls that are never drawn.
        group_sizes: m, shape ``(..., c)``.
        draws: n, shape ``(...)``; values outside 0..Σm are clamped, NaN gives NaN.

    Example:
        >>> log_weights = torch.tensor([50.0, 0.0, -50.0], dtype=torch.float64)
        >>> draws = torch.tensor(5.0, dtype=torch.float64)
        >>> r = log_tilt(log_weights, torch.full_like(log_weights, 5), draws)
        >>> print(f"{5 * torch.sigmoid(r + log_weights).sum():.4f}")
        4.5000
    """
    drawable = (group_sizes > 0) & (log_weights > -torch.inf)
    log_weights = torch.where(drawable, log_weights, 0.0)
    group_sizes = torch.where(drawable, group_sizes, 0.0)
    total = group_sizes.sum(-1)
    target = torch.minimum(draws, total).clamp(min=1) - 0.5

    anchor, upto, size = holder_of(target, log_weights, group_sizes)
    # Heavier groups have larger odds than the holder, lighter groups have smaller ones. This gives
    # two bounds on log r + anchor.
    low = ((target - upto + size).clamp(min=0.5) / (total - target).clamp(min=0.5)).log()
    high = (target / (upto - target).clamp(min=0.5)).log()
    low, high = low - 1, high + 1  # a root on a bound stays inside despite rounding
    relative = log_weights - anchor.unsqueeze(-1)
    ones = group_sizes.new_ones(group_sizes.shape[-1])
    equation = _Equation(relative, group_sizes, total, target, ones)
    if can_read(total):
        shift, settled = equation.newton(equation.guess(), low, high, HASTY_STEPS, looking=True)
        if settled:  # without balls any tilt is right
            return torch.where(total > 0, shift - anchor, 0.0 * draws)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        too_low = equation.step(middle).excess < 0
        low, high = torch.where(too_low, middle, low), torch.where(too_low, high, middle)
    shift, _ = equation.newton(0.5 * (low + high), low, high, NEWTON_STEPS, looking=False)
    return torch.where(total > 0, shift - anchor, 0.0 * draws)


def holder_of(
    ball: Tensor, log_weights: Tensor, group_sizes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The group that holds the given ball, if balls are numbered from the heaviest group down.

    Returns:
        Its log-weight, the number of balls up to its last one, and its size, all ``(...)``.
    """
    sorted_weights, order = log_weights.sort(dim=-1, descending=True)
    sorted_sizes = group_sizes.gather(-1, order)
    filled = sorted_sizes.cumsum(-1)
    groups_before = (filled < ball.unsqueeze(-1)).sum(-1, keepdim=True)
    holder = groups_before.clamp(max=log_weights.shape[-1] - 1)
    columns = sorted_weights, filled, sorted_sizes
    weight, upto, size = (values.gather(-1, holder).squeeze(-1) for values in columns)
    return weight, upto, size


class _Step(NamedTuple):
    newton: Tensor  # h / h'
    excess: Tensor  # Σ m p - target
    variance: Tensor  # Σ m p (1 - p)


class _Equation(NamedTuple):
    """The equation Σ_j m_j σ(shift + relative_j) = target for the shift.

    Sums over groups are products with ones, and signs are copied with `copysign`. torch's sum over
    a short last dimension, and its `where`, take ten times as long.
    """

    relative: Tensor  # log-weights relative to a group of the urn, (..., c)
    group_sizes: Tensor  # (..., c)
    total: Tensor  # Σ m, (...)
    target: Tensor  # (...)
    ones: Tensor  # (c,)

    def guess(self) -> Tensor:
        """A guess of the root: that of normally distributed log-weights.

        It takes σ for the probit function of the same slope.
        """
        relative, balls = self.relative.clamp(-99, 99), self.total.clamp(min=1)
        centre = (self.group_sizes * relative) @ self.ones / balls
        spread = (self.group_sizes * (relative - centre.unsqueeze(-1)).square()) @ self.ones / balls
        log_odds = (self.target / (self.total - self.target).clamp(min=0.5)).log()
        return log_odds * (1 + spread * (math.pi / 8)).sqrt() - centre

    def newton(
        self, shift: Tensor, low: Tensor, high: Tensor, steps: int, looking: bool
    ) -> tuple[Tensor, bool]:
        """The shift after at most `steps` Newton steps within the bracket.

        With `looking`, which reads values, the iteration stops when all rows have settled.

        Returns:
            The shift, and whether all rows are known to have settled.
        """
        for _ in range(steps):
            shift = shift.clamp(low, high)
            step = self.step(shift)
            shift = shift - step.newton
            if looking:
                unsettled = step.excess.square() > SETTLED**2 * step.variance  # False for NaN
                if not bool(unsettled.any()):
                    return shift, True
        return shift, False

    def step(self, shift: Tensor) -> _Step:
        """The Newton step at a shift, without cancellation.

        The slope h' is exact at the root, and between ½ and 2 elsewhere (see `log_tilt`).
        """
        log_odds = self.relative + shift.unsqueeze(-1)
        rarer = torch.sigmoid(torch.copysign(log_odds, -1.0))
        exceptions = self.group_sizes * rarer
        both = exceptions @ self.ones  # E + D
        difference = torch.copysign(exceptions, log_odds) @ self.ones  # D - E
        variance = both - (exceptions * rarer) @ self.ones
        # missing, drawn and left are 2t, 2E and 2D, which saves halving: 2 Σ_common m = Σ m + Σ ±m.
        signed_sizes = torch.copysign(self.group_sizes, log_odds)
        missing = (2 * self.target - self.total) - signed_sizes @ self.ones
        drawn, left = both - difference, both + difference
        short, smallest = missing.clamp(min=0), both * ROUNDING
        rising = (drawn + (short - missing)).maximum(smallest)
        falling = (left + short).maximum(smallest)
        slope = variance * (drawn / rising + left / falling)
        return _Step((rising / falling).log() * both / slope, -0.5 * missing - difference, variance)
