"""What the records of the pairs study say: its models, the answers they are measured by, and names
for people.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from diffurn_studies.pairs.scores import squared_errors

Model = dict[str, Any]
# What tells the models of a study apart, in the records of training and of scoring alike.
SETTING = ("method", "shared", "seed", "learning_rate", "final_temperature", "beta")
SCORES = (
    "shared_accuracy",
    "independent_accuracy",
    "whole_accuracy",
    "disentanglement",
    "unconverged",
)
FOUND = (
    "independent",
    "independent_error",
    "estimate",
    "shared_error",
)  # mean k̂, MSE(F−s, k̂), mean ŝ, MSE(s, ŝ)
NAMES = {"label": "LabelVAE", "ada": "AdaVAE", "oracle": "Oracle", "hypergeometric": "HGVAE"}
# Setting that an ablation varies -> its detail in a method's name, and its symbol.
VARIED = {"learning_rate": ("lr", "lr"), "final_temperature": ("tau", "τ"), "beta": ("beta", "β")}
_NUMBER = re.compile(rf"({'|'.join(detail for detail, _ in VARIED.values())})([\d.]+(?:e-?\d+)?)")
_PART = re.compile(rf"{_NUMBER.pattern}|[^-]+")


def shown(method: str) -> str:
    """The name of a method for people.

    Example:
        >>> shown("hypergeometric-covariance-log1p-lr1e-4"), shown("label-index"), shown("ada")
        ('HGVAE (covariance, log1p, lr 1e-4)', 'LabelVAE (by index)', 'AdaVAE')
    """
    name, *details = _parts(method)
    listed = ", ".join(map(_shown_detail, details))
    return NAMES.get(name, name) + (f" ({listed})" if listed else "")


def _parts(method: str) -> list[str]:
    """Family and details; the dash of 1e-4 does not part."""
    return [part.group() for part in _PART.finditer(method)]


def _shown_detail(detail: str) -> str:
    number = _NUMBER.fullmatch(detail)
    if number is None:
        return "by index" if detail == "index" else detail
    return f"{dict(VARIED.values())[number.group(1)]} {number.group(2)}"


def family(method: str) -> str:
    return _parts(method)[0]


def base(method: str) -> str:
    """A method without the details that an ablation varies."""
    return "-".join(part for part in _parts(method) if not _NUMBER.fullmatch(part))


def shown_shared(shared: int | None) -> str:
    return "random" if shared is None else str(shared)


def plain_number(value: float) -> str:
    """0.0001 as 1e-4, as in the names of methods."""
    if value == 0 or value >= 1e-2:
        return f"{value:g}"
    mantissa, exponent = f"{value:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def joined(records: Mapping[str, Mapping[str, Any]]) -> list[Model]:
    """Every model once: how it was trained, what it found and how it was scored.

    To the fields of the records come `factors` (their number), `shape`, and of finished models
    ``independent`` (mean k̂), ``estimate`` (mean ŝ), ``shared_error`` (MSE(s, ŝ)),
    ``independent_error`` (MSE(F−s, k̂)), ``loss`` and ``active``. What is not known is None, and so
    is the temperature of methods that draw nothing.

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
            about: Model = {"factors": len(record["factors"]), "shape": record["shape"]}
            if family(model["method"]) != "hypergeometric":
                about["final_temperature"] = None
            models.append(
                {
                    **model,
                    **about,
                    **{name: scores.get(name) for name in SCORES},
                    **_found(model["final"], about["factors"]),
                }
            )
    return models


def _setting(model: Model) -> tuple[Any, ...]:
    return tuple(model[name] for name in SETTING)


def _found(final: Mapping[str, Any] | None, factors: int) -> dict[str, float | None]:
    if final is None:
        return dict.fromkeys((*FOUND, "loss", "active"))
    by_number = [sum(numbers) for numbers in zip(*final["counts"].values(), strict=True)]
    independent = mean_independent(by_number)
    shared_error, independent_error = squared_errors(final["counts"], factors)
    return {
        "independent": independent,
        "estimate": len(by_number) - 1 - independent,
        "shared_error": shared_error,
        "independent_error": independent_error,
        "loss": final["loss"],
        "active": final["active"],
    }


def mean_independent(counts: Sequence[int]) -> float:
    """Mean k̂ of pairs, of which counts[k] got k̂ = k."""
    return sum(number * count for number, count in enumerate(counts)) / sum(counts)


def counts_of(models: Iterable[Model]) -> dict[int, list[int]]:
    """By the true s, where it occurs: how many test pairs of all these models got k̂ = 0, 1, …"""
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


def methods_of(models: Iterable[Model]) -> list[str]:
    return list(dict.fromkeys(model["method"] for model in models))


def select(models: Iterable[Model], shared: int | None, method: str | None = None) -> list[Model]:
    return [
        model for model in models if model["shared"] == shared and method in (None, model["method"])
    ]


def known(models: Iterable[Model], name: str) -> list[float]:
    """A figure of all models that have it."""
    return [model[name] for model in models if model[name] is not None]


def seed_means(models: Sequence[Model], names: Sequence[str]) -> list[Model]:
    """Of models of one method: each seed's means over all s, of the seeds that finished at every
    s.
    """
    settings, means = settings_of(models), []
    for seed in sorted({model["seed"] for model in models}):
        own = [model for model in models if model["seed"] == seed and model["final"] is not None]
        if len(own) == len(settings):
            means.append({name: statistics.fmean(known(own, name)) for name in names})
    return means


class Reference(NamedTuple):
    """What an answer that learned nothing, or that was told everything, has on some pairs."""

    independent: float
    estimate: float
    shared_error: float
    independent_error: float


def shares_of(models: Iterable[Model]) -> dict[int, float]:
    """How often the test pairs of these models truly share s factors, by s; empty where none
    finished.
    """
    pairs = {shared: sum(numbers) for shared, numbers in counts_of(models).items()}
    return {shared: number / sum(pairs.values()) for shared, number in pairs.items()}


def shares_over_all(models: Sequence[Model]) -> dict[int, float]:
    """Those of all data sets with a fixed s together."""
    parts = [
        shares for shared in fixed_settings(models) if (shares := shares_of(select(models, shared)))
    ]
    return {
        shared: sum(part.get(shared, 0.0) for part in parts) / len(parts)
        for shared in sorted(set().union(*parts))
    }


def references(
    shares: Mapping[int, float], everywhere: Mapping[int, float], factors: int, latents: int
) -> dict[str, Reference]:
    """The answers that every method is measured by, on pairs that share s factors with probability
    shares[s].

    The best constant is one k̂, and apart from it one ŝ, for all pairs of the study: what can be
    had without looking. "ω = 1" draws k̂ from the urn that no model has touched, m = (d, d) and n =
    d, whatever the pair. The oracle has k̂ = F − s, and so ŝ = s + d − F.

    Args:
        shares: probabilities by s.
        everywhere: those of all pairs of the study.
        factors: F.
        latents: d.

    Example:
        >>> everywhere = {0: 0.25, 1: 0.25, 3: 0.25, 5: 0.25}
        >>> references(everywhere, everywhere, factors=7, latents=10)["best constant"]
        Reference(independent=5, estimate=2, shared_error=3.75, independent_error=3.75)
    """
    mean = sum(share * shared for shared, share in shares.items())
    independent = min(
        range(latents + 1), key=lambda number: _distance(everywhere, factors - number)
    )
    estimate = min(range(latents + 1), key=lambda number: _distance(everywhere, number))
    central = [
        math.comb(latents, k) ** 2 for k in range(latents + 1)
    ]  # C(d, k) C(d, d − k), over C(2d, d)
    untouched = squared_errors(
        {str(shared): [share * weight for weight in central] for shared, share in shares.items()},
        factors,
    )
    return {
        "best constant": Reference(
            independent,
            estimate,
            _distance(shares, estimate),
            _distance(shares, factors - independent),
        ),
        "ω = 1": Reference(latents / 2, latents / 2, *untouched),
        "oracle": Reference(
            factors - mean, latents - factors + mean, float((latents - factors) ** 2), 0.0
        ),
    }


def _distance(shares: Mapping[int, float], shared: float) -> float:
    return sum(share * (each - shared) ** 2 for each, share in shares.items())


def references_of(
    models: Sequence[Model], shared: int | None, latents: int
) -> dict[str, Reference]:
    """`references` for the data set of one s; random s is a study of its own. Empty where no model
    finished.
    """
    shares = shares_of(select(models, shared))
    everywhere = shares if shared is None else shares_over_all(models)
    return references(shares, everywhere, models[0]["factors"], latents) if shares else {}


# What an ablation is about.
ABLATED = ("loss", "independent_error", "shared_error")


class Ablation(NamedTuple):
    """Models of one method that differ in one setting alone (and in s and seed)."""

    method: str  # without that setting's detail
    varied: str
    held: str  # the other settings, for people
    models: dict[float, list[Model]]  # by value


def ablations(models: Sequence[Model]) -> list[Ablation]:
    """What the records can say about learning rate, final temperature and β; each on the s that all
    its values have.
    """
    found = []
    for varied in VARIED:
        others = [name for name in VARIED if name != varied]
        groups: dict[tuple[Any, ...], dict[float, list[Model]]] = {}
        for model in models:
            if model[varied] is not None:
                group = groups.setdefault(
                    (base(model["method"]), *(model[name] for name in others)), {}
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
    return f"{VARIED[name][1]} {plain_number(value)}"
