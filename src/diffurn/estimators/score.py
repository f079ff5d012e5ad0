"""Unbiased gradients through a draw, from the score function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from diffurn.estimators.estimator import Estimator

if TYPE_CHECKING:
    from diffurn._law import Law


@dataclass(frozen=True)
class ScoreFunction(Estimator):
    """Unbiased gradients of expectations, by `score_surrogate`.

    Draws themselves carry no gradient, so ask for an `expectation`, as `SubsetSampler` offers it.

    Args:
        control_variate: None, or "covariance" for less variance where f is close to linear.
    """

    draws_carry_gradients: ClassVar[bool] = False

    control_variate: Literal["covariance"] | None = None

    def __post_init__(self) -> None:
        _check_control_variate(self.control_variate)

    def rsample(self, law: Law, num_samples: int) -> Tensor:
        with torch.no_grad():
            return law.sample(num_samples, torch.float64)

    def expectation(self, urn: Any, f: Callable[[Tensor], Tensor], num_samples: int) -> Tensor:
        return score_surrogate(urn, f, num_samples, self.control_variate)


def score_surrogate(
    urn: Any,
    f: Callable[[Tensor], Tensor],
    num_samples: int,
    control_variate: Literal["covariance"] | None = None,
) -> Tensor:
    r"""A surrogate loss, shape ``batch_shape``, whose gradient is an unbiased estimate of ∇E[f(x)].

    Its value is the sample mean of f. Its gradient is the score-function estimator with a
    leave-one-out baseline (Kool, van Hoof, Welling, 2019),

    .. math:: \frac1S \sum_s \Big(f(x_s) - \frac{1}{S-1} \sum_{t≠s} f(x_t)\Big) ∇\log p(x_s),

    which needs f at whole counts only. Parameters that f itself depends on get their ordinary
    gradient as well.

    With ``control_variate="covariance"`` the linear part of f at the exact mean μ is subtracted
    from the sum, and its exact gradient f'(μ)ᵀ ∇μ is added (MuProp: Gu, Levine, Sutskever, Mnih,
    2016). The estimate is still unbiased, and has less variance if f is close to linear. f must
    then be differentiable at the mean, which is fractional.

    Args:
        urn: a distribution with `sample`, `log_prob` and `mean`, such as `FisherHypergeometric`.
        f: maps counts ``(S, ..., c)`` to values ``(S, ...)``, each draw on its own. Where a value
            depends on several urns, the values lack the last dimensions of the batch.
        num_samples: S ≥ 2.
        control_variate: None or "covariance".

    Example:
        >>> from diffurn import FisherHypergeometric
        >>> log_weights = torch.zeros(3, requires_grad=True)
        >>> urn = FisherHypergeometric([5, 5, 5], 6, log_weights=log_weights)
        >>> f = lambda x: (x[..., 0] * x[..., 1] - 3).square()
        >>> score_surrogate(urn, f, num_samples=100).backward()
        >>> log_weights.grad.shape
        torch.Size([3])
    """
    if num_samples < 2:
        raise ValueError(f"num_samples is {num_samples}, but must be at least 2")
    _check_control_variate(control_variate)
    x = urn.sample((num_samples,))
    values = f(x)
    residuals = values.detach()
    exact_part = torch.zeros_like(values[0])
    if control_variate == "covariance":
        mean = urn.mean
        slope = _slope_at(f, mean.detach())
        residuals = residuals - _summed(slope * x, values.ndim)
        exact_part = _summed(slope * (mean - mean.detach()), values.ndim - 1)
    log_prob = urn.log_prob(x)
    return with_score(values, residuals, _summed(log_prob, values.ndim)) + exact_part


def _summed(terms: Tensor, dimensions: int) -> Tensor:
    """The terms with `dimensions` dimensions, summed over those that follow."""
    return terms.flatten(dimensions).sum(-1) if terms.ndim > dimensions else terms


def with_score(values: Tensor, residuals: Tensor, log_prob: Tensor) -> Tensor:
    """The mean of values ``(S, ...)``, with the score-function estimate of its gradient added.

    Args:
        values: f(x) of S ≥ 2 samples, whose own gradient is kept.
        residuals: the values that are multiplied by the score, without a gradient; their
            leave-one-out means are the baseline.
        log_prob: of the samples.
    """
    baseline = (residuals.sum(0) - residuals) / (len(residuals) - 1)
    score_part = ((residuals - baseline) * (log_prob - log_prob.detach())).mean(0)
    return values.mean(0) + score_part


def _check_control_variate(control_variate: Any) -> None:
    if control_variate not in (None, "covariance"):
        raise ValueError(
            f"control_variate is {control_variate!r}, but must be None or 'covariance'"
        )


def _slope_at(f: Callable[[Tensor], Tensor], point: Tensor) -> Tensor:
    """The gradient f'(point), detached."""
    if torch.compiler.is_compiling():  # the compiler takes no torch.autograd.grad inside a graph
        slopes: Tensor = torch.func.grad(lambda x: f(x.unsqueeze(0)).sum())(point)
        return slopes.detach()
    with torch.enable_grad():
        point = point.requires_grad_()
        (slope,) = torch.autograd.grad(f(point.unsqueeze(0)).sum(), point)
    return slope
