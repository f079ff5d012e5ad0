r"""The law of one group's count, given the draws that earlier groups have left.

With n_i draws left, the log-weights of its counts are

.. math:: α(x) = \log \binom{m_i}{x} + x \log ω_i
          + \log [z^{n_i - x}] \prod_{j>i} (1 + ω_j z)^{m_j} + \mathrm{const}.

Sutter et al. (2023, section 4.1) merge all later groups into one of weight
:math:`ω_R = Σ ω_r m_r / Σ m_r`. That is another law, unless the later weights are equal. Pass the
later groups themselves for Fisher's law, or `merged` later groups for theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from diffurn._fisher.accuracy import NEAR_NATS
from diffurn._fisher.moments import log_mass_anywhere, log_masses_near
from diffurn._fisher.nodes import half_width
from diffurn._fisher.tilt import log_tilt
from diffurn._numerics.binomial import binomial_log_pmf, binomial_variance


def merged(log_odds: Tensor, group_sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Log-odds and size of groups ``(..., k)`` merged into one, ``(..., 1)``, as in the paper."""
    together = group_sizes.sum(-1, keepdim=True)
    # If no group has any balls, any weight is right.
    log_sizes = torch.where(together > 0, group_sizes, 1.0).log()
    log_sum = torch.logsumexp(log_odds + log_sizes, -1, keepdim=True)
    return log_sum - torch.logsumexp(log_sizes, -1, keepdim=True), together


@dataclass(frozen=True)
class Conditional:
    """The law of consecutive counts, by their unnormalised log-weights α.

    Attributes:
        lowest: the count of column 0, ``(...)``; column k stands for ``lowest + k``.
        log_weights: α, ``(..., W)``; -inf for impossible counts.
    """

    lowest: Tensor
    log_weights: Tensor

    @property
    def steps(self) -> Tensor:
        return torch.arange(
            self.log_weights.shape[-1], dtype=self.log_weights.dtype, device=self.log_weights.device
        )


def conditional(
    log_odds: Tensor,
    size: Tensor,
    later_log_odds: Tensor,
    later_sizes: Tensor,
    draws_left: Tensor,
    nats: float,
) -> Conditional:
    """The log-weights α of all counts that are within `nats` of the most probable one.

    They are differentiable in all log-odds and in the draws left.

    Args:
        log_odds, size: of the group, shape ``(...)``.
        later_log_odds, later_sizes: of the groups after it, shape ``(..., k)``.
        draws_left: n_i, integers, shape ``(...)``. Its gradient is that of α continued to real n_i,
            to first order only.
        nats: counts whose log-weight is further below the largest may be left out.
    """
    n, later = draws_left.detach(), later_sizes.sum(-1)
    highest_possible = torch.minimum(n, size)
    tilt = _log_tilt_of_all(log_odds.detach(), size, later_log_odds.detach(), later_sizes, n)
    log_odds, later_log_odds = log_odds + tilt, later_log_odds + tilt.unsqueeze(-1)
    lowest, width = _window(log_odds.detach(), size, later_log_odds.detach(), later_sizes, n, nats)
    steps = torch.arange(width, dtype=log_odds.dtype, device=log_odds.device)
    x = lowest.unsqueeze(-1) + steps
    possible = x <= highest_possible.unsqueeze(-1)
    x = torch.where(possible, x, lowest.unsqueeze(-1))
    left_over = n.unsqueeze(-1) - x
    if later_sizes.shape[-1] == 1:  # two groups: an exponential family in one parameter
        coefficients = _log_coefficients(x, possible, size, later, n)
        ratio = (log_odds - later_log_odds.squeeze(-1)).unsqueeze(-1)
        log_weights = coefficients + steps * ratio
    else:
        if nats <= NEAR_NATS:
            rest = log_masses_near(later_log_odds, later_sizes, left_over)
        else:
            rest = log_mass_anywhere(
                later_log_odds.unsqueeze(-2), later_sizes.unsqueeze(-2), left_over
            )
        log_weights = binomial_log_pmf(x, size.unsqueeze(-1), log_odds.unsqueeze(-1)) + rest
    if draws_left.requires_grad:
        if later_sizes.shape[-1] == 1:
            of_not_drawn = torch.digamma(later.unsqueeze(-1) - left_over + 1)
            slope = of_not_drawn - torch.digamma(left_over + 1)
        else:
            slope = -central_differences(rest.detach(), possible)
        log_weights = log_weights + (draws_left - n).unsqueeze(-1) * slope
    return Conditional(lowest, torch.where(possible, log_weights, -torch.inf))


def _log_tilt_of_all(
    log_odds: Tensor, size: Tensor, later_log_odds: Tensor, later_sizes: Tensor, draws_left: Tensor
) -> Tensor:
    odds = torch.cat([log_odds.unsqueeze(-1), later_log_odds], -1)
    sizes = torch.cat([size.unsqueeze(-1), later_sizes], -1)
    return log_tilt(odds, sizes, draws_left)


def _window(
    log_odds: Tensor,
    size: Tensor,
    later_log_odds: Tensor,
    later_sizes: Tensor,
    draws_left: Tensor,
    nats: float,
) -> tuple[Tensor, int]:
    """The lowest count of each row's window and the common width, from tilted log-odds."""
    mean = size * torch.sigmoid(log_odds)
    own = binomial_variance(size, log_odds)
    narrower = torch.minimum(own, binomial_variance(later_sizes, later_log_odds).sum(-1))
    # `half_width` bounds tails relative to one. The window is relative to the peak, which is about
    # 0.4/σ, so about 2 + log σ nats are added.
    reach = half_width(narrower, nats + 2 + 0.5 * torch.log1p(narrower)) + 2
    lowest = torch.floor(mean - reach).maximum(draws_left - later_sizes.sum(-1)).clamp(min=0)
    highest = torch.ceil(mean + reach).minimum(torch.minimum(draws_left, size))
    return lowest, int((highest - lowest).max()) + 1 if lowest.numel() else 1


def _log_coefficients(
    x: Tensor, possible: Tensor, size: Tensor, later: Tensor, draws_left: Tensor
) -> Tensor:
    """log C(m, x) + log C(M, n - x) relative to the first x of each row.

    It is a sum of log-ratios of neighbours, without lgamma of large numbers.
    """
    # From x - 1 to x the product grows by (m - x + 1) (n - x + 1) / (x (M - n + x)).
    ratios = (size + 1).unsqueeze(-1) - x
    ratios.mul_((draws_left + 1).unsqueeze(-1) - x).div_(x)
    ratios.div_((later - draws_left).unsqueeze(-1) + x)
    ratios.masked_fill_(~possible, 1.0)
    ratios[..., 0] = 1.0
    return ratios.log_().cumsum(-1)


def central_differences(values: Tensor, possible: Tensor) -> Tensor:
    """The slope along the last dimension, one-sided at the ends of the possible range."""
    known = possible[..., 1:] & possible[..., :-1]
    differences = torch.where(known, values.diff(dim=-1), 0.0)
    pad = torch.nn.functional.pad
    neighbours = pad(known.to(values.dtype), (1, 0)) + pad(known.to(values.dtype), (0, 1))
    return (pad(differences, (1, 0)) + pad(differences, (0, 1))) / neighbours.clamp(min=1)
