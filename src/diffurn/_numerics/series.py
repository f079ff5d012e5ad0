"""Coefficients of series, for PyTorch and for JAX; no module of a framework is imported here."""

from __future__ import annotations

# log Γ(x+1) = x log x - x + ½ log 2πx + Σ_k STIRLING[k] x^-(2k+1), which is right to rounding from
# STIRLING_FROM on.
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
STIRLING_FROM = 16.0
# The coefficients of Σ_{j≥1} v^(2j-2) / (2j+1), enough for float64 if |v| ≤ ATANH_UP_TO.
ATANH = tuple(1 / (2 * j + 1) for j in range(1, 9))
ATANH_UP_TO = 0.1
