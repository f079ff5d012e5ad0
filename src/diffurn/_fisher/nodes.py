r"""P(S = n) and its derivatives, from a few dozen values of the characteristic function φ.

S = Σ_j Binomial(m_j, p_j) is an integer, so the trapezoid rule with K nodes is exact up to
aliasing,

.. math:: \frac1K \sum_k φ(θ_k) e^{-inθ_k} = \sum_l P(S = n + lK), \qquad θ_k = 2πk/K,

and K need only exceed the width of S. However large K is, only the first few nodes matter, since
:math:`|φ(θ)| ≤ \exp(-2σ^2 \sin^2(θ/2))`: 25 of them for every m, n and σ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from diffurn._fisher.accuracy import FEW_GROUPS, NODES, TAIL_NATS


def half_width(variance: Tensor, nats: float | Tensor = TAIL_NATS) -> Tensor:
    """Bernstein's bound on |S - ES|, exceeded with a probability of at most 2 e^-nats.

    S is a sum of independent Bernoulli variables with the given variance.
    """
    return nats / 3 + (nats * nats / 9 + 2 * nats * variance).sqrt()


def surplus(log_odds: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """Σ_j m_j σ(log_odds_j) - n, with a rounding error relative to the variance instead of n.

    It is the sum of the expected exceptions: balls drawn of rare groups (p ≤ ½), less balls left of
    common ones.
    """
    drawn_often = log_odds > 0
    signed_sizes = torch.where(drawn_often, -group_sizes, group_sizes)
    exceptions = signed_sizes * torch.sigmoid(torch.where(drawn_often, -log_odds, log_odds))
    return exceptions.sum(-1) + (torch.where(drawn_often, group_sizes, 0.0).sum(-1) - draws)


def sum_of_others(values: Tensor) -> Tensor:
    """Σ_{j≠i} values_j over the groups, dimension -2.

    It is not the total minus values_i, which would cancel if values_i dominates.
    """
    groups = values.shape[-2]
    if groups <= FEW_GROUPS:
        return (1 - torch.eye(groups, dtype=values.dtype, device=values.device)) @ values
    nothing = torch.zeros_like(values[..., :1, :])
    before = torch.cat([nothing, values[..., :-1, :]], -2).cumsum(-2)
    after = torch.cat([nothing, values.flip(-2)[..., :-1, :]], -2).cumsum(-2).flip(-2)
    return before + after


@dataclass(frozen=True)
class Nodes:
    """The T nodes for one value n of the sum S.

    All methods are differentiable in the log-odds from which the nodes were built. The shapes are
    ``(..., c)`` for ``p, q, group_sizes``, ``(..., T)`` for ``theta, amplitude, phase``, and
    ``(..., 1, T)`` for the sines.
    """

    p: Tensor
    q: Tensor
    group_sizes: Tensor
    theta: Tensor
    sine: Tensor
    half_sine_squared: Tensor
    amplitude: Tensor
    phase: Tensor

    @classmethod
    def build(cls, log_odds: Tensor, group_sizes: Tensor, draws: Tensor, span: int = 1) -> Nodes:
        """Nodes for P(S = draws).

        With ``span=2`` they serve for every value within a half-width of the mean (`mass_at`).
        """
        p, q = torch.sigmoid(log_odds), torch.sigmoid(-log_odds)
        variance = (group_sizes * p * q).sum(-1).detach()
        # K is odd, so that no node is at θ = π, where 1 - 4pq sin²(θ/2) may vanish.
        period = 2 * torch.floor(span * half_width(variance) / 2) + 3
        k = torch.arange(NODES[span], dtype=p.dtype, device=p.device)
        theta = (2 * math.pi) * k / period.unsqueeze(-1)
        multiplicity = torch.where(2 * k < period.unsqueeze(-1), torch.where(k == 0, 1.0, 2.0), 0.0)
        # The phase is summed over the rarer outcome of each ball, so that its rounding error is
        # relative to the variance instead of m.
        drawn_often = log_odds > 0
        rarer = torch.where(drawn_often, q, p)
        signed_sizes = torch.where(drawn_often, -group_sizes, group_sizes)
        drift = surplus(log_odds, group_sizes, draws)
        sine = torch.sin(theta).unsqueeze(-2)
        half_sine_squared = torch.sin(theta / 2).square().unsqueeze(-2)
        rarer_, minus_4pq = rarer.unsqueeze(-1), (-4 * p * q).unsqueeze(-1)
        log_squares = torch.log1p(minus_4pq * half_sine_squared)  # log |q + p e^{iθ}|²
        log_amplitude = 0.5 * (group_sizes.unsqueeze(-1) * log_squares).sum(-2)
        angle = torch.atan(rarer_ * sine / (1 - 2 * rarer_ * half_sine_squared))
        angle = angle - rarer_ * theta.unsqueeze(-2)
        phase = (signed_sizes.unsqueeze(-1) * angle).sum(-2) + drift.unsqueeze(-1) * theta
        amplitude = multiplicity / period.unsqueeze(-1) * torch.exp(log_amplitude)
        return cls(p, q, group_sizes, theta, sine, half_sine_squared, amplitude, phase)

    def mass(self) -> Tensor:
        """P(S = n)."""
        return (self.amplitude * torch.cos(self.phase)).sum(-1)

    def _phase_at(self, offsets: Tensor) -> Tensor:
        return self.phase.unsqueeze(-2) - offsets.unsqueeze(-1) * self.theta.unsqueeze(-2)

    def mass_at(self, offsets: Tensor) -> Tensor:
        """P(S = n + offset) for offsets ``(..., G)``, from nodes of ``span=2``.

        The error is absolute.
        """
        terms = self.amplitude.unsqueeze(-2) * torch.cos(self._phase_at(offsets))
        return terms.sum(-1).clamp(min=0)

    def mass_of_rows(self, rows: Tensor, offsets: Tensor) -> Tensor:
        """P(S = n + offset) in the given rows of the batch, with one offset per row."""
        phase = self.phase[rows] - offsets.unsqueeze(-1) * self.theta[rows]
        return (self.amplitude[rows] * torch.cos(phase)).sum(-1).clamp(min=0)

    def slope_of_mass_at(self, offsets: Tensor, vector: Tensor) -> Tensor:
        """Σ_g vector_g ∂P(S = n + offset_g) / ∂ log_odds, shape ``(..., c)``, in O(G + c)."""
        phase = self._phase_at(offsets)
        real = (vector.unsqueeze(-2) @ torch.cos(phase)) * self.amplitude.unsqueeze(-2)
        imaginary = (vector.unsqueeze(-2) @ torch.sin(phase)) * self.amplitude.unsqueeze(-2)
        dr, di = self._slopes()
        return self.group_sizes * self.p * self.q * (real * dr - imaginary * di).sum(-1)

    def _measure(self) -> tuple[Tensor, Tensor]:
        """The complex measure ζ on the nodes, real and imaginary part.

        Its total real mass is one. The average of the means at the nodes under ζ is E[· | S = n].
        """
        real = self.amplitude * torch.cos(self.phase)
        imaginary = self.amplitude * torch.sin(self.phase)
        mass = real.sum(-1, keepdim=True)
        return (real / mass).unsqueeze(-2), (imaginary / mass).unsqueeze(-2)

    def _slopes(self) -> tuple[Tensor, Tensor]:
        r"""δ_j(θ) = (e^{iθ} - 1) / (q_j + p_j e^{iθ}), real and imaginary part.

        At node θ the mean of group j is m_j p_j (1 + q_j δ_j).
        """
        p, q = self.p.unsqueeze(-1), self.q.unsqueeze(-1)
        scale = 1 / (1 - (4 * p * q) * self.half_sine_squared)
        return (2 * (p - q)) * self.half_sine_squared * scale, self.sine * scale

    def mean_shift(self) -> Tensor:
        """E[X_j | S = n] - E[X_j], the change of the mean by conditioning."""
        (zr, zi), (dr, di) = self._measure(), self._slopes()
        return self.group_sizes * self.p * self.q * (zr * dr - zi * di).sum(-1)

    def mean(self) -> Tensor:
        """E[X_j | S = n] = m_j p_j · P(S without one ball of j = n - 1) / P(S = n).

        As a ratio of two masses it is relatively accurate.
        """
        (zr, zi), (dr, di) = self._measure(), self._slopes()
        return self.group_sizes * self.p * (1 + self.q * (zr * dr - zi * di).sum(-1))

    # For i ≠ j the conditional covariance is v_i v_j (Σ ζ δ_i δ_j - b_i b_j) with v = mpq and
    # b_j = Σ ζ δ_j. The diagonal follows from "rows sum to zero". All other entries of a row have
    # one sign, so nothing cancels, even if one outcome is almost certain.

    def covariance_product(self, vector: Tensor) -> Tensor:
        """Cov[X | S = n] @ vector in O(c), as Σ_{j≠i} Cov_ij (vector_j - vector_i)."""
        (zr, zi), (dr, di) = self._measure(), self._slopes()
        v, u = (self.group_sizes * self.p * self.q).unsqueeze(-1), vector.unsqueeze(-1)
        b = (zr * dr - zi * di).sum(-1, keepdim=True)
        real, imaginary, means = (self._differences_to_others(v * part, u) for part in (dr, di, b))
        joint = zr * (dr * real - di * imaginary) - zi * (dr * imaginary + di * real)
        joint = joint.sum(-1, keepdim=True)
        return (v * (joint - b * means)).squeeze(-1)

    @staticmethod
    def _differences_to_others(values: Tensor, vector: Tensor) -> Tensor:
        """Σ_{j≠i} values_j (vector_j - vector_i)."""
        return sum_of_others(values * vector) - vector * sum_of_others(values)

    def information(self, vectors: Tensor) -> Tensor:
        """Vᵀ Cov[X | S = n] V of the columns of V ``(..., c, p)``, in O(c p (T + p)).

        The columns are centred by their averages under v. With u_j the rows after that, and with
        the sums D = Σ v_j δ_j and G = Σ v_j δ_j u_j at each node, it is the covariance of G and G
        under ζ, less Σ_j v_j u_j u_jᵀ times the covariance of δ_j and D.
        """
        (zr, zi), (dr, di) = self._measure(), self._slopes()
        v = (self.group_sizes * self.p * self.q).unsqueeze(-1)
        smallest = torch.finfo(v.dtype).tiny
        u = vectors - (v * vectors).sum(-2, keepdim=True) / v.sum(-2, keepdim=True).clamp(smallest)
        columns = v * torch.cat([torch.ones_like(u[..., :1]), u], -1)
        real, imaginary = dr.mT @ columns, di.mT @ columns
        zr, zi = zr.mT, zi.mT
        centred = real - (zr * real - zi * imaginary).sum(-2, keepdim=True)
        by_real, by_imaginary = zr * centred - zi * imaginary, zr * imaginary + zi * centred
        between = by_real.mT @ real - by_imaginary.mT @ imaginary
        own = v * (dr @ by_real[..., :1] - di @ by_imaginary[..., :1])
        return between[..., 1:, 1:] - (own * u).mT @ u

    def covariance(self) -> Tensor:
        """Cov[X | S = n], shape (..., c, c)."""
        (zr, zi), (dr, di) = self._measure(), self._slopes()
        b = (zr * dr - zi * di).sum(-1)
        v = self.group_sizes * self.p * self.q
        joint = (dr * zr - di * zi) @ dr.mT - (di * zr + dr * zi) @ di.mT
        entries = v.unsqueeze(-1) * v.unsqueeze(-2) * (joint - b.unsqueeze(-1) * b.unsqueeze(-2))
        own = torch.eye(v.shape[-1], dtype=torch.bool, device=v.device)
        others = torch.where(own, 0.0, entries)
        return torch.where(own, -others.sum(-1, keepdim=True), others)

    def variance(self) -> Tensor:
        """The diagonal of `covariance`, in O(c)."""
        (zr, zi), (dr, di) = self._measure(), self._slopes()
        v = (self.group_sizes * self.p * self.q).unsqueeze(-1)
        b = (zr * dr - zi * di).sum(-1, keepdim=True)
        real, imaginary, means = (sum_of_others(v * part) for part in (dr, di, b))
        joint = zr * (dr * real - di * imaginary) - zi * (dr * imaginary + di * real)
        joint = joint.sum(-1, keepdim=True)
        return (v * (b * means - joint)).squeeze(-1)
