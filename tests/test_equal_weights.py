"""Closed forms for equal weights: against binomial coefficients, for batches of every layout, and
the C kernel against PyTorch's operations.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from diffurn import FisherHypergeometric, _dispatch
from diffurn._fisher.equal_weights import EqualWeights, log_prob_value
from diffurn._kernels import dispatch


def exact_log_prob(counts: list[int], sizes: list[int]) -> float:
    """From binomial coefficients in whole numbers of any length."""
    ways = math.prod(math.comb(m, x) for m, x in zip(sizes, counts, strict=True))
    return math.log(ways) - math.log(math.comb(sum(sizes), sum(counts)))


def rows(number: int, groups: int, largest: int) -> tuple[Tensor, Tensor]:
    """Random sizes and counts within them; some groups are empty, some all drawn or not at all."""
    sizes = torch.randint(0, largest + 1, (number, groups))
    counts = (sizes * (1.5 * torch.rand(number, groups) - 0.25).clamp(0, 1)).round().long()
    return sizes, counts


@pytest.mark.parametrize(("groups", "largest"), [(1, 9), (2, 40), (3, 2000), (5, 3), (100, 30)])
def test_log_probabilities_are_those_of_binomial_coefficients(groups: int, largest: int) -> None:
    sizes, counts = rows(50, groups, largest)
    found = log_prob_value(counts.double(), sizes.double(), counts.sum(-1).double())
    wanted = [exact_log_prob(*row) for row in zip(counts.tolist(), sizes.tolist(), strict=True)]
    torch.testing.assert_close(found, torch.tensor(wanted).double(), rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(not dispatch.HAS_NATIVE, reason="the C kernels were not built")
@pytest.mark.parametrize("groups", [1, 2, 3, 63, 64, 200])
def test_the_kernel_agrees_with_operations_of_torch(groups: int) -> None:
    sizes, counts = rows(300, groups, 10**6)
    operands = counts.double(), sizes.double(), counts.sum(-1).double()
    assert "central_log_prob" in dispatch.native_kernel_of(log_prob_value).__name__
    found = log_prob_value(*operands)
    wanted = log_prob_value.__wrapped__(*operands)  # type: ignore[attr-defined]
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-11)


def closed_forms(sizes: Tensor, draws: Tensor, x: Tensor) -> list[Tensor]:
    log_weights = torch.zeros(*draws.shape, sizes.shape[-1], dtype=torch.float64)
    urn = FisherHypergeometric(sizes, draws, log_weights=log_weights)
    assert type(_dispatch.fisher_for_values(urn, x)) is EqualWeights
    return [urn.log_prob(x), urn.mean, urn.variance, urn.covariance_matrix, urn.entropy()]


def test_one_row_of_sizes_for_all_urns_gives_the_same_numbers() -> None:
    sizes, draws = torch.tensor([30, 200, 70]), torch.tensor([[5, 120], [0, 300]])
    x = torch.tensor([[[1, 3, 1], [15, 80, 25]], [[0, 0, 0], [30, 200, 70]]]).double()
    shared = closed_forms(sizes, draws, x)
    own = closed_forms(sizes.repeat(2, 2, 1), draws, x)
    for some, other in zip(shared, own, strict=True):
        torch.testing.assert_close(some, other, rtol=1e-14, atol=0)
        some.add_(1)  # every number has a place of its own in memory


def test_counts_may_have_more_dimensions_than_the_urns() -> None:
    urn = FisherHypergeometric([300, 200], 50, weights=torch.ones(4, 2, dtype=torch.float64))
    x = torch.tensor([[20.0, 30.0], [0.0, 50.0], [50.0, 0.0]]).double()
    found = urn.log_prob(x.unsqueeze(1))
    wanted = [exact_log_prob(row, [300, 200]) for row in x.long().tolist()]
    torch.testing.assert_close(found, torch.tensor(wanted).double().unsqueeze(1).expand(3, 4))
