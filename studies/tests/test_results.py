"""The committed runs in `results/`: complete, readable by `diffurn report`, and small."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from diffurn_studies.harness.report import read_run
from diffurn_studies.harness.run_directory import RunDirectory

# A source distribution holds tables and figures only, so there is nothing to test in it.
RESULTS = Path(__file__).parents[2] / "results"
# The run of `pairs-speed` was stopped after the unit that it is about.
RUNS = [
    path.parent.name
    for path in sorted(RESULTS.glob("*/options.json"))
    if path.parent.name != "pairs-speed"
]


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
