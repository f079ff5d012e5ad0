"""A fit as text, as a data frame and as plain data."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from diffurn.inference.result import FitResult

_WIDTH = 100
_NAMES_IN_A_LINE = 6
_TITLES = {
    "fisher": "Fisher's urn (balls taken at once)",
    "wallenius": "Wallenius' urn (balls taken one after another)",
}


# --- one line


def line_of(result: FitResult) -> str:
    """The text of ``repr(result)``."""
    shown = f"model={result.model!r}"
    if result.batch_shape:
        first = ", ".join("0" for _ in result.batch_shape)
        return (
            f"FitResult({shown}, batch_shape={tuple(result.batch_shape)}, "
            f"{len(result.names)} coefficients each; result[{first}] is the first data set)"
        )
    kind, values = "weights", result.weights
    if values is None:
        kind, values = "coefficients", result.coefficients
    pairs = zip(result.names[:_NAMES_IN_A_LINE], values.tolist(), strict=False)
    listed = ", ".join(f"{name}: {value:.4g}" for name, value in pairs)
    more = ", …" if len(result.names) > _NAMES_IN_A_LINE else ""
    return f"FitResult({shown}, rows={int(result.rows)}, {kind}={{{listed}{more}}})"


# --- the summary


def summary_of(result: FitResult) -> str:
    """The text of ``print(result)``."""
    title = f"{_TITLES[result.model]}, {_scale(result)}{_penalty(result)}"
    lines = [*textwrap.wrap(title, _WIDTH), _size(result), "", *_table(result), "", *_tests(result)]
    notes = [
        line
        for note in result.notes
        for line in textwrap.wrap("Note: " + note, _WIDTH, subsequent_indent="      ")
    ]
    return "\n".join(lines + ([""] + notes if notes else []))


def _scale(result: FitResult) -> str:
    if result.log_weights is None:
        return "log ω linear in covariates"
    if result.reference is None:
        return "weights with geometric mean 1"
    return f"weights relative to {result.reference}"


def _penalty(result: FitResult) -> str:
    return "" if result.penalty is None else f", {result.penalty} penalty"


def _size(result: FitResult) -> str:
    rows, draws = _number_of("row", int(result.rows)), _number_of("draw", int(result.draws))
    ended = "converged in" if bool(result.converged) else "not converged after"
    return f"{rows}, {draws}; {ended} {_number_of('iteration', int(result.iterations))}"


def _number_of(thing: str, number: int) -> str:
    return f"{number:,} {thing}{'s' * (number != 1)}"


def _table(result: FitResult) -> list[str]:
    width = max(8, min(22, max(map(len, result.names))))
    percent = f"{100 * result.level:g} %"
    beta, errors = result.coefficients, result.standard_errors
    if result.log_weights is None:
        titles, values = ("estimate", "exp"), (beta, result.lower, result.upper, beta.exp())
    else:
        titles = ("weight", "log weight")
        values = (beta.exp(), result.lower.exp(), result.upper.exp(), beta)
    header = (
        f"{'':{width}} {titles[0]:>11} {percent + ' lower':>12} {'upper':>11} {titles[1]:>11} "
        f"{'se':>9} {'z':>7} {'p':>9}"
    )
    lines = [header, "-" * len(header)]
    columns = [x.tolist() for x in (*values, errors, beta / errors, result.p_values)]
    for name, first, lower, upper, second, error, z, p in zip(result.names, *columns, strict=True):
        cells = [f"{_shortened(name, width):{width}}", f"{_number(first):>11}"]
        if error == 0:  # the reference
            cells += [" " * 12, " " * 11, f"{_number(second):>11}"]
        else:
            cells += [f"{_number(lower):>12}", f"{_number(upper):>11}", f"{_number(second):>11}"]
            ratio = f"{z:.2f}" if math.isfinite(error) else ""
            cells += [f"{_number(error):>9}", f"{ratio:>7}", f"{p_value(p):>9}"]
        lines.append(" ".join(cells).rstrip())
    return lines


def _shortened(name: str, width: int) -> str:
    return name if len(name) <= width else name[: width - 1] + "…"


def _tests(result: FitResult) -> list[str]:
    ratio, fit = result.likelihood_ratio_test(), result.goodness_of_fit()
    lines = [
        f"log-likelihood {float(result.log_likelihood):.3f} (central urn "
        f"{float(result.central_log_likelihood):.3f}), "
        f"{_number_of('free parameter', int(result.parameters))}, AIC {float(result.aic):.3f}"
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
    """To four decimals; empty for nan."""
    return "" if math.isnan(value) else "<0.0001" if value < 1e-4 else f"{value:.4f}"


def _p_is(value: Tensor) -> str:
    text = p_value(float(value))
    return "< 0.0001" if text.startswith("<") else "= " + (text or "nan")


# --- notes


def notes_on(result: FitResult) -> list[str]:
    """Sentences about a single data set: no convergence, groups without balls, separated groups,
    coefficients at infinity.
    """
    notes = []
    if not bool(result.converged.all()):
        notes.append("Newton's method did not converge; do not trust these figures.")
    if result.solution.blocks is None:
        return notes + _about_coefficients(result)
    return notes + _about_groups(result, result.solution.blocks.reach[0].tolist())


def _about_groups(result: FitResult, reach: list[list[bool]]) -> list[str]:
    """`reach[j][k]`: the counts keep ω_j / ω_k away from zero."""
    groups, available = result.groups, result.available.tolist()
    notes = [
        f"{name} has no ball in any row: its weight cannot be estimated."
        for name, balls in zip(groups, available, strict=True)
        if balls == 0
    ]
    here = [j for j, balls in enumerate(available) if balls > 0]
    blocks = _blocks(here, reach)
    if len(blocks) == 1:
        return notes
    drawn, left = result.observed.tolist(), (result.available - result.observed).tolist()
    for block in blocks:
        listed = _listed([groups[j] for j in block])
        above = [k for k in here if k not in block and reach[k][block[0]]]
        below = [k for k in here if k not in block and reach[block[0]][k]]
        # Every group is drawn after a group that was always drawn, so that one is not listed.
        after = [groups[k] for k in above if left[k] > 0]
        if all(drawn[j] == 0 for j in block):
            notes.append(f"{listed} was never drawn: its weight has no bound from below.")
        elif all(left[j] == 0 for j in block):
            notes.append(f"{listed} was always drawn: its weight has no bound from above.")
        elif after:
            notes.append(f"{listed}: drawn only after all of {_listed(after)} had been.")
        elif not above and not below:
            notes.append(
                f"{listed}: never in competition with the other groups, so not comparable with "
                "them."
            )
    pairs = [(reach[a[0]][b[0]], reach[b[0]][a[0]]) for a in blocks for b in blocks]
    if any(not forth and not back for forth, back in pairs):
        notes.append("Ratios of weights shown as nan are not determined by these counts.")
    if any(forth != back for forth, back in pairs):
        notes.append(f'penalty="{_remedy(result)}" gives finite estimates.')
    return notes


def _about_coefficients(result: FitResult) -> list[str]:
    escape = result.solution.escape[0].tolist()
    infinite = [name for name, step in zip(result.names, escape, strict=True) if step != 0]
    if not infinite:
        return []
    return [
        "The covariates separate the balls drawn from the balls left: no finite estimate of "
        f'{_listed(infinite)}; penalty="{_remedy(result)}" gives one.'
    ]


def _remedy(result: FitResult) -> str:
    return "firth" if result.model == "fisher" else "ridge"


def _blocks(here: Sequence[int], reach: list[list[bool]]) -> list[list[int]]:
    """Groups that reach each other, in the order of their first members."""
    blocks: list[list[int]] = []
    for j in here:
        mine = next((block for block in blocks if reach[j][block[0]] and reach[block[0]][j]), None)
        if mine is None:
            blocks.append([j])
        else:
            mine.append(j)
    return blocks


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# --- data


def _columns(result: FitResult) -> dict[str, list[Any]]:
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
    return DataFrame(_columns(result), index=Index(result.names, name="coefficient"))


def dict_of(result: FitResult) -> dict[str, Any]:
    """The plain data of `FitResult.to_dict`."""
    ratio, fit = result.likelihood_ratio_test(), result.goodness_of_fit()
    columns = _columns(result)
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
        "available": result.available.tolist(),
        "observed": result.observed.tolist(),
        "expected": result.expected.tolist(),
        "central_expected": result.central_expected.tolist(),
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
