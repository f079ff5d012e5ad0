"""The paper's minimal example: learn ω from counts by gradient descent through draws.

Ten data sets of 1,000 counts, m = (200, 200, 200), n = 180, ω = (1, ω₂, 1), ω₂ = 1, …, 10; 800 of
them train, 200 validate. A model with unknown log ω draws X and is told the squared error ‖X_D -
X‖² from a datum X_D; ten epochs of stochastic gradient descent on log ω follow. Every data set is
drawn twice over, from Fisher's law and by the paper's chain of merged groups, since the answers
differ, and every one is learned through three gradients: the paper's merged Gumbel chain, its exact
sibling and the exact covariance.

Two answers can be reached, and both are computed beside: the *maximum likelihood* estimate, where
the mean of X is that of the data, and the *minimiser of the loss* E‖X_D - X‖² = ‖mean(X_D) -
mean(X)‖² + tr Cov X + const, which prefers an ω with less variance. The Gumbel estimators see the
whole loss. The covariance estimator treats ‖·‖² as linear around each draw, which drops tr Cov X,
and so finds maximum likelihood.

The paper states neither optimiser settings nor temperature. The temperature is that of its released
code; learning rate (falling linearly to zero) and batch size are ours. Run it with ``diffurn
reproduce minimal``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from diffurn import CovarianceST, FisherHypergeometric, GumbelSoftmax
from diffurn._fisher.conditionals import merged
from diffurn.estimators import Estimator
from diffurn_studies.harness import runner as harness
from diffurn_studies.harness.records import rounded
from diffurn_studies.harness.runner import Engine, Progress, Results, Table, Workspace
from diffurn_studies.harness.tables import mean_and_deviation
from diffurn_studies.minimal import figure as minimal_figure
from diffurn_studies.minimal.optimum import minimiser

NAME = "minimal"
GROUP_SIZES, DRAWS = (200, 200, 200), 180
SOURCES = ("exact", "merged")
ESTIMATORS = ("covariance", "gumbel-exact", "gumbel-merged")
TRAINING_SHARE = 0.8
# Moments of the training curves that are kept, per epoch.
KEPT = 4


@dataclass(frozen=True)
class Options:
    """What `run` trains.

    Attributes:
        seeds: how often everything is repeated with new data and new draws.
        second_weights: ω₂ of the data sets.
        samples: counts a data set; four fifths train, one fifth validates.
        epochs: passes over the training data.
        batch_size: data per step, each compared with a draw of its own.
        learning_rate: of log ω at the first step; it falls linearly to zero.
        temperature: of the Gumbel estimators.
        seed: of data and draws.
    """

    seeds: int = 5
    second_weights: tuple[float, ...] = tuple(float(weight) for weight in range(1, 11))
    samples: int = 1_000
    epochs: int = 10
    batch_size: int = 10
    learning_rate: float = 2e-5
    temperature: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        training = round(TRAINING_SHARE * self.samples)
        if not self.second_weights or min(self.second_weights) <= 0:
            raise ValueError(
                f"second_weights are {self.second_weights}, but must be one or more numbers above 0"
            )
        if self.seeds < 1 or self.epochs < 1:
            raise ValueError(
                f"seeds is {self.seeds} and epochs {self.epochs}, but both must be at least 1"
            )
        if not 1 <= self.batch_size <= training < self.samples:
            raise ValueError(
                f"batch_size is {self.batch_size}, but must be from 1 to the {training} of "
                f"{self.samples} samples that train"
            )
        if not (self.learning_rate > 0 and self.temperature > 0):
            raise ValueError(
                f"learning_rate is {self.learning_rate} and temperature {self.temperature}, but "
                "both must be above 0"
            )

    @classmethod
    def quick(cls) -> Options:
        return cls(seeds=1, second_weights=(1.0, 3.0, 10.0), samples=500)


def units(options: Options) -> list[str]:
    return [f"{what}-on-{source}-data" for source in SOURCES for what in ("answers", *ESTIMATORS)]


def run_unit(options: Options, unit: str, workspace: Workspace) -> dict[str, Any]:
    """All seeds and data sets of an estimator are trained side by side, as one batch of urns."""
    what, source = unit.removesuffix("-data").split("-on-")
    data = data_sets(options, source)
    torch.manual_seed(options.seed * 100_003 + units(options).index(unit) + 1)
    record = (
        answers(data)
        if what == "answers"
        else train(options, estimator(options, what), data, workspace)
    )
    shape = (options.seeds, len(options.second_weights))
    return {
        "source": source,
        "what": what,
        **{name: _by_data_set(values, shape) for name, values in record.items()},
    }


def _by_data_set(values: Tensor, shape: tuple[int, int]) -> Any:
    """[seed][data set][...]."""
    return rounded(values.reshape(*shape, *values.shape[1:]).tolist())


def estimator(options: Options, name: str) -> Estimator:
    if name == "covariance":
        return CovarianceST()
    return GumbelSoftmax(
        options.temperature, conditionals="exact" if name == "gumbel-exact" else "merged"
    )


def data_sets(options: Options, source: str) -> Tensor:
    """Counts (seeds · data sets, samples, 3), the same whatever learns from them."""
    torch.manual_seed(options.seed * 100_003 + SOURCES.index(source))
    second = torch.tensor(options.second_weights, dtype=torch.float64).repeat(options.seeds)
    weights = torch.stack([torch.ones_like(second), second, torch.ones_like(second)], -1)
    urns = FisherHypergeometric(
        GROUP_SIZES, DRAWS, weights=weights, estimator=GumbelSoftmax(conditionals="merged")
    )
    with torch.no_grad():
        counts = (
            urns.sample((options.samples,))
            if source == "exact"
            else urns.rsample((options.samples,))
        )
    return counts.transpose(0, 1)


def split(data: Tensor) -> tuple[Tensor, Tensor]:
    number = round(TRAINING_SHARE * data.shape[1])
    return data[:, :number], data[:, number:]


def train(
    options: Options, gradient: Estimator, data: Tensor, workspace: Workspace
) -> dict[str, Tensor]:
    """Stochastic gradient descent on log ω from ω = 1, all data sets at once."""
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
    for step in range(steps):
        if step % per_epoch == 0:
            _validate(kept, step, log_weights, gradient, validation)
            order = torch.rand(training.shape[:2], dtype=torch.float64).argsort(-1)
        rows = order[:, (step % per_epoch) * options.batch_size :][:, : options.batch_size]
        wanted = training.gather(1, rows.unsqueeze(-1).expand(-1, -1, 3))
        loss = squared_error(log_weights, gradient, wanted)
        (slope,) = torch.autograd.grad(loss.sum(), log_weights)
        with torch.no_grad():
            log_weights -= options.learning_rate * (1 - step / steps) * slope
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
    urns = FisherHypergeometric(
        GROUP_SIZES, DRAWS, log_weights=log_weights, estimator=gradient, validate_args=False
    )
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


def answers(data: Tensor) -> dict[str, Tensor]:
    """Centred log-weights that the training data ask for: by likelihood, by the loss, and by the
    loss if the model is the merged chain.
    """
    mean = split(data)[0].mean(1)
    start = torch.zeros_like(mean)
    likeliest = minimiser(lambda log_weights: negative_log_likelihood(log_weights, mean), start)
    smallest = minimiser(lambda log_weights: expected_loss(log_weights, mean), likeliest)
    by_chain = minimiser(lambda log_weights: expected_merged_loss(log_weights, mean), likeliest)
    return {
        name: centred(x)
        for name, x in (("likelihood", likeliest), ("loss", smallest), ("merged_loss", by_chain))
    }


def centred(log_weights: Tensor) -> Tensor:
    return log_weights - log_weights.mean(-1, keepdim=True)


def negative_log_likelihood(log_weights: Tensor, mean: Tensor) -> Tensor:
    """Per datum, up to a constant."""
    return FisherHypergeometric(GROUP_SIZES, DRAWS, log_weights=log_weights).log_normalizer - (
        log_weights * mean
    ).sum(-1)


def expected_loss(log_weights: Tensor, mean: Tensor) -> Tensor:
    """E‖X_D - X‖² less the variance of the data, which no ω changes."""
    urn = FisherHypergeometric(GROUP_SIZES, DRAWS, log_weights=log_weights)
    return ((urn.mean - mean).square() + urn.variance).sum(-1)


def expected_merged_loss(log_weights: Tensor, mean: Tensor) -> Tensor:
    """The same where X is drawn by the chain of merged groups: group 1 against the other two as
    one, then group 2 against group 3.
    """
    later, together = merged(log_weights[..., 1:], log_weights.new_tensor(GROUP_SIZES[1:]))
    first = torch.arange(DRAWS + 1.0, dtype=log_weights.dtype).unsqueeze(-1)
    both = torch.stack([first, DRAWS - first], -1)
    front = FisherHypergeometric(
        [GROUP_SIZES[0], int(together)],
        DRAWS,
        log_weights=torch.cat([log_weights[..., :1], later], -1),
    )
    rear = FisherHypergeometric(GROUP_SIZES[1:], DRAWS - first, log_weights=log_weights[..., 1:])
    error = (first - mean[..., 0]).square() + (
        (rear.mean - mean[..., 1:]).square() + rear.variance
    ).sum(-1)
    return (front.log_prob(both).exp() * error).sum(0)


def table(results: Results) -> list[Table]:
    return [
        _summary(results),
        *(_estimates(results, source) for source in SOURCES),
        *(_losses(results, source) for source in SOURCES),
    ]


def log_odds(log_weights: Any) -> Tensor:
    """log ω₂ - (log ω₁ + log ω₃) / 2, which the scale of ω does not change."""
    values = torch.tensor(log_weights, dtype=torch.float64)
    return values[..., 1] - (values[..., 0] + values[..., 2]) / 2


def found(results: Results, source: str) -> dict[str, Tensor]:
    """log odds of group 2 (seeds, data sets), of every estimator and of every answer there is to
    reach.
    """
    ends = {
        name: log_odds(results.records[f"{name}-on-{source}-data"]["final"]) for name in ESTIMATORS
    }
    computed = results.records[f"answers-on-{source}-data"]
    return ends | {name: log_odds(computed[name]) for name in ("likelihood", "loss", "merged_loss")}


def truth(results: Results) -> Tensor:
    return torch.tensor(results.options.second_weights, dtype=torch.float64).log()


def _summary(results: Results) -> Table:
    rows: list[list[str | float]] = []
    for source in SOURCES:
        values = found(results, source)
        for name in ESTIMATORS:
            answer = minimal_figure.REACHED[name]
            from_truth, from_answer = values[name] - truth(results), values[name] - values[answer]
            rows.append(
                [
                    minimal_figure.LAWS[source].removeprefix("the "),
                    minimal_figure.NAMES[name],
                    f"{from_truth.abs().max():.3f}",
                    f"{from_truth.mean():+.3f}",
                    minimal_figure.NAMES[answer],
                    f"{from_answer.abs().max():.3f}",
                    f"{from_answer.mean():+.3f}",
                ]
            )
    columns = [
        "data",
        "gradient",
        "largest error",
        "mean error",
        "where it should end",
        "largest distance",
        "mean distance",
    ]
    notes = [
        "Error of log ω̂₂ - (log ω̂₁ + log ω̂₃)/2 against log ω₂ of the urn, over all data sets "
        "and seeds; distance to the answer that "
        "this gradient looks for, computed from the same data.",
        "On data of Fisher's law the merged chain learns weights that make up for its merge and "
        "are not the urn's; on data of its own "
        "making the exact law does. The paper shows its estimates in plots only, from data of the "
        "merged chain.",
    ]
    return Table("Minimal example: where ten epochs end", columns, rows, notes)


def _estimates(results: Results, source: str) -> Table:
    values = found(results, source)
    order = ("likelihood", "covariance", "loss", "gumbel-exact", "merged_loss", "gumbel-merged")
    rows = []
    for place, weight in enumerate(results.options.second_weights):
        cells = [mean_and_deviation(values[name][:, place].tolist(), digits=3) for name in order]
        rows.append([f"{weight:g}", f"{truth(results)[place]:.3f}", *cells])
    notes = [
        f"Means of {results.options.seeds} seeds (± standard deviation). Each gradient stands to "
        "the right of the answer it looks for: the "
        "covariance finds maximum likelihood, since it leaves tr Cov X out of the loss; the Gumbel "
        "chains find the minimiser of the loss.",
    ]
    title = (
        f"Minimal example: log ω̂₂ - (log ω̂₁ + log ω̂₃)/2 on data of {minimal_figure.LAWS[source]}"
    )
    return Table(
        title, ["ω₂", "log ω₂", *(minimal_figure.NAMES[name] for name in order)], rows, notes
    )


def _losses(results: Results, source: str) -> Table:
    rows = []
    for place, weight in enumerate(results.options.second_weights):
        urn = FisherHypergeometric(
            GROUP_SIZES, DRAWS, weights=torch.tensor([1.0, weight, 1.0], dtype=torch.float64)
        )
        row = [f"{weight:g}", f"{2 * urn.variance.sum():.1f}"]
        for name in ESTIMATORS:
            record = results.records[f"{name}-on-{source}-data"]
            for kind in ("training_loss", "validation_loss"):
                ends = torch.tensor(record[kind], dtype=torch.float64)[:, place, -1]
                row.append(f"{ends.mean():.1f}")
        rows.append(row)
    columns = ["ω₂", "2 tr Cov"]
    for name in ESTIMATORS:
        columns += [f"{minimal_figure.NAMES[name]}: {kind}" for kind in ("training", "validation")]
    notes = [
        "Mean squared error at the end, averaged over seeds: of training over the last quarter of "
        "an epoch, of validation over its data. "
        "2 tr Cov is what the true ω has under Fisher's law.",
    ]
    return Table(
        f"Minimal example: losses on data of {minimal_figure.LAWS[source]}", columns, rows, notes
    )


def figure(results: Results) -> dict[str, Figure]:
    weights = results.options.second_weights
    curves = {
        f"minimal-{source}-data": minimal_figure.curves(
            {name: results.records[f"{name}-on-{source}-data"] for name in ESTIMATORS},
            weights,
            source,
        )
        for source in SOURCES
    }
    errors = {
        source: {name: values - truth(results) for name, values in found(results, source).items()}
        for source in SOURCES
    }
    return {**curves, "minimal-answers": minimal_figure.errors(errors, weights)}


def run(
    options: Options,
    out: Path | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Results:
    return harness.run(sys.modules[__name__], options, out, engine, progress)
