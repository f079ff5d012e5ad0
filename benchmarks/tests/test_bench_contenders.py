"""The contenders compute what the cases ask for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from bench_fakes import CPU, ONE_RUN

from benchmarks import biasedurn
from benchmarks.agreement import Judge
from benchmarks.cells import LAWS, OPERATIONS, Case, Problem, sweeps
from benchmarks.contenders import within_torch
from benchmarks.installed import installed
from benchmarks.limits import CannotDoError, Limits, OutOfTimeError
from benchmarks.with_scipy import SciPy

needs_biased_urn = pytest.mark.needs("BiasedUrn")


def test_the_grid_covers_every_operation_and_law_and_the_promised_sizes() -> None:
    cases = [case for sweep in sweeps() for case in sweep.cases]
    assert {case.operation for case in cases} == set(OPERATIONS)
    assert {case.law for case in cases} == set(LAWS)
    assert {case.dtype for case in cases} == {"float32", "float64"}
    for axis, low, high in (("m", 10, 10**9), ("c", 2, 10**4), ("B", 1, 10**6)):
        sizes = [case.size(axis) for case in cases]
        assert (min(sizes), max(sizes)) == (low, high)
    assert len([case for sweep in sweeps(quick=True) for case in sweep.cases]) < len(cases) / 2


@pytest.fixture(scope="module")
def r_process() -> Iterator[biasedurn.RProcess]:
    process = biasedurn.RProcess(biasedurn.r_command())
    yield process
    process.close()


def items_for(law: str) -> int:
    return 8 if law == "wallenius" else 30  # its moments take their time


def judged(contender: Any, case: Case) -> Any:
    problem = Problem(case, CPU)
    items = min(case.items, contender.most_items(case))
    return Judge(problem)(contender.job(problem, items).measure(ONE_RUN).value)


ASKED_OF_SCIPY = [
    Case(operation, law, groups, 20, items_for(law))
    for operation in OPERATIONS
    for law in LAWS
    for groups in (2, 3)
]


@pytest.mark.parametrize("law", LAWS)
def test_a_single_draw_of_scipy_is_one_row_of_counts(law: str) -> None:
    for operation in ("many-draws", "one-draw-each"):
        case = Case(operation, law, 2, 20, 1)
        if SciPy().offers(case):
            counts = SciPy().job(Problem(case, CPU), 1).measure(ONE_RUN).value
            assert counts.shape == (1, 2)
            assert counts.sum() == case.draws


@pytest.mark.parametrize("case", list(filter(SciPy().offers, ASKED_OF_SCIPY)), ids=str)
def test_scipy_is_asked_for_the_same_thing(case: Case) -> None:
    assert judged(SciPy(), case).same


@needs_biased_urn
@pytest.mark.parametrize("operation", ["log_prob", "moments", "many-draws", "one-draw-each"])
@pytest.mark.parametrize("law", ["fisher", "wallenius"])
@pytest.mark.parametrize("groups", [2, 3])
def test_biased_urn_is_asked_for_the_same_thing(
    r_process: biasedurn.RProcess, operation: str, law: str, groups: int
) -> None:
    assert judged(
        biasedurn.biased_urns(r_process)[0], Case(operation, law, groups, 20, items_for(law))
    ).same


@needs_biased_urn
@pytest.mark.parametrize("groups", [2, 3])
def test_biased_urn_approximates_odds(r_process: biasedurn.RProcess, groups: int) -> None:
    approximate = biasedurn.biased_urns(r_process)[1]
    case = Case("fit", "fisher", groups, 20, 30)
    assert approximate.offers(case)
    assert not approximate.offers(replace(case, law="wallenius"))
    assert 1e-3 < judged(approximate, case).difference < 0.3


@needs_biased_urn
def test_r_is_stopped_in_time_and_started_anew(r_process: biasedurn.RProcess) -> None:
    contender = biasedurn.biased_urns(r_process)[0]
    endless = Problem(Case("log_prob", "fisher", 20, 20, 1), CPU)
    with pytest.raises(OutOfTimeError):
        contender.job(endless, 1).measure(Limits(0.02))
    assert judged(contender, Case("log_prob", "fisher", 3, 10, 5)).same


@needs_biased_urn
def test_errors_in_r_are_reasons(r_process: biasedurn.RProcess) -> None:
    too_many = Problem(Case("log_prob", "fisher", 33, 2, 1), CPU)
    with pytest.raises(CannotDoError, match=r"R: .*33"):
        biasedurn.RJob(r_process, too_many, 1, None).measure(Limits())


def test_peers_refuse_what_is_beyond_them_with_a_reason() -> None:
    contender = biasedurn.BiasedUrn(None, "BiasedUrn", "peer", None, ("log_prob",))  # type: ignore[arg-type]
    with pytest.raises(CannotDoError, match="32 groups at most"):
        contender.most_items(Case("log_prob", "fisher", 33, 10, 1))
    for each, case in (
        (contender, Case("log_prob", "fisher", 3, 10**9, 1)),
        (SciPy(), Case("log_prob", "fisher", 2, 2 * 10**9, 1)),
    ):
        with pytest.raises(CannotDoError, match="int32"):
            each.most_items(case)


STAND_IN_FOR_R = """
import sys
print("ready 2.0.9 4.3", flush=True)
for line in sys.stdin:
    operation, law, items, *_, folder = line.split()
    if operation == "fit":
        print("failed no luck", flush=True)
        continue
    with open(folder + "/weights", "rb") as weights, open(folder + "/value", "wb") as value:
        value.write(weights.read())
    print("measured 3 1000 0.5 0.25", flush=True)
"""


def test_questions_and_answers_of_the_r_process() -> None:
    process = biasedurn.RProcess([sys.executable, "-c", STAND_IN_FOR_R])
    try:
        assert (process.version, process.r_version) == ("2.0.9", "4.3")
        contender = biasedurn.biased_urns(process)[0]
        problem = Problem(Case("log_prob", "fisher", 3, 10, 4), CPU)
        measured = contender.job(problem, 4).measure(Limits())
        assert (measured.rounds, measured.repeats, measured.peak_bytes) == ((0.5, 0.25), 3, 1000)
        assert measured.value == pytest.approx(problem.arrays(4)[0])
        refused = Problem(Case("fit", "fisher", 3, 10, 4), CPU)
        with pytest.raises(CannotDoError, match="R: no luck"):
            contender.job(refused, 4).measure(Limits())
    finally:
        process.close()


def test_without_r_or_its_package_there_is_a_sentence() -> None:
    complaining = [
        sys.executable,
        "-c",
        "import sys; sys.exit('there is no package called BiasedUrn')",
    ]
    with pytest.raises(
        biasedurn.MissingError,
        match=r"could not load it \(there is no package called BiasedUrn\)",
    ):
        biasedurn.RProcess(complaining)
    with ExitStack() as stack:
        found = installed(stack, rscript="no-such-Rscript")
    assert found.missing == [
        "BiasedUrn is left out: no-such-Rscript was not found (install R and its package BiasedUrn)"
    ]


@pytest.mark.parametrize("contender", within_torch(), ids=lambda contender: contender.name)
def test_contenders_within_torch_do_what_they_offer(contender: Any) -> None:
    for operation in OPERATIONS:
        case = Case(operation, "fisher", 2, 12, 40)
        if contender.offers(case):
            measured = contender.job(Problem(case, CPU), 40).measure(ONE_RUN)
            assert len(measured.value) == 40
            assert measured.peak_bytes is None or measured.peak_bytes > 0
