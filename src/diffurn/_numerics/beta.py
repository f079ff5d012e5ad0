"""The regularised incomplete beta function, and with it the tails of Student's t and Fisher's F."""

from __future__ import annotations

import torch
from torch import Tensor

_ITERATIONS = 400
# With more degrees of freedom the tails are those of a normal variable and of χ².
_MANY = 1e6
_NEWTON_STEPS = 60


def incomplete_beta(a: Tensor, b: Tensor, x: Tensor, rest: Tensor) -> Tensor:
    """I_x(a, b) with rest = 1 - x, which would lose digits if it were computed here.

    Lentz's evaluation of the continued fraction, which converges fast below the mean of the
    distribution; above it, I_x(a, b) = 1 - I_{1-x}(b, a).
    """
    a, b, x, rest = (t.double() for t in torch.broadcast_tensors(a, b, x, rest))
    swap = x * (a + b + 2) > a + 1
    p, q = torch.where(swap, b, a), torch.where(swap, a, b)
    y, other = torch.where(swap, rest, x), torch.where(swap, x, rest)
    log_y = torch.where(y > 0.5, torch.log1p(-other), y.log())
    log_other = torch.where(other > 0.5, torch.log1p(-y), other.log())
    log_front = p * log_y + q * log_other - _log_beta(p, q)
    tiny = 1e-300

    def away_from_zero(value: Tensor) -> Tensor:
        return torch.where(value.abs() < tiny, tiny, value)

    c = torch.ones_like(y)
    d = 1 / away_from_zero(1 - (p + q) * y / (p + 1))
    fraction = d.clone()
    for m in range(1, _ITERATIONS):
        even = m * (q - m) * y / ((p + 2 * m - 1) * (p + 2 * m))
        odd = -(p + m) * (p + q + m) * y / ((p + 2 * m) * (p + 2 * m + 1))
        for step in (even, odd):
            d = 1 / away_from_zero(1 + step * d)
            c = away_from_zero(1 + step / c)
            fraction = fraction * (c * d)
        if bool(((c * d - 1).abs() < 1e-15).all()):
            break
    lower = torch.where(y > 0, log_front.exp() * fraction / p, 0.0)
    return torch.where(swap, 1 - lower, lower)


def _log_beta(a: Tensor, b: Tensor) -> Tensor:
    """log B(a, b). Beside a large argument, log Γ(a + b) - log Γ(a) comes from its expansion, since
    the difference of the two would lose digits.
    """
    small, large = torch.minimum(a, b), torch.maximum(a, b)
    k = small * (small - 1)
    expansion = small * large.log() + k / (2 * large) - k * (2 * small - 1) / (12 * large.square())
    difference = torch.lgamma(large + small) - torch.lgamma(large)
    growth = torch.where(large > 1e4 * (1 + small), expansion, difference)
    return torch.lgamma(small) - growth


def student_tail(t: Tensor, degrees: Tensor) -> Tensor:
    """P(|T| ≥ |t|) for Student's t; with infinite degrees of freedom, of a normal variable."""
    t, degrees = torch.broadcast_tensors(t.double(), degrees.double())
    # The two first terms of the normal approximation in 1 / degrees.
    near = t.abs() * (1 - 0.25 / degrees) / (1 + t.square() / (2 * degrees)).sqrt()
    normal = torch.erfc(torch.where(degrees.isinf(), t.abs(), near) / 2**0.5)
    nu, square = degrees.clamp(max=_MANY), t.square()
    tail = incomplete_beta(
        nu / 2, torch.full_like(nu, 0.5), nu / (nu + square), square / (nu + square)
    )
    tail = torch.where(t == 0, 1.0, torch.where(t.isinf(), 0.0, tail))
    tail = torch.where(degrees >= _MANY, normal, tail)
    return torch.where(t.isnan() | ~(degrees > 0), torch.nan, tail)


def student_quantile(level: float, degrees: Tensor) -> Tensor:
    """t such that |T| ≤ t with probability `level`; nan for no degrees of freedom.

    Newton's method from the normal quantile, which is smaller: the tail is convex there, so the
    steps never overshoot.
    """
    normal: Tensor = torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64))
    values, places = torch.unique(degrees.double(), return_inverse=True)
    t = normal.to(degrees.device).expand(values.shape).clone()
    half = 0.5 * values.clamp(min=1e-300, max=1e300)
    log_constant = -_log_beta(half, torch.full_like(half, 0.5)) - 0.5 * (2 * half).log()
    going = values.isfinite() & (values > 0)
    for _ in range(_NEWTON_STEPS):
        if not bool(going.any()):
            break
        excess = student_tail(t, values) - (1 - level)
        log_density = log_constant - (half + 0.5) * torch.log1p(t.square() / (2 * half))
        step = torch.where(going, 0.5 * excess / log_density.exp(), 0.0)
        t = t + step
        going = going & (step.abs() > 1e-14 * t)
    quantile = torch.where(values > 0, t, torch.nan)
    return quantile[places]


def f_tail(ratio: Tensor, numerator: Tensor, denominator: Tensor) -> Tensor:
    """P(F ≥ ratio) with these degrees of freedom; with infinitely many below, of χ² / numerator."""
    ratio, numerator, denominator = torch.broadcast_tensors(
        ratio.double(), numerator.double(), denominator.double()
    )
    limited = denominator.clamp(min=1e-300, max=_MANY)
    above = numerator * ratio.clamp(min=0)
    total = limited + above
    tail = incomplete_beta(
        limited / 2, (numerator / 2).clamp(min=0.5), limited / total, above / total
    )
    squared = torch.special.gammaincc((numerator / 2).clamp(min=0.5), above / 2)
    tail = torch.where(denominator >= _MANY, squared, tail)
    tail = torch.where(ratio <= 0, 1.0, tail)
    return torch.where((numerator > 0) & (denominator > 0), tail, torch.nan)
