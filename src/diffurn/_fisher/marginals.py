r"""Marginal probabilities, tails and entropy, at a cost that does not depend on the group sizes.

**Tails.** The terms P(X = k) are summed away from the bulk, relative to the first of them, so a
tail is relatively accurate however far out it lies. The terms are log-concave, and a window in
which they fall by e^-33 is known in advance. A short window is summed term by term. Over a long one
the terms are a smooth function of L consecutive integers. Their sum is taken by the Gauss rule of
the uniform measure on 0, …, L - 1, whose orthogonal polynomials are Gram's (discrete Chebyshev).
The rule has 28 nodes, whatever L is.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from diffurn._fisher.accuracy import GRID, NODES, TAIL_NATS
from diffurn._fisher.moments import log_mass, log_mass_anywhere, mean
from diffurn._fisher.nodes import Nodes, half_width
from diffurn._fisher.tilt import log_tilt
from diffurn._numerics.batching import in_chunks
from diffurn._numerics.binomial import binomial_log_pmf, binomial_variance, typical_log_odds
from diffurn._numerics.tracing import can_check

# Windows up to this length are summed term by term. Longer ones imply a variance ≥ 18 as well.
SHORT = 60
# The nodes of the Gauss rule.
_GAUSS = 28
# Nodes and weights are smooth in 1/L². This many Chebyshev coefficients give sums to 1e-13.
_COEFFICIENTS = 24


def other_sizes(group_sizes: Tensor) -> Tensor:
    """Row j holds the group sizes with group j emptied: shape (..., c, c)."""
    own = torch.eye(group_sizes.shape[-1], dtype=torch.bool, device=group_sizes.device)
    return torch.where(own, 0.0, group_sizes.unsqueeze(-2))


def marginal_log_prob(log_odds: Tensor, group_sizes: Tensor, draws: Tensor, x: Tensor) -> Tensor:
    """log P(X_j = x_j) of every group j, in O(c²).

    It is log Bin(x_j; m_j, p_j) + log P(S without j = n - x_j) - log P(S = n). The sum without
    group j is re-tilted to n - x_j, so far tails are relatively accurate.
    """
    others = log_mass_anywhere(
        log_odds.unsqueeze(-2), other_sizes(group_sizes), draws.unsqueeze(-1) - x
    )
    joint = binomial_log_pmf(x, group_sizes, log_odds) + others
    return joint - log_mass(log_odds, group_sizes, draws).unsqueeze(-1)


def marginal_tail(
    log_odds: Tensor, group_sizes: Tensor, draws: Tensor, group: int, counts: Tensor
) -> Tensor:
    """P(X_group ≥ count) for consecutive counts ``(K,)`` up to the group's size, ``(..., K)``."""
    others = torch.arange(log_odds.shape[-1], device=log_odds.device) != group
    size, odds = group_sizes[..., group].unsqueeze(-1), log_odds[..., group].unsqueeze(-1)
    rest = log_mass_anywhere(
        log_odds.unsqueeze(-2), (group_sizes * others).unsqueeze(-2), draws.unsqueeze(-1) - counts
    )
    joint = binomial_log_pmf(counts, size, odds) + rest
    log_prob = joint - log_mass(log_odds, group_sizes, draws).unsqueeze(-1)
    return log_prob.exp().flip(-1).cumsum(-1).flip(-1)


def _typical_counts(
    size: Tensor, others: Tensor, draws: Tensor, centre: Tensor, reach: Tensor
) -> tuple[Tensor, Tensor]:
    """Evenly spaced counts ``(..., G)`` within centre ± reach, and whether each is possible."""
    lowest = torch.maximum(centre - reach, draws - others).clamp(min=0)
    highest = torch.minimum(torch.minimum(centre + reach, size), draws)
    stride = torch.ceil((highest - lowest + 1) / GRID).clamp(min=1)
    steps = torch.arange(GRID, dtype=size.dtype, device=size.device)
    counts = lowest.unsqueeze(-1) + stride.unsqueeze(-1) * steps
    return torch.minimum(counts, highest.unsqueeze(-1)), counts <= highest.unsqueeze(-1)


def _expected_binomial_log_pmf(
    log_odds: Tensor, other_sizes: Tensor, draws: Tensor, own_log_odds: Tensor, own_size: Tensor
) -> Tensor:
    """E log Bin(X; m, p) of one group's count X, given the total of all groups."""
    centre = torch.round(own_size * torch.sigmoid(own_log_odds.detach()))
    own_variance = binomial_variance(own_size, own_log_odds.detach())
    other_variance = binomial_variance(other_sizes, log_odds.detach()).sum(-1)
    narrower = torch.minimum(half_width(own_variance), half_width(other_variance))
    reach = torch.floor(narrower) + 2
    counts, valid = _typical_counts(own_size, other_sizes.sum(-1), draws, centre, reach)
    log_pmf = binomial_log_pmf(counts, own_size.unsqueeze(-1), own_log_odds.unsqueeze(-1))
    left_at_centre = draws - centre
    others = Nodes.build(log_odds, other_sizes, left_at_centre, span=2)
    # A smooth law may be summed with a stride (the trapezoid rule). The stride itself cancels in
    # the ratio of the two sums.
    left = draws.unsqueeze(-1) - counts
    offsets = left - left_at_centre.unsqueeze(-1)
    mass = torch.where(valid, torch.exp(log_pmf) * others.mass_at(offsets), 0.0)
    return (mass * log_pmf).sum(-1) / mass.sum(-1)


def entropy(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """The entropy -E log P(X) = log P(S = n) - Σ_j E log Bin(X_j; m_j, p_j), in O(c²)."""
    others = log_odds.unsqueeze(-2), other_sizes(group_sizes), draws.unsqueeze(-1)
    operands = *others, log_odds, group_sizes
    events = (1, 1, 0, 0, 0)
    work = max(GRID, log_odds.shape[-1]) * NODES[2]
    expected = in_chunks(_expected_binomial_log_pmf, *operands, events=events, work=work)
    return log_mass(log_odds, group_sizes, draws) - expected.sum(-1)


# --------------------------------------------------------------------------------------------------
# Tails
# --------------------------------------------------------------------------------------------------


class Marginal(NamedTuple):
    """X ~ Binomial(size, σ(log_odds)), given that X and k other groups' counts sum to `draws`.

    All tensors are float64.

    Attributes:
        log_odds, size: of the group itself, ``(...)``.
        other_log_odds, other_sizes: of the others, ``(..., k)``. All log-odds are tilted to n.
        draws: n, ``(...)``.
        log_total: log P(X + others = n), the log-probability of the condition, ``(...)``.
        mean: E[X], ``(...)``, which separates the two tails.
    """

    log_odds: Tensor
    size: Tensor
    other_log_odds: Tensor
    other_sizes: Tensor
    draws: Tensor
    log_total: Tensor
    mean: Tensor

    @classmethod
    def of_each_group(cls, log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Marginal:
        """The marginals ``(..., c)`` of an urn's groups."""
        if log_odds.shape[-1] == 2:
            others = log_odds.flip(-1).unsqueeze(-1), group_sizes.flip(-1).unsqueeze(-1)
        else:
            others = log_odds.unsqueeze(-2), other_sizes(group_sizes)
        log_total = log_mass(log_odds, group_sizes, draws).unsqueeze(-1)
        means = mean(log_odds.detach(), group_sizes, draws)
        return cls(log_odds, group_sizes, *others, draws.unsqueeze(-1), log_total, means)

    @property
    def lowest(self) -> Tensor:
        return (self.draws - self.other_sizes.sum(-1)).clamp(min=0)

    @property
    def highest(self) -> Tensor:
        return torch.minimum(self.size, self.draws)

    def log_prob(self, x: Tensor) -> Tensor:
        """log P(X = x)."""
        left = self.draws - x
        if self.other_sizes.shape[-1] == 1:
            others = binomial_log_pmf(left, self.other_sizes[..., 0], self.other_log_odds[..., 0])
        else:
            others = log_mass_anywhere(self.other_log_odds, self.other_sizes, left)
        return binomial_log_pmf(x, self.size, self.log_odds) + others - self.log_total

    def log_tails(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log P(X ≤ x) and log P(X > x) for integers x; both probabilities relatively accurate.

        Example:
            >>> numbers = [0.0, 0.0], [1e9, 1e9], 1e6
            >>> log_weights, sizes, draws = (torch.tensor(v, dtype=torch.float64) for v in numbers)
            >>> log_odds = log_weights + log_tilt(log_weights, sizes, draws)
            >>> law = Marginal.of_each_group(log_odds, sizes, draws)
            >>> lower, upper = law.log_tails(torch.tensor([4e5, 5e5], dtype=torch.float64))
            >>> print(f"{lower[0]:.6f} {upper[1]:.6f}")
            -20151.533247 -0.693946
        """
        lowest, highest = self.lowest, self.highest
        upward = x + 0.5 >= self.mean
        start = torch.where(upward, x + 1, x).clamp(lowest, highest)
        summed = (self.log_prob(start) + self._log_sum_from(start, upward)).clamp(max=0)
        # On the support the bulk is on the other side, so `summed` is well below zero. Elsewhere
        # -1 is a placeholder, which `certain_outside` replaces.
        rest = log_complement(torch.where((x >= lowest) & (x < highest), summed, -1.0))
        lower, upper = torch.where(upward, rest, summed), torch.where(upward, summed, rest)
        return certain_outside(x, lowest, highest, lower, upper)

    def _log_sum_from(self, start: Tensor, upward: Tensor) -> Tensor:
        """log Σ_k P(X = k) / P(X = start) over k = start, start ± 1, … to the support's end."""
        terms = _Terms.tilted(*self[:4], start, self.draws - start, upward)
        groups = self.other_sizes.shape[-1]
        events = (0, 0, 1, 1, 0, 0, 0, 0)
        work = 2 * SHORT if groups == 1 else NODES[2] * max(SHORT, groups)
        return in_chunks(lambda *rows: _Terms(*rows).log_sum(), *terms, events=events, work=work)


def log_complement(log_p: Tensor) -> Tensor:
    """log(1 - p) of a log-probability log p."""
    return torch.where(
        log_p > -math.log(2), torch.log(-torch.expm1(log_p)), torch.log1p(-torch.exp(log_p))
    )


def certain_outside(
    x: Tensor, lowest: Tensor, highest: Tensor, lower: Tensor, upper: Tensor
) -> tuple[Tensor, Tensor]:
    """The log-tails at x, which are 0 and -inf if the whole support lies on one side of x."""
    below, above = x < lowest, x >= highest
    lower = torch.where(below, -torch.inf, torch.where(above, 0.0, lower))
    return lower, torch.where(above, -torch.inf, torch.where(below, 0.0, upper))


class _Terms(NamedTuple):
    """The terms of a tail, d = 0, 1, … steps away from the bulk, relative to the first.

    The group and the others are tilted separately, each to its count in the first term. The
    difference of the two tilts leaves an exponential: term d is
    Bin(start ± d) · P(others = left ∓ d) · e^(-decay·d), a product of two laws near their peaks and
    an exponential. So no large numbers cancel, and the absolute error of the quadrature is small
    relative to the sum.
    """

    log_odds: Tensor
    size: Tensor
    other_log_odds: Tensor
    other_sizes: Tensor
    start: Tensor
    left: Tensor
    upward: Tensor
    decay: Tensor

    @classmethod
    def tilted(
        cls,
        log_odds: Tensor,
        size: Tensor,
        other_log_odds: Tensor,
        other_sizes: Tensor,
        start: Tensor,
        left: Tensor,
        upward: Tensor,
    ) -> _Terms:
        own_tilt = typical_log_odds(start, size) - log_odds.detach()
        if other_sizes.shape[-1] == 1:
            typical = typical_log_odds(left, other_sizes[..., 0])
            other_tilt = typical - other_log_odds[..., 0].detach()
        else:
            weights, sizes, total = torch.broadcast_tensors(
                other_log_odds.detach(), other_sizes, left.unsqueeze(-1)
            )
            other_tilt = log_tilt(weights, sizes, total[..., 0])
        decay = torch.where(upward, own_tilt - other_tilt, other_tilt - own_tilt)
        log_odds = log_odds + own_tilt
        other_log_odds = other_log_odds + other_tilt.unsqueeze(-1)
        return cls(log_odds, size, other_log_odds, other_sizes, start, left, upward, decay)

    def log_sum(self) -> Tensor:
        """The logarithm of the sum of all terms."""
        length = self._length()
        long = length > SHORT
        if can_check() and not bool(long.any()):
            return torch.log(self._sum_each(length))
        if can_check() and bool(long.all()):
            return torch.log(self._sum_by_gauss(length))
        return torch.log(torch.where(long, self._sum_by_gauss(length), self._sum_each(length)))

    def _length(self) -> Tensor:
        """The number of terms that are not negligible.

        By Bernstein's inequality, terms beyond the root d of d²/(2v + ⅔d) + decay·d = nats are
        negligible. They must be left out, because the quadrature for the other groups is periodic
        and valid up to there only. A sum of variance v₁, conditioned on its total with one of
        variance v₂, has about the variance v with 1/v = 1/v₁ + 1/v₂.
        """
        own = binomial_variance(self.size, self.log_odds.detach())
        others = binomial_variance(self.other_sizes, self.other_log_odds.detach()).sum(-1)
        v = own * others / (own + others).clamp(min=1e-300)
        decay = self.decay.clamp(min=0)
        # The root of (1 + ⅔ decay) d² + 2 half d - 2 nats v = 0, in the form without cancellation.
        square, half = 1 + decay * (2 / 3), decay * v - TAIL_NATS / 3
        root = torch.sqrt(half * half + 2 * TAIL_NATS * v * square)
        d = torch.where(half > 0, 2 * TAIL_NATS * v / (half + root), (root - half) / square)
        up = torch.minimum(self.size - self.start, self.left)
        down = torch.minimum(self.start, self.other_sizes.sum(-1) - self.left)
        return torch.minimum(torch.floor(d) + 2, torch.where(self.upward, up, down)) + 1

    def _sum_each(self, length: Tensor) -> Tensor:
        """The sum term by term, each from the one before it.

        From x to x + 1 a binomial mass grows by the factor (m - x) / (x + 1) · odds.
        """
        d = torch.arange(SHORT - 1, dtype=self.start.dtype, device=self.start.device)
        own_step = self._log_step(self.start, self.size, self.log_odds, self.upward, d)
        step = own_step - self.decay.unsqueeze(-1)
        if self.other_sizes.shape[-1] == 1:
            other_size, other_log_odds = self.other_sizes[..., 0], self.other_log_odds[..., 0]
            step = step + self._log_step(self.left, other_size, other_log_odds, ~self.upward, d)
            return 1 + step.cumsum(-1).exp().sum(-1)
        terms = step.cumsum(-1).exp() * self._mass_of_others(d + 1)
        return 1 + torch.where(d + 1 < length.unsqueeze(-1), terms, 0.0).sum(-1)

    @staticmethod
    def _log_step(
        count: Tensor, size: Tensor, log_odds: Tensor, upward: Tensor, d: Tensor
    ) -> Tensor:
        """The log-ratio of binomial masses from step d to step d + 1, ``(..., D)``."""
        to_go = torch.where(upward, size - count, count)
        gone = torch.where(upward, count, size - count)
        ratio = (to_go.unsqueeze(-1) - d).clamp(min=0) / (gone.unsqueeze(-1) + 1 + d)
        return torch.log(ratio) + torch.where(upward, log_odds, -log_odds).unsqueeze(-1)

    def _sum_by_gauss(self, length: Tensor) -> Tensor:
        """The sum by the Gauss rule."""
        d, weights = gram_rule(length.clamp(min=SHORT + 1))
        own = self._log_binomial_ratio(self.start, self.size, self.log_odds, self.upward, d)
        log_term = own - self.decay.unsqueeze(-1) * d
        if self.other_sizes.shape[-1] == 1:
            others = self._log_binomial_ratio(
                self.left, self.other_sizes[..., 0], self.other_log_odds[..., 0], ~self.upward, d
            )
            return (weights * torch.exp(log_term + others)).sum(-1)
        return (weights * torch.exp(log_term) * self._mass_of_others(d)).sum(-1)

    @staticmethod
    def _log_binomial_ratio(
        count: Tensor, size: Tensor, log_odds: Tensor, upward: Tensor, d: Tensor
    ) -> Tensor:
        """The log-ratio of binomial masses at count ± d and at count, ``(..., D)``."""
        # The nodes d are not integers, and lose digits when added to a count of billions. So the
        # balls left are counted if they are fewer than the balls drawn.
        mostly_drawn = 2 * count > size
        count = torch.where(mostly_drawn, size - count, count)
        log_odds = torch.where(mostly_drawn, -log_odds, log_odds)
        upward = upward ^ mostly_drawn
        count, size, log_odds = count.unsqueeze(-1), size.unsqueeze(-1), log_odds.unsqueeze(-1)
        there = count + torch.where(upward, 1.0, -1.0).unsqueeze(-1) * d
        return binomial_log_pmf(there, size, log_odds) - binomial_log_pmf(count, size, log_odds)

    def _mass_of_others(self, d: Tensor) -> Tensor:
        """P(others = left ∓ d) / P(others = left)."""
        nodes = Nodes.build(self.other_log_odds, self.other_sizes, self.left, span=2)
        offsets = torch.where(self.upward, -1.0, 1.0).unsqueeze(-1) * d
        return nodes.mass_at(offsets) / nodes.mass().unsqueeze(-1)


def gram_rule(length: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights ``(..., 28)`` of the Gauss rule for sums over L > 60 integers.

    Σ_{k<L} f(k) = Σ_i weights_i f(nodes_i) for every polynomial f of degree ≤ 55.

    Example:
        >>> nodes, weights = gram_rule(torch.tensor(1000.0, dtype=torch.float64))
        >>> print(f"{(weights * nodes**2).sum():.3f}", sum(k**2 for k in range(1000)))
        332833500.000 332833500
    """
    table = _gram_table(length.device)
    order = torch.arange(_COEFFICIENTS, dtype=length.dtype, device=length.device)
    angle = torch.acos(2 * ((SHORT + 1) / length.unsqueeze(-1)).square() - 1)
    nodes, weights = (torch.cos(order * angle) @ table).chunk(2, -1)
    length = length.unsqueeze(-1)
    return 0.5 * (length * (1 + nodes) - 1), length * weights


@functools.cache
def _gram_table(device: torch.device) -> Tensor:
    """Chebyshev coefficients of the nodes on (-1, 1) and of the weights, which sum to one.

    They are functions of 1/L² from 0 to 1/(SHORT + 1)². The Jacobi matrix of Gram's polynomials,
    divided by L/2, has the off-diagonal entries k √((1 - k²/L²) / (4k² - 1)) and a diagonal of
    zeros. Its eigenvalues are the nodes, and the squared first components of its eigenvectors are
    the weights (Golub and Welsch).
    """
    angles = math.pi * (torch.arange(_COEFFICIENTS, dtype=torch.float64) + 0.5) / _COEFFICIENTS
    inverse_square_length = 0.5 * (1 + torch.cos(angles)) / (SHORT + 1) ** 2
    k = torch.arange(1, _GAUSS, dtype=torch.float64)
    beside = k * torch.sqrt((1 - k * k * inverse_square_length.unsqueeze(-1)) / (4 * k * k - 1))
    nodes, vectors = torch.linalg.eigh(torch.diag_embed(beside, 1) + torch.diag_embed(beside, -1))
    values = torch.cat([nodes, vectors[..., 0, :].square()], -1)
    order = torch.arange(_COEFFICIENTS, dtype=torch.float64)
    to_coefficients = torch.cos(torch.outer(order, angles)) * (2 / _COEFFICIENTS)
    to_coefficients[0] /= 2
    return (to_coefficients @ values).to(device)
