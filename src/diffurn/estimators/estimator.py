"""What the distribution asks of an estimator."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from diffurn.exact import AnyUrn


class Estimator(Protocol):
    """A way to send gradients through a draw. It is handed an urn's parameters and never sees the distribution.

    The urn is a `diffurn.exact.TiltedUrn`, unless the estimator has an attribute `takes_small_urns` that is true: then it is handed a
    `diffurn.exact.small.SmallUrn` wherever there is one.
    """

    def rsample(self, urn: AnyUrn, number: int) -> Tensor:
        """`number` draws of each urn, shape ``(number, ..., c)``, that carry a gradient in the weights."""
        ...

    def rank_indicators(self, urn: AnyUrn, number: int, group: int) -> tuple[Tensor, Tensor]:
        """Draws as above, and b_i = 1[i ≤ x_group] for i = 1, …, m_group, with a gradient that a threshold at a scalar count lacks."""
        ...
