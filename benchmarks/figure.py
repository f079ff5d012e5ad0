"""Figures of time and memory over m, c and B, with fitted exponents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks.cells import AXES, LAWS
from benchmarks.growth import Growth
from diffurn_studies.harness.drawing import legend_below, plain

# Marker and colour of each contender; the colours are safe for colour-blind readers.
STYLES: dict[str, dict[str, Any]] = {
    "diffurn": {"marker": "o", "color": "#0072B2", "linewidth": 2.2, "zorder": 5},
    "SciPy": {"marker": "s", "color": "#E69F00"},
    "BiasedUrn": {"marker": "^", "color": "#009E73"},
    "BiasedUrn, default": {"marker": "2", "color": "#009E73", "linestyle": "--"},
    "merged Gumbel (the paper)": {"marker": "v", "color": "#D55E00"},
    "exact Gumbel (diffurn)": {"marker": "X", "color": "#56B4E9"},
    "score, 10 draws (diffurn)": {"marker": "P", "color": "#CC79A7"},
    "score + covariance, 10 draws (diffurn)": {
        "marker": "*",
        "color": "#CC79A7",
        "linestyle": "--",
    },
    "torch Binomial": {"marker": ".", "color": "#777777"},
    "torch Multinomial": {"marker": "x", "color": "#777777", "linestyle": "--"},
}
_OTHER = {"marker": "d", "color": "black"}
QUANTITIES = {"time": "time of the job / s", "memory": "peak memory / bytes"}


def scaling(found: Sequence[Growth], law: str, quantity: str, where: str) -> Figure | None:
    """A panel for every sweep of a law, one row per operation; None if there is no sweep.

    Args:
        found: growths.
        law: a key of `LAWS`.
        quantity: a key of `QUANTITIES`.
        where: the device, for the title.
    """
    shown = [growth for growth in found if growth.law == law and len(_points(growth, quantity)) > 1]
    if not shown:
        return None
    operations = list(dict.fromkeys(growth.operation for growth in shown))
    sweeps = {
        name: list(dict.fromkeys((g.axis, g.fixed) for g in shown if g.operation == name))
        for name in operations
    }
    columns = max(map(len, sweeps.values()))
    figure = Figure(
        figsize=(3.6 * columns, 2.7 * len(operations) + 1.3), layout="constrained", dpi=100
    )
    panels = figure.subplots(len(operations), columns, squeeze=False)
    for row, operation in enumerate(operations):
        for column in range(columns):
            panel = panels[row, column]
            panel.set_visible(column < len(sweeps[operation]))
            if column < len(sweeps[operation]):
                axis, fixed = sweeps[operation][column]
                drawn = [
                    g for g in shown if (g.operation, g.axis, g.fixed) == (operation, axis, fixed)
                ]
                _panel(panel, drawn, quantity, f"{operation}: {fixed}", AXES[axis])
        panels[row, 0].set_ylabel(QUANTITIES[quantity], size=9)
    names = list(dict.fromkeys(growth.contender for growth in shown))
    handles = [
        Line2D([], [], label=name, **_style(name))
        for name in sorted(names, key=[*STYLES, *names].index)
    ]
    legend_below(figure, handles, min(columns + 1, len(handles)))
    figure.suptitle(
        f"{LAWS[law]}: {quantity}, {where}; fitted exponents in each contender's colour", size=11
    )
    return figure


def _style(name: str) -> dict[str, Any]:
    return {"linewidth": 1.2, "markersize": 5, **STYLES.get(name, _OTHER)}


def _points(growth: Growth, quantity: str) -> list[tuple[int, float]]:
    values = growth.seconds if quantity == "time" else growth.peaks
    return [(size, value) for size, value in zip(growth.sizes, values, strict=True) if value]


def _panel(panel: Any, drawn: Sequence[Growth], quantity: str, title: str, label: str) -> None:
    for growth in drawn:
        panel.plot(*zip(*_points(growth, quantity), strict=True), **_style(growth.contender))
    panel.set(xscale="log", yscale="log")
    low, high = panel.get_ylim()
    middle = math.sqrt(low * high)
    decades = max(2.0, math.log10(high / low))  # noise must not fill a panel
    # The exponents are written above the curves.
    panel.set_ylim(middle * 10 ** (-decades / 2), middle * 10 ** (0.75 * decades))
    for ruler in (panel.xaxis, panel.yaxis):
        ruler.set_major_locator(LogLocator(numticks=6))
        ruler.set_minor_formatter(NullFormatter())
    exponents = [(g, g.exponent if quantity == "time" else g.peak_exponent) for g in drawn]
    written = [(growth, exponent) for growth, exponent in exponents if exponent is not None]
    for place, (growth, exponent) in enumerate(written):
        text = f"${growth.axis}^{{{exponent:.2f}}}$"
        across, down = 0.03 + 0.24 * (place % 4), 0.97 - 0.13 * (place // 4)
        panel.text(
            across,
            down,
            text,
            transform=panel.transAxes,
            va="top",
            size=9,
            color=_style(growth.contender)["color"],
        )
    panel.set_title(title, size=9)
    panel.set_xlabel(label, size=8)
    plain(panel)
    panel.tick_params(labelsize=8)
