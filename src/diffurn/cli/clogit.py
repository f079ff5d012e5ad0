"""`diffurn clogit`: conditional logistic regression of a table of cases and controls."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diffurn.cli.fit_options import (
    ERRORS,
    OUTPUT,
    ROWS,
    AsJson,
    Level,
    Missing,
    Penalty,
    Ridge,
    check_figure,
    check_level,
    check_ridge,
)
from diffurn.cli.models import Model
from diffurn.cli.output import print_result, progress_bar, refuse, refusing, write_figure

if TYPE_CHECKING:
    from diffurn.inference.reading.columns import Frame
    from diffurn.inference.reading.design import Formula


class Interval(str, Enum):
    wald = "wald"
    profile = "profile"


def command(
    data: Annotated[
        str, typer.Argument(help="The CSV file; - is the standard input.", show_default=False)
    ],
    formula: Annotated[
        str,
        typer.Argument(
            help='Such as "case ~ age + C(smoker)"; the case is 1, a control 0.',
            show_default=False,
        ),
    ],
    strata: Annotated[
        list[str] | None,
        typer.Option(
            help="The column that names the stratum of each row; may be repeated.",
            show_default="all rows are one stratum",
        ),
    ] = None,
    model: Annotated[
        Model, typer.Option(help="fisher: cases at once; wallenius: one after another.")
    ] = Model.fisher,
    offset: Annotated[
        str | None, typer.Option(help="A column to add to xβ.", rich_help_panel=ROWS)
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="A column: how often each stratum occurred.", rich_help_panel=ROWS),
    ] = None,
    na: Annotated[
        Missing,
        typer.Option(help="Rows with missing values: left out, or refused.", rich_help_panel=ROWS),
    ] = Missing.drop,
    level: Level = 0.95,
    interval: Annotated[
        Interval | None,
        typer.Option(
            help="How intervals are made.",
            show_default="profile if rows · coefficients² ≤ 10,000 and errors are not robust, "
            "else wald",
            rich_help_panel=ERRORS,
        ),
    ] = None,
    robust: Annotated[
        bool,
        typer.Option("--robust", help="Robust standard errors (HC0).", rich_help_panel=ERRORS),
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Cluster-robust standard errors: strata with the same value of this column belong "
            "together.",
            rich_help_panel=ERRORS,
        ),
    ] = None,
    penalty: Annotated[
        Penalty | None,
        typer.Option(help="Keep every estimate finite by a penalty.", rich_help_panel=ERRORS),
    ] = None,
    ridge: Ridge = None,
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Draw the odds ratios to this file: .png, .svg or .pdf.", rich_help_panel=OUTPUT
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Conditional logistic regression, exact for strata of any size.

    The table has one line per person. A stratum, such as a matched set, has any
    number of lines in any order, and any number of cases. Strata without a case
    or without a control, and lines with missing values (empty, NA, NaN), are
    left out, and a note counts them. UTF-8, separated by commas, semicolons or
    tabs.

    The formula may contain strata(set), offset(log(dose)) and cluster(family),
    as in R's clogit. Text becomes a factor with the first level as reference;
    C(name) makes a factor of numbers.
    """
    check_level(level)
    check_ridge(penalty, ridge)
    check_figure(figure)
    if robust and cluster is not None:
        refuse(f"--robust: --cluster {cluster} is robust as well; give one of the two")
    parsed = _parsed(formula)
    frame = _read(data, parsed, strata or (), offset, weights, cluster)
    options = {
        "strata": tuple(strata) if strata else None,
        "offset": offset,
        "weights": weights,
        "cluster": cluster,
        "model": model.value,
        "level": level,
        "interval": None if interval is None else interval.value,
        "covariance": "HC0" if robust else None,
        "penalty": None if penalty is None else penalty.value,
        "ridge": 1.0 if ridge is None else ridge,
        "na": na.value,
    }
    _fit(formula, frame, options, figure, as_json)


def _parsed(formula: str) -> Formula:
    from diffurn.inference.reading.design import Formula

    with refusing(ValueError, ImportError):
        return Formula.parse(formula)


def _read(
    path: str,
    formula: Formula,
    strata: Sequence[str],
    offset: str | None,
    weights: str | None,
    cluster: str | None,
) -> Frame:
    """The columns that the formula and the options name."""
    from diffurn.data.plain import read_plain
    from diffurn.inference.reading.columns import Column, Frame

    numbers = [name for name in (offset, weights) if name is not None]
    labels = [*strata, *formula.specials.get("strata", ()), *formula.specials.get("cluster", ())]
    labels += [] if cluster is None else [cluster]
    with progress_bar("reading") as progress, refusing(ValueError):
        table = read_plain(path, [*formula.variables, *numbers], labels, progress)
    columns = {name: Column(name, codes, ()) for name, codes in table.labels.items()}
    for name, (values, levels) in table.variables.items():
        whole = levels is None and bool((values.nan_to_num() == values.nan_to_num().round()).all())
        columns[name] = Column(name, values, levels, whole)
    return Frame(columns, table.lines)


def _fit(
    formula: str, frame: Frame, options: dict[str, Any], figure: Path | None, as_json: bool
) -> None:
    from diffurn.inference import clogit

    with progress_bar("fitting") as progress, refusing(ValueError, ImportError):
        result = clogit(formula, data=frame, progress=progress, **options)
    with progress_bar("testing"), refusing(ValueError, ImportError):
        record, text = (result.to_dict(), "") if as_json else ({}, str(result))
        drawn = None if figure is None else result.plot()
    write_figure("--figure", drawn, figure)
    print_result(record, text, as_json, {"Figure": figure})
