"""Learns log ω from counts by gradient descent through draws."""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn import CovarianceST, GumbelSoftmax
from diffurn.estimators import Estimator
from diffurn_studies.harness.workspace import Workspace
from diffurn_studies.minimal.options import TRAINING_SHARE, Options
from diffurn_studies.minimal.urn import PAPERS_URN

SOURCES = ("exact", "merged")
ESTIMATORS = ("covariance", "gumbel-exact", "gumbel-merged")
# Points of the training curves that are kept, per epoch.
KEPT = 4


def estimator_named(name: str, temperature: float) -> Estimator:
    if name == "covariance":
        return CovarianceST()
    return GumbelSoftmax(temperature, conditionals="exact" if name == "gumbel-exact" else "merged")


def data_sets(options: Options, source: str) -> Tensor:
    """Counts (seeds · data sets, samples, 3), the same for every estimator."""
    torch.manual_seed(options.seed * 100_003 + SOURCES.index(source))
    second = torch.tensor(options.second_weights, dtype=torch.float64).repeat(options.seeds)
    weights = torch.stack([torch.ones_like(second), second, torch.ones_like(second)], -1)
    urns = PAPERS_URN.with_weights(weights=weights, estimator=GumbelSoftmax(conditionals="merged"))
    with torch.no_grad():
        counts = (
            urns.sample((options.samples,))
            if source == "exact"
            else urns.rsample((options.samples,))
        )
    return counts.transpose(0, 1)


def split(data: Tensor) -> tuple[Tensor, Tensor]:
    """The training part and the validation part."""
    number = round(TRAINING_SHARE * data.shape[1])
    return data[:, :number], data[:, number:]


def train(
    options: Options, gradient: Estimator, data: Tensor, workspace: Workspace
) -> dict[str, Tensor]:
    """Learns log ω from ω = 1 in steps of one batch, for all data sets at once."""
    training, validation = split(data)
    log_weights = torch.zeros(len(data), 3, dtype=torch.float64, requires_grad=True)
    per_epoch = training.shape[1] // options.batch_size
    steps = options.epochs * per_epoch
    keep_every = max(1, per_epoch // KEPT)
    kept: dict[str, list[Tensor]] = {
        "steps": [],
        "training_loss": [],
        "log_weights": [],
        "validation_loss": [],
        "validation_steps": [],
    }
    losses: list[Tensor] = []
    adam = torch.optim.Adam([log_weights])
    for step in range(steps):
        if step % per_epoch == 0:
            _validate(kept, step, log_weights, gradient, validation)
            order = torch.rand(training.shape[:2], dtype=torch.float64).argsort(-1)
        rows = order[:, (step % per_epoch) * options.batch_size :][:, : options.batch_size]
        wanted = training.gather(1, rows.unsqueeze(-1).expand(-1, -1, 3))
        loss = squared_error(log_weights, gradient, wanted)
        (slope,) = torch.autograd.grad(loss.sum(), log_weights)
        rate = options.rate(step, per_epoch)
        if options.optimiser == "adam":
            log_weights.grad, adam.param_groups[0]["lr"] = slope, rate
            adam.step()
        else:
            with torch.no_grad():
                log_weights -= rate * slope
        losses.append(loss.detach())
        if (step + 1) % keep_every == 0:
            kept["steps"].append(torch.full((len(data),), step + 1.0))
            kept["training_loss"].append(torch.stack(losses).mean(0))
            kept["log_weights"].append(log_weights.detach().clone())
            workspace.scalars(step + 1, training_loss=kept["training_loss"][-1].mean())
            losses.clear()
    _validate(kept, steps, log_weights, gradient, validation)
    return {name: torch.stack(values, 1) for name, values in kept.items()} | {
        "final": log_weights.detach()
    }


def squared_error(log_weights: Tensor, gradient: Estimator, wanted: Tensor) -> Tensor:
    """The mean of ‖X_D - X‖² over a batch (data sets, batch, 3), a draw X for each datum."""
    urns = PAPERS_URN.with_weights(log_weights=log_weights, estimator=gradient, validate_args=False)
    drawn = urns.rsample((wanted.shape[1],)).transpose(0, 1)
    return (drawn - wanted).square().sum(-1).mean(-1)


def _validate(
    kept: dict[str, list[Tensor]],
    step: int,
    log_weights: Tensor,
    gradient: Estimator,
    validation: Tensor,
) -> None:
    with torch.no_grad():
        kept["validation_loss"].append(squared_error(log_weights, gradient, validation))
    kept["validation_steps"].append(torch.full((len(validation),), float(step)))
