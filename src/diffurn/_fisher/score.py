"""What maximum likelihood asks of an urn: log P(x), its gradient and its curvature in log ω, from
one set of nodes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diffurn._fisher.quadrature import Quadrature
from diffurn._fisher.tilt import log_tilt
from diffurn._numerics.binomial import binomial_log_pmf


def log_prob_and_derivatives(
    log_weights: Tensor, group_sizes: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    r"""log P(x) of Fisher's law, its gradient x - E[X] and minus its Hessian, Cov[X].

    The law is an exponential family in log ω, so the curvature does not depend on x, and x may be
    the average of several draws from urns of equal m and n: the binomial coefficients are continued
    by the gamma function.

    Args:
        log_weights: log ω, finite, shape ``(..., c)``.
        group_sizes: m, shape ``(..., c)``.
        counts: x, shape ``(..., c)``, with an integer sum n.

    Returns:
        Tensors of shape ``(...)``, ``(..., c)`` and ``(..., c, c)``; all zero where n leaves no
        choice.
    """
    draws = counts.sum(-1).round()
    determined = ((draws <= 0) | (draws >= group_sizes.sum(-1))).unsqueeze(-1)
    log_odds = log_weights + log_tilt(log_weights, group_sizes, draws).unsqueeze(-1)
    nodes = Quadrature.build(log_odds, group_sizes, draws)
    log_prob = binomial_log_pmf(counts, group_sizes, log_odds).sum(-1) - nodes.mass().log()
    score, information = counts - nodes.mean(), nodes.covariance()
    return (
        torch.where(determined.squeeze(-1), 0.0, log_prob),
        torch.where(determined, 0.0, score),
        torch.where(determined.unsqueeze(-1), 0.0, information),
    )
