"""Exact draws from Wallenius' law, by simulating the race of all balls at a few times.

Every ball arrives after an exponential time. Given the arrivals of a group in an interval of time,
the number of them in its first part is binomial. So the time of the n-th arrival is found by
guesses, as in a bisection. Each guess costs one binomial per group, instead of an exponential time
per ball, and about log log n guesses are needed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn._kernels.dispatch import can_call
from diffurn._numerics.batching import in_chunks
from diffurn._numerics.inversion import chosen_column
from diffurn._numerics.tracing import reading_numbers

# The counts simulated at once: enough for the vector units, and few enough for the cache.
_COUNTS = 1 << 17
# The Newton steps for a guess, which need not be accurate.
_STEPS_OF_A_GUESS = 2
# A guess halves the remaining arrivals on average, so this many rounds are never reached.
_MOST_ROUNDS = 10_000


def draw_each(
    log_weights: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    num_samples: int,
    most_draws: int | None,
) -> Tensor:
    """Exact draws of each urn, with the elements of ``(num_samples, ..., c)``.

    Args:
        log_weights, group_sizes: ``(..., c)``; finite log-weights.
        draws: ``(...)``; draws are NaN where it is.
        num_samples: of each urn.
        most_draws: the largest n, if it is small enough to draw the balls one by one; or None.
    """
    if can_call(log_weights, group_sizes, draws):
        from diffurn._kernels.native import sampling

        seed = sampling.new_seed()
        return sampling.draw_by_race(log_weights, group_sizes, draws, num_samples, seed)
    groups = log_weights.shape[-1]
    urns = log_weights.reshape(-1, groups), group_sizes.reshape(-1, groups), draws.reshape(-1)
    weights, sizes, n = (x.expand(num_samples, *x.shape).flatten(0, 1) for x in urns)
    if most_draws is None:
        return draw_by_race(weights, sizes, n)
    return draw_one_by_one(weights, sizes, n, most_draws)


def draw_by_race(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """One exact draw for each row of finite log-weights ``(R, c)``; NaN if `draws` is NaN.

    Groups that cannot be drawn have size zero.
    """
    return reading_numbers(_draw_in_chunks, log_weights, group_sizes, draws)


def _draw_in_chunks(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    rows, groups = log_weights.shape
    per_chunk = max(1, _COUNTS // groups)
    chunks = zip(
        log_weights.split(per_chunk),
        group_sizes.split(per_chunk),
        draws.split(per_chunk),
        strict=True,
    )
    if not rows:
        return torch.empty_like(log_weights)
    return torch.cat([_draw_rows(*chunk) for chunk in chunks])


def _draw_rows(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    counts, asked = torch.empty_like(group_sizes), draws
    row = torch.arange(len(draws), device=draws.device)
    rates = torch.exp(log_weights)
    # The arrivals before the interval of time and within it, and its length. It starts infinite.
    before, within = torch.zeros_like(group_sizes), group_sizes
    length = torch.full_like(draws, torch.inf)
    for _ in range(_MOST_ROUNDS):
        needed, available = draws - before.sum(-1), within.sum(-1)
        finished = ~(needed > 0) | (needed == available)  # True for NaN
        counts[row[finished]] = (before + within * (needed == available).unsqueeze(-1))[finished]
        pending = torch.nonzero(~finished).squeeze(-1)
        if not len(pending):
            return counts + 0 * asked.unsqueeze(-1)
        row, rates, before, within, length, draws, needed = (
            x[pending] for x in (row, rates, before, within, length, draws, needed)
        )
        guess = _time_of(needed, rates, within, length)
        early = torch.binomial(within, _share_before(guess, rates, length))
        # If the guess is too early, the next interval begins at it, otherwise it ends there.
        too_early = (early.sum(-1) <= needed).unsqueeze(-1)
        before = torch.where(too_early, before + early, before)
        within = torch.where(too_early, within - early, early)
        length = torch.where(too_early.squeeze(-1), length - guess, guess)
    raise RuntimeError(
        f"no draw was found in {_MOST_ROUNDS} rounds: log_weights must be finite numbers"
    )


def _share_before(time: Tensor, rates: Tensor, length: Tensor) -> Tensor:
    """The probability that an arrival within the interval is before `time`.

    It is (1 - e^{-ω time}) / (1 - e^{-ω length}).
    """
    share = torch.expm1(-rates * time.unsqueeze(-1)) / torch.expm1(-rates * length.unsqueeze(-1))
    return torch.where(rates == 0, (time / length).unsqueeze(-1), share).clamp(0, 1)


def _time_of(needed: Tensor, rates: Tensor, within: Tensor, length: Tensor) -> Tensor:
    """A guess of the time by which the needed number of balls has arrived.

    Any guess gives exact draws; a good one saves rounds. The expected number of arrivals is concave
    in time, so Newton's method approaches the root from below.
    """
    arriving = torch.expm1(-rates * length.unsqueeze(-1)).neg()
    pace = torch.where(within > 0, within * rates / arriving, 0.0)  # the arrival rate at time zero
    time = needed / pace.sum(-1)
    for _ in range(_STEPS_OF_A_GUESS):
        expected = (within * _share_before(time, rates, length)).sum(-1)
        current_pace = (pace * torch.exp(-rates * time.unsqueeze(-1))).sum(-1)
        smallest = torch.finfo(time.dtype).tiny
        time = time + (needed - expected).clamp(min=0) / current_pace.clamp(min=smallest)
    return torch.minimum(time, 0.5 * (length + time))  # inside the interval


def draw_one_by_one(
    log_weights: Tensor, group_sizes: Tensor, draws: Tensor, most_draws: int
) -> Tensor:
    """One exact draw for each row, ball by ball; `most_draws` is the largest of the draws."""

    def rows(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
        weights, left = log_weights.exp(), group_sizes
        for step in range(most_draws):
            group = chosen_column((weights * left).cumsum(-1)).unsqueeze(-1)
            left = left.scatter_add(-1, group, -(draws > step).to(left.dtype).unsqueeze(-1))
        return group_sizes - left

    operands, groups = (log_weights, group_sizes, draws), log_weights.shape[-1]
    return in_chunks(rows, *operands, events=(1, 1, 0), work=groups)
