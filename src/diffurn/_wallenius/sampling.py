"""Exact draws from Wallenius' law: run the race, but look at it only at a few times.

Every ball arrives after an exponential time. Looked at only at the ends of an interval of time, the
race is a handful of counts, and how many of a group's arrivals fell into the first part of the
interval is binomial. So the time of the n-th arrival is searched for by guessing, as in a
bisection, and each guess costs one binomial per group instead of a clock per ball: about log log n
guesses for any number of balls.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn._numerics.batching import in_chunks
from diffurn._numerics.inversion import chosen_column
from diffurn._numerics.tracing import reading_numbers

# Rows in flight at once: enough to keep the vector units busy, few enough to stay in the cache.
_COUNTS = 1 << 17
# Of Newton's method: a rough guess is soon followed by another.
_STEPS_OF_A_GUESS = 2
# A guess halves what is left on average: this many rounds are never reached.
_MOST_ROUNDS = 10_000


def draw_by_race(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """One exact draw for each row of finite log-weights ``(R, c)``, NaN where the draws are; groups
    that cannot be drawn have size zero.
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
    return (
        torch.cat([_draw_rows(*chunk) for chunk in chunks])
        if rows
        else torch.empty_like(log_weights)
    )


def _draw_rows(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    counts, asked = torch.empty_like(group_sizes), draws
    row = torch.arange(len(draws), device=draws.device)
    rates = torch.exp(log_weights)
    # What has arrived before the interval and within it, and the interval's length: all of time, to
    # begin with.
    before, within, length = (
        torch.zeros_like(group_sizes),
        group_sizes,
        torch.full_like(draws, torch.inf),
    )
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
        too_early = (early.sum(-1) <= needed).unsqueeze(
            -1
        )  # the interval begins at the guess, otherwise it ends there
        before, within = (
            torch.where(too_early, before + early, before),
            torch.where(too_early, within - early, early),
        )
        length = torch.where(too_early.squeeze(-1), length - guess, guess)
    raise RuntimeError(
        f"the race was not over after {_MOST_ROUNDS} looks: is every weight a number?"
    )


def _share_before(time: Tensor, rates: Tensor, length: Tensor) -> Tensor:
    """The probability that an arrival within the interval is within its first part: (1 - e^{-ω t})
    / (1 - e^{-ω length}).
    """
    share = torch.expm1(-rates * time.unsqueeze(-1)) / torch.expm1(-rates * length.unsqueeze(-1))
    return torch.where(rates == 0, (time / length).unsqueeze(-1), share).clamp(0, 1)


def _time_of(needed: Tensor, rates: Tensor, within: Tensor, length: Tensor) -> Tensor:
    """A time by which about the needed number has arrived: any time will do, a good one saves
    looks.

    The expected number of arrivals is concave in time, so Newton's method comes from the left and
    never overshoots.
    """
    arriving = torch.expm1(-rates * length.unsqueeze(-1)).neg()
    pace = torch.where(within > 0, within * rates / arriving, 0.0)  # at time zero
    time = needed / pace.sum(-1)
    for _ in range(_STEPS_OF_A_GUESS):
        expected = (within * _share_before(time, rates, length)).sum(-1)
        current_pace = (pace * torch.exp(-rates * time.unsqueeze(-1))).sum(-1)
        time = time + (needed - expected).clamp(min=0) / current_pace.clamp(
            min=torch.finfo(time.dtype).tiny
        )
    return torch.minimum(time, 0.5 * (length + time))  # stays inside the interval


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
