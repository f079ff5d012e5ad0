"""Straight-through estimators for random partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import torch
from torch import Tensor

from diffurn.estimators.estimator import Estimator
from diffurn.estimators.gumbel import GumbelSoftmax
from diffurn.estimators.neuralsort import neuralsort

if TYPE_CHECKING:
    from diffurn._partition.law import PartitionLaw


@dataclass(frozen=True)
class ConditionalST(Estimator):
    r"""Exact, hard partitions forward; exact gradients of conditional probabilities backward.

    A partition is a pair of sizes and an order, which are independent. The gradient in the weights
    is that of P(item i is in subset k | the order), the probability that the cuts lie around its
    place. The gradient in the scores is that of P(item i is in subset k | the sizes, and the times
    of all other items), in a race in which the item of score s arrives after an exponential time of
    rate e^s. For linear f both are unbiased. It takes O(nK) time and memory for each draw, and has
    no temperature.

    `CovarianceST` is the same without conditions: the exact Jacobian of
    `RandomPartition.inclusion`. It takes up to n + 1 means of Wallenius' law, whatever the number
    of draws.

    Example:
        >>> from diffurn import RandomPartition
        >>> scores = torch.zeros(4, requires_grad=True)
        >>> partition = RandomPartition(scores, torch.zeros(2), estimator=ConditionalST())
        >>> partition.rsample((3,)).sum(-1)  # each item is in one subset
        tensor([[1., 1., 1., 1.],
                [1., 1., 1., 1.],
                [1., 1., 1., 1.]], grad_fn=<SumBackward1>)
    """

    needs_order: ClassVar[bool] = True

    def rsample(self, law: Any, num_samples: int) -> Tensor:
        return cast("PartitionLaw", law).rsample_given_parts(num_samples)


@dataclass(frozen=True)
class TwoStageGumbel(Estimator):
    r"""Relaxed sizes times a relaxed order, the method of the paper.

    Sizes come from `GumbelSoftmax`, the order from NeuralSort of scores with Gumbel noise. The
    sizes say in which subset each place of the order is, and the order which item has the place:
    the memberships are the product of both matrices. It takes O(n² K) time and O(n²) memory.

    Reference: Sutter, Ryser, Liebeskind, Vogt, *Differentiable Random Partition Models* (NeurIPS
    2023).

    Args:
        temperature: τ > 0 of the sizes.
        hard: whole memberships forward (default); otherwise relaxed ones. Those of one item need
            not sum to one, since the columns of NeuralSort's matrices do not.
        conditionals: "exact", or "merged" for the paper's approximate law of the sizes.
        sort_temperature: of the order; by default τ.

    Example:
        >>> from diffurn import RandomPartition
        >>> how = TwoStageGumbel(temperature=0.5)
        >>> scores = torch.zeros(4, requires_grad=True)
        >>> partition = RandomPartition(scores, torch.zeros(2), estimator=how)
        >>> partition.rsample().shape
        torch.Size([4, 2])
    """

    needs_order: ClassVar[bool] = True
    needs_conditionals: ClassVar[bool] = True

    temperature: float | Tensor = 1.0
    hard: bool = True
    conditionals: Literal["exact", "merged"] = "exact"
    sort_temperature: float | Tensor | None = None

    def __post_init__(self) -> None:
        self._of_sizes()
        sort = self.sort_temperature
        if sort is not None and not isinstance(sort, Tensor) and not sort > 0:
            raise ValueError(f"sort_temperature is {sort}, but must be > 0")

    def _of_sizes(self) -> GumbelSoftmax:
        return GumbelSoftmax(self.temperature, self.hard, self.conditionals)

    def rsample(self, law: Any, num_samples: int) -> Tensor:
        of = cast("PartitionLaw", law)
        if not of.items:
            return of.sample(num_samples, of.log_scores.dtype)
        sort = self.temperature if self.sort_temperature is None else self.sort_temperature
        indicators = self._of_sizes().all_rank_indicators(of.of_sizes, num_samples, of.items)
        places = torch.arange(of.items, device=of.mask.device) < of.mask.sum(-1, keepdim=True)
        memberships = subset_of_place(indicators, places)
        # Missing items come last: far below the others, they change none of their logits.
        lowest = torch.where(of.mask, of.log_scores, torch.inf).amin(-1, keepdim=True).detach()
        far = lowest.nan_to_num(posinf=0.0) - 200.0 - 100.0 * sort
        scores = torch.where(of.mask, of.log_scores, far)
        scores = scores.expand(num_samples, *scores.shape)
        order = neuralsort(scores, sort, self.hard, stochastic=True)
        return (memberships @ order).mT * of.mask.unsqueeze(-1)


def subset_of_place(indicators: Tensor, places: Tensor) -> Tensor:
    """Whether the items of subset k have place p of the order, ``(..., K, n)``, with gradients.

    Args:
        indicators: 1[i ≤ n_k] for i = 1, …, n and the subsets 0, …, K - 2, ``(..., K - 1, n)``.
        places: which places of the order exist, ``(..., n)``.
    """
    n = indicators.shape[-1]
    # T[c, p] = 1[p + 1 - c ≤ n_k]: the indicators moved by c places.
    cut = torch.arange(n + 1, device=indicators.device).unsqueeze(-1)
    moved = cut[:n, 0] - cut
    taken = torch.zeros_like(indicators[..., :1, :].sum(-2))  # 1[p < C_k], (..., n)
    rows = []
    for k in range(indicators.shape[-2]):
        ends = torch.cat(
            [torch.ones_like(taken[..., :1]), taken, torch.zeros_like(taken[..., :1])], -1
        )
        is_cut = -ends.diff(dim=-1)  # 1[C_k = c], (..., n + 1)
        shifted = indicators[..., k, moved.clamp(min=0)] * (moved >= 0)
        row = (is_cut.unsqueeze(-2) @ shifted).squeeze(-2)
        rows.append(row)
        taken = taken + row
    rows.append(places.to(indicators.dtype) - taken)
    return torch.stack(rows, -2)
