"""The tilt: a common factor r on all weights that makes the wanted total typical.

Independent X_j ~ Binomial(m_j, p_j) with p_j = rω_j / (1 + rω_j), conditioned on ΣX = n, follow Fisher's law for *every* r > 0.
The choice of r is therefore free, never carries a gradient, and decides only how well conditioned the arithmetic is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn.exact.kernels import in_one_launch
from diffurn.exact.tracing import can_read

# A ball of weight zero is given the odds e^-300: nothing in float64 can tell it from zero, and derivatives in ω survive.
ZERO_WEIGHT_LOG_ODDS = -300.0

ITERATIONS = 12
SMALL_STEP = 1e-3
# After a step so small the next would change nothing: Newton squares it.
SETTLED_STEP = 1e-9


@in_one_launch("law_kernels.log_tilt")
def log_tilt(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    r"""Returns log r with :math:`\sum_j m_j \sigma(\log r + \log ω_j) ≈ n - ½`.

    Aiming half a ball below n keeps the variance of the sum at 1/4 or more, whatever the weights (a sum of Bernoullis with
    a half-integer mean cannot be sure of itself), and keeps both P(ΣX = n) and P(ΣX = n - 1) large: the two numbers from
    which the mean and the covariance follow without cancellation.

    Sorting the groups by weight and filling the urn from the heaviest finds the group in which the n-th ball lies; relative
    to it, log r lies in a bracket whose width depends on the number of balls only, not on the weights. A fixed number of
    bracketed Newton steps on the logit of the filling then needs no data-dependent branch; where looking costs nothing, they
    end when all urns have settled, mostly after five.

    Args:
        log_weights: log ω, shape ``(..., c)``; -inf marks balls that are never drawn.
        group_sizes: m, shape ``(..., c)``.
        draws: n, shape ``(...)``; values outside 0..Σm are clamped.

    Example:
        >>> log_weights = torch.tensor([50.0, 0.0, -50.0], dtype=torch.float64)
        >>> r = log_tilt(log_weights, torch.full_like(log_weights, 5), torch.tensor(5.0, dtype=torch.float64))
        >>> print(f"{5 * torch.sigmoid(r + log_weights).sum():.4f}")
        4.5000
    """
    drawable = (group_sizes > 0) & (log_weights > -torch.inf)
    log_weights = torch.where(drawable, log_weights, 0.0)
    group_sizes = torch.where(drawable, group_sizes, 0.0)
    total = group_sizes.sum(-1)
    target = torch.minimum(draws, total).clamp(min=1) - 0.5

    # The group that holds ball number `target`, counted from the heaviest group down.
    sorted_weights, order = log_weights.sort(dim=-1, descending=True)
    sorted_sizes = group_sizes.gather(-1, order)
    filled = sorted_sizes.cumsum(-1)
    holder = (filled < target.unsqueeze(-1)).sum(-1, keepdim=True).clamp(max=log_weights.shape[-1] - 1)
    anchor, upto, size = (values.gather(-1, holder).squeeze(-1) for values in (sorted_weights, filled, sorted_sizes))

    # Heavier groups have odds ≥ those of the holder, lighter ones ≤: two bounds on log r + anchor.
    odds_of_target = (target / (total - target).clamp(min=0.5)).log()
    low = ((target - upto + size).clamp(min=0.5) / (total - target).clamp(min=0.5)).log()
    high = (target / (upto - target).clamp(min=0.5)).log()
    relative = log_weights - anchor.unsqueeze(-1)
    shift = 0.5 * (low + high)
    looking = can_read(shift)
    for _ in range(ITERATIONS):
        p = torch.sigmoid(relative + shift.unsqueeze(-1))
        mean = (group_sizes * p).sum(-1)
        variance = (group_sizes * p * (1 - p)).sum(-1)
        too_low = mean < target
        low, high = torch.where(too_low, shift, low), torch.where(too_low, high, shift)
        error = torch.logit(mean / total) - odds_of_target
        step = error * mean * (total - mean) / (total * variance)
        # A step so small is at the root, where rounding may put it a hair outside; NaN compares False and is bisected.
        trusted = ((shift - step > low) & (shift - step < high)) | (step.abs() < SMALL_STEP)
        shift = torch.where(trusted, shift - step, 0.5 * (low + high))
        if looking and bool((step.abs() < SETTLED_STEP).all()):
            break
    return shift - anchor


def surplus(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """Σ_j m_j σ(log_odds_j) - n, from the balls that are the exception: its error is that of the variance, not of n."""
    drawn_often = log_odds > 0
    exceptions = torch.where(drawn_often, -group_sizes, group_sizes) * torch.sigmoid(torch.where(drawn_often, -log_odds, log_odds))
    return exceptions.sum(-1) + (torch.where(drawn_often, group_sizes, 0.0).sum(-1) - draws)
