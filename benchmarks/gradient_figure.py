"""Tables and a figure of judged estimators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.gradients import Judgement
from diffurn_studies.harness.drawing import legend_below
from diffurn_studies.harness.tables import Table

# Marker and colour of each family of estimators; the colours are safe for colour-blind readers.
STYLES: dict[str, dict[str, Any]] = {
    "covariance": {"marker": "o", "color": "#0072B2"},
    "score": {"marker": "s", "color": "#E69F00"},
    "score, covariance control": {"marker": "P", "color": "#E69F00"},
    "gumbel exact": {"marker": "^", "color": "#009E73"},
    "gumbel exact, Rao 8": {"marker": "*", "color": "#009E73"},
    "gumbel exact, draws left cut": {"marker": "X", "color": "#56B4E9"},
    "gumbel merged": {"marker": "v", "color": "#D55E00"},
}
# Smaller values are drawn at the edge.
SMALLEST_SPREAD, SMALLEST_BIAS = 1e-2, 1e-3


def tables(judgements: Sequence[Judgement]) -> Iterator[Table]:
    """A table for each problem, with the least biased estimator first."""
    for (urn, function), group in _by_problem(judgements).items():
        rows = []
        for j in sorted(group, key=lambda j: (round(j.bias, 3), j.spread)):
            costs = f"{j.microseconds_per_draw:.1f}", f"{j.kilobytes_per_draw:.2f}"
            rows.append(
                [j.estimator, f"{j.bias:.3f}", f"{j.bias_error:.3f}", f"{j.spread:.2f}", *costs]
            )
        yield Table(
            f"{function}, {urn}",
            ["estimator", "bias", "± error", "spread", "µs / draw", "kB / draw"],
            rows,
        )


def _by_problem(judgements: Sequence[Judgement]) -> dict[tuple[str, str], list[Judgement]]:
    groups: dict[tuple[str, str], list[Judgement]] = {}
    for judgement in judgements:
        groups.setdefault((judgement.urn, judgement.function), []).append(judgement)
    return groups


def _family(estimator: str) -> str:
    """The name without its temperature."""
    return ", ".join(part for part in estimator.split(", ") if not part.startswith("τ"))


def _temperature(estimator: str) -> float:
    return float(estimator.partition("τ = ")[2].partition(",")[0] or 1.0)


def figure(judgements: Sequence[Judgement]) -> Figure:
    """Bias over spread for every problem; the best estimators are at the lower left."""
    problems = _by_problem(judgements)
    urns, functions = (list(dict.fromkeys(key[i] for key in problems)) for i in (0, 1))
    figure = Figure(
        figsize=(2.3 * len(functions), 2.2 * len(urns) + 0.8), layout="constrained", dpi=160
    )
    panels = figure.subplots(len(urns), len(functions), squeeze=False, sharex=True, sharey=True)
    for row, urn in enumerate(urns):
        for column, function in enumerate(functions):
            panel = panels[row, column]
            panel.set_visible((urn, function) in problems)
            panel.set_title(f"{function}, {urn}", size=9)
            for judgement in problems.get((urn, function), []):
                _spot(panel, judgement)
    panels[0, 0].set(
        xscale="log", yscale="log", xlim=(SMALLEST_SPREAD / 2, 50), ylim=(SMALLEST_BIAS / 2, 3)
    )
    for panel in panels[-1]:
        panel.set_xlabel("spread of one draw / |∇|", size=9)
    figure.supylabel("bias / |∇|   (hollow: within two standard errors of zero)", size=9)
    handles = [
        Line2D([], [], linestyle="", label=family, **style) for family, style in STYLES.items()
    ]
    legend_below(
        figure, handles, 3, fontsize=8, title="Gumbel: the smaller, the colder (τ = 1, 0.5, 0.1)"
    )
    return figure


def _spot(panel: Any, judgement: Judgement) -> None:
    style = STYLES[_family(judgement.estimator)]
    aside = 1.35 ** list(STYLES).index(
        _family(judgement.estimator)
    )  # estimators without any spread would hide one another
    spread = judgement.spread if judgement.spread > SMALLEST_SPREAD else SMALLEST_SPREAD * aside
    bias = max(
        judgement.bias, judgement.bias_error, SMALLEST_BIAS
    )  # below its error a bias is only bounded
    filled = judgement.bias > max(2 * judgement.bias_error, SMALLEST_BIAS)
    size = 60 * _temperature(judgement.estimator) ** 0.6
    face = style["color"] if filled else "none"
    panel.scatter(
        spread, bias, size, face, marker=style["marker"], edgecolor=style["color"], linewidth=1.1
    )
