"""A conditional logistic regression as text, as a data frame and as plain data."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from diffurn.inference.report import jsonable, listing, number, number_of, p_is, p_value, shortened
from diffurn.inference.robust import words_on

if TYPE_CHECKING:
    from diffurn.inference.clogit_result import ClogitResult
    from diffurn.inference.fitted import LikelihoodRatio

_WIDTH = 100
_NAMES_IN_A_LINE = 6
TITLES = {
    "fisher": "Conditional logistic regression, exact",
    "wallenius": "Conditional logit of cases chosen one after another (Wallenius)",
}


def line_of(result: ClogitResult) -> str:
    """The text of ``repr(result)``."""
    pairs = zip(result.names[:_NAMES_IN_A_LINE], result.coefficients.tolist(), strict=False)
    values = ", ".join(f"{name}: {value:.4g}" for name, value in pairs)
    more = ", …" if len(result.names) > _NAMES_IN_A_LINE else ""
    return (
        f"ClogitResult(model={result.model!r}, strata={int(result.rows)}, "
        f"coefficients={{{values}{more}}})"
    )


def summary_of(result: ClogitResult) -> str:
    """The text of ``print(result)``."""
    penalty = "" if result.penalty is None else f", {result.penalty} penalty"
    lines = [TITLES[result.model] + penalty, f"{sizes_of(result)}; {_ended(result)}", ""]
    lines += [*_table(result), "", *_about_fit(result)]
    notes = [
        line
        for note in result.notes
        for line in textwrap.wrap("Note: " + note, _WIDTH, subsequent_indent="      ")
    ]
    return "\n".join(lines + ([""] + notes if notes else []))


def sizes_of(result: ClogitResult) -> str:
    """Such as ``248 rows, 83 cases in 83 strata of 2 to 3 rows``."""
    strata, sizes = int(result.rows), result.strata.sizes
    rows = int((sizes * result.strata.frequencies).sum())
    extent = ""
    if len(sizes):
        low, high = int(sizes.min()), int(sizes.max())
        extent = f" of {low:,} rows" if low == high else f" of {low:,} to {high:,} rows"
    number_of_strata = "1 stratum" if strata == 1 else f"{strata:,} strata"
    return (
        f"{number_of('row', rows)}, {number_of('case', int(result.cases))} in {number_of_strata}"
        + extent
    )


def _ended(result: ClogitResult) -> str:
    ended = "converged in" if bool(result.converged) else "not converged after"
    return f"{ended} {number_of('iteration', int(result.iterations))}"


def _table(result: ClogitResult) -> list[str]:
    width = max(8, min(30, max(map(len, result.names))))
    percent = f"{100 * result.level:g} %"
    header = (
        f"{'':{width}} {'estimate':>11} {'odds ratio':>11} {percent + ' lower':>12} {'upper':>11} "
        f"{'se':>9} {'z':>7} {'p':>9}"
    )
    beta, errors = result.coefficients, result.standard_errors
    values = beta, beta.exp(), result.lower.exp(), result.upper.exp(), errors, beta / errors
    lines = [header, "-" * len(header)]
    columns = [x.tolist() for x in (*values, result.p_values)]
    for name, estimate, ratio, lower, upper, error, z, p in zip(
        result.names, *columns, strict=True
    ):
        shown = f"{z:.2f}" if math.isfinite(error) else ""
        cells = [f"{shortened(name, width):{width}}", f"{number(estimate):>11}"]
        cells += [f"{number(ratio):>11}", f"{number(lower):>12}", f"{number(upper):>11}"]
        cells += [f"{number(error):>9}", f"{shown:>7}", f"{p_value(p):>9}"]
        lines.append(" ".join(cells).rstrip())
    return lines


def tests_of(result: ClogitResult) -> Iterator[tuple[str, LikelihoodRatio]]:
    """The tests of the hypothesis that all coefficients are zero, by their names."""
    yield "likelihood ratio", result.likelihood_ratio_test()
    yield "Wald", result.wald_test()
    yield "score", result.score_test()


def _about_fit(result: ClogitResult) -> list[str]:
    lines = [
        f"log-likelihood {float(result.log_likelihood):.3f} (all coefficients 0: "
        f"{float(result.null_log_likelihood):.3f}), AIC {float(result.aic):.3f}; "
        + words_on(result.solution.errors).replace(" rows", " strata")
    ]
    degrees = int(result.parameters)
    lines.append(f"all coefficients 0? ({degrees} df)")
    for name, test in tests_of(result):
        if not math.isnan(float(test.statistic)):
            lines.append(f"  {name:17} {float(test.statistic):>10.2f}, p {p_is(test.p_value)}")
    return lines


def notes_on(result: ClogitResult) -> list[str]:
    """Sentences about rows that were left out, no convergence, and coefficients at infinity."""
    notes = list(result.given.notes)
    if not bool(result.converged):
        notes.append("Newton's method did not converge; do not trust these figures.")
    escape, values = result.solution.escape[0].tolist(), result.coefficients.tolist()
    infinite = [name for name, step in zip(result.names, escape, strict=True) if step != 0]
    open_ended = [
        name for name, value in zip(result.names, values, strict=True) if math.isnan(value)
    ]
    if infinite:
        remedy = "firth" if result.model == "fisher" else "ridge"
        notes.append(
            "The covariates separate cases from controls: no finite estimate of "
            f'{listing(infinite)}; penalty="{remedy}" gives one.'
        )
    if open_ended:
        notes.append(f"Not determined by these data: {listing(open_ended)}.")
    return notes


def _columns(result: ClogitResult) -> dict[str, list[Any]]:
    beta, errors = result.coefficients, result.standard_errors
    return {
        "estimate": beta.tolist(),
        "se": errors.tolist(),
        "z": (beta / errors).tolist(),
        "p": result.p_values.tolist(),
        "odds_ratio": beta.exp().tolist(),
        "odds_ratio_lower": result.lower.exp().tolist(),
        "odds_ratio_upper": result.upper.exp().tolist(),
    }


def frame_of(result: ClogitResult) -> Any:
    """The table of `ClogitResult.to_frame`."""
    try:
        from pandas import DataFrame, Index  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise ImportError(
            "to_frame needs pandas: pip install pandas; to_dict works without"
        ) from None
    return DataFrame(_columns(result), index=Index(result.names, name="coefficient"))


def dict_of(result: ClogitResult) -> dict[str, Any]:
    """The plain data of `ClogitResult.to_dict`."""
    columns, errors = _columns(result), result.solution.errors
    whole = {
        "model": result.model,
        "outcome": result.given.outcome,
        "penalty": result.penalty,
        "level": result.level,
        "interval": result.interval,
        "standard_errors": {
            "kind": errors.kind,
            "degrees_of_freedom": float(errors.degrees[0]),
            "number": int(errors.number[0]),
        },
        "coefficients": [
            {"name": name, **{key: values[k] for key, values in columns.items()}}
            for k, name in enumerate(result.names)
        ],
        "covariance": result.covariance.tolist(),
        "log_likelihood": float(result.log_likelihood),
        "null_log_likelihood": float(result.null_log_likelihood),
        "parameters": int(result.parameters),
        "aic": float(result.aic),
        "iterations": int(result.iterations),
        "converged": bool(result.converged),
        "strata": int(result.rows),
        "cases": int(result.cases),
        "rows": int((result.strata.sizes * result.strata.frequencies).sum()),
        "tests_that_all_coefficients_are_zero": {
            name: {key: value.item() for key, value in test._asdict().items()}
            for name, test in tests_of(result)
        },
        "notes": result.notes,
    }
    return {key: jsonable(value) for key, value in whole.items()}
