"""The figures of the minimal example."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from diffurn_studies.harness.drawing import legend_below, plain, sequence_colours
from diffurn_studies.harness.study import Results
from diffurn_studies.harness.tables import counted
from diffurn_studies.minimal.learning import ESTIMATORS, SOURCES
from diffurn_studies.minimal.results import log_odds_found, truth

NAMES = {
    "covariance": "exact covariance",
    "gumbel-exact": "exact Gumbel chain",
    "gumbel-merged": "merged Gumbel chain",
    "likelihood": "maximum likelihood",
    "loss": "minimiser of the loss",
    "merged_loss": "minimiser, merged chain",
}
STYLES: dict[str, dict[str, Any]] = {
    "covariance": {"marker": "o", "color": "#0072B2"},
    "gumbel-exact": {"marker": "^", "color": "#009E73"},
    "gumbel-merged": {"marker": "v", "color": "#D55E00"},
}
CAPTIONS = {
    "minimal-merged-data": "The paper's two figures side by side, a row for each gradient: losses "
    "and log-weights over the steps. The data come from the paper's merged chain.",
    "minimal-exact-data": "The same, on data of Fisher's law.",
    "minimal-answers": "Errors of log ω₂ at the end of training, seed by seed, and the weights "
    "that each gradient looks for.",
}
# The laws that the data are drawn from.
LAWS = {"exact": "Fisher's law", "merged": "the merged chain"}
# The weights that each gradient looks for.
REACHED = {"covariance": "likelihood", "gumbel-exact": "loss", "gumbel-merged": "merged_loss"}


def figures_of(results: Results) -> dict[str, Figure]:
    """All figures of the study."""
    weights = results.options.second_weights
    curves = {
        f"minimal-{source}-data": _curves(
            {name: results.records[f"{name}-on-{source}-data"] for name in ESTIMATORS},
            weights,
            source,
        )
        for source in reversed(SOURCES)  # the paper's data first
    }
    errors = {
        source: {
            name: values - truth(results)
            for name, values in log_odds_found(results, source).items()
        }
        for source in SOURCES
    }
    return {**curves, "minimal-answers": _errors(errors, weights)}


def _curves(records: dict[str, dict[str, Any]], weights: Sequence[float], source: str) -> Figure:
    """The paper's two figures side by side: losses and log-weights over the steps, one row per
    gradient.
    """
    figure = Figure(figsize=(11, 7.6), layout="constrained", dpi=150)
    seeds = len(records["covariance"]["final"])
    figure.suptitle(
        f"learning ω through draws, data of {LAWS[source]} (mean of {counted(seeds, 'seed')})",
        size=12,
    )
    panels = figure.subplots(3, 5, sharex=True)
    colours = sequence_colours(len(weights))
    for row, (name, record) in enumerate(records.items()):
        average = {
            kind: np.array(record[kind]).mean(0)
            for kind in record
            if isinstance(record[kind], list)
        }
        for place, weight in enumerate(weights):
            colour = colours(place)
            steps = average["steps"][place]
            panels[row, 0].plot(steps, average["training_loss"][place], color=colour, linewidth=1)
            panels[row, 1].plot(
                average["validation_steps"][place],
                average["validation_loss"][place],
                color=colour,
                linewidth=1,
            )
            for group in range(3):
                panel = panels[row, 2 + group]
                path = np.concatenate([[0.0], average["log_weights"][place][:, group]])
                panel.plot([0, *steps], path, color=colour, linewidth=1.2)
                panel.axhline(
                    math.log(weight) * (2 / 3 if group == 1 else -1 / 3),
                    color=colour,
                    linewidth=0.7,
                    linestyle=":",
                )
        panels[row, 0].set_ylabel(NAMES[name], size=10)
    headings = ["training loss", "validation loss", "log ω̂₁", "log ω̂₂", "log ω̂₃"]
    for panel, heading in zip(panels[0], headings, strict=True):
        panel.set_title(heading, size=10)
    for column in range(5):
        _same_range(panels[:, column], log=column < 2)
        panels[-1, column].set_xlabel("step", size=9)
    for panel in panels.ravel():
        plain(panel)
    handles = [
        Line2D([], [], color=colours(place), label=f"ω₂ = {weight:g}")
        for place, weight in enumerate(weights)
    ]
    handles.append(Line2D([], [], color="grey", linestyle=":", label="the urn's log ω, centred"))
    legend_below(figure, handles, min(6, len(handles)), handlelength=1.2)
    return figure


def _same_range(panels: Any, log: bool) -> None:
    lowest, highest = (
        min(panel.get_ylim()[0] for panel in panels),
        max(panel.get_ylim()[1] for panel in panels),
    )
    for panel in panels:
        if log:
            panel.set_yscale("log")
            panel.set_yticks(
                [100, 200, 500, 1000, 2000, 5000], ["100", "200", "500", "1000", "2000", "5000"]
            )
            panel.minorticks_off()
        panel.set_ylim(80 if log else lowest, highest)


def _errors(errors: dict[str, dict[str, Tensor]], weights: Sequence[float]) -> Figure:
    """The error of every gradient, seed by seed, and the weights that it looks for."""
    figure = Figure(figsize=(9, 4.6), layout="constrained", dpi=160)
    panels = figure.subplots(1, 2, sharey=True)
    for panel, (source, found) in zip(panels, errors.items(), strict=True):
        for index, (name, style) in enumerate(STYLES.items()):
            aside = (index - 1) * 0.15
            for seed in found[name]:
                places = [weight + aside for weight in weights]
                panel.plot(
                    places,
                    seed,
                    linestyle="",
                    markersize=4.5,
                    alpha=0.65,
                    markeredgewidth=0,
                    **style,
                )
            answer = found[REACHED[name]].mean(0)
            panel.plot(
                weights,
                answer,
                color=style["color"],
                linewidth=1.3,
                linestyle="-" if name != "gumbel-exact" else "--",
            )
        panel.axhline(0, color="black", linewidth=0.8)
        panel.set_title(f"data of {LAWS[source]}", size=10)
        panel.set_xlabel("ω₂", size=10)
        panel.set_xticks(list(weights), [f"{weight:g}" for weight in weights])
        plain(panel)
    panels[0].set_ylabel("error of log ω̂₂ - (log ω̂₁ + log ω̂₃)/2", size=10)
    marks = [
        Line2D([], [], linestyle="", label=f"{NAMES[name]}, each seed", **style)
        for name, style in STYLES.items()
    ]
    lines = [
        Line2D(
            [],
            [],
            color=style["color"],
            linestyle="--" if name == "gumbel-exact" else "-",
            label=NAMES[REACHED[name]],
        )
        for name, style in STYLES.items()
    ]
    handles = [handle for pair in zip(marks, lines, strict=True) for handle in pair]
    legend_below(figure, handles, 3)
    return figure
