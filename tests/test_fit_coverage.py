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


# --- rows that differ by more than chance


OVERDISPERSED = {
    # group sizes and draws of each row, log ω around which the rows' log ω scatter
    "two groups": ([40, 60], 30, [0.0, 0.5]),
    "three groups": ([30, 40, 30], 35, [0.0, 0.4, -0.3]),
}
SCATTER = 0.5  # standard deviation of each group's log ω among rows, or clusters of rows


def scattered(urn: str, shape: tuple[int, ...], rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Counts (…, clusters · rows, c) with log ω of their own in each cluster, and group sizes."""
    group_sizes, draws, log_weights = (torch.tensor(values) for values in OVERDISPERSED[urn])
    torch.manual_seed(200 + list(OVERDISPERSED).index(urn))
    c = len(group_sizes)
    own = log_weights.double() + SCATTER * torch.randn(*shape, 1, c, dtype=torch.float64)
    own = own.expand(*shape, rows, c).flatten(-3, -2)
    return FisherHypergeometric(group_sizes, draws, log_weights=own).sample(), group_sizes


def least_false(urn: str) -> torch.Tensor:
    """log ω of the single urn whose mean is that of the scattered urns, relative to the first: the
    value to which the estimate tends. By the means of 400,000 urns, to 0.002.
    """
    group_sizes, draws, log_weights = (torch.tensor(values) for values in OVERDISPERSED[urn])
    torch.manual_seed(300)
    own = log_weights.double() + SCATTER * torch.randn(400_000, len(group_sizes)).double()
    mean = FisherHypergeometric(group_sizes, draws, log_weights=own).mean.mean(0)
    log_ratio = log_weights.double() - log_weights[0]
    for _ in range(50):
        one = FisherHypergeometric(group_sizes, draws, log_weights=log_ratio)
        step = torch.linalg.pinv(one.covariance_matrix, hermitian=True) @ (mean - one.mean)
        log_ratio = log_ratio + step - step[0]
    return log_ratio


@pytest.mark.slow
@pytest.mark.parametrize("urn", OVERDISPERSED)
def test_scaled_and_robust_intervals_cover_where_the_model_s_do_not(urn: str) -> None:
    number, truth = 4_000, least_false(urn)
    counts, group_sizes = scattered(urn, (number, 40), 1)
    shares = {
        kind: coverage(fit(counts, group_sizes, reference=0, covariance=kind), truth)[1:]
        for kind in ("model", "scaled", "HC1")
    }
    assert bool((shares["model"] < 0.82).all()), shares  # 0.73 to 0.79
    assert_covers(shares["HC1"], number)
    # One dispersion for all pairs of groups is an approximation with three groups.
    slack = 0.0 if urn == "two groups" else 0.005
    band = 3.29 * math.sqrt(LEVEL * (1 - LEVEL) / number) + slack
    assert bool(((shares["scaled"] - LEVEL).abs() <= band).all()), shares


@pytest.mark.slow
@pytest.mark.parametrize("urn", OVERDISPERSED)
@pytest.mark.parametrize("clusters", [20, 40])
def test_cluster_robust_intervals_cover_where_rows_belong_together(urn: str, clusters: int) -> None:
    number, truth = 4_000, least_false(urn)
    counts, group_sizes = scattered(urn, (number, clusters), 3)
    labels = torch.arange(clusters).repeat_interleave(3)
    result = fit(counts, group_sizes, reference=0, cluster=labels)
    assert_covers(coverage(result, truth)[1:], number)
    rows = coverage(fit(counts, group_sizes, reference=0, covariance="HC1"), truth)[1:]
    assert bool((rows < 0.85).all()), rows  # 0.79 to 0.81: rows are not independent


@pytest.mark.slow
@pytest.mark.parametrize(("clusters", "rows"), [(40, 1), (20, 3)])
def test_bootstrap_intervals_cover_overdispersed_tables(clusters: int, rows: int) -> None:
    number, truth = 600, least_false("two groups")
    counts, group_sizes = scattered("two groups", (number, clusters), rows)
    labels = None if rows == 1 else torch.arange(clusters).repeat_interleave(rows)
    result = fit(
        counts, group_sizes, reference=0, interval="bootstrap", resamples=399, cluster=labels
    )
    assert_covers(coverage(result, truth)[1:], number)
