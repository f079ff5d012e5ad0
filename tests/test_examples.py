"""The examples run, and find the parameters that their data were made with."""

import runpy
from pathlib import Path

import pytest
import torch

from diffurn import ExponentialAnnealing

EXAMPLES = Path(__file__).parents[1] / "examples"
inside_a_model = runpy.run_path(str(EXAMPLES / "inside_a_model.py"))


@pytest.mark.parametrize("estimator", ["covariance", "gumbel"])
def test_a_network_learns_importances_through_draws(estimator: str) -> None:
    """From prices alone the error falls to a third of the spread; the untrained network's is about
    the whole of it.
    """
    torch.set_default_dtype(torch.float32)
    shopper = inside_a_model["Shopper"]()
    before = inside_a_model["price_error"](shopper)
    annealing = ExponentialAnnealing(1.0, 0.5, 100) if estimator == "gumbel" else None
    inside_a_model["train"](shopper, steps=100, batch=64, annealing=annealing)
    assert before > 0.8
    assert inside_a_model["price_error"](shopper) < 0.35
