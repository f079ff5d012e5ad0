"""Speed of the estimators, on the urns for which the paper's released code was timed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from bench_core import measure, random_log_weights, urns

from diffurn import CovarianceST, GumbelSoftmax
from diffurn.estimators import Estimator

ESTIMATORS: dict[str, Estimator] = {
    "covariance": CovarianceST(),
    "gumbel-merged": GumbelSoftmax(1.0, conditionals="merged"),
    "gumbel-exact": GumbelSoftmax(1.0, conditionals="exact"),
}
URNS = {"B2000-c3-m200": (2_000, 3, 200, 180), "B256-c50-m100": (256, 50, 100, 500), "B64-c2-m10": (64, 2, 10, 10)}


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "forward+backward"])
@pytest.mark.parametrize("urn", URNS)
@pytest.mark.parametrize("name", ESTIMATORS)
def bench_estimators(benchmark: Any, name: str, urn: str, backward: bool) -> None:
    number, groups, group_size, draws = URNS[urn]
    log_weights = random_log_weights(number, groups).requires_grad_()

    def job() -> None:
        with torch.set_grad_enabled(backward):
            drawn = urns(number, groups, group_size, draws, log_weights, ESTIMATORS[name]).rsample()
        if backward:
            log_weights.grad = None
            drawn.square().sum().backward()

    measure(benchmark, number, job)


def bench_gumbel_where_the_released_code_runs_out_of_memory(benchmark: Any) -> None:
    log_weights = random_log_weights(128, 10).requires_grad_()

    def job() -> None:
        urns(128, 10, 6_000, 20_000, log_weights, ESTIMATORS["gumbel-merged"]).rsample().square().sum().backward()

    measure(benchmark, 128, job)
