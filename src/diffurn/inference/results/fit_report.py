"""A fit as text, as a data frame and as plain data. The command line prints the same text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from diffurn.inference.results.notes import is_overdispersed
from diffurn.inference.results.words import (
    between,
    count,
    expectation,
    factor,
    listed,
    number_of,
    p_is,
    p_value,
    paragraph,
    plain,
    significant,
    table,
)
from diffurn.inference.solving.robust import words_on

if TYPE_CHECKING:
    from diffurn.inference.results.fit_result import FitResult
    from diffurn.inference.results.fitted import Fitted
    from diffurn.inference.results.selection import Selection
    from diffurn.inference.solving.estimates import Contrasts

LAWS = {
    "fisher": "Fisher's law, balls taken at once",
    "wallenius": "Wallenius' law, balls taken one after another",
}
_NAMES_IN_A_LINE = 6


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
    named = ", ".join(f"{name}: {value:.4g}" for name, value in pairs)
    more = ", …" if len(result.names) > _NAMES_IN_A_LINE else ""
    return f"FitResult({shown}, rows={int(result.rows)}, {kind}={{{named}{more}}})"


# --- the summary


def summary_of(
    result: FitResult, contrasts: Contrasts | None = None, selection: Selection | None = None
) -> str:
    """The text of ``print(result)``: as wide as the terminal, unless numbers need more."""
    available, rows = int(result.available.sum()), int(result.rows)
    lines = paragraph(
        f"{LAWS[result.model]}: {count(int(result.draws))} of {count(available)} drawn, in "
        f"{number_of('row', rows)}."
    )
    by_group = result.log_weights is not None
    lines += ["", *(_weight_table(result) if by_group else coefficient_table(result, "exp β")), ""]
    lines += [line for text in _about_scale(result) for line in paragraph(text)]
    if not by_group:
        lines += ["", *_count_table(result), ""]
    if selection is not None:
        lines += ["", *_selection_table(result, selection), ""]
        lines += paragraph(_ABOUT_SELECTION)
    if contrasts is not None:
        lines += ["", *_contrast_table(result, contrasts), ""]
    lines += [line for text in _tests(result) for line in paragraph(text)]
    for note in result.notes:
        lines += paragraph("Note: " + note, "      ")
    return "\n".join(lines)


def scale_of(result: FitResult) -> str:
    """What every ω is relative to: the ω of a group, or a mean; empty if nothing is compared."""
    if result.reference is not None:
        return str(result.reference)
    inside, all_groups = result.baseline, len(result.groups)
    if not inside:
        return ""
    if len(inside) == 1:
        return inside[0]
    if len(inside) == all_groups:
        every = "both" if all_groups == 2 else f"all {all_groups}"
        return f"the geometric mean of {every} groups"
    return f"the geometric mean of {listed(inside)}"


def _about_scale(result: FitResult) -> Iterator[str]:
    relative = scale_of(result) if result.log_weights is not None or result.reference else ""
    if result.log_weights is not None:
        alone = len(result.baseline) == 1
        equal = f"the ω of {result.baseline[0]}" if alone else "the mean"
        yield f"ω: importance relative to {relative}. p tests ω = 1, {equal}."
        yield "If ω = 1: expected if all groups were alike."
        return
    own = f" Coefficients that name a group compare it with {relative}." if relative else ""
    yield f"exp β: factor on ω per unit of the covariate. p tests β = 0.{own}"


def _weight_table(result: FitResult) -> list[str]:
    titles = ("Group", "Available", "Drawn", "If ω = 1", "ω", interval_title(result), "p")
    columns = (
        result.available,
        result.observed,
        result.central_expected,
        result.coefficients,
        result.lower,
        result.upper,
        result.p_values,
    )
    alone = result.baseline[0] if len(result.baseline) == 1 else None
    return table(
        titles,
        [
            (
                group,
                count(available),
                count(drawn),
                expectation(alike),
                factor(estimate, 4),
                "reference" if group == alone else between(lower, upper),
                p_value(p),
            )
            for group, available, drawn, alike, estimate, lower, upper, p in zip(
                result.groups, *(c.tolist() for c in columns), strict=True
            )
        ],
    )


def coefficient_table(result: Fitted, factor_title: str) -> list[str]:
    """A line for each coefficient of a single data set."""
    titles = ("Coefficient", "β", "std. error", factor_title, interval_title(result), "p")
    columns = (
        result.coefficients,
        result.standard_errors,
        result.lower,
        result.upper,
        result.p_values,
    )
    return table(
        titles,
        [
            (
                name,
                plain(estimate),
                plain(error),
                factor(estimate, 4),
                between(lower, upper),
                p_value(p),
            )
            for name, estimate, error, lower, upper, p in zip(
                result.names, *(c.tolist() for c in columns), strict=True
            )
        ],
    )


def interval_title(result: Fitted) -> str:
    return f"{100 * result.level:g}% interval"


def _count_table(result: FitResult) -> list[str]:
    columns = (result.available, result.observed, result.central_expected, result.expected)
    return table(
        ("Group", "Available", "Drawn", "If ω = 1", "By the fit"),
        [
            (group, count(available), count(drawn), *map(expectation, expected))
            for group, available, drawn, *expected in zip(
                result.groups, *(c.tolist() for c in columns), strict=True
            )
        ],
    )


def _contrast_table(result: FitResult, contrasts: Contrasts) -> list[str]:
    correction = contrasts.correction or "uncorrected"
    corrected = f"p ({correction if '-' in correction else correction.capitalize()})"
    columns = (
        contrasts.estimate,
        contrasts.lower,
        contrasts.upper,
        contrasts.p_value,
        contrasts.adjusted_p_value,
    )
    return table(
        ("Pair", "Ratio of ω", interval_title(result), "p", corrected),
        [
            (
                f"{first} / {second}",
                factor(ratio, 4),
                between(lower, upper),
                p_value(p),
                p_value(adjusted),
            )
            for (first, second), ratio, lower, upper, p, adjusted in zip(
                contrasts.pairs, *(c.tolist() for c in columns), strict=True
            )
        ],
    )


_ABOUT_SELECTION = (
    "Selection ratio: drawn / expected if all groups were alike. Manly's α: ω as a share of all ω."
)


def _selection_table(result: FitResult, selection: Selection) -> list[str]:
    columns = (selection.ratio, selection.ratio_error, selection.alpha, selection.alpha_error)
    return table(
        ("Group", "Selection ratio", "std. error", "Manly's α", "std. error"),
        [
            (group, *("?" if math.isnan(x) else significant(x, 4) for x in numbers))
            for group, *numbers in zip(
                result.groups, *(column.tolist() for column in columns), strict=True
            )
        ],
    )


# --- tests


def _tests(result: FitResult) -> Iterator[str]:
    yield _about_intervals(result)
    yield _about_equality(result)
    yield _about_fit(result)
    number = number_of("parameter", int(result.parameters))
    yield (
        f"AIC {float(result.aic) + 0.0:,.2f} with {number}, "
        f"log-likelihood {float(result.log_likelihood):,.3f} (all alike: "
        f"{float(result.central_log_likelihood):,.3f})."
    )


def _about_intervals(result: FitResult) -> str:
    kind = {
        "profile": "by profile likelihood",
        "wald": "by standard errors (Wald)",
        "bootstrap": "by the bootstrap",
    }[result.interval]
    if result.bootstrap is not None:
        kind = f"{kind}: {result.bootstrap.words}"
    penalty = "" if result.penalty is None else f"; estimates with {result.penalty} penalty"
    errors = "" if result.covariance_kind == "model" else f"; {words_on(result.solution.errors)}"
    return f"Intervals {kind}{errors}{penalty}."


def _about_equality(result: FitResult) -> str:
    test = result.equality_test()
    p, freedom = float(test.p_value), int(test.degrees_of_freedom)
    if freedom == 0:
        return "All groups alike? These counts could not tell."
    if math.isnan(p):
        return "All groups alike? There are too few rows or clusters for this test."
    verdict = "no" if p < 1 - result.level else "nothing here speaks against it"
    name = test.test[0].upper() + test.test[1:]
    return f"All groups alike? {name}: {test.statistic_in_words}: {verdict}."


def _about_fit(result: FitResult) -> str:
    fit = result.goodness_of_fit()
    freedom, p, dispersion = int(fit.degrees_of_freedom), float(fit.p_value), float(fit.dispersion)
    if freedom == 0:
        return (
            "Does the law fit? The model is saturated: it has as many parameters as the counts can "
            "determine, so this cannot be judged."
        )
    verdict = "rows differ no more than by chance"
    if p < 1 - result.level and dispersion > 1:
        verdict = "rows may differ by more than chance"
    if is_overdispersed(result):
        verdict = "rows differ by more than chance (overdispersion)"
        small = f"the model's standard errors are about {math.sqrt(dispersion):.2g} times too small"
        verdict += f", so {small}" if result.covariance_kind == "model" else ""
    return (
        f"Does the law fit? Pearson χ² = {float(fit.statistic):,.2f} with {freedom:,} df, "
        f"{p_is(p)}, dispersion {dispersion:.3g}: {verdict}."
    )


# --- data


def columns_of(result: FitResult) -> dict[str, list[Any]]:
    """One entry per coefficient in each column. The names of the columns say their scale."""
    log, exp = ("log_weight", "weight") if result.log_weights is not None else ("beta", "exp_beta")
    return {
        log: result.coefficients.tolist(),
        f"{log}_se": result.standard_errors.tolist(),
        f"{log}_lower": result.lower.tolist(),
        f"{log}_upper": result.upper.tolist(),
        exp: result.coefficients.exp().tolist(),
        f"{exp}_lower": result.lower.exp().tolist(),
        f"{exp}_upper": result.upper.exp().tolist(),
        "z": (result.coefficients / result.standard_errors).tolist(),
        "p": result.p_values.tolist(),
    }


def frame_of(result: FitResult, selection: Selection | None = None) -> Any:
    """The table of `FitResult.to_frame`."""
    columns = columns_of(result)
    if selection is not None:
        columns |= {name: column.tolist() for name, column in selection._asdict().items()}
    frame = data_frame(columns, "coefficient", result.names)
    frame.attrs["relative_to"] = scale_of(result) or None
    return frame


def data_frame(columns: dict[str, list[Any]], index: str, names: Any) -> Any:
    try:
        from pandas import DataFrame, Index  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise ImportError(
            "to_frame needs pandas: pip install pandas; to_dict works without"
        ) from None
    return DataFrame(columns, index=Index(names, name=index))


def dict_of(
    result: FitResult, contrasts: Contrasts | None = None, selection: Selection | None = None
) -> dict[str, Any]:
    """The plain data of `FitResult.to_dict`."""
    fit, equality = result.goodness_of_fit(), result.equality_test()
    columns, errors = columns_of(result), result.solution.errors
    if selection is not None:
        columns |= {name: column.tolist() for name, column in selection._asdict().items()}
    whole = {
        "model": result.model,
        "groups": list(result.groups),
        "reference": result.reference,
        "relative_to": scale_of(result) or None,
        "penalty": result.penalty,
        "level": result.level,
        "interval": result.interval,
        "covariance": {
            "kind": errors.kind,
            "factor": float(errors.factor[0]),
            "degrees_of_freedom": float(errors.degrees[0]),
            "matrix": result.covariance.tolist(),
        },
        "coefficients": [
            {"name": name, **{key: values[k] for key, values in columns.items()}}
            for k, name in enumerate(result.names)
        ],
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
        "equality_test": {
            "test": equality.test,
            "statistic": float(equality.statistic),
            "degrees_of_freedom": int(equality.degrees_of_freedom),
            "denominator": float(equality.denominator),
            "p_value": float(equality.p_value),
        },
        "goodness_of_fit": {name: value.item() for name, value in fit._asdict().items()},
        "notes": result.notes,
    }
    if contrasts is not None:
        whole["contrasts"] = contrasts.to_list()
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
