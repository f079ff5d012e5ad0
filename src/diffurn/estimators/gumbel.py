"""The paper's estimator, a chain of Gumbel-Softmax draws, and its exact sibling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from diffurn._fisher.chain import Chain
from diffurn._fisher.conditionals import Conditional, conditional, merged
from diffurn._fisher.tabulated import SmallUrn, inverse, reordered, with_first
from diffurn._fisher.urn import AnyUrn, TiltedUrn
from diffurn._numerics.tracing import reading_numbers
from diffurn.estimators.noise import gumbel_noise

# Counts this far below the peak do not matter at τ ≤ 1; a softmax at temperature τ still sees τ
# times as deep.
_NATS = 38.0


class GumbelDraw(NamedTuple):
    """One draw of every urn with all that the chain made on its way, per group, in the urn's order
    of groups.

    Column k of a group's tensors stands for the count ``window_starts[group] + k``. The group drawn
    last is determined by the others: its window holds that one count.

    Attributes:
        counts: x, shape ``sample_shape + (..., c)``.
        one_hots: y, one ``sample_shape + (..., W)`` a group; straight-through if the estimator is
            hard, relaxed otherwise.
        log_weights: α, unnormalised, -inf where a count is impossible.
        perturbed: r̂ = α + Gumbel noise.
        window_starts: the count that column 0 stands for.
    """

    counts: Tensor
    one_hots: tuple[Tensor, ...]
    log_weights: tuple[Tensor, ...]
    perturbed: tuple[Tensor, ...]
    window_starts: tuple[Tensor, ...]


class _Step(NamedTuple):
    """The draw of one group: its conditional law, perturbed scores, relaxed one-hot and the column
    of the hard one.
    """

    law: Conditional
    perturbed: Tensor
    soft: Tensor
    chosen: Tensor


@dataclass(frozen=True)
class GumbelSoftmax:
    r"""Straight-through Gumbel-Softmax through the chain of conditional laws (Algorithms 1 and 2 of
    Sutter et al., ICLR 2023).

    Group after group the log-weights α of all counts are perturbed by Gumbel noise, r̂ = α + g; the
    hard count is argmax r̂, the relaxed one-hot softmax(r̂ / τ), and backward the hard one is taken
    for the relaxed one. Later groups see the hard count of earlier ones. Gradients flow on to them
    through the draws left (α continued to real n); the last count is what is left, so its
    derivative in the draws left is 1.

    Args:
        temperature: τ > 0, a number or a scalar tensor.
        hard: whole counts forward (default); otherwise relaxed counts, which still sum to n.
        conditionals: "exact", the true conditional laws, or "merged", the paper's approximation
            (all later groups as one), whose draws are *not* Fisher's law unless the merged weights
            are equal.
        order: in which order the groups are drawn: None as given, "random" anew for every draw, or
            a permutation.
        rao_blackwell: average the relaxed one-hot over this many noises that agree with the hard
            draw (Gumbel-Rao; Paulus, Maddison, Krause, ICLR 2021), which lowers the variance at
            temperatures below 1; 0 is the ordinary estimator.
        through_draws_left: let gradients flow through the draws left to later groups; False cuts
            them there.

    Example:
        >>> from diffurn import FisherHypergeometric
        >>> how = GumbelSoftmax(temperature=0.5)
        >>> urn = FisherHypergeometric([5, 5, 5], 6, weights=torch.ones(3), estimator=how)
        >>> urn.rsample((4,)).sum(-1)
        tensor([6., 6., 6., 6.])
    """

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
                f"rao_blackwell is {self.rao_blackwell}, but must be a number of noises ≥ 0"
            )

    @property
    def takes_small_urns(self) -> bool:
        """Their tables need one order of groups."""
        return not isinstance(self.order, str)

    def rsample(self, urn: AnyUrn, number: int) -> Tensor:
        if isinstance(urn, SmallUrn):
            permutation = self._permutation(urn.composition.groups)
            counts, _ = self._small_chain(urn.reordered(permutation), number)
            return reordered(counts, inverse(permutation)).reshape(number, *urn.log_weights.shape)
        tilted = urn.as_tilted()
        rows = _rows(tilted, number)
        order = self._order(rows)
        counts, _ = self._tilted_chain(
            _reordered(rows, order), copies=1 if isinstance(self.order, str) else number
        )
        return counts.gather(-1, order.argsort(-1)).reshape(number, *tilted.log_odds.shape)

    def draw(self, urn: Any, sample_shape: Sequence[int] = ()) -> GumbelDraw:
        """Draws with everything the chain made; `urn` is a distribution or its `TiltedUrn`."""
        urn = getattr(urn, "tilted", urn)
        shape = torch.Size(sample_shape) + urn.log_odds.shape[:-1]
        number = torch.Size(sample_shape).numel()
        rows = _rows(urn, number)
        order = self._order(rows, one_for_all=True)
        counts, steps = self._tilted_chain(_reordered(rows, order), number)
        back = order[0].argsort().tolist()
        one_hots = [self._one_hot(step) for step in steps] + [torch.ones_like(counts[:, :1])]
        laws = [step.law.log_weights for step in steps] + [torch.zeros_like(counts[:, :1])]
        scores = [step.perturbed for step in steps] + [torch.zeros_like(counts[:, :1])]
        starts = [step.law.lowest for step in steps] + [counts[:, -1].detach()]
        in_order = (
            tuple(values[i].reshape(shape + values[i].shape[1:]) for i in back)
            for values in (one_hots, laws, scores, starts)
        )
        return GumbelDraw(counts.gather(-1, order.argsort(-1)).reshape(*shape, -1), *in_order)

    def log_density(self, draw: GumbelDraw) -> Tensor:
        r"""The log-density of the relaxed one-hots of a draw at this temperature, shape
        ``sample_shape + (...)``.

        Given the hard counts before it, which the earlier one-hots determine by their largest
        entries, every relaxed one-hot follows the Concrete law of its α (torch's
        ``RelaxedOneHotCategorical``) on the simplex of its possible counts, so the joint density is
        their product. The relaxed *counts*, being weighted sums of these entries, have no density
        in closed form.
        """
        total = torch.zeros_like(draw.counts[..., 0])
        for log_weights, perturbed in zip(draw.log_weights, draw.perturbed, strict=True):
            possible = log_weights > -torch.inf
            number = possible.sum(-1)
            log_y = torch.log_softmax(perturbed / self.temperature, -1)
            scores = torch.where(possible, log_weights - self.temperature * log_y, -torch.inf)
            terms = torch.where(possible, scores - log_y, 0.0).sum(-1) - number * torch.logsumexp(
                scores, -1
            )
            total = (
                total
                + torch.lgamma(number)
                + (number - 1) * math.log(float(self.temperature))
                + terms
            )
        return total

    def rank_indicators(self, urn: AnyUrn, number: int, group: int) -> tuple[Tensor, Tensor]:
        """Counts and b_i = Σ_{k ≥ i} y_k, i = 1, …, m, of one group, which is drawn first."""
        if isinstance(urn, SmallUrn):
            shape, largest = urn.log_weights.shape, urn.composition.largest(group)
            permutation = with_first(group, shape[-1])
            counts, steps = self._small_chain(urn.reordered(permutation), number)
            counts = reordered(counts, inverse(permutation))
        else:
            tilted = urn.as_tilted()
            shape, largest = tilted.log_odds.shape, tilted.largest(group)
            rows = _rows(tilted, number)
            order = torch.tensor(with_first(group, shape[-1]), device=rows.draws.device).expand(
                len(rows.draws), -1
            )
            counts, steps = self._tilted_chain(_reordered(rows, order), number)
            counts = counts.gather(-1, order.argsort(-1))
        if steps:
            indicators = _at_least(self._one_hot(steps[0]), steps[0].law.lowest, largest)
        else:
            indicators = (torch.arange(1, largest + 1, device=counts.device) <= counts).to(
                counts.dtype
            )
        return counts.reshape(number, *shape), indicators.reshape(number, *shape[:-1], largest)

    def _order(self, rows: TiltedUrn, one_for_all: bool = False) -> Tensor:
        """The groups of every row in the order in which they are drawn."""
        number, groups = rows.log_odds.shape
        device = rows.log_odds.device
        if isinstance(self.order, str):
            return (
                torch.rand(1 if one_for_all else number, groups, device=device)
                .argsort(-1)
                .expand(number, -1)
            )
        return torch.tensor(self._permutation(groups), device=device).expand(number, -1)

    def _permutation(self, groups: int) -> list[int]:
        order = list(range(groups)) if self.order is None else [int(j) for j in self.order]
        if sorted(order) != list(range(groups)):
            raise ValueError(
                f"order is {order}, but must be a permutation of the {groups} groups 0 to "
                f"{groups - 1}"
            )
        return order

    def _tilted_chain(self, rows: TiltedUrn, copies: int) -> tuple[Tensor, list[_Step]]:
        """The rows are a number of copies of the same urns, whose first groups have one law."""

        def law_of(i: int, draws_left: Tensor) -> Conditional:
            distinct = len(draws_left) // max(1, copies) if i == 0 else len(draws_left)
            law = self._law_of_group(
                rows.log_odds[:distinct], rows.group_sizes[:distinct], draws_left[:distinct], i
            )
            return (
                Conditional(law.lowest.repeat(copies), law.log_weights.repeat(copies, 1))
                if i == 0
                else law
            )

        counts, steps = reading_numbers(self._chain, law_of, rows.draws, rows.log_odds.shape[-1])
        return counts + 0 * rows.log_odds.sum(
            -1, keepdim=True
        ), steps  # a lone group has a gradient as well: zero

    def _small_chain(self, urn: SmallUrn, number: int) -> tuple[Tensor, list[_Step]]:
        chain = Chain.build(urn, merged=self.conditionals == "merged")
        batch = (number, *urn.log_weights.shape[:-1])

        def law_of(i: int, draws_left: Tensor) -> Conditional:
            law = chain.conditional(i, draws_left.reshape(batch))
            return Conditional(
                law.lowest.reshape(-1), law.log_weights.reshape(-1, law.log_weights.shape[-1])
            )

        return self._chain(
            law_of, urn.constant("number").expand(batch).reshape(-1), urn.composition.groups
        )

    def _chain(
        self, law_of: Callable[[int, Tensor], Conditional], draws: Tensor, groups: int
    ) -> tuple[Tensor, list[_Step]]:
        """Algorithm 1: every group but the last from its conditional law given the draws left, the
        last from what is left.
        """
        counts, steps = [], []
        left = draws
        seen = draws  # the hard draws left, with the gradient that later groups may see
        for i in range(groups - 1):
            step = self._draw_group(law_of(i, seen))
            count = step.law.lowest + self._one_hot_mean(step)
            hard = step.law.lowest + step.chosen
            left = left - count
            seen = seen.detach() - hard + (left - left.detach() if self.through_draws_left else 0.0)
            counts.append(count)
            steps.append(step)
        return torch.stack([*counts, left], -1), steps

    def _draw_group(self, law: Conditional) -> _Step:
        """Algorithm 2, and the perturbation."""
        perturbed = law.log_weights + gumbel_noise(law.log_weights.shape, law.log_weights)
        chosen = perturbed.detach().argmax(-1)
        if self.rao_blackwell:
            soft = torch.softmax(
                self._noises_that_agree(law.log_weights, chosen) / self.temperature, -1
            ).mean(0)
        else:
            soft = torch.softmax(perturbed / self.temperature, -1)
        return _Step(law, perturbed, soft, chosen)

    def _law_of_group(
        self, log_odds: Tensor, group_sizes: Tensor, draws_left: Tensor, i: int
    ) -> Conditional:
        later = log_odds[:, i + 1 :], group_sizes[:, i + 1 :]
        if self.conditionals == "merged":
            later = merged(*later)
        nats = _NATS * max(1.0, float(self.temperature))
        return conditional(log_odds[:, i], group_sizes[:, i], *later, draws_left, nats)

    def _noises_that_agree(self, log_weights: Tensor, chosen: Tensor) -> Tensor:
        """Perturbed scores given that the largest is the chosen one: shape (rao_blackwell, rows,
        W).
        """
        alpha = log_weights.detach()
        exponential = -gumbel_noise(
            (self.rao_blackwell, *alpha.shape), alpha
        )  # the log of exponential noise
        column = chosen.expand(self.rao_blackwell, -1).unsqueeze(-1)
        winner = exponential.gather(-1, column) - torch.logsumexp(alpha, -1, keepdim=True)
        scores = -torch.logaddexp(exponential - alpha, winner).scatter(-1, column, winner)
        noise = torch.where(alpha > -torch.inf, scores - alpha, 0.0)
        return log_weights + noise

    def _one_hot(self, step: _Step) -> Tensor:
        if not self.hard:
            return step.soft
        hard = torch.zeros_like(step.soft).scatter(-1, step.chosen.unsqueeze(-1), 1.0)
        return hard + (step.soft - step.soft.detach())

    def _one_hot_mean(self, step: _Step) -> Tensor:
        """Σ_k k y_k without making y."""
        soft = (step.soft * step.law.steps).sum(-1)
        return step.chosen + (soft - soft.detach()) if self.hard else soft


def _rows(urn: TiltedUrn, number: int) -> TiltedUrn:
    """`number` copies of every urn as rows of a matrix."""
    groups = urn.log_odds.shape[-1]
    log_odds, group_sizes = (
        values.expand(number, *values.shape).reshape(-1, groups) for values in urn[:2]
    )
    return TiltedUrn(log_odds, group_sizes, urn.draws.expand(number, *urn.draws.shape).reshape(-1))


def _reordered(rows: TiltedUrn, order: Tensor) -> TiltedUrn:
    return TiltedUrn(
        rows.log_odds.gather(-1, order), rows.group_sizes.gather(-1, order), rows.draws
    )


def _at_least(one_hot: Tensor, lowest: Tensor, largest: int) -> Tensor:
    """Σ_{k ≥ i} y_k for the counts i = 1, …, largest, from a one-hot over a window."""
    tail = one_hot.flip(-1).cumsum(-1).flip(-1)
    column = torch.arange(1, largest + 1, device=lowest.device) - lowest.unsqueeze(-1)
    inside = tail.gather(-1, column.clamp(0, tail.shape[-1] - 1).to(torch.int64))
    return torch.where(column <= 0, 1.0, torch.where(column < tail.shape[-1], inside, 0.0))
