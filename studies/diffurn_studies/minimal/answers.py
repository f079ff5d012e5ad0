"""The weights that training can reach: by maximum likelihood, and by the smallest loss."""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn import FisherHypergeometric
from diffurn_studies.merged_chain import merged_log_weight
from diffurn_studies.minimal.urn import Urn
from diffurn_studies.newton import minimiser


def reachable_weights(mean: Tensor, urn: Urn) -> dict[str, Tensor]:
    """The centred log-weights that data with this mean (..., 3) ask for: by likelihood, by the
    loss, and by the loss if the model is the merged chain.
    """
    start = torch.zeros_like(mean)
    likeliest = minimiser(lambda log_weights: _unlikelihood(log_weights, mean, urn), start)
    smallest = minimiser(lambda log_weights: _expected_loss(log_weights, mean, urn), likeliest)
    by_chain = minimiser(lambda log_weights: _merged_loss(log_weights, mean, urn), likeliest)
    return {
        name: centred(x)
        for name, x in (("likelihood", likeliest), ("loss", smallest), ("merged_loss", by_chain))
    }


def centred(log_weights: Tensor) -> Tensor:
    """Log-weights of mean zero; the scale of ω changes nothing."""
    return log_weights - log_weights.mean(-1, keepdim=True)


def _unlikelihood(log_weights: Tensor, mean: Tensor, urn: Urn) -> Tensor:
    """The negative log-likelihood per datum, up to a constant."""
    log_normalizer = urn.with_weights(log_weights=log_weights).log_normalizer
    return log_normalizer - (log_weights * mean).sum(-1)


def _expected_loss(log_weights: Tensor, mean: Tensor, urn: Urn) -> Tensor:
    """E‖X_D - X‖² less the variance of the data, which no ω changes."""
    model = urn.with_weights(log_weights=log_weights)
    return ((model.mean - mean).square() + model.variance).sum(-1)


def _merged_loss(log_weights: Tensor, mean: Tensor, urn: Urn) -> Tensor:
    """The same if X is drawn by the merged chain: group 1 against the other two as one, then group
    2 against group 3.
    """
    later_sizes = log_weights.new_tensor(urn.group_sizes[1:])
    later = merged_log_weight(log_weights[..., 1:], later_sizes).unsqueeze(-1)
    first = torch.arange(urn.draws + 1.0, dtype=log_weights.dtype).unsqueeze(-1)
    front = FisherHypergeometric(
        [urn.group_sizes[0], int(later_sizes.sum())],
        urn.draws,
        log_weights=torch.cat([log_weights[..., :1], later], -1),
    )
    rear = FisherHypergeometric(
        urn.group_sizes[1:], urn.draws - first, log_weights=log_weights[..., 1:]
    )
    error = (first - mean[..., 0]).square() + (
        (rear.mean - mean[..., 1:]).square() + rear.variance
    ).sum(-1)
    both = torch.stack([first, urn.draws - first], -1)
    return (front.log_prob(both).exp() * error).sum(0)
