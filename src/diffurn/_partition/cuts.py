r"""The cuts of an order: how many items the subsets before k hold together, and what follows for
single items.

The sizes and the order are independent. Item i is in a subset before k if it is among the first
C_k = n_0 + … + n_{k-1} of the order. So

.. math:: P(\text{item } i \text{ before subset } k) = \sum_j P(C_k = j)\,
          P(i \text{ among the first } j).

The first factor comes from sums of binomial counts, the second is a mean of Wallenius' law of
single balls.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffurn._fisher.tilt import log_tilt
from diffurn._numerics.tracing import can_check
from diffurn._wallenius.single_balls import SingleBalls

# Cuts of a smaller probability are left out of sums.
_NEGLIGIBLE = 1e-19


def prob_of_cuts(log_weights: Tensor, group_sizes: Tensor, items: Tensor, n: int) -> Tensor:
    """P(C_k = j) for k = 1, …, K - 1 and j = 0, …, n, shape ``(..., K - 1, n + 1)``.

    The sizes are independent binomial counts, given that they sum to the number of items. So C_k is
    a sum of binomial counts, given the sum of the others. The laws of both come from their
    characteristic functions, by a fast Fourier transform, with an absolute error of rounding.

    Args:
        log_weights: finite log ω, ``(..., K)``.
        group_sizes: m, ``(..., K)``; 0 for a subset of weight zero.
        items: the items of each row, ``(...)``; n is the most of them.
    """
    # All counts together have the mean n and a deviation of at most √n, so they are fewer than the
    # nodes up to a probability of e^-70.
    nodes = n + math.ceil(12 * math.sqrt(n)) + 30
    if log_weights.shape[-1] < 2:  # no cuts
        return log_weights.new_zeros(*log_weights.shape[:-1], 0, n + 1)
    tilt = log_tilt(log_weights.detach(), group_sizes, items).unsqueeze(-1)
    p = torch.sigmoid(log_weights + tilt).unsqueeze(-1)
    q = torch.sigmoid(-log_weights - tilt).unsqueeze(-1)
    angle = torch.arange(nodes // 2 + 1, dtype=p.dtype, device=p.device) * (2 * math.pi / nodes)
    turn = torch.polar(torch.ones_like(angle), -angle)
    of_groups = group_sizes.unsqueeze(-1) * torch.log(q + p * turn)
    before = of_groups.cumsum(-2)[..., :-1, :]
    behind = of_groups.flip(-2).cumsum(-2).flip(-2)[..., 1:, :]
    sums = torch.fft.irfft(torch.stack([before, behind]).exp(), n=nodes).clamp(min=0.0)
    j = torch.arange(n + 1, device=p.device)
    left = items[..., None, None].long() - j
    rest = sums[1].gather(-1, left.clamp(min=0).expand(*sums.shape[1:-1], n + 1))
    joint = torch.where(left >= 0, sums[0][..., : n + 1] * rest, 0.0)
    return joint / joint.sum(-1, keepdim=True)


def first_of_order(log_scores: Tensor, mask: Tensor, cuts: Tensor) -> SingleBalls:
    """The law of the first j items of the order as an urn of single balls, for cuts j ``(...)``.

    Missing items are never drawn. Cuts beyond the last item count as that.
    """
    exists = mask.to(log_scores.dtype)
    drawn = torch.minimum(cuts.to(log_scores.dtype), exists.sum(-1))
    shape = torch.broadcast_shapes((*drawn.shape, 1), log_scores.shape)
    scores, exists = log_scores.expand(shape), exists.expand(shape)
    return SingleBalls.of(SingleBalls.build(scores, exists, drawn.expand(shape[:-1])))


def inclusion(log_scores: Tensor, mask: Tensor, cuts: Tensor) -> Tensor:
    """P(item i in subset k), ``(..., n, K)``, from the probabilities of the cuts.

    Args:
        log_scores: s, finite, ``(..., n)``.
        mask: which items exist, ``(..., n)``.
        cuts: P(C_k = j), ``(..., K - 1, n + 1)``.
    """
    items = log_scores.shape[-1]
    if not items:
        return log_scores.new_zeros(*log_scores.shape, cuts.shape[-2] + 1)
    j = torch.arange(items + 1, device=log_scores.device)
    shape = (*log_scores.shape[:-1], items + 1, items)
    scores, exists = log_scores.unsqueeze(-2).expand(shape), mask.unsqueeze(-2).expand(shape)
    if can_check():
        matters = (cuts > _NEGLIGIBLE).any(-2)
        drawn = j.expand(matters.shape)[matters]
        found = first_of_order(scores[matters], exists[matters], drawn).mean()
        first = torch.zeros(shape, dtype=scores.dtype, device=scores.device)
        first = first.index_put((matters,), found)
    else:
        first = first_of_order(scores, exists, j.expand(shape[:-1])).mean()
    before = (cuts @ first).transpose(-1, -2)  # (..., n, K - 1)
    return in_subset(before, mask).clamp(min=0.0)


def in_subset(before: Tensor, mask: Tensor) -> Tensor:
    """Memberships of the K subsets ``(..., n, K)``, as differences.

    Args:
        before: whether, or how probably, an item is in a subset before k, ``(..., n, K - 1)``.
        mask: which items exist, ``(..., n)``.
    """
    exists = mask.unsqueeze(-1).to(before.dtype).expand(*before.shape[:-1], 1)
    return torch.cat([torch.zeros_like(exists), before, exists], -1).diff(dim=-1)


def given_others(log_scores: Tensor, log_times: Tensor, ranks: Tensor, cuts: Tensor) -> Tensor:
    """P(item i is among the first j of the order | the times of all other items), ``(..., n)``.

    Item i arrives after an exponential time of rate e^{s_i}. Given the times of all others, it is
    among the first j if it arrives before the j-th of them, at a time τ. That has the probability
    1 - exp(-e^{s_i} τ). It is a continuous function of the times, so its gradient in all scores,
    also through the times T = E e^{-s}, is an unbiased one of P(i among the first j).

    Args:
        log_scores: s, ``(..., n)``.
        log_times: the log times of arrival, with their gradients in the scores; +inf for missing
            items.
        ranks: the places of the items, from 0.
        cuts: j, ``(...)``.
    """
    j = cuts.unsqueeze(-1)
    first = ranks < j
    place = torch.where(first, j, j - 1).long()  # of the j-th item, without item i
    exists = log_times < torch.inf
    varies = exists & (place >= 0) & (place < exists.sum(-1, keepdim=True))
    in_order = torch.where(exists, log_times, 0.0).gather(-1, ranks.argsort(-1))
    log_tau = in_order.expand(place.shape).gather(-1, place.clamp(0, ranks.shape[-1] - 1))
    log_y = torch.where(varies, log_scores + log_tau, 0.0)
    probability = -torch.expm1(-log_y.clamp(max=700.0).exp())
    return torch.where(varies, probability, first.to(log_y.dtype))
