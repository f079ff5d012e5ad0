"""Reference answers that need no training, with which the models are compared."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from diffurn import FisherHypergeometric
from diffurn_studies.pairs.records import Model, counts_of, fixed_settings, select
from diffurn_studies.pairs.scores import squared_errors

FLOOR = "floor of a draw"


class Reference(NamedTuple):
    """Mean k̂, mean ŝ and the errors of an answer that needs no training, on some pairs. Where k̂ is
    drawn, the errors are those of draws.
    """

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
    The oracle has k̂ = F − s, so ŝ = s + d − F. The floor is the smallest error that a draw from
    this urn can have, over all weights; for every s, and for k̂ and ŝ separately, the best weights.

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
    floors = [(share, *_floors(shared, factors, latents)) for shared, share in shares.items()]
    return {
        "best constant": Reference(
            independent,
            estimate,
            _distance(shares, estimate),
            _distance(shares, factors - independent),
        ),
        "ω = 1": Reference(latents / 2, latents / 2, *untouched),
        FLOOR: Reference(
            sum(share * of_differing.mean for share, of_differing, _ in floors),
            latents - sum(share * of_equal.mean for share, _, of_equal in floors),
            sum(share * of_equal.error for share, _, of_equal in floors),
            sum(share * of_differing.error for share, of_differing, _ in floors),
        ),
        "oracle": Reference(
            factors - mean, latents - factors + mean, float((latents - factors) ** 2), 0.0
        ),
    }


def _equal_weights(latents: int) -> list[float]:
    """P(k̂ = k) for k = 0, …, d with equal weights."""
    probabilities: list[float] = _probabilities(torch.zeros(1, dtype=torch.float64), latents)[
        0
    ].tolist()
    return probabilities


def _probabilities(log_odds: Tensor, latents: int) -> Tensor:
    """P(k̂ = k) for k = 0, …, d in urns m = (d, d), n = d, (N, d + 1)."""
    k = torch.arange(latents + 1, dtype=torch.float64)
    log_weights = torch.stack([log_odds, torch.zeros_like(log_odds)], -1).unsqueeze(1)
    urns = FisherHypergeometric([latents, latents], latents, log_weights=log_weights)
    counts = torch.stack([k, latents - k], -1).expand(len(log_odds), -1, -1)
    return urns.log_prob(counts).exp()


class Floor(NamedTuple):
    """The smallest mean squared error of a draw k̂, and the mean of k̂ there."""

    error: float
    mean: float


@functools.cache
def floor(target: int, latents: int) -> Floor:
    """min over ω of E(k̂ − target)² for the urn m = (d, d), n = d.

    Each pass evaluates a grid and goes on between the neighbours of its smallest value. At a target
    of 0 or d the smallest error is 0, for infinite weights; the grid ends at log ω = ±40.

    Example:
        >>> [round(floor(target, latents=10).error, 2) for target in (7, 6, 4, 2)]
        [1.12, 1.27, 1.27, 0.88]
    """
    k = torch.arange(latents + 1, dtype=torch.float64)
    low, high = -40.0, 40.0
    for _ in range(5):
        grid = torch.linspace(low, high, 401, dtype=torch.float64)
        probabilities = _probabilities(grid, latents)
        errors = probabilities @ (k - target).square()
        place = int(errors.argmin())
        low, high = float(grid[max(0, place - 1)]), float(grid[min(400, place + 1)])
    return Floor(float(errors[place]), float(probabilities[place] @ k))


def _floors(shared: int, factors: int, latents: int) -> tuple[Floor, Floor]:
    """The floors of MSE(F − s, k̂) and of MSE(s, ŝ), the latter for k̂ = d − ŝ."""
    return floor(factors - shared, latents), floor(latents - shared, latents)


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
