"""Speed of the exact core. `make bench` runs it; `benchmarks/README.md` records the figures and the machine they came from.

Each benchmark states how many urns or draws one round handles (`extra_info["items"]`); the rate is items / median time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from diffurn import FisherHypergeometric
from diffurn.estimators import Estimator

MANY = 50_000


def random_log_weights(urns: int, groups: int) -> Tensor:
    return torch.randn(urns, groups, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def urns(
    number: int, groups: int, group_size: int, draws: int, log_weights: Tensor | None = None, estimator: Estimator | None = None
) -> FisherHypergeometric:
    """A batch of urns, validated as a user would have them."""
    log_weights = random_log_weights(number, groups) if log_weights is None else log_weights
    return FisherHypergeometric(torch.full((groups,), group_size), draws, log_weights=log_weights, estimator=estimator)


def measure(benchmark: Any, items: int, job: Callable[[], object], rounds: int = 7, warmup_rounds: int = 2) -> None:
    benchmark.extra_info["items"] = items
    benchmark.pedantic(job, rounds=rounds, warmup_rounds=warmup_rounds)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def bench_many_draws_of_one_urn(benchmark: Any, dtype: torch.dtype) -> None:
    urn = FisherHypergeometric([200, 200, 200], 180, weights=torch.tensor([1.0, 3.0, 1.0], dtype=dtype))
    measure(benchmark, 2_000_000, lambda: urn.sample((2_000_000,)))


def bench_many_draws_of_one_urn_of_ten_groups(benchmark: Any) -> None:
    urn = FisherHypergeometric([200] * 10, 600, weights=torch.linspace(0.5, 3.0, 10))
    measure(benchmark, 500_000, lambda: urn.sample((500_000,)))


@pytest.mark.parametrize("keeps", [True, False], ids=["tables-kept", "tables-anew"])
def bench_some_draws_of_one_urn_again_and_again(benchmark: Any, keeps: bool) -> None:
    weights = torch.tensor([1.0, 3.0, 1.0])

    def job() -> None:
        FisherHypergeometric([200, 200, 200], 180, weights=weights).sample((20_000,))
        weights[1] += 0.0 if keeps else 1e-3

    measure(benchmark, 20_000, job)


@pytest.mark.parametrize(
    ("number", "groups", "group_size", "draws"), [(MANY, 3, 200, 180), (2_000, 10, 10**6, 3 * 10**6), (100, 1000, 10, 3000)]
)
def bench_one_draw_of_each_urn(benchmark: Any, number: int, groups: int, group_size: int, draws: int) -> None:
    log_weights = random_log_weights(number, groups)
    measure(benchmark, number, lambda: urns(number, groups, group_size, draws, log_weights).sample())


@pytest.mark.parametrize(
    ("number", "groups", "group_size", "draws"), [(MANY, 3, 200, 180), (256, 50, 100, 500), (2_000, 10, 10**6, 3 * 10**6)]
)
def bench_draw_and_gradient(benchmark: Any, number: int, groups: int, group_size: int, draws: int) -> None:
    log_weights = random_log_weights(number, groups).requires_grad_()

    def job() -> None:
        log_weights.grad = None
        urns(number, groups, group_size, draws, log_weights).rsample().square().sum().backward()

    measure(benchmark, number, job)


@pytest.mark.parametrize("group_size", [10**2, 10**3, 10**4, 10**5, 10**6, 10**7, 10**8, 10**9])
def bench_log_prob_is_flat_in_the_group_size(benchmark: Any, group_size: int) -> None:
    log_weights = random_log_weights(MANY, 3)
    draws = 9 * group_size // 10
    x = urns(MANY, 3, group_size, draws).mode
    measure(benchmark, MANY, lambda: urns(MANY, 3, group_size, draws, log_weights).log_prob(x))


@pytest.mark.parametrize("quantity", ["log_normalizer", "mean", "variance", "covariance_matrix", "mode"])
def bench_moments(benchmark: Any, quantity: str) -> None:
    log_weights = random_log_weights(MANY, 3)
    measure(benchmark, MANY, lambda: getattr(urns(MANY, 3, 200, 180, log_weights), quantity))


@pytest.mark.parametrize("group_size", [200, 10**9])
def bench_entropy(benchmark: Any, group_size: int) -> None:
    log_weights = random_log_weights(1_000, 3)
    measure(benchmark, 1_000, lambda: urns(1_000, 3, group_size, 9 * group_size // 10, log_weights).entropy())
