"""The urn models that the commands offer."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from diffurn._urn import Urn


class Model(str, Enum):
    """How balls leave the urn."""

    fisher = "fisher"
    wallenius = "wallenius"

    def urn(self, group_sizes: Sequence[int], draws: int, weights: Tensor) -> Urn:
        from diffurn import FisherHypergeometric, WalleniusHypergeometric

        kind = FisherHypergeometric if self is Model.fisher else WalleniusHypergeometric
        return kind(group_sizes, draws, weights)
