"""The binomial law in forms that stay accurate for populations of billions.

Differences of `lgamma` lose many digits there: log C(10⁹, x) is about 10⁹, so its rounding error
alone is 10⁻⁷. Loader's saddle-point form has no large terms (C. Loader, *Fast and Accurate
Computation of Binomial Probabilities*, 2000).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from diffurn._kernels.dispatch import primitive
from diffurn._numerics.autograd import ClosedForm
from diffurn._numerics.series import ATANH, ATANH_UP_TO, STIRLING, STIRLING_FROM


def _horner(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    value = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + coefficient
    return value


def stirling_remainder(x: Tensor) -> Tensor:
    """log Γ(x+1) - x log x + x for real x ≥ 0, with the value 0 at 0."""
    small = x.clamp(max=STIRLING_FROM)
    by_lgamma = torch.lgamma(small + 1) - torch.xlogy(small, small) + small
    large = x.clamp(min=STIRLING_FROM)
    by_series = 0.5 * torch.log(2 * math.pi * large) + _horner(STIRLING, large**-2) / large
    return torch.where(x < STIRLING_FROM, by_lgamma, by_series)


def deviance(x: Tensor, expected: Tensor, log_expected: Tensor, difference: Tensor) -> Tensor:
    """x log(x / M) + M - x ≥ 0 for a count x of expectation M, Loader's ``bd0``.

    There is no cancellation near x = M. The caller passes `difference`, x - M, which it may know
    more accurately than a subtraction gives it. Far from x = M, where M may have underflowed,
    `log_expected` is used.
    """
    v = difference / (x + expected).clamp(min=torch.finfo(x.dtype).tiny)
    near = difference * v + 2 * x * v**3 * _horner(ATANH, v * v)
    log_x = torch.log(x.clamp(min=torch.finfo(x.dtype).tiny))
    far = torch.where(x > 0, x * (log_x - log_expected), 0.0) - difference
    return torch.where(v.abs() <= ATANH_UP_TO, near, far)


def binomial_variance(size: Tensor, log_odds: Tensor) -> Tensor:
    """m p (1 - p) with p = σ(log_odds), relatively accurate even if p is almost one."""
    return size * torch.sigmoid(log_odds) * torch.sigmoid(-log_odds)


def typical_log_odds(count: Tensor, size: Tensor) -> Tensor:
    """Log-odds under which a count is typical; finite also for the counts 0 and m."""
    return torch.log((count + 0.5) / (size - count + 0.5))


def _log_sigmoid(x: Tensor) -> Tensor:
    """log σ(x); torch's `logsigmoid` starts threads even for the smallest tensor."""
    return -softplus(-x, threshold=50)


@primitive
def log_pmf_value(x: Tensor, size: Tensor, log_odds: Tensor) -> Tensor:
    """`binomial_log_pmf` of tensors of one shape, without a derivative."""
    log_size = torch.log(size.clamp(min=1))
    outside = (x < 0) | (x > size)  # False for NaN, which stays NaN
    x = torch.where(outside, 0.0, x)
    failures = size - x
    expected, expected_failures = size * torch.sigmoid(log_odds), size * torch.sigmoid(-log_odds)
    # x - mp comes from the smaller of the expected counts, which has the smaller rounding error.
    # For odds near one both are large, and p - ½ = ½ tanh(log_odds / 2) is more accurate.
    difference = torch.where(log_odds < 0, x - expected, expected_failures - failures)
    half = 0.5 * size
    near_half = (x - half) - half * torch.tanh(0.5 * log_odds)
    difference = torch.where(log_odds.abs() < 0.5, near_half, difference)
    value = (
        stirling_remainder(size)
        - stirling_remainder(x)
        - stirling_remainder(failures)
        - deviance(x, expected, log_size + _log_sigmoid(log_odds), difference)
        - deviance(failures, expected_failures, log_size + _log_sigmoid(-log_odds), -difference)
    )
    return torch.where(outside, -torch.inf, value)


def slope_in_count(x: Tensor, size: Tensor, log_odds: Tensor) -> Tensor:
    """The derivative of `binomial_log_pmf` in a real count."""
    return log_odds - torch.digamma(x + 1) + torch.digamma(size - x + 1)


class _BinomialLogPmf(ClosedForm):
    forward = staticmethod(log_pmf_value)

    @staticmethod
    def _slope_in_log_odds(x: Tensor, size: Tensor, log_odds: Tensor) -> Tensor:
        return x - size * torch.sigmoid(log_odds)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        in_x = in_log_odds = None
        if ctx.needs_input_grad[0]:
            in_x = grads[0] * slope_in_count(*ctx.saved_tensors)
        if ctx.needs_input_grad[2]:
            in_log_odds = grads[0] * _BinomialLogPmf._slope_in_log_odds(*ctx.saved_tensors)
        return in_x, None, in_log_odds

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        in_x = tangents[0] * slope_in_count(*ctx.saved_tensors)
        return in_x + tangents[2] * _BinomialLogPmf._slope_in_log_odds(*ctx.saved_tensors)


def binomial_log_pmf(x: Tensor, size: Tensor, log_odds: Tensor) -> Tensor:
    r"""log of :math:`\binom{m}{x} p^x (1-p)^{m-x}` with p = σ(log_odds); -inf unless 0 ≤ x ≤ m.

    The gamma function continues it to real x. It is differentiable in x and in the log-odds, to
    any order.

    Example:
        >>> x, size, log_odds = (torch.tensor(v, dtype=torch.float64) for v in (5.0e8, 1.0e9, 0.0))
        >>> print(f"{binomial_log_pmf(x, size, log_odds):.12f}")  # ≈ -½ log(πm/2)
        -10.587424271368
    """
    return _BinomialLogPmf.of(*torch.broadcast_tensors(x, size, log_odds))


class _BernoulliKL(ClosedForm):
    @staticmethod
    def forward(log_odds: Tensor, other: Tensor) -> Tensor:
        p, other_p, q, other_q = (torch.sigmoid(x) for x in (log_odds, other, -log_odds, -other))
        difference = torch.where(log_odds < 0, p - other_p, other_q - q)
        of_success = deviance(p, other_p, _log_sigmoid(other), difference)
        of_failure = deviance(q, other_q, _log_sigmoid(-other), -difference)
        return of_success + of_failure

    @staticmethod
    def _slopes(log_odds: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        p, q = torch.sigmoid(log_odds), torch.sigmoid(-log_odds)
        return p * q * (log_odds - other), torch.sigmoid(other) - p

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        first, second = _BernoulliKL._slopes(*ctx.saved_tensors)
        return grads[0] * first, grads[0] * second

    @staticmethod
    def tangent(ctx: Any, *tangents: Tensor) -> Tensor:
        first, second = _BernoulliKL._slopes(*ctx.saved_tensors)
        return tangents[0] * first + tangents[1] * second


def bernoulli_kl(log_odds: Tensor, other: Tensor) -> Tensor:
    """KL(Bernoulli(σ(log_odds)) ‖ Bernoulli(σ(other))), accurate also for almost equal odds."""
    return _BernoulliKL.of(*torch.broadcast_tensors(log_odds, other))
