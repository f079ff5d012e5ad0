"""The contenders for k-subsets: what they draw, and the normalisers of other algorithms."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from benchmarks.alone import subsets
from benchmarks.alone.urns import Urns


@pytest.mark.parametrize("name", subsets._NORMALISERS)
def test_a_normaliser_sums_over_all_subsets(name: str) -> None:
    log_weights = torch.randn(2, 7, dtype=torch.float64)
    normaliser = subsets._NORMALISERS[name](log_weights, 3)
    for row, found in zip(log_weights.tolist(), normaliser, strict=True):
        exact = sum(math.exp(sum(chosen)) for chosen in itertools.combinations(row, 3))
        assert abs(float(found) - math.log(exact)) < 1e-12


@pytest.mark.parametrize("name", subsets._SAMPLERS)
def test_a_sampler_draws_subsets_that_carry_gradients(name: str) -> None:
    urns = Urns(12, 1, 4, 5)
    log_weights = urns.log_weights(torch.device("cpu")).requires_grad_()
    drawn = subsets._SAMPLERS[name](urns, log_weights)
    torch.testing.assert_close(drawn.sum(-1), torch.full((5,), 4.0, dtype=torch.float64))
    torch.testing.assert_close(drawn * (1 - drawn), torch.zeros(5, 12, dtype=torch.float64))
    (slope,) = torch.autograd.grad((drawn * torch.arange(12.0)).sum(), log_weights)
    assert (slope != 0).any()
