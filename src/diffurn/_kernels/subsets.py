"""Triton kernel that draws from urns whose groups have one ball or none: subsets of items.

A ball is drawn or not by 32 random bits, so one call of Philox proposes four subsets. If the bits
are those of the limit itself, 32 more decide.
"""

# Type checkers cannot read Triton's language, and Triton may not be installed.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False, warn-return-any=False
# mypy: disable-error-code="arg-type, assignment, call-arg, misc, import-not-found, import-untyped, operator"

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from diffurn._kernels import sampling
from diffurn._kernels.sampling import _philox, _spread, new_seed, rounds_of

# The items of one program, one per thread, if an urn has fewer.
PROPOSED = 64
# The most items that a program holds in registers. Balls of a proposal are counted in ten bits.
MOST_GROUPS = 1024
PROPOSALS = tl.constexpr(4)
# In a sum over groups each proposal has twelve bits: ten count its balls, and the next one is set
# if the ball of the last group has its rarer outcome. Bits above count ties.
FIELD, RARER, TIE = tl.constexpr(12), tl.constexpr(1 << 10), tl.constexpr(1 << 48)
TWO_TO_32 = tl.constexpr(2.0**32)
# Philox's counter of the bits that decide ties.
FURTHER = tl.constexpr(1 << 30)


@triton.jit
def _is_below(word, further, high, low, DECIDES: tl.constexpr):
    """Whether the bits of a word are below a limit; with DECIDES, those of `further` too."""
    bits = word.to(tl.int64)
    below = bits < high
    if DECIDES:
        below = below | ((bits == high) & (further.to(tl.int64) < low))
    return below


@triton.jit
def _outcome(word, further, high, low, commoner, size, DECIDES: tl.constexpr):
    """The balls drawn of each group: the commoner outcome, unless the bits are below the limit."""
    below = _is_below(word, further, high, low, DECIDES)
    return tl.where(below, size - commoner, commoner)


@triton.jit
def _packed(word, further, high, low, commoner, size, is_last, proposal, DECIDES: tl.constexpr):
    """What a group adds to the sum of a proposal."""
    below = _is_below(word, further, high, low, DECIDES).to(tl.int64)
    drawn = _outcome(word, further, high, low, commoner, size, DECIDES)
    return tl.where(is_last, below * RARER, drawn) << (FIELD * proposal)


@triton.jit
def _all_packed(
    w0, w1, w2, w3, f0, f1, f2, f3, high, low, commoner, size, is_last, DECIDES: tl.constexpr
):
    """The sums of all four proposals in one number for each row."""
    return tl.sum(
        _packed(w0, f0, high, low, commoner, size, is_last, 0, DECIDES)
        + _packed(w1, f1, high, low, commoner, size, is_last, 1, DECIDES)
        + _packed(w2, f2, high, low, commoner, size, is_last, 2, DECIDES)
        + _packed(w3, f3, high, low, commoner, size, is_last, 3, DECIDES),
        1,
    )


@triton.jit
def _subsets_kernel(
    seed, log_odds, group_sizes, draws, counts, rows, urns, groups, rounds,
    GROUPS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One exact draw for each row.

    The group of the largest variance gets what the others leave. A proposal that leaves it the
    rarer outcome is accepted with the odds of that outcome. A row for which no proposal of any
    round is accepted becomes NaN.
    """
    row, j = (
        tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS),
        tl.arange(0, GROUPS)[None, :],
    )
    key, urn, waiting = tl.load(seed), row % urns, row < rows
    exists = waiting[:, None] & (j < groups)
    place = urn[:, None] * groups + j
    logit = tl.load(log_odds + place, mask=exists, other=0.0)
    ball = tl.load(group_sizes + place, mask=exists, other=0.0)
    total = tl.load(draws + urn, mask=waiting, other=0.0)

    is_last = tl.argmax(tl.where(exists, _spread(logit, ball), -1.0), 1)[:, None] == j
    size = (ball > 0.0).to(tl.int64)
    commoner = tl.where(logit > 0.0, size, 0)
    # The rarer outcome of a ball has the probability odds / (1 + odds).
    odds = tl.exp(-tl.abs(logit)) * ball
    limit = tl.where(is_last, odds, odds / (1.0 + odds)) * TWO_TO_32
    high = tl.floor(limit)
    high, low = high.to(tl.int64), ((limit - high) * TWO_TO_32).to(tl.int64)
    last_commoner = tl.sum(tl.where(is_last, commoner, 0), 1)
    last_rarer = tl.sum(tl.where(is_last, size - commoner, 0), 1)
    has_last = last_commoner != last_rarer

    given_up = waiting & (total != total)
    number, waiting, tried = tl.where(given_up, 0.0, total).to(tl.int64), waiting & ~given_up, 0
    index, cell = row[:, None] + j * 0, j + row[:, None] * 0
    while (tl.max(waiting.to(tl.int32)) > 0) & (tried < rounds):
        w0, w1, w2, w3 = _philox(key, index, cell, cell * 0 + tried)
        ties = (
            (w0.to(tl.int64) == high).to(tl.int64) + (w1.to(tl.int64) == high).to(tl.int64)
            + (w2.to(tl.int64) == high).to(tl.int64) + (w3.to(tl.int64) == high).to(tl.int64)
        )  # fmt: skip
        sums = _all_packed(
            w0, w1, w2, w3, w0, w1, w2, w3, high, low, commoner, size, is_last, False
        ) + tl.sum(ties * TIE, 1)
        f0, f1, f2, f3 = w0, w1, w2, w3
        tied = tl.max(sums) >= TIE
        if tied:
            f0, f1, f2, f3 = _philox(key, index, cell, cell * 0 + (tried + FURTHER))
            sums = _all_packed(
                w0, w1, w2, w3, f0, f1, f2, f3, high, low, commoner, size, is_last, True
            )
        chosen, left = tl.full((ROWS,), -1, tl.int64), tl.zeros((ROWS,), tl.int64)
        for proposal in tl.static_range(PROPOSALS):
            field = sums >> (FIELD * (PROPOSALS - 1 - proposal))
            rest = number - (field & (RARER - 1))
            is_rarer = ((field & RARER) != 0) & has_last & (rest == last_rarer)
            accepted = (rest == last_commoner) | is_rarer
            chosen = tl.where(accepted, PROPOSALS - 1 - proposal, chosen)
            left = tl.where(accepted, rest, left)
        first = chosen[:, None]
        word = tl.where(first == 0, w0, tl.where(first == 1, w1, tl.where(first == 2, w2, w3)))
        further = tl.where(first == 0, f0, tl.where(first == 1, f1, tl.where(first == 2, f2, f3)))
        if tied:
            drawn = _outcome(word, further, high, low, commoner, size, True)
        else:
            drawn = _outcome(word, further, high, low, commoner, size, False)
        outcome = tl.where(is_last, left[:, None], drawn).to(counts.dtype.element_ty)
        accepted = waiting & (chosen >= 0)
        tl.store(counts + row[:, None] * groups + j, outcome, mask=accepted[:, None] & exists)
        waiting = waiting & ~accepted
        tried += 1
    nothing = (tl.zeros((ROWS, GROUPS), tl.float64) + float("nan")).to(counts.dtype.element_ty)
    tl.store(
        counts + row[:, None] * groups + j, nothing, mask=(waiting | given_up)[:, None] & exists
    )


@cache
def _tile(groups: int, proposed: int) -> dict[str, int]:
    padded = triton.next_power_of_2(groups)
    rows = max(1, proposed // padded)
    return {"GROUPS": padded, "ROWS": rows, "num_warps": max(1, min(16, rows * padded // 64))}


def draw_each(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, number: int, dtype: torch.dtype
) -> Tensor:
    """`number` exact draws for each row of tilted log-odds ``(B, c)``: ``(number, B, c)``.

    No group may have more than one ball. Draws of an impossible urn are NaN.
    """
    urns, groups = log_odds.shape
    if groups > MOST_GROUPS:
        return sampling.draw_each(log_odds, group_sizes, draws, number, dtype)
    counts = log_odds.new_empty(number, urns, groups, dtype=dtype)
    if number * urns:
        tile = _tile(groups, PROPOSED)
        with torch.cuda.device_of(log_odds):
            _subsets_kernel[(-(-number * urns // tile["ROWS"]),)](
                new_seed(log_odds.device), log_odds, group_sizes, draws, counts, number * urns, urns, groups, rounds_of(groups),
                **tile,
            )  # fmt: skip
    return counts
