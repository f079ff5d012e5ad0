r"""Gaussian mixtures of latents, from which clustering models start.

Items are independent, as usual, or they share an urn: their assignments are a draw of N balls from
an urn with m balls of each of K clusters and equal odds. Then the best factorised posterior is
(`diffurn_studies.clustering.priors`)

.. math:: q_{ik} ∝ N(z_i; μ_k, σ_k^2) e^{f_k},
          \quad f_k = ψ(m - x_k + 1) ≈ \log(m - x_k + ½), \quad x_k = \sum_i q_{ik}:

a cluster whose balls run out becomes expensive. The K numbers f minimise a strictly convex
function, :math:`\sum_i \log \sum_k N(z_i; μ_k, σ_k^2) e^{f_k} + \sum_k [e^{f_k} - (m + ½) f_k]`. As
m → ∞ they become equal, and this is EM for a mixture with equal weights.

The reason for the urn: the likeliest mixture of an autoencoder's latents may have one cluster for
two classes and two clusters for a third. In an urn that is almost empty after the draw (Km little
above N) no cluster has room for two classes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor

_NEWTON_STEPS = 30
_SMALLEST_STEP = 1e-7
# Distance of the random states of two starts of one mixture.
_STRIDE = 1_009


class Mixture(NamedTuple):
    """Means and variances, (K, D) each. Covariances are diagonal."""

    means: Tensor
    variances: Tensor


class SharedUrn(NamedTuple):
    """The urn that the items of a mixture share.

    Args:
        balls: of each cluster per item, m / N, more than 1/K.
        starts: mixtures that are fitted; the one with the best bound is taken.
    """

    balls: float
    starts: int = 1


def fit_mixture(latents: Tensor, clusters: int, seed: int, fits: int = 1) -> Mixture:
    """Fits a mixture with cluster weights, by scikit-learn's EM: the likeliest of some fits.

    The start decides which of many optima is found. So the same seed may lead elsewhere for latents
    in another precision.
    """
    from sklearn.mixture import GaussianMixture  # type: ignore[import-untyped, import-not-found, unused-ignore]

    mixture = GaussianMixture(
        clusters, covariance_type="diag", random_state=seed, max_iter=500, n_init=fits
    )
    mixture.fit(latents.cpu().numpy())
    return Mixture(torch.from_numpy(mixture.means_), torch.from_numpy(mixture.covariances_))


def fit_mixtures(
    latents: Sequence[Tensor],
    clusters: int,
    seeds: Sequence[int],
    workers: int,
    urn: SharedUrn | None = None,
    start_fit: Callable[[Tensor, int, int], Mixture] = fit_mixture,
) -> list[Mixture]:
    """Fits a mixture to every set of latents.

    Args:
        latents: (N, D) each.
        clusters: K.
        seeds: one per set.
        workers: fits at a time. Each fit uses one core, so that it depends on its seed alone.
        urn: the urn that the items share, if any.
        start_fit: fits the mixture, or the start of one that shares an urn.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped, import-not-found, unused-ignore]

    starts = 1 if urn is None else urn.starts

    def fit(job: tuple[tuple[Tensor, int], int]) -> tuple[Mixture, float]:
        (own, seed), start = job
        mixture = start_fit(own, clusters, seed + _STRIDE * start)
        return (mixture, 0.0) if urn is None else fit_urn_mixture(own, mixture, urn.balls)

    with threadpool_limits(1), ThreadPoolExecutor(workers) as pool:
        found = list(
            pool.map(fit, itertools.product(zip(latents, seeds, strict=True), range(starts)))
        )
    return [
        max(found[first : first + starts], key=lambda fitted: fitted[1])[0]
        for first in range(0, len(found), starts)
    ]


def fit_urn_mixture(
    latents: Tensor, start: Mixture, balls: float, iterations: int = 1000, tolerance: float = 1e-3
) -> tuple[Mixture, float]:
    """Fits a mixture whose items share an urn, by EM from another mixture.

    Args:
        latents: (N, D).
        start: the other mixture.
        balls: as of `SharedUrn`.
        iterations: of EM, at most.
        tolerance: EM ends when no responsibility changes by more.

    Returns:
        The mixture, and its bound on the log-probability of the latents, per item.

    Example:
        >>> points = torch.tensor([[0.0], [0.2], [4.0], [4.2], [8.0], [8.2]])
        >>> merged = Mixture(torch.tensor([[2.0], [7.9], [8.3]]), torch.ones(3, 1))
        >>> parted, _ = fit_urn_mixture(points, merged, balls=0.4)
        >>> parted.means.flatten().round(decimals=1)
        tensor([0.1000, 4.1000, 8.1000], dtype=torch.float64)
    """
    if not balls * len(start.means) > 1:
        raise ValueError(
            f"{balls:g} balls per item of each of {len(start.means)} clusters are too few: "
            "there must be more balls than items"
        )
    z = latents.cpu().double()
    means, variances = (values.cpu().double() for values in start)
    size, smallest = balls * len(z), 1e-6 * z.var(0, correction=0)
    log_weights, before = torch.zeros_like(means[:, 0]), torch.zeros_like(z[:, :1])
    for _ in range(iterations):
        log_normal = _log_normal(z, means, variances)
        log_weights = urn_log_weights(log_normal, size, log_weights)
        shares = torch.softmax(log_normal + log_weights, -1)
        if (shares - before).abs().max() <= tolerance:
            break
        before = shares
        sizes = shares.sum(0).unsqueeze(-1).clamp(min=torch.finfo(shares.dtype).tiny)
        means = shares.mT @ z / sizes
        variances = (shares.mT @ z.square() / sizes - means.square()).clamp(min=smallest)
    return Mixture(means, variances), _bound(log_normal, shares, log_weights, size)


def urn_log_weights(log_normal: Tensor, size: float, start: Tensor) -> Tensor:
    """f for the log-densities (N, K) and m = `size`, by Newton's method. A step is halved until it
    leads down.
    """
    left = len(start) * (size + 0.5) - len(log_normal)
    # Scale exp f = m - x + ½ so that its sum is right.
    log_weights = start - torch.logsumexp(start, -1) + math.log(left)
    value = _convex(log_normal, size, log_weights)
    for _ in range(_NEWTON_STEPS):
        shares, room = torch.softmax(log_normal + log_weights, -1), log_weights.exp()
        curvature = torch.diag(shares.sum(0) + room) - shares.mT @ shares
        step = torch.linalg.solve(curvature, shares.sum(0) + room - (size + 0.5))
        if step.abs().max() <= _SMALLEST_STEP:
            break
        while (
            not (lower := _convex(log_normal, size, log_weights - step)) <= value
            and step.abs().max() > _SMALLEST_STEP
        ):
            step = step / 2
        log_weights, value = log_weights - step, lower
    return log_weights


def _convex(log_normal: Tensor, size: float, log_weights: Tensor) -> Tensor:
    return (
        torch.logsumexp(log_normal + log_weights, -1).sum()
        + (log_weights.exp() - (size + 0.5) * log_weights).sum()
    )


def _bound(log_normal: Tensor, shares: Tensor, log_weights: Tensor, size: float) -> float:
    """Σ_i E_q [log N(z_i; c_i) - log q(c_i)] + log p(E_q x), per item and without terms that are
    the same for all mixtures.
    """
    sizes = shares.sum(0)
    data = torch.logsumexp(log_normal + log_weights, -1).sum() - (sizes * log_weights).sum()
    return float((data - torch.lgamma(size - sizes + 1).sum()) / len(log_normal))


def _log_normal(latents: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    """log N(z_i; μ_k, σ_k²), (N, K)."""
    squares = (
        latents.square() @ (1 / variances).mT
        - 2 * latents @ (means / variances).mT
        + (means.square() / variances).sum(-1)
    )
    return -0.5 * (squares + (2 * math.pi * variances).log().sum(-1))
