r"""The cuts of an order: how many items the subsets before k hold together, and what follows for
single items.

The sizes and the order are independent. Item i is in a subset before k if it is among the first
C_k = n_0 + … + n_{k-1} of the order. So

.. math:: P(\text{item } i \text{ before subset } k) = \sum_j P(C_k = j)\,
          P(i \text{ among the first } j).

The first factor is a quotient of normalisers of Fisher's law, the second a mean of Wallenius' law
of single balls.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn._fisher.quadrature import Quadrature
from diffurn._numerics.tracing import can_check
from diffurn._wallenius.single_balls import SingleBalls

# Cuts whose log-probability is below this are left out of sums.
_NEGLIGIBLE = -45.0


def log_prob_of_cuts(log_weights: Tensor, group_sizes: Tensor, items: Tensor, n: int) -> Tensor:
    """log P(C_k = j) for k = 1, …, K - 1 and j = 0, …, n, shape ``(..., K - 1, n + 1)``.

    Args:
        log_weights: finite log ω, ``(..., K)``.
        group_sizes: m, ``(..., K)``; 0 for a subset of weight zero.
        items: the items of each row, ``(...)``; n is the most of them.
    """
    subsets = log_weights.shape[-1]
    device = log_weights.device
    before = torch.arange(subsets, device=device) < torch.arange(1, subsets, device=device)[:, None]
    before = before.unsqueeze(-2)  # (K - 1, 1, K)
    cut = torch.arange(n + 1, dtype=log_weights.dtype, device=device)
    left = items[..., None, None] - cut
    weights, sizes = (x[..., None, None, :] for x in (log_weights, group_sizes))
    whole = Quadrature(log_weights, group_sizes, items).log_normalizer()
    total, possible = -whole[..., None, None], torch.ones_like(left, dtype=torch.bool)
    for part, drawn in ((before, cut), (~before, left)):
        within = torch.where(part, sizes, 0.0)
        inside = (drawn >= 0) & (drawn <= within.sum(-1))
        possible = possible & inside
        drawn = torch.where(inside, drawn, 0.0)
        known = torch.where(within > 0, weights, 0.0).expand(*drawn.shape, subsets)
        law = Quadrature(known, within.expand(known.shape), drawn)
        total = total + law.log_normalizer()
    return torch.where(possible, total, -torch.inf)


def among_the_first(log_scores: Tensor, mask: Tensor, cuts: Tensor) -> Tensor:
    """P(item i is among the first j of the order), ``(..., n)``, for the cuts j ``(...)``.

    It is 0 for missing items. Cuts beyond the last item count as that.
    """
    exists = mask.to(log_scores.dtype)
    drawn = torch.minimum(cuts.to(log_scores.dtype), exists.sum(-1))
    shape = torch.broadcast_shapes((*drawn.shape, 1), log_scores.shape)
    scores, exists = log_scores.expand(shape), exists.expand(shape)
    return SingleBalls.build(scores, exists, drawn.expand(shape[:-1])).mean()


def inclusion(log_scores: Tensor, mask: Tensor, log_cuts: Tensor) -> Tensor:
    """P(item i in subset k), ``(..., n, K)``, from the log-probabilities of the cuts.

    Args:
        log_scores: s, finite, ``(..., n)``.
        mask: which items exist, ``(..., n)``.
        log_cuts: log P(C_k = j), ``(..., K - 1, n + 1)``.
    """
    items = log_scores.shape[-1]
    if not items:
        return log_scores.new_zeros(*log_scores.shape, log_cuts.shape[-2] + 1)
    j = torch.arange(items + 1, device=log_scores.device)
    shape = (*log_scores.shape[:-1], items + 1, items)
    scores, exists = log_scores.unsqueeze(-2).expand(shape), mask.unsqueeze(-2).expand(shape)
    if can_check():
        matters = (log_cuts > _NEGLIGIBLE).any(-2)
        drawn = j.expand(matters.shape)[matters]
        found = among_the_first(scores[matters], exists[matters], drawn)
        first = torch.zeros(shape, dtype=scores.dtype, device=scores.device)
        first = first.index_put((matters,), found)
    else:
        first = among_the_first(scores, exists, j.expand(shape[:-1]))
    before = (log_cuts.exp() @ first).transpose(-1, -2)  # (..., n, K - 1)
    exists = mask.unsqueeze(-1).to(before.dtype)
    ends = torch.cat([torch.zeros_like(exists), before, exists], -1)
    return ends.diff(dim=-1).clamp(min=0.0)
