r"""The chain rule: the law of one group's count given the draws that earlier groups have left.

.. math:: α(x) = \log \binom{m_i}{x} + x \log ω_i
          + \log [z^{n_i - x}] \prod_{j>i} (1 + ω_j z)^{m_j} + \mathrm{const},

n_i the draws left. Sutter et al. (2023, section 4.1) merge all later groups into one of weight
:math:`ω_R = Σ ω_r m_r / Σ m_r`, which is another law unless their weights are equal: pass `merged`
later groups to get theirs, the later groups themselves to get Fisher's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from diffurn._fisher.moments import log_mass_anywhere, log_masses_near
from diffurn._fisher.nodes import half_width
from diffurn._fisher.tilt import log_tilt
from diffurn._numerics.binomial import binomial_log_pmf, binomial_variance

# Deep enough that no possible count is left out: a divergence looks into the tails.
_ALL_COUNTS = 1e6


def merged(log_odds: Tensor, group_sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Several groups as one, ``(..., k)`` to ``(..., 1)``: the paper's merge rule, in log space."""
    together = group_sizes.sum(-1, keepdim=True)
    log_sizes = torch.where(
        together > 0, group_sizes, 1.0
    ).log()  # without any balls, any weight will do
    return torch.logsumexp(log_odds + log_sizes, -1, keepdim=True) - torch.logsumexp(
        log_sizes, -1, keepdim=True
    ), together


@dataclass(frozen=True)
class Conditional:
    """Unnormalised log-weights α of the consecutive counts ``lowest + (0, …, W-1)``, -inf where
    impossible.
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
    """α over every count within `nats` of the most probable one, differentiable in all log-odds and
    in the draws left.

    Args:
        log_odds, size: of the group, shape ``(...)``.
        later_log_odds, later_sizes: of the groups after it, shape ``(..., k)``.
        draws_left: n_i, integers, shape ``(...)``; its gradient is that of the continuation of α to
            real n_i, first order only.
        nats: how far below its peak the law is still wanted.
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
        log_weights = _log_coefficients(x, possible, size, later, n) + steps * (
            log_odds - later_log_odds.squeeze(-1)
        ).unsqueeze(-1)
    else:
        # Within 40 nats of the peak one set of nodes gives all counts; a hot softmax looks deeper,
        # into tails that each need their own.
        if nats <= 40:
            rest = log_masses_near(later_log_odds, later_sizes, left_over)
        else:
            rest = log_mass_anywhere(
                later_log_odds.unsqueeze(-2), later_sizes.unsqueeze(-2), left_over
            )
        log_weights = binomial_log_pmf(x, size.unsqueeze(-1), log_odds.unsqueeze(-1)) + rest
    if draws_left.requires_grad:
        if later_sizes.shape[-1] == 1:
            slope = torch.digamma(later.unsqueeze(-1) - left_over + 1) - torch.digamma(
                left_over + 1
            )
        else:
            slope = -central_differences(rest.detach(), possible)
        log_weights = log_weights + (draws_left - n).unsqueeze(-1) * slope
    return Conditional(lowest, torch.where(possible, log_weights, -torch.inf))


def _log_tilt_of_all(
    log_odds: Tensor, size: Tensor, later_log_odds: Tensor, later_sizes: Tensor, draws_left: Tensor
) -> Tensor:
    odds, sizes = (
        torch.cat([log_odds.unsqueeze(-1), later_log_odds], -1),
        torch.cat([size.unsqueeze(-1), later_sizes], -1),
    )
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
    narrower = torch.minimum(
        binomial_variance(size, log_odds), binomial_variance(later_sizes, later_log_odds).sum(-1)
    )
    # Tails are bounded relative to one, the window is wanted relative to the peak, which is about
    # 0.4/σ.
    reach = half_width(narrower, nats + 2 + 0.5 * torch.log1p(narrower)) + 2
    lowest = torch.floor(mean - reach).maximum(draws_left - later_sizes.sum(-1)).clamp(min=0)
    highest = torch.ceil(mean + reach).minimum(torch.minimum(draws_left, size))
    return lowest, int((highest - lowest).max()) + 1 if lowest.numel() else 1


def _log_coefficients(
    x: Tensor, possible: Tensor, size: Tensor, later: Tensor, draws_left: Tensor
) -> Tensor:
    """log C(m, x) + log C(M, n - x) relative to the first x of each row, summed up from ratios: no
    lgamma of large numbers.
    """
    ratios = (size + 1).unsqueeze(-1) - x
    ratios.mul_((draws_left + 1).unsqueeze(-1) - x).div_(x).div_(
        (later - draws_left).unsqueeze(-1) + x
    )
    ratios.masked_fill_(~possible, 1.0)
    ratios[..., 0] = 1.0
    return ratios.log_().cumsum(-1)


def central_differences(values: Tensor, possible: Tensor) -> Tensor:
    """The slope along the last dimension, one-sided at the ends of what is possible."""
    known = possible[..., 1:] & possible[..., :-1]
    differences = torch.where(known, values.diff(dim=-1), 0.0)
    pad = torch.nn.functional.pad
    neighbours = pad(known.to(values.dtype), (1, 0)) + pad(known.to(values.dtype), (0, 1))
    return (pad(differences, (1, 0)) + pad(differences, (0, 1))) / neighbours.clamp(min=1)


def merged_log_prob(
    outcomes: Tensor, group_sizes: Tensor, draws: Tensor, log_weights: Tensor
) -> Tensor:
    r"""log of the product of the chain's conditional laws, each group against all later ones as one
    of weight Σωm/Σm.

    This is what `GumbelSoftmax(conditionals="merged")` draws from; Fisher's law only where the
    merged weights are equal.

    Args:
        outcomes: (K, c), whole counts that sum to `draws`.
        group_sizes: m, shape (c,).
        draws: n, a scalar.
        log_weights: (..., c).

    Returns:
        (..., K), differentiable in the log-weights.

    Example:
        >>> outcomes = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> sizes, log_weights = torch.tensor([1.0, 1.0]), torch.tensor([0.0, 1.0])
        >>> merged_log_prob(outcomes, sizes, torch.tensor(1.0), log_weights).exp()
        tensor([0.7311, 0.2689], dtype=torch.float64)
    """
    outcomes, group_sizes, log_weights = (
        outcomes.double(),
        group_sizes.double(),
        log_weights.double(),
    )
    total = log_weights.new_zeros(log_weights.shape[:-1] + outcomes.shape[:1])
    left = draws.double().expand(len(outcomes))
    for i in range(len(group_sizes) - 1):
        possible_left, row = torch.unique(left, return_inverse=True)
        shape = log_weights.shape[:-1] + possible_left.shape
        later, together = merged(log_weights[..., i + 1 :], group_sizes[i + 1 :])
        law = conditional(
            log_weights[..., i, None].expand(shape),
            group_sizes[i].expand(shape),
            later.unsqueeze(-2).expand(*shape, 1),
            together.expand(*shape, 1),
            possible_left.expand(shape),
            _ALL_COUNTS,
        )
        column = (outcomes[:, i] - law.lowest[..., row]).to(torch.int64)
        total = total + torch.log_softmax(law.log_weights, -1)[..., row, :].gather(
            -1, column.unsqueeze(-1)
        ).squeeze(-1)
        left = left - outcomes[:, i]
    return total
