"""Pictures that the pages share, in the colours of Okabe and Ito, which colour-blind readers can
tell apart.
"""

from __future__ import annotations

import io
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, Wedge

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
GREY = "#6E6E6E"


def _show_figures_in_notebooks() -> None:
    """A `Figure` at the end of a cell becomes a picture on the page."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        shell.display_formatter.formatters["image/png"].for_type(Figure, _png)


def _png(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", bbox_inches="tight")
    return content.getvalue()


_show_figures_in_notebooks()


def keep(name: str, figure: Figure) -> Figure:
    """The figure, which the gallery shows as well."""
    if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
        from myst_nb import glue

        _png(figure)  # the first drawing moves the axes; both pages then show the same picture
        glue(name, figure, display=False)
    return figure


def panels(
    rows: int = 1, columns: int = 1, height: float = 3.2, **options: Any
) -> tuple[Figure, Any]:
    """A figure as wide as the text, and its axes; narrow enough that its letters can be read on a
    telephone.
    """
    figure = Figure(
        figsize=({1: 6.2, 2: 6.8}.get(columns, 2.9 * columns), height * rows),
        layout="constrained",
        dpi=150,
    )
    axes = figure.subplots(rows, columns, **options)
    for panel in np.ravel(axes):
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.25)
    return figure, axes


def law(panel: Any, probabilities: Any, colour: str, label: str, filled: bool = False) -> None:
    """P(X = 0), P(X = 1), … as a line, or as an area."""
    mass = np.asarray(probabilities)
    counts = np.arange(len(mass))
    if filled:
        panel.fill_between(
            counts, mass, step="mid", color=colour, alpha=0.35, linewidth=0, label=label
        )
    else:
        panel.plot(counts, mass, color=colour, linewidth=1.6, label=label)


def mass_of(urn: Any, group: int) -> np.ndarray:
    """P(X_group = 0), P(X_group = 1), … up to the size of the group."""
    import torch

    counts = torch.arange(int(urn.group_sizes[group]) + 1)
    values = torch.zeros(len(counts), *urn.event_shape).index_fill_(
        -1, torch.tensor(group), 1
    ) * counts.unsqueeze(-1)
    return urn.marginals.log_prob(values)[:, group].exp().detach().numpy()


def legend_below(figure: Figure, panel: Any, columns: int = 3) -> None:
    """The legend of a panel under the figure, where it hides nothing."""
    figure.legend(
        *panel.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=8,
    )


# The paper's two illustrations.


def _ball(panel: Any, x: float, y: float, colours: Sequence[str], radius: float = 0.36) -> None:
    """A ball; one of several colours stands for merged groups."""
    if len(colours) == 1:
        panel.add_patch(
            Circle((x, y), radius, facecolor=colours[0], edgecolor="black", linewidth=0.8)
        )
    for place, colour in enumerate(colours if len(colours) > 1 else ()):
        share = 360 / len(colours)
        panel.add_patch(
            Wedge(
                (x, y),
                radius,
                90 + place * share,
                90 + (place + 1) * share,
                facecolor=colour,
                edgecolor="black",
                linewidth=0.8,
            )
        )


def _vessel(panel: Any, left: float, bottom: float, width: float, height: float) -> None:
    panel.plot(
        [left, left, left + width, left + width],
        [bottom + height, bottom, bottom, bottom + height],
        color="black",
        linewidth=1.4,
    )


def _blank(panel: Any, xlim: tuple[float, float], ylim: tuple[float, float]) -> None:
    panel.set(xlim=xlim, ylim=ylim, aspect="equal")
    panel.axis("off")


def _heap(
    panel: Any, left: float, bottom: float, balls: Sequence[Sequence[str]], columns: int
) -> None:
    for place, colours in enumerate(balls):
        _ball(panel, left + 0.5 + place % columns, bottom + 0.5 + place // columns, colours)


def urn_picture(group_sizes: Sequence[int], draws: int, seed: int = 0) -> Figure:
    """The setting: groups of balls above, all of them in an urn, and how many are taken."""
    figure = Figure(figsize=(6.2, 3.4), layout="constrained", dpi=150)
    panel = figure.subplots()
    balls = [(COLOURS[group],) for group, size in enumerate(group_sizes) for _ in range(size)]
    left = 0.0
    for group, size in enumerate(group_sizes):
        columns = -(-size // 2)
        _heap(panel, left, 4.2, [(COLOURS[group],)] * size, columns)
        panel.text(left + columns / 2, 6.6, f"$m_{group + 1} = {size}$", ha="center", size=11)
        left += columns + 1
    width = left - 1
    across = -(-len(balls) // 2)
    start = (width - across) / 2
    _vessel(panel, start - 0.1, 0, across + 0.2, 2.6)
    mixed = [balls[i] for i in np.random.default_rng(seed).permutation(len(balls))]
    _heap(panel, start, 0.1, mixed, across)
    panel.text(width + 0.5, 5.1, f"$N = {len(balls)}$ balls", size=11, va="center")
    panel.text(width + 0.5, 1.2, f"$n = {draws}$ are drawn", size=11, va="center")
    _blank(panel, (-0.5, width + 4.6), (-0.4, 7.3))
    return figure


def chain_picture(
    group_sizes: Sequence[int], counts: Sequence[int], laws: Sequence[dict[str, np.ndarray]]
) -> Figure:
    """A draw group by group: the group against all later ones, their laws, and what came out.

    Args:
        group_sizes: m.
        counts: the draw x.
        laws: for every group but the last the probabilities of its counts 0, 1, … by each name.
    """
    groups = len(group_sizes)
    figure = Figure(figsize=(9, 5.6), layout="constrained", dpi=150)
    axes = figure.subplots(3, groups, height_ratios=(1.2, 1.6, 0.7))
    left = sum(counts)
    for step in range(groups):
        later = COLOURS[step + 1 : groups]
        rest = sum(group_sizes[step + 1 :])
        above, middle, below = axes[:, step]
        balls = [(COLOURS[step],)] * group_sizes[step] + [later] * rest
        _vessel(above, -0.1, -0.05, 6.2, 2.4)
        _heap(above, 0, 0, balls, 6)
        against = f"against {rest} later balls" if rest else "takes what is left"
        above.set_title(
            f"group {step + 1}: {group_sizes[step]} balls {against},\n{left} draws left", size=9
        )
        _blank(above, (-0.4, 6.4), (-0.3, 2.6))
        if step < groups - 1:
            width = 0.8 / len(laws[step])
            for place, (name, mass) in enumerate(
                (name, np.asarray(mass)) for name, mass in laws[step].items()
            ):
                where = np.arange(len(mass)) + (place - (len(laws[step]) - 1) / 2) * width
                middle.bar(
                    where,
                    mass,
                    width,
                    label=name,
                    color=(COLOURS[step], "white")[place % 2],
                    edgecolor=COLOURS[step],
                    hatch=("", "////")[place % 2],
                )
            highest = max(float(np.asarray(mass).max()) for mass in laws[step].values())
            middle.set(
                xlabel=f"count of group {step + 1}",
                xticks=range(len(mass)),
                ylim=(0, 1.35 * highest),
            )
            middle.spines[["top", "right"]].set_visible(False)
            middle.legend(frameon=False, fontsize=8)
        else:
            middle.axis("off")
            middle.text(
                0.5,
                0.5,
                f"nothing to choose:\n$x_{groups} = {left}$",
                ha="center",
                va="center",
                size=10,
            )
        _heap(below, 0, 0, [(COLOURS[step],)] * counts[step], 6)
        below.text(-0.2, 0.5, f"$x_{step + 1} = {counts[step]}$", ha="right", va="center", size=10)
        _blank(below, (-2.4, 6.4), (0, 1))
        left -= counts[step]
    axes[1, 0].set_ylabel("probability", size=9)
    return figure


def layers_picture(
    layers: Sequence[tuple[str, str, Sequence[str]]], arrows: Sequence[tuple[str, str]]
) -> Figure:
    """Boxes one above the other, each with the name, the purpose and the modules of a layer. A
    line leads from each layer, and its arrows end at the layers that it imports.
    """
    texts = {
        name: textwrap.wrap(
            "\u00a0· ".join(module.removeprefix(f"{name}.") for module in modules), 118
        )
        for name, _, modules in layers
    }
    heights = {name: 0.62 + 0.14 * len(lines) for name, lines in texts.items()}
    figure = Figure(figsize=(9, 0.95 * sum(heights.values())), layout="constrained", dpi=150)
    panel = figure.subplots()
    order = {name: row for row, (name, _, _) in enumerate(layers)}
    middle, y = {}, sum(heights.values())
    for name, purpose, _ in layers:
        y -= heights[name]
        box = FancyBboxPatch(
            (0, y + 0.1),
            6,
            heights[name] - 0.16,
            boxstyle="round,pad=0,rounding_size=0.08",
            facecolor="#EAF2F8",
            edgecolor=COLOURS[0],
        )
        panel.add_patch(box)
        top = y + heights[name] - 0.06
        panel.text(0.12, top - 0.2, name, size=10, weight="bold", va="center")
        panel.text(5.88, top - 0.2, purpose, size=8.5, va="center", ha="right", color="#333333")
        panel.text(
            0.12,
            top - 0.36,
            "\n".join(texts[name]),
            size=7.5,
            va="top",
            color="#444444",
            linespacing=1.25,
        )
        middle[name] = y + heights[name] / 2
    sources = [name for name in order if any(source == name for source, _ in arrows)]
    for column, source in enumerate(sources):
        x, colour = 6.3 + 0.2 * column, COLOURS[order[source] % len(COLOURS)]
        aside = 0.02 * (column - len(sources) / 2)  # arrows at one box do not hide each other
        ends = [middle[target] + aside for name, target in arrows if name == source]
        panel.plot((6, x, x), (middle[source], middle[source], min(ends)), color=colour)
        panel.plot(6, middle[source], "o", color=colour, markersize=4)
        for y in ends:
            style = {"arrowstyle": "-|>", "color": colour, "shrinkA": 0, "shrinkB": 0}
            panel.annotate("", (6, y), (x, y), arrowprops=style)
    panel.set(xlim=(-0.05, 6.4 + 0.2 * len(sources)), ylim=(0, sum(heights.values())))
    panel.axis("off")
    return figure
