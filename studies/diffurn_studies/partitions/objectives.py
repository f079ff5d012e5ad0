"""What the methods minimise: the divergence of the clusters and the latents from their priors.

With a random partition, the items of a batch are partitioned together. The posterior has the
authors' form: an item's score is high if its likeliest cluster has a low number, so that the order
sorts the items by their clusters, and the sizes are near the shares of the clusters. As in their
code, no gradient flows through it but to the scale of the scores. The prior has the mixture's
log-weights and equal scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from diffurn import RandomPartition, TwoStageGumbel
from diffurn_studies.partitions.networks import Mixture
from diffurn_studies.partitions.options import Method, Options

# Keeps log ω finite for clusters without items.
_SMALLEST_SHARE = 1e-6
# Balls of a cluster in the urn of the exact posterior, beyond its share of the items.
_SPARE = 1


@dataclass(frozen=True)
class Posterior:
    """q(z | x) of a batch, and a draw of it; all ``(B, L)``."""

    means: Tensor
    log_stds: Tensor
    latents: Tensor


@dataclass(frozen=True)
class Weights:
    """Of the parts of an objective, and the temperature, at a step.

    Those that change while a captured step is replayed are tensors.
    """

    beta: float | Tensor
    gamma: float
    delta: float
    temperature: float | Tensor
    draws: int


class Clusters(nn.Module):
    """The mixture, and the scale of the scores."""

    def __init__(self, clusters: int, latent: int) -> None:
        super().__init__()
        self.mixture = Mixture(clusters, latent)
        self.log_scale = nn.Parameter(torch.ones(()))  # of base ten

    def prior(self, items: int) -> RandomPartition:
        scores = torch.zeros(items, device=self.log_scale.device)
        return RandomPartition(scores, self.mixture.log_prior(), validate_args=False)


# Maps clusters, the posterior of a batch and weights to a loss for the whole batch.
Objective = Callable[[Clusters, Posterior, Weights], Tensor]


def vade(clusters: Clusters, posterior: Posterior, weights: Weights) -> Tensor:
    """Each item on its own, with the responsibilities of its latents."""
    mixture = clusters.mixture
    log_shares = mixture.log_responsibilities(posterior.latents)
    of_latents = mixture.divergence(posterior.means, posterior.log_stds)
    of_clusters = log_shares - mixture.log_prior()
    return (log_shares.exp() * (weights.beta * of_latents + of_clusters)).sum()


def _scores_and_shares(clusters: Clusters, posterior: Posterior) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        responsibilities = clusters.mixture.log_responsibilities(posterior.means).exp()
        number = responsibilities.argmax(-1)
    return -(10**clusters.log_scale) * number, responsibilities.mean(0)


def exact(clusters: Clusters, posterior: Posterior, weights: Weights) -> Tensor:
    """The exact divergence of the partition, with unbiased gradients.

    The urn of the posterior holds few more balls than there are items, so that its sizes vary
    little. With as many balls of each cluster as there are items, they would vary as independent
    items do, and items between two cuts would be in wrong clusters.
    """
    scores, shares = _scores_and_shares(clusters, posterior)
    items = len(scores)
    sizes = (shares * items).ceil().long() + _SPARE
    partition = RandomPartition(scores, torch.zeros_like(shares), sizes, validate_args=False)
    memberships = partition.rsample((weights.draws,)).mean(0)
    of_clusters = clusters.mixture.divergence(posterior.means, posterior.log_stds)
    of_partition = partition.estimate_kl(clusters.prior(items), weights.draws).value
    return weights.beta * (memberships * of_clusters).sum() + of_partition


def bounds(clusters: Clusters, posterior: Posterior, weights: Weights) -> Tensor:
    """The paper's: the likeliest sizes, a relaxed order, and bounds of the log-probability.

    The logarithm of the number of orders times the largest probability of an order stands for the
    posterior, and the probability of one order for the prior. As in the authors' code, the
    divergence of the sizes is cut off at zero.
    """
    scores, shares = _scores_and_shares(clusters, posterior)
    items = len(scores)
    log_omega = torch.log(shares + _SMALLEST_SHARE)
    of_sizes = RandomPartition(scores.detach(), log_omega, validate_args=False).sizes
    sizes = of_sizes.mode
    how = TwoStageGumbel(weights.temperature)
    partition = RandomPartition(scores, log_omega, sizes.long(), estimator=how, validate_args=False)
    memberships = partition.rsample()
    of_clusters = clusters.mixture.divergence(posterior.means, posterior.log_stds)
    of_prior = clusters.prior(items).sizes.log_prob(sizes)
    log_orders = torch.lgamma(sizes + 1).sum()
    excess = (of_sizes.log_prob(sizes) + log_orders - of_prior).relu()
    in_order = scores.sort(descending=True).values
    likeliest = (in_order - in_order.flip(-1).logcumsumexp(-1).flip(-1)).sum()
    of_order = likeliest + math.lgamma(items + 1)
    of_partition = weights.gamma * excess + weights.delta * of_order / items
    return weights.beta * (memberships * of_clusters).sum() + of_partition


OBJECTIVES: dict[Method, Objective] = {"vade": vade, "bounds": bounds, "exact": exact}


def weights_at(options: Options, step: int) -> Weights:
    """The weights after so many steps: β rises and the temperature falls exponentially."""
    passed = min(1.0, step / options.annealing_steps)
    return Weights(
        beta=options.beta * 0.1 ** (1 - passed),
        gamma=options.gamma,
        delta=options.delta,
        temperature=options.hottest * (options.coldest / options.hottest) ** passed,
        draws=options.draws,
    )
