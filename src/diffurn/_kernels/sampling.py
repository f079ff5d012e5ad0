r"""Triton kernels that draw, without intermediate tensors or CPU-GPU synchronisation.

Random numbers come from Philox. Its key is a seed that torch's generator draws on the device, so
`torch.manual_seed` and CUDA graphs work as for torch's own draws. Its counter is made of draw,
group and try. Look-ups in tables use 63 random bits, uniform numbers have 53.
"""

# Type checkers cannot read Triton's language, and Triton may not be installed.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False, warn-return-any=False
# mypy: disable-error-code="arg-type, assignment, call-arg, misc, import-not-found, import-untyped, operator"

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op
from torch.nn.functional import pad

from diffurn._fisher.sampling.tree import Outcomes, Tree
from diffurn._kernels.dispatch import is_eager
from diffurn._kernels.shared import SERIES_FROM, deviance, log1p, stirling_series

# The draws of one program from tables, the fastest that were measured on an H200. From a table of
# outcomes a program takes twice as many, since it uses all four random words.
OF_OUTCOMES = {"BLOCK": 1024, "num_warps": 4}
OF_CHAINS = {"BLOCK": 512, "num_warps": 8}
# The proposed counts of one program, one per thread. A program is as slow as its slowest row, so it
# has one warp unless an urn needs more.
PROPOSED = 32
# The most groups that a program holds in registers. It goes through more groups tile by tile.
MOST_GROUPS = 1024
OF_LONG_ROWS = {"GROUPS": 1024, "ROWS": 1, "num_warps": 16}
# A proposal is accepted with a probability of at least 1/√c. So a possible urn of up to ten
# thousand groups never needs nearly this many rounds.
MOST_ROUNDS = 10_000

# A binomial count of a smaller mean is found by inversion from 0 upwards, which ends at
# LONGEST_WALK (P < 1e-29).
WALK_BELOW = tl.constexpr(10.0)
LONGEST_WALK = tl.constexpr(64.0)
# log Γ(k+1) - k log k + k comes from a table for smaller k, and from the series for others.
TABULATED = tl.constexpr(int(SERIES_FROM.value))
WORD = tl.constexpr(0xFFFFFFFF)
LOG_2PI = tl.constexpr(math.log(2 * math.pi))


def new_seed(device: torch.device) -> Tensor:
    """A random seed, drawn on the device, without CPU-GPU synchronisation."""
    return torch.randint(2**63 - 1, (1,), device=device)


@triton.jit
def _philox(seed, index, second, third):
    """Four random words for each entry, by Philox4x32-10 (Salmon et al., 2011).

    The counter consists of an int64 index and of two more words, `second` and `third`.
    """
    key, other_key = (seed & WORD).to(tl.uint32), ((seed >> 32) & WORD).to(tl.uint32)
    a, b, c, d = (
        (index & WORD).to(tl.uint32),
        ((index >> 32) & WORD).to(tl.uint32),
        second.to(tl.uint32),
        third.to(tl.uint32),
    )
    for _ in tl.static_range(10):
        of_a, of_c = a.to(tl.uint64) * 0xD2511F53, c.to(tl.uint64) * 0xCD9E8D57
        a, c = (of_c >> 32).to(tl.uint32) ^ b ^ key, (of_a >> 32).to(tl.uint32) ^ d ^ other_key
        b, d = of_c.to(tl.uint32), of_a.to(tl.uint32)
        key, other_key = key + 0x9E3779B9, other_key + 0xBB67AE85
    return a, b, c, d


@triton.jit
def _choice(high, low, row, limits, places, shift):
    """The same as `Alias.pick`, with 63 bits from two random words."""
    bits = (((high.to(tl.uint64) << 32) | low.to(tl.uint64)) >> 1).to(tl.int64)
    place = row * places + (bits >> shift)
    return 2 * place + (bits >= tl.load(limits + place)).to(tl.int64)


# --------------------------------------------------------------------------------------------------
# Many draws of one urn
# --------------------------------------------------------------------------------------------------


@triton.jit
def _outcomes_kernel(
    seed,
    limits,
    table,
    counts,
    stride,
    number,
    groups,
    places,
    shift,
    GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    lane, j = tl.arange(0, BLOCK), tl.arange(0, GROUPS)
    counter = tl.program_id(0).to(tl.int64) * BLOCK + lane
    a, b, c, d = _philox(tl.load(seed), counter, lane * 0, lane * 0)
    first = tl.program_id(0).to(tl.int64) * (2 * BLOCK) + lane
    for half in tl.static_range(2):
        choice = _choice(a if half == 0 else c, b if half == 0 else d, 0, limits, places, shift)
        draw = first + half * BLOCK
        outcome = tl.load(table + choice[:, None] * GROUPS + j[None, :])
        tl.store(
            counts + draw[:, None] * stride + j[None, :],
            outcome,
            mask=(draw < number)[:, None] & (j < groups)[None, :],
        )


@triton.jit
def _chain_kernel(
    seed,
    limits,
    choices,
    splits,
    counts,
    stride,
    number,
    draws,
    GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    draw = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    key, exists = tl.load(seed), draw < number
    rest = tl.zeros((BLOCK,), tl.int64) + draws
    for j in range(GROUPS - 1):
        split = splits + 4 * j
        lowest_total, places, shift, offset = (
            tl.load(split),
            tl.load(split + 1),
            tl.load(split + 2),
            tl.load(split + 3),
        )
        high, low, _, _ = _philox(key, draw, draw * 0 + j, draw * 0)
        own = tl.load(
            choices
            + 2 * offset
            + _choice(high, low, rest - lowest_total, limits + offset, places, shift)
        )
        tl.store(counts + draw * stride + j, own.to(counts.dtype.element_ty), mask=exists)
        rest -= own
    tl.store(counts + draw * stride + GROUPS - 1, rest.to(counts.dtype.element_ty), mask=exists)


@dataclass(frozen=True)
class OutcomesOnDevice:
    """`Outcomes` on a device, with the number of groups padded to a power of two."""

    limits: Tensor
    counts: Tensor
    groups: int
    places: int
    shift: int

    @classmethod
    def of(cls, outcomes: Outcomes, device: torch.device) -> OutcomesOnDevice:
        groups, lookup = outcomes.counts.shape[-1], outcomes.lookup
        padded = pad(outcomes.counts, (0, triton.next_power_of_2(groups) - groups)).contiguous()
        return cls(lookup.limits.to(device), padded.to(device), groups, lookup.places, lookup.shift)

    def fill(self, counts: Tensor) -> None:
        """Puts independent draws into the rows of counts ``(number, c)``, of stride 1 in groups."""
        number, block = len(counts), OF_OUTCOMES["BLOCK"]
        with torch.cuda.device_of(counts):
            _outcomes_kernel[(triton.cdiv(number, 2 * block),)](
                new_seed(counts.device), self.limits, self.counts, counts, counts.stride(0), number, self.groups, self.places, self.shift,
                GROUPS=self.counts.shape[-1], **OF_OUTCOMES,
            )  # fmt: skip


@dataclass(frozen=True)
class ChainOnDevice:
    """A `Tree` that is a chain, on a device, with its tables concatenated.

    A row of ``splits`` holds the lowest total, places, shift and offset of a table.
    """

    limits: Tensor
    choices: Tensor
    splits: Tensor
    draws: int
    groups: int

    @classmethod
    def of(cls, chain: Tree, device: torch.device) -> ChainOnDevice:
        limits, choices, splits = [], [], []
        offset, node = 0, chain.root
        while node is not None:
            lookup = node.lookup
            splits.append((node.lowest_total, lookup.places, lookup.shift, offset))
            limits.append(lookup.limits)
            choices.append(lookup.choices)
            offset, node = offset + len(lookup.limits), node.right
        nothing = torch.empty(0, dtype=torch.int64)
        tables = (
            torch.cat([nothing, *limits]),
            torch.cat([nothing, *choices]),
            torch.tensor(splits, dtype=torch.int64),
        )
        return cls(*(table.to(device) for table in tables), chain.draws, chain.groups)

    def fill(self, counts: Tensor) -> None:
        """Puts independent draws into the rows of counts ``(number, c)``, of stride 1 in groups."""
        number = len(counts)
        with torch.cuda.device_of(counts):
            _chain_kernel[(triton.cdiv(number, OF_CHAINS["BLOCK"]),)](
                new_seed(counts.device), self.limits, self.choices, self.splits, counts, counts.stride(0), number, self.draws,
                GROUPS=self.groups, **OF_CHAINS,
            )  # fmt: skip


# --------------------------------------------------------------------------------------------------
# One draw of each of many urns: rejection sampling, with a loop in every program
# --------------------------------------------------------------------------------------------------


@triton.jit
def _uniform(high, low):
    """A uniform number in [0, 1) of 53 random bits."""
    return ((high >> 5).to(tl.float64) * 67108864.0 + (low >> 6).to(tl.float64)) * (
        1.0 / 9007199254740992.0
    )


@triton.jit
def _stirling_remainder(k, log_k, table):
    """log Γ(k+1) - k log k + k, given log k, or 0 for k = 0; NaN never becomes an address."""
    tabulated = tl.load(
        table + tl.where(k >= 0.0, tl.minimum(k, TABULATED - 1.0), 0.0).to(tl.int32)
    )
    return tl.where(k < TABULATED, tabulated, 0.5 * (LOG_2PI + log_k) + stirling_series(k))


@triton.jit
def _log_pmf(k, size, expected, log_expected, log_expected_failures, table):
    """log of a binomial mass, up to a constant that depends on m; -inf unless 0 ≤ k ≤ m.

    The expected count is at most m/2. The formula is that of `binomial.log_pmf_value`.
    """
    outside = (k < 0.0) | (k > size)
    k = tl.where(outside, 0.0, k)
    failures, difference = size - k, k - expected
    log_k, log_failures = tl.log(tl.maximum(k, 1.0)), tl.log(tl.maximum(failures, 1.0))
    value = (
        -_stirling_remainder(k, log_k, table)
        - _stirling_remainder(failures, log_failures, table)
        - deviance(k, log_k, expected, log_expected, difference)
        - deviance(failures, log_failures, size - expected, log_expected_failures, -difference)
    )
    return tl.where(outside, -float("inf"), value)


@triton.jit
def _walked(u, size, odds, log_q, walks):
    """Binomial counts by inversion from 0 upwards; 0 for entries that do not walk."""
    k = tl.zeros_like(u)
    mass = tl.where(walks, tl.exp(size * log_q), 1.0)
    walking = u >= mass
    while tl.max(walking.to(tl.int32)) > 0:
        u = tl.where(walking, u - mass, u)
        k = tl.where(walking, k + 1.0, k)
        mass = tl.where(walking, mass * odds * ((size - k + 1.0) / tl.maximum(k, 1.0)), mass)
        walking = walking & (u >= mass) & (k < size) & (k < LONGEST_WALK)
    return k


@triton.jit
def _hat(size, p):
    """The constants of Hörmann's transformed rejection, for a mean of 10 or more.

    Reference: W. Hörmann, *The generation of binomial random variates* (1993).
    """
    deviation = tl.sqrt(tl.maximum(size * p * (1.0 - p), 1.0))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    return a, b, (2.83 + 5.1 / b) * deviation


@triton.jit
def _rarer(logit, size):
    """Odds, log(1 - p) and the log of both expected counts, for the rarer outcome of a ball.

    The outcomes are drawn and not drawn. The odds of the rarer one are accurate even if the other
    is almost certain. The expected counts are those of the rarer outcome and of the other.
    """
    odds = tl.exp(-tl.abs(logit))
    log_q = -log1p(odds)
    log_failures = tl.log(tl.maximum(size, 1.0)) + log_q
    return odds, log_q, log_failures - tl.abs(logit), log_failures


@triton.jit
def _spread(logit, size):
    """The variance m p (1 - p)."""
    odds = tl.exp(-tl.abs(logit))
    return size * odds / ((1.0 + odds) * (1.0 + odds))


@triton.jit
def _log_peak(size, odds, log_expected, log_failures, table):
    """The value of `_log_pmf` at the mode."""
    p = odds / (1.0 + odds)
    return _log_pmf(tl.floor((size + 1.0) * p), size, size * p, log_expected, log_failures, table)


@triton.jit
def _chance(left, size, logit, odds, log_expected, log_failures, log_peak, table):
    """The acceptance probability: the widest group's mass at `left` relative to its largest."""
    rarer_left = tl.where(logit > 0.0, size - left, left)
    return tl.exp(
        _log_pmf(rarer_left, size, size * (odds / (1.0 + odds)), log_expected, log_failures, table)
        - log_peak
    )


@triton.jit
def _binomials(key, index, cell, calls, size, odds, log_q, log_expected, log_failures, table):
    """Binomial(m, odds / (1 + odds)) counts for odds ≤ 1, and the calls of Philox so far."""
    p = odds / (1.0 + odds)
    expected = size * p
    many = expected >= WALK_BELOW
    w0, w1, w2, w3 = _philox(key, index, cell, cell * 0 + calls)
    calls += 1
    k = _walked(_uniform(w0, w1), size, odds, log_q, ~many)
    a, b, alpha = _hat(size, p)
    log_peak = _log_peak(size, odds, log_expected, log_failures, table)
    pending = many
    while tl.max(pending.to(tl.int32)) > 0:
        u, v = _uniform(w0, w1) - 0.5, _uniform(w2, w3)
        us = tl.maximum(0.5 - tl.abs(u), 1e-30)
        candidate = tl.floor((2.0 * a / us + b) * u + (expected + 0.5))
        log_ratio = (
            _log_pmf(candidate, size, expected, log_expected, log_failures, table) - log_peak
        )
        accepted = pending & (v * alpha < tl.exp(log_ratio) * (a / (us * us) + b))
        k = tl.where(accepted, candidate, k)
        pending = pending & ~accepted
        w0, w1, w2, w3 = _philox(key, index, cell, cell * 0 + calls)
        calls += 1
    return k, calls


@triton.jit
def _each_kernel(
    seed, log_odds, group_sizes, draws, table, counts, rows, urns, groups, rounds,
    GROUPS: tl.constexpr, TRIES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One exact draw for each row, for urns of up to MOST_GROUPS groups.

    A round makes TRIES proposals for every row, and takes the first that is accepted. A row for
    which none is accepted in any round becomes NaN.
    """
    trial, j = tl.arange(0, ROWS * TRIES) % TRIES, tl.arange(0, GROUPS)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS * TRIES) // TRIES
    key, urn, waiting, group = tl.load(seed), row % urns, row < rows, (j < groups)[None, :]
    exists = waiting[:, None] & group
    logit = tl.load(log_odds + urn[:, None] * groups + j[None, :], mask=exists, other=0.0)
    size = tl.load(group_sizes + urn[:, None] * groups + j[None, :], mask=exists, other=0.0)
    total = tl.load(draws + urn, mask=waiting, other=0.0)

    widest = tl.argmax(tl.where(exists, _spread(logit, size), -1.0), 1)[:, None] == j[None, :]
    last_size, last_logit = (
        tl.sum(tl.where(widest, size, 0.0), 1),
        tl.sum(tl.where(widest, logit, 0.0), 1),
    )
    last_odds, _log_q, last_log_expected, last_log_failures = _rarer(last_logit, last_size)
    log_peak = _log_peak(last_size, last_odds, last_log_expected, last_log_failures, table)
    size = tl.where(widest, 0.0, size)
    odds, log_q, log_expected, log_failures = _rarer(logit, size)
    cell = trial[:, None] * GROUPS + j[None, :]
    index = row[:, None] + cell * 0

    # Proposals count their calls of Philox over all rounds. Decisions have cells of their own. Rows
    # whose draws are NaN are given up at once.
    calls, tried, given_up = 0, 0, waiting & (total != total)
    waiting = waiting & ~given_up
    while (tl.max(waiting.to(tl.int32)) > 0) & (tried < rounds):
        k, calls = _binomials(
            key, index, cell, calls, size, odds, log_q, log_expected, log_failures, table
        )
        proposal = tl.where(logit > 0.0, size - k, k)
        left = total - tl.sum(proposal, 1)
        chance = _chance(
            left,
            last_size,
            last_logit,
            last_odds,
            last_log_expected,
            last_log_failures,
            log_peak,
            table,
        )
        w0, w1, _, _ = _philox(key, row, TRIES * GROUPS + trial, trial * 0 + tried)
        accepted = waiting & (_uniform(w0, w1) < chance)
        first = tl.min(tl.reshape(tl.where(accepted, trial, TRIES), (ROWS, TRIES)), 1)
        first = tl.reshape(tl.broadcast_to(first[:, None], (ROWS, TRIES)), (ROWS * TRIES,))
        outcome = tl.where(widest, left[:, None], proposal).to(counts.dtype.element_ty)
        tl.store(
            counts + row[:, None] * groups + j[None, :],
            outcome,
            mask=(waiting & (trial == first))[:, None] & group,
        )
        waiting = waiting & (first == TRIES)
        tried += 1
    nothing = (tl.zeros((ROWS * TRIES, GROUPS), tl.float64) + float("nan")).to(
        counts.dtype.element_ty
    )
    tl.store(
        counts + row[:, None] * groups + j[None, :],
        nothing,
        mask=((waiting | given_up) & (trial == 0))[:, None] & group,
    )


@triton.jit
def _tile_of(log_odds, group_sizes, first, start, waiting, groups, GROUPS: tl.constexpr):
    """A tile of groups from `start` on: indices, whether they exist, log-odds and sizes.

    `first` is the address of each row's first group.
    """
    j = start + tl.arange(0, GROUPS)[None, :]
    place, exists = first[:, None] + j, waiting[:, None] & (j < groups)
    return (
        j,
        exists,
        tl.load(log_odds + place, mask=exists, other=0.0),
        tl.load(group_sizes + place, mask=exists, other=0.0),
    )


@triton.jit
def _long_kernel(
    seed, log_odds, group_sizes, draws, table, counts, rows, urns, groups, rounds,
    GROUPS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One exact draw for each row, as in `_each_kernel`, with the groups in tiles.

    Proposals are written to the place of the draw, and overwritten by the next one.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    key, urn, waiting = tl.load(seed), row % urns, row < rows
    first, total = urn * groups, tl.load(draws + urn, mask=waiting, other=0.0)

    widest, largest = tl.zeros((ROWS,), tl.int32), tl.full((ROWS,), -1.0, tl.float64)
    start = 0
    while start < groups:
        j, exists, logit, size = _tile_of(
            log_odds, group_sizes, first, start, waiting, groups, GROUPS
        )
        spread = tl.where(exists, _spread(logit, size), -1.0)
        widest = tl.where(tl.max(spread, 1) > largest, start + tl.argmax(spread, 1), widest)
        largest = tl.maximum(largest, tl.max(spread, 1))
        start += GROUPS
    last_logit = tl.load(log_odds + first + widest, mask=waiting, other=0.0)
    last_size = tl.load(group_sizes + first + widest, mask=waiting, other=0.0)
    last_odds, _log_q, last_log_expected, last_log_failures = _rarer(last_logit, last_size)
    log_peak = _log_peak(last_size, last_odds, last_log_expected, last_log_failures, table)

    # All tiles of a round count their calls of Philox from the same number on, since each has cells
    # of its own. Rows whose draws are NaN are given up at once.
    calls, tried, given_up = 0, 0, waiting & (total != total)
    waiting = waiting & ~given_up
    decisive = row * 0 + tl.cdiv(groups, GROUPS) * GROUPS
    while (tl.max(waiting.to(tl.int32)) > 0) & (tried < rounds):
        left, most_calls, start = total, calls, 0
        while start < groups:
            j, exists, logit, size = _tile_of(
                log_odds, group_sizes, first, start, waiting, groups, GROUPS
            )
            exists = exists & (j != widest[:, None])
            size = tl.where(exists, size, 0.0)
            odds, log_q, log_expected, log_failures = _rarer(logit, size)
            index = row[:, None] + j * 0
            k, own_calls = _binomials(
                key,
                index,
                j + index * 0,
                calls,
                size,
                odds,
                log_q,
                log_expected,
                log_failures,
                table,
            )
            proposal = tl.where(logit > 0.0, size - k, k)
            tl.store(
                counts + row[:, None] * groups + j,
                proposal.to(counts.dtype.element_ty),
                mask=exists,
            )
            left -= tl.sum(proposal, 1)
            most_calls = tl.maximum(most_calls, own_calls)
            start += GROUPS
        calls = most_calls
        chance = _chance(
            left,
            last_size,
            last_logit,
            last_odds,
            last_log_expected,
            last_log_failures,
            log_peak,
            table,
        )
        w0, w1, _, _ = _philox(key, row, decisive, row * 0 + tried)
        accepted = waiting & (_uniform(w0, w1) < chance)
        tl.store(counts + row * groups + widest, left.to(counts.dtype.element_ty), mask=accepted)
        waiting = waiting & ~accepted
        tried += 1

    waiting = waiting | given_up
    if tl.max(waiting.to(tl.int32)) > 0:
        tl.debug_barrier()  # other threads may still be writing the last proposal
        nothing = (tl.zeros((ROWS, GROUPS), tl.float64) + float("nan")).to(counts.dtype.element_ty)
        start = 0
        while start < groups:
            j = start + tl.arange(0, GROUPS)[None, :]
            tl.store(
                counts + row[:, None] * groups + j, nothing, mask=waiting[:, None] & (j < groups)
            )
            start += GROUPS


@cache
def _tile(groups: int, proposed: int) -> dict[str, int]:
    """The layout of the proposals of `_each_kernel`.

    The acceptance probability falls like 1/√c, so a draw takes about √c tries.
    """
    padded = triton.next_power_of_2(groups)
    tries = max(
        1, min(8, triton.next_power_of_2(max(2, math.isqrt(padded))), MOST_GROUPS // padded)
    )
    rows = max(1, proposed // (tries * padded))
    return {
        "GROUPS": padded,
        "TRIES": tries,
        "ROWS": rows,
        "num_warps": min(16, max(1, rows * tries * padded // 64)),
    }


def rounds_of(groups: int) -> int:
    """The most rounds of a draw, at least a hundred times as many as it takes on average."""
    return MOST_ROUNDS * -(-math.isqrt(groups) // 100)


@cache
def _remainders(device: torch.device) -> Tensor:
    """log Γ(k+1) - k log k + k for k < TABULATED."""
    values = [
        math.lgamma(k + 1) - (k * math.log(k) if k else 0.0) + k for k in range(TABULATED.value)
    ]
    return torch.tensor(values, dtype=torch.float64, device=device)


def _each(
    log_odds: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    seed: Tensor,
    number: int,
    dtype: torch.dtype,
) -> Tensor:
    counts = _new_counts(log_odds, group_sizes, draws, seed, number, dtype)
    urns, groups = log_odds.shape
    if number * urns:
        kernel, tile = (
            (_each_kernel, _tile(groups, PROPOSED))
            if groups <= MOST_GROUPS
            else (_long_kernel, OF_LONG_ROWS)
        )
        with torch.cuda.device_of(log_odds):
            kernel[(-(-number * urns // tile["ROWS"]),)](
                seed, log_odds, group_sizes, draws, _remainders(log_odds.device), counts, number * urns, urns, groups, rounds_of(groups),
                **tile,
            )  # fmt: skip
    return counts


def _new_counts(
    log_odds: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    seed: Tensor,
    number: int,
    dtype: torch.dtype,
) -> Tensor:
    return log_odds.new_empty(number, *log_odds.shape, dtype=dtype)


_draw_each = custom_op("diffurn::draw_each", _each, mutates_args=())
_draw_each.register_fake(_new_counts)


def draw_each(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, number: int, dtype: torch.dtype
) -> Tensor:
    """`number` exact draws for each row of tilted log-odds ``(B, c)``: ``(number, B, c)``.

    Draws of an impossible urn are NaN.
    """
    operands = (operand.contiguous() for operand in (log_odds, group_sizes, draws))
    draw = _each if is_eager() else _draw_each  # a custom operator costs time itself
    counts: Tensor = draw(*operands, new_seed(log_odds.device), number, dtype)
    return counts
