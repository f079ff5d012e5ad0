"""Triton kernel that reads the arguments of urns as they were given, and tilts their weights.

It replaces some twenty small operations: checks, casts, logarithms and the tilt.
"""

# Type checkers cannot read Triton's language, and Triton may not be installed.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False, warn-return-any=False
# mypy: disable-error-code="arg-type, assignment, call-arg, misc, import-not-found, import-untyped, operator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from diffurn._kernels.fisher import MOST_GROUPS, TILTED, _log_tilt, _tilt_tile

# From this variance of ΣX on, the tilt of one ball more is known well enough without solving for it.
WIDE = tl.constexpr(16.0)


@triton.jit
def _operands_kernel(
    given, group_sizes, draws, log_odds, sizes, totals, centres, rows, groups,
    row_stride, group_stride, sizes_row_stride, sizes_group_stride, draws_stride,
    LOG: tl.constexpr, TILTED: tl.constexpr, CENTRING: tl.constexpr, ROWS: tl.constexpr, GROUPS: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Log-weights, m and n in float64; with TILTED, log-odds.

    With CENTRING, `centres` has the centring tilts, and n with zeros for NaN. n is NaN where an urn is not valid.

    Groups of weight zero are emptied. The rules are those of `Urn._is_valid`.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists, first = row < rows, row * groups
    n = tl.load(draws + row * draws_stride, mask=exists, other=0).to(tl.float64)
    balls, wrong = tl.zeros((ROWS,), tl.float64), (n < 0.0).to(tl.int32)
    for tile in range(TILES):
        j = (tile * GROUPS + tl.arange(0, GROUPS))[None, :]
        inside = exists[:, None] & (j < groups)
        weight = tl.load(
            given + row[:, None] * row_stride + j * group_stride, mask=inside, other=0.0
        ).to(tl.float64)
        size = tl.load(
            group_sizes + row[:, None] * sizes_row_stride + j * sizes_group_stride,
            mask=inside,
            other=0,
        ).to(tl.float64)
        # Comparisons with NaN are false.
        right = (weight < float("inf")) & (size >= 0.0)
        if LOG:
            drawn = weight > -float("inf")
            log_weight = tl.where(drawn, weight, 0.0)
        else:
            right = right & (weight >= 0.0)
            drawn = weight > 0.0
            log_weight = tl.where(drawn, tl.log(tl.where(drawn, weight, 1.0)), 0.0)
        size = tl.where(drawn, size, 0.0)
        wrong = tl.maximum(wrong, tl.max((inside & (right == 0)).to(tl.int32), 1))
        balls += tl.sum(tl.where(inside, size, 0.0), 1)
        tl.store(log_odds + first[:, None] + j, log_weight, mask=inside)
        tl.store(sizes + first[:, None] + j, size, mask=inside)
    n = tl.where((wrong == 0) & (n <= balls), n, float("nan"))
    tl.store(totals + row, n, mask=exists)
    if TILTED:
        tl.debug_barrier()  # other threads read what one has written
        tilt, variance = _log_tilt(log_odds, sizes, n, first, exists, groups, GROUPS, TILES)
        if CENTRING:
            # The tilt of one ball more is larger by 1/variance, up to a factor of e^(1/variance).
            step = 1.0 / variance
            if tl.max((exists & (variance < WIDE)).to(tl.int32)) > 0:
                above, _ = _log_tilt(log_odds, sizes, n + 1.0, first, exists, groups, GROUPS, TILES)
                step = above - tilt
            tl.store(centres + row, 0.5 * step, mask=exists)
        tl.store(centres + rows + row, tl.where(n == n, n, 0.0), mask=exists)
        tl.debug_barrier()
        for tile in range(TILES):
            j = (tile * GROUPS + tl.arange(0, GROUPS))[None, :]
            inside, place = exists[:, None] & (j < groups), log_odds + first[:, None] + j
            tl.store(place, tl.load(place, mask=inside, other=0.0) + tilt[:, None], mask=inside)


def operands(
    given: Tensor,
    group_sizes: Tensor,
    draws: Tensor,
    is_log: bool,
    tilted: bool = True,
    centring: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tilted log-odds ``(B, c)``, m and n in float64, from weights ``(..., c)`` or their logs.

    Without `tilted`, log-weights. The last result ``(2, B)`` has the centring tilts of the log-odds
    and draws that are 0 where an urn is not valid; without `centring` it has no values.
    """
    groups = given.shape[-1]
    given, group_sizes = given.detach().reshape(-1, groups), group_sizes.reshape(-1, groups)
    draws, rows = draws.reshape(-1), len(given)
    log_odds, sizes = (given.new_empty(rows, groups, dtype=torch.float64) for _ in range(2))
    totals = given.new_empty(rows, dtype=torch.float64)
    centres = given.new_empty(2, rows, dtype=torch.float64)
    if rows:
        tile = _tilt_tile(groups, MOST_GROUPS["tilt"], TILTED)
        with torch.cuda.device_of(given):
            _operands_kernel[(-(-rows // tile["ROWS"]),)](
                given, group_sizes, draws, log_odds, sizes, totals, centres, rows, groups,
                *given.stride(), *group_sizes.stride(), draws.stride(0),
                LOG=is_log, TILTED=tilted, CENTRING=centring, **tile,
            )  # fmt: skip
    return log_odds, sizes, totals, centres
