"""The examples run, and find the parameters that their data were made with."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from diffurn import ExponentialAnnealing, fit

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


def assert_posteriors(package: str, tolerance: float, **options: int) -> None:
    """Those of log ω of the first class, beside the fit, and of the mean over departments.

    The tolerance is relative to the deviations.
    """
    example = runpy.run_path(str(EXAMPLES / f"{package}_importance.py"))
    saved, aboard = example["SAVED"], example["ABOARD"]
    found, _ = example["draw"](example["one_importance_each"], aboard, saved, **options)
    first = np.asarray(found["log_weights"])[:, 0]
    best = fit(saved, aboard, reference=3)
    error = float(best.standard_errors[0])
    assert abs(first.mean() - float(best.log_weights[0])) < tolerance * error
    assert abs(first.std() / error - 1) < tolerance

    rows = example["APPLICANTS"], example["ADMITTED"]
    found, _ = example["draw"](example["importances_of_rows"], *rows, **options)
    # -0.19 ± 0.25 by long chains
    assert abs(np.asarray(found["mean"]).mean() + 0.19) < tolerance * 0.25


def test_nuts_in_numpyro_finds_the_importances() -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed: pip install 'diffurn[jax]'")
    pytest.importorskip("numpyro", reason="numpyro is not installed: pip install 'diffurn[jax]'")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        assert_posteriors("numpyro", 0.3, warmup=500, samples=1000)
    finally:
        jax.config.update("jax_enable_x64", before)


def test_nuts_in_pyro_finds_the_importances() -> None:
    pytest.importorskip("pyro", reason="pyro-ppl is not installed: pip install 'diffurn[interop]'")
    assert_posteriors("pyro", 1.0, warmup=50, samples=100)
