r"""Variational deep embedding (VaDE): a variational autoencoder with a Gaussian mixture in its
latent space. S models form one stack.

Generative model: assignments c of a batch from a prior p(c|π)
(`diffurn_studies.clustering.priors`), z_i ~ N(μ_{c_i}, σ²_{c_i}), pixels x_i ~
Bernoulli(decoder(z_i)). Variational law: q(z_i|x_i) normal, by the encoder, and q(c_i|x_i) by
Bayes' rule from a draw of z_i. The evidence lower bound per sample is

.. math:: \log p(x|z) + \sum_k q_k \mathrm{E} \log N(z; μ_k, σ_k^2)
          + \tfrac1n \mathrm{E}_q \log p(c|π)
          - \mathrm{E} \log q(z|x) - \sum_k q_k \log q_k,

expectations over q(z|x) in closed form but for the first term, which takes one draw. The
hypergeometric prior by the law of counts, the paper's, is not normalised over assignments. With it
this is the objective, but no bound of the evidence.

References: Z. Jiang et al., *Variational Deep Embedding* (IJCAI 2017); T. M. Sutter et al. (ICLR
2023), appendix on clustering.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from diffurn_studies.clustering.assignments import AssignmentLaw
from diffurn_studies.clustering.priors import Prior
from diffurn_studies.stacked.modules import Groups, stacked_layers, through


class VaDE(nn.Module):
    """A stack of models, one for every prior in `priors`. Parameters start at zero;
    `diffurn_studies.clustering.pretraining` sets them.

    Args:
        priors: one for each model; they may differ.
        pixels: of an image.
        widths: hidden layers of the encoder; the decoder mirrors them.
        latent: dimensions of z.
        clusters: K.
        batch_size: n, the samples that share an urn.
        fused: whether `elbo` is compiled and takes the tilts of the last `retilt`
            (`diffurn_studies.clustering.fused`).
    """

    def __init__(
        self,
        priors: Sequence[Prior],
        pixels: int,
        widths: Sequence[int],
        latent: int,
        clusters: int,
        batch_size: int,
        fused: bool = False,
    ) -> None:
        super().__init__()
        models = len(priors)
        self.latent, self.batch_size, self.fused = latent, batch_size, fused
        # The last layer has the means and the log-variances of z side by side.
        self.encoder = stacked_layers(models, (pixels, *widths, 2 * latent))
        self.decoder = stacked_layers(models, (latent, *reversed(widths), pixels))
        self.means = nn.Parameter(torch.zeros(models, clusters, latent))
        self.log_variances = nn.Parameter(torch.zeros(models, clusters, latent))
        self.log_weights = nn.Parameter(torch.zeros(models, clusters))
        self.groups = Groups(priors)
        tilts = torch.zeros(models, dtype=torch.float64)
        self.register_buffer("tilts", tilts, persistent=False)

    def laws(self, tilts: Tensor | None = None) -> list[AssignmentLaw]:
        """The priors with the current weights, each for the models that have it."""
        return [
            prior.with_weights(
                self.groups.of(self.log_weights, place),
                self.batch_size,
                None if tilts is None else self.groups.of(tilts, place),
            )
            for place, prior in enumerate(self.groups.kinds)
        ]

    @torch.no_grad()
    def retilt(self) -> None:
        """Computes the tilts that a fused `elbo` takes from the current weights."""
        if self.fused:
            tilts = [
                prior.tilt(self.groups.of(self.log_weights, place), self.batch_size)
                for place, prior in enumerate(self.groups.kinds)
            ]
            self.get_buffer("tilts").copy_(self.groups.joined(tilts))

    @torch.no_grad()
    def expected_shares(self) -> Tensor:
        """The share of a batch that the priors expect in each cluster, (S, K)."""
        return self.groups.joined([law.mean for law in self.laws()]) / self.batch_size

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of q(z|x), each (S, B, D)."""
        mean, log_variance = through(self.encoder, x).chunk(2, -1)
        return mean, log_variance

    def decode(self, z: Tensor) -> Tensor:
        """Log-odds of the pixels."""
        return through(self.decoder, z)

    def log_responsibilities(
        self, z: Tensor, laws: Sequence[AssignmentLaw], is_batch: bool = False
    ) -> Tensor:
        """log q(c|x) from z (S, B, D), by Bayes' rule: (S, B, K).

        `is_batch` says that the samples are a batch of training, which may share an urn.
        """
        log_normal = self._log_normal(z, None)
        likelihoods = [
            self.groups.of(log_normal, place) if is_batch else None for place in range(len(laws))
        ]
        log_shares = self.groups.joined(
            [law.log_shares(own) for law, own in zip(laws, likelihoods, strict=True)]
        )
        return torch.log_softmax(log_normal + log_shares.unsqueeze(-2), -1)

    def _log_normal(self, mean: Tensor, log_variance: Tensor | None) -> Tensor:
        """E log N(z; μ_k, σ_k²) for z ~ N(mean, exp(log_variance)), or z = mean: (S, B, K)."""
        log_scale = self.log_variances.unsqueeze(-3)
        terms = (mean.unsqueeze(-2) - self.means.unsqueeze(-3)).square() * torch.exp(
            -log_scale
        ) + log_scale
        if log_variance is not None:
            terms = terms + torch.exp(log_variance.unsqueeze(-2) - log_scale)
        return -0.5 * (terms.sum(-1) + self.latent * math.log(2 * math.pi))

    def forward(self, x: Tensor, normal: Tensor, gumbel: Tensor, temperature: Tensor) -> Tensor:
        """`elbo`, under the name that ``functional_call`` calls."""
        return self.elbo(x, normal, gumbel, temperature)

    def elbo(self, x: Tensor, normal: Tensor, gumbel: Tensor, temperature: Tensor) -> Tensor:
        """The evidence lower bound per sample, averaged over the batch: (S,).

        Args:
            x: pixels in [0, 1], (S, n, pixels).
            normal: noise for z, (S, n, D).
            gumbel: noise for the assignments, (S, n, K).
            temperature: of the Gumbel-Softmax, a scalar tensor.
        """
        laws = self.laws(self.get_buffer("tilts") if self.fused else None)
        mean, log_variance = self.encode(x)
        z = mean + torch.exp(0.5 * log_variance) * normal
        log_q = self.log_responsibilities(z, laws, is_batch=True)
        reconstruction = -binary_cross_entropy_with_logits(self.decode(z), x, reduction="none").sum(
            -1
        )
        mixture = (log_q.exp() * (self._log_normal(mean, log_variance) - log_q)).sum(-1)
        entropy = 0.5 * (log_variance + (1 + math.log(2 * math.pi))).sum(-1)
        return (reconstruction + mixture + entropy).mean(-1) + self._expected_log_prior(
            laws, log_q, gumbel, temperature
        )

    def _expected_log_prior(
        self, laws: Sequence[AssignmentLaw], log_q: Tensor, gumbel: Tensor, temperature: Tensor
    ) -> Tensor:
        parts = []
        for place, law in enumerate(laws):
            own_log_q, own_gumbel = (self.groups.of(values, place) for values in (log_q, gumbel))
            parts.append(law.expected_log_prob(own_log_q, own_gumbel, temperature))
        return self.groups.joined(parts)
