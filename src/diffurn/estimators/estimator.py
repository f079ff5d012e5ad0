"""The interface of all estimators of gradients through a draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

if TYPE_CHECKING:
    from diffurn._law import Law


class Estimator:
    """The base class of estimators; a subclass defines `rsample`.

    Its methods take the law of a batch of urns (`diffurn._law.Law`), not the distribution.
    """

    # Whether the law must have a `chain` of conditional laws.
    needs_conditionals: ClassVar[bool] = False
    # Whether the law must have `perturbed` log-weights.
    needs_perturbed_weights: ClassVar[bool] = False
    # Whether the law must be of random partitions (`diffurn._partition.law.PartitionLaw`).
    needs_order: ClassVar[bool] = False
    # Whether `rsample` sends gradients to the weights; otherwise `expectation` alone does.
    draws_carry_gradients: ClassVar[bool] = True

    def check(self, groups: int) -> None:
        """Raises a ValueError if the estimator cannot be used for urns of `groups` groups."""

    def rsample(self, law: Law, num_samples: int) -> Tensor:
        """Draws of each urn, shape ``(num_samples, ..., c)``, that carry a gradient."""
        raise NotImplementedError(f"{type(self).__name__} does not define rsample")

    def expectation(self, urn: Any, f: Callable[[Tensor], Tensor], num_samples: int) -> Tensor:
        """A loss, shape ``batch_shape``: its value estimates E[f(x)], its gradient ∇E[f(x)].

        `f` maps counts ``(num_samples, ..., c)`` to values ``(num_samples, ...)``.
        """
        return f(urn.rsample((num_samples,))).mean(0)

    def rank_indicators(self, law: Law, num_samples: int, group: int) -> tuple[Tensor, Tensor]:
        """Draws as above, and b_i = 1[i ≤ x_group] for i = 1, …, m_group, with a gradient."""
        raise NotImplementedError(f"{type(self).__name__} does not define rank_indicators")


def require_estimator(estimator: Any) -> Estimator:
    """`estimator`, or a ValueError if it is anything else, such as the class of one."""
    if isinstance(estimator, Estimator):
        return estimator
    is_class = isinstance(estimator, type) and issubclass(estimator, Estimator)
    advice = f"; give an instance, {estimator.__name__}(…)" if is_class else ""
    shown = estimator.__name__ if isinstance(estimator, type) else repr(estimator)
    raise ValueError(f"estimator is {shown}, but must be an Estimator{advice}")
