"""The figures on the page, in the colours of Okabe and Ito, which colour-blind readers can tell
apart.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from torch import Tensor

    from diffurn.explore.numbers import Gradient

SUBSCRIPTS = "₁₂₃₄₅"
GROUPS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")
MERGED, DRAWN, GREY = "#D55E00", "black", "#6E6E6E"
LAWS = {"Fisher": "#0072B2", "Wallenius": "#E69F00"}
# As on the page "Choosing an estimator": blue is the covariance, green the exact chain, vermilion
# the merged chain.
ESTIMATORS = {
    "CovarianceST": "#0072B2",
    "rsample": "#0072B2",
    "Gumbel, exact": "#009E73",
    "Gumbel, merged": "#D55E00",
}


def _panel(width: float, height: float, margins: dict[str, float]) -> tuple[Figure, Any]:
    """A figure with fixed margins, because automatic ones take longer than the drawing itself."""
    figure = Figure(figsize=(width, height))
    axes = figure.subplots()
    figure.subplots_adjust(**margins)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9, color=GREY)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
    return figure, axes


def marginal(group: int, title: str, exact: Tensor, drawn: Tensor, merged: Tensor | None) -> Figure:
    """P(X_j = 0), P(X_j = 1), … of one group: bars are exact, dots are shares among samples, and a
    dashed line is the paper's approximation.

    Args:
        group: from 0.
        title: the title of the panel.
        exact, drawn, merged: probabilities or shares of the counts 0, 1, …
    """
    figure, axes = _panel(3.7, 2.5, {"left": 0.145, "right": 0.985, "bottom": 0.19, "top": 0.88})
    counts = range(len(exact))
    axes.bar(counts, exact.tolist(), 0.8, color=GROUPS[group], alpha=0.75)
    if merged is not None:
        axes.step(
            counts,
            merged.tolist(),
            where="mid",
            color=MERGED,
            linewidth=1.6,
            linestyle=(0, (4, 1.5)),
        )
    axes.plot(
        counts,
        drawn.tolist(),
        linestyle="",
        marker="o",
        markersize=4.5,
        markerfacecolor="white",
        markeredgecolor=DRAWN,
    )
    axes.set_title(title, size=10.5, y=1.02)  # a fixed place, which saves time
    axes.set_xlabel(f"balls drawn of group {group + 1}", size=9.5, labelpad=2)
    axes.set_ylabel("probability", size=9.5, labelpad=3)
    axes.set_xlim(-0.6, len(exact) - 0.4)
    axes.set_xticks(range(0, len(exact), 1 if len(exact) <= 12 else 2))
    axes.set_ylim(bottom=0)
    return figure


def inclusion(fisher: Tensor, wallenius: Tensor, shares: Tensor) -> Figure:
    """P(item is chosen) by both laws as bars, and shares among draws as dots."""
    figure, axes = _panel(4.6, 3.1, {"left": 0.12, "right": 0.985, "bottom": 0.15, "top": 0.97})
    items = range(1, len(fisher) + 1)
    axes.bar([item - 0.2 for item in items], fisher.tolist(), 0.38, color=LAWS["Fisher"])
    axes.bar([item + 0.2 for item in items], wallenius.tolist(), 0.38, color=LAWS["Wallenius"])
    axes.plot(
        items,
        shares.tolist(),
        linestyle="",
        marker="o",
        markersize=4.5,
        markerfacecolor="white",
        markeredgecolor=DRAWN,
    )
    axes.set_xticks(items)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("item", size=9.5, labelpad=2)
    axes.set_ylabel("P(item is chosen)", size=10, labelpad=3)
    return figure


def gradient(found: Gradient) -> Figure:
    """The gradient in each log ω: bars are the averages of the estimators, whiskers the standard
    deviations of one estimate, and black lines the exact values.
    """
    figure, axes = _panel(4.6, 3.1, {"left": 0.155, "right": 0.985, "bottom": 0.12, "top": 0.97})
    groups = len(found.exact)
    width = 0.8 / max(1, len(found.estimates))
    for place, (name, estimate) in enumerate(found.estimates.items()):
        where = [group - 0.4 + (place + 0.5) * width for group in range(groups)]
        whiskers = {"elinewidth": 1.2, "ecolor": "#333333", "capsize": 3}
        axes.bar(
            where,
            estimate.average.tolist(),
            width * 0.86,
            yerr=estimate.deviation.tolist(),
            color=ESTIMATORS[name],
            error_kw=whiskers,
        )
    axes.hlines(
        found.exact.tolist(),
        [group - 0.45 for group in range(groups)],
        [group + 0.45 for group in range(groups)],
        color="black",
        linewidth=2.4,
    )
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_xticks(
        range(groups), [f"log ω{subscript}" for subscript in SUBSCRIPTS[:groups]], size=10.5
    )
    axes.set_xlim(-0.55, groups - 0.45)
    axes.set_ylabel("∂ E f(x) / ∂ log ω", size=10, labelpad=3)
    return figure


def as_image(figure: Figure, description: str) -> str:
    """The figure as an HTML image that contains its SVG file."""
    content = io.BytesIO()
    # Text in the reader's own fonts needs no download, and halves the time.
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(content, format="svg", metadata={"Date": None})
    source = base64.b64encode(content.getvalue()).decode()
    return f'<img src="data:image/svg+xml;base64,{source}" alt="{description}">'


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """A line of marks with their meanings; a mark is the name of a CSS class of the page, or a
    colour.
    """
    return (
        '<div class="legend">'
        + "".join(f"<span>{_mark(mark)}{text}</span>" for mark, text in entries)
        + "</div>"
    )


def _mark(mark: str) -> str:
    return (
        f'<i style="background:{mark}"></i>' if mark.startswith("#") else f'<i class="{mark}"></i>'
    )
