"""Times of a race of exponential clocks, and integrals over them, taken over u = log s, where their
integrands are (nearly) log-concave.

The trapezoid rule converges geometrically for them: with twice the nodes its error is about the
square of what it was. So the rule is compared with itself on every second node, and only rows on
which the two disagree are given more nodes.
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

# Nodes tried in turn, and those for all rows where values cannot be read (torch.compile, vmap).
_NODES = (48, 96, 192, 768, 3072)
_NODES_UNREAD = 192
# If the rule and its half agree to 1e-8, the rule itself is good to rounding. Two nodes of one
# narrow integrand may agree by accident, so single probabilities ask for more, which costs nothing.
_AGREEMENT = 1e-8
CLOSE_AGREEMENT = 1e-10

# Nats below the peak at which an integrand is cut off. A sum over states looks deeper: rare ones
# have their own, lower peaks.
DEPTH, DEPTH_OF_ALL_STATES = 40.0, 64.0
# A call costs the host more than some points more: brackets shrink to a fifth by calls at four
# points, so often.
_SECTIONS = 5
_ROOT_SECTIONS, _REACH_SECTIONS = 4, 3
_ROOT_STEPS = 14
# The same where values can be looked at: a bisection in every third step shrinks any bracket by
# 2^30.
_MOST_ROOT_STEPS = 90


class TimeGrid(NamedTuple):
    """Where an integrand over u is worth evaluating: from start to start + length, with its peak in
    between; all of shape ``(...)``.
    """

    peak: Tensor
    start: Tensor
    length: Tensor

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
    """The stretch on which an integrand is within e^-depth of its peak; never carries a gradient.

    Args:
        log_density: the logarithm of the integrand at u ``(..., T)``.
        slope: its derivative, of which only the sign change matters.
        low, high: a bracket of the peak, ``(...)``.
        draws: n; the curvature at the peak is at most 2n + 2, which bounds the stretch from below.
        depth: in nats.
    """

    width = 1 / torch.sqrt(2 * draws + 2)
    peak = root_of_decreasing(slope, low, high, 0.1 * width)
    bottom = log_density(peak.unsqueeze(-1)).squeeze(-1) - depth
    # It falls to the left at slope one or more, to the right like exp(-e^u).
    left, right = _reaches(log_density, peak, bottom, 6 * width, longest=(depth + 6, 5.0))
    return TimeGrid(peak, peak - left, left + right)


def _shrunk(
    is_before: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, times: int
) -> tuple[Tensor, Tensor]:
    """A bracket (...) of where points (..., T) cease to be `is_before` something, shrunk to a fifth
    so often.
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
    """About the root of a decreasing function: sections, then regula falsi with the Illinois rule
    and, every third step, a bisection.
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
    """How far left and right of the peak the density has fallen to the bottom, to some percent and
    rather too far.
    """
    sides = torch.tensor([[-1.0], [1.0]], dtype=peak.dtype, device=peak.device)

    def is_not_yet_down(log_distance: Tensor) -> Tensor:
        u = peak[..., None, None] + sides * torch.exp(log_distance)
        is_down = log_density(u.flatten(-2)) < bottom.unsqueeze(-1)  # False for NaN
        return ~is_down.view(u.shape)

    far = torch.tensor(longest, dtype=peak.dtype, device=peak.device).log().expand(*peak.shape, 2)
    near = torch.minimum(torch.log(shortest).unsqueeze(-1), far)
    left, right = _shrunk(is_not_yet_down, near, far, _REACH_SECTIONS)[1].exp().unbind(-1)
    return left, right


def is_unresolved(log_density: Tensor) -> Tensor:
    """Whether nodes (..., T) are too far apart for the steepest edge of a log-density that matters:
    shape (...).

    An edge between two nodes may agree with its half by accident. Where the density is above e^-28
    of its largest value, second differences stay below 3 for the integrands that few nodes are
    enough for, and are larger where groups run out one long after the other.
    """
    bend = log_density.diff(n=2, dim=-1).abs()
    matters = log_density[..., 1:-1] > log_density.amax(-1, keepdim=True) - 28
    return (matters & (bend > 6)).any(-1)


def averages_on_grid(log_density: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Averages of values ``(..., T, k)`` over a density ``(..., T)``, and how far, relatively,
    those over every second node are.
    """
    fine, coarse = (
        (torch.softmax(log_density[..., ::step], -1).unsqueeze(-1) * values[..., ::step, :]).sum(-2)
        for step in (1, 2)
    )
    apart = (fine - coarse).detach().abs() / fine.detach().abs().clamp(
        min=torch.finfo(fine.dtype).tiny
    )
    return fine, torch.where(is_unresolved(log_density.detach()), torch.inf, apart.amax(-1))


def disagreement_of_mass(log_density: Tensor) -> Tensor:
    """How far the integral on every second node (..., T) is from that on all, relatively."""
    fine = torch.logsumexp(log_density, -1)
    return (torch.logsumexp(log_density[..., ::2], -1) + math.log(2) - fine).abs().detach()


def log_trapezoid(log_density: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithm of the integral over evenly spaced nodes (..., T), and how far from it the rule
    on every second node is.
    """
    number = log_density.shape[-1]
    fine = torch.logsumexp(log_density, -1)
    coarse = torch.logsumexp(log_density[..., ::2], -1) + math.log(2)
    disagreement = torch.where(
        is_unresolved(log_density.detach()), torch.inf, (coarse - fine).abs().detach()
    )
    return fine + torch.log(length / (number - 1)), disagreement


def integrate(
    grid: Callable[..., TimeGrid],
    kernel: Callable[..., tuple[Tensor, Tensor]],
    *operands: Tensor,
    events: tuple[int, ...],
    work: int,
    agreement: float = _AGREEMENT,
) -> Tensor:
    """An integral over time for every row of a batch, with more nodes for the rows that need them.

    Args:
        grid: maps operands ``(B, *event)`` to where their integrand is worth evaluating.
        kernel: maps (grid, number of nodes, *operands) to a result ``(B, ...)`` and the
            disagreement of its rule with half the nodes ``(B,)``.
        operands: tensors whose batch shapes broadcast.
        events: the number of event dimensions of each operand.
        work: elements of the largest intermediate per row and node.
        agreement: the disagreement that is accepted.
    """
    batch = common_shape(x.shape[: x.ndim - e] for x, e in zip(operands, events, strict=True))
    # One more dimension in front, so that a single urn has rows to pick, too.
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
        rough = disagreement > agreement  # not where it is NaN, which more nodes do not mend
        if not bool(rough.any()):
            break
        times = TimeGrid(*grids[rough].unbind(-1))
        again, left = kernel(times, number, *(operand[rough] for operand in operands))
        result = result.index_put((rough,), again)
        disagreement = disagreement.index_put((rough,), left)
    return result
