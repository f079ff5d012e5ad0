"""Mixtures of latents, of clusters that share an urn and of clusters that do not; oracles are
SciPy's minimiser, plain loops and mpmath.
"""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize
from torch import Tensor

from diffurn_studies.clustering.mixtures import (
    Mixture,
    SharedUrn,
    fit_mixtures,
    fit_urn_mixture,
    urn_log_weights,
)

CENTRES = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]], dtype=torch.float64)


def heaps(number: int = 300, seed: int = 0) -> Tensor:
    noise = torch.randn(number, 2, generator=torch.Generator().manual_seed(seed))
    return CENTRES[torch.arange(number) % 3] + 0.5 * noise


def merged(latents: Tensor) -> Mixture:
    """One cluster for the first two heaps, two for the third: an optimum of the free mixture."""
    first, third = latents[torch.arange(len(latents)) % 3 < 2], latents[2::3]
    left, right = third[third[:, 0] <= 0], third[third[:, 0] > 0]
    parts = (first, left, right)
    return Mixture(
        torch.stack([part.mean(0) for part in parts]), torch.stack([part.var(0) for part in parts])
    )


def assert_groups_are_found(mixture: Mixture) -> None:
    assert (torch.cdist(CENTRES, mixture.means).min(1).values < 0.3).all()
    assert ((mixture.variances - 0.25).abs() < 0.12).all()


@pytest.mark.parametrize("urn", [None, SharedUrn(0.4, starts=3)])
def test_mixtures_find_the_groups_of_the_latents(urn: SharedUrn | None) -> None:
    pytest.importorskip("sklearn")
    latents = heaps()
    for mixture in fit_mixtures([latents, latents], 3, [0, 1], workers=2, urn=urn):
        assert_groups_are_found(mixture)


def test_an_urn_with_little_room_parts_what_is_merged() -> None:
    latents = heaps()
    mixture, bound = fit_urn_mixture(latents, merged(latents), balls=0.4)
    assert_groups_are_found(mixture)
    wide, wide_bound = fit_urn_mixture(latents, merged(latents), balls=2.0)
    assert (
        torch.cdist(CENTRES, wide.means).min(1).values > 1
    ).any()  # with many balls the clusters stay merged
    assert math.isfinite(bound)
    assert math.isfinite(wide_bound)


def test_the_start_with_the_best_bound_is_taken() -> None:
    pytest.importorskip("threadpoolctl")
    latents = heaps(seed=3)
    starts = [merged(latents), Mixture(CENTRES, torch.full((3, 2), 0.25)), merged(latents)]
    tight = [fit_urn_mixture(latents, start, 0.4) for start in starts]
    torch.testing.assert_close(tight[0][1], tight[1][1], rtol=1e-6, atol=0)
    free = [fit_urn_mixture(latents, start, 2.0)[1] for start in starts]
    assert free[1] > free[0] + 0.1
    of_seed = iter(starts)
    (best,) = fit_mixtures(
        [latents],
        3,
        [0],
        workers=1,
        urn=SharedUrn(2.0, starts=3),
        start_fit=lambda *_: next(of_seed),
    )
    assert_groups_are_found(best)


@given(st.integers(2, 6), st.floats(0.01, 3.0), st.integers(0, 2**31), st.floats(0.1, 30.0))
def test_log_weights_are_the_minimum_that_scipy_finds(
    clusters: int, spare: float, seed: int, spread: float
) -> None:
    log_normal = spread * torch.randn(40, clusters, generator=torch.Generator().manual_seed(seed))
    size = 40 * (1 + spare) / clusters
    found = urn_log_weights(log_normal, size, torch.zeros(clusters))

    def value_and_slope(f: object) -> tuple[float, object]:
        leaf = torch.tensor(f, requires_grad=True)
        value = (
            torch.logsumexp(log_normal + leaf, -1).sum() + (leaf.exp() - (size + 0.5) * leaf).sum()
        )
        return value.item(), torch.autograd.grad(value, leaf)[0].numpy()

    shares = torch.softmax(log_normal + found, -1)
    torch.testing.assert_close(
        shares.sum(0), size + 0.5 - found.exp(), rtol=1e-6, atol=1e-5
    )  # f = log(m - x + ½)
    best = optimize.minimize(value_and_slope, found.numpy() + 0.1, jac=True, method="BFGS")
    assert value_and_slope(found.numpy())[0] <= best.fun + 1e-6 * abs(best.fun)


def test_no_cluster_takes_more_than_its_balls() -> None:
    """Where all items would like to be in one cluster, it is full."""
    log_normal = torch.zeros(100, 4)
    log_normal[:, 0] = 50.0
    shares = torch.softmax(log_normal + urn_log_weights(log_normal, 30.0, torch.zeros(4)), -1)
    assert shares[:, 0].sum() == pytest.approx(30.5, abs=0.01)
    torch.testing.assert_close(
        shares[:, 1:].sum(0), torch.full((3,), (100 - 30.5) / 3), rtol=1e-3, atol=0
    )


def test_the_bound_is_what_mpmath_says() -> None:
    latents, balls = heaps(12), 0.5
    _, bound = fit_urn_mixture(latents, Mixture(CENTRES, torch.ones(3, 2)), balls, iterations=1)
    size = balls * 12
    densities = [[_log_density(z, m, torch.ones(2)) for m in CENTRES] for z in latents]
    log_weights = urn_log_weights(
        torch.tensor([[float(d) for d in row] for row in densities]), size, torch.zeros(3)
    )
    total, counts = mpmath.mpf(0), [mpmath.mpf(0)] * 3
    for row in densities:
        weights = [mpmath.exp(d + float(f)) for d, f in zip(row, log_weights, strict=True)]
        q = [w / mpmath.fsum(weights) for w in weights]
        total += mpmath.fsum(p * (d - mpmath.log(p)) for p, d in zip(q, row, strict=True))
        counts = [count + p for count, p in zip(counts, q, strict=True)]
    total -= mpmath.fsum(mpmath.loggamma(size - count + 1) for count in counts)
    assert bound == pytest.approx(float(total / 12), rel=1e-9)


def _log_density(z: Tensor, mean: Tensor, variance: Tensor) -> mpmath.mpf:
    parts = [
        -((mpmath.mpf(float(a)) - float(b)) ** 2) / (2 * float(v))
        - mpmath.log(2 * mpmath.pi * float(v)) / 2
        for a, b, v in zip(z, mean, variance, strict=True)
    ]
    return mpmath.fsum(parts)


def test_too_few_balls_are_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        fit_urn_mixture(heaps(), Mixture(CENTRES, torch.ones(3, 2)), balls=1 / 3)
