"""The tables and the figure of the tasks that are trained."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from diffurn_studies.harness.drawing import curves, plain
from diffurn_studies.harness.study import Results
from diffurn_studies.harness.tables import Cell, Table, mean_and_deviation
from diffurn_studies.subsets.contenders import CONTENDERS
from diffurn_studies.subsets.figure import colour_of
from diffurn_studies.subsets.training import SPEED

WORDS = {
    "regression": "sparse regression",
    "pixels": "pixels, one mask",
    "pixels-each": "pixels of each image",
    "vae": "subset VAE",
    "neighbours": "stochastic neighbours",
}
# What a score of the test part is called, how many digits it has, and by how much it is multiplied.
_SCORES = {
    "loss": ("test loss", 4, 1.0),
    "accuracy": ("accuracy (%)", 2, 100.0),
    "right terms": ("right terms of 3", 1, 1.0),
    "loss by the mode": ("loss by the mode", 2, 1.0),
}
# The deviation of a t variate with 2(s - 1) ≥ 8 degrees of freedom, two-sided, at 5 %.
_CRITICAL = 2.31


def verdict_of(results: Results) -> list[str]:
    """The best contender by the test loss, the best of ours, and what a step costs."""
    losses = {name: losses_of(results, name) for name in results.options.contenders}
    means = {name: statistics.fmean(found) for name, found in losses.items() if found}
    if not means:
        return ["No contender ended with a finite loss."]
    told, leaders = [], []
    for ours, whose in ((False, "the field"), (True, "ours")):
        some = [name for name in means if CONTENDERS[name].ours == ours]
        if some:
            leaders.append(min(some, key=means.__getitem__))
            words = CONTENDERS[leaders[-1]].words
            told.append(f"Smallest test loss of {whose}: {words}, {means[leaders[-1]]:.4g}.")
    if len(leaders) == 2:
        better = "the field's" if means[leaders[0]] <= means[leaders[1]] else "ours"
        judged = _significance(*(losses[name] for name in leaders))
        told.append(f"The smaller is {better}; the difference is {judged}.")
    times = results.records[SPEED]["milliseconds"]
    if "gumbel-st" in times and "covariance" in times:
        told.append(
            "A step by the exact covariance takes "
            f"{times['covariance'] / times['gumbel-st']:.2f} times as long as one by Gumbel top-k."
        )
    return told


def _significance(first: list[float], second: list[float]) -> str:
    """Whether two means differ by more than their deviations explain."""
    if min(len(first), len(second)) < 5:
        return "of too few seeds to be judged"
    error = math.sqrt(
        statistics.variance(first) / len(first) + statistics.variance(second) / len(second)
    )
    difference = abs(statistics.fmean(first) - statistics.fmean(second))
    far = difference > _CRITICAL * error
    return "more than chance explains (5 %)" if far else "no more than chance explains (5 %)"


def seeds_of(results: Results, name: str) -> list[dict[str, Any]]:
    return [results.records[f"{name}-seed{seed}"] for seed in range(results.options.seeds)]


def losses_of(results: Results, name: str) -> list[float]:
    """The finite test losses."""
    found = [record["test"]["loss"] for record in seeds_of(results, name)]
    return [loss for loss in found if loss is not None]


def title_of(results: Results) -> str:
    return f"Subsets, {WORDS[results.options.task]}"


def tables_of(results: Results) -> list[Table]:
    return [contenders(results), each_seed(results), choices(results)]


def contenders(results: Results) -> Table:
    """Scores, variance of gradients and time of a step of every contender."""
    options, times = results.options, results.records[SPEED]["milliseconds"]
    scores = list(seeds_of(results, options.contenders[0])[0]["test"])
    columns = ["contender", *(_SCORES[score][0] for score in scores)]
    columns += ["variance, start", "variance, end", "ms a step"]
    rows: list[list[Cell]] = []
    for name in options.contenders:
        records = seeds_of(results, name)
        row: list[Cell] = [CONTENDERS[name].words]
        for score in scores:
            _, digits, factor = _SCORES[score]
            values = [record["test"][score] for record in records]
            finite = [factor * value for value in values if value is not None]
            row.append(mean_and_deviation(finite, digits))
        for moment in ("start", "end"):
            found = [record[f"variance at the {moment}"] for record in records]
            finite = [value for value in found if value is not None]
            row.append(f"{statistics.median(finite):.3g}" if finite else None)
        rows.append([*row, f"{times[name]:.2f}"])
    notes = [
        f"Mean ± deviation over {options.seeds} seeds, {options.steps:,} steps of "
        f"{options.batch_size} items with {options.samples} draws each, k = {options.k}. All "
        "contenders have the same networks, initial weights, batches and grid of rates.",
        "Variance: of the gradient of one batch over the draws, relative to the squared length of "
        "its mean; median over seeds; at the start the networks are the same. It says nothing "
        "about bias.",
        "A step includes the networks and Adam; not compiled"
        + (", replayed as a CUDA graph." if options.device.startswith("cuda") else "."),
    ]
    if options.task == "vae":
        notes.append(
            "Test loss: the negative bound with draws and KL of Fisher's law, also for contenders "
            "that draw otherwise in training."
        )
        if (options.dataset, options.latents, options.k) == ("mnist", 20, 10):
            notes.append(
                "The notebook released with SIMPLE ends at a test loss of about 170.6 for this "
                "latent, with a divergence of its own."
            )
    else:
        notes.append("Scores are those of the most probable subsets.")
    return Table(f"{title_of(results)}: contenders", columns, rows, notes)


def each_seed(results: Results) -> Table:
    rows: list[list[Cell]] = [
        [CONTENDERS[name].words, *(_shown(record) for record in seeds_of(results, name))]
        for name in results.options.contenders
    ]
    columns = ["contender", *(f"seed {seed}" for seed in range(results.options.seeds))]
    notes = ["The test loss, and the next score behind it."]
    return Table(f"{title_of(results)}: every seed", columns, rows, notes)


def _shown(record: dict[str, Any]) -> str | None:
    (_, loss), (score, value) = list(record["test"].items())[:2]
    if loss is None or value is None:
        return None
    _, digits, factor = _SCORES[score]
    return f"{loss:.4g} ({factor * value:.{digits}f})"


def choices(results: Results) -> Table:
    """The chosen rates and temperatures."""
    rows: list[list[Cell]] = []
    for name in results.options.contenders:
        found = results.records[f"tune-{name}"]
        tempered = CONTENDERS[name].tempered
        rows.append(
            [
                CONTENDERS[name].words,
                f"{found['rate']:g}",
                f"{found['temperature']:g}" if tempered else None,
                len(found["tried"]),
            ]
        )
    options = results.options
    rates = ", ".join(f"{rate:g}" for rate in options.rates)
    temperatures = ", ".join(f"{temperature:g}" for temperature in options.temperatures)
    notes = [
        f"By the mean validation loss after {options.tuning_steps:,} steps; other seeds: "
        f"{options.tuning_seeds}; rates: {rates}; temperatures: {temperatures}."
    ]
    columns = ["contender", "rate", "temperature", "tried"]
    return Table(f"{title_of(results)}: choices", columns, rows, notes)


def figures_of(results: Results) -> dict[str, Figure]:
    """The validation loss over the steps, of ours and of the field's."""
    figure = Figure(figsize=(9, 4.6), layout="constrained", dpi=150)
    panels = figure.subplots(1, 2, sharey=True)
    for name in results.options.contenders:
        panel, colour = panels[int(CONTENDERS[name].ours)], colour_of(name)
        found = [
            (record["steps"], np.array(record["validation"], dtype=float))
            for record in seeds_of(results, name)
        ]
        curves(panel, found, color=colour)
        panel.plot([], [], color=colour, linewidth=2, label=CONTENDERS[name].words)
    for panel, title in zip(panels, ("the field's", "ours"), strict=True):
        panel.set(title=title, xlabel="step")
        if panel.lines:
            below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16)}
            panel.legend(**below, ncols=2, frameon=False, fontsize=8)
        plain(panel)
    panels[0].set_ylabel("validation loss")
    if results.options.task == "regression":
        panels[0].set_yscale("log")
    return {f"subsets-{results.options.task}": figure}
