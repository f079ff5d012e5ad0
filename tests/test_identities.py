"""Identities that hold for every urn: nothing is lost, factors and orders do not matter, what is
drawn and what is left are one law.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributions import kl_divergence

from diffurn import FisherHypergeometric
from support.urns import NEVER, SMALL, URNS, Urn, probe_counts

MODEST = tuple(urn for urn in SMALL if NEVER not in urn.log_weights and urn.groups <= 10)


@pytest.mark.parametrize("urn", URNS, ids=str)
def test_nothing_is_lost_or_gained(urn: Urn, device: torch.device) -> None:
    sizes = torch.tensor(urn.group_sizes, dtype=torch.float64, device=device)
    distribution = FisherHypergeometric(
        urn.group_sizes, urn.draws, log_weights=torch.tensor(urn.log_weights, device=device)
    )
    mean, covariance = distribution.mean, distribution.covariance_matrix
    assert mean.sum().item() == pytest.approx(urn.draws, rel=1e-12)
    assert bool(((mean >= 0) & (mean <= sizes * (1 + 1e-15))).all())
    largest = float(covariance.abs().max())
    # a group of weight zero stands for odds of e^-300
    torch.testing.assert_close(
        covariance.sum(-1), torch.zeros_like(mean), rtol=0.0, atol=1e-12 * largest + 1e-120
    )
    torch.testing.assert_close(covariance, covariance.mT, rtol=0.0, atol=1e-12 * largest)
    torch.testing.assert_close(
        covariance.diagonal(), distribution.variance, rtol=1e-9, atol=1e-12 * largest + 1e-120
    )
    # all groups compete for the same draws
    others = ~torch.eye(urn.groups, dtype=torch.bool, device=device)
    assert bool((covariance[others] <= 1e-12 * largest).all())


def both(
    urn: Urn, device: torch.device, **changed: Any
) -> tuple[FisherHypergeometric, FisherHypergeometric]:
    """The urn and a changed one."""
    values = {"group_sizes": urn.group_sizes, "draws": urn.draws, "log_weights": urn.log_weights}
    return tuple(
        FisherHypergeometric(
            v["group_sizes"], v["draws"], log_weights=torch.tensor(v["log_weights"], device=device)
        )
        for v in (values, values | changed)
    )


@pytest.mark.parametrize("urn", MODEST[::3], ids=str)
def test_a_common_factor_on_all_weights_changes_only_the_normalizer(
    urn: Urn, device: torch.device
) -> None:
    plain, scaled = both(urn, device, log_weights=[lw + 32.0 for lw in urn.log_weights])
    counts = torch.tensor(probe_counts(urn), device=device)
    torch.testing.assert_close(
        scaled.log_prob(counts), plain.log_prob(counts), rtol=1e-11, atol=1e-11
    )
    torch.testing.assert_close(scaled.mean, plain.mean, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(
        scaled.covariance_matrix, plain.covariance_matrix, rtol=1e-9, atol=1e-12
    )
    torch.testing.assert_close(scaled.entropy(), plain.entropy(), rtol=1e-10, atol=1e-11)
    torch.testing.assert_close(
        scaled.log_normalizer, plain.log_normalizer + 32.0 * urn.draws, rtol=1e-12, atol=1e-11
    )
    assert torch.equal(scaled.mode, plain.mode)
    assert abs(float(kl_divergence(plain, scaled))) < 1e-11


def test_a_common_factor_beyond_float32_changes_no_probability(device: torch.device) -> None:
    weights = torch.tensor([1.0, 3.0, 0.5], device=device)
    plain = FisherHypergeometric([4, 5, 3], 6, weights=weights)
    for factor in (2.0**-900, 2.0**900):
        scaled = FisherHypergeometric([4, 5, 3], 6, weights=weights * factor)
        torch.testing.assert_close(scaled.mean, plain.mean, rtol=1e-11, atol=0.0)
        torch.testing.assert_close(
            scaled.log_prob(plain.mode), plain.log_prob(plain.mode), rtol=1e-11, atol=0.0
        )


@pytest.mark.parametrize("urn", MODEST[1::3], ids=str)
def test_reordering_the_groups_reorders_the_results(urn: Urn, device: torch.device) -> None:
    order = torch.randperm(urn.groups).tolist()
    changed = {
        "group_sizes": [urn.group_sizes[j] for j in order],
        "log_weights": [urn.log_weights[j] for j in order],
    }
    plain, reordered = both(urn, device, **changed)
    counts = torch.tensor(probe_counts(urn), device=device)
    torch.testing.assert_close(
        reordered.log_prob(counts[:, order]), plain.log_prob(counts), rtol=1e-12, atol=1e-12
    )
    torch.testing.assert_close(reordered.mean, plain.mean[order], rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(
        reordered.covariance_matrix, plain.covariance_matrix[order][:, order], rtol=1e-9, atol=1e-13
    )
    torch.testing.assert_close(reordered.entropy(), plain.entropy(), rtol=1e-11, atol=1e-12)
    in_order = reordered.marginals.log_prob(counts[:, order])
    torch.testing.assert_close(
        in_order, plain.marginals.log_prob(counts)[:, order], rtol=1e-11, atol=1e-11
    )


@pytest.mark.parametrize(
    "urn", [urn for urn in URNS if NEVER not in urn.log_weights and urn.groups <= 20][2::3], ids=str
)
def test_drawing_n_is_leaving_the_rest_with_inverse_weights(urn: Urn, device: torch.device) -> None:
    drawn, left = both(
        urn, device, draws=urn.population - urn.draws, log_weights=[-lw for lw in urn.log_weights]
    )
    sizes = torch.tensor(urn.group_sizes, dtype=torch.float64, device=device)
    counts = torch.tensor(probe_counts(urn), dtype=torch.float64, device=device)
    torch.testing.assert_close(
        left.log_prob(sizes - counts), drawn.log_prob(counts), rtol=1e-11, atol=1e-11
    )
    torch.testing.assert_close(left.mean + drawn.mean, sizes, rtol=1e-12, atol=0.0)
    largest = float(drawn.covariance_matrix.abs().max())
    torch.testing.assert_close(
        left.covariance_matrix, drawn.covariance_matrix, rtol=0.0, atol=1e-9 * largest
    )
    torch.testing.assert_close(left.entropy(), drawn.entropy(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        left.marginals.log_prob(sizes - counts),
        drawn.marginals.log_prob(counts),
        rtol=1e-10,
        atol=1e-10,
    )


@pytest.mark.parametrize("urn", SMALL[::2], ids=str)
def test_probabilities_of_the_support_sum_to_one(urn: Urn, device: torch.device) -> None:
    distribution = FisherHypergeometric(
        urn.group_sizes, urn.draws, log_weights=torch.tensor(urn.log_weights, device=device)
    )
    total = distribution.log_prob(distribution.enumerate_support()).logsumexp(0)
    assert total.item() == pytest.approx(0.0, abs=1e-11)
