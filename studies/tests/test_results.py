"""The committed runs in `results/`: complete, readable by `diffurn report`, and small."""

from __future__ import annotations

import gzip
import json
import re
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_study as tiny

from diffurn_studies.harness.report import read_run
from diffurn_studies.harness.run_directory import RunDirectory
from diffurn_studies.harness.runner import run

# A source distribution holds tables and figures only, so there is nothing to test in it.
RESULTS = Path(__file__).parents[2] / "results"
# The run of `pairs-speed` was stopped after the unit that it is about.
RUNS = [
    path.parent.name
    for path in sorted(RESULTS.glob("*/options.json"))
    if path.parent.name != "pairs-speed"
]


# Early runs of changed checkouts. They are to be run again, see `results/README.md`.
OWED = {
    "clustering-sweep",
    "pairs",
    "pairs-ablation",
    "pairs-best",
    "pairs-search",
    "pairs-sprites",
}
TOOLS = RESULTS.parent / "tools"


def commits(folder: Path) -> list[str]:
    """The commits of all starts of a run."""
    content = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    return [environment["commit"] for environment in content["environments"]]


@pytest.mark.parametrize("name", [*RUNS, *(["pairs-speed"] if RUNS else [])])
def test_committed_runs_name_their_clean_commit(name: str) -> None:
    found = commits(RESULTS / name)
    clean = [bool(re.fullmatch("[0-9a-f]{40}", commit)) for commit in found]
    assert found
    assert all(clean) == (name not in OWED)


@pytest.mark.parametrize("commit", [None, "0" * 40 + "-dirty", "0" * 40])
def test_only_runs_of_a_clean_commit_are_made_small(tmp_path: Path, commit: str | None) -> None:
    slim = runpy.run_path(str(TOOLS / "slim.py"))
    environment = {"device": "cpu"} | ({} if commit is None else {"commit": commit})
    (tmp_path / "environment.json").write_text(json.dumps({"environments": [environment]}))
    if commit == "0" * 40:
        slim["require_clean_commit"](tmp_path)
    else:
        with pytest.raises(SystemExit, match="must come from a clean commit"):
            slim["require_clean_commit"](tmp_path)


@pytest.mark.parametrize(
    "name", [name for name in RUNS if name.startswith(("pairs", "minimal", "subsets"))]
)
def test_tables_are_those_that_the_records_give_today(name: str) -> None:
    retable = runpy.run_path(str(TOOLS / "retable.py"))
    found = [table.as_json() for table in retable["tables_of"](RESULTS / name)]
    content = json.loads((RESULTS / name / "tables.json").read_text(encoding="utf-8"))
    assert found == content["tables"], f"run `python tools/retable.py results/{name}`"


@pytest.mark.parametrize("name", RUNS)
def test_committed_runs_are_complete(name: str) -> None:
    shown = read_run(RESULTS / name, name)
    assert shown.is_finished
    assert shown.tables
    assert shown.figures
    assert all("commit" in environment for environment in shown.environments)


def test_results_stay_below_ten_megabytes() -> None:
    assert sum(path.stat().st_size for path in RESULTS.rglob("*") if path.is_file()) < 10e6


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/bench.json.gz")), ids=str)
def test_benchmark_records_hold_every_round(path: Path) -> None:
    report = json.loads(gzip.decompress(path.read_bytes()))
    measured = [record for record in report["records"] if record["status"] == "measured"]
    assert len(measured) > 500
    assert all(record["seconds"] for record in measured)


def test_compressed_records_are_read_and_damaged_ones_count_as_missing(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    directory.write_record("unit", {"found": 1})
    plain = tmp_path / "records" / "unit.json"
    packed = tmp_path / "records" / "unit.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert directory.read_record("unit") == {"found": 1}
    for damaged in (b"", b"no archive", packed.read_bytes()[:-10]):
        packed.write_bytes(damaged)
        assert directory.read_record("unit") is None


def test_parts_of_a_run_join_to_the_whole(tmp_path: Path) -> None:
    join = runpy.run_path(str(TOOLS / "join.py"))["join"]
    study = tiny.Changed(
        units=lambda options: [f"size{size}" for size in options.sizes],
        run_unit=lambda options, unit, workspace: {"value": float(unit.removeprefix("size"))},
    )
    arm = tiny.Options(sizes=(1, 2, 3))
    studies = {"tiny": SimpleNamespace(load=lambda: study, options=lambda name: arm)}
    parts = [tmp_path / f"size{size}" for size in (2, 1)]
    for part, size in zip(parts, (2, 1), strict=True):
        run(study, replace(arm, sizes=(size,)), part, arm="paper")
    run(study, replace(arm, sizes=(1, 2)), tmp_path / "whole", arm="paper")
    join(tmp_path / "joined", parts, studies)
    whole, joined = (RunDirectory(tmp_path / name) for name in ("whole", "joined"))
    assert joined.settings() == whole.settings()
    assert joined.environments() == whole.environments()
    assert list(joined.timings()) == ["size2", "size1"]
    assert joined.records() == whole.records()
    assert joined.published().tables == whole.published().tables
    with pytest.raises(SystemExit, match="each entry must be there once"):
        join(tmp_path / "twice", [parts[0], parts[0]], studies)
    arm = replace(arm, seeds=2)
    with pytest.raises(SystemExit, match="differ from the arm in seeds, sizes, but must"):
        join(tmp_path / "other", parts, studies)
