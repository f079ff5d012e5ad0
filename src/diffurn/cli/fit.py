"""`diffurn fit`: group importance from a table of counts."""

from __future__ import annotations

import json
import math
import warnings
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diffurn.cli.models import Model
from diffurn.cli.output import (
    check_place,
    progress_bar,
    refuse,
    refusing,
    replacing,
    standard_output,
)

if TYPE_CHECKING:
    from diffurn.data import CountTable
    from diffurn.inference import Contrasts, FitResult

FIGURE_FORMATS = (".png", ".svg", ".pdf")
# Profile intervals cost rows · groups²; up to this number they take about five seconds.
LARGEST_PROFILE = 10_000
PROFILE_BY_DEFAULT = f"profile if rows · groups² ≤ {LARGEST_PROFILE:,}, else wald"
MOST_GROUPS_TO_COMPARE = 100


class Interval(str, Enum):
    wald = "wald"
    profile = "profile"


class Penalty(str, Enum):
    ridge = "ridge"
    firth = "firth"


class Example(str, Enum):
    titanic = "titanic"
    ucb = "ucb"


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
    level: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    interval: Annotated[
        Interval | None,
        typer.Option(help="How intervals are made.", show_default=PROFILE_BY_DEFAULT),
    ] = None,
    covariate: Annotated[
        list[str] | None, typer.Option(help="A feature that log ω depends on; may be repeated.")
    ] = None,
    penalty: Annotated[
        Penalty | None, typer.Option(help="Keep every ω finite by a penalty.")
    ] = None,
    ridge: Annotated[
        float | None, typer.Option(help="Strength λ of the ridge penalty.", show_default="1")
    ] = None,
    contrasts: Annotated[
        bool, typer.Option("--contrasts", help="Compare all pairs, with Holm's correction.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print JSON: full precision, infinities as strings, no value as null."
        ),
    ] = False,
    figure: Annotated[
        Path | None, typer.Option(help="Draw ω and the counts to this file: .png, .svg or .pdf.")
    ] = None,
    example: Annotated[
        Example | None, typer.Option(help="Fit a table that comes with diffurn instead of a file.")
    ] = None,
) -> None:
    """Estimate the importance ω of each group from balls available and drawn.

    A wide table has one line per experiment, with columns m_<group>
    (available) and x_<group> (drawn). A long table has one line per experiment
    and group, with columns row, group, available, drawn; a group without a line
    was not available. In both, a column frequency says how often an experiment
    occurred. UTF-8, separated by commas, semicolons or tabs.

    A covariate NAME is a column NAME or, in a wide table, the columns
    NAME_<group> of all groups. If it differs between the groups of a row, it
    has one coefficient; if not, one for each group but the reference (without
    --reference, the first). Groups keep weights of their own beside it, unless
    a covariate is a property of the groups, the same in all rows.
    """
    _check_options(counts, example, level, penalty, ridge, contrasts, covariate, figure)
    table = _read(counts, example, covariate or [])
    _check_groups(table.groups, reference, contrasts)
    result = _fit(
        table, reference, model, level, interval, penalty, 1.0 if ridge is None else ridge
    )
    pairs = result.contrasts() if contrasts else None
    if figure is not None:
        _draw(result, figure)
    if as_json:
        _print_json(result, pairs)
    else:
        _print_report(result, pairs, figure)


# --- parse


def _check_options(
    counts: str | None,
    example: Example | None,
    level: float,
    penalty: Penalty | None,
    ridge: float | None,
    contrasts: bool,
    covariates: list[str] | None,
    figure: Path | None,
) -> None:
    """Refuses options that contradict each other or the possible values."""
    if (counts is None) == (example is None):
        examples = "|".join(example.value for example in Example)
        refuse(
            "give the name of a CSV file, - for the standard input, or --example "
            f"{examples}, and only one of these"
        )
    if example is not None and covariates:
        refuse(f"--covariate {covariates[0]}: the examples have no covariates")
    if not 0 < level < 1:
        refuse(f"--level {level:g}: it must lie between 0 and 1, such as 0.95")
    if ridge is not None and penalty is not Penalty.ridge:
        refuse(f"--ridge {ridge:g}: it is the strength of --penalty ridge, which was not asked for")
    if ridge is not None and not 0 < ridge < math.inf:
        refuse(f"--ridge {ridge:g}: it must be a finite number above 0")
    if contrasts and covariates:
        refuse(
            "--contrasts: with covariates the weights differ from row to row, so there are no "
            "pairs to compare"
        )
    if figure is not None:
        if figure.suffix.lower() not in FIGURE_FORMATS:
            formats = f"{', '.join(FIGURE_FORMATS[:-1])} or {FIGURE_FORMATS[-1]}"
            refuse(f"--figure {figure}: the name must end in {formats}")
        check_place("--figure", figure)


def _read(counts: str | None, example: Example | None, covariates: list[str]) -> CountTable:
    from diffurn.data import example_counts, read_counts

    if example is not None:
        return example_counts(example.value)
    assert counts is not None
    with progress_bar("reading") as progress, refusing(ValueError):
        return read_counts(counts, covariates, progress)


def _check_groups(groups: tuple[str, ...], reference: str | None, contrasts: bool) -> None:
    """Refuses options that do not suit the groups of the table."""
    if reference is not None and reference not in groups:
        listed = ", ".join(groups[:10]) + (", …" if len(groups) > 10 else "")
        refuse(f"--reference {reference}: there is no such group; the groups are {listed}")
    if contrasts and len(groups) > MOST_GROUPS_TO_COMPARE:
        refuse(
            f"--contrasts: {len(groups)} groups have too many pairs; it takes "
            f"{MOST_GROUPS_TO_COMPARE} groups at most"
        )


# --- fit


def _fit(
    table: CountTable,
    reference: str | None,
    model: Model,
    level: float,
    interval: Interval | None,
    penalty: Penalty | None,
    ridge: float,
) -> FitResult:
    from diffurn.inference import fit

    if interval is None:
        rows, groups = table.counts.shape
        interval = Interval.profile if rows * groups**2 <= LARGEST_PROFILE else Interval.wald
    with progress_bar("fitting") as progress, refusing(ValueError):
        covariates, names = (None, None) if table.covariates is None else table.features(reference)
        return fit(
            table.counts,
            table.group_sizes,
            covariates=covariates,
            frequencies=table.frequencies,
            model=model.value,
            groups=table.groups,
            names=names,
            reference=reference if covariates is None else None,
            level=level,
            interval=interval.value,
            penalty=None if penalty is None else penalty.value,
            ridge=ridge,
            progress=progress,
        )


# --- report


def _draw(result: FitResult, path: Path) -> None:
    with refusing(ImportError):
        drawn = result.plot()
    with replacing("--figure", path) as file, warnings.catch_warnings():
        # Letters that the font lacks become boxes.
        warnings.filterwarnings("ignore", message="Glyph")
        drawn.savefig(file, format=path.suffix[1:].lower())


def _print_json(result: FitResult, contrasts: Contrasts | None) -> None:
    from diffurn.inference.report import jsonable

    record: dict[str, Any] = result.to_dict()
    if contrasts is not None:
        pairs, *columns = contrasts
        keys = ("groups", *contrasts._fields[1:])
        rows = zip(pairs, *(column.tolist() for column in columns), strict=True)
        record["contrasts"] = jsonable(
            [dict(zip(keys, (list(pair), *numbers), strict=True)) for pair, *numbers in rows]
        )
    text = json.dumps(record, ensure_ascii=False, allow_nan=False, indent=1)
    typer.echo(text.encode())


def _print_report(result: FitResult, contrasts: Contrasts | None, figure: Path | None) -> None:
    from diffurn.cli import fit_report

    with progress_bar("testing"):
        parts = list(fit_report.parts(result, contrasts))
    console = standard_output()
    for part in parts:
        console.print(part)
    if figure is not None:
        console.print(f"Figure: {figure}", soft_wrap=True, markup=False)
