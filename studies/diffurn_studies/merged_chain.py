"""The paper's chain of merged groups: its law, from Fisher's law of two groups.

The chain draws one group after another. All later groups count as one group, of their average
weight Σωm/Σm. ``GumbelSoftmax(conditionals="merged")`` draws from this law. It is Fisher's law only
where the merged weights are equal.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn import FisherHypergeometric


def merged_log_weight(log_weights: Tensor, group_sizes: Tensor) -> Tensor:
    """log Σωm/Σm, the weight of some groups as one: (..., c) to (...)."""
    return torch.logsumexp(log_weights + group_sizes.log(), -1) - group_sizes.sum(-1).log()


def merged_log_prob(
    outcomes: Tensor, group_sizes: Tensor, draws: int, log_weights: Tensor
) -> Tensor:
    """log of the product of the chain's conditional laws.

    Args:
        outcomes: (K, c), whole counts that sum to `draws`.
        group_sizes: m, shape (c,).
        draws: n.
        log_weights: (..., c).

    Returns:
        (..., K), differentiable in the log-weights.

    Example:
        >>> outcomes = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> sizes, log_weights = torch.tensor([1.0, 1.0]), torch.tensor([0.0, 1.0])
        >>> merged_log_prob(outcomes, sizes, 1, log_weights).exp()
        tensor([0.7311, 0.2689], dtype=torch.float64)
    """
    outcomes, sizes, log_weights = outcomes.double(), group_sizes.double(), log_weights.double()
    total = log_weights.new_zeros(log_weights.shape[:-1] + outcomes.shape[:1])
    left = torch.full_like(outcomes[:, 0], draws)
    for i in range(len(sizes) - 1):
        later = merged_log_weight(log_weights[..., i + 1 :], sizes[i + 1 :])
        pair = torch.stack([log_weights[..., i], later], -1)
        both_sizes = torch.stack([sizes[i], sizes[i + 1 :].sum()])
        total = total + _conditional_log_prob(outcomes[:, i], left, both_sizes, pair)
        left = left - outcomes[:, i]
    return total


def _conditional_log_prob(x: Tensor, left: Tensor, sizes: Tensor, log_weights: Tensor) -> Tensor:
    """log P(x | left) of an urn of two groups, for many (x, left): (K,) to (..., K).

    There are far fewer numbers of draws left than outcomes, so each urn is set up once, and all its
    possible counts are looked up in a table.
    """
    draws, row = torch.unique(left, return_inverse=True)
    lowest, highest = (draws - sizes[1]).clamp(min=0), torch.minimum(draws, sizes[0])
    longest = int((highest - lowest).max()) + 1
    counts = torch.minimum(lowest + torch.arange(longest).unsqueeze(-1), highest)
    urn = FisherHypergeometric(sizes, draws, log_weights=log_weights.unsqueeze(-2))
    batch = (1,) * (log_weights.ndim - 1)
    values = torch.stack([counts, draws - counts], -1).view(longest, *batch, len(draws), 2)
    table = urn.log_prob(values.expand(longest, *urn.batch_shape, 2)).movedim(0, -1)
    return table[..., row, (x - lowest[row]).long()]
