"""Residuals of the rows of a fit: as numbers, as a data frame and as a figure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from diffurn.inference.estimates import chi_squared_tail

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from diffurn.inference.result import FitResult
    from diffurn.inference.rowwise import Deviations

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
    """Pearson residuals against expected counts, and Pearson's statistic of the rows in order.

    Under the model most residuals lie between -2 and 2. Colours tell the groups apart; rows far
    away carry their labels.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise ImportError(f"a figure needs {missing.name}: pip install matplotlib") from missing
    from diffurn.inference.figure import BLUE, COLOURS, GREY, VERMILION, shortened

    residuals = result.residuals()
    figure = Figure(figsize=(9.5, 4.2), layout="constrained", dpi=160)
    left, right = figure.subplots(1, 2, width_ratios=[1.3, 1])
    expected, pearson = residuals.expected.cpu(), residuals.pearson.cpu()
    for j, group in enumerate(result.groups):
        few = len(result.groups) <= len(COLOURS)
        left.plot(
            expected[:, j].tolist(),
            pearson[:, j].tolist(),
            "o",
            color=COLOURS[j] if few else BLUE,
            markersize=4,
            alpha=0.7,
            label=shortened(group) if few else None,
        )
    left.axhline(0, color=GREY, linewidth=0.8)
    for bound in (-2, 2):
        left.axhline(bound, color=GREY, linewidth=0.8, linestyle=":")
    positive = expected[expected > 0]
    if len(positive) and float(positive.max()) > 30 * float(positive.min()):
        left.set_xscale("log")
    left.set_xlabel("balls expected by the fit", size=9)
    left.set_title("Pearson residuals of rows and groups", loc="left", size=10)
    if len(result.groups) <= len(COLOURS):
        left.legend(frameon=False, fontsize=8, handletextpad=0.1)
    ratio = (residuals.statistic / residuals.degrees_of_freedom.clamp(min=1)).cpu()
    known = (residuals.degrees_of_freedom > 0).cpu()
    places = torch.nonzero(known).flatten().tolist()
    right.vlines(places, 0, ratio[known].tolist(), color=BLUE, linewidth=1.2)
    right.plot(places, ratio[known].tolist(), "o", color=BLUE, markersize=3)
    right.axhline(1, color=GREY, linewidth=0.8, label="expected by the model")
    dispersion = float(result.goodness_of_fit().dispersion)
    if math.isfinite(dispersion):
        right.axhline(
            dispersion, color=VERMILION, linestyle="--", label=f"dispersion {dispersion:.2g}"
        )
    far = sorted(places, key=lambda row: -float(ratio[row]))[:_MOST_LABELS]
    for row in far:
        if float(ratio[row]) > _FAR:
            right.annotate(
                shortened(residuals.rows[row]),
                (row, float(ratio[row])),
                (4, 0),
                textcoords="offset points",
                size=7,
                va="center",
            )
    right.set_ylim(bottom=0)
    right.set_xlabel("row", size=9)
    right.set_title("Pearson's χ² of each row / its df", loc="left", size=10)
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.tick_params(labelsize=8, color=GREY)
        axes.spines[["right", "top"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(GREY)
    return figure
