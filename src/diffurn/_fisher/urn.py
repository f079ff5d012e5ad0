"""What every exact function is told about an urn."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor


class AnyUrn(Protocol):
    """An urn, by whatever way its law is computed: by quadratures (`TiltedUrn`) or from tables
    (`small.SmallUrn`).
    """

    def as_tilted(self) -> TiltedUrn:
        """For quadratures, which suit every urn."""
        ...


class TiltedUrn(NamedTuple):
    """An urn in the form the mathematics takes: three float64 tensors of one batch shape.

    Attributes:
        log_odds: log r + log ω of the balls of each group, ``(..., c)``, with r such that n draws
            are typical; carries the gradient.
        group_sizes: m, ``(..., c)``.
        draws: n, ``(...)``.
    """

    log_odds: Tensor
    group_sizes: Tensor
    draws: Tensor

    def as_tilted(self) -> TiltedUrn:
        return self

    def largest(self, group: int) -> int:
        """The most balls that the group has in any urn of the batch."""
        sizes = self.group_sizes[..., group]
        return int(sizes.max()) if sizes.numel() else 0
