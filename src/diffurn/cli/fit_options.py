"""Options of `diffurn fit` and `diffurn clogit`: their values, and refusals of impossible ones."""

from __future__ import annotations

import math
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from diffurn.cli.output import check_place, refuse

FIGURE_FORMATS = (".png", ".svg", ".pdf")
MOST_GROUPS_TO_COMPARE = 100
# The panels of the help text.
ROWS, ERRORS, OUTPUT = "The table", "Intervals and standard errors", "Output"

# Options of both commands.
Level = Annotated[
    float, typer.Option(help="Confidence level of the intervals.", rich_help_panel=ERRORS)
]
Ridge = Annotated[
    float | None,
    typer.Option(help="Strength λ of the ridge penalty.", show_default="1", rich_help_panel=ERRORS),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print JSON: full precision, infinities as strings, no value as null.",
        rich_help_panel=OUTPUT,
    ),
]


class Interval(str, Enum):
    wald = "wald"
    profile = "profile"
    bootstrap = "bootstrap"


class Covariance(str, Enum):
    model = "model"
    scaled = "scaled"
    HC0 = "HC0"
    HC1 = "HC1"


class Penalty(str, Enum):
    ridge = "ridge"
    firth = "firth"


class Missing(str, Enum):
    drop = "drop"
    refuse = "raise"


class Example(str, Enum):
    titanic = "titanic"
    ucb = "ucb"


def check_options(
    counts: str | None,
    example: Example | None,
    level: float,
    penalty: Penalty | None,
    ridge: float | None,
    resamples: int,
) -> None:
    """Refuses options that contradict each other or the possible values."""
    if (counts is None) == (example is None):
        examples = "|".join(example.value for example in Example)
        refuse(
            "give the name of a CSV file, - for the standard input, or --example "
            f"{examples}, and only one of these"
        )
    check_level(level)
    check_ridge(penalty, ridge)
    if not 99 <= resamples <= 100_000:
        refuse(f"--resamples {resamples}: it must be a whole number from 99 to 100,000")


def check_level(level: float) -> None:
    if not 0 < level < 1:
        refuse(f"--level {level:g}: it must lie between 0 and 1, such as 0.95")


def check_ridge(penalty: Penalty | None, ridge: float | None) -> None:
    if ridge is not None and penalty is not Penalty.ridge:
        refuse(f"--ridge {ridge:g}: it is the strength of --penalty ridge, which was not asked for")
    if ridge is not None and not 0 < ridge < math.inf:
        refuse(f"--ridge {ridge:g}: it must be a finite number above 0")


def check_figure(figure: Path | None) -> None:
    check_files(figure, None, None)


def check_covariates(
    example: Example | None,
    covariates: list[str] | None,
    formula: str | None,
    by: str | None,
    cluster: str | None,
    contrasts: bool,
    selection: bool,
) -> None:
    named = {"--covariate": covariates[0] if covariates else None, "--formula": formula}
    named |= {"--by": by, "--cluster": cluster}
    for option, value in named.items():
        if example is not None and value is not None:
            refuse(f"{option} {value}: the examples have no other columns than the counts")
    if covariates and formula is not None:
        refuse("--formula: give covariates or a formula, not both")
    for option, asked in (("--contrasts", contrasts), ("--selection", selection)):
        if asked and (covariates or formula is not None):
            refuse(
                f"{option}: with covariates the weights differ from row to row, so there are no "
                "groups to compare"
            )


def check_covariance(
    interval: Interval | None, covariance: Covariance | None, cluster: str | None
) -> None:
    if cluster is not None and covariance is not None:
        refuse(
            f"--covariance {covariance.value}: --cluster {cluster} asks for cluster-robust "
            "standard errors; give one of the two"
        )
    robust = cluster is not None or covariance in (Covariance.HC0, Covariance.HC1)
    if interval is Interval.profile and robust:
        refuse(
            "--interval profile: it needs the likelihood to be right, which robust standard errors "
            "do not assume; use wald or bootstrap"
        )


def check_files(figure: Path | None, residuals: Path | None, by: str | None) -> None:
    for option, path, formats in (
        ("--figure", figure, FIGURE_FORMATS),
        ("--residuals", residuals, (".csv", *FIGURE_FORMATS)),
    ):
        if path is None:
            continue
        if path.suffix.lower() not in formats:
            refuse(
                f"{option} {path}: the name must end in {', '.join(formats[:-1])} or {formats[-1]}"
            )
        check_place(option, path)
    if by is not None and residuals is not None:
        refuse(
            f"--residuals {residuals}: with --by there is no single fit; fit one value at a time"
        )
    if figure is not None and figure == residuals:
        refuse(f"--residuals {residuals}: --figure has the same name; give two names")


def renamed(columns: str | None) -> dict[str, str]:
    """The option --columns: usual=theirs,…"""
    names: dict[str, str] = {}
    for pair in (columns or "").split(",") if columns is not None else ():
        usual, equals, theirs = (part.strip() for part in pair.partition("="))
        if not (usual and equals and theirs):
            refuse(
                f"--columns {columns}: it must be a list such as group=species,drawn=used, but "
                f"{pair.strip()!r} is not of this form"
            )
        if usual in names:
            refuse(f"--columns {columns}: {usual} is given twice")
        names[usual] = theirs
    return names


def check_groups(groups: tuple[str, ...], reference: str | None, contrasts: bool) -> None:
    """Refuses options that do not suit the groups of the table."""
    if reference is not None and reference not in groups:
        listed = ", ".join(groups[:10]) + (", …" if len(groups) > 10 else "")
        refuse(f"--reference {reference}: there is no such group; the groups are {listed}")
    if contrasts and len(groups) > MOST_GROUPS_TO_COMPARE:
        refuse(
            f"--contrasts: {len(groups)} groups have too many pairs; it takes "
            f"{MOST_GROUPS_TO_COMPARE} groups at most"
        )
