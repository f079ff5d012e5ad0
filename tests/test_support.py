"""The support of an urn: listed in order, checked, and too large to list."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from diffurn import FisherHypergeometric


@pytest.mark.parametrize("sizes", [(2, 1, 1), (3, 0, 2), (4,), (1, 1, 1, 1), (2, 3)], ids=str)
def test_support_is_enumerated_in_lexicographic_order(
    sizes: tuple[int, ...], device: torch.device
) -> None:
    for draws in range(sum(sizes) + 1):
        urn = FisherHypergeometric(sizes, draws, weights=torch.ones(len(sizes), device=device))
        expected = sorted(
            x for x in itertools.product(*(range(m + 1) for m in sizes)) if sum(x) == draws
        )
        assert urn.enumerate_support().tolist() == [list(map(float, x)) for x in expected]


def test_support_of_a_batch_is_expanded_only_when_asked_to(device: torch.device) -> None:
    urn = FisherHypergeometric(
        [2, 1, 1], 2, weights=torch.rand(5, 1, 3, device=device) + 0.5
    ).expand((5, 4))
    expanded, plain = urn.enumerate_support(), urn.enumerate_support(expand=False)
    assert expanded.shape == (4, 5, 4, 3)
    assert plain.shape == (4, 1, 1, 3)
    assert torch.equal(expanded, plain.expand(-1, 5, 4, -1))
    torch.testing.assert_close(
        urn.log_prob(plain).logsumexp(0), torch.zeros(5, 4, device=device), rtol=0.0, atol=1e-12
    )


@pytest.mark.parametrize(
    ("sizes", "draws"),
    [([[2, 2], [1, 3]], 2), ([2, 2], [1, 2])],
    ids=["sizes-differ", "draws-differ"],
)
def test_support_of_a_batch_of_different_urns_cannot_be_enumerated(
    sizes: Any, draws: Any, device: torch.device
) -> None:
    urn = FisherHypergeometric(sizes, draws, weights=torch.ones(2, device=device))
    with pytest.raises(NotImplementedError, match="the same group sizes and draws"):
        urn.enumerate_support()


@pytest.mark.parametrize(
    "sizes",
    [(2000, 2000, 2000), (3_000_000_000, 3_000_000_000), (1,) * 60],
    ids=["wide", "above-int32", "long"],
)
def test_a_support_too_large_to_enumerate_says_so(
    sizes: tuple[int, ...], device: torch.device
) -> None:
    urn = FisherHypergeometric(
        sizes, sum(sizes) // 2, weights=torch.ones(len(sizes), device=device)
    )
    with pytest.raises(ValueError, match=r"m = \[.*\], n = \d+ has more than 1,000,000 outcomes"):
        urn.enumerate_support()


def test_support_check_knows_bounds_integers_and_the_sum(device: torch.device) -> None:
    urn = FisherHypergeometric([[2, 3, 4], [2, 3, 4]], [4, 5], weights=torch.ones(3, device=device))
    values = {
        (1.0, 2.0, 1.0): [True, False],
        (2.0, 3.0, 0.0): [False, True],
        (3.0, 1.0, 0.0): [False, False],  # more than the first group holds
        (-1.0, 3.0, 2.0): [False, False],
        (0.5, 1.5, 2.0): [False, False],
        (math.nan, 2.0, 2.0): [False, False],
        (math.inf, -math.inf, 4.0): [False, False],
    }
    checked = urn.support.check(torch.tensor(list(values), device=device).unsqueeze(1))
    assert checked.tolist() == list(values.values())
    assert urn.support.is_discrete
    assert urn.support.event_dim == 1


def test_outside_the_support_log_prob_is_minus_infinity_when_unchecked(
    device: torch.device,
) -> None:
    urn = FisherHypergeometric(
        [2, 3, 4], 4, weights=torch.tensor([1.0, 2.0, 0.0], device=device), validate_args=False
    )
    outside = torch.tensor(
        [[3.0, 1.0, 0.0], [-1.0, 3.0, 2.0], [1.0, 2.0, 0.0], [1.0, 2.0, 1.0]], device=device
    )  # the last: ω_3 = 0
    assert urn.log_prob(outside).tolist() == [-math.inf] * 4
    assert (
        urn.marginals.log_prob(torch.tensor([3.0, -1.0, 1.0], device=device)).tolist()
        == [-math.inf] * 3
    )
