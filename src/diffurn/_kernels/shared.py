"""Functions of several Triton kernels, in float64; `_numerics.binomial` has them in PyTorch."""

# Type checkers cannot read Triton's language, and Triton may not be installed.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False, warn-return-any=False
# mypy: disable-error-code="arg-type, assignment, call-arg, misc, import-not-found, import-untyped, operator"

from __future__ import annotations

import triton
import triton.language as tl

SERIES_FROM = tl.constexpr(8.0)  # from here on the error of `stirling_series` is rounding


@triton.jit
def log1p(x):
    """log(1 + x) for x > -1; the rounding error of 1 + x cancels."""
    y = 1.0 + x
    return tl.where(y == 1.0, x, tl.log(y) * (x / tl.where(y == 1.0, 1.0, y - 1.0)))


@triton.jit
def probabilities(log_odds):
    """σ(x) and σ(-x), both relatively accurate."""
    odds = tl.exp(-tl.abs(log_odds))
    rarer, commoner = odds / (1.0 + odds), 1.0 / (1.0 + odds)
    return tl.where(log_odds > 0.0, commoner, rarer), tl.where(log_odds > 0.0, rarer, commoner)


@triton.jit
def stirling_series(x):
    """log Γ(x+1) - x log x + x - ½ log 2πx for x ≥ SERIES_FROM."""
    inverse = 1.0 / tl.maximum(x, SERIES_FROM)
    s = inverse * inverse
    series = -3617.0 / 122400.0
    series = series * s + 1.0 / 156.0
    series = series * s - 691.0 / 360360.0
    series = series * s + 1.0 / 1188.0
    series = series * s - 1.0 / 1680.0
    series = series * s + 1.0 / 1260.0
    series = series * s - 1.0 / 360.0
    series = series * s + 1.0 / 12.0
    return series * inverse


@triton.jit
def deviance(x, log_x, expected, log_expected, difference):
    """x log(x / M) + M - x, as in `binomial.deviance`."""
    v = difference / tl.maximum(x + expected, 1e-300)
    s = v * v
    series = 1.0 / 17.0
    series = series * s + 1.0 / 15.0
    series = series * s + 1.0 / 13.0
    series = series * s + 1.0 / 11.0
    series = series * s + 1.0 / 9.0
    series = series * s + 1.0 / 7.0
    series = series * s + 1.0 / 5.0
    series = series * s + 1.0 / 3.0
    return tl.where(
        tl.abs(v) <= 0.1,
        difference * v + 2.0 * x * v * s * series,
        x * (log_x - log_expected) - difference,
    )
