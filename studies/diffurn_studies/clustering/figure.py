"""The figures of the clustering study."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from diffurn_studies.clustering.options import Options
from diffurn_studies.clustering.priors import Prior
from diffurn_studies.clustering.records import (
    Model,
    Records,
    class_counts,
    models_of,
    select,
    version_name,
)
from diffurn_studies.harness.drawing import COLOURS, curves, legend_below, plain
from diffurn_studies.harness.literature import paper

# What is drawn beside the frequencies of the classes: label, style, and offset from the class.
MARKS: dict[str, tuple[str, dict[str, Any], float]] = {
    "weights": ("π", {"marker": "v", "color": "#D55E00", "markeredgewidth": 0}, -0.2),
    "shares": (
        "mean/n of the prior",
        {"marker": "o", "color": "#0072B2", "markeredgewidth": 0},
        0.0,
    ),
    "sizes": ("cluster sizes", {"marker": "_", "color": "black"}, 0.2),
}

CAPTIONS = {
    "clustering-accuracy": "Test accuracy over the epochs: every seed a thin line, the mean a "
    "thick one; at the end the paper's mean and deviation.",
    "clustering-weights": "What the prior learned about the sizes of the classes.",
    "clustering-means": "The picture that each cluster decodes from its mean.",
}


def figures_of(records: Records, options: Options) -> dict[str, Figure]:
    """All figures of the study.

    Args:
        records: by unit.
        options: of the run.
    """
    models, names = (
        models_of(records),
        {version: version_name(version) for version in options.versions},
    )
    stated = paper("clustering")["by_dataset"] if options.dataset == "mnist" else {}
    learned = [prior for prior in options.priors if prior.learned]
    shape = next(iter(records.values()))["shape"]
    return {
        "clustering-accuracy": accuracies(models, names, options.priors, stated),
        "clustering-weights": weights(models, names, learned, class_counts(records)),
        "clustering-means": pictures(models, names, options.priors, shape),
    }


def accuracies(
    models: Sequence[Model],
    versions: Mapping[float, str],
    priors: Sequence[Prior],
    stated: Mapping[str, Any],
) -> Figure:
    """Test accuracy over the epochs: every model a thin line, means thick lines, the paper's
    figures as marks at the end.
    """
    figure = Figure(figsize=(3.1 * len(versions) + 0.6, 4), layout="constrained", dpi=160)
    panels = figure.subplots(1, len(versions), sharey=True, squeeze=False)[0]
    drawn = (
        {"color": colour, "linestyle": line}
        for line, colour in itertools.product(("-", "--", ":"), COLOURS)
    )
    styles: dict[Prior, Any] = dict(zip(priors, drawn, strict=False))
    for panel, (version, name) in zip(panels, versions.items(), strict=True):
        for prior, style in styles.items():
            found = [
                (model["epochs"], np.multiply(model["accuracy"], 100))
                for model in select(models, version, prior)
            ]
            curves(panel, found, **style)
            if theirs := stated.get(name, {}).get("accuracy", {}).get(str(prior)):
                aside = max(epochs[-1] for epochs, _ in found) * (1.03 + 0.03 * priors.index(prior))
                bar = {**style, "marker": "D", "markersize": 4, "capsize": 2, "linewidth": 1}
                panel.errorbar([aside], [theirs["mean"]], [theirs["deviation"]], **bar)
        panel.set_title(name, size=10)
        panel.set_xlabel("epoch", size=9)
        plain(panel)
    panels[0].set_ylabel("test accuracy (%)", size=9)
    handles = [
        Line2D([], [], **style, linewidth=2, label=str(prior)) for prior, style in styles.items()
    ]
    handles.append(Line2D([], [], color="grey", linewidth=0.6, label="each seed"))
    if stated:
        handles.append(
            Line2D(
                [],
                [],
                color="grey",
                marker="D",
                markersize=4,
                linestyle="",
                label="the paper, mean ± deviation",
            )
        )
    legend_below(figure, handles, min(len(handles), 2 * len(versions)))
    return figure


def weights(
    models: Sequence[Model],
    versions: Mapping[float, str],
    priors: Sequence[Prior],
    counts: Mapping[str, Sequence[int]],
) -> Figure:
    """The paper's figure of the learned weights, for every version and learned prior: classes as
    bars, runs as marks.
    """
    height, width = max(1, len(priors)), len(versions)
    figure = Figure(figsize=(3.2 * width + 0.4, 2.4 * height + 0.7), layout="constrained", dpi=160)
    panels = figure.subplots(height, width, sharex=True, sharey=True, squeeze=False)
    for column, (version, name) in enumerate(versions.items()):
        frequencies = np.array(counts[name]) / sum(counts[name])
        for row, prior in enumerate(priors):
            panel = panels[row, column]
            panel.bar(range(len(frequencies)), frequencies, color="#56B4E9", alpha=0.45, width=0.85)
            for model in select(models, version, prior):
                final = model["final"]
                for kind, (_, style, aside) in MARKS.items():
                    values = np.array(final[kind]) / np.sum(final[kind])
                    panel.plot(
                        np.array(final["classes"]) + aside,
                        values,
                        linestyle="",
                        markersize=4.5,
                        alpha=0.7,
                        **style,
                    )
            plain(panel)
            if column == 0:
                panel.set_ylabel(str(prior), size=9)
        panels[0, column].set_title(name, size=10)
        panels[-1, column].set_xlabel("class", size=9)
        panels[-1, column].set_xticks(range(len(frequencies)))
    handles: list[Any] = [Patch(color="#56B4E9", alpha=0.45, label="frequency of the class")]
    handles += [
        Line2D([], [], linestyle="", label=label, **style) for label, style, _ in MARKS.values()
    ]
    legend_below(figure, handles, min(len(handles), 2 * len(versions)))
    return figure


def pictures(
    models: Sequence[Model],
    versions: Mapping[float, str],
    priors: Sequence[Prior],
    shape: Sequence[int],
) -> Figure:
    """Decoded cluster means of the first seed, in the order of the classes they were matched to."""
    kinds = [(version, prior) for version in versions for prior in priors]
    rows = [
        (f"{versions[version]}\n{prior}", model)
        for version, prior in kinds
        for model in select(models, version, prior)[:1]
    ]
    clusters = len(models[0]["final"]["classes"])
    figure = Figure(
        figsize=(0.8 * clusters + 2, 0.8 * len(rows) + 0.5), layout="constrained", dpi=160
    )
    panels = figure.subplots(len(rows), clusters, squeeze=False)
    for panel_row, (label, model) in zip(panels, rows, strict=True):
        content = np.frombuffer(
            base64.b64decode(model.get("pictures", "")), dtype=np.uint8
        ).reshape(-1, *shape)
        for panel in panel_row:
            panel.set_xticks([])
            panel.set_yticks([])
            panel.spines[:].set_visible(False)
        for picture, place in zip(content, model["final"]["classes"], strict=False):
            panel_row[place].imshow(255 - picture, cmap="gray", vmin=0, vmax=255)
        panel_row[0].set_ylabel(label, size=8, rotation=0, ha="right", va="center")
    for place, panel in enumerate(panels[0]):
        panel.set_title(str(place), size=9)
    return figure
