"""Reads the records of the minimal example."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from diffurn_studies.harness.study import Results
from diffurn_studies.minimal.learning import ESTIMATORS


def log_odds(log_weights: Any) -> Tensor:
    """log ω₂ - (log ω₁ + log ω₃) / 2, which the scale of ω does not change."""
    values = torch.tensor(log_weights, dtype=torch.float64)
    return values[..., 1] - (values[..., 0] + values[..., 2]) / 2


def log_odds_found(results: Results, source: str) -> dict[str, Tensor]:
    """The log-odds of group 2 (seeds, data sets) where every estimator ended, and those that can be
    reached.
    """
    ends = {
        name: log_odds(results.records[f"{name}-on-{source}-data"]["final"]) for name in ESTIMATORS
    }
    computed = results.records[f"answers-on-{source}-data"]
    return ends | {name: log_odds(computed[name]) for name in ("likelihood", "loss", "merged_loss")}


def truth(results: Results) -> Tensor:
    """log ω₂ of the data sets."""
    return torch.tensor(results.options.second_weights, dtype=torch.float64).log()
