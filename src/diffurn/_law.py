"""The protocol `Law`: the methods that every algorithm for an urn's distribution offers.

A law is one algorithm for a batch of urns: closed forms, tables, quadratures or integrals. The
module `_dispatch` chooses it. Distributions and estimators work with any of them.
All tensors are float64, counts have the shape ``(..., c)``, and `num_samples` draws of each urn
have the shape ``(num_samples, ..., c)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

if TYPE_CHECKING:
    from diffurn._fisher.conditionals import Conditional


def most_balls(group_sizes: Tensor, group: int) -> int:
    """The most balls that a group has in any urn of a batch; reads a value of the device."""
    sizes = group_sizes[..., group]
    return int(sizes.max()) if sizes.numel() else 0


class Chain(Protocol):
    """The groups of an urn in an order, each with its law given the draws left to it."""

    @property
    def draws(self) -> Tensor:
        """n of every row, ``(R,)``; a row is one draw of one urn."""
        ...

    @property
    def groups(self) -> int: ...

    def conditional(self, place: int, draws_left: Tensor) -> Conditional:
        """The law of the group at a place in the order, given the draws left ``(R,)``."""
        ...

    def in_order(self, counts: Tensor) -> Tensor:
        """Counts ``(R, c)`` in the chain's order as ``(num_samples, ..., c)`` in the urn's."""
        ...


# The noise of the scores of the group at a place in the chain, given its conditional law.
Noise: TypeAlias = "Callable[[int, Conditional], Tensor]"


class Relaxation(NamedTuple):
    """How the draws of a chain are relaxed; see `estimators.GumbelSoftmax`."""

    merged: bool
    temperature: float | Tensor
    hard: bool
    through_draws_left: bool


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
        """The results of `rsample` and of `tail`."""
        ...

    def chain(
        self,
        num_samples: int,
        order: Sequence[int] | None,
        merged: bool,
        temperature: float | Tensor,
    ) -> Chain:
        """The chain of the groups in a given order, or in a random one for every draw.

        Args:
            num_samples: draws of each urn.
            order: a permutation of the groups; None for random ones.
            merged: whether all later groups are merged into one, by the rule of Sutter et al.
                (2023, section 4.1).
            temperature: of the softmax over counts. Tails matter more at a higher temperature.
        """
        ...

    def relaxed(
        self,
        num_samples: int,
        order: Sequence[int] | None,
        how: Relaxation,
        drawn: Callable[[Chain, Noise], Tensor],
    ) -> Tensor | None:
        """Relaxed draws of the chain by kernels, or None where there is no kernel.

        `drawn` gives the counts ``(R, c)`` of a chain with given noise, by PyTorch's operations.
        """
        ...


class Race(Law, Protocol):
    """A law of single balls whose draws are the largest of perturbed log-weights."""

    def perturbed(self, num_samples: int) -> Tensor:
        """Log-weights with noise, ``(num_samples, ..., c)``; carries the gradient."""
        ...

    def first(self, perturbed: Tensor, dtype: torch.dtype) -> Tensor:
        """The draw that belongs to perturbed log-weights."""
        ...
