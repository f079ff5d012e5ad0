"""Integrals over the log time u = log s of a race, by the trapezoid rule.

The integrands are (nearly) log-concave in u, so the rule converges geometrically: twice the nodes
square its error. So the rule is compared with itself on every second node, and only rows on which
the two disagree get more nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from diffurn._numerics.batching import common_shape, in_chunks
from diffurn._numerics.tracing import can_check

# The numbers of nodes tried in turn, and the number if values cannot be read (torch.compile, vmap).
_NODES = (48, 96, 192, 768, 3072)
_NODES_UNREAD = 192
# If the rule and its half agree to 1e-8, the error of the rule itself is rounding. For a narrow
# integrand the two may agree by chance, so single probabilities need a closer agreement.
_AGREEMENT = 1e-8
CLOSE_AGREEMENT = 1e-10

# The depth, in nats below the peak, at which an integrand is cut off. A sum over states is cut off
# deeper, since rare states have lower peaks of their own.
DEPTH, DEPTH_OF_ALL_STATES = 40.0, 64.0
# The overhead of a call dominates, so each pass evaluates four interior points and shrinks the
# bracket five-fold. These are the numbers of passes for a root and for the reach of a density.
_SECTIONS = 5
_ROOT_SECTIONS, _REACH_SECTIONS = 4, 3
# The steps for a root after these passes, if values cannot be read.
_ROOT_STEPS = 14
# The most steps if values can be read. Every third one is a bisection, so any bracket shrinks by a
# factor of 2^30.
_MOST_ROOT_STEPS = 90


class TimeGrid(NamedTuple):
    """The interval of u on which an integrand is not negligible."""

    peak: Tensor  # the argmax of the integrand, (...)
    start: Tensor  # (...)
    length: Tensor  # (...)

    def nodes(self, number: int) -> Tensor:
        """Evenly spaced u, shape ``(..., number)``."""
        fractions = torch.linspace(0, 1, number, dtype=self.start.dtype, device=self.start.device)
        return self.start.unsqueeze(-1) + self.length.unsqueeze(-1) * fractions


@torch.no_grad()
def time_grid(
    log_density: Callable[[Tensor], Tensor],
    slope: Callable[[Tensor], Tensor],
    low: Tensor,
    high: Tensor,
    draws: Tensor,
    depth: float = DEPTH,
) -> TimeGrid:
    """The interval on which an integrand exceeds e^-depth of its peak, without a gradient.

    Args:
        log_density: the logarithm of the integrand at u ``(..., T)``.
        slope: its derivative, of which only the sign is used.
        low, high: a bracket of the peak, ``(...)``.
        draws: n. The curvature at the peak is at most 2n + 2, which bounds the length from below.
        depth: in nats.
    """

    width = 1 / torch.sqrt(2 * draws + 2)
    peak = root_of_decreasing(slope, low, high, 0.1 * width)
    bottom = log_density(peak.unsqueeze(-1)).squeeze(-1) - depth
    # To the left the log-density falls with a slope of one or more, to the right like -e^u.
    left, right = _reaches(log_density, peak, bottom, 6 * width, longest=(depth + 6, 5.0))
    return TimeGrid(peak, peak - left, left + right)


def _shrunk(
    is_before: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, times: int
) -> tuple[Tensor, Tensor]:
    """A bracket (...) of the point at which `is_before` becomes False, after `times` passes.

    `is_before` maps points (..., T) to booleans. Each pass shrinks the bracket to a fifth.
    """
    fractions = torch.arange(1, _SECTIONS, dtype=low.dtype, device=low.device) / _SECTIONS
    for _ in range(times):
        section = (high - low) / _SECTIONS
        before = is_before(low.unsqueeze(-1) + (high - low).unsqueeze(-1) * fractions)
        low = low + section * before.to(low.dtype).cumprod(-1).sum(-1)
        high = low + section
    return low, high


def root_of_decreasing(
    function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, tolerance: Tensor
) -> Tensor:
    """The approximate root of a decreasing function.

    After sections of the bracket follows regula falsi with the Illinois rule; every third step is a
    bisection.
    """
    low, high = _shrunk(lambda u: function(u) > 0, low, high, _ROOT_SECTIONS)
    at_low, at_high = function(torch.stack([low, high], -1)).unbind(-1)
    root = 0.5 * (low + high)
    for step in range(_MOST_ROOT_STEPS if can_check() else _ROOT_STEPS):
        secant = high - at_high * (high - low) / (at_high - at_low)
        inside = (secant > low) & (secant < high) & (step % 3 != 2)  # False for NaN
        before, root = root, torch.where(inside, secant, 0.5 * (low + high))
        moved = (root - before).abs() > tolerance  # False for NaN
        if can_check() and not bool(moved.any()):
            break
        value = function(root.unsqueeze(-1)).squeeze(-1)
        rising = value > 0
        at_low = torch.where(rising, value, 0.5 * at_low)
        at_high = torch.where(rising, 0.5 * at_high, value)
        low, high = torch.where(rising, root, low), torch.where(rising, high, root)
    return root


def _reaches(
    log_density: Callable[[Tensor], Tensor],
    peak: Tensor,
    bottom: Tensor,
    shortest: Tensor,
    longest: tuple[float, float],
) -> tuple[Tensor, Tensor]:
    """The distances left and right of the peak at which the log-density falls to the bottom.

    They are accurate to some percent, and too large rather than too small.
    """
    # Made on the device, without a copy to it, which would synchronise.
    sides = torch.stack([peak.new_full((1,), side) for side in (-1.0, 1.0)])

    def is_not_yet_down(log_distance: Tensor) -> Tensor:
        u = peak[..., None, None] + sides * torch.exp(log_distance)
        is_down = log_density(u.flatten(-2)) < bottom.unsqueeze(-1)  # False for NaN
        return ~is_down.view(u.shape)

    far = torch.stack([torch.full_like(peak, math.log(distance)) for distance in longest], -1)
    near = torch.minimum(torch.log(shortest).unsqueeze(-1), far)
    left, right = _shrunk(is_not_yet_down, near, far, _REACH_SECTIONS)[1].exp().unbind(-1)
    return left, right


def is_unresolved(log_density: Tensor) -> Tensor:
    """Whether nodes (..., T) are too far apart for the steepest edge of a log-density, (...).

    With an edge between two nodes the rule may agree with its half by chance. So second differences
    are checked where the density is above e^-28 of its largest value. For integrands that need few
    nodes they are below 3. They are larger if one group runs out long after another.
    """
    bend = log_density.diff(n=2, dim=-1).abs()
    matters = log_density[..., 1:-1] > log_density.amax(-1, keepdim=True) - 28
    return (matters & (bend > 6)).any(-1)


def averages_on_grid(log_density: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Averages of values ``(..., T, k)`` over a density ``(..., T)``, and their disagreement.

    The disagreement is the largest relative difference from the averages on every second node.
    """
    fine, coarse = (
        (torch.softmax(log_density[..., ::step], -1).unsqueeze(-1) * values[..., ::step, :]).sum(-2)
        for step in (1, 2)
    )
    smallest = torch.finfo(fine.dtype).tiny
    apart = (fine - coarse).detach().abs() / fine.detach().abs().clamp(min=smallest)
    return fine, torch.where(is_unresolved(log_density.detach()), torch.inf, apart.amax(-1))


def disagreement_of_mass(log_density: Tensor) -> Tensor:
    """The relative difference of the integrals on every second node and on all nodes (..., T)."""
    fine = torch.logsumexp(log_density, -1)
    return (torch.logsumexp(log_density[..., ::2], -1) + math.log(2) - fine).abs().detach()


def log_trapezoid(log_density: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """The log-integral over evenly spaced nodes (..., T), and its disagreement.

    The disagreement is the difference from the log-integral on every second node.
    """
    number = log_density.shape[-1]
    fine = torch.logsumexp(log_density, -1)
    coarse = torch.logsumexp(log_density[..., ::2], -1) + math.log(2)
    unresolved = is_unresolved(log_density.detach())
    disagreement = torch.where(unresolved, torch.inf, (coarse - fine).abs().detach())
    return fine + torch.log(length / (number - 1)), disagreement


def integrate(
    grid: Callable[..., TimeGrid],
    kernel: Callable[..., tuple[Tensor, Tensor]],
    *operands: Tensor,
    events: tuple[int, ...],
    work: int,
    agreement: float = _AGREEMENT,
) -> Tensor:
    """Integrals over time for the rows of a batch, with more nodes for rows that need them.

    Args:
        grid: maps operands ``(B, *event)`` to the interval of their integrand.
        kernel: maps (grid, number of nodes, *operands) to a result ``(B, ...)`` and the
            disagreement of its rule with half the nodes ``(B,)``.
        operands: tensors whose batch shapes broadcast.
        events: the number of event dimensions of each operand.
        work: elements of the largest intermediate per row and node.
        agreement: the disagreement that is accepted.
    """
    batch = common_shape(x.shape[: x.ndim - e] for x, e in zip(operands, events, strict=True))
    # One more dimension in front gives rows to a single urn, too.
    rows = [
        x.expand((1, *batch, *x.shape[x.ndim - e :])) for x, e in zip(operands, events, strict=True)
    ]
    grids = in_chunks(lambda *chunk: torch.stack(grid(*chunk), -1), *rows, events=events, work=work)
    refined = partial(_refined, kernel, agreement)
    work = work * _NODES[0]
    return in_chunks(refined, grids, *rows, events=(1, *events), work=work).squeeze(0)


def _refined(
    kernel: Callable[..., tuple[Tensor, Tensor]],
    agreement: float,
    grids: Tensor,
    *operands: Tensor,
) -> Tensor:
    if not can_check():
        return kernel(TimeGrid(*grids.unbind(-1)), _NODES_UNREAD, *operands)[0]
    result, disagreement = kernel(TimeGrid(*grids.unbind(-1)), _NODES[0], *operands)
    for number in _NODES[1:]:
        rough = disagreement > agreement  # False for NaN, which more nodes do not repair
        if not bool(rough.any()):
            break
        times = TimeGrid(*grids[rough].unbind(-1))
        again, left = kernel(times, number, *(operand[rough] for operand in operands))
        result = result.index_put((rough,), again)
        disagreement = disagreement.index_put((rough,), left)
    return result
