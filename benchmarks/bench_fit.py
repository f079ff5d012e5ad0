"""Speed of fitting ω from counts. `make bench` runs it; each benchmark states how many rows one round fits (`extra_info["items"]`)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from bench_core import measure
from torch import Tensor

from diffurn import FisherHypergeometric
from diffurn.inference import fit


def table(rows: int, groups: int, group_size: int = 100) -> tuple[Tensor, Tensor]:
    """Counts and group sizes of rows with m and n of their own, from log ω between -1 and 1."""
    generator = torch.Generator().manual_seed(0)
    group_sizes = torch.randint(5, group_size, (rows, groups), generator=generator)
    draws = 1 + ((group_sizes.sum(-1) - 2) * torch.rand(rows, generator=generator)).long()
    log_weights = torch.linspace(-1, 1, groups, dtype=torch.float64)
    return FisherHypergeometric(group_sizes, draws, log_weights=log_weights).sample(), group_sizes


@pytest.mark.parametrize(("rows", "groups", "rounds"), [(10_000, 10, 5), (1_000_000, 4, 1)])
def bench_rows_with_sizes_and_draws_of_their_own(benchmark: Any, rows: int, groups: int, rounds: int) -> None:
    counts, group_sizes = table(rows, groups)
    measure(benchmark, rows, lambda: fit(counts, group_sizes), rounds=rounds, warmup_rounds=0)


@pytest.mark.parametrize("interval", ["wald", "profile"])
def bench_many_data_sets_as_one_batch(benchmark: Any, interval: str) -> None:
    urn = FisherHypergeometric([4000, 3000, 5000, 2500], 6000, log_weights=torch.tensor([0.0, 1.0, -0.5, 0.5], dtype=torch.float64))
    counts = urn.sample((20_000, 1))
    measure(benchmark, 20_000, lambda: fit(counts, urn.group_sizes, interval=interval), rounds=3, warmup_rounds=1)


def bench_repeated_rows_are_merged(benchmark: Any) -> None:
    urn = FisherHypergeometric([20, 30, 25], 30, log_weights=torch.tensor([0.0, 1.0, -0.5], dtype=torch.float64))
    counts = urn.sample((1_000_000,))
    measure(benchmark, 1_000_000, lambda: fit(counts, urn.group_sizes), rounds=3, warmup_rounds=1)


@pytest.mark.parametrize("model", ["fisher", "wallenius"])
def bench_both_laws(benchmark: Any, model: str) -> None:
    counts, group_sizes = table(2_000, 3)
    measure(benchmark, 2_000, lambda: fit(counts, group_sizes, model=model), rounds=5, warmup_rounds=1)


def bench_firth(benchmark: Any) -> None:
    counts, group_sizes = table(2_000, 3)
    measure(benchmark, 2_000, lambda: fit(counts, group_sizes, penalty="firth"), rounds=5, warmup_rounds=1)
