"""Small urns inside a training step: the time of one step, and how many operations it takes (on a GPU, how many launches).

The urn is built anew in every step, as a model with learned weights does. `extra_info["operations"]` counts those that compute something,
forward and backward; views of tensors are free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from bench_core import measure, random_log_weights
from bench_estimators import ESTIMATORS
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from diffurn import FisherHypergeometric

URNS = {"B64-c2-m10": (64, [10, 10], 10), "B64-c3-m10": (64, [10, 10, 10], 15), "B64-c5-m5": (64, [5] * 5, 12)}
STEPS: dict[str, Callable[[FisherHypergeometric], Tensor]] = {
    "rsample": lambda urn: urn.rsample().square().sum(),
    "rank_indicators": lambda urn: urn.rank_indicators(0)[1].square().sum(),
    "mean": lambda urn: urn.mean.square().sum(),
    "log_prob": lambda urn: urn.log_prob(urn.sample()).sum(),
}
NEEDS_NO_ESTIMATOR = ("mean", "log_prob")
VIEWS = ["alias", "detach", "expand", "permute", "select", "slice", "squeeze", "t", "transpose", "unbind", "unsqueeze", "view"]


class Operations(TorchDispatchMode):
    """Counts the operations that are not views."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        self.number += function.name().removeprefix("aten::").partition(".")[0] not in VIEWS
        return function(*arguments, **(options or {}))


def training_step(step: str, estimator: str, urn: str) -> Callable[[], None]:
    number, sizes, draws = URNS[urn]
    log_weights = random_log_weights(number, len(sizes)).float().requires_grad_()

    def job() -> None:
        log_weights.grad = None
        STEPS[step](FisherHypergeometric(sizes, draws, log_weights=log_weights, estimator=ESTIMATORS[estimator])).backward()

    return job


CASES = [(step, name) for step in STEPS for name in ESTIMATORS if name == "covariance" or step not in NEEDS_NO_ESTIMATOR]


@pytest.mark.parametrize("urn", URNS)
@pytest.mark.parametrize(("step", "estimator"), CASES)
def bench_training_step(benchmark: Any, step: str, estimator: str, urn: str) -> None:
    job = training_step(step, estimator, urn)
    job()
    with Operations() as operations:
        job()
    benchmark.extra_info["operations"] = operations.number
    measure(benchmark, URNS[urn][0], job)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler calls functions that torch has deprecated
@pytest.mark.parametrize("estimator", ESTIMATORS)
def bench_compiled_training_step(benchmark: Any, estimator: str) -> None:
    number, sizes, draws = URNS["B64-c2-m10"]
    log_weights = random_log_weights(number, len(sizes)).float().requires_grad_()

    @torch.compile(fullgraph=True)
    def loss(log_weights: Tensor) -> Tensor:
        return STEPS["rsample"](FisherHypergeometric(sizes, draws, log_weights=log_weights, estimator=ESTIMATORS[estimator]))

    def job() -> None:
        log_weights.grad = None
        loss(log_weights).backward()

    measure(benchmark, number, job)
