r"""The law of the items of all subsets, given the sizes of the subsets.

The items are taken one after another, each with a probability proportional to its weight e^s among
the items that are left. Subset 0 gets the first n_0 items, subset 1 the next n_1, and so on. So
P(items | sizes) is a product over stages: in stage k the first n_k items that are taken from those
left are the items of subset k. That is Wallenius' law of urns of one ball. The items of all later
subsets matter only by their total weight, so they are one ball of that weight.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn._numerics.tracing import can_check
from diffurn._wallenius.integral import Integral


def sizes_of(labels: Tensor, subsets: int) -> Tensor:
    """The number of items of each subset, ``(..., K)``, of labels ``(..., n)``; others are left
    out.
    """
    inside = (labels >= 0) & (labels < subsets)
    sizes = torch.zeros(*labels.shape[:-1], subsets, dtype=torch.float64, device=labels.device)
    return sizes.scatter_add(-1, torch.where(inside, labels, 0), inside.double())


def log_prob_of_items(log_scores: Tensor, labels: Tensor, sizes: Tensor) -> Tensor:
    """log P(labels | sizes), shape (...), differentiable twice in the scores.

    Args:
        log_scores: s, finite, ``(..., n)``, float64.
        labels: the subset of each item, ``(..., n)``; -1 for items that do not count.
        sizes: the number of items of each subset, ``(..., K)``.
    """
    stages = sizes.shape[-1] - 1  # the last subset gets all items that are left
    items = labels.shape[-1]
    if not stages or not items:
        return log_scores.sum(-1) * 0 + 0 * sizes.sum(-1)
    order = labels.argsort(dim=-1, stable=True)
    scores = log_scores.expand(labels.shape).gather(-1, order)
    ends = (labels < 0).sum(-1, keepdim=True) + sizes.cumsum(-1)[..., :-1].long()
    starts = ends - sizes[..., :-1].long()
    # The items of later subsets as one ball, or none.
    is_later = labels.unsqueeze(-2) > torch.arange(stages, device=labels.device).unsqueeze(-1)
    some_later = is_later.any(-1, keepdim=True)
    of_later = torch.where(is_later, log_scores.unsqueeze(-2), -torch.inf)
    later = torch.where(some_later, of_later, 0.0).logsumexp(-1, keepdim=True)
    longest = items
    if can_check():
        longest = int(sizes[..., :-1].amax()) if sizes.numel() else 0
    places = starts.unsqueeze(-1) + torch.arange(longest, device=labels.device)
    own = places < ends.unsqueeze(-1)
    shape = *places.shape[:-1], items
    of_stage = scores.unsqueeze(-2).expand(shape).gather(-1, places.clamp(max=items - 1))
    exists = torch.cat([own, some_later], -1)
    log_weights = torch.where(exists, torch.cat([of_stage, later], -1), 0.0)
    balls = exists.to(scores.dtype)
    taken = torch.cat([own, torch.zeros_like(some_later)], -1).to(scores.dtype)
    return Integral.build(log_weights, balls, taken.sum(-1)).log_prob(taken).sum(-1)


def labels_by_rank(ranks: Tensor, sizes: Tensor) -> Tensor:
    """The subset of each item from its place in the order, ``(..., n)``.

    Places from the sum of all sizes on have the label K.
    """
    cuts = sizes.cumsum(-1).to(ranks.dtype).contiguous()
    return torch.searchsorted(cuts, ranks.contiguous(), right=True)
