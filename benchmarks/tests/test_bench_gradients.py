"""`python -m benchmarks gradients`: its files, its errors, and estimators with a known bias."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import gradients
from benchmarks.__main__ import app
from benchmarks.commands import judge_gradients
from benchmarks.gradient_problems import problems

runner = CliRunner()


LINEAR, THRESHOLD = problems()[0], problems()[3]


def test_gradients_are_printed_and_left_as_records_and_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = gradients.Options(draws=400)
    judge_gradients(options, [LINEAR, THRESHOLD], tmp_path / "new folder")
    assert "linear, m = 5" in capsys.readouterr().out
    report = json.loads((tmp_path / "new folder" / "gradients.json").read_text(encoding="utf-8"))
    assert report["command"].startswith("python -m benchmarks gradients --draws 400")
    assert {"torch", "python", "device"} <= report["environment"].keys()
    assert len(report["judgements"]) == 2 * len(gradients.estimators())
    assert (tmp_path / "new folder" / "gradients.png").stat().st_size > 10_000


def test_covariance_gradients_of_linear_functions_are_exact() -> None:
    judgements = gradients.run(gradients.Options(draws=400), [LINEAR, THRESHOLD])
    judged = {(j.function, j.estimator): j for j in judgements}
    exact = judged["linear", "covariance"]
    assert exact.bias < 1e-10
    assert exact.spread < 1e-10
    assert exact.kilobytes_per_draw > 0
    biased = judged["threshold", "gumbel merged, τ = 1.0"]
    assert biased.bias > 5 * biased.bias_error


def test_too_few_draws_are_refused_with_a_reason() -> None:
    result = runner.invoke(app, ["gradients", "--draws", "3"])
    assert result.exit_code == 2
    assert "--draws" in result.output


def test_gradients_refuse_a_folder_that_cannot_be_made_before_they_begin(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    result = runner.invoke(app, ["gradients", "--out", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert f"--out {tmp_path / 'file'}: " in result.stderr
