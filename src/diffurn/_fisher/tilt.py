"""The tilt: a common factor r on all weights that makes the wanted total typical.

Independent X_j ~ Binomial(m_j, p_j) with p_j = rω_j / (1 + rω_j), conditioned on ΣX = n, follow
Fisher's law for *every* r > 0. The choice of r is therefore free, never carries a gradient, and
decides only how well conditioned the arithmetic is.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from diffurn._kernels.dispatch import primitive
from diffurn._numerics.tracing import can_read

# The schedule of `log_tilt`; its docstring derives the numbers.
HASTY_STEPS, BISECTIONS, NEWTON_STEPS = 8, 10, 5
# Newton's method takes its last step when the mean is this close to its target, in standard
# deviations of the sum.
SETTLED = 0.01
# A difference of two sums of positive numbers is not known better than this, relative to the
# numbers.
ROUNDING = 1e-17


@primitive
def log_tilt(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    r"""Returns log r with :math:`\sum_j m_j \sigma(\log r + \log ω_j) ≈ n - ½`, to a hundredth of
    the sum's standard deviation.

    Aiming half a ball below n keeps the variance of the sum at 1/4 or more, whatever the weights (a
    sum of Bernoullis with a half-integer mean cannot be sure of itself), and keeps both P(ΣX = n)
    and P(ΣX = n - 1) large: the two numbers from which the mean and the covariance follow without
    cancellation.

    **The bracket.** Sorting the groups by weight and filling the urn from the heaviest finds the
    group that holds the n-th ball. Relative to it, log r lies in a bracket whose width depends on
    the number of balls only: at most 2 log 2N, which is below 76 for 2^53 balls.

    **The equation.** Call a group common if its balls are drawn with p > ½, and rare otherwise.
    With the expected exceptions, E balls drawn of the rare groups and D balls left of the common
    ones, and with t = n - ½ - Σ_common m, the equation is E + t⁺ - t = D + t⁺. Its logarithmic form
    h = log(E + t⁺ - t) - log(D + t⁺) = 0 has no plateaus between groups of different weights: log E
    rises with a slope of ½ to 1, log D falls with one, and one of t⁺ and t⁺ - t is zero, so ½ ≤ h'
    ≤ 2; and |h''| ≤ ¾. All terms are exceptions, so rounding errors are of the size of the
    variance, not of n.

    **The iteration.** Newton's method on h, from a guess that takes the weights for a bell curve,
    mostly settles after two or three evaluations. That is not proven, so the residual is checked.
    Where an urn has not settled after eight, and where numbers cannot be looked at, ten bisections
    shrink the bracket to ±0.04 first. From there every Newton step leaves at most 3 times the
    square of the error before it, so five leave nothing but rounding.

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
    # Heavier groups have odds ≥ those of the holder, lighter ones ≤: two bounds on log r + anchor.
    low = ((target - upto + size).clamp(min=0.5) / (total - target).clamp(min=0.5)).log()
    high = (target / (upto - target).clamp(min=0.5)).log()
    low, high = low - 1, high + 1  # rounding must not put a root that lies on a bound outside
    equation = _Equation(
        log_weights - anchor.unsqueeze(-1),
        group_sizes,
        total,
        target,
        group_sizes.new_ones(group_sizes.shape[-1]),
    )
    if can_read(total):
        shift, settled = equation.newton(equation.guess(), low, high, HASTY_STEPS, looking=True)
        if settled:
            return torch.where(
                total > 0, shift - anchor, 0.0 * draws
            )  # without balls any tilt is right
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        too_low = equation.step(middle).excess < 0
        low, high = torch.where(too_low, middle, low), torch.where(too_low, high, middle)
    shift, _ = equation.newton(0.5 * (low + high), low, high, NEWTON_STEPS, looking=False)
    return torch.where(total > 0, shift - anchor, 0.0 * draws)


def holder_of(
    ball: Tensor, log_weights: Tensor, group_sizes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Of the group that holds a ball, numbered from the heaviest group down: log-weight, balls up
    to its end, and size; all (...).
    """
    sorted_weights, order = log_weights.sort(dim=-1, descending=True)
    sorted_sizes = group_sizes.gather(-1, order)
    filled = sorted_sizes.cumsum(-1)
    holder = (
        (filled < ball.unsqueeze(-1)).sum(-1, keepdim=True).clamp(max=log_weights.shape[-1] - 1)
    )
    weight, upto, size = (
        values.gather(-1, holder).squeeze(-1) for values in (sorted_weights, filled, sorted_sizes)
    )
    return weight, upto, size


class _Step(NamedTuple):
    newton: Tensor  # h / h'
    excess: Tensor  # Σ m p - target
    variance: Tensor  # Σ m p (1 - p)


class _Equation(NamedTuple):
    """Σ_j m_j σ(shift + relative_j) = target, for log-weights relative to a group of the urn;
    shapes ``(..., c)`` and ``(...)``.

    Sums over groups are products with ones, and signs are copied: torch's sum over a short last
    dimension, and its `where`, take
    ten times as long.
    """

    relative: Tensor
    group_sizes: Tensor
    total: Tensor
    target: Tensor
    ones: Tensor  # (c,)

    def guess(self) -> Tensor:
        """The root if log-weights were normally distributed over balls (and σ the probit function
        of the same slope).
        """
        relative, balls = self.relative.clamp(-99, 99), self.total.clamp(min=1)
        centre = (self.group_sizes * relative) @ self.ones / balls
        spread = (self.group_sizes * (relative - centre.unsqueeze(-1)).square()) @ self.ones / balls
        log_odds = (self.target / (self.total - self.target).clamp(min=0.5)).log()
        return log_odds * (1 + spread * (math.pi / 8)).sqrt() - centre

    def newton(
        self, shift: Tensor, low: Tensor, high: Tensor, steps: int, looking: bool
    ) -> tuple[Tensor, bool]:
        """The shift after so many steps within the bracket, and whether all rows have settled, if
        that may be looked at.
        """
        for _ in range(steps):
            shift = shift.clamp(low, high)
            step = self.step(shift)
            shift = shift - step.newton
            if looking and not bool(
                (step.excess.square() > SETTLED**2 * step.variance).any()
            ):  # NaN is not waited for
                return shift, True
        return shift, False

    def step(self, shift: Tensor) -> _Step:
        """Without cancellation. The slope h' is exact at the root and within ½ to 2 elsewhere, as
        derived above.
        """
        log_odds = self.relative + shift.unsqueeze(-1)
        rarer = torch.sigmoid(torch.copysign(log_odds, -1.0))
        exceptions = self.group_sizes * rarer
        both, difference = (
            exceptions @ self.ones,
            torch.copysign(exceptions, log_odds) @ self.ones,
        )  # E + D, D - E
        variance = both - (exceptions * rarer) @ self.ones
        # Twice t, E and D, which spares halving them: Σ_common m is half of Σ m + Σ ±m.
        missing = (2 * self.target - self.total) - torch.copysign(
            self.group_sizes, log_odds
        ) @ self.ones
        drawn, left, short, smallest = (
            both - difference,
            both + difference,
            missing.clamp(min=0),
            both * ROUNDING,
        )
        rising, falling = (
            (drawn + (short - missing)).maximum(smallest),
            (left + short).maximum(smallest),
        )
        slope = variance * (drawn / rising + left / falling)
        return _Step((rising / falling).log() * both / slope, -0.5 * missing - difference, variance)
