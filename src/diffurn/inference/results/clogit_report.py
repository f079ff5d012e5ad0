"""A conditional logistic regression as text, as a data frame and as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from diffurn.inference.results.fit_report import coefficient_table, data_frame, jsonable
from diffurn.inference.results.words import (
    count,
    listed,
    number_of,
    p_is,
    paragraph,
)
from diffurn.inference.solving.robust import words_on

if TYPE_CHECKING:
    from diffurn.inference.results.clogit_result import ClogitResult
    from diffurn.inference.results.fitted import LikelihoodRatio

_NAMES_IN_A_LINE = 6
_TITLES = {
    "fisher": "Conditional logistic regression, exact",
    "wallenius": "Conditional logit of cases chosen one after another (Wallenius' law)",
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
    """The text of ``print(result)``: as wide as the terminal, unless numbers need more."""
    lines = paragraph(f"{_TITLES[result.model]}: {sizes_of(result)}.")
    lines += ["", *coefficient_table(result, "odds ratio"), ""]
    for text in _about_fit(result):
        lines += paragraph(text)
    for note in result.notes:
        lines += paragraph("Note: " + note, "      ")
    return "\n".join(lines)


def sizes_of(result: ClogitResult) -> str:
    """Such as ``83 cases among 248 rows, in 83 strata of 2 to 3 rows``."""
    strata, sizes = int(result.rows), result.strata.sizes
    extent = ""
    if strata > 1 and result.strata.process_group is None:
        low, high = int(sizes.min()), int(sizes.max())
        extent = f" of {count(low)} rows" if low == high else f" of {low:,} to {high:,} rows"
    number = "1 stratum" if strata == 1 else f"{count(strata)} strata"
    cases = number_of("case", int(result.cases))
    return f"{cases} among {number_of('row', int(result.observations))}, in {number}{extent}"


def tests_of(result: ClogitResult) -> Iterator[tuple[str, LikelihoodRatio]]:
    """The tests of the hypothesis that all coefficients are zero, by their names. With robust
    standard errors it is Wald's alone, since the others take the model for right.
    """
    if result.covariance_kind == "model":
        yield "likelihood ratio", result.likelihood_ratio_test()
        yield "score", result.score_test()
    yield "Wald", result.wald_test()


def _about_fit(result: ClogitResult) -> Iterator[str]:
    yield "Odds ratio: exp β, per unit of the covariate. p tests that β is 0."
    kind = {"profile": "by profile likelihood", "wald": "by standard errors (Wald)"}
    penalty = "" if result.penalty is None else f"; estimates with {result.penalty} penalty"
    errors = "" if result.covariance_kind == "model" else f"; {words_on(result.solution.errors)}"
    yield f"Intervals {kind[result.interval]}{errors.replace(' rows', ' strata')}{penalty}."
    degrees = int(result.parameters)
    tests = ", ".join(
        f"{name} {float(test.statistic):,.2f} ({p_is(float(test.p_value))})"
        for name, test in tests_of(result)
        if not math.isnan(float(test.statistic))
    )
    yield f"All β zero? χ² with {degrees:,} df: {tests}."
    yield (
        f"AIC {float(result.aic):,.2f} with {number_of('parameter', degrees)}, log-likelihood "
        f"{float(result.log_likelihood):,.3f} (all β zero: "
        f"{float(result.null_log_likelihood):,.3f})."
    )


def notes_on(result: ClogitResult) -> list[str]:
    """Sentences about rows that were left out, no convergence, and coefficients at infinity."""
    notes = list(result.given.notes)
    if not bool(result.converged):
        notes.append("Newton's method did not converge; do not trust these figures.")
    values = result.coefficients.tolist()
    infinite = [x for x, value in zip(result.names, values, strict=True) if math.isinf(value)]
    unknown = [x for x, value in zip(result.names, values, strict=True) if math.isnan(value)]
    if infinite or unknown:
        remedy = "firth" if result.model == "fisher" else "ridge"
        notes.append(
            "The covariates separate cases from controls: no finite estimate of "
            f'{listed(infinite + unknown)}; penalty="{remedy}" gives one.'
        )
    return notes


# --- data


def columns_of(result: ClogitResult) -> dict[str, list[Any]]:
    """One entry per coefficient in each column. The names of the columns say their scale."""
    beta, errors = result.coefficients, result.standard_errors
    return {
        "beta": beta.tolist(),
        "beta_se": errors.tolist(),
        "beta_lower": result.lower.tolist(),
        "beta_upper": result.upper.tolist(),
        "odds_ratio": beta.exp().tolist(),
        "odds_ratio_lower": result.lower.exp().tolist(),
        "odds_ratio_upper": result.upper.exp().tolist(),
        "z": (beta / errors).tolist(),
        "p": result.p_values.tolist(),
    }


def frame_of(result: ClogitResult) -> Any:
    """The table of `ClogitResult.to_frame`."""
    return data_frame(columns_of(result), "coefficient", result.names)


def dict_of(result: ClogitResult) -> dict[str, Any]:
    """The plain data of `ClogitResult.to_dict`."""
    columns, errors = columns_of(result), result.solution.errors
    whole = {
        "model": result.model,
        "outcome": result.given.outcome,
        "penalty": result.penalty,
        "level": result.level,
        "interval": result.interval,
        "covariance_kind": errors.kind,
        "degrees_of_freedom": float(errors.degrees[0]),
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
        "rows": int(result.observations),
        "cases": int(result.cases),
        "strata": int(result.rows),
        "tests_that_all_beta_are_zero": {
            name: {key: value.item() for key, value in test._asdict().items()}
            for name, test in tests_of(result)
        },
        "notes": result.notes,
    }
    return {key: jsonable(value) for key, value in whole.items()}
