"""The marginal distributions of an urn's groups, as `urn.marginals`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from diffurn._fisher.marginals import certain_outside
from diffurn._numerics.tracing import can_check, is_vmapping
from diffurn._validation import as_float64_tensor, require, require_broadcast

if TYPE_CHECKING:
    from diffurn._urn import Urn


class Marginals:
    """The marginal law of each group's count; values and results have shape ``(..., c)``.

    Example:
        >>> from diffurn import FisherHypergeometric
        >>> urn = FisherHypergeometric([3, 5, 4], 5, weights=torch.tensor([1.0, 2.0, 0.5]))
        >>> urn.marginals.cdf([1, 3, 1])
        tensor([0.6797, 0.7647, 0.7909])
    """

    def __init__(self, urn: Urn) -> None:
        self._urn = urn

    def __repr__(self) -> str:
        return f"marginals of {self._urn!r}"

    @property
    def mean(self) -> Tensor:
        """E[X_j]."""
        return self._urn.mean

    @property
    def variance(self) -> Tensor:
        """Var[X_j]."""
        return self._urn.variance

    def log_prob(self, value: Any) -> Tensor:
        """log P(X_j = x_j)."""
        urn = self._urn
        value = urn._with_groups(value)
        x: Tensor = value.double()
        if urn._validate_args and can_check():
            finite = (x == x.floor()) & (x.abs() < torch.inf)
            require("value", value, finite.detach(), "counts must be integers")
        lowest, highest = urn._marginal_support()
        possible, certain = (x >= lowest) & (x <= highest), lowest == highest
        if urn._keeps_zeros():  # a certain count still has a derivative in a weight of zero
            certain = torch.zeros_like(certain)
        inside = torch.where(possible & ~certain, x, lowest)
        log_prob = urn._law_for_marginals(inside).marginal_log_prob(inside)
        log_prob = torch.where(certain, 0.0, log_prob)
        return urn._or_nan(torch.where(possible, log_prob, -torch.inf), event_dims=1)

    def log_cdf(self, value: Any) -> Tensor:
        """log P(X_j ≤ x_j), accurate relative to the probability however small it is."""
        return self._urn._or_nan(self._log_tails(value)[0], event_dims=1)

    def log_sf(self, value: Any) -> Tensor:
        """log P(X_j > x_j), accurate relative to the probability however small it is."""
        return self._urn._or_nan(self._log_tails(value)[1], event_dims=1)

    def cdf(self, value: Any) -> Tensor:
        """P(X_j ≤ x_j). Real values are rounded down."""
        return self._urn._or_nan(self._log_tails(value)[0].exp(), event_dims=1)

    def sf(self, value: Any) -> Tensor:
        """P(X_j > x_j) = 1 - cdf, without cancellation."""
        return self._urn._or_nan(self._log_tails(value)[1].exp(), event_dims=1)

    def icdf(self, value: Any) -> Tensor:
        """The smallest possible x_j with P(X_j ≤ x_j) ≥ q_j, for q that broadcasts to (..., c).

        It agrees with `cdf` to the last bit: cdf(icdf(q)) ≥ q > cdf(icdf(q) - 1) for 0 < q < 1. At
        q = 0 and q = 1 it is the lowest and the highest possible count. (SciPy's ``ppf(0)`` is one
        less than the lowest.)
        """
        urn = self._urn
        urn._check_dtype_holds_draws()
        q = as_float64_tensor("value", value, urn.draws.device).detach()
        described = {"value": q.shape, "batch_shape + event_shape": urn.group_sizes.shape}
        shape = require_broadcast(described, *described.values())
        if urn._validate_args and can_check():
            require("value", q, (q >= 0) & (q <= 1), "a probability must be a number from 0 to 1")
        lowest, highest = (end.expand(shape) for end in urn._marginal_support())
        low, high = lowest - 1, highest
        # Under vmap the group sizes can be read, unless they are mapped themselves.
        widths = urn.group_sizes if is_vmapping() else highest - lowest
        with torch.no_grad():
            for _ in range(int(widths.max()).bit_length() if high.numel() else 0):
                middle = torch.floor((low + high) / 2)
                enough = self.cdf(middle) >= q
                low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
        count = torch.where(q <= 0, lowest, torch.where(q >= 1, highest, high))
        return urn._or_nan(count, event_dims=1)

    def _log_tails(self, value: Any) -> tuple[Tensor, Tensor]:
        urn = self._urn
        value = urn._with_groups(value)
        if urn._validate_args and can_check():
            require("value", value, ~value.isnan(), "counts must be numbers")
        x = torch.floor(value.detach().double())
        lowest, highest = urn._marginal_support()
        inside = torch.minimum(x.maximum(lowest), (highest - 1).maximum(lowest))
        lower, upper = urn._law_for_marginals(inside).log_tails(inside)
        return certain_outside(x, lowest, highest, lower, upper)
