"""The figure of the study of subsets."""

from __future__ import annotations

import math

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from diffurn_studies.harness.drawing import COLOURS, legend_below, plain
from diffurn_studies.harness.study import Results
from diffurn_studies.subsets.contenders import CONTENDERS
from diffurn_studies.subsets.tables import bias_of, in_errors, law_of, losses_of, seeds_of

CAPTIONS = {
    "subsets-toy": "Left, bias and spread of gradients through 5 of 10 items, by loss; marks are "
    "open where no bias was found. Right, total variation of the draws to the law that is scored."
}
_COLOURS = [*COLOURS[:7], "#999999", "#8B4513", "#8A2BE2"]
_SIZE = "5 of 10"
_MARKS = {"distance": "o", "quadratic": "s", "threshold": "^"}


def colour_of(contender: str) -> str:
    return _COLOURS[list(CONTENDERS).index(contender)]


def figures_of(results: Results) -> dict[str, Figure]:
    """Bias against spread of all contenders, and their draws against the law that is scored."""
    figure = Figure(figsize=(10, 5.4), layout="constrained", dpi=150)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    styles = {name: {"color": colour_of(name)} for name in results.options.contenders}
    for name, style in styles.items():
        for loss in losses_of(results, _SIZE):
            found = [bias_of(record, _SIZE, name, loss) for record in seeds_of(results)]
            bias = _mean([each["bias"] for each in found])
            zero = all(in_errors(each, "bias") <= 3 for each in found)
            spread = _mean([each["spread"] for each in found])
            fill = "none" if zero else style["color"]
            left.plot(bias, spread, _MARKS[loss], markersize=8, mfc=fill, **style)
    left.set(
        xscale="log",
        yscale="log",
        xlabel="bias, relative to the gradient\n(open: within three standard errors of zero)",
        ylabel=f"spread of a gradient from {results.options.samples} draws",
        title=f"gradients, {_SIZE} items",
    )
    for place, (name, style) in enumerate(styles.items()):
        law = law_of(name)
        found = [record[_SIZE][name]["draws"][law] for record in seeds_of(results)]
        right.plot([each["variation"] for each in found], [place] * len(found), "o", **style)
        right.plot([each["noise"] for each in found], [place] * len(found), "|", color="black")
    names = [CONTENDERS[name].words for name in styles]
    right.set(xscale="log", xlabel="total variation of the draws\n(bars: chance)", title="draws")
    right.set_yticks(range(len(names)), names)
    right.invert_yaxis()
    for panel in (left, right):
        plain(panel)
    handles = [
        Line2D([], [], linestyle="", marker=mark, color="grey", label=loss)
        for loss, mark in _MARKS.items()
    ]
    handles += [
        Line2D([], [], linestyle="", marker="o", color=style["color"], label=CONTENDERS[name].words)
        for name, style in styles.items()
    ]
    legend_below(figure, handles, 3)
    return {"subsets-toy": figure}


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
