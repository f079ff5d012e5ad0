"""`diffurn bench gradients`: what it prints, what it leaves behind, and that it finds what is
known.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import gradients
from diffurn.cli import app

runner = CliRunner()


@pytest.fixture
def two_small_problems(monkeypatch: pytest.MonkeyPatch) -> list[gradients.Problem]:
    chosen = [gradients.problems()[0], gradients.problems()[3]]
    monkeypatch.setattr(gradients, "problems", lambda: chosen)
    return chosen


def test_bench_gradients_prints_tables_and_leaves_records_and_figure(
    two_small_problems: list[gradients.Problem], tmp_path: Path
) -> None:
    result = runner.invoke(
        app, ["bench", "gradients", "--draws", "400", "--out", str(tmp_path / "new folder")]
    )
    assert result.exit_code == 0, result.output
    assert "linear, m = 5" in result.output
    report = json.loads((tmp_path / "new folder" / "gradients.json").read_text(encoding="utf-8"))
    assert report["command"].startswith("diffurn bench gradients --draws 400")
    assert {"torch", "python", "device"} <= report["environment"].keys()
    assert len(report["judgements"]) == len(two_small_problems) * len(gradients.estimators())
    assert (tmp_path / "new folder" / "gradients.png").stat().st_size > 10_000


def test_bench_gradients_finds_that_covariance_is_exact_for_linear_functions(
    two_small_problems: list[gradients.Problem],
) -> None:
    judged = {(j.function, j.estimator): j for j in gradients.run(gradients.Options(draws=400))}
    exact = judged["linear", "covariance"]
    assert exact.bias < 1e-10
    assert exact.spread < 1e-10
    assert exact.kilobytes_per_draw > 0
    biased = judged["threshold", "gumbel merged, τ = 1.0"]
    assert biased.bias > 5 * biased.bias_error


def test_too_few_draws_are_refused_with_a_reason() -> None:
    result = runner.invoke(app, ["bench", "gradients", "--draws", "3"])
    assert result.exit_code == 2
    assert "--draws" in result.output


def test_gradients_refuse_a_folder_that_cannot_be_made_before_they_begin(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    result = runner.invoke(app, ["bench", "gradients", "--out", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert f"--out {tmp_path / 'file'}: " in result.stderr
