"""Do 95 % intervals cover 95 %? Thousands of data sets from known urns, each urn's fitted as one
batch.

With D data sets the share of covering intervals has a Monte Carlo standard error of √(0.95·0.05 /
D); a coefficient fails if it is more than 3.29 of them away from 0.95, which happens to a correct
interval once in a thousand times. Seeds are fixed. The urns are large enough for the normal
approximation behind Wald intervals; how far smaller ones are off is a property of the method, not
of the code.
"""

from __future__ import annotations

import math

import pytest
import torch

from diffurn import FisherHypergeometric
from diffurn.inference import FitResult, fit

LEVEL = 0.95
URNS = {
    # group sizes of each row, draws of each row, log ω
    "two groups": ([[3000, 5000]], [2500], [0.0, 0.4]),
    "two groups, strong preference": ([[6000, 4000]], [4000], [0.0, 1.5]),
    "two groups, five rows": (
        [[400, 600], [900, 300], [500, 500], [800, 700], [650, 450]],
        [300, 400, 550, 700, 350],
        [0.0, 0.8],
    ),
    "three groups": ([[2000, 3000, 2500]], [3000], [0.0, 0.5, -0.5]),
    "three groups, four rows": (
        [[500, 700, 600], [900, 400, 500], [600, 600, 600], [300, 800, 700]],
        [600, 700, 900, 500],
        [0.3, 0.0, -0.6],
    ),
    "four groups": ([[4000, 3000, 5000, 2500]], [6000], [0.0, 1.0, -0.5, 0.5]),
    "four groups, a group missing in each row": (
        [[0, 900, 800, 700], [1000, 0, 900, 800], [900, 800, 0, 1000], [800, 1000, 900, 0]],
        [1000, 1200, 1300, 900],
        [0.0, 0.4, -0.4, 0.8],
    ),
    "five groups": ([[3000, 2500, 4000, 3500, 2000]], [7000], [0.0, -0.3, 0.3, 0.8, -0.8]),
    "five groups, two rows": (
        [[1500, 1200, 1800, 900, 1600], [2000, 900, 1100, 1500, 1300]],
        [3000, 2500],
        [0.2, 0.0, -0.4, 0.6, -0.4],
    ),
    "six groups": (
        [[3000, 2500, 4000, 3500, 2000, 2800]],
        [8000],
        [0.0, -0.3, 0.3, 0.8, -0.8, 0.1],
    ),
}


def data_sets(urn: str, number: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Counts (D, R, c), group sizes (R, c) and the centred log ω behind them."""
    group_sizes, draws, log_weights = (torch.tensor(values) for values in URNS[urn])
    torch.manual_seed(100 + list(URNS).index(urn))
    counts = FisherHypergeometric(group_sizes, draws, log_weights=log_weights).sample((number,))
    return counts, group_sizes, log_weights - log_weights.mean()


def coverage(result: FitResult, truth: torch.Tensor) -> torch.Tensor:
    return ((result.lower <= truth) & (truth <= result.upper)).double().mean(0)


def assert_covers(shares: torch.Tensor, number: int) -> None:
    band = 3.29 * math.sqrt(LEVEL * (1 - LEVEL) / number)  # 0.0051 for 20,000 data sets
    assert bool(((shares - LEVEL).abs() <= band).all()), (
        f"coverage {shares.tolist()} is not within {band:.4f} of {LEVEL}"
    )


@pytest.mark.parametrize("urn", URNS)
def test_wald_intervals_cover_and_estimates_are_hardly_biased(urn: str) -> None:
    counts, group_sizes, truth = data_sets(urn, 20_000)
    result = fit(counts, group_sizes, level=LEVEL)
    assert bool(result.converged.all())
    assert_covers(coverage(result, truth), 20_000)
    # The bias of maximum likelihood is of the order 1/n. Here it may reach 0.03 standard errors, of
    # which up to 0.023 is Monte Carlo error.
    spread = result.coefficients.std(0)
    bias_in_errors = (result.coefficients.mean(0) - truth) / spread
    assert float(bias_in_errors.abs().max()) < 0.03
    # and the standard errors are those that the estimates have: the Monte Carlo error of their
    # spread is 0.5 %
    torch.testing.assert_close(result.standard_errors.mean(0), spread, rtol=0.02, atol=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("urn", URNS)
def test_profile_intervals_cover(urn: str) -> None:
    counts, group_sizes, truth = data_sets(urn, 2_000)
    assert_covers(coverage(fit(counts, group_sizes, level=LEVEL, interval="profile"), truth), 2_000)
