"""`diffurn bench`: the harness with fake clocks and fake contenders, the judge, the peers, and one
small real run.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from typer.testing import CliRunner

from benchmarks import biasedurn as bench_biasedurn
from benchmarks import judge as bench_judge
from benchmarks import measure as bench_measure
from benchmarks import suite as bench
from benchmarks.agreement import Judge, of_draws
from benchmarks.cells import LAWS, OPERATIONS, Case, Problem, Sweep, sweeps
from benchmarks.contenders import within_torch
from benchmarks.figure import STYLES, scaling
from benchmarks.limits import CannotDoError, Limits, OutOfTimeError, deadline
from benchmarks.measure import Measured, PythonJob
from benchmarks.tables import (
    all_tables,
    as_markdown,
    exceptions,
    exponents,
    fitted_exponent,
    growths,
    ratios,
)
from benchmarks.with_scipy import SciPy
from diffurn.cli import app
from diffurn_studies.harness.tables import Table, text

runner = CliRunner()
CPU = torch.device("cpu")
ONE_RUN = Limits(seconds=1e-9, patience=1e12)
needs_biased_urn = pytest.mark.needs("BiasedUrn")


class Clock:
    """Time that passes only when a job says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Fake:
    """A contender whose jobs take the seconds, and return the values, that a test wants."""

    name: str
    role: str
    seconds: Callable[[Case, int], float]
    value: Callable[[Case, int], np.ndarray] = lambda case, items: np.zeros((items, 1))
    most: int = 10**9

    def offers(self, case: Case) -> bool:
        return True

    def most_items(self, case: Case) -> int:
        if self.most < 1:
            raise CannotDoError("not my business")
        return self.most

    def job(self, problem: Problem, items: int) -> PythonJob:
        clock = Clock()

        def work() -> np.ndarray:
            clock.now += self.seconds(problem.case, items)
            return self.value(problem.case, items)

        return PythonJob(work, lambda run: 1000 * items, clock=clock)


def along_m(operation: str = "gradient", sizes: tuple[int, ...] = (10, 100, 1000)) -> Sweep:
    return Sweep("m", tuple(Case(operation, "fisher", 3, size, 100) for size in sizes))


def records_of(
    *contenders: Any, grid: Sweep | None = None, seconds: float = 1.0
) -> list[dict[str, Any]]:
    return list(bench.run(bench.Options(seconds=seconds), contenders, [grid or along_m()]))


def cell(table: Table, row: int, column: str) -> str:
    return text(table.rows[row][list(table.columns).index(column)])


# measuring


def test_short_jobs_are_repeated_within_rounds_and_long_ones_run_once() -> None:
    problem = Problem(Case("gradient", "fisher", 3, 10, 100), CPU)
    short = Fake("short", "peer", lambda case, items: 0.001).job(problem, 100).measure(Limits(1.0))
    assert (short.repeats, len(short.rounds), short.median, short.spread) == (
        5,
        7,
        pytest.approx(0.001),
        pytest.approx(0.0),
    )
    assert short.peak_bytes == 100_000
    assert (
        len(
            Fake("middle", "peer", lambda case, items: 0.4)
            .job(problem, 100)
            .measure(Limits(1.0))
            .rounds
        )
        == 2
    )
    assert Fake("long", "peer", lambda case, items: 3.0).job(problem, 100).measure(
        Limits(1.0)
    ).rounds == (3.0,)


def test_what_a_device_takes_to_compile_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_measure, "wait_for", lambda device: None)
    clock, durations = Clock(), iter([20.0])

    def work() -> np.ndarray:
        clock.now += next(durations, 0.4)
        return np.zeros((1, 1))

    measured = PythonJob(work, lambda run: None, torch.device("cuda"), clock).measure(Limits(1.0))
    assert measured.rounds == pytest.approx((0.4, 0.4))


def test_the_median_and_spread_are_those_of_the_rounds() -> None:
    measured = Measured((1.0, 2.0, 3.0, 4.0, 10.0), 1, None, np.zeros((1, 1)))
    assert (measured.median, measured.spread) == (3.0, pytest.approx(2 / 3))


@pytest.mark.skipif(not hasattr(__import__("signal"), "setitimer"), reason="needs POSIX timers")
def test_a_job_that_runs_over_its_limit_is_stopped_and_leaves_no_timer_behind() -> None:
    with pytest.raises(OutOfTimeError, match=r"over 0\.05 s"), deadline(0.05):
        time.sleep(60)
    with deadline(0.05):
        pass
    time.sleep(0.08)


def test_a_round_of_growing_cells_is_skipped_once_it_would_take_too_long() -> None:
    slow = Fake("diffurn", "ours", lambda case, items: 1e-4 * case.group_size**2)
    found = records_of(slow, grid=along_m(sizes=(10, 100, 10_000)))
    assert [record["status"] for record in found] == ["measured", "measured", "skipped"]
    assert found[2]["reason"] == "would take about 3 hours"


def test_contenders_that_work_item_by_item_get_fewer_items_and_times_are_per_item() -> None:
    peer = Fake("peer", "peer", lambda case, items: items * case.group_size / 2**13)
    found = records_of(peer, grid=along_m(sizes=(8, 64, 512)))
    assert [record["measured_items"] for record in found] == [100, 100, 16]
    assert [record["per_item"] for record in found] == pytest.approx([2**-10, 2**-7, 2**-4])


def test_too_much_memory_is_foreseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "available_bytes", lambda device: 1e6)
    grid = Sweep("B", tuple(Case("gradient", "fisher", 3, 10, size) for size in (1, 10, 10_000)))
    found = records_of(Fake("diffurn", "ours", lambda case, items: 0.01), grid=grid)
    assert [record["status"] for record in found] == ["measured", "measured", "skipped"]
    assert "GiB" in found[2]["reason"]


def test_refusals_and_breakdowns_are_recorded_with_their_reason() -> None:
    def broken(case: Case, items: int) -> float:
        raise ZeroDivisionError("no luck\ntoday")

    def stopped(case: Case, items: int) -> float:
        raise OutOfTimeError("over 20 s")

    refusing, breaking = (
        Fake("a", "peer", lambda case, items: 0.1, most=0),
        Fake("b", "peer", broken),
    )
    found = records_of(refusing, breaking, Fake("c", "peer", stopped))
    reasons = [(record["contender"], record["status"], record["reason"]) for record in found]
    assert reasons[:2] == [
        ("a", "skipped", "not my business"),
        ("b", "failed", "ZeroDivisionError: no luck today"),
    ]
    assert reasons[2] == ("c", "skipped", "over 20 s")
    assert reasons[5] == ("c", "skipped", "over 10 s at c = 3, m = 10, B = 100 already")


def test_a_contender_out_of_time_gets_a_second_chance_with_fewer_items() -> None:
    def endless_for_many(case: Case, items: int) -> float:
        if items > 1:
            raise OutOfTimeError("over 10 s")
        return 5.0

    found = records_of(Fake("peer", "peer", endless_for_many), grid=along_m(sizes=(10,)))
    assert (found[0]["measured_items"], found[0]["per_item"]) == (1, 5.0)
    assert (
        records_of(Fake("diffurn", "ours", endless_for_many), grid=along_m(sizes=(10,)))[0][
            "status"
        ]
        == "skipped"
    )


# tables and figures


def test_exponents_of_power_laws_are_found_exactly_and_fixed_costs_are_left_behind() -> None:
    sizes = [10**k for k in range(9)]
    assert fitted_exponent("m", sizes, [2e-6 * size**0.5 for size in sizes]) == 0.5
    assert fitted_exponent("B", sizes, [1e-3 + 1e-6 * size for size in sizes]) == pytest.approx(
        1.0, abs=0.03
    )
    assert fitted_exponent("c", sizes[:2], [1.0, 2.0]) is None
    assert fitted_exponent("m", [1, 2, 3, 4], [None, 1.0, None, 1.0]) is None


def test_ratios_are_ours_over_theirs_per_item() -> None:
    ours = Fake("diffurn", "ours", lambda case, items: 0.01)
    peer = Fake("peer", "peer", lambda case, items: 0.04 * items / 100, most=50)
    table = next(ratios(records_of(ours, peer)))
    assert list(table.columns) == ["c", "m", "B", "diffurn, per item", "peer"]
    assert [text(each) for each in table.rows[0]] == ["3", "10", "100", "100 µs", "0.25"]


def test_cells_say_what_is_wrong_with_a_result_and_why_one_is_missing() -> None:
    grid = along_m("moments", (10,))
    exact = Judge(Problem(grid.cases[0], CPU)).reference
    ours = Fake("diffurn", "ours", lambda case, items: 0.01)
    off = Fake("off", "peer", lambda case, items: 0.01, lambda case, items: exact * 1.01)
    broken = Fake(
        "broken",
        "peer",
        lambda case, items: 0.01,
        lambda case, items: np.where(np.arange(100)[:, None] < 3, np.nan, exact),
    )
    refusing = Fake("refusing", "peer", lambda case, items: 0.01, most=0)
    table = next(ratios(records_of(ours, off, broken, refusing, grid=grid)))
    assert cell(table, 0, "off") == "1 [differs by 1e-02]"
    assert cell(table, 0, "broken") == "1 [nan at 3 of 100]"
    assert cell(table, 0, "refusing") == "not my business"


def test_every_faster_peer_of_the_same_accuracy_is_an_exception_with_a_reason() -> None:
    grid = Sweep("B", tuple(Case("gradient", "fisher", 3, 10, size) for size in (1, 10, 1000)))
    ours = Fake("diffurn", "ours", lambda case, items: 0.01 + 1e-4 * items)
    table = exceptions(
        records_of(ours, Fake("peer", "peer", lambda case, items: 2.02e-4 * items), grid=grid)
    )
    assert [row[3] for row in table.rows] == ["1", "10"]
    assert cell(table, 0, "ours / theirs") == "50"
    assert cell(table, 0, "why") == "the fixed cost of a call, 10.1 ms"
    work = exceptions(
        records_of(ours, Fake("peer", "peer", lambda case, items: 1e-5 * items), grid=grid)
    )
    assert cell(work, 2, "why") == "the work itself, 110 ms; a call costs 10.1 ms whatever B"
    assert exceptions(records_of(ours)).notes == ["Nowhere."]


def test_designed_exponents_are_checked_for_ours_alone() -> None:
    flat = Fake("diffurn", "ours", lambda case, items: 0.01)
    growing = Fake("peer", "peer", lambda case, items: 1e-4 * case.group_size)
    table = exponents(growths(records_of(flat, growing)))
    assert [[text(each) for each in row[2:]] for row in table.rows] == [
        ["diffurn", "m^0.00", "m^0.00", "≤ m^0", "yes"],
        ["peer", "m^1.00", "m^0.00", "–", "–"],
    ]
    worse = exponents(
        growths(records_of(replace(flat, seconds=lambda case, items: 1e-4 * case.group_size)))
    )
    assert cell(worse, 0, "holds") == "no"


def test_figures_have_a_panel_for_every_sweep_and_a_style_for_every_contender() -> None:
    ours = Fake("diffurn", "ours", lambda case, items: 0.01)
    found = growths(records_of(ours, Fake("stranger", "peer", lambda case, items: 0.02)))
    figure = scaling(found, "fisher", "time", "a machine")
    assert figure is not None
    assert [panel.get_title() for panel in figure.axes] == ["gradient: c = 3, B = 100"]
    assert scaling(found, "wallenius", "time", "a machine") is None
    styles = {
        (style["marker"], style["color"], style.get("linestyle")) for style in STYLES.values()
    }
    assert len(styles) == len(STYLES)
    assert {contender.name for contender in within_torch()} < STYLES.keys()


def test_markdown_has_every_table() -> None:
    tables = all_tables(
        records_of(Fake("diffurn", "ours", lambda case, items: 0.01)),
        ["SciPy is left out: it is not installed"],
    )
    page = as_markdown(tables)
    assert all(f"## {table.title}" in page for table in tables)
    assert "| 3 | 10 | 100 | 100 µs |" in page
    assert "SciPy is left out" in page


# accuracy


def two_groups(operation: str, law: str, size: int) -> Case:
    return Case(operation, law, 2, size, 20)


@pytest.mark.parametrize("law", ["fisher", "wallenius"])
def test_the_judge_agrees_with_scipy_where_scipy_is_right(law: str) -> None:
    theirs = getattr(stats, f"nchypergeom_{law}")(60, 30, 18, 2.5)
    moments = bench_judge.exact_row(two_groups("moments", law, 30), math.log(2.5), 0)
    mean, variance = theirs.stats(moments="mv")
    np.testing.assert_allclose(moments, [mean, 18 - mean, variance, variance], rtol=1e-9)
    log_prob = bench_judge.exact_row(two_groups("log_prob", law, 30), math.log(2.5), 11)
    np.testing.assert_allclose(log_prob, [theirs.logpmf(11)], rtol=1e-9)


def test_the_judge_knows_the_maximum_of_the_likelihood() -> None:
    odds = stats.contingency.odds_ratio([[12, 6], [18, 24]]).statistic
    assert abs(bench_judge.score(30, 18, math.log(odds), 12)) < 1e-9
    assert abs(bench_judge.score(30, 18, math.log(odds) + 0.1, 12)) > 0.1


def test_the_judge_says_who_is_right() -> None:
    problem = Problem(two_groups("log_prob", "fisher", 100), CPU)
    judge = Judge(problem)
    wrong = judge.reference + 1e-3
    assert "ours is right" in judge(wrong).words
    judge.reference, wrong = wrong, judge.reference
    assert "theirs is right" in judge(wrong).words


def test_draws_of_another_law_are_told_from_exact_ones() -> None:
    generator = np.random.default_rng(0)
    moments = np.array([[10.0, 10.0, 4.0, 4.0]])
    good = generator.normal(10, 2, (20_000, 2))
    assert of_draws(moments, good).same
    assert of_draws(moments, good + 0.6).words.startswith("means off by 0.3")
    assert of_draws(moments, 10 + 1.2 * (good - 10)).words.startswith("variance off by +4")
    assert of_draws(moments, good[:50] * 1.2 - 2).same  # too few to tell
    assert of_draws(moments, good * np.nan).words == "draws that are no numbers"


# contenders


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
def r_process() -> Iterator[bench_biasedurn.RProcess]:
    process = bench_biasedurn.RProcess()
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


@pytest.mark.parametrize("case", list(filter(SciPy().offers, ASKED_OF_SCIPY)), ids=str)
def test_scipy_is_asked_for_the_same_thing(case: Case) -> None:
    assert judged(SciPy(), case).same


@needs_biased_urn
@pytest.mark.parametrize("operation", ["log_prob", "moments", "many-draws", "one-draw-each"])
@pytest.mark.parametrize("law", ["fisher", "wallenius"])
@pytest.mark.parametrize("groups", [2, 3])
def test_biased_urn_is_asked_for_the_same_thing(
    r_process: bench_biasedurn.RProcess, operation: str, law: str, groups: int
) -> None:
    assert judged(
        bench_biasedurn.biased_urns(r_process)[0], Case(operation, law, groups, 20, items_for(law))
    ).same


@needs_biased_urn
@pytest.mark.parametrize("groups", [2, 3])
def test_biased_urn_approximates_odds(r_process: bench_biasedurn.RProcess, groups: int) -> None:
    approximate = bench_biasedurn.biased_urns(r_process)[1]
    case = Case("fit", "fisher", groups, 20, 30)
    assert approximate.offers(case)
    assert not approximate.offers(replace(case, law="wallenius"))
    assert 1e-3 < judged(approximate, case).difference < 0.3


@needs_biased_urn
def test_r_is_stopped_in_time_and_started_anew(r_process: bench_biasedurn.RProcess) -> None:
    contender = bench_biasedurn.biased_urns(r_process)[0]
    endless = Problem(Case("log_prob", "fisher", 20, 20, 1), CPU)
    with pytest.raises(OutOfTimeError):
        contender.job(endless, 1).measure(Limits(0.02))
    assert judged(contender, Case("log_prob", "fisher", 3, 10, 5)).same


@needs_biased_urn
def test_errors_in_r_are_reasons(r_process: bench_biasedurn.RProcess) -> None:
    too_many = Problem(Case("log_prob", "fisher", 33, 2, 1), CPU)
    with pytest.raises(CannotDoError, match=r"R: .*33"):
        bench_biasedurn.RJob(r_process, too_many, 1, None).measure(Limits())


def test_peers_refuse_what_is_beyond_them_with_a_reason() -> None:
    contender = bench_biasedurn.BiasedUrn(None, "BiasedUrn", "peer", None, ("log_prob",))  # type: ignore[arg-type]
    with pytest.raises(CannotDoError, match="32 groups at most"):
        contender.most_items(Case("log_prob", "fisher", 33, 10, 1))
    for each, case in (
        (contender, Case("log_prob", "fisher", 3, 10**9, 1)),
        (SciPy(), Case("log_prob", "fisher", 2, 2 * 10**9, 1)),
    ):
        with pytest.raises(CannotDoError, match="int32"):
            each.most_items(case)


def test_without_r_or_its_package_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    complaining = [
        sys.executable,
        "-c",
        "import sys; sys.exit('there is no package called BiasedUrn')",
    ]
    with pytest.raises(
        bench_biasedurn.MissingError,
        match=r"could not load it \(there is no package called BiasedUrn\)",
    ):
        bench_biasedurn.RProcess(complaining)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with ExitStack() as stack:
        members = bench.company(stack)
    assert members.missing == [
        "BiasedUrn is left out: Rscript was not found (install R and its package BiasedUrn)"
    ]


@pytest.mark.parametrize("contender", within_torch(), ids=lambda contender: contender.name)
def test_contenders_within_torch_do_what_they_offer(contender: Any) -> None:
    for operation in OPERATIONS:
        case = Case(operation, "fisher", 2, 12, 40)
        if contender.offers(case):
            measured = contender.job(Problem(case, CPU), 40).measure(ONE_RUN)
            assert len(measured.value) == 40
            assert measured.peak_bytes is None or measured.peak_bytes > 0


# the command


TINY = [
    Sweep("m", tuple(Case(operation, "fisher", 2, size, 20) for size in (10, 100, 1000)))
    for operation in ("log_prob", "many-draws")
]


@pytest.fixture
def tiny_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "sweeps", lambda quick: TINY)


def test_the_command_leaves_records_tables_and_figures(tiny_grid: None, tmp_path: Path) -> None:
    result = runner.invoke(
        app, ["bench", "--quick", "--seconds", "0.01", "--out", str(tmp_path / "new")]
    )
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())  # a title is wrapped to the width of its table
    assert "log-probability of one draw of each urn, Fisher's law" in words
    report = json.loads((tmp_path / "new" / "bench.json").read_text(encoding="utf-8"))
    assert report["command"] == "diffurn bench --quick --device cpu --seconds 0.01"
    assert {"torch", "python", "device", "scipy"} <= report["environment"].keys()
    measured = [record for record in report["records"] if record["status"] == "measured"]
    assert {"diffurn", "SciPy", "torch Binomial", "merged Gumbel (the paper)"} <= {
        record["contender"] for record in measured
    }
    for record in measured:
        assert record["median"] == pytest.approx(float(np.median(record["seconds"])))
        assert {
            "operation",
            "law",
            "groups",
            "group_size",
            "items",
            "dtype",
            "peak_bytes",
            "spread",
            "repeats",
        } <= record.keys()
    assert [Table.from_json(table).title for table in report["tables"]][-1] == "How cost grows"
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "bench.json",
        "fisher-memory.png",
        "fisher-time.png",
        "ratios.md",
    ]


def test_json_is_printed_alone_and_only_what_was_asked_for_is_measured(
    tiny_grid: None, tmp_path: Path
) -> None:
    result = runner.invoke(
        app, ["bench", "--json", "--only", "log_prob", "--seconds", "0.01", "--out", str(tmp_path)]
    )
    report = json.loads(result.stdout)
    assert {record["operation"] for record in report["records"]} == {"log_prob"}
    assert report["command"].endswith("--only log_prob")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--only", "cdf"],
            "there is no operation 'cdf' to measure; choose among log_prob, moments",
        ),
        (["--seconds", "0"], "seconds is 0.0, but must be above 0"),
        (["--device", "abacus"], "there is no device 'abacus': choose cpu, cuda or cuda:0"),
    ],
)
def test_wrong_options_are_one_sentence_and_exit_status_2(
    arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    result = runner.invoke(app, ["bench", *arguments, "--out", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert sentence in result.output
    assert not (tmp_path / "none").exists()


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    result = runner.invoke(app, ["bench", "--out", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert f"--out {tmp_path / 'file'}" in " ".join(result.output.split())
