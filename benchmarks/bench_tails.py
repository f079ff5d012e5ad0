"""Speed of tail probabilities and exact tests. `make bench` runs it; the style is that of `bench_core.py`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from bench_core import measure, random_log_weights, urns

from diffurn.inference.exact_test import exact_test

MARGINALS = 10_000


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("group_size", [10**2, 10**3, 10**4, 10**5, 10**6, 10**7, 10**8, 10**9])
def bench_cdf_is_flat_in_the_group_size(benchmark: Any, group_size: int, groups: int) -> None:
    log_weights = random_log_weights(MARGINALS // groups, groups)
    draws = 9 * group_size // 10
    urn = urns(len(log_weights), groups, group_size, draws, log_weights)
    x = torch.floor(urn.mean + urn.variance.sqrt())
    measure(benchmark, log_weights.numel(), lambda: urns(len(log_weights), groups, group_size, draws, log_weights).cdf(x))


@pytest.mark.parametrize("alternative", ["two-sided", "less"])
@pytest.mark.parametrize("largest_count", [30, 10**6])
def bench_exact_test(benchmark: Any, largest_count: int, alternative: Any) -> None:
    tables = torch.randint(0, largest_count, (100_000, 2, 2), generator=torch.Generator().manual_seed(0))
    measure(benchmark, len(tables), lambda: exact_test(tables, alternative=alternative))
