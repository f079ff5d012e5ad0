"""The demonstration runs and finds what is known of its data."""

import runpy
from pathlib import Path

import pytest
import torch

titanic = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "titanic.py"))


def test_titanic_likelihood_finds_the_known_weights() -> None:
    weights = titanic["fit_by_likelihood"]().exp().tolist()
    assert weights == pytest.approx([5.278, 2.242, 1.070], abs=5e-4)


def test_titanic_draws_find_the_weights_of_the_likelihood() -> None:
    torch.testing.assert_close(titanic["fit_by_draws"](), titanic["fit_by_likelihood"](), rtol=0.0, atol=0.02)


def test_titanic_prints_its_table_and_writes_its_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    titanic["main"](out=tmp_path / "new folder", seed=0)
    assert (tmp_path / "new folder" / "titanic.png").stat().st_size > 10_000
    printed = capsys.readouterr().out
    assert all(known in printed for known in ("5.278", "-8.988", "-99.394"))
