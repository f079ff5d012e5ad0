"""Runs over a grid with fake contenders: limits, forecasts, reasons."""

from __future__ import annotations

import pytest
import torch
from bench_fakes import CPU, Fake, along_m, records_of

from benchmarks.alone import suite as alone_suite
from benchmarks.cells import Case, Sweep, sweeps
from benchmarks.limits import OutOfTimeError
from benchmarks.ours import Cell
from benchmarks.suite import Options
from benchmarks.tables import without_peers


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


def test_a_sweep_of_a_single_case_is_measured_whatever_its_axis() -> None:
    for grid in sweeps(quick=True):
        if len(grid.cases) == 1:
            found = records_of(Fake("floor", "floor", lambda case, items: 0.01), grid=grid)
            assert [record["status"] for record in found] == ["measured"]


def test_too_much_memory_is_foreseen() -> None:
    grid = Sweep("B", tuple(Case("gradient", "fisher", 3, 10, size) for size in (1, 10, 10_000)))
    ours = Fake("diffurn", "ours", lambda case, items: 0.01)
    found = records_of(ours, grid=grid, free_bytes=1e6)
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


def test_cells_without_peers_have_time_memory_and_operations() -> None:
    def broken(inputs: object) -> object:
        raise AttributeError("no such method")

    ones = Cell("ones", 10, lambda inputs: lambda: torch.ones(10, dtype=torch.float64) + 1)
    found = list(alone_suite.run([ones, Cell("broken", 1, broken)], CPU, 0.01))  # type: ignore[arg-type]
    assert 160 <= found[0]["peak_bytes"] < 240
    assert found[0]["operations"] == 2
    assert found[0]["per_item"] == found[0]["median"] / 10
    table = without_peers(found)
    assert table.rows[0][0] == "ones"
    assert table.rows[1][:2] == ["broken", "AttributeError: no such method"]


def test_only_what_was_chosen_is_measured() -> None:
    grid = [along_m("gradient"), along_m("fit")]
    assert Options().of_grid(grid) == grid
    assert Options(only=("fit",)).of_grid(grid) == grid[1:]
    assert Options(only=("alone",)).of_grid(grid) == []
    has_alone = [Options(only=only).has_alone for only in ((), ("alone",), ("fit",))]
    assert has_alone == [True, True, False]
    assert not Options(quick=True).has_alone
