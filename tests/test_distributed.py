"""Log-probabilities, gradients and fits of data in two processes equal those in one process."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

from diffurn import (
    ClogitResult,
    FisherHypergeometric,
    FitResult,
    WalleniusHypergeometric,
    clogit,
    fit,
)
from diffurn.inference.reading.counts import read_rows
from diffurn.inference.solving.likelihood import Objective
from diffurn.inference.solving.solution import solve_sample
from support.strata import study

pytestmark = pytest.mark.skipif(
    not (distributed.is_available() and distributed.is_gloo_available()),
    reason="torch was built without gloo, its backend for CPUs",
)

PROCESSES = 2
PATIENCE = 240  # seconds until processes that hang are ended
FEATURES, SIZES, DRAWS, PRICES = 4, [30, 20, 40], 35, [1.0, 5.0, 2.0]


# --- jobs for one process and for two


@dataclass(frozen=True)
class Case:
    """Rows to fit, in dimension -2 of counts and sizes and in dimension 0 of `by_row`; the `first`
    of them belong to process 0.
    """

    counts: Any
    sizes: Any
    first: int
    by_row: dict[str, Tensor] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def fit(self, rows: slice = slice(None), process_group: Any = None) -> FitResult:
        counts, sizes = (torch.as_tensor(x)[..., rows, :] for x in (self.counts, self.sizes))
        by_row = {name: values[rows] for name, values in self.by_row.items()}
        return fit(counts, sizes, **by_row, **self.options, process_group=process_group)

    def shard(self, process_group: Any) -> FitResult:
        rows = slice(None, self.first) if distributed.get_rank() == 0 else slice(self.first, None)
        return self.fit(rows, process_group)


class ManyRows(Case):
    """A fit that begins with a subsample, as it does with 100,000 rows."""

    def fit(self, rows: slice = slice(None), process_group: Any = None) -> FitResult:
        sample = read_rows(self.counts[rows], self.sizes[rows]).sample
        sample = replace(sample, process_group=process_group)
        objective = replace(Objective.of("fisher", sample), many_rows=20, subsample=12)
        return FitResult.of(solve_sample(objective), sample)


def cases() -> dict[str, Case]:
    """The same in every process."""
    torch.manual_seed(1)
    sizes = torch.randint(3, 30, (24, 3))
    counts = FisherHypergeometric(
        sizes, sizes.sum(-1) // 3, log_weights=torch.tensor([0.0, 1.0, -1.0])
    ).sample()
    features = torch.randn(24, 3, 2)
    many = torch.tensor([[4, 3, 5], [2, 4, 6]]).repeat(12, 1)
    batch = FisherHypergeometric(many, 6, log_weights=torch.tensor([0.5, 0.0, -0.5])).sample((2,))
    batch[1, :, 1:] += batch[1, :, :1] * torch.tensor([0.0, 1.0])
    batch[1, :, 0] = 0  # in the second data set the first group is never drawn
    batch = torch.minimum(batch, many)
    indicator = torch.tensor([0.0, 1.0, 0.0]).expand(3, 3)
    separating = torch.stack(
        [indicator, torch.tensor([[0.3, 1, -0.5], [1.2, -0.4, 0.1], [-0.7, 0.2, 0.9]])], -1
    )
    in_one = separating * torch.tensor([[0.0, 1.0], [1.0, 1.0], [1.0, 1.0]]).unsqueeze(
        1
    )  # the first is constant in the first row
    nothing = torch.tensor(
        [[[2.0, 1], [1, 0], [0, 0]], [[0, 0], [2, 1], [1, 0]], [[2, 1], [1, 0], [3, 0]]]
    )
    return {
        "fisher": Case(counts, sizes, 5, options={"interval": "profile", "reference": 1}),
        "wallenius": Case(counts[:5], sizes[:5], 3, options={"model": "wallenius"}),
        "frequencies": Case(
            counts,
            sizes,
            20,
            {"frequencies": torch.randint(0, 4, (24,)) + (torch.arange(24) % 7 == 0)},
        ),
        "a batch, of which one is separated": Case(
            batch, many, 10, options={"interval": "profile"}
        ),
        "rows that repeat": Case(batch[0], many, 11),
        "ridge": Case(counts[:6], sizes[:6], 2, options={"penalty": "ridge", "ridge": 2.0}),
        "firth": Case(counts[:6], sizes[:6], 2, options={"penalty": "firth"}),
        "many rows": ManyRows(counts, sizes, 9),
        # one process sees a separation, or no competition, where all rows together have none
        "separated in each process": Case(
            [[2, 0], [1, 0], [2, 6], [1, 4]], [[4, 5], [3, 4], [3, 6], [2, 4]], 2
        ),
        "separated in both": Case(
            [[2, 0], [1, 0], [3, 5]], [[4, 5], [3, 4], [3, 6]], 2, options={"interval": "profile"}
        ),
        "groups that meet in one process only": Case(
            [[2, 1, 0], [1, 2, 0], [0, 1, 3]], [[4, 5, 0], [3, 4, 0], [0, 6, 4]], 2
        ),
        "never in competition": Case([[2, 1, 0, 0], [0, 0, 1, 2]], [[4, 5, 0, 0], [0, 0, 3, 4]], 1),
        "covariates": Case(
            counts, sizes, 7, {"covariates": features}, {"interval": "profile", "names": ["u", "v"]}
        ),
        "covariates, wallenius": Case(
            counts[:6], sizes[:6], 4, {"covariates": features[:6]}, {"model": "wallenius"}
        ),
        "covariates that separate": Case(
            [[2, 0, 3], [1, 0, 2], [3, 0, 1]],
            [[4, 3, 5], [2, 2, 6], [4, 4, 2]],
            1,
            {"covariates": separating},
            {"interval": "profile"},
        ),
        "covariates that separate in one process": Case(
            [[2, 1, 3], [1, 0, 2], [3, 0, 1]],
            [[4, 3, 5], [2, 2, 6], [4, 4, 2]],
            1,
            {"covariates": in_one},
            {"interval": "profile"},
        ),
        "covariates that leave nothing": Case(
            [[1, 0, 0], [0, 1, 0], [1, 0, 1]], [[1, 1, 1]] * 3, 2, {"covariates": nothing}
        ),
    }


NUMBERS = (
    "coefficients",
    "covariance",
    "lower",
    "upper",
    "log_likelihood",
    "central_log_likelihood",
    "parameters",
    "converged",
    "rows",
)
NUMBERS += ("draws", "observed", "expected", "central_expected", "p_values")


def figures(result: FitResult) -> dict[str, Tensor]:
    """All the numbers of a fit, but the iterations."""
    named = {name: getattr(result, name) for name in NUMBERS}
    pairs = (
        {}
        if result.log_weights is None
        else {"p-values of pairs": result.contrasts().adjusted_p_value}
    )
    level = {
        f"{end} at 80 %": value
        for end, value in zip(
            ("lower", "upper"), result.confidence_interval(0.8, "profile"), strict=True
        )
    }
    return {
        **named,
        **result.goodness_of_fit()._asdict(),
        **result.likelihood_ratio_test()._asdict(),
        **pairs,
        **level,
    }


def studies(rank: int | None = None, process_group: Any = None) -> dict[str, ClogitResult]:
    """Conditional logistic regressions: of all strata, or of those of one process."""
    rows = study()
    case, x, w, offset, stratum = (
        torch.as_tensor(values) for values in (rows.case, rows.x, rows.w, rows.offset, rows.stratum)
    )
    parts = {None: stratum > 0, 0: stratum == 3, 1: stratum != 3}
    mine = parts[rank]
    case, covariates, stratum = case[mine], torch.stack([x, w], -1)[mine], stratum[mine]
    separating = torch.stack([case.double(), covariates[:, 1]], -1)
    options = {"process_group": process_group}
    return {
        "profile": clogit(case, covariates, stratum, offset=offset[mine], **options),
        "robust": clogit(case, covariates, stratum, covariance="HC1", **options),
        "firth": clogit(case, covariates, stratum, penalty="firth", **options),
        "separated": clogit(case, separating, stratum, **options),
    }


def clogit_figures(result: ClogitResult) -> dict[str, Tensor]:
    names = ("coefficients", "covariance", "lower", "upper", "log_likelihood", "p_values")
    names += ("null_log_likelihood", "rows", "cases", "observations")
    figures = {name: getattr(result, name) for name in names}
    return {**figures, "score": result.score_test().statistic}


class Shopper(nn.Module):
    """Features to log-weights; the loss is a likelihood, and a linear function of draws, whose
    gradient does not depend on chance.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log_weights = nn.Linear(FEATURES, len(SIZES))

    def forward(self, features: Tensor, counts: Tensor) -> Tensor:
        urn = FisherHypergeometric(SIZES, DRAWS, log_weights=self.log_weights(features))
        return (urn.rsample() @ torch.tensor(PRICES) - urn.log_prob(counts) + urn.entropy()).mean()


def shopping() -> tuple[Shopper, Tensor, Tensor]:
    torch.manual_seed(2)
    features = torch.randn(40, FEATURES)
    counts = FisherHypergeometric(SIZES, DRAWS, log_weights=torch.randn(40, 3)).sample()
    return Shopper(), features, counts


def log_probs(rows: slice = slice(None)) -> Tensor:
    """Of both laws, ``(rows, 2)``."""
    _, features, counts = shopping()
    urns = [
        law(SIZES, DRAWS, log_weights=features[rows, :3])
        for law in (FisherHypergeometric, WalleniusHypergeometric)
    ]
    return torch.stack([urn.log_prob(counts[rows]) for urn in urns], -1)


# --- the two processes


def message_of(action: Callable[[], object]) -> str:
    try:
        action()
    except ValueError as error:
        return str(error)
    return "nothing was raised"


def work(rank: int, folder: str) -> None:
    """The job of process `rank`; it saves its results to a file."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    os.environ["GLOO_SOCKET_IFNAME"] = next(
        name for _, name in socket.if_nameindex() if name.startswith("lo")
    )
    meeting_point = f"file://{folder}/meeting_point"
    distributed.init_process_group(
        "gloo",
        init_method=meeting_point,
        rank=rank,
        world_size=PROCESSES,
        timeout=timedelta(seconds=PATIENCE // 2),
    )
    both = distributed.group.WORLD
    half = slice(20 * rank, 20 * rank + 20)

    fits = {name: case.shard(both) for name, case in cases().items()}
    found: dict[str, Any] = {}
    if rank == 0:  # while the other waits
        found["summaries"] = {
            name: str(result) for name, result in fits.items() if not result.batch_shape
        }
    distributed.barrier()
    found["fits"] = {name: figures(result) for name, result in fits.items()}

    found["clogit"] = {name: clogit_figures(result) for name, result in studies(rank, both).items()}

    mine = log_probs(half)
    pieces = [torch.empty_like(mine) for _ in range(PROCESSES)]
    distributed.all_gather(pieces, mine)
    found["log_probs"] = torch.cat(pieces)

    shopper, features, counts = shopping()
    torch.manual_seed(rank)  # draws differ between processes
    copies = nn.parallel.DistributedDataParallel(shopper)
    copies(features[half], counts[half]).backward()
    found["gradients"] = {name: parameter.grad for name, parameter in shopper.named_parameters()}

    alone = distributed.new_group([0])
    found["refusals"] = {
        "bad counts": message_of(lambda: fit([3 + 5 * rank, 1], [4, 4], process_group=both)),
        "no rows": message_of(
            lambda: fit(torch.zeros(1 - rank, 2) + 1, [4, 4], process_group=both)
        ),
        "other options": message_of(
            lambda: fit([3, 1], [4, 4], penalty=(None, "ridge")[rank], process_group=both)
        ),
        "other groups": message_of(
            lambda: fit([3] * (2 + rank), 4 * torch.ones(2 + rank), process_group=both)
        ),
        "a reference without balls": message_of(
            lambda: fit([0, 2, 1], [0, 4, 4], reference=0, process_group=both)
        ),
    }
    if rank == 1:
        found["refusals"]["a process outside the group"] = message_of(
            lambda: fit([3, 1], [4, 4], process_group=alone)
        )
    torch.save(found, f"{folder}/{rank}.pt")
    distributed.barrier()
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The results of the two processes."""
    folder: Path = tmp_path_factory.mktemp("processes")
    processes = torch.multiprocessing.spawn(
        work, (str(folder),), nprocs=PROCESSES, join=False, daemon=True
    )
    deadline = time.monotonic() + PATIENCE
    try:
        while not processes.join(timeout=1):  # raises the error of a process
            assert time.monotonic() < deadline, (
                f"the processes have not ended within {PATIENCE} seconds"
            )
    finally:
        for process in processes.processes:
            process.kill()
    return [torch.load(folder / f"{rank}.pt") for rank in range(PROCESSES)]


# --- comparisons


@pytest.fixture(scope="module")
def in_one_process() -> dict[str, FitResult]:
    torch.set_default_dtype(torch.float64)
    return {name: case.fit() for name, case in cases().items()}


def test_log_probabilities_of_a_spread_batch_are_those_of_the_whole(
    found: list[dict[str, Any]],
) -> None:
    for process in found:
        torch.testing.assert_close(process["log_probs"], log_probs(), rtol=1e-12, atol=1e-12)


def test_gradients_of_two_processes_are_those_of_the_whole_batch(
    found: list[dict[str, Any]],
) -> None:
    shopper, features, counts = shopping()
    shopper(features, counts).backward()
    for process in found:
        for name, parameter in shopper.named_parameters():
            torch.testing.assert_close(
                process["gradients"][name], parameter.grad, rtol=1e-12, atol=1e-12
            )


def test_a_fit_of_spread_rows_is_that_of_all_rows(
    found: list[dict[str, Any]], in_one_process: dict[str, FitResult]
) -> None:
    expected = {name: figures(result) for name, result in in_one_process.items()}
    for process in found:
        for name, values in expected.items():
            for figure, value in values.items():
                difference = (
                    f"{figure} of {name!r} is {process['fits'][name][figure]} instead of {value}"
                )
                torch.testing.assert_close(
                    process["fits"][name][figure],
                    value,
                    rtol=1e-9,
                    atol=1e-9,
                    equal_nan=True,
                    msg=difference,
                )


def test_conditional_logistic_regression_of_spread_strata_is_that_of_all(
    found: list[dict[str, Any]],
) -> None:
    for name, result in studies().items():
        for process in found:
            for figure, value in clogit_figures(result).items():
                torch.testing.assert_close(
                    process["clogit"][name][figure],
                    value,
                    rtol=1e-9,
                    atol=1e-9,
                    equal_nan=True,
                    msg=f"{figure} of {name!r}",
                )


def test_the_cases_are_separated_as_their_names_say(in_one_process: dict[str, FitResult]) -> None:
    infinite = {
        name for name, result in in_one_process.items() if bool(result.coefficients.isinf().any())
    }
    undetermined = {
        name for name, result in in_one_process.items() if bool(result.coefficients.isnan().any())
    }
    covariates = {
        "covariates that separate",
        "covariates that separate in one process",
        "covariates that leave nothing",
    }
    assert infinite == {"a batch, of which one is separated", "separated in both"} | covariates
    assert undetermined == {"never in competition", "covariates that leave nothing"}


def test_all_processes_have_the_same_result_to_the_last_bit(found: list[dict[str, Any]]) -> None:
    first, second = (process["fits"] for process in found)
    for name in first:
        for figure, value in first[name].items():
            torch.testing.assert_close(second[name][figure], value, rtol=0, atol=0, equal_nan=True)


def test_one_process_alone_can_print_the_summary(
    found: list[dict[str, Any]], in_one_process: dict[str, FitResult]
) -> None:
    for name, summary in found[0]["summaries"].items():
        if name != "many rows":  # starts from another subsample, so that the iterations differ
            assert summary == str(in_one_process[name])


THE_OTHER = "process 1 of process_group could not read its rows: "
REFUSALS = {
    "bad counts": (
        THE_OTHER + "counts in row 0, group '1' is 8",
        "counts in row 0, group '1' is 8",
    ),
    "no rows": (THE_OTHER + "counts (0, 2)", "counts (0, 2)"),
    "other options": (
        "penalty must be the same in all processes of process_group, but is None in process 0, "
        "'ridge' in process 1",
    )
    * 2,
    "other groups": (
        "groups must be the same in all processes of process_group, but is ('1', '2') in process 0",
    )
    * 2,
    "a reference without balls": ("reference '1' has no ball in any row",) * 2,
}


@pytest.mark.parametrize("case", REFUSALS)
def test_an_error_in_one_process_is_raised_in_all(case: str, found: list[dict[str, Any]]) -> None:
    for process, words in zip(found, REFUSALS[case], strict=True):
        assert process["refusals"][case].startswith(words)


def test_a_process_outside_the_group_is_refused(found: list[dict[str, Any]]) -> None:
    assert (
        found[1]["refusals"]["a process outside the group"]
        == "this process does not belong to process_group; fit in its members only"
    )
