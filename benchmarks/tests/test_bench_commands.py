"""`python -m benchmarks`: its files, its output and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from benchmarks import alone, suite
from benchmarks.__main__ import app
from benchmarks.cells import Case, Sweep
from benchmarks.commands import compare_with_peers
from diffurn_studies.harness.tables import Table

runner = CliRunner()
TINY = [
    Sweep("m", tuple(Case(operation, "fisher", 2, size, 20) for size in (10, 100, 1000)))
    for operation in ("log_prob", "many-draws")
]


def test_the_command_leaves_records_tables_and_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = suite.Options(quick=True, seconds=0.01)
    compare_with_peers(options, TINY, alone.cells()[:1], tmp_path / "new")
    words = " ".join(capsys.readouterr().out.split())  # titles are wrapped to their tables
    assert "log-probability of one draw of each urn, Fisher's law" in words
    assert "Jobs without a peer" in words
    report = json.loads((tmp_path / "new" / "bench.json").read_text(encoding="utf-8"))
    assert report["command"] == "python -m benchmarks --quick --device cpu --seconds 0.01"
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
    assert [Table.from_json(table).title for table in report["tables"]][-2] == "How cost grows"
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "bench.json",
        "fisher-memory.png",
        "fisher-time.png",
        "ratios.md",
    ]


def test_json_is_printed_alone_and_holds_what_was_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = suite.Options(seconds=0.01, only=("log_prob",))
    compare_with_peers(options, options.of_grid(TINY), [], tmp_path, as_json=True)
    report = json.loads(capsys.readouterr().out)
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
    result = runner.invoke(app, [*arguments, "--out", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert sentence in result.output
    assert not (tmp_path / "none").exists()


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    result = runner.invoke(app, ["--out", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert f"--out {tmp_path / 'file'}" in " ".join(result.output.split())


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_jobs_for_a_gpu_are_refused_without_one(tmp_path: Path) -> None:
    for arguments, sentence in (
        ([], "torch sees no CUDA device"),
        (["--device", "cpu"], "--device cpu: these jobs need a CUDA device"),
    ):
        result = runner.invoke(app, ["gpu", *arguments, "--out", str(tmp_path / "none")])
        assert result.exit_code == 2
        assert sentence in " ".join(result.output.split())
        assert not (tmp_path / "none").exists()
