"""The autoencoder and the Gaussian mixture over its latents."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def _layers(sizes: Sequence[int]) -> nn.Sequential:
    steps = itertools.pairwise(sizes)
    return nn.Sequential(*(part for step in steps for part in (nn.Linear(*step), nn.ReLU())))


class Autoencoder(nn.Module):
    """Pictures ``(B, pixels)`` to the means and log-deviations of latents ``(B, L)``, and back to
    log-odds of pixels.
    """

    def __init__(self, pixels: int, widths: Sequence[int], latent: int) -> None:
        super().__init__()
        self.encoder = _layers([pixels, *widths])
        self.mean, self.log_std = nn.Linear(widths[-1], latent), nn.Linear(widths[-1], latent)
        back = _layers([latent, *reversed(widths)])
        self.decoder = nn.Sequential(*back, nn.Linear(widths[0], pixels))

    def encode(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.encoder(pictures)
        return self.mean(hidden), self.log_std(hidden)


class Mixture(nn.Module):
    """K Gaussians with diagonal covariances over latents ``(B, L)``, with learned log-weights."""

    def __init__(self, clusters: int, latent: int) -> None:
        super().__init__()
        self.log_weights = nn.Parameter(torch.zeros(clusters))
        self.means = nn.Parameter(torch.zeros(clusters, latent))
        self.log_stds = nn.Parameter(torch.zeros(clusters, latent))

    def log_prior(self) -> Tensor:
        return torch.log_softmax(self.log_weights, -1)

    def log_prob(self, latents: Tensor) -> Tensor:
        """log N(z; μ_k, σ_k), ``(B, K)``."""
        apart = (latents.unsqueeze(1) - self.means) * torch.exp(-self.log_stds)
        squares = apart.square() + math.log(2 * math.pi)
        return -(0.5 * squares + self.log_stds).sum(-1)

    def log_responsibilities(self, latents: Tensor) -> Tensor:
        """log p(k | z), ``(B, K)``."""
        return torch.log_softmax(self.log_prob(latents) + self.log_prior(), -1)

    def divergence(self, means: Tensor, log_stds: Tensor) -> Tensor:
        """KL(N(mean, std) ‖ cluster k), ``(B, K)``."""
        log_ratio = self.log_stds - log_stds.unsqueeze(1)
        apart = (means.unsqueeze(1) - self.means) * torch.exp(-self.log_stds)
        return (log_ratio + 0.5 * (torch.exp(-2 * log_ratio) + apart.square() - 1)).sum(-1)

    @torch.no_grad()
    def fit(self, latents: Tensor, fits: int, seed: int) -> None:
        """By expectation maximisation, the likeliest of some fits."""
        from sklearn.mixture import GaussianMixture  # type: ignore[import-untyped, import-not-found, unused-ignore]

        found = GaussianMixture(
            len(self.means),
            covariance_type="diag",
            init_params="k-means++",
            n_init=fits,
            reg_covar=1e-4,
            random_state=seed,
        ).fit(latents.double().cpu().numpy())
        for own, value in (
            (self.log_weights, torch.as_tensor(found.weights_).log()),
            (self.means, torch.as_tensor(found.means_)),
            (self.log_stds, 0.5 * torch.as_tensor(found.covariances_).log()),
        ):
            own.copy_(value)
