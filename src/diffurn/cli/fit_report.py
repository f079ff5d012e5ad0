"""The report of `diffurn fit`: tables and sentences that fit 80 columns."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from diffurn.inference.report import p_value

if TYPE_CHECKING:
    from diffurn.inference import Contrasts, FitResult

LAWS = {
    "fisher": "Fisher's law, balls taken at once",
    "wallenius": "Wallenius' law, balls taken one after another",
}
DOUBTFUL_FIT = 0.01  # below this p-value of the goodness of fit, the report warns


def parts(result: FitResult, contrasts: Contrasts | None) -> Iterator[RenderableType]:
    """Tables and paragraphs, in the order of printing."""
    available, rows = int(result.available.sum()), int(result.rows)
    yield Text(
        f"{LAWS[result.model]}: {count(int(result.draws))} of {count(available)} drawn, in "
        f"{count(rows)} row{'s' * (rows != 1)}."
    )
    if result.log_weights is None:
        yield _coefficient_table(result)
        yield Text(
            "exp β: factor on ω per unit of the covariate, or of a group relative to the\n"
            "reference."
        )
        yield _count_table(result)
    else:
        yield _weight_table(result)
        scale = (
            "geometric mean 1" if result.reference is None else f"relative to {result.reference}"
        )
        yield Text(f"If ω = 1: expected if all groups were alike. ω: importance, {scale}.")
        if contrasts is None:
            yield Text()
    if contrasts is not None:
        yield _contrast_table(contrasts)
    yield Text(_about_intervals(result))
    yield Text(_about_equality(result))
    yield Text(_about_fit(result))
    yield Text(f"AIC {float(result.aic):,.2f}, log-likelihood {_log_likelihoods(result)}.")
    for note in result.notes:
        yield Text("Note: " + re.sub(r'penalty="(\w+)"', r"--penalty \1", note))


def _table(*columns: str) -> Table:
    """Text in the first column, numbers in the others; only the text may wrap."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(columns[0], overflow="fold", min_width=len(columns[0]))
    for column in columns[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _weight_table(result: FitResult) -> Table:
    shown = _table(
        "Group", "Available", "Drawn", "If ω = 1", "ω", f"{100 * result.level:g}% interval", "p"
    )
    columns = (
        result.available,
        result.observed,
        result.central_expected,
        result.coefficients,
        result.lower,
        result.upper,
        result.p_values,
    )
    for group, available, drawn, alike, estimate, lower, upper, p in zip(
        result.groups, *(c.tolist() for c in columns), strict=True
    ):
        interval = "reference" if group == result.reference else between(lower, upper)
        shown.add_row(
            Text(group),
            count(available),
            count(drawn),
            expectation(alike),
            factor(estimate, 4),
            interval,
            p_value(p),
        )
    return shown


def _coefficient_table(result: FitResult) -> Table:
    shown = _table(
        "Coefficient", "β", "std. error", "exp β", f"{100 * result.level:g}% interval", "p"
    )
    columns = (
        result.coefficients,
        result.standard_errors,
        result.lower,
        result.upper,
        result.p_values,
    )
    for name, estimate, error, lower, upper, p in zip(
        result.names, *(c.tolist() for c in columns), strict=True
    ):
        shown.add_row(
            Text(name),
            _plain(estimate),
            _plain(error),
            factor(estimate, 4),
            between(lower, upper),
            p_value(p),
        )
    return shown


def _count_table(result: FitResult) -> Table:
    shown = _table("Group", "Available", "Drawn", "If ω = 1", "By the fit")
    columns = (result.available, result.observed, result.central_expected, result.expected)
    for group, available, drawn, *expected in zip(
        result.groups, *(c.tolist() for c in columns), strict=True
    ):
        shown.add_row(Text(group), count(available), count(drawn), *map(expectation, expected))
    return shown


def _contrast_table(contrasts: Contrasts) -> Table:
    shown = _table("Pair", "Ratio of ω", "z", "p", "p (Holm)")
    columns = (contrasts.estimate, contrasts.z, contrasts.p_value, contrasts.adjusted_p_value)
    for (first, second), ratio, z, p, adjusted in zip(
        contrasts.pairs, *(c.tolist() for c in columns), strict=True
    ):
        shown.add_row(
            Text(f"{first} / {second}"),
            factor(ratio, 4),
            "" if math.isnan(z) else f"{z:.2f}",
            p_value(p),
            p_value(adjusted),
        )
    return shown


def _about_intervals(result: FitResult) -> str:
    kind = {"profile": "by profile likelihood", "wald": "by standard errors (Wald)"}[
        result.interval
    ]
    penalty = "" if result.penalty is None else f"; estimates with {result.penalty} penalty"
    return f"Intervals {kind}{penalty}."


def _about_equality(result: FitResult) -> str:
    test = result.likelihood_ratio_test()
    p = float(test.p_value)
    if int(test.degrees_of_freedom) == 0:
        return "All groups alike? These counts could not tell."
    verdict = "no" if p < 1 - result.level else "nothing here speaks against it"
    return (
        "All groups alike? Likelihood ratio "
        f"{_chi_squared(float(test.statistic), int(test.degrees_of_freedom), p)}: {verdict}."
    )


def _about_fit(result: FitResult) -> str:
    fit = result.goodness_of_fit()
    freedom, p, dispersion = int(fit.degrees_of_freedom), float(fit.p_value), float(fit.dispersion)
    if freedom == 0:
        return (
            "Does the law fit? It has as many parameters as the counts can determine, so this "
            "cannot be judged."
        )
    verdict = "rows differ no more than by chance"
    if p < DOUBTFUL_FIT:
        verdict = (
            "rows differ by more than chance (overdispersion), so standard errors are about "
            f"{math.sqrt(dispersion):.2g} times too small"
        )
    return (
        f"Does the law fit? Pearson {_chi_squared(float(fit.statistic), freedom, p)}, "
        f"dispersion {dispersion:.3g}: {verdict}."
    )


def _chi_squared(statistic: float, freedom: int, p: float) -> str:
    shown = "< 0.0001" if p < 1e-4 else f"= {p_value(p)}"
    return f"χ² = {statistic:,.2f} with {freedom:,} df, p {shown}"


def _log_likelihoods(result: FitResult) -> str:
    return (
        f"{float(result.log_likelihood):,.3f} (all alike: "
        f"{float(result.central_log_likelihood):,.3f})"
    )


def count(number: float) -> str:
    """A number of balls; large numbers in four digits."""
    return f"{number:.4g}" if number >= 1e8 else f"{number:,.0f}"


def expectation(number: float) -> str:
    return f"{number:,.1f}" if number < 1e5 else count(number)


def factor(log_value: float, digits: int) -> str:
    """exp of a coefficient, to some significant digits."""
    if math.isnan(log_value):
        return "?"
    if abs(log_value) > 700:  # beyond the range of float64
        return "∞" if log_value > 0 else "0"
    value = math.exp(log_value)
    if 1e-3 <= value < 10**digits:
        return f"{value:#.{digits}g}".rstrip(".")
    return f"{value:.{digits - 2}e}"


def between(lower: float, upper: float) -> str:
    if math.isnan(lower) or math.isnan(upper):
        return ""
    return f"{factor(lower, 3)} – {factor(upper, 3)}"


def _plain(value: float) -> str:
    return {math.inf: "∞", -math.inf: "-∞"}.get(value, "?" if math.isnan(value) else f"{value:.4g}")
