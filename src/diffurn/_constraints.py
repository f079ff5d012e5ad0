"""Constraints on the arguments and on the draws of an urn."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import constraints


class UrnCounts(constraints.Constraint):
    """Integer vectors x with 0 ≤ x_j ≤ m_j and Σx = n.

    Example:
        >>> support = UrnCounts(torch.tensor([2, 2]), torch.tensor(3))
        >>> support.check(torch.tensor([[1.0, 2.0], [3.0, 0.0], [1.5, 1.5]]))
        tensor([ True, False, False])
    """

    is_discrete = True
    event_dim = 1

    def __init__(self, group_sizes: Tensor, draws: Tensor) -> None:
        self.group_sizes = group_sizes
        self.draws = draws

    def check(self, value: Tensor) -> Tensor:
        exact = value.double()
        within = (exact >= 0) & (exact <= self.group_sizes) & (exact == torch.floor(exact))
        return within.all(-1) & (exact.sum(-1) == self.draws)

    def __repr__(self) -> str:  # torch's own cuts off the first letter of the class
        sizes, draws = (_shown(tensor) for tensor in (self.group_sizes, self.draws))
        return f"UrnCounts(group_sizes={sizes}, draws={draws})"


def _shown(tensor: Tensor) -> str:
    """Few numbers as they are, many as their shape."""
    return str(tensor.tolist()) if tensor.numel() <= 8 else f"<shape {tuple(tensor.shape)}>"


class _LogWeights(constraints.Constraint):
    """Numbers below +inf; -inf is a group that is never drawn."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value < torch.inf).all(-1)


urn_counts = UrnCounts
log_weights = _LogWeights()
weights = constraints.independent(constraints.nonnegative, 1)
group_sizes = constraints.independent(constraints.nonnegative_integer, 1)
draws = constraints.nonnegative_integer
