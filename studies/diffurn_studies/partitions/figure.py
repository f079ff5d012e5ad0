"""The figures of the study of random partitions."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from diffurn_studies.harness.drawing import curves, plain
from diffurn_studies.harness.pictures import unpacked
from diffurn_studies.harness.study import Results
from diffurn_studies.partitions.options import METHODS
from diffurn_studies.partitions.tables import final_scores

COLOURS = {"mixture": "#6E6E6E", "vade": "#E69F00", "bounds": "#D55E00", "exact": "#0072B2"}
CAPTIONS = {
    "partitions-accuracy": "Test accuracy over the epochs: every seed a thin line, the mean a "
    "thick one. The dashed line is the mixture from which all start.",
    "partitions-generated": "Eight pictures that are generated from each cluster, by method.",
}


def figures_of(results: Results) -> dict[str, Figure]:
    found = {"partitions-accuracy": _accuracy(results)}
    if any("generated" in record for record in results.records.values()):
        found["partitions-generated"] = _generated(results)
    return found


def _accuracy(results: Results) -> Figure:
    figure = Figure(figsize=(7, 4.2), layout="constrained", dpi=160)
    panel = figure.subplots()
    for method in results.options.methods:
        if method == "mixture":
            start = float(np.mean(final_scores(results, method, "accuracy")))
            panel.axhline(start, color=COLOURS[method], linestyle="--", label=METHODS[method])
            continue
        records = [results.records[f"{method}-{s}"] for s in range(results.options.seeds)]
        lines = [(each["epochs"], 100 * np.asarray(each["accuracy"])) for each in records]
        curves(panel, lines, color=COLOURS[method], label=METHODS[method])
    panel.set(xlabel="epoch", ylabel="accuracy on the test part in %")
    panel.legend(frameon=False, fontsize=8)
    plain(panel)
    return figure


def _generated(results: Results) -> Figure:
    methods = [
        method
        for method in results.options.methods
        if "generated" in results.records.get(f"{method}-0", {})
    ]
    figure = Figure(figsize=(3.2 * len(methods), 4.2), layout="constrained", dpi=160)
    for method, panel in zip(
        methods, figure.subplots(1, len(methods), squeeze=False)[0], strict=True
    ):
        record = results.records[f"{method}-0"]
        height, width = record["shape"]
        pictures = unpacked(record["generated"], height, width)[..., 0]
        rows = pictures.reshape(-1, 8, height, width).transpose(0, 2, 1, 3)
        panel.imshow(rows.reshape(-1, 8 * width), cmap="gray_r")
        panel.set_title(method, fontsize=9)
        panel.set_axis_off()
    return figure
