"""The Kuramoto-Sivashinsky equation u_t = -u u_x - u_xx - u_xxxx: a simulation, and the terms among
which sparse regression has to find these three.
"""

from __future__ import annotations

import functools
import itertools
import math

import torch
from torch import Tensor

LENGTH, POINTS, STEP = 32 * math.pi, 256, 0.05
# The flow is chaotic from about this time on; then so many moments are kept, one time unit apart.
TRANSIENT, MOMENTS = 50.0, 120
_FACTORS = ("", "u", "u²", "u³")
_SLOPES = ("", *("u_" + "x" * order for order in range(1, 6)))
TERMS = ["·".join(filter(None, pair)) or "1" for pair in itertools.product(_FACTORS, _SLOPES)]
TRUE_TERMS = {"u·u_x": -1.0, "u_xx": -1.0, "u_xxxx": -1.0}


def wave_numbers() -> Tensor:
    numbers: Tensor = 2 * math.pi / LENGTH * torch.fft.rfftfreq(POINTS, 1 / POINTS).double()
    return numbers


@functools.cache
def simulate() -> tuple[Tensor, Tensor]:
    """u and its time derivative at the moments, (moments, points) each.

    Exponential time differencing with a Runge-Kutta step of fourth order (Cox and Matthews, 2002),
    its coefficients by contour means (Kassam and Trefethen, 2005). The derivative is the central
    difference of fourth order of the simulated u, so it knows nothing of the equation.
    """
    waves = wave_numbers()
    linear = waves**2 - waves**4
    roots = torch.exp(1j * math.pi * (torch.arange(1, 33).double() - 0.5) / 32)
    at = STEP * linear.unsqueeze(-1) + roots

    def contour(values: Tensor) -> Tensor:
        return STEP * values.mean(-1).real

    whole, half = torch.exp(STEP * linear), torch.exp(STEP * linear / 2)
    half_step = contour((torch.exp(at / 2) - 1) / at)
    first = contour((-4 - at + at.exp() * (4 - 3 * at + at**2)) / at**3)
    second = contour((2 + at + at.exp() * (at - 2)) / at**3)
    third = contour((-4 - 3 * at - at**2 + at.exp() * (4 - at)) / at**3)
    kept = waves <= 2 / 3 * waves[-1]  # products of two waves alias above

    def product(u: Tensor) -> Tensor:
        slopes: Tensor = torch.fft.rfft(torch.fft.irfft(kept * u, POINTS).square())
        return -0.5j * waves * slopes

    x = LENGTH * torch.arange(POINTS).double() / POINTS
    u = torch.fft.rfft(torch.cos(x / 16) * (1 + torch.sin(x / 16)))
    found: list[Tensor] = []
    past: list[Tensor] = []
    between = round(1 / STEP)
    for step in range(round(TRANSIENT / STEP) + MOMENTS * between):
        past = [*past[-4:], u]
        before = product(u)
        a = half * u + half_step * before
        at_a = product(a)
        b = half * u + half_step * at_a
        at_b = product(b)
        c = half * a + half_step * (2 * at_b - before)
        u = whole * u + before * first + 2 * (at_a + at_b) * second + product(c) * third
        if step >= TRANSIENT / STEP and step % between == between - 1:
            found.append(torch.fft.irfft(torch.stack(past), POINTS))
    rows = torch.stack(found)
    differences = (rows[:, 0] - 8 * rows[:, 1] + 8 * rows[:, 3] - rows[:, 4]) / (12 * STEP)
    return rows[:, 2], differences


def terms_of(u: Tensor) -> Tensor:
    """All candidate terms at all points, (moments · points, terms)."""
    waves, transformed = wave_numbers(), torch.fft.rfft(u)
    slopes = [torch.fft.irfft((1j * waves) ** order * transformed, POINTS) for order in range(1, 6)]
    columns = [
        u**power * slope
        for power in range(len(_FACTORS))
        for slope in (torch.ones_like(u), *slopes)
    ]
    return torch.stack(columns, -1).flatten(0, 1)
