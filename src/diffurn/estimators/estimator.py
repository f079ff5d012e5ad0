"""What the distribution asks of an estimator."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from diffurn._fisher.urn import TiltedUrn


class Estimator(Protocol):
    """A way to send gradients through a draw. It is handed an urn's parameters and never sees the
    distribution.

    An estimator whose attribute `takes_small_urns` is true is handed a
    `diffurn._fisher.small.SmallUrn` instead, wherever there is one.
    """

    def rsample(self, urn: TiltedUrn, number: int) -> Tensor:
        """`number` draws of each urn, shape ``(number, ..., c)``, that carry a gradient in
        ``urn.log_odds``.
        """
        ...

    def rank_indicators(self, urn: TiltedUrn, number: int, group: int) -> tuple[Tensor, Tensor]:
        """Draws as above, and b_i = 1[i ≤ x_group] for i = 1, …, m_group, with a gradient that a
        threshold at a scalar count lacks.
        """
        ...


def takes_small_urns(estimator: Estimator) -> bool:
    return bool(getattr(estimator, "takes_small_urns", False))
