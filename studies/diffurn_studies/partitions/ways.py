"""Ways to share the neurons of a layer among two tasks by a random partition.

A way maps scores (..., n), log-weights (..., 2) and a temperature to memberships (..., n, 2).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from diffurn import (
    ConditionalST,
    FisherHypergeometric,
    RandomPartition,
    TwoStageGumbel,
    neuralsort,
)
from diffurn.estimators import Estimator

TASKS = 2
Way = Callable[[Tensor, Tensor, Tensor], Tensor]


def gumbel(scores: Tensor, log_weights: Tensor, temperature: Tensor) -> Tensor:
    """The paper's draws: Gumbel-Softmax of the sizes times NeuralSort of noisy scores."""
    return _drawn(scores, log_weights, TwoStageGumbel(temperature))


def conditional(scores: Tensor, log_weights: Tensor, temperature: Tensor) -> Tensor:
    """Exact draws, with exact gradients of conditional probabilities; without a temperature."""
    return _drawn(scores, log_weights, ConditionalST())


def _drawn(scores: Tensor, log_weights: Tensor, estimator: Estimator) -> Tensor:
    partition = RandomPartition(scores, log_weights, estimator=estimator, validate_args=False)
    return partition.rsample()


def released(scores: Tensor, log_weights: Tensor, temperature: Tensor) -> Tensor:
    """The setting of the authors' code: no noise, the likeliest sizes, and a relaxed order.

    Forward the sizes are whole. Backward they have the gradient of a softmax over all sizes. Of two
    subsets the merged chain is Fisher's law.
    """
    first = torch.arange(scores.shape[-1] + 1, device=scores.device)
    sizes = torch.stack([first, first.flip(0)], -1)
    log_probs = _sizes(scores, log_weights.unsqueeze(-2)).log_prob(sizes)
    soft = torch.softmax(log_probs / temperature, -1)
    hard = (first == log_probs.argmax(-1, keepdim=True)).to(soft.dtype)
    one_hot = hard + soft - soft.detach()
    is_first = one_hot.flip(-1).cumsum(-1).flip(-1)[..., 1:]  # of a place of the order
    places = torch.stack([is_first, 1 - is_first], -2)
    return (places @ neuralsort(scores, temperature)).clamp(0.0, 1.0).mT


def settled(scores: Tensor, log_weights: Tensor) -> Tensor:
    """No draw: the likeliest sizes, and the items of the highest scores first."""
    number = _sizes(scores, log_weights).mode[..., :1]
    ranks = scores.argsort(-1, descending=True).argsort(-1)
    is_first = (ranks < number).to(scores.dtype)
    return torch.stack([is_first, 1 - is_first], -1)


def _sizes(scores: Tensor, log_weights: Tensor) -> FisherHypergeometric:
    items = scores.shape[-1]
    return FisherHypergeometric(
        [items] * TASKS, items, log_weights=log_weights, validate_args=False
    )


WAYS: dict[str, Way] = {"released": released, "gumbel": gumbel, "conditional": conditional}
