"""Coverage of the intervals of `clogit` in simulations whose strata follow the model exactly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.random import Generator

from diffurn import clogit
from support.strata import subsets

pytestmark = pytest.mark.slow

BETA = np.array([0.8, -0.5])
REPLICATES = 1000
LEVEL = 0.95
# Coverage within 3.5 standard errors of the level, plus one percentage point for the error of the
# approximation by a normal distribution in samples of this size. With independent replicates, a
# correct interval fails with a probability of 5e-4 at most.
BAND = 3.5 * np.sqrt(LEVEL * (1 - LEVEL) / REPLICATES) + 0.01
SIZE, CASES, STRATA = 6, 2, 60
SUBSETS = subsets(SIZE, CASES)


def choose(design: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Cases of every stratum ``(S, c)`` by inversion: uniform numbers choose among all subsets."""
    logs = design @ BETA @ SUBSETS.T
    p = np.exp(logs - logs.max(1, keepdims=True))
    place = (np.cumsum(p, 1) / p.sum(1, keepdims=True) < uniform[:, None]).sum(1)
    return SUBSETS[np.minimum(place, len(SUBSETS) - 1)]


def independent(rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    design = rng.normal(size=(STRATA, SIZE, 2))
    return choose(design, rng.random(STRATA)), design


def in_clusters(rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """Clusters of three strata with equal covariates and one common chance: each stratum follows
    the model, but the three are nearly copies.
    """
    design = np.repeat(rng.normal(size=(STRATA, SIZE, 2)), 3, 0)
    design = design + 0.2 * rng.normal(size=design.shape)
    return choose(design, np.repeat(rng.random(STRATA), 3)), design


def covered(study, options: dict[str, object], cluster: bool = False) -> float:
    """The share of intervals, of both coefficients, that contain the true value."""
    rng, inside = np.random.default_rng(7), []
    for _ in range(REPLICATES):
        case, design = study(rng)
        stratum = np.repeat(np.arange(len(case)), SIZE)
        more = {"cluster": stratum // 3} if cluster else {}
        result = clogit(case.ravel(), design.reshape(-1, 2), stratum, **options, **more)
        truth = torch.tensor(BETA)
        inside.append((result.lower <= truth) & (truth <= result.upper))
    return float(torch.stack(inside).double().mean())


@pytest.mark.parametrize("interval", ["wald", "profile"])
def test_intervals_of_the_model_cover_the_truth(interval: str) -> None:
    assert abs(covered(independent, {"interval": interval}) - LEVEL) < BAND


@pytest.mark.parametrize("covariance", ["HC0", "HC1"])
def test_robust_intervals_cover_the_truth(covariance: str) -> None:
    options = {"interval": "wald", "covariance": covariance}
    assert abs(covered(independent, options) - LEVEL) < BAND


def test_clustered_intervals_cover_the_truth_and_model_intervals_do_not() -> None:
    assert abs(covered(in_clusters, {"interval": "wald"}, cluster=True) - LEVEL) < BAND
    assert covered(in_clusters, {"interval": "wald"}) < LEVEL - 0.1
