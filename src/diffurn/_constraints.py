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

    def __repr__(self) -> str:  # torch's own drops the first letter of the class name
        sizes, draws = (_shown(tensor) for tensor in (self.group_sizes, self.draws))
        return f"UrnCounts(group_sizes={sizes}, draws={draws})"


class Partitions(constraints.Constraint):
    """Subsets 0, …, K - 1 of items, of which subset k has at most m_k; -1 for missing items.

    Example:
        >>> support = Partitions(torch.tensor([1, 3]), torch.tensor([True, True, False]))
        >>> support.check(torch.tensor([[0, 1, -1], [0, 0, -1], [1, 1, 1]]))
        tensor([ True, False, False])
    """

    is_discrete = True
    event_dim = 1

    def __init__(self, group_sizes: Tensor, mask: Tensor) -> None:
        self.group_sizes = group_sizes
        self.mask = mask

    def check(self, value: Tensor) -> Tensor:
        subsets = torch.arange(self.group_sizes.shape[-1], device=value.device)
        is_in = value.unsqueeze(-1) == subsets  # (..., n, K)
        possible = torch.where(self.mask, is_in.any(-1), value == -1).all(-1)
        return possible & (is_in.sum(-2) <= self.group_sizes).all(-1)

    def __repr__(self) -> str:
        return f"Partitions(group_sizes={_shown(self.group_sizes)}, items={self.mask.shape[-1]})"


def _shown(tensor: Tensor) -> str:
    """A short tensor as a list of its numbers, a long one as its shape."""
    return str(tensor.tolist()) if tensor.numel() <= 8 else f"<shape {tuple(tensor.shape)}>"


class _LogWeights(constraints.Constraint):
    """Log-weights below +inf, where -inf marks a group that is never drawn."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value < torch.inf).all(-1)


urn_counts = UrnCounts
partitions = Partitions
log_weights = _LogWeights()
weights = constraints.independent(constraints.nonnegative, 1)
group_sizes = constraints.independent(constraints.nonnegative_integer, 1)
draws = constraints.nonnegative_integer
