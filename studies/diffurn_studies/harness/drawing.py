"""Parts that the figures of several studies share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

# The palette of Okabe and Ito, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#009E73", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")


def plain(panel: Any) -> None:
    """Draws a light grid behind the data, and no box around them."""
    panel.grid(alpha=0.25)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=9)


def legend_below(figure: Figure, handles: Sequence[Any], columns: int, **more: Any) -> None:
    """Draws one legend for all panels, below them."""
    figure.legend(
        **{
            "handles": handles,
            "loc": "outside lower center",
            "ncols": columns,
            "frameon": False,
            "fontsize": 9,
            **more,
        }
    )


def curves(panel: Any, found: Sequence[tuple[Sequence[float], np.ndarray]], **style: Any) -> None:
    """Draws every curve (x, y) as a thin line, and the mean of the longest ones as a thick line."""
    for x, y in found:
        panel.plot(x, y, **style, linewidth=0.7, alpha=0.6)
    if longest := max((x for x, _ in found), key=len, default=[]):
        panel.plot(
            longest,
            np.mean([y for x, y in found if len(x) == len(longest)], 0),
            **style,
            linewidth=2,
        )


def sequence_colours(number: int) -> ListedColormap:
    """Colours from dark to light that colour-blind readers can tell apart, without the faintest."""
    return ListedColormap(colormaps["viridis"](np.linspace(0, 0.92, number)))
