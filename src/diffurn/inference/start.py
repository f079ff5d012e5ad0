"""Where Newton's method begins."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from diffurn import _fisher as exact
from diffurn.inference.newton import Objective, maximise
from diffurn.inference.sample import Sample
from diffurn.inference.separation import Blocks, preferences

MANY_ROWS = 100_000
SUBSAMPLE = 20_000
_ITERATIONS = 20


def starting_point(objective: Objective) -> Tensor:
    """Observed log-odds, or, for very many rows, the fit of a random subsample; then the whole
    sample needs about three passes.
    """
    sample = objective.sample
    start = (
        sample.counts.new_zeros(len(sample.counts), sample.parameters)
        if sample.features is not None
        else _observed_log_odds(sample)
    )
    start = start - (objective.gauge @ start.unsqueeze(-1)).squeeze(-1)
    rows = sample.counts.shape[1]
    (all_rows,) = sample.summed(torch.tensor(rows, device=start.device))
    if all_rows < MANY_ROWS:
        return start
    # drawn at random, since rows may come in a rhythm; from a generator of its own, so that a fit
    # never moves the user's
    share = max(1, SUBSAMPLE * rows // int(all_rows))
    chosen = torch.randperm(rows, generator=torch.Generator().manual_seed(0))[:share].to(
        start.device
    )
    part = replace(objective, sample=sample.pick_rows(chosen), progress=None)
    optimum = maximise(part, start, iterations=_ITERATIONS)
    usable = optimum.converged
    if sample.features is None:  # a part may be separated where the whole is not
        usable = usable & (
            Blocks.of(preferences(part.sample)).labels == Blocks.of(preferences(sample)).labels
        ).all(-1)
    return torch.where(usable.unsqueeze(-1), optimum.coefficients, start)


def _observed_log_odds(sample: Sample) -> Tensor:
    """log((x + ½) / (m - x + ½)) relative to the row's average, averaged over rows, weighted by
    balls: ``(D, c)``.
    """
    weight = sample.group_sizes * sample.frequencies.unsqueeze(-1)
    log_odds = exact.typical_log_odds(sample.counts, sample.group_sizes)
    row = (weight * log_odds).sum(-1, keepdim=True) / weight.sum(-1, keepdim=True).clamp(min=1)
    surplus, balls = sample.summed((weight * (log_odds - row)).sum(1), weight.sum(1))
    return surplus / balls.clamp(min=1)
