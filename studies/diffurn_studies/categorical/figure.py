"""The figure of the thought experiment with categoricals."""

from __future__ import annotations

from matplotlib.figure import Figure

from diffurn_studies.categorical.model import DRAWS, GROUP_SIZES
from diffurn_studies.categorical.ways import WAYS
from diffurn_studies.harness.drawing import plain
from diffurn_studies.harness.study import Results

COLOURS = {"parallel": "#D55E00", "sequence": "#0072B2", "rest": "#009E73"}
CAPTIONS = {
    "categorical": "Left, the number of balls that trained categoricals draw instead of n = 9. "
    "Right, the share of invalid draws over the training."
}


def figures_of(results: Results) -> dict[str, Figure]:
    """The totals that are drawn instead of n, and the invalid share over the training."""
    figure = Figure(figsize=(11, 4.2), layout="constrained", dpi=160)
    left, right = figure.subplots(1, 2)
    for index, unit in enumerate(("parallel", "sequence")):
        totals = results.records[unit]["totals"]
        left.bar(
            [total + (index - 0.5) * 0.4 for total in range(len(totals))],
            totals,
            0.4,
            color=COLOURS[unit],
            label=WAYS[unit],
        )
    left.annotate(
        "the urn: always n = 9",
        (DRAWS, 1),
        (-8, -2),
        textcoords="offset points",
        size=9,
        ha="right",
        va="top",
    )
    left.set(
        xlabel="Σx of a draw", ylabel="probability, after training", yscale="log", ylim=(1e-6, 2)
    )
    left.set_xticks(range(0, sum(GROUP_SIZES) + 1, 3))
    left.legend(frameon=False, fontsize=9, loc="upper right")
    for unit in ("parallel", "sequence", "rest"):
        record = results.records[unit]
        right.plot(record["steps"], record["invalid"], color=COLOURS[unit], label=WAYS[unit])
    right.set(
        yscale="log",
        xlabel="step of training on the urn's law",
        ylabel="share of invalid draws",
        ylim=(None, 1.3),
    )
    right.text(0.02, 0.03, "the urn: none, before any training", transform=right.transAxes, size=9)
    right.legend(frameon=False, fontsize=9)
    for panel in (left, right):
        plain(panel)
    return {"categorical": figure}
