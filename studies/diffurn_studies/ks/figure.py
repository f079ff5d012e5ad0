"""The figures of the Kolmogorov-Smirnov study."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from diffurn_studies.harness.drawing import legend_below, plain, sequence_colours
from diffurn_studies.harness.study import Results
from diffurn_studies.ks.comparisons import LEVEL

# The number that each part of the study varies, and its urn.
PARTS = {
    "weight": ("ω₂", "m = (200, 200, 200), n = 180, ω = (1, ω₂, 1)."),
    "draws": ("n", "m = (200, 200, 200), ω = (1, 5, 1)."),
    "size": ("m₂", "m = (200, m₂, 200), n = 200, ω = (1, 5, 1)."),
}
TITLES = {
    "paper": "merged chain against SciPy merged alike\n(the paper's test)",
    "exact": "exact sampler\nagainst Fisher's law",
    "merged": "merged chain\nagainst Fisher's law",
}
GROUPS: tuple[dict[str, Any], ...] = (
    {"color": "#0072B2", "marker": "o"},
    {"color": "#E69F00", "marker": "s"},
    {"color": "#009E73", "marker": "^"},
)
SMALLEST_P = 1e-4
CAPTIONS = {
    "ks-weight": "The paper's figure (left column) and two comparisons with Fisher's law. Lines "
    "are the laws, histograms the draws; below, distances and p-values over ω₂.",
    "ks-draws": "The same, with the number of draws varied.",
    "ks-size": "The same, with the size of the second group varied.",
    "ks-remark": "A different ω brings the law of the merged chain close to Fisher's (left), but "
    "gives two equal groups different weights (right).",
}


def figures_of(results: Results) -> dict[str, Figure]:
    """All figures of the study."""
    figures = {
        f"ks-{part}": _part(of_part(results, part), *heading) for part, heading in PARTS.items()
    }
    return {**figures, "ks-remark": _remark(of_part(results, "weight"))}


def of_part(results: Results, part: str) -> list[dict[str, Any]]:
    """The records of one part of the study."""
    return [record for record in results.records.values() if record["study"] == part]


def _part(records: list[dict[str, Any]], symbol: str, urn: str) -> Figure:
    """The paper's figures of one part: histograms of all groups, distances and p-values. The first
    column is the paper's test, the others compare with Fisher's law.
    """
    figure = Figure(figsize=(9.5, 12), layout="constrained", dpi=160)
    figure.suptitle(f"{urn.rstrip('.')}: {symbol} varied", size=11)
    grid = figure.add_gridspec(5, 3, height_ratios=(1.15, 1.15, 1.15, 1, 1))
    panels: Any = np.empty((5, 3), dtype=object)
    for row, column in np.ndindex(5, 3):
        panels[row, column] = figure.add_subplot(
            grid[row, column], sharex=panels[row, 0], sharey=panels[row, 0]
        )
        panels[row, column].spines[["top", "right"]].set_visible(False)
        panels[row, column].tick_params(labelleft=column == 0)
    for column, (comparison, title) in enumerate(TITLES.items()):
        panels[0, column].set_title(title, size=10)
        for group in range(3):
            _histogram(panels[group, column], records, comparison, group)
        _distances(panels[3, column], panels[4, column], records, comparison)
        panels[4, column].set_xlabel(symbol, size=10)
    for group in range(3):
        panels[group, 0].set_ylabel(f"group {group + 1}: share of draws", size=9)
        panels[group, 1].set_xlabel(f"count of group {group + 1}", size=9)
    panels[3, 0].set_ylabel("distance", size=9)
    panels[3, 0].legend(frameon=False, fontsize=9, loc="upper left")
    panels[4, 0].set_ylabel("corrected p-value", size=9)
    panels[4, 0].text(records[0]["value"], LEVEL * 0.85, "rejected below", size=8, va="top")
    panels[4, 2].text(
        records[len(records) // 2]["value"],
        SMALLEST_P * 1.8,
        f"at the edge: p ≤ {SMALLEST_P:g}",
        size=8,
        ha="center",
    )
    _colour_bar(figure, panels[:3].ravel().tolist(), records, symbol)
    return figure


def _histogram(panel: Any, records: list[dict[str, Any]], comparison: str, group: int) -> None:
    """The draws as filled areas, the law or sample that they are compared with as lines."""
    sampler = "exact" if comparison == "exact" else "merged"
    for index, record in enumerate(records):
        colour = sequence_colours(len(records))(index)
        drawn = np.array(record["histograms"][sampler][group])
        wanted = np.array(
            record["histograms"]["scipy"][group]
            if comparison == "paper"
            else record["marginals"][group]
        )
        counts = np.arange(len(drawn))
        panel.fill_between(
            counts, drawn / drawn.sum(), step="mid", color=colour, alpha=0.4, linewidth=0
        )
        panel.plot(
            counts, wanted / wanted.sum(), color=[0.7 * part for part in colour[:3]], linewidth=1
        )
    likely = [np.flatnonzero(np.array(record["marginals"][group]) > 1e-5) for record in records]
    panel.set_xlim(
        min(counts[0] for counts in likely) - 6, max(counts[-1] for counts in likely) + 6
    )
    panel.set_ylim(bottom=0)


def _colour_bar(
    figure: Figure, panels: list[Any], records: list[dict[str, Any]], symbol: str
) -> None:
    edges = np.arange(len(records) + 1)
    colours = ScalarMappable(BoundaryNorm(edges, len(records)), sequence_colours(len(records)))
    bar = figure.colorbar(
        colours, ax=panels, ticks=edges[:-1] + 0.5, aspect=50, pad=0.01, alpha=0.6
    )
    bar.ax.set_yticklabels([f"{record['value']:g}" for record in records])
    bar.ax.set_title(symbol, size=10)
    bar.ax.tick_params(length=0)
    bar.ax.minorticks_off()
    handles = [
        Patch(color="grey", alpha=0.4, label="drawn"),
        Line2D(
            [],
            [],
            color="black",
            linewidth=1,
            label="compared with (left: SciPy's draws, else Fisher's law)",
        ),
    ]
    legend_below(figure, handles, 2)


def _distances(above: Any, below: Any, records: list[dict[str, Any]], comparison: str) -> None:
    values = [record["value"] for record in records]
    for group, style in enumerate(GROUPS):
        aside = (group - 1) * 0.012 * (max(values) - min(values))  # equal values stay visible
        places = [value + aside for value in values]
        common = {**style, "markersize": 5, "linewidth": 0.8, "label": f"group {group + 1}"}
        above.plot(places, [record[comparison]["distances"][group] for record in records], **common)
        below.plot(
            places,
            [max(record[comparison]["corrected"][group], SMALLEST_P) for record in records],
            **common,
        )
    below.axhline(LEVEL, color="black", linewidth=0.8, linestyle="--")
    above.set(yscale="log")
    below.set(yscale="log", ylim=(SMALLEST_P / 1.6, 1.6))
    for panel in (above, below):
        panel.set_xticks(values, [f"{value:g}" for value in values])
        panel.grid(axis="y", alpha=0.25)


def _remark(records: list[dict[str, Any]]) -> Figure:
    """The error of the merge at ω and at the best ω̃, and the weights ω̃."""
    figure = Figure(figsize=(9, 4), layout="constrained", dpi=160)
    left, right = figure.subplots(1, 2)
    values = [record["value"] for record in records]
    for place, (label, marker, fill) in enumerate(
        (("ω̃ = ω", "o", "full"), ("best ω̃", "s", "none"))
    ):
        for name, kind, colour in (
            ("divergence", "KL (nats)", "#0072B2"),
            ("total_variation", "total variation", "#CC79A7"),
        ):
            sizes = [record["remark"][name][place] for record in records]
            # Zero has no place on a logarithmic axis.
            shown = [size if size > 1e-9 else np.nan for size in sizes]
            left.plot(
                values,
                shown,
                marker=marker,
                color=colour,
                markersize=5,
                fillstyle=fill,
                label=f"{kind}, {label}",
            )
    left.set(yscale="log", xlabel="ω₂", ylabel="from Fisher's law to the merged chain")
    left.set_title("a different ω makes the chain a good approximation …", size=10)
    left.legend(frameon=False, fontsize=8)
    for group, style in ((1, GROUPS[1]), (2, GROUPS[2])):
        truth = values if group == 1 else [1.0] * len(values)
        weights = [record["remark"]["weights"][group] for record in records]
        right.plot(values, weights, **style, markersize=5, label=f"ω̃{'₂₃'[group - 1]} / ω̃₁")
        right.plot(
            values,
            truth,
            color=style["color"],
            linestyle="--",
            linewidth=1,
            label=f"ω{'₂₃'[group - 1]} / ω₁ of the urn",
        )
    right.set(xlabel="ω₂", ylabel="weight relative to group 1", yscale="log")
    right.set_yticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
    right.minorticks_off()
    right.set_title("… but it is not the urn's ω", size=10)
    right.legend(frameon=False, fontsize=8)
    for panel in (left, right):
        panel.set_xticks(values, [f"{value:g}" for value in values])
        panel.set_xlim(values[0] - 0.5, values[-1] + 0.5)
        plain(panel)
    return figure
