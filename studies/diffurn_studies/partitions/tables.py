"""The table of the study of random partitions."""

from __future__ import annotations

from statistics import fmean

from diffurn_studies.harness.study import Results
from diffurn_studies.harness.tables import Table, mean_and_deviation
from diffurn_studies.partitions.options import METHODS, Method

SCORES = {"accuracy": "accuracy (%)", "nmi": "NMI (%)", "ari": "ARI (%)"}


def final_scores(results: Results, method: Method, name: str) -> list[float]:
    """A score of each seed at the end, in %."""
    unit = "start" if method == "mixture" else method
    values = [results.records[f"{unit}-{seed}"][name] for seed in range(results.options.seeds)]
    return [100 * (value[-1] if isinstance(value, list) else value) for value in values]


def tables_of(results: Results) -> list[Table]:
    rows: list[list[str | int | float | None]] = []
    options = results.options
    for method in options.methods:
        found = [mean_and_deviation(final_scores(results, method, name), 1) for name in SCORES]
        unit = "start" if method == "mixture" else method
        seconds = fmean(results.records[f"{unit}-{s}"]["seconds"] for s in range(options.seeds))
        rows.append([METHODS[method], *found, round(seconds)])
    notes = [
        f"{options.dataset}, test part; mean ± deviation over {options.seeds} seeds. After "
        f"{options.epochs:,} epochs with batches of {options.batch_size}.",
        "Seconds of the mixture are those of the pretraining, which the other methods start from.",
    ]
    columns = ["method", *SCORES.values(), "seconds"]
    return [Table("Clustering with random partitions", columns, rows, notes)]


def verdict_of(results: Results) -> list[str]:
    """The methods by their accuracy."""
    methods = results.options.methods
    means = {method: fmean(final_scores(results, method, "accuracy")) for method in methods}
    best = max(means, key=lambda method: means[method])
    sentences = [f"The most accurate method is: {METHODS[best]} ({means[best]:.1f} %)."]
    if {"exact", "bounds"} <= set(means):
        apart = means["exact"] - means["bounds"]
        sentences.append(
            f"Exact probabilities instead of bounds change the accuracy by {apart:+.1f} points."
        )
    return sentences
