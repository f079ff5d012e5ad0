"""A layer that chooses k of d items."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import kl_divergence

from diffurn._numerics.tracing import can_check
from diffurn._urn import Urn
from diffurn._validation import require, require_one_of
from diffurn.estimators import CovarianceST, Estimator
from diffurn.estimators.score import with_score
from diffurn.fisher import FisherHypergeometric
from diffurn.wallenius import WalleniusHypergeometric

_LAWS: dict[str, type[Urn]] = {"fisher": FisherHypergeometric, "wallenius": WalleniusHypergeometric}
# Sums over all subsets of Wallenius' law are exact up to so many entries of subsets. They take a
# millisecond or two; beyond, draws are cheaper.
_MOST_ENTRIES = 1 << 15


class SubsetSampler(torch.nn.Module):
    r"""Chooses k of d items: logits ``(..., d)`` in, zeros and ones ``(..., d)`` out.

    It is used as ``torch.topk`` is, but draws the subset, and sends gradients back to the logits.
    Draws, probabilities and gradients are those of one law: Fisher's urn or Wallenius' urn of d
    groups of one ball. The layer has no parameters.

    - ``law="fisher"``: P(subset) ∝ exp(Σ of its logits), known as conditional Poisson sampling and
      as the k-subset distribution. Choose it unless items are taken one after another.
    - ``law="wallenius"``: items are taken one after another, each by a softmax over those that are
      left, and their order is forgotten. This is the law of Gumbel top-k draws.

    In training mode the layer draws. In evaluation mode it takes the most probable subset, which is
    the k largest logits under both laws.

    On the CPU, logits and masks are checked. On other devices a check would make the CPU wait for
    the device in every step, so a row of NaN logits, or with fewer than k items, becomes NaN.

    Logits in float16 and bfloat16 are computed in float32 and more; chosen items come in the dtype
    of the logits, probabilities in float32.

    Args:
        k: the number of items to choose. Every method takes another ``k``, also one for each row.
        law: "fisher" or "wallenius".
        estimator: how gradients flow through draws: `CovarianceST` (the default), straight-through
            with the exact Jacobian of the inclusion probabilities; `GumbelTopK`, for Wallenius'
            law; `GumbelSoftmax`, for Fisher's law of few items; `ScoreFunction`, unbiased, for
            `expectation` alone.

    All methods take:
        logits: ``(..., d)``, real numbers. A constant added to a row changes nothing.
        mask: which items may be chosen, booleans that broadcast with the logits; False for padding.
        k: the number of items, an integer or one for each row ``(...)``.

    Example:
        >>> sampler = SubsetSampler(k=2)
        >>> logits = torch.tensor([[2.0, 0.0, 1.0, -1.0]], requires_grad=True)
        >>> subset = sampler(logits)
        >>> subset.sum(-1)
        tensor([2.], grad_fn=<SumBackward1>)
        >>> sampler.inclusion(logits).detach()
        tensor([[0.8808, 0.3056, 0.6944, 0.1192]])
        >>> sampler.eval()(logits)
        tensor([[1., 0., 1., 0.]])
    """

    def __init__(
        self,
        k: int,
        law: Literal["fisher", "wallenius"] = "fisher",
        estimator: Estimator | None = None,
    ) -> None:
        super().__init__()
        require_one_of("law", law, tuple(_LAWS))
        if isinstance(k, bool) or not isinstance(k, int) or k < 0:
            raise ValueError(f"k is {k!r}, but must be an integer ≥ 0")
        self.k, self.law = k, law
        self.estimator = CovarianceST() if estimator is None else estimator
        _LAWS[law]([1], 1, log_weights=torch.zeros(1), estimator=self.estimator)  # checks it

    def extra_repr(self) -> str:
        return f"k={self.k}, law={self.law!r}, estimator={self.estimator!r}"

    def forward(
        self,
        logits: Tensor,
        mask: Tensor | None = None,
        k: int | Tensor | None = None,
        num_samples: int | None = None,
    ) -> Tensor:
        """The chosen items as ones; with `num_samples`, so many subsets in a new first dimension.

        In training mode they are draws that carry gradients, in evaluation mode the most probable
        subset.
        """
        urn = self.urn(logits, mask, k)
        shape = () if num_samples is None else (num_samples,)
        if self.training:
            if torch.is_grad_enabled() and logits.requires_grad:
                self._require_gradients()
            return urn.rsample(shape).to(logits.dtype)
        mode = urn.mode.to(logits.dtype)
        return mode.expand(*shape, *mode.shape)

    def urn(self, logits: Tensor, mask: Tensor | None = None, k: int | Tensor | None = None) -> Urn:
        """The law of the subset: a `FisherHypergeometric` or `WalleniusHypergeometric`."""
        number = self._checked(logits, mask, self.k if k is None else k)
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        if mask is not None:
            logits = logits.masked_fill(~mask, -torch.inf)
        return _LAWS[self.law](
            [1],
            number,
            log_weights=logits,
            estimator=self.estimator,
            validate_args=None if _is_checked(logits) else False,
        )

    def log_prob(
        self,
        logits: Tensor,
        subset: Tensor,
        mask: Tensor | None = None,
        k: int | Tensor | None = None,
    ) -> Tensor:
        """The exact log-probability of a subset of k ones ``(..., d)``, shape ``(...)``.

        The subset is given as numbers or booleans.
        """
        if subset.dtype == torch.bool:
            subset = subset.to(torch.int64)
        return self.urn(logits, mask, k).log_prob(subset)

    def inclusion(
        self, logits: Tensor, mask: Tensor | None = None, k: int | Tensor | None = None
    ) -> Tensor:
        """The exact probability of each item to be chosen, ``(..., d)``; rows sum to k."""
        return self.urn(logits, mask, k).mean

    def expectation(
        self,
        f: Callable[[Tensor], Tensor],
        logits: Tensor,
        mask: Tensor | None = None,
        k: int | Tensor | None = None,
        num_samples: int = 2,
    ) -> Tensor:
        """A loss, shape ``(...)``, that estimates E[f(subset)], with the estimator's gradient.

        `f` maps subsets ``(num_samples, ..., d)`` to values ``(num_samples, ...)``; a value that
        depends on several subsets lacks the last dimensions. With `ScoreFunction` the gradient is
        unbiased, and f may be any function.
        """
        return self.estimator.expectation(self.urn(logits, mask, k), f, num_samples)

    def entropy(
        self,
        logits: Tensor,
        mask: Tensor | None = None,
        k: int | Tensor | None = None,
        num_samples: int = 256,
    ) -> Tensor:
        """-E[log P(subset)] in nats, shape ``(...)``.

        Exact for Fisher's law, and for Wallenius' law of few subsets. Otherwise it is an unbiased
        estimate from `num_samples` draws, with an unbiased gradient.
        """
        urn = self.urn(logits, mask, k)
        if self._is_exact(urn, k):
            return urn.entropy()
        x = urn.sample((num_samples,))
        log_prob = urn.log_prob(x)
        surprise = -log_prob.detach()
        return with_score(surprise, surprise, log_prob)

    def kl(
        self,
        logits: Tensor,
        other: Tensor | None = None,
        mask: Tensor | None = None,
        k: int | Tensor | None = None,
        num_samples: int = 256,
    ) -> Tensor:
        """KL(law of `logits` ‖ law of `other` logits), by default from the uniform law of subsets.

        Exact or estimated as `entropy`; differentiable in both.
        """
        p = self.urn(logits, mask, k)
        q = self.urn(torch.zeros_like(logits) if other is None else other, mask, k)
        if self._is_exact(p, k):
            return kl_divergence(p, q)
        x = p.sample((num_samples,))
        log_p, log_q = p.log_prob(x), q.log_prob(x)
        difference = log_p.detach() - log_q
        return with_score(difference, difference.detach(), log_p)

    def _require_gradients(self) -> None:
        if not self.estimator.draws_carry_gradients:
            raise ValueError(
                f"draws of {self.estimator} carry no gradient to the logits: call expectation(f, "
                "logits) instead of the layer, or detach the logits"
            )

    def _is_exact(self, urn: Urn, k: int | Tensor | None) -> bool:
        if self.law == "fisher":
            return True
        if isinstance(k, Tensor) or not can_check() or not urn.batch_shape.numel():
            return False
        items = urn.event_shape[0]
        return math.comb(items, self.k if k is None else k) * items <= _MOST_ENTRIES

    def _checked(self, logits: Tensor, mask: Tensor | None, k: int | Tensor) -> Any:
        """The number of items to choose; raises an error if there are fewer."""
        if not isinstance(logits, Tensor) or not logits.is_floating_point() or not logits.ndim:
            raise ValueError("logits must be a tensor of real numbers, of shape (..., d)")
        items = logits.shape[-1]
        if not isinstance(k, Tensor) and not 0 <= k <= items:
            raise ValueError(f"k is {k}, but must be from 0 to {items}, the items of the logits")
        if mask is None:
            return k
        if mask.dtype != torch.bool:
            raise ValueError(f"mask has the dtype {mask.dtype}, but must be of booleans")
        if _is_checked(logits):
            try:
                unmasked = mask.expand(torch.broadcast_shapes(mask.shape, logits.shape)).sum(-1)
            except RuntimeError:
                raise ValueError(
                    f"mask has the shape {tuple(mask.shape)}, but must broadcast with the logits, "
                    f"{tuple(logits.shape)}"
                ) from None
            rule = "must be k or more: the mask leaves too few items"
            require("mask.sum(-1)", unmasked, unmasked >= k, rule)
        return k


def _is_checked(logits: Tensor) -> bool:
    """Whether numbers are checked, for which other devices than the CPU would have to wait."""
    return logits.device.type == "cpu" and can_check()
