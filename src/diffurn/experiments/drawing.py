"""What the figures of the experiments have in common."""

from __future__ import annotations

from typing import Any

# Okabe and Ito's, told apart by colour-blind readers too.
COLOURS = ("#0072B2", "#009E73", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")


def plain(panel: Any) -> None:
    """A light grid behind the data, and no box around them."""
    panel.grid(alpha=0.25)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=9)
