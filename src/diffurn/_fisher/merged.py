"""The law that the paper's chain of merged groups draws from, over all outcomes."""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn._fisher.conditionals import conditional, merged

# Deep enough that no possible count is left out: a divergence looks into the tails.
_ALL_COUNTS = 1e6


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
