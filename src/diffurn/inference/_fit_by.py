"""`fit_by`: one fit for each value of a column, and whether they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from diffurn.inference._fit import fit
from diffurn.inference.reading.tables import names_of, read_table, variables_of
from diffurn.inference.results.fit_report import jsonable
from diffurn.inference.results.fit_result import FitResult
from diffurn.inference.results.fitted import LikelihoodRatio
from diffurn.inference.results.notes import is_overdispersed
from diffurn.inference.results.words import cells, listed, p_is, paragraph, rows_left_out
from diffurn.inference.solving.estimates import chi_squared_tail

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class FitsBy(dict[str, FitResult]):
    """Fits by the values of a column; ``print`` shows all of them.

    Attributes:
        by: the name of the column.
        pooled: the fit to all rows.
        failed: values that cannot be fitted, with the reason.
        left_out: rows with missing values, and rows with nothing drawn.
    """

    def __init__(
        self,
        by: str,
        fits: dict[str, FitResult],
        pooled: FitResult,
        failed: dict[str, str],
        left_out: tuple[int, int],
    ) -> None:
        super().__init__(fits)
        self.by, self.pooled, self.failed, self.left_out = by, pooled, failed, left_out

    def difference_test(self) -> LikelihoodRatio | None:
        """Do the fits differ? The likelihood ratio of separate fits against the pooled one. None
        where it is not valid: with penalties or standard errors that are not the model's, and where
        a value could not be fitted.
        """
        if self.failed or self.pooled.penalty or self.pooled.covariance_kind != "model":
            return None
        gain = torch.stack([result.log_likelihood for result in self.values()]).sum()
        statistic = (2 * (gain - self.pooled.log_likelihood)).clamp(min=0)
        number = torch.stack([result.parameters for result in self.values()]).sum()
        degrees = number - self.pooled.parameters
        return LikelihoodRatio(statistic, degrees, chi_squared_tail(statistic, degrees))

    @property
    def notes(self) -> list[str]:
        """Sentences about rows that were left out and values that cannot be fitted."""
        failed = [
            f"{self.by} {value} cannot be fitted: {why}." for value, why in self.failed.items()
        ]
        return rows_left_out(*self.left_out) + failed

    def title(self, value: str) -> str:
        """A line and a rule above the summary of a value."""
        line = f"{self.by}: {value}"
        return f"{line}\n{'═' * cells(line)}"

    def ending(self) -> str:
        """The paragraphs below all summaries."""
        lines = []
        test = self.difference_test()
        if test is not None and int(test.degrees_of_freedom) > 0:
            p = float(test.p_value)
            verdict = "yes" if p < 1 - self.pooled.level else "nothing here speaks for it"
            if any(is_overdispersed(result) for result in self.values()):
                verdict += ", but rows differ by more than chance, so this p is too small"
            lines += paragraph(
                f"Do the fits differ by {self.by}? Likelihood ratio: χ² = "
                f"{float(test.statistic):,.2f} with {int(test.degrees_of_freedom):,} df, "
                f"{p_is(p)}: {verdict}."
            )
        for note in self.notes:
            lines += paragraph("Note: " + note, "      ")
        return "\n".join(lines)

    def __str__(self) -> str:
        parts = [f"{self.title(value)}\n{result}" for value, result in self.items()]
        return "\n\n".join(filter(None, [*parts, self.ending()]))

    def __repr__(self) -> str:
        return f"FitsBy(by={self.by!r}, {listed(list(self))})"

    def to_frame(self, selection: bool = False) -> Any:
        """The data frames of all fits below each other, with the value in the index."""
        from pandas import concat  # type: ignore[import-untyped, unused-ignore]

        frames = {value: result.to_frame(selection) for value, result in self.items()}
        return concat(frames, names=[self.by])

    def plot(self) -> Figure:
        """A figure of the weights of all fits with their intervals."""
        from diffurn.inference.results.figure import forest_plot_by

        return forest_plot_by(self.by, self)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings and lists."""
        test = self.difference_test()
        return {
            "by": self.by,
            "fits": {value: result.to_dict() for value, result in self.items()},
            "difference_test": None
            if test is None
            else jsonable({name: number.item() for name, number in test._asdict().items()}),
            "notes": self.notes,
        }


def fit_by(data: Any, by: str, **options: Any) -> FitsBy:
    """One fit for each value of a column of a table; a mapping from values to results.

    Args:
        data: a `CountTable` or a data frame.
        by: a column with one value for each row, such as a site or a year.
        options: those of `fit`.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame(
        ...     {
        ...         "site": ["north", "north", "south", "south"],
        ...         "m_vole": [9, 8, 9, 7],
        ...         "x_vole": [5, 4, 2, 1],
        ...         "m_shrew": [8, 8, 6, 9],
        ...         "x_shrew": [2, 3, 4, 6],
        ...     }
        ... )
        >>> fits = fit_by(frame, "site", reference="shrew")
        >>> {site: round(float(result.weights[0]), 2) for site, result in fits.items()}
        {'north': 2.35, 'south': 0.13}
        >>> print(f"{float(fits.difference_test().p_value):.3f}")
        0.005
    """
    columns, na = options.pop("columns", None), options.pop("na", "drop")
    needed: Sequence[str] = variables_of(
        names_of(options.get("covariates")), options.get("formula")
    )
    cluster = options.get("cluster")
    needed = tuple(dict.fromkeys((by, *needed, *([cluster] if cluster is not None else []))))
    table = read_table(data, needed, columns, na)
    fits, failed = {}, {}
    for value, part in table.by(by).items():
        try:
            fits[value] = fit(part, **options)
        except ValueError as problem:
            failed[value] = str(problem)
    if not fits:
        raise ValueError(f"no value of {by} can be fitted; {by} {next(iter(failed.items()))}")
    pooled = fit(table, **options)
    return FitsBy(by, fits, pooled, failed, table.left_out[:2])
