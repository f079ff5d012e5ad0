"""The models in the records of the study."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from diffurn_studies.pairs.methods import VARIED, Method, plain_number
from diffurn_studies.pairs.scores import squared_errors

Model = dict[str, Any]
SCORES = (
    "shared_accuracy",
    "independent_accuracy",
    "whole_accuracy",
    "disentanglement",
    "unconverged",
)
# S over the first s factors and I over the others, whatever sets were trained on.
FIRST = ("first_shared_accuracy", "last_independent_accuracy")
# k̂ is a draw from the urn, or the urn's mode, or its mean.
CHOICES = ("draw", "mode", "mean")
# mean k̂ and mean ŝ of the draws, and for each choice MSE(F−s, k̂) and MSE(s, ŝ)
ERRORS = ("independent_error", "shared_error")
FOUND = (
    "independent",
    *(f"{ERRORS[0]}_{choice}" for choice in CHOICES),
    "estimate",
    *(f"{ERRORS[1]}_{choice}" for choice in CHOICES),
)


def shown_shared(shared: int | None) -> str:
    return "random" if shared is None else str(shared)


def joined(records: Mapping[str, Mapping[str, Any]]) -> list[Model]:
    """Every model with the results of its training and its scores.

    The entry `method` is a `Method`. These entries are added to those of the record: `factors`
    (their number), `shape`, the settings that an ablation varies, and for finished models those of
    `FOUND`, ``loss``, ``active`` and ``log_prior``. Unknown values are None; so is the temperature
    of a method that draws nothing. Runs before modes and means were recorded know no errors of
    these.

    Args:
        records: of the units ``train-…`` and ``score-…``; the latter may be missing.
    """
    scored = {
        _setting(model): model
        for unit, record in records.items()
        if unit.startswith("score-")
        for model in record["models"]
    }
    models = []
    for unit, record in records.items():
        for model in record["models"] if unit.startswith("train-") else ():
            scores = scored.get(_setting(model), {})
            method = Method.from_fields(model["method"])
            about: Model = {
                "method": method,
                "factors": len(record["factors"]),
                "shape": record["shape"],
                **{name: getattr(method, name) for name in VARIED},
            }
            if not method.draws:
                about["final_temperature"] = None
            models.append(
                {
                    **model,
                    **about,
                    **{name: scores.get(name) for name in SCORES},
                    **_first(scores.get("by_factor"), model["shared"]),
                    **_found(model["final"], about["factors"], method),
                }
            )
    return models


def _setting(model: Model) -> tuple[Any, ...]:
    """The same in the records of training and of scoring."""
    return Method.from_fields(model["method"]), model["shared"], model["seed"]


def _first(by_factor: Mapping[str, Any] | None, shared: int | None) -> dict[str, float | None]:
    """The scores `FIRST`; None without fixed s or factors."""
    if not by_factor or shared is None:
        return dict.fromkeys(FIRST)
    parts = by_factor["shared"][:shared], by_factor["independent"][shared:]
    return {
        name: statistics.fmean(part) if part and None not in part else None
        for name, part in zip(FIRST, parts, strict=True)
    }


def _found(
    final: Mapping[str, Any] | None, factors: int, method: Method
) -> dict[str, float | None]:
    if final is None:
        return dict.fromkeys((*FOUND, "loss", "active", "log_prior"))
    return {
        **found_at(final, factors, method, final["counts"]),
        "loss": final["loss"],
        "active": final["active"],
        "log_prior": final.get("log_prior"),
    }


def found_at(
    final: Mapping[str, Any], factors: int, method: Method, shared: Iterable[str]
) -> dict[str, float | None]:
    """The values `FOUND` of a finished model over its test pairs with these true s."""
    counts = {number: final["counts"][number] for number in shared}
    by_number = [sum(numbers) for numbers in zip(*counts.values(), strict=True)]
    independent = mean_independent(by_number)
    errors: dict[str, Sequence[float | None]] = {"draw": squared_errors(counts, factors)}
    if not method.draws:  # nothing is drawn
        errors |= dict.fromkeys(CHOICES, errors["draw"])
    elif "modes" in final:
        modes = {number: final["modes"][number] for number in counts}
        errors["mode"] = squared_errors(modes, factors)
        errors["mean"] = _errors_of_means(counts, final["means"], factors)
    return {
        "independent": independent,
        "estimate": len(by_number) - 1 - independent,
        **{
            f"{name}_{choice}": errors.get(choice, (None, None))[place]
            for choice in CHOICES
            for place, name in ((1, ERRORS[0]), (0, ERRORS[1]))
        },
    }


def _errors_of_means(
    counts: Mapping[str, Sequence[int]], means: Mapping[str, Sequence[float]], factors: int
) -> tuple[float, float]:
    """As `squared_errors`, where k̂ is the urn's mean: over the pairs of every s its average and the
    average of its square are known.
    """
    errors = [0.0, 0.0]
    pairs = {number: sum(row) for number, row in counts.items()}
    for number, row in counts.items():
        latents, (first, second) = len(row) - 1, means[number]
        for place, target in enumerate((latents - int(number), factors - int(number))):
            errors[place] += pairs[number] * (second - 2 * target * first + target**2)
    return errors[0] / sum(pairs.values()), errors[1] / sum(pairs.values())


def mean_independent(counts: Sequence[int]) -> float:
    """Mean k̂ of pairs, where counts[k] pairs have k̂ = k."""
    return sum(number * count for number, count in enumerate(counts)) / sum(counts)


def counts_of(models: Iterable[Model]) -> dict[int, list[int]]:
    """For every true s that occurs: how many test pairs of all these models have k̂ = 0, 1, …"""
    counts: dict[int, list[int]] = {}
    for final in (model["final"] for model in models if model["final"] is not None):
        for shared, numbers in final["counts"].items():
            before = counts.get(int(shared), [0] * len(numbers))
            counts[int(shared)] = [a + b for a, b in zip(before, numbers, strict=True)]
    return {shared: numbers for shared, numbers in sorted(counts.items()) if any(numbers)}


def settings_of(models: Iterable[Model]) -> list[int | None]:
    """Numbers of shared factors in order, random (None) last."""
    return sorted(
        {model["shared"] for model in models},
        key=lambda shared: math.inf if shared is None else shared,
    )


def fixed_settings(models: Iterable[Model]) -> list[int]:
    return [shared for shared in settings_of(models) if shared is not None]


def methods_of(models: Iterable[Model]) -> list[Method]:
    return list(dict.fromkeys(model["method"] for model in models))


def select(
    models: Iterable[Model], shared: int | None, method: Method | None = None
) -> list[Model]:
    return [
        model for model in models if model["shared"] == shared and method in (None, model["method"])
    ]


def known(models: Iterable[Model], name: str) -> list[float]:
    """A value of all models that have it."""
    return [model[name] for model in models if model[name] is not None]


def seed_means(models: Sequence[Model], names: Sequence[str]) -> list[Model]:
    """For models of one method: the means over all s of every seed that finished at every s."""
    settings, means = settings_of(models), []
    for seed in sorted({model["seed"] for model in models}):
        own = [model for model in models if model["seed"] == seed and model["final"] is not None]
        if len(own) == len(settings):
            means.append({name: _mean_if_known([model[name] for model in own]) for name in names})
    return means


def _mean_if_known(values: Sequence[float | None]) -> float | None:
    known_ones = [value for value in values if value is not None]
    return statistics.fmean(known_ones) if len(known_ones) == len(values) else None


# The values that an ablation reports.
ABLATED = ("loss", *(f"{name}_{choice}" for name in ERRORS[::-1] for choice in CHOICES))


class Ablation(NamedTuple):
    """Models of one method that differ in one setting only (and in s and seed)."""

    method: Method  # without the settings in VARIED
    varied: str
    held: str  # the other settings in VARIED, as text
    models: dict[float, list[Model]]  # by value


def ablations(models: Sequence[Model]) -> list[Ablation]:
    """All comparisons of learning rates, final temperatures and β that the records allow; each uses
    the s that all its values have.
    """
    found = []
    for varied in VARIED:
        others = [name for name in VARIED if name != varied]
        groups: dict[tuple[Any, ...], dict[float, list[Model]]] = {}
        for model in models:
            if model[varied] is not None:
                group = groups.setdefault(
                    (model["method"].base, *(model[name] for name in others)), {}
                )
                group.setdefault(model[varied], []).append(model)
        for (method, *values), group in groups.items():
            common = set.intersection(
                *({model["shared"] for model in own} for own in group.values())
            )
            if len(group) > 1 and common:
                held = ", ".join(
                    held_at(name, value)
                    for name, value in zip(others, values, strict=True)
                    if value is not None
                )
                by_value = {
                    value: [model for model in group[value] if model["shared"] in common]
                    for value in sorted(group)
                }
                found.append(Ablation(method, varied, held, by_value))
    return found


def held_at(name: str, value: float) -> str:
    return f"{VARIED[name]} {plain_number(value)}"
