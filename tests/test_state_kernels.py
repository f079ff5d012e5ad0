"""C kernels of Wallenius' dynamic programme: the same numbers as PyTorch's operations, which
`test_wallenius` compares with oracles, and as draws counted one by one.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from diffurn import WalleniusHypergeometric
from diffurn._composition import Composition
from diffurn._kernels import dispatch
from diffurn._wallenius import sequential
from diffurn._wallenius.sequential import States

if not dispatch.HAS_NATIVE:
    pytest.skip("the C kernels were not built, or DIFFURN_NATIVE is 0", allow_module_level=True)

from diffurn._kernels.native import wallenius as kernels

NAMES = ("law_of_states", "mean_of_states", "covariance_of_states")


def batch(rows: int, groups: int, ragged: bool, spread: float) -> tuple[Tensor, ...]:
    """Log-weights, sizes and draws of small urns, some of them with no or with all balls drawn."""
    sizes = torch.randint(0, 6, (rows, groups))
    draws = (sizes.sum(-1) * (1.4 * torch.rand(rows) - 0.2).clamp(0, 1)).round().long()
    if not ragged:
        sizes, draws = sizes[:1].repeat(rows, 1), draws[:1].repeat(rows)
    log_weights = spread * torch.randn(rows, groups, dtype=torch.float64)
    return log_weights, sizes.double(), draws.double()


def states_of(sizes: Tensor, draws: Tensor) -> States:
    rows = tuple(map(tuple, sizes.long().tolist()))
    return States.of(Composition.of(draws.shape, rows, tuple(draws.long().tolist())))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ragged", [False, True], ids=["equal", "ragged"])
@pytest.mark.parametrize("spread", [0.0, 2.0, 15.0])
def test_kernels_agree_with_operations_of_torch(name: str, ragged: bool, spread: float) -> None:
    primitive = getattr(sequential, name)
    assert dispatch.native_kernel_of(primitive) is getattr(kernels, name)
    for groups in (2, 3, 5):
        for _ in range(10):
            urns = batch(4, groups, ragged, spread)
            operands = *urns, states_of(*urns[1:])
            found, wanted = primitive(*operands), primitive.__wrapped__(*operands)
            # Rounding errors of a covariance are relative to its variances.
            scale = wanted.abs().amax((-1, -2), keepdim=True) if "cov" in name else wanted.abs()
            assert found.shape == wanted.shape
            assert ((found - wanted).abs() <= 1e-11 * scale).all()


def ball_by_ball(
    weights: list[float], sizes: list[int], draws: int
) -> dict[tuple[int, ...], float]:
    """P(x) as a sum over all orders in which groups can be drawn."""
    law: dict[tuple[int, ...], float] = {}
    for order in itertools.product(range(len(sizes)), repeat=draws):
        left, probability = list(sizes), 1.0
        for group in order:
            total = math.fsum(w * m for w, m in zip(weights, left, strict=True))
            probability *= weights[group] * left[group] / total
            left[group] = max(0, left[group] - 1)
        x = tuple(order.count(j) for j in range(len(sizes)))
        law[x] = law.get(x, 0.0) + probability
    return {x: p for x, p in law.items() if p}


def test_moments_and_probabilities_are_those_of_all_orders() -> None:
    weights, sizes, draws = [0.2, 1.0, 3.5], [3, 2, 4], 5
    law = ball_by_ball(weights, sizes, draws)
    outcomes = torch.tensor(list(law), dtype=torch.float64)
    p = torch.tensor(list(law.values()), dtype=torch.float64)
    urn = WalleniusHypergeometric(sizes, draws, weights=torch.tensor(weights).double())
    torch.testing.assert_close(urn.log_prob(outcomes).exp(), p, rtol=1e-13, atol=0)
    mean = p @ outcomes
    torch.testing.assert_close(urn.mean, mean, rtol=1e-13, atol=0)
    covariance = (outcomes - mean).mT @ (p.unsqueeze(-1) * (outcomes - mean))
    torch.testing.assert_close(urn.covariance_matrix, covariance, rtol=1e-12, atol=1e-14)


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    urns = batch(500, 3, True, 1.0)
    operands, found = (*urns, states_of(*urns[1:])), []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append([getattr(sequential, name)(*operands) for name in NAMES])
    for one, three in zip(*found, strict=True):
        assert one.equal(three)
