"""Speed of Wallenius' law. `make bench` runs it; each benchmark states how many urns one round covers (`extra_info["items"]`)."""

from __future__ import annotations

from typing import Any

import pytest
from bench_core import measure, random_log_weights

from diffurn import WalleniusHypergeometric


def urns(number: int, group_size: int = 200) -> WalleniusHypergeometric:
    return WalleniusHypergeometric([group_size] * 3, 9 * group_size // 10, log_weights=random_log_weights(number, 3))


@pytest.mark.parametrize("group_size", [10, 200, 1_000_000])
def bench_log_prob(benchmark: Any, group_size: int) -> None:
    many = urns(20_000, group_size)
    counts = many.sample()
    measure(benchmark, 20_000, lambda: many.log_prob(counts), rounds=5, warmup_rounds=1)


@pytest.mark.parametrize("group_size", [10, 200, 1_000_000])
def bench_one_draw_of_each_of_many_urns(benchmark: Any, group_size: int) -> None:
    many = urns(20_000, group_size)
    measure(benchmark, 20_000, many.sample, rounds=5, warmup_rounds=1)


@pytest.mark.parametrize("group_size", [10, 200, 1_000_000])
@pytest.mark.parametrize("moment", ["mean", "covariance_matrix"])
def bench_moments(benchmark: Any, moment: str, group_size: int) -> None:
    many = urns(500, group_size)
    measure(benchmark, 500, lambda: getattr(many, moment), rounds=3, warmup_rounds=1)
