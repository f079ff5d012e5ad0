"""The tables of the minimal example."""

from __future__ import annotations

import torch

from diffurn_studies.harness.study import Results
from diffurn_studies.harness.tables import Table, counted, mean_and_deviation
from diffurn_studies.minimal.figure import LAWS, NAMES, REACHED
from diffurn_studies.minimal.learning import ESTIMATORS, SOURCES
from diffurn_studies.minimal.results import log_odds_found, truth
from diffurn_studies.minimal.urn import PAPERS_URN


def tables_of(results: Results) -> list[Table]:
    """All tables of the study."""
    return [
        _summary(results),
        *(_estimates(results, source) for source in SOURCES),
        *(_losses(results, source) for source in SOURCES),
    ]


def verdict_of(results: Results) -> list[str]:
    """The largest error of every gradient, on both kinds of data."""
    largest = {
        (source, name): float((values[name] - truth(results)).abs().max())
        for source in SOURCES
        for values in [log_odds_found(results, source)]
        for name in ESTIMATORS
    }
    paper, *others = ("gumbel-merged", "covariance", "gumbel-exact")
    listed = " and ".join(f"{largest['exact', name]:.3f} by the {NAMES[name]}" for name in others)
    return [
        "The paper learns ω by its merged chain, from data of that chain. There log ω₂ ends within "
        f"{largest['merged', paper]:.3f} of the urn's in all runs.",
        "From data of Fisher's law, the largest error of the merged chain is "
        f"{largest['exact', paper]:.3f}, against {listed}.",
    ]


def _summary(results: Results) -> Table:
    rows: list[list[str | float]] = []
    for source in SOURCES:
        values = log_odds_found(results, source)
        for name in ESTIMATORS:
            answer = REACHED[name]
            from_truth, from_answer = values[name] - truth(results), values[name] - values[answer]
            rows.append(
                [
                    LAWS[source].removeprefix("the "),
                    NAMES[name],
                    f"{from_truth.abs().max():.3f}",
                    f"{from_truth.mean():+.3f}",
                    NAMES[answer],
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
        _trained(results),
        "Error of log ω̂₂ - (log ω̂₁ + log ω̂₃)/2 against log ω₂ of the urn, over all data sets "
        "and seeds; distance to the answer that "
        "this gradient looks for, computed from the same data.",
        "On data of Fisher's law the merged chain learns weights that make up for its merge and "
        "are not the urn's; on data of its own "
        "making the exact law does. The paper shows its estimates in plots only, from data of the "
        "merged chain.",
    ]
    return Table("Minimal example: where training ends", columns, rows, notes)


def _trained(results: Results) -> str:
    options = results.options
    how = (
        f"Adam, rate {options.learning_rate:g} times {options.decay:g} after every epoch"
        if options.optimiser == "adam"
        else f"gradient descent, rate {options.learning_rate:g} falling linearly to zero"
    )
    return f"{options.epochs} epochs, {options.batch_size} to a batch; {how}."


def _estimates(results: Results, source: str) -> Table:
    values = log_odds_found(results, source)
    order = ("likelihood", "covariance", "loss", "gumbel-exact", "merged_loss", "gumbel-merged")
    rows = []
    for place, weight in enumerate(results.options.second_weights):
        cells = [mean_and_deviation(values[name][:, place].tolist(), digits=3) for name in order]
        rows.append([f"{weight:g}", f"{truth(results)[place]:.3f}", *cells])
    notes = [
        f"Means of {counted(results.options.seeds, 'seed')} (± standard deviation). Each "
        "gradient stands to the right of the answer it looks for: the "
        "covariance finds maximum likelihood, since it leaves tr Cov X out of the loss; the Gumbel "
        "chains find the minimiser of the loss.",
    ]
    title = f"Minimal example: log ω̂₂ - (log ω̂₁ + log ω̂₃)/2 on data of {LAWS[source]}"
    return Table(title, ["ω₂", "log ω₂", *(NAMES[name] for name in order)], rows, notes)


def _losses(results: Results, source: str) -> Table:
    rows = []
    for place, weight in enumerate(results.options.second_weights):
        urn = PAPERS_URN.with_weights(weights=torch.tensor([1.0, weight, 1.0], dtype=torch.float64))
        row = [f"{weight:g}", f"{2 * urn.variance.sum():.1f}"]
        for name in ESTIMATORS:
            record = results.records[f"{name}-on-{source}-data"]
            for kind in ("training_loss", "validation_loss"):
                ends = torch.tensor(record[kind], dtype=torch.float64)[:, place, -1]
                row.append(f"{ends.mean():.1f}")
        rows.append(row)
    columns = ["ω₂", "2 tr Cov"]
    for name in ESTIMATORS:
        columns += [f"{NAMES[name]}: {kind}" for kind in ("training", "validation")]
    notes = [
        "Mean squared error at the end, averaged over seeds: of training over the last quarter of "
        "an epoch, of validation over its data. "
        "2 tr Cov is what the true ω has under Fisher's law.",
    ]
    return Table(f"Minimal example: losses on data of {LAWS[source]}", columns, rows, notes)
