"""Residuals of the rows of a fit: as numbers, as a data frame and as a figure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from diffurn.inference.solving.estimates import chi_squared_tail

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from diffurn.inference.results.fit_result import FitResult
    from diffurn.inference.solving.rowwise import Deviations

_MOST_LABELS = 12
_FAR = 3.0  # residuals beyond it are named in the figure


class Residuals(NamedTuple):
    """How far each row is from what the fit expects.

    Attributes:
        rows: labels of the rows, or their numbers from 0.
        groups: names of the groups.
        observed: balls drawn, ``(..., R, c)``.
        expected: balls expected by the fit, ``(..., R, c)``.
        pearson: (observed - expected) / standard deviation under the fit, ``(..., R, c)``; nan
            where only one count was possible.
        statistic: Pearson's χ² of each row, ``(..., R)``. Its sum is the goodness of fit.
        degrees_of_freedom: of each row alone, ``(..., R)``; the fit takes a few from their sum.
        p_value: of each row alone, ``(..., R)``; small in rows that differ from the others.
    """

    rows: tuple[str, ...]
    groups: tuple[str, ...]
    observed: Tensor
    expected: Tensor
    pearson: Tensor
    statistic: Tensor
    degrees_of_freedom: Tensor
    p_value: Tensor

    def to_list(self) -> list[dict[str, Any]]:
        """A dictionary per row and group of a single data set; the columns of `to_frame`."""
        rows = zip(
            self.rows,
            *(x.tolist() for x in (self.observed, self.expected, self.pearson)),
            *(x.tolist() for x in (self.statistic, self.degrees_of_freedom, self.p_value)),
            strict=True,
        )
        return [
            {
                "row": row,
                "group": group,
                "drawn": x,
                "expected": mean,
                "pearson": residual,
                "row_chi2": chi2,
                "row_df": df,
                "row_p": p,
            }
            for row, drawn, expected, pearson, chi2, df, p in rows
            for group, x, mean, residual in zip(self.groups, drawn, expected, pearson, strict=True)
        ]

    def to_frame(self) -> Any:
        """A pandas data frame with a line per row and group of a single data set."""
        try:
            from pandas import DataFrame  # type: ignore[import-untyped, unused-ignore]
        except ImportError:
            raise ImportError(
                "to_frame needs pandas: pip install pandas; to_list works without"
            ) from None
        return DataFrame(self.to_list())


def residuals_of(result: FitResult, found: Deviations) -> Residuals:
    """From the deviations of the rows, with the batch shape in front."""
    observed = result.sample.counts.reshape(found.surplus.shape)
    pearson = torch.where(
        found.variance > 0, found.surplus / found.variance.clamp(min=1e-300).sqrt(), torch.nan
    )
    labels = result.row_labels or tuple(map(str, range(observed.shape[-2])))
    return Residuals(
        labels,
        result.groups,
        observed,
        observed - found.surplus,
        pearson,
        found.distance,
        found.rank,
        chi_squared_tail(found.distance, found.rank),
    )


def residual_plot(result: FitResult) -> Figure:
    """Pearson residuals of all groups, and below them Pearson's statistic of each row, in the order
    of the rows.

    Under the model most residuals lie between -2 and 2. Colours tell the groups apart; rows far
    away carry their labels.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise ImportError(f"a figure needs {missing.name}: pip install matplotlib") from missing
    from diffurn.inference.results.figure import BLUE, COLOURS, GREY, VERMILION, shortened

    residuals = result.residuals()
    figure = Figure(figsize=(8.5, 5.2), layout="constrained", dpi=160)
    upper, lower = figure.subplots(2, 1, sharex=True)
    pearson, few = residuals.pearson.cpu(), len(result.groups) <= len(COLOURS)
    rows = range(len(pearson))
    for j, group in enumerate(result.groups):
        colour, label = (COLOURS[j], shortened(group)) if few else (BLUE, None)
        upper.plot(
            rows, pearson[:, j].tolist(), "o", color=colour, markersize=4, alpha=0.8, label=label
        )
    upper.axhline(0, color=GREY, linewidth=0.8)
    for bound in (-2, 2):
        upper.axhline(bound, color=GREY, linewidth=0.8, linestyle=":")
    upper.set_title("Pearson residuals of the groups in each row", loc="left", size=10)
    if few:
        upper.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    ratio = (residuals.statistic / residuals.degrees_of_freedom.clamp(min=1)).cpu()
    places = torch.nonzero((residuals.degrees_of_freedom > 0).cpu()).flatten().tolist()
    heights = [float(ratio[row]) for row in places]
    lower.vlines(places, 0, heights, color=BLUE, linewidth=1.2)
    lower.plot(places, heights, "o", color=BLUE, markersize=3)
    lower.axhline(1, color=GREY, linewidth=0.8, label="1, by the model")
    dispersion = float(result.goodness_of_fit().dispersion)
    if math.isfinite(dispersion):
        label = f"dispersion of all rows, {dispersion:.2g}"
        lower.axhline(dispersion, color=VERMILION, linestyle="--", label=label)
    for row in _apart(places, heights):
        lower.annotate(
            shortened(residuals.rows[row]),
            (row, float(ratio[row])),
            (4, 0),
            textcoords="offset points",
            size=7,
            va="center",
        )
    lower.set_ylim(bottom=0)
    lower.set_xlabel("row", size=9)
    if len(pearson) <= _MOST_LABELS:
        lower.set_xticks(list(rows), [shortened(label) for label in residuals.rows])
    else:
        lower.xaxis.get_major_locator().set_params(integer=True)
    lower.set_title("Pearson's χ² of each row / its degrees of freedom", loc="left", size=10)
    lower.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    for axes in (upper, lower):
        axes.tick_params(labelsize=8, color=GREY)
        axes.spines[["right", "top"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(GREY)
    return figure


def _apart(places: list[int], heights: list[float]) -> list[int]:
    """The highest rows, as far as their labels do not touch each other."""
    chosen: list[tuple[int, float]] = []
    for height, row in sorted(zip(heights, places, strict=True), reverse=True)[:_MOST_LABELS]:
        near = 0.04 * max(places, default=0), 0.06 * max(heights)
        touches = any(abs(row - r) < near[0] and abs(height - h) < near[1] for r, h in chosen)
        if height > _FAR and not touches:
            chosen.append((row, height))
    return [row for row, _ in chosen]
