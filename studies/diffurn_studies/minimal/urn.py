"""The urn of the minimal example."""

from __future__ import annotations

from typing import Any, NamedTuple

from diffurn import FisherHypergeometric


class Urn(NamedTuple):
    """An urn with unknown weights."""

    group_sizes: tuple[int, int, int]
    draws: int

    def with_weights(self, **given: Any) -> FisherHypergeometric:
        """The urn with these weights, an estimator and whatever else the distribution takes."""
        return FisherHypergeometric(self.group_sizes, self.draws, **given)


PAPERS_URN = Urn((200, 200, 200), 180)
