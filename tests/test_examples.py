"""The examples run and find what is known of their data."""

import runpy
from pathlib import Path

import pytest
import torch

from diffurn import ExponentialAnnealing

EXAMPLES = Path(__file__).parents[1] / "examples"
titanic = runpy.run_path(str(EXAMPLES / "titanic.py"))
inside_a_model = runpy.run_path(str(EXAMPLES / "inside_a_model.py"))


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


@pytest.mark.parametrize("estimator", ["covariance", "gumbel"])
def test_a_network_learns_importances_through_draws(estimator: str) -> None:
    """From prices alone the error falls to a third of the spread; the untrained network's is about the whole of it."""
    torch.set_default_dtype(torch.float32)
    shopper = inside_a_model["Shopper"]()
    before = inside_a_model["price_error"](shopper)
    annealing = ExponentialAnnealing(1.0, 0.5, 100) if estimator == "gumbel" else None
    inside_a_model["train"](shopper, steps=100, batch=64, annealing=annealing)
    assert before > 0.8
    assert inside_a_model["price_error"](shopper) < 0.35
