"""The models in the records of the study, and the reference answers that they are compared with."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from diffurn import FisherHypergeometric
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
# mean k̂, MSE(F−s, k̂), mean ŝ, MSE(s, ŝ)
FOUND = ("independent", "independent_error", "estimate", "shared_error")


def shown_shared(shared: int | None) -> str:
    return "random" if shared is None else str(shared)


def joined(records: Mapping[str, Mapping[str, Any]]) -> list[Model]:
    """Every model with the results of its training and its scores.

    The entry `method` is a `Method`. These entries are added to those of the record: `factors`
    (their number), `shape`, the settings that an ablation varies, and for finished models
    ``independent`` (mean k̂), ``estimate`` (mean ŝ), ``shared_error`` (MSE(s, ŝ)),
    ``independent_error`` (MSE(F−s, k̂)), ``loss`` and ``active``. Unknown values are None; so is the
    temperature of a method that draws nothing.

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
            if method.kind != "hypergeometric":
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
    """The same in the records of training and of scoring."""
    return Method.from_fields(model["method"]), model["shared"], model["seed"]


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
            means.append({name: statistics.fmean(known(own, name)) for name in names})
    return means


class Reference(NamedTuple):
    """Mean k̂, mean ŝ and the errors of an answer that needs no training, on some pairs."""

    independent: float
    estimate: float
    shared_error: float
    independent_error: float


def shares_of(models: Iterable[Model]) -> dict[int, float]:
    """The share of test pairs with s truly shared factors, by s; empty if no model finished."""
    pairs = {shared: sum(numbers) for shared, numbers in counts_of(models).items()}
    return {shared: number / sum(pairs.values()) for shared, number in pairs.items()}


def shares_over_all(models: Sequence[Model]) -> dict[int, float]:
    """The mean of these shares over all data sets with a fixed s."""
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
    """The reference answers, on pairs that share s factors with probability shares[s].

    The best constant is the one k̂, and separately the one ŝ, with the smallest error on all pairs
    of the study. "ω = 1" draws k̂ from the urn m = (d, d), n = d with equal weights, for every pair.
    The oracle has k̂ = F − s, so ŝ = s + d − F.

    Args:
        shares: probabilities by s.
        everywhere: the same for all pairs of the study.
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
    equal_weights = _equal_weights(latents)
    untouched = squared_errors(
        {
            str(shared): [share * probability for probability in equal_weights]
            for shared, share in shares.items()
        },
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


def _equal_weights(latents: int) -> list[float]:
    """P(k̂ = k) for k = 0, …, d in the urn m = (d, d), n = d with equal weights."""
    urn = FisherHypergeometric(
        [latents, latents], latents, weights=torch.ones(2, dtype=torch.float64)
    )
    k = torch.arange(latents + 1, dtype=torch.float64)
    return urn.log_prob(torch.stack([k, latents - k], -1)).exp().tolist()


def _distance(shares: Mapping[int, float], shared: float) -> float:
    return sum(share * (each - shared) ** 2 for each, share in shares.items())


def references_of(
    models: Sequence[Model], shared: int | None, latents: int
) -> dict[str, Reference]:
    """`references` for the data set of one s; random s is not mixed with fixed ones. Empty if no
    model finished.
    """
    shares = shares_of(select(models, shared))
    everywhere = shares if shared is None else shares_over_all(models)
    return references(shares, everywhere, models[0]["factors"], latents) if shares else {}


# The values that an ablation reports.
ABLATED = ("loss", "independent_error", "shared_error")


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
