"""What the figures of the experiments have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import ListedColormap

# Okabe and Ito's, told apart by colour-blind readers too.
COLOURS = ("#0072B2", "#009E73", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")


def plain(panel: Any) -> None:
    """A light grid behind the data, and no box around them."""
    panel.grid(alpha=0.25)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=9)


def sequence_colours(number: int) -> ListedColormap:
    """Colours from dark to light that colour-blind readers can tell apart; the faintest are left out."""
    return ListedColormap(colormaps["viridis"](np.linspace(0, 0.92, number)))
