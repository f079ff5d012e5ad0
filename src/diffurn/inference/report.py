"""A fit as text, as a data frame and as plain data."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from diffurn.inference.result import FitResult

_WIDTH = 100
_TITLES = {
    "fisher": "Fisher's urn (balls taken at once)",
    "wallenius": "Wallenius' urn (balls taken one after another)",
}


def summary_of(result: FitResult) -> str:
    """The text of `FitResult.summary`."""
    title = f"{_TITLES[result.model]}, {_scale(result)}{_penalty(result)}"
    lines = [*textwrap.wrap(title, _WIDTH), _size(result), "", *_table(result), "", *_tests(result)]
    notes = [
        wrapped
        for note in result.notes
        for wrapped in textwrap.wrap("Note: " + note, _WIDTH, subsequent_indent="      ")
    ]
    return "\n".join(lines + ([""] + notes if notes else []))


def _scale(result: FitResult) -> str:
    if result.log_weights is None:
        return "log ω linear in covariates"
    return (
        "weights with geometric mean 1"
        if result.reference is None
        else f"weights relative to {result.reference}"
    )


def _penalty(result: FitResult) -> str:
    return "" if result.penalty is None else f", {result.penalty} penalty"


def _size(result: FitResult) -> str:
    rows, draws = int(result.rows), int(result.draws)
    ended = "converged in" if bool(result.converged) else "not converged after"
    return (
        f"{_number_of('row', rows)}, {_number_of('draw', draws)}; {ended} "
        f"{_number_of('iteration', int(result.iterations))}"
    )


def _number_of(thing: str, number: int) -> str:
    return f"{number:,} {thing}{'s' * (number != 1)}"


def _table(result: FitResult) -> list[str]:
    width = max(8, min(22, max(map(len, result.names))))
    percent = f"{100 * result.level:g} %"
    plain = result.log_weights is not None
    lower, upper = (x.exp() if plain else x for x in (result.lower, result.upper))
    first = result.coefficients.exp() if plain else result.coefficients
    title = ("weight", "log weight") if plain else ("estimate", "exp")
    second = result.coefficients if plain else result.coefficients.exp()
    errors = result.standard_errors
    z = result.coefficients / errors
    header = (
        f"{'':{width}} {title[0]:>11} {percent + ' lower':>12} {'upper':>11} {title[1]:>11} "
        f"{'se':>9} {'z':>7} {'p':>9}"
    )
    lines = [header, "-" * len(header)]
    columns = [x.tolist() for x in (first, lower, upper, second, errors, z, result.p_values)]
    for name, *numbers in zip(result.names, *columns, strict=True):
        w, lo, up, b, se, ratio, p = numbers
        fixed = se == 0  # the reference
        cells = (
            f"{_number(w):>11} {'' if fixed else _number(lo):>12} "
            f"{'' if fixed else _number(up):>11} {_number(b):>11}"
        )
        tail = (
            ""
            if fixed
            else f" {_number(se):>9} {'' if not math.isfinite(se) else f'{ratio:.2f}':>7} "
            f"{p_value(p):>9}"
        )
        lines.append(f"{_shortened(name, width):{width}} {cells}{tail}".rstrip())
    return lines


def _shortened(name: str, width: int) -> str:
    return name if len(name) <= width else name[: width - 1] + "…"


def _tests(result: FitResult) -> list[str]:
    ratio, fit = result.likelihood_ratio_test(), result.goodness_of_fit()
    lines = [
        f"log-likelihood {float(result.log_likelihood):.3f} (central urn "
        f"{float(result.central_log_likelihood):.3f}),"
        f" {_number_of('free parameter', int(result.parameters))}, AIC {float(result.aic):.3f}"
    ]
    if int(ratio.degrees_of_freedom):
        statistic = f"{float(ratio.statistic):.2f} on {int(ratio.degrees_of_freedom)} df"
        lines.append(f"all weights equal?  likelihood ratio {statistic}, p {_p_is(ratio.p_value)}")
    if int(fit.degrees_of_freedom):
        statistic = f"{float(fit.statistic):.2f} on {int(fit.degrees_of_freedom):,} df"
        lines.append(
            f"does the model fit?  Pearson {statistic}, p {_p_is(fit.p_value)}, dispersion "
            f"{float(fit.dispersion):.3f}"
        )
    else:
        lines.append(
            "does the model fit?  saturated: as many parameters as the counts can determine"
        )
    return lines


def _number(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    return f"{value:.4g}" if value != 0 and not 1e-3 <= abs(value) < 1e5 else f"{value:.4f}"


def p_value(value: float) -> str:
    """To four decimals; nothing where there is none."""
    return "" if math.isnan(value) else "<0.0001" if value < 1e-4 else f"{value:.4f}"


def _p_is(value: Tensor) -> str:
    text = p_value(float(value))
    return "< 0.0001" if text.startswith("<") else "= " + (text or "nan")


def columns_of(result: FitResult) -> dict[str, list[Any]]:
    """One entry per coefficient in each column; the interval is that of the weight, exp of the
    coefficient.
    """
    return {
        "estimate": result.coefficients.tolist(),
        "weight": result.coefficients.exp().tolist(),
        "se": result.standard_errors.tolist(),
        "lower": result.lower.exp().tolist(),
        "upper": result.upper.exp().tolist(),
        "z": (result.coefficients / result.standard_errors).tolist(),
        "p": result.p_values.tolist(),
    }


def frame_of(result: FitResult) -> Any:
    """The table of `FitResult.to_frame`."""
    try:
        from pandas import DataFrame, Index  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise ImportError(
            "to_frame needs pandas: pip install pandas; to_dict works without"
        ) from None
    return DataFrame(columns_of(result), index=Index(result.names, name="coefficient"))


def dict_of(result: FitResult) -> dict[str, Any]:
    """The plain data of `FitResult.to_dict`."""
    ratio, fit = result.likelihood_ratio_test(), result.goodness_of_fit()
    columns = columns_of(result)
    whole = {
        "model": result.model,
        "groups": list(result.groups),
        "reference": result.reference,
        "penalty": result.penalty,
        "level": result.level,
        "interval": result.interval,
        "coefficients": [
            {"name": name, **{key: values[k] for key, values in columns.items()}}
            for k, name in enumerate(result.names)
        ],
        "covariance": result.covariance.tolist(),
        "log_likelihood": float(result.log_likelihood),
        "central_log_likelihood": float(result.central_log_likelihood),
        "parameters": int(result.parameters),
        "aic": float(result.aic),
        "iterations": int(result.iterations),
        "converged": bool(result.converged),
        "rows": int(result.rows),
        "draws": int(result.draws),
        "observed": result.observed.tolist(),
        "expected": result.expected.tolist(),
        "likelihood_ratio_test": {name: value.item() for name, value in ratio._asdict().items()},
        "goodness_of_fit": {name: value.item() for name, value in fit._asdict().items()},
        "notes": result.notes,
    }
    return {key: jsonable(value) for key, value in whole.items()}


def jsonable(value: Any) -> Any:
    """JSON has no nan (None here) and no infinities (strings here)."""
    if isinstance(value, dict):
        return {key: jsonable(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [jsonable(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
