"""Gumbel-Softmax through a chain of conditional laws: the paper's, or the exact ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from diffurn._law import Noise, Relaxation
from diffurn._numerics.autograd import straight_through
from diffurn.estimators.estimator import Estimator
from diffurn.estimators.noise import gumbel_noise

if TYPE_CHECKING:
    from diffurn._fisher.conditionals import Conditional
    from diffurn._law import Chain, Law


class GumbelDraw(NamedTuple):
    """Draws of `GumbelSoftmax` with the intermediate results of the chain.

    Tuples have one tensor per group, in the urn's order of groups. Column k of a group's tensors
    stands for the count ``window_starts[group] + k``. The count of the group drawn last is
    determined by the others, so its tensors have one column.

    Attributes:
        counts: x, shape ``sample_shape + (..., c)``.
        one_hots: y, shape ``sample_shape + (..., W)`` for each group; straight-through if the
            estimator is hard, relaxed otherwise.
        log_weights: α, unnormalised; -inf for impossible counts.
        perturbed: r̂ = α + Gumbel noise.
        window_starts: the count of column 0.
    """

    counts: Tensor
    one_hots: tuple[Tensor, ...]
    log_weights: tuple[Tensor, ...]
    perturbed: tuple[Tensor, ...]
    window_starts: tuple[Tensor, ...]


class _Step(NamedTuple):
    """The draw of one group."""

    law: Conditional  # of the group's count
    perturbed: Tensor  # r̂, (R, W)
    soft: Tensor  # the relaxed one-hot, (R, W)
    chosen: Tensor  # the column of the hard count, (R,)


@dataclass(frozen=True)
class GumbelSoftmax(Estimator):
    r"""Straight-through Gumbel-Softmax through the chain of conditional laws.

    Groups are drawn one after another. The log-weights α of a group's counts are perturbed by
    Gumbel noise, r̂ = α + g. The hard count is argmax r̂, the relaxed one-hot is softmax(r̂ / τ). The
    forward pass uses the hard count, the backward pass the gradient of the relaxed one.

    Later groups depend on the hard counts of earlier ones. Gradients flow to them through the draws
    left, with α continued to real n. The last group gets all draws left, so its derivative in them
    is 1.

    On CUDA devices one kernel draws all groups, unless `rao_blackwell` is positive, the temperature
    has a gradient or lies on the device, or it is above 1.05 and conditional laws are exact.

    Reference: Sutter et al. (ICLR 2023), Algorithms 1 and 2.

    Args:
        temperature: τ > 0, a number or a scalar tensor.
        hard: whole counts forward (default); otherwise relaxed counts, which still sum to n.
        conditionals: "exact" for the true conditional laws, or "merged" for the paper's
            approximation, which merges all later groups into one. Merged draws do *not* follow
            Fisher's law unless the merged weights are equal.
        order: the order in which groups are drawn: None for the given one, "random" for a new one
            for every draw, or a permutation.
        rao_blackwell: the number of noises, all of which give the same hard draw, over which the
            relaxed one-hot is averaged (Gumbel-Rao; Paulus, Maddison, Krause, ICLR 2021). This
            lowers the variance at temperatures below 1. 0 is the ordinary estimator.
        through_draws_left: whether gradients flow through the draws left to later groups.

    Example:
        >>> from diffurn import FisherHypergeometric
        >>> how = GumbelSoftmax(temperature=0.5)
        >>> urn = FisherHypergeometric([5, 5, 5], 6, weights=torch.ones(3), estimator=how)
        >>> urn.rsample((4,)).sum(-1)
        tensor([6., 6., 6., 6.])
    """

    needs_conditionals: ClassVar[bool] = True

    temperature: float | Tensor = 1.0
    hard: bool = True
    conditionals: Literal["exact", "merged"] = "exact"
    order: Literal["random"] | Sequence[int] | None = None
    rao_blackwell: int = 0
    through_draws_left: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.temperature, Tensor) and not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}, but must be > 0")
        if self.conditionals not in ("exact", "merged"):
            raise ValueError(
                f"conditionals is {self.conditionals!r}, but must be 'exact' or 'merged'"
            )
        if isinstance(self.order, str) and self.order != "random":
            raise ValueError(
                f"order is {self.order!r}, but must be None, 'random' or a permutation of the "
                "groups"
            )
        if self.rao_blackwell < 0:
            raise ValueError(
                f"rao_blackwell is {self.rao_blackwell}, but the number of noises must be ≥ 0"
            )

    def check(self, groups: int) -> None:
        if self.order is None or isinstance(self.order, str):
            return
        order = list(self.order)
        if len(order) != groups or set(order) != set(range(groups)):
            raise ValueError(
                f"order is {order}, but must be a permutation of the {groups} groups 0 to "
                f"{groups - 1}"
            )

    def rsample(self, law: Law, num_samples: int) -> Tensor:
        order = None if isinstance(self.order, str) else self._permutation(law.groups)
        if not self.rao_blackwell:
            how = self._relaxation()
            counts = law.relaxed(num_samples, order, how, lambda *chain: self._drawn(*chain)[0])
            if counts is not None:
                return counts
        chain = self._chain(law, num_samples, order)
        return chain.in_order(self._drawn(chain)[0])

    def draw(self, urn: Any, sample_shape: Sequence[int] = ()) -> GumbelDraw:
        """Draws of a `FisherHypergeometric` with the intermediate results of the chain."""
        num_samples = torch.Size(sample_shape).numel()
        law = urn._law_for_chains(num_samples)
        if isinstance(self.order, str):  # one random order for all draws
            order = torch.randperm(law.groups).tolist()
        else:
            order = self._permutation(law.groups)
        chain = self._chain(law, num_samples, order)
        counts, steps = self._drawn(chain)
        shape = torch.Size(sample_shape) + urn.batch_shape
        last = counts[:, -1:]
        one_hots = [self._one_hot(step) for step in steps] + [torch.ones_like(last)]
        laws = [step.law.log_weights for step in steps] + [torch.zeros_like(last)]
        scores = [step.perturbed for step in steps] + [torch.zeros_like(last)]
        starts = [step.law.lowest for step in steps] + [counts[:, -1].detach()]
        back = [order.index(j) for j in range(law.groups)]
        in_order = (
            tuple(values[i].reshape(shape + values[i].shape[1:]) for i in back)
            for values in (one_hots, laws, scores, starts)
        )
        return GumbelDraw(chain.in_order(counts).reshape(*shape, -1), *in_order)

    def log_density(self, draw: GumbelDraw) -> Tensor:
        r"""The log-density of the relaxed one-hots of a draw, shape ``sample_shape + (...)``.

        The largest entry of a relaxed one-hot determines its hard count. Given the hard counts of
        the groups before it, a relaxed one-hot follows the Concrete law of its α (torch's
        ``RelaxedOneHotCategorical``) on the simplex of its possible counts. The joint density is
        the product of these. The relaxed *counts* are weighted sums of the one-hots' entries, and
        have no density in closed form.
        """
        total = torch.zeros_like(draw.counts[..., 0])
        for log_weights, perturbed in zip(draw.log_weights, draw.perturbed, strict=True):
            possible = log_weights > -torch.inf
            number = possible.sum(-1)
            log_y = torch.log_softmax(perturbed / self.temperature, -1)
            scores = torch.where(possible, log_weights - self.temperature * log_y, -torch.inf)
            terms = torch.where(possible, scores - log_y, 0.0).sum(-1)
            terms = terms - number * torch.logsumexp(scores, -1)
            constant = torch.lgamma(number) + (number - 1) * math.log(float(self.temperature))
            total = total + constant + terms
        return total

    def rank_indicators(self, law: Law, num_samples: int, group: int) -> tuple[Tensor, Tensor]:
        """Counts and b_i = Σ_{k ≥ i} y_k, i = 1, …, m, of one group, which is drawn first."""
        order = [group, *(j for j in range(law.groups) if j != group)]
        chain = self._chain(law, num_samples, order)
        drawn, steps = self._drawn(chain)
        counts, largest = chain.in_order(drawn), law.largest(group)
        if steps:
            indicators = _at_least(self._one_hot(steps[0]), steps[0].law.lowest, largest)
        else:  # a single group
            ranks = torch.arange(1, largest + 1, device=drawn.device)
            indicators = (ranks <= drawn).to(drawn.dtype)
        return counts, indicators.reshape(*counts.shape[:-1], largest)

    def all_rank_indicators(self, law: Law, num_samples: int, largest: int) -> Tensor:
        """1[i ≤ x_j] for i = 1, …, largest, of all groups but the last, which is drawn last.

        The shape is ``(num_samples, ..., c - 1, largest)``.
        """
        chain = self._chain(law, num_samples, list(range(law.groups)))
        drawn, steps = self._drawn(chain)
        counts = chain.in_order(drawn)
        shape = (*counts.shape[:-1], largest)
        indicators = [_at_least(self._one_hot(step), step.law.lowest, largest) for step in steps]
        rows = [each.reshape(shape) for each in indicators]
        return torch.stack(rows, -2) if rows else counts.new_zeros(*counts.shape[:-1], 0, largest)

    def _permutation(self, groups: int) -> list[int]:
        return list(range(groups)) if self.order is None else [int(j) for j in self.order]

    def _chain(self, law: Law, num_samples: int, order: list[int] | None) -> Chain:
        return law.chain(num_samples, order, self.conditionals == "merged", self.temperature)

    def _relaxation(self) -> Relaxation:
        merged = self.conditionals == "merged"
        return Relaxation(merged, self.temperature, self.hard, self.through_draws_left)

    def _drawn(self, chain: Chain, noise: Noise | None = None) -> tuple[Tensor, list[_Step]]:
        """Counts ``(R, c)`` in the chain's order, and the steps of all groups but the last.

        This is Algorithm 1 of the paper. The last group gets all draws left. Noise is drawn unless
        it is given.
        """
        counts, steps = [], []
        noise = self._noise if noise is None else noise
        left = chain.draws
        seen = left  # the hard draws left, with the gradient that flows through later groups
        for place in range(chain.groups - 1):
            law = chain.conditional(place, seen)
            step = self._draw_group(law, noise(place, law))
            count = step.law.lowest + self._one_hot_mean(step)
            hard = step.law.lowest + step.chosen
            left = left - count
            seen = seen.detach() - hard + (left - left.detach() if self.through_draws_left else 0.0)
            counts.append(count)
            steps.append(step)
        return torch.stack([*counts, left], -1), steps

    def _draw_group(self, law: Conditional, noise: Tensor) -> _Step:
        """The draw of one group from its conditional law, Algorithm 2 of the paper."""
        perturbed = law.log_weights + noise
        chosen = perturbed.detach().argmax(-1)
        if self.rao_blackwell:
            agreeing = self._noises_that_agree(law.log_weights, chosen)
            soft = torch.softmax(agreeing / self.temperature, -1).mean(0)
        else:
            soft = torch.softmax(perturbed / self.temperature, -1)
        return _Step(law, perturbed, soft, chosen)

    def _noise(self, place: int, law: Conditional) -> Tensor:
        return gumbel_noise(law.log_weights.shape, law.log_weights)

    def _noises_that_agree(self, log_weights: Tensor, chosen: Tensor) -> Tensor:
        """Perturbed scores given that the chosen one is the largest: (rao_blackwell, R, W)."""
        alpha = log_weights.detach()
        exponential = -gumbel_noise((self.rao_blackwell, *alpha.shape), alpha)  # log E, E ~ Exp(1)
        column = chosen.expand(self.rao_blackwell, -1).unsqueeze(-1)
        winner = exponential.gather(-1, column) - torch.logsumexp(alpha, -1, keepdim=True)
        scores = -torch.logaddexp(exponential - alpha, winner).scatter(-1, column, winner)
        noise = torch.where(alpha > -torch.inf, scores - alpha, 0.0)
        return log_weights + noise

    def _one_hot(self, step: _Step) -> Tensor:
        if not self.hard:
            return step.soft
        hard = torch.zeros_like(step.soft).scatter(-1, step.chosen.unsqueeze(-1), 1.0)
        return straight_through(hard, step.soft)

    def _one_hot_mean(self, step: _Step) -> Tensor:
        """Σ_k k y_k over the columns k, without making the one-hot y."""
        soft = (step.soft * step.law.steps).sum(-1)
        return straight_through(step.chosen.to(soft.dtype), soft) if self.hard else soft


def _at_least(one_hot: Tensor, lowest: Tensor, largest: int) -> Tensor:
    """Σ_{k ≥ i} y_k for the counts i = 1, …, largest, from a one-hot over a window."""
    tail = one_hot.flip(-1).cumsum(-1).flip(-1)
    column = torch.arange(1, largest + 1, device=lowest.device) - lowest.unsqueeze(-1)
    inside = tail.gather(-1, column.clamp(0, tail.shape[-1] - 1).to(torch.int64))
    return torch.where(column <= 0, 1.0, torch.where(column < tail.shape[-1], inside, 0.0))
