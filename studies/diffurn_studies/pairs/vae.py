r"""Variational autoencoders for pairs of images that share some of their generative factors: a
stack of S models.

One encoder serves both views, :math:`q_j = q(z|x_j)`. A method (`diffurn_studies.pairs.methods`)
calls some latents shared: in these both views get the average of the two posteriors. With
:math:`q'_j` the posteriors after this step, the loss of a pair is

.. math:: \tfrac12 \sum_j \big[-\mathrm{E}_{q'_j} \log p(x_j|z)
          + β \, \mathrm{KL}(q'_j \| N(0, 1))\big]

as in the paper's code base, where the KL of a shared latent counts for both views
(``payment="both"``). In a model whose shared latents are one variable, the evidence lower bound has
this KL, and one draw of the latent, once per pair (``payment="once"``).

The number k̂ of independent latents is a latent variable, too. With an urn as its prior the bound of
a pair contains KL(q(k̂)‖p(k̂)), which both views share, so the loss above contains half of it. The
paper leaves it out (``prior=None``). For a random partition it is the KL divergence of k̂ and of the
set of independent latents.

The networks are those of F. Locatello et al. (ICML 2019, 2020).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from diffurn import RandomPartition
from diffurn_studies.pairs.counts import (
    count_divergence,
    independent_log_probs,
    largest,
    log_divergences,
    log_sets,
)
from diffurn_studies.pairs.methods import DRAWN, Differences, Method, Partition, with_prior
from diffurn_studies.stacked.convolutions import StackedConvolution, StackedTransposedConvolution
from diffurn_studies.stacked.modules import Groups, StackedLinear, glorot_, stacked_layers


class Posterior(NamedTuple):
    """Normal distributions of the latents of both views, each (S, 2, B, d)."""

    mean: Tensor
    log_variance: Tensor


class Noise(NamedTuple):
    """The noise of a step: normals (S, 2, B, d) for the latents, Gumbel variates for the urns and
    stochastic sorts, (S, B, ·), see `Differences`.
    """

    normal: Tensor
    gumbel: Tensor


class Facts(NamedTuple):
    """Facts about the pairs that some methods are given, see `Differences`; both (S, B)."""

    known: Tensor
    differing: Tensor


class Losses(NamedTuple):
    """Means over the pairs of every model, each (S,)."""

    loss: Tensor
    reconstruction: Tensor
    kl: Tensor
    independent: Tensor


class PairVAE(nn.Module):
    """A stack of models, one for every method in `methods`; each has Glorot's initialisation from
    its own seed.

    Args:
        methods: one for each model; they may differ.
        seeds: one for each model.
        shape: height, width and channels of an image; height and width are equal and a multiple of
            16.
        latent: d.
        channels: of the first convolution; the other widths follow from it.
        compute: dtype of images and activations inside the networks; parameters and latents have
            torch's default dtype.
    """

    def __init__(
        self,
        methods: Sequence[Method],
        seeds: Sequence[int],
        shape: tuple[int, int, int],
        latent: int = 10,
        channels: int = 32,
        compute: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        height, width, colours = shape
        if height != width or height % 16:
            raise ValueError(
                f"pictures are {height} × {width}, but must be square with sides that are "
                "multiples of 16"
            )
        models = len(methods)
        self.latent, self.compute = latent, compute or torch.get_default_dtype()
        self.corner = (height // 16, height // 16, 2 * channels)
        flat, dense = math.prod(self.corner), 8 * channels
        self.convolutions = nn.ModuleList(
            [
                StackedConvolution(models, colours, channels, kernel=4),
                StackedConvolution(models, channels, channels, kernel=4),
                StackedConvolution(models, channels, 2 * channels, kernel=2),
                StackedConvolution(models, 2 * channels, 2 * channels, kernel=2),
            ]
        )
        self.to_posterior = stacked_layers(models, (flat, dense, 2 * latent))
        self.from_latents = stacked_layers(models, (latent, dense, flat))
        self.transposed = nn.ModuleList(
            [
                StackedTransposedConvolution(models, 2 * channels, 2 * channels),
                StackedTransposedConvolution(models, 2 * channels, channels),
                StackedTransposedConvolution(models, channels, channels),
                StackedTransposedConvolution(models, channels, colours, relu=False),
            ]
        )
        # log ω of "independent" and "shared"; unused in models without an urn
        self.importance = StackedLinear(models, latent, 2)
        priors = [method.prior for method in methods]
        # log ω₀ where it is learned; without such a model there is no parameter
        self.learned_prior = nn.Parameter(torch.zeros(models, 1)) if "learned" in priors else None
        self.has_priors = any(prior is not None for prior in priors)
        self.methods = tuple(methods)
        divided = [isinstance(method.aggregation, Partition) for method in methods]
        self.has_partitions = any(divided)
        # A prior of k̂ changes the loss, not the choice of latents.
        self.groups = Groups(
            [
                with_prior(method, None).aggregation if method.draws else method.aggregation
                for method in methods
            ]
        )
        per_model = {
            "once": [method.payment == "once" for method in methods],
            "product": [method.averaging == "product" for method in methods],
            "log1p": [
                isinstance(method.aggregation, DRAWN) and method.aggregation.scale == "log1p"
                for method in methods
            ],
            "beta": [method.beta for method in methods],
            "by_network": [
                isinstance(method.aggregation, Partition) and method.aggregation.scores == "network"
                for method in methods
            ],
            "has_prior": [prior is not None for prior in priors],
            "learns_prior": [prior == "learned" for prior in priors],
            "prior": [prior if isinstance(prior, float | int) else 0.0 for prior in priors],
        }
        for name, values in per_model.items():
            self.register_buffer(name, torch.tensor(values), persistent=False)
        with_kl = [own and prior is not None for own, prior in zip(divided, priors, strict=True)]
        rows = torch.tensor(with_kl).nonzero().squeeze(1)
        self.register_buffer("partition_rows", rows, persistent=False)
        # scores of random partitions; the last layer, so that the others keep their start
        self.scorer = StackedLinear(models, latent, latent) if self.has_partitions else None
        self._start(seeds)

    def _start(self, seeds: Sequence[int]) -> None:
        """Glorot's initialisation of the weights; biases are zero."""
        for number, layer in enumerate(self.modules()):
            own_seeds = [1_000 * seed + number for seed in seeds]
            if isinstance(layer, StackedLinear):
                glorot_(layer.weight, own_seeds)
            elif isinstance(layer, (StackedConvolution, StackedTransposedConvolution)):
                glorot_(layer.weight, own_seeds, layer.fans)

    def encode(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of q(z|x), each (S, N, d), for pictures (S, N, H, W, C)."""
        x = pictures.to(self.compute)
        for layer in self.convolutions:
            x = layer(x)
        x = torch.relu(self.to_posterior[0](x.flatten(2)))
        mean, log_variance = self.to_posterior[1](x).to(self.importance.weight.dtype).chunk(2, -1)
        return mean, log_variance

    def decode(self, z: Tensor) -> Tensor:
        """Log-odds of the pixels, (S, N, H, W, C), for latents (S, N, d)."""
        x = z.to(self.compute)
        for layer in self.from_latents:
            x = torch.relu(layer(x))
        logits: Tensor = x.unflatten(-1, self.corner)
        for layer in self.transposed:
            logits = layer(logits)
        return logits.to(self.importance.weight.dtype)

    def posterior(self, pictures: Tensor) -> Posterior:
        """Of both views, from pictures (S, 2, B, H, W, C)."""
        pairs = pictures.shape[2]
        return Posterior(
            *(values.unflatten(1, (2, pairs)) for values in self.encode(pictures.flatten(1, 2)))
        )

    def independent(
        self, own: Posterior, gumbel: Tensor, facts: Facts, temperature: Tensor
    ) -> Tensor:
        """Which latents each model's method calls independent, (S, B, d)."""
        one_sided, symmetric = divergences(own)
        everything = Differences(
            *(one_sided, symmetric, self._log_weights(symmetric), *facts, gumbel, temperature),
            self._log_scores(symmetric),
        )
        parts = []
        for place, aggregation in enumerate(self.groups.kinds):
            parts.append(
                aggregation.independent(
                    Differences(*(self.groups.of(values, place) for values in everything))
                )
            )
        return self.groups.joined(parts)

    def _features(self, symmetric: Tensor) -> Tensor:
        """The inputs of the dense layers, (S, B, d)."""
        return torch.where(
            self.get_buffer("log1p")[:, None, None], torch.log1p(symmetric), symmetric
        )

    def _log_weights(self, symmetric: Tensor) -> Tensor:
        """log ω of "independent" and "shared", (S, B, 2)."""
        log_weights: Tensor = self.importance(self._features(symmetric))
        return log_weights

    def _log_scores(self, symmetric: Tensor) -> Tensor:
        """The scores of random partitions, (S, B, d)."""
        by_divergence = log_divergences(symmetric)
        if self.scorer is None:
            return by_divergence
        by_network = self.scorer(self._features(symmetric))
        return torch.where(self.get_buffer("by_network")[:, None, None], by_network, by_divergence)

    def count_log_probs(self, own: Posterior) -> Tensor:
        """log q(k̂) over k̂ = 0, …, d, (S, B, d + 1); without meaning in models without an urn."""
        return independent_log_probs(self._log_weights(divergences(own)[1]), self.latent)

    def log_prior(self) -> Tensor:
        """log ω₀ of every model, (S,); 0 in models without a prior of k̂."""
        given = self.get_buffer("prior")
        if self.learned_prior is None:
            return given
        return torch.where(self.get_buffer("learns_prior"), self.learned_prior[:, 0], given)

    def prior_log_probs(self) -> Tensor:
        """log p(k̂) over k̂ = 0, …, d, (S, d + 1)."""
        log_prior = self.log_prior()
        log_weights = torch.stack([log_prior, torch.zeros_like(log_prior)], -1)
        return independent_log_probs(log_weights, self.latent)

    def choice_kl(self, own: Posterior, independent: Tensor) -> Tensor | None:
        """The KL divergence of k̂, and of the set of independent latents for random partitions,
        (S, B); zero in models without a prior of k̂, None if no model has one.

        That of k̂ is a sum over all k̂. That of the set given k̂ is an unbiased estimate, with an
        unbiased gradient: the exact log-probabilities of the set that was drawn.
        """
        if not self.has_priors:
            return None
        kl = count_divergence(self.count_log_probs(own), self.prior_log_probs().unsqueeze(1))
        kl = torch.where(self.get_buffer("has_prior")[:, None], kl, 0.0)
        rows = self.get_buffer("partition_rows")
        return kl.index_add(0, rows, self._set_kl(own, independent, rows)) if len(rows) else kl

    def _set_kl(self, own: Posterior, independent: Tensor, rows: Tensor) -> Tensor:
        """log q(set | k̂) - log p(set | k̂) of the given models, (models, B), with the gradient of
        its mean by the score. The mean of the other pairs is the baseline.
        """
        symmetric = divergences(own)[1]
        scores, log_weights, chosen = (
            values.index_select(0, rows)
            for values in (
                self._log_scores(symmetric),
                self._log_weights(symmetric),
                independent.detach().round(),
            )
        )
        partition = RandomPartition(scores, log_weights, validate_args=False)
        log_q = partition.log_prob((1 - chosen).long())
        number = chosen.sum(-1)
        of_number = independent_log_probs(log_weights, self.latent)
        of_number = of_number.gather(-1, number.long().unsqueeze(-1)).squeeze(-1)
        value = (log_q - of_number + log_sets(number, self.latent)).detach()
        others = (value.sum(-1, keepdim=True) - value) / max(1, value.shape[-1] - 1)
        return value + (value - others) * (log_q - log_q.detach())

    def aggregated(self, own: Posterior, independent: Tensor) -> Posterior:
        """The posteriors of both views, with their average in the shared latents."""
        shared = average(own, self.get_buffer("product")[:, None, None])
        mask = independent.unsqueeze(1)
        return Posterior(
            *(
                common.unsqueeze(1) + mask * (each - common.unsqueeze(1))
                for each, common in zip(own, shared, strict=True)
            )
        )

    def losses(self, pictures: Tensor, noise: Noise, facts: Facts, temperature: Tensor) -> Losses:
        """The loss to minimise and its parts, per pair.

        Args:
            pictures: pixels in [0, 1], (S, 2, B, H, W, C).
            noise: of this step.
            facts: about the pairs.
            temperature: of each model, (S,).
        """
        own = self.posterior(pictures)
        independent = self.independent(own, noise.gumbel, facts, temperature)
        kl = self.choice_kl(own, independent)
        return self.losses_given(pictures, own, independent, noise.normal, kl)

    def losses_given(
        self,
        pictures: Tensor,
        own: Posterior,
        independent: Tensor,
        normal: Tensor,
        choice_kl: Tensor | None,
    ) -> Losses:
        """The same for a given choice of independent latents, and its KL divergence, (S, B)."""
        posterior = self.aggregated(own, independent)
        once = self.get_buffer("once")[:, None, None]
        apart = independent.detach().round().bool() | ~once
        first, second = normal.unbind(1)
        # A latent that is one variable is drawn once.
        epsilon = torch.stack([first, torch.where(apart, second, first)], 1)
        z = posterior.mean + torch.exp(0.5 * posterior.log_variance) * epsilon
        logits = self.decode(z.flatten(1, 2)).unflatten(1, z.shape[1:3])
        errors = (
            binary_cross_entropy_with_logits(logits, pictures.to(logits.dtype), reduction="none")
            .flatten(3)
            .sum(-1)
        )
        kl = standard_kl(posterior).sum(1)
        kl = torch.where(once, 0.5 * (1 + independent), 1.0) * kl
        reconstruction, kl = errors.mean((1, 2)), 0.5 * kl.sum(-1).mean(-1)
        if choice_kl is not None:
            kl = kl + 0.5 * choice_kl.mean(-1)
        loss = reconstruction + self.get_buffer("beta") * kl
        return Losses(loss, reconstruction, kl, independent.sum(-1).mean(-1))

    def profile(self, pictures: Tensor, normal: Tensor) -> Tensor:
        """The loss for every fixed k̂ = 0, …, d, where the k̂ latents with the largest divergences
        are independent: (S, d + 1). The KL divergence of a fixed choice is -log p(choice).
        """
        own = self.posterior(pictures)
        _, symmetric = divergences(own)
        pairs = symmetric[..., 0]
        costs = -self.prior_log_probs() * self.get_buffer("has_prior")[:, None]
        sets = log_sets(torch.arange(self.latent + 1.0, device=costs.device), self.latent)
        rows = self.get_buffer("partition_rows")
        costs = costs.index_add(0, rows, sets.to(costs.dtype).expand(len(rows), -1))
        losses = [
            self.losses_given(
                pictures,
                own,
                largest(symmetric, torch.full_like(pairs, k)),
                normal,
                costs[:, k, None].expand_as(pairs) if self.has_priors else None,
            ).loss
            for k in range(self.latent + 1)
        ]
        return torch.stack(losses, -1)


def divergences(own: Posterior) -> tuple[Tensor, Tensor]:
    """KL(q₁‖q₂) and the mean of it and KL(q₂‖q₁), for every latent, (S, B, d)."""
    (mean_1, mean_2), (log_1, log_2) = own.mean.unbind(1), own.log_variance.unbind(1)
    squared = (mean_1 - mean_2).square()
    forward = 0.5 * (torch.exp(log_1 - log_2) + squared * torch.exp(-log_2) - 1 + log_2 - log_1)
    backward = 0.5 * (torch.exp(log_2 - log_1) + squared * torch.exp(-log_1) - 1 + log_1 - log_2)
    return forward, 0.5 * (forward + backward)


def average(own: Posterior, product: Tensor) -> Posterior:
    """One posterior for both views, (S, B, d): mean of means and of variances, or, where `product`,
    the product of experts of disentanglement_lib.

    The product of two normal densities has the sum of their precisions. Like the paper's code base
    we take the mean of the precisions instead, so that the product of two equal experts is the
    expert itself.
    """
    (mean_1, mean_2), (log_1, log_2) = own.mean.unbind(1), own.log_variance.unbind(1)
    halved = torch.logaddexp(log_1, log_2) - math.log(2)
    harmonic = log_1 + log_2 - halved
    weight = torch.sigmoid(log_2 - log_1)  # precision of the first view over both
    means = torch.where(product, weight * mean_1 + (1 - weight) * mean_2, 0.5 * (mean_1 + mean_2))
    return Posterior(means, torch.where(product, harmonic, halved))


def standard_kl(posterior: Posterior) -> Tensor:
    """KL(q‖N(0, 1)) of every latent."""
    mean, log_variance = posterior
    return 0.5 * (mean.square() + torch.exp(log_variance) - 1 - log_variance)
