"""The interface of estimators."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

if TYPE_CHECKING:
    from diffurn._law import Law


class Estimator:
    """A way to send gradients through a draw. A subclass defines `rsample`.

    It is handed the law of a batch of urns (`diffurn._law.Law`), and never sees the distribution.
    """

    # Whether the law must offer a `chain` of conditional laws.
    needs_conditionals: ClassVar[bool] = False

    def check(self, groups: int) -> None:
        """Raises a ValueError if the estimator does not suit an urn of so many groups."""

    def rsample(self, law: Law, num_samples: int) -> Tensor:
        """Draws of each urn, shape ``(num_samples, ..., c)``, that carry a gradient."""
        raise NotImplementedError(f"{type(self).__name__} does not define rsample")

    def rank_indicators(self, law: Law, num_samples: int, group: int) -> tuple[Tensor, Tensor]:
        """Draws as above, and b_i = 1[i ≤ x_group] for i = 1, …, m_group, with a gradient."""
        raise NotImplementedError(f"{type(self).__name__} does not define rank_indicators")
