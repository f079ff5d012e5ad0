"""`diffurn fit`: group importance from a table of counts."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diffurn.cli.fit_options import (
    ERRORS,
    OUTPUT,
    ROWS,
    AsJson,
    Covariance,
    Example,
    Interval,
    Level,
    Missing,
    Penalty,
    Ridge,
    check_covariance,
    check_covariates,
    check_files,
    check_groups,
    check_options,
    renamed,
)
from diffurn.cli.models import Model
from diffurn.cli.output import (
    print_result,
    progress_bar,
    refuse,
    refusing,
    replacing,
    write_figure,
)

if TYPE_CHECKING:
    from diffurn.data import CountTable
    from diffurn.inference import FitResult, FitsBy


def command(
    counts: Annotated[
        str | None,
        typer.Argument(help="The CSV file; - is the standard input.", show_default=False),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Group with ω = 1.", show_default="the geometric mean is 1")
    ] = None,
    model: Annotated[
        Model, typer.Option(help="fisher: taken at once; wallenius: one after another.")
    ] = Model.fisher,
    covariate: Annotated[
        list[str] | None,
        typer.Option(help="A column of numbers or text that ω depends on; may be repeated."),
    ] = None,
    formula: Annotated[
        str | None,
        typer.Option(help='A formula of columns instead, such as "~ log(age) + season".'),
    ] = None,
    by: Annotated[str | None, typer.Option(help="One fit for each value of this column.")] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Other names of columns, such as group=species,drawn=used; in a wide table "
            "m_=had_,x_=ate_.",
            rich_help_panel=ROWS,
        ),
    ] = None,
    na: Annotated[
        Missing,
        typer.Option(help="Rows with missing values: left out, or refused.", rich_help_panel=ROWS),
    ] = Missing.drop,
    example: Annotated[
        Example | None,
        typer.Option(
            help="Fit a table that comes with diffurn instead of a file.", rich_help_panel=ROWS
        ),
    ] = None,
    level: Level = 0.95,
    interval: Annotated[
        Interval | None,
        typer.Option(
            help="How intervals are made.",
            show_default="profile if rows · groups² ≤ 10,000 and errors are not robust, else wald",
            rich_help_panel=ERRORS,
        ),
    ] = None,
    covariance: Annotated[
        Covariance | None,
        typer.Option(
            help="Standard errors: of the model; scaled by the dispersion; robust (HC0, HC1).",
            show_default="model",
            rich_help_panel=ERRORS,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Cluster-robust standard errors: rows with the same value of this column belong "
            "together.",
            rich_help_panel=ERRORS,
        ),
    ] = None,
    resamples: Annotated[
        int, typer.Option(help="Number of bootstrap fits.", rich_help_panel=ERRORS)
    ] = 999,
    seed: Annotated[
        int, typer.Option(help="Of the bootstrap's random numbers.", rich_help_panel=ERRORS)
    ] = 0,
    penalty: Annotated[
        Penalty | None,
        typer.Option(help="Keep every ω finite by a penalty.", rich_help_panel=ERRORS),
    ] = None,
    ridge: Ridge = None,
    contrasts: Annotated[
        bool,
        typer.Option(
            "--contrasts",
            help="Compare all pairs of groups, with Holm's correction.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    selection: Annotated[
        bool,
        typer.Option(
            "--selection",
            help="Selection ratios and Manly's α, with standard errors.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    residuals: Annotated[
        Path | None,
        typer.Option(
            help="Write Pearson residuals of all rows to this file (.csv), or draw them (.png, "
            ".svg, .pdf).",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Draw ω and the counts to this file: .png, .svg or .pdf.", rich_help_panel=OUTPUT
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the importance ω of each group from balls available and drawn.

    A wide table has one line per experiment, with columns m_<group>
    (available) and x_<group> (drawn). A long table has one line per experiment
    and group, with columns row, group, available, drawn; a group without a line
    was not available. In both, a column frequency says how often an experiment
    occurred. UTF-8, separated by commas, semicolons or tabs. Lines with missing
    values (empty, NA, NaN) and experiments with nothing drawn are left out, and
    a note counts them.

    A covariate NAME is a column NAME or, in a wide table, the columns
    NAME_<group> of all groups; text becomes a factor. If it differs between the
    groups of a row, it has one coefficient; if not, one for each group but the
    reference (without --reference, the first). Groups keep weights of their own
    beside it, unless a covariate is a property of the groups, the same in all
    rows; a note says so.
    """
    check_options(counts, example, level, penalty, ridge, resamples)
    check_covariates(example, covariate, formula, by, cluster, contrasts, selection)
    check_covariance(interval, covariance, cluster)
    check_files(figure, residuals, by)
    options = {
        "covariates": covariate or None,
        "formula": formula,
        "cluster": cluster,
        "reference": reference,
        "model": model.value,
        "level": level,
        "interval": None if interval is None else interval.value,
        "covariance": None if covariance is None else covariance.value,
        "resamples": resamples,
        "seed": seed,
        "penalty": None if penalty is None else penalty.value,
        "ridge": 1.0 if ridge is None else ridge,
    }
    wanted = Wanted(contrasts, selection, residuals, figure, as_json)
    table = _read(counts, example, _columns_to_read(covariate, formula, by, cluster), columns, na)
    check_groups(table.groups, reference, contrasts)
    if by is None:
        _one(table, options, wanted)
    else:
        _several(table, by, options, wanted)


# --- read


def _columns_to_read(
    covariates: Sequence[str] | None, formula: str | None, by: str | None, cluster: str | None
) -> list[str]:
    """Every column beside the counts that an option names, once."""
    from diffurn.inference.reading.tables import variables_of

    twice = [name for i, name in enumerate(covariates or []) if name in (covariates or [])[:i]]
    if twice:
        refuse(f"--covariate {twice[0]}: it was asked for twice")
    with refusing(ValueError, ImportError, about="--formula: " if formula is not None else ""):
        named = variables_of(covariates or (), formula)
    return list(dict.fromkeys([*named, *(name for name in (by, cluster) if name is not None)]))


def _read(
    counts: str | None,
    example: Example | None,
    variables: list[str],
    columns: str | None,
    na: Missing,
) -> CountTable:
    from diffurn.data import example_counts, read_counts

    usual = renamed(columns)
    if example is not None:
        if usual:
            refuse(f"--columns {columns}: the examples have the usual names")
        return example_counts(example.value)
    assert counts is not None
    with progress_bar("reading") as progress, refusing(ValueError):
        return read_counts(counts, variables, usual, na.value, progress)


# --- fit and report


@dataclass(frozen=True)
class Wanted:
    """What to print and write."""

    contrasts: bool
    selection: bool
    residuals: Path | None
    figure: Path | None
    as_json: bool


def _one(table: CountTable, options: dict[str, Any], wanted: Wanted) -> None:
    from diffurn.inference import fit

    with progress_bar("fitting") as progress, refusing(ValueError, ImportError):
        result = fit(table, progress=progress, **options)
    with progress_bar("testing"), refusing(ValueError, ImportError):
        record, text = _described(result, wanted)
        drawn = None if wanted.figure is None else result.plot()
        spread = None
        if wanted.residuals is not None and wanted.residuals.suffix.lower() != ".csv":
            spread = result.plot_residuals()
    write_figure("--figure", drawn, wanted.figure)
    write_figure("--residuals", spread, wanted.residuals)
    if wanted.residuals is not None and spread is None:
        _write_residuals(result, wanted.residuals)
    _print(record, text, wanted)


def _several(table: CountTable, by: str, options: dict[str, Any], wanted: Wanted) -> None:
    from diffurn.inference import fit_by

    with progress_bar("fitting") as progress, refusing(ValueError, ImportError):
        fits = fit_by(table, by, progress=progress, **options)
    with progress_bar("testing"), refusing(ValueError, ImportError):
        record = fits.to_dict()
        for value, result in fits.items():
            record["fits"][value] = _described(result, wanted)[0]
        text = _text_by(fits, wanted)
        drawn = None if wanted.figure is None else fits.plot()
    write_figure("--figure", drawn, wanted.figure)
    _print(record, text, wanted)


def _text_by(fits: FitsBy, wanted: Wanted) -> str:
    parts = [
        f"{fits.title(value)}\n{_described(result, wanted)[1]}" for value, result in fits.items()
    ]
    return "\n\n".join(filter(None, [*parts, fits.ending()]))


def _described(result: FitResult, wanted: Wanted) -> tuple[dict[str, Any], str]:
    """A fit as data and as text."""
    from diffurn.inference.results.fit_report import jsonable, summary_of

    pairs = result.contrasts() if wanted.contrasts else None
    indices = result.selection() if wanted.selection else None
    if not wanted.as_json:
        return {}, summary_of(result, pairs, indices)
    record = result.to_dict(pairs, indices)
    if wanted.residuals is not None:
        record["residuals"] = jsonable(result.residuals().to_list())
    return record, ""


def _print(record: dict[str, Any], text: str, wanted: Wanted) -> None:
    files = {"Figure": wanted.figure, "Residuals": wanted.residuals}
    print_result(record, text, wanted.as_json, files)


def _write_residuals(result: FitResult, path: Path) -> None:
    records = result.residuals().to_list()
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    with replacing("--residuals", path) as file:
        file.write(text.getvalue().encode())
