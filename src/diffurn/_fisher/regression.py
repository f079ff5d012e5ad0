r"""The likelihood of subsets whose log-weights are linear in β, with its first two derivatives.

A subset of n of c balls has Fisher's law with m = 1, and log ω = Vβ + offset. So

.. math:: \log P = \sum_{drawn} \log ω_j - \log Z, \qquad
          ∇_β = V^T (x - μ), \qquad -∇²_β = V^T \mathrm{Cov}[X] V.

No c × c matrix is formed. Every function takes log ω ``(B, c)``, the present balls (1, or 0 where a
row of the batch is shorter) ``(B, c)``, the drawn ones x ``(B, c)`` and V ``(B, c, p)``, all
float64. It returns log P ``(B,)``, its gradient ``(B, p)`` and minus its Hessian ``(B, p, p)``, and
can be differentiated once more. A common vector added to all rows of V has no effect; the functions
subtract one, so that little cancels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from diffurn._fisher.accuracy import NODES
from diffurn._fisher.moments import information as information_of
from diffurn._fisher.moments import log_mass, mean_anywhere
from diffurn._fisher.moments import log_prob as subset_log_prob
from diffurn._fisher.nodes import half_width, surplus
from diffurn._fisher.tilt import log_tilt
from diffurn._kernels.dispatch import can_call
from diffurn._numerics.batching import elements_per_chunk

Derivatives = tuple[Tensor, Tensor, Tensor]


def one_drawn(log_weights: Tensor, present: Tensor, drawn: Tensor, vectors: Tensor) -> Derivatives:
    """For one ball: a softmax, in O(c p²)."""
    log_share = torch.log_softmax(torch.where(present > 0, log_weights, -torch.inf), -1)
    share = log_share.exp()
    centred = vectors - share.unsqueeze(-2) @ vectors
    log_prob = torch.where(drawn > 0, log_share, 0.0).sum(-1)
    score = (drawn.unsqueeze(-2) @ centred).squeeze(-2)
    return log_prob, score, centred.mT @ (share.unsqueeze(-1) * centred)


def few_drawn(log_weights: Tensor, present: Tensor, drawn: Tensor, vectors: Tensor) -> Derivatives:
    """For at most K balls, by a recursion over the balls: c steps of O(K p²).

    Let each ball be drawn independently with its tilted odds. After j balls, state[:, k] holds the
    probability that k of them were drawn, and the expectations of Σ V and of its outer product on
    that event.
    """
    draws = drawn.sum(-1)
    tilted, yes, no = _tilted(log_weights, present, draws)
    centred = _centred(vectors, yes.detach() * present)
    p, most = vectors.shape[-1], int(draws.max())
    # The batch is the last dimension: a CPU vectorises along it.
    state = yes.new_zeros(1 + p + p * p, most + 1, len(draws))
    state[0, 0] = 1
    columns = centred.permute(1, 2, 0).contiguous(), yes.mT.contiguous(), no.mT.contiguous()
    for vector, drawn_with, left_with in zip(*columns, strict=True):
        v = vector.unsqueeze(1)  # (p, 1, B)
        fewer = state[:, :-1]
        mass, first, second = fewer[:1], fewer[1 : 1 + p], fewer[1 + p :].unflatten(0, (p, p))
        grown = first + v * mass
        product = second + v.unsqueeze(1) * grown + first.unsqueeze(1) * v
        added = drawn_with * torch.cat([mass, grown, product.flatten(0, 1)])
        state = left_with * state
        state = torch.cat([state[:, :1], state[:, 1:] + added], 1)
    place = draws.to(torch.int64).expand(len(state), 1, -1)
    mass, *moments = state.gather(1, place).squeeze(1).split([1, p, p * p])
    mean, square = (moment / mass for moment in moments)
    information = square.T.unflatten(-1, (p, p)) - mean.T.unsqueeze(-1) * mean.T.unsqueeze(-2)
    score = (drawn.unsqueeze(-2) @ centred).squeeze(-2) - mean.T
    return _log_prob(tilted, present, drawn, mass[0]), score, information


def any_drawn(log_weights: Tensor, present: Tensor, drawn: Tensor, vectors: Tensor) -> Derivatives:
    r"""For any number of balls, by quadrature, in O(c (T + p)p) with T = 25 nodes.

    At node θ the tilted law is one of independent balls with complex probabilities
    :math:`p(θ) = p (1 + q δ)`. With ζ, the measure of the nodes, and a = Σ v p q δ,

    .. math:: V^T \mathrm{Cov} V = \sum_j v_j v_j^T E_ζ[p_j(θ) q_j(θ)] + E_ζ[a a^T] - E_ζ[a]
              E_ζ[a]^T.

    Long rows are passed in slices that fit the cache, so that memory is O(c p). Where C kernels
    run, the three results come from them, in a tenth of the time.
    """
    draws = drawn.sum(-1)
    if can_call(log_weights, present, drawn, vectors):
        moments = mean_anywhere(log_weights, present, draws)
        score = ((drawn - moments).unsqueeze(-2) @ vectors).squeeze(-2)
        value = subset_log_prob(log_weights, present, draws, drawn)
        return value, score, information_of(log_weights, present, draws, vectors)
    tilted, yes, no = _tilted(log_weights, present, draws)
    variance = yes * no * present
    centred = _centred(vectors, variance.detach())
    # The nodes, as in `Nodes.build`.
    period = 2 * torch.floor(half_width(variance.sum(-1).detach()) / 2) + 3
    k = torch.arange(NODES[1], dtype=yes.dtype, device=yes.device)
    theta = (2 * math.pi) * k / period.unsqueeze(-1)
    multiplicity = torch.where(2 * k < period.unsqueeze(-1), torch.where(k == 0, 1.0, 2.0), 0.0)
    sine, half_sine_squared = torch.sin(theta), torch.sin(theta / 2).square()
    columns = theta.unsqueeze(-1), sine.unsqueeze(-1), half_sine_squared.unsqueeze(-1)

    log_amplitude = torch.zeros_like(theta)
    phase = surplus(tilted, present, draws).unsqueeze(-1) * theta
    for part in _slices(yes):
        here = tilted[:, part], present[:, part], variance[:, part]
        size, phases = _characteristic(*here, columns)
        log_amplitude, phase = log_amplitude + size, phase + phases
    amplitude = multiplicity / period.unsqueeze(-1) * torch.exp(log_amplitude)
    real, imaginary = amplitude * torch.cos(phase), amplitude * torch.sin(phase)
    mass = real.sum(-1)
    zr, zi = (x.unsqueeze(1) / mass[:, None, None] for x in (real, imaginary))  # (B, 1, T)

    p = vectors.shape[-1]
    inner = yes.new_zeros(len(yes), p, p)
    ar = ai = yes.new_zeros(len(yes), NODES[1], p)
    _, sine, half_sine_squared = columns
    for part in _slices(yes):
        v, rate = centred[:, part], variance[:, part]
        scale = 1 / (1 - (4 * rate).unsqueeze(1) * half_sine_squared)
        tilt = (yes - no)[:, part]
        dr, di = (2 * tilt).unsqueeze(1) * half_sine_squared * scale, sine * scale  # (B, T, c)
        weighted = rate.unsqueeze(-1) * v
        ar, ai = ar + dr @ weighted, ai + di @ weighted
        first = (zr @ dr - zi @ di).squeeze(1)
        second = (zr @ (dr.square() - di.square()) - zi @ (2 * dr * di)).squeeze(1)
        own = 1 - tilt * first - rate * second
        inner = inner + weighted.mT @ (own.unsqueeze(-1) * v)
    mean = (zr @ ar - zi @ ai).squeeze(1)
    zr, zi = zr.mT, zi.mT
    joint = ar.mT @ (zr * ar - zi * ai) - ai.mT @ (zr * ai + zi * ar)
    information = inner + joint - mean.unsqueeze(-1) * mean.unsqueeze(-2)
    deviation = torch.where(tilted > 0, drawn - present + no * present, drawn - yes * present)
    score = (deviation.unsqueeze(-2) @ centred).squeeze(-2) - mean
    return _log_prob(tilted, present, drawn, mass), score, information


def _characteristic(
    tilted: Tensor, present: Tensor, variance: Tensor, columns: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """log |φ| and the centred phase of φ of some balls, ``(B, T)``."""
    theta, sine, half_sine_squared = columns
    log_squares = torch.log1p((-4 * variance).unsqueeze(1) * half_sine_squared)
    rarer = (torch.sigmoid(-tilted.abs()) * present).unsqueeze(1)
    angle = torch.atan(rarer * sine / (1 - 2 * rarer * half_sine_squared)) - rarer * theta
    signs = torch.where(tilted > 0, -1.0, 1.0).to(angle.dtype).unsqueeze(-1)
    return 0.5 * log_squares.sum(-1), (angle @ signs).squeeze(-1)


def _tilted(log_weights: Tensor, present: Tensor, draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The tilted log-odds, and the probabilities that a ball is drawn or left; an absent ball is
    left.
    """
    tilted = log_weights + log_tilt(log_weights.detach(), present, draws).unsqueeze(-1)
    tilted = torch.where(present > 0, tilted, -torch.inf)
    return tilted, torch.sigmoid(tilted), torch.sigmoid(-tilted)


def _centred(vectors: Tensor, weight: Tensor) -> Tensor:
    """Vectors less their weighted average."""
    share = weight / weight.sum(-1, keepdim=True)
    return vectors - share.unsqueeze(-2) @ vectors


def _log_prob(tilted: Tensor, present: Tensor, drawn: Tensor, mass: Tensor) -> Tensor:
    """Σ log P(X_j = x_j) of independent balls, less log P(Σ X = n)."""
    outcome = torch.where(drawn > 0, tilted, -tilted)
    return torch.where(present > 0, logsigmoid(outcome), 0.0).sum(-1) - mass.log()


def _slices(values: Tensor) -> Iterator[slice]:
    """Slices of the balls ``(B, c)`` whose intermediates on the nodes fit the cache."""
    rows, balls = values.shape
    width = max(64, elements_per_chunk(values.device) // (2 * NODES[1] * rows))
    return (slice(start, start + width) for start in range(0, balls, width))


def log_prob(log_weights: Tensor, present: Tensor, drawn: Tensor) -> Tensor:
    """log P of a subset, ``(B,)``, differentiable twice in the log-weights, in O(c)."""
    draws = drawn.sum(-1)
    tilted = log_weights + log_tilt(log_weights.detach(), present, draws).unsqueeze(-1)
    outcome = torch.where(drawn > 0, tilted, -tilted)
    apart = torch.where(present > 0, logsigmoid(outcome), 0.0).sum(-1)
    return apart - log_mass(tilted, present, draws)
