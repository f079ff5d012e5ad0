"""The protocol `Law`: the methods that every algorithm for an urn's distribution offers.

A law is one algorithm for a batch of urns: closed forms, tables, quadratures or integrals. The
module `_dispatch` chooses it; distributions and estimators use it without asking which one it is.
All tensors are float64, counts have the shape ``(..., c)``, and `num_samples` draws of each urn
have the shape ``(num_samples, ..., c)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from diffurn._fisher.conditionals import Conditional


class Chain(Protocol):
    """The groups of an urn one after another, each by its law given the draws left."""

    @property
    def draws(self) -> Tensor:
        """n of every row, ``(R,)``; a row is one draw of one urn."""
        ...

    @property
    def groups(self) -> int: ...

    def conditional(self, place: int, draws_left: Tensor) -> Conditional:
        """The law of the group at a place of the order, for the draws left ``(R,)``."""
        ...

    def in_order(self, counts: Tensor) -> Tensor:
        """Counts ``(R, c)`` in the chain's order as ``(num_samples, ..., c)`` in the urn's."""
        ...


class Law(Protocol):
    """An algorithm for the distribution of an urn's counts."""

    @property
    def groups(self) -> int: ...

    def largest(self, group: int) -> int:
        """The most balls that the group has in any urn of the batch."""
        ...

    def log_prob(self, x: Tensor) -> Tensor:
        """log P(x) of counts ``(..., c)`` on the support."""
        ...

    def mean(self) -> Tensor:
        """E[x]; differentiable, with the exact Jacobian."""
        ...

    def variance(self) -> Tensor:
        """Var[x_j] of each group."""
        ...

    def covariance(self) -> Tensor:
        """Cov[x], shape (..., c, c)."""
        ...

    def entropy(self) -> Tensor:
        """-E[log P(x)]."""
        ...

    def mode(self) -> Tensor:
        """The most probable counts."""
        ...

    def marginal_log_prob(self, x: Tensor) -> Tensor:
        """log P(X_j = x_j) of each group, for counts on the marginal support."""
        ...

    def log_tails(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log P(X_j ≤ x_j) and log P(X_j > x_j), for counts on the support below its last point."""
        ...

    def tail(self, group: int) -> Tensor:
        """P(x_group ≥ i) for i = 1, …, largest(group)."""
        ...

    def sample(self, num_samples: int, dtype: torch.dtype) -> Tensor:
        """Exact draws."""
        ...

    def rsample(self, num_samples: int) -> Tensor:
        """Exact draws with the derivatives of the mean."""
        ...

    def rsample_with_tail(self, num_samples: int, group: int) -> tuple[Tensor, Tensor]:
        """`rsample` and `tail` at once."""
        ...

    def chain(
        self,
        num_samples: int,
        order: Sequence[int] | None,
        merged: bool,
        temperature: float | Tensor,
    ) -> Chain:
        """The groups in an order, or in a random one for every draw.

        Args:
            num_samples: draws of each urn.
            order: a permutation of the groups; None for random ones.
            merged: whether all later groups count as one, by the paper's rule.
            temperature: of the softmax over counts; a hot one looks deeper into the tails.
        """
        ...
