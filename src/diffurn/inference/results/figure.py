"""The figure of a fit: every ω with its interval, and observed and expected counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from diffurn.inference.results.fit_report import scale_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from diffurn.inference.results.fit_result import FitResult
    from diffurn.inference.results.fitted import Fitted

BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#6E6E6E"  # distinct for colour-blind readers
PALE = "#EBEBEB"
COLOURS = [BLUE, VERMILION, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
LONGEST_NAME = 34
# An interval that reaches farther from all estimates than this (in log ω) ends in an arrow.
WIDEST_INTERVAL = math.log(1e4)
LARGEST_LOG = 600.0  # within the range of float64
LARGEST_RATIO = 30.0  # of counts on a linear axis


def forest_plot(result: FitResult) -> Figure:
    """A matplotlib `Figure` of one fitted data set.

    The first panel shows each coefficient (ω of a group; with covariates, the factor on ω per unit)
    with its interval on a logarithmic axis. An arrow marks an interval without an end on that side.
    The second panel shows the balls drawn of each group, the counts expected by the fit, and the
    counts expected if all balls were alike.

    Args:
        result: a `FitResult` of a single data set.
    """
    figure_class = _figure_class()
    by_group = result.names == result.groups
    rows = max(3, len(result.groups)) if by_group else len(result.names) + len(result.groups) + 2
    spacing, size = (0.3, 9.0) if rows <= 30 else (0.22, 7.5) if rows <= 60 else (0.12, 5.0)
    figure: Figure = figure_class(
        figsize=(9.5 if by_group else 7.5, 1.5 + spacing * rows), layout="constrained", dpi=160
    )
    if by_group:  # side by side, one line for each group
        forest, counts = figure.subplots(1, 2, sharey=True, width_ratios=[1.5, 1])
        counts.tick_params(labelleft=False)
    else:
        forest, counts = figure.subplots(
            2, 1, height_ratios=[len(result.names) + 1, len(result.groups) + 1]
        )
    title, scale = "Factor on ω", "per unit of the covariate"
    if by_group:
        title = "Importance ω"
        scale = f"relative to {_briefly(scale_of(result))}"
    _draw_forest(forest, result, size, title, scale, result.reference)
    _draw_counts(counts, result)
    for axes, names in ((forest, result.names), (counts, result.groups)):
        _name_rows(axes, names, size)
    return figure


def odds_ratio_plot(result: Fitted) -> Figure:
    """A matplotlib `Figure` of the odds ratios of a conditional logistic regression, with their
    intervals on a logarithmic axis.
    """
    figure_class = _figure_class()
    rows = max(3, len(result.names))
    spacing, size = (0.3, 9.0) if rows <= 30 else (0.22, 7.5) if rows <= 60 else (0.12, 5.0)
    figure: Figure = figure_class(
        figsize=(7.5, 1.3 + spacing * rows), layout="constrained", dpi=160
    )
    axes = figure.subplots()
    _draw_forest(axes, result, size, "Odds ratio", "exp β, per unit of the covariate")
    _name_rows(axes, result.names, size)
    return figure


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise ImportError(f"a figure needs {missing.name}: pip install matplotlib") from missing
    return Figure


def _name_rows(axes: Axes, names: Sequence[str], size: float) -> None:
    """The names on the left, with pale lines from each name to its number."""
    axes.set_yticks(range(len(names)), [shortened(name) for name in names], size=size)
    axes.set_ylim(len(names) - 0.4, -0.6)  # the first name on top
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8, color=GREY)
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    lines = axes.get_yaxis_transform()
    axes.hlines(range(len(names)), 0, 1, colors=PALE, linewidths=0.8, transform=lines, zorder=0)


def _draw_forest(
    axes: Axes,
    result: Fitted,
    size: float,
    title: str,
    scale: str,
    anchor: str | None = None,
) -> None:
    """`anchor` is the name of the reference, which has no interval."""
    estimates, lower, upper = (
        values.detach().double().cpu().tolist()
        for values in (result.coefficients, result.lower, result.upper)
    )
    low, high = _limits(estimates, lower, upper)
    axes.axvline(1, color=GREY, linewidth=0.8, zorder=0.5)
    intervals: list[tuple[int, float, float]] = []
    # markers of estimates, of the reference and of open ends
    marks: dict[str, list[tuple[int, float]]] = {"o": [], "D": [], "<": [], ">": []}
    for row, (name, estimate, start, end) in enumerate(
        zip(result.names, estimates, lower, upper, strict=True)
    ):
        reference = name == anchor
        if low <= estimate <= high:
            marks["D" if reference else "o"].append((row, estimate))
        if not (reference or math.isnan(start) or math.isnan(end)):
            intervals.append((row, min(max(start, low), high), min(max(end, low), high)))
            marks["<"] += [(row, low)] if start < low else []
            marks[">"] += [(row, high)] if end > high else []
        described = "reference" if reference else _described(estimate, start, end)
        axes.annotate(
            described,
            (1, row),
            (6, 0),
            axes.get_yaxis_transform(),
            "offset points",
            size=size,
            va="center",
            color="black",
        )
    places, starts, stops = zip(*intervals, strict=True) if intervals else ((), (), ())
    axes.hlines(
        places, [*map(math.exp, starts)], [*map(math.exp, stops)], colors=BLUE, linewidths=1.6
    )
    for marker, marked in marks.items():
        colour, face = (GREY, "white") if marker == "D" else (BLUE, BLUE)
        axes.plot(
            [math.exp(value) for _, value in marked],
            [row for row, _ in marked],
            marker,
            c=colour,
            mfc=face,
            markersize=5.5,
        )
    axes.set_xscale("log")
    room = 0.03 * (high - low)  # for the heads of arrows
    axes.set_xlim(math.exp(low - room), math.exp(high + room))
    _label_log_axis(axes, low, high)
    axes.set_title(f"{title}, with its {100 * result.level:g}% interval", loc="left", size=10)
    axes.set_xlabel(scale, size=9)


def forest_plot_by(by: str, fits: Mapping[str, FitResult]) -> Figure:
    """A matplotlib `Figure` of several fits with the same coefficients: each coefficient has one
    line for each fit, with its interval.

    Args:
        by: what tells the fits apart.
        fits: results by their names.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise ImportError(f"a figure needs {missing.name}: pip install matplotlib") from missing
    names = list(dict.fromkeys(name for result in fits.values() for name in result.names))
    first = next(iter(fits.values()))
    lines = len(names) * (len(fits) + 1)
    figure = Figure(figsize=(8.0, 1.6 + 0.17 * lines), layout="constrained", dpi=160)
    axes = figure.subplots()
    ends = [
        [tensor.detach().double().cpu().tolist() for tensor in (x.coefficients, x.lower, x.upper)]
        for x in fits.values()
    ]
    low, high = _limits(*([x for end in ends for x in end[k]] for k in range(3)))
    axes.axvline(1, color=GREY, linewidth=0.8, zorder=0.5)
    step = 0.8 / max(len(fits), 2)
    for k, (label, result) in enumerate(fits.items()):
        colour = COLOURS[k % len(COLOURS)]
        estimates, lower, upper = ends[k]
        shown = False
        for name, estimate, start, end in zip(result.names, estimates, lower, upper, strict=True):
            place = names.index(name) + (k - (len(fits) - 1) / 2) * step
            if name == result.reference or math.isnan(start) or math.isnan(end):
                if name == result.reference and k == 0:
                    axes.plot([1], [names.index(name)], "D", c=GREY, mfc="white", markersize=5.5)
                continue
            left, right = (math.exp(min(max(value, low), high)) for value in (start, end))
            axes.hlines(place, left, right, colors=colour, linewidth=1.6)
            for value, bound, mark in ((start, low, "<"), (end, high, ">")):
                if (value < bound) if mark == "<" else (value > bound):
                    axes.plot([math.exp(bound)], [place], mark, color=colour, markersize=5)
            if low <= estimate <= high:
                axes.plot(
                    [math.exp(estimate)],
                    [place],
                    "o",
                    color=colour,
                    markersize=4.5,
                    label=None if shown else shortened(label),
                )
                shown = True
    axes.set_xscale("log")
    room = 0.03 * (high - low)
    axes.set_xlim(math.exp(low - room), math.exp(high + room))
    _label_log_axis(axes, low, high)
    by_group = first.names == first.groups
    title = "Importance ω" if by_group else "Factor on ω"
    axes.set_title(
        f"{title} by {shortened(by)}, with {100 * first.level:g}% intervals", loc="left", size=10
    )
    relative = f"relative to {_briefly(scale_of(first))}"
    axes.set_xlabel(relative if by_group else "per unit of the covariate", size=9)
    axes.set_yticks(range(len(names)), [shortened(name) for name in names], size=9)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8, color=GREY)
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _briefly(scale: str) -> str:
    return scale if len(scale) <= 2 * LONGEST_NAME else "the geometric mean of some groups"


def _draw_counts(axes: Axes, result: FitResult) -> None:
    counts = (result.observed, result.expected, result.central_expected)
    observed, expected, alike = (values.detach().double().cpu().tolist() for values in counts)
    rows = range(len(observed))
    axes.hlines(rows, observed, expected, colors=VERMILION, linewidths=1.2, alpha=0.6, zorder=1)
    axes.plot(alike, rows, "|", color=GREY, markersize=9, clip_on=False, label="if ω = 1")
    axes.plot(
        expected,
        rows,
        "o",
        color=BLUE,
        markerfacecolor="none",
        markersize=8,
        clip_on=False,
        label="by the fit",
    )
    axes.plot(observed, rows, "o", color=VERMILION, markersize=4, clip_on=False, label="drawn")
    positive = [count for count in observed + expected + alike if count >= 1]
    if positive and max(positive) > LARGEST_RATIO * min(positive):
        axes.set_xscale("symlog", linthresh=1)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        largest, stride = math.ceil(math.log10(max(positive))), 1 + (max(positive) > 1e5)
        axes.set_xticks([0] + [10**power for power in range(0, largest + 1, stride)])
    axes.set_xlim(0, 1.05 * max([1.0, *positive]))
    axes.set_xlabel("balls", size=9)
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1.02, 1),
        ncols=3,
        columnspacing=1,
        frameon=False,
        fontsize=9,
        handletextpad=0.2,
        borderaxespad=0.1,
    )


def _limits(estimates: list[float], lower: list[float], upper: list[float]) -> tuple[float, float]:
    """The ends of the logarithmic axis. It shows ω = 1 and all finite values that are not too far
    away.
    """
    finite = [value for value in estimates if math.isfinite(value)] + [0.0]
    nearest, farthest = min(finite) - WIDEST_INTERVAL, max(finite) + WIDEST_INTERVAL
    ends = [min(max(value, nearest), farthest) for value in lower + upper if math.isfinite(value)]
    low, high = min(finite + ends), max(finite + ends)
    margin = max(0.06 * (high - low), 0.1)
    return max(low - margin, -LARGEST_LOG), min(high + margin, LARGEST_LOG)


def _label_log_axis(axes: Axes, low: float, high: float) -> None:
    """Labels a few round numbers: powers of ten if there are several, else also 2 and 5 times
    these.
    """
    decades = (high - low) / math.log(10)
    steps = (1, 2, 5) if decades <= 3 else (1,)
    stride = max(1, math.ceil(decades / 8))
    powers = range(math.floor(low / math.log(10)), math.ceil(high / math.log(10)) + 1)
    ticks = [step * 10.0**power for power in powers if power % stride == 0 for step in steps]
    ticks = [tick for tick in ticks if low <= math.log(tick) <= high]
    if len(ticks) < 3:
        step = 10 ** math.floor(math.log10((math.exp(high) - math.exp(low)) / 2))
        first, last = math.ceil((math.exp(low) - 1) / step), math.floor((math.exp(high) - 1) / step)
        stride = math.ceil((last - first + 1) / 8)
        ticks = [1 + step * k for k in range(first, last + 1) if k % stride == 0]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)


def _described(estimate: float, lower: float, upper: float) -> str:
    """Such as 5.28 (4.21 to 6.63), or the bound of an infinite estimate."""
    if math.isnan(estimate):
        return "not comparable"
    if estimate == -math.inf:
        return f"0 (up to {_number(upper)})"
    if estimate == math.inf:
        return f"∞ (from {_number(lower)})"
    return f"{_number(estimate)} ({_number(lower)} to {_number(upper)})"


def _number(log_value: float) -> str:
    if abs(log_value) > 700:  # beyond the range of float64
        return "∞" if log_value > 0 else "0"
    text = f"{math.exp(log_value):#.3g}"
    return text.rstrip(".") if "e" not in text else f"{math.exp(log_value):.1e}"


def shortened(name: str) -> str:
    short = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
    return short.replace("$", r"\$")  # matplotlib would read it as a formula
