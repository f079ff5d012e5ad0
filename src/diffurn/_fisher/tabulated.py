"""The law of small urns: tables of log-weights, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from diffurn._composition import Composition
from diffurn._fisher.constants import IMPOSSIBLE, NEVER, constant
from diffurn._fisher.pair import slope_of_mean
from diffurn._fisher.tilt import log_tilt
from diffurn._fisher.urn import TiltedUrn
from diffurn._kernels.dispatch import can_launch

_TINY = 1e-300


class SmallUrn(NamedTuple):
    """A batch of small urns.

    Attributes:
        composition: what the host knows.
        log_weights: log ω, float64 and finite, ``(..., c)``; carries the gradient.
    """

    composition: Composition
    log_weights: Tensor

    @classmethod
    def build(cls, composition: Composition, log_weights: Tensor) -> SmallUrn:
        """From log-weights of which some may be -inf; these get no gradient."""
        return cls(composition, log_weights.clamp(min=NEVER))

    def constant(self, name: str, group: int = 0) -> Tensor:
        return constant(name, self.composition, self.log_weights.device, group)

    def reordered(self, order: Sequence[int]) -> SmallUrn:
        return SmallUrn(self.composition.reordered(order), reordered(self.log_weights, order))

    def as_tilted(self) -> TiltedUrn:
        never, shape = self.log_weights <= NEVER, self.log_weights.shape
        group_sizes, draws = (
            torch.where(never, 0.0, self.constant("balls")),
            self.constant("number").expand(shape[:-1]),
        )
        tilt = log_tilt(self.log_weights.detach(), group_sizes, draws)
        return TiltedUrn(
            torch.where(never, 0.0, self.log_weights) + tilt.unsqueeze(-1), group_sizes, draws
        )

    def sample(self, number: int) -> Tensor:
        """Draws, ``(number, ..., c)``, without a gradient."""
        return self._sample_pairs(number) if self._has_kernels() else self.law().sample(number)

    def rsample(self, number: int) -> Tensor:
        """Draws, ``(number, ..., c)``, with the derivatives of the mean."""
        if self._has_kernels():
            return self._sample_pairs(number) + slope_of_mean(
                self.log_weights, self.constant("pair"), self.constant("falling")
            )
        law = self.law()
        mean = law.mean()
        return law.sample(number) + (mean - mean.detach())

    def _has_kernels(self) -> bool:
        return self.composition.groups == 2 and can_launch(self.log_weights)

    def _sample_pairs(self, number: int) -> Tensor:
        from diffurn._kernels import pair as pair_kernels

        pair, counts, draws = (self.constant(name) for name in ("pair", "falling", "number"))
        return pair_kernels.sample(self.log_weights, pair, counts, draws, number)

    def law(self) -> Law:
        return (
            _law_of_two_groups(self) if self.composition.groups == 2 else _law_of_many_groups(self)
        )


def reordered(columns: Tensor, order: Sequence[int]) -> Tensor:
    """The last dimension in another order, in one operation forward and one backward."""
    parts = columns.unbind(-1)
    return (
        columns
        if list(order) == list(range(len(parts)))
        else torch.stack([parts[j] for j in order], -1)
    )


def with_first(group: int, groups: int) -> list[int]:
    """The order in which one group comes first."""
    return [group, *(j for j in range(groups) if j != group)]


def inverse(order: Sequence[int]) -> list[int]:
    return [order.index(j) for j in range(len(order))]


class Law(NamedTuple):
    """An urn's tables.

    Counts are taken relative to a centre that is the sure outcome, if there is one: then the
    covariance, which automatic differentiation
    makes from these tables, has no term larger than itself.

    Attributes:
        urn: whose they are.
        centre: the groups filled from the heaviest down, ``(..., c)``.
        first: log-weights of the first group's counts, ``(..., W)``.
        deviations: counts minus centre, one tensor a group.
        own: a_i of all groups but the last.
        joint: a_i(k) + R_{i+1}(s - k) of all groups but the first and the last, ``(..., N + 1,
            W)``.
        rest: R_1, …, R_{c-1}, ``(..., N + 1)``.
    """

    urn: SmallUrn
    centre: Tensor
    first: Tensor
    deviations: tuple[Tensor, ...]
    own: tuple[Tensor, ...] = ()
    joint: tuple[Tensor, ...] = ()
    rest: tuple[Tensor, ...] = ()

    def log_prob(self, x: Tensor) -> Tensor:
        """log P(x) for counts ``(..., c)``, continued to real ones between 0 and m by the gamma
        function.
        """
        balls, n = self.urn.constant("balls"), self.urn.constant("number")
        reference = self.urn.log_weights.detach().amax(-1, keepdim=True)
        ways = (
            self.urn.constant("log factorials") - torch.lgamma(x + 1) - torch.lgamma(balls - x + 1)
        )
        terms = torch.addcmul(ways, x - self.centre, self.urn.log_weights - reference)
        # the last term is zero on the support; it makes the slope in x that of log ω itself
        return terms.sum(-1) - self.first.logsumexp(-1) + (x.sum(-1) - n) * reference.squeeze(-1)

    def mean(self) -> Tensor:
        """E[x], each entry relatively accurate."""
        probability = self.first.softmax(-1)
        shift = (probability * self.deviations[0]).sum(-1, keepdim=True)
        if not self.rest:
            return torch.addcmul(self.centre, shift, self.urn.constant("signs"))
        width, shifts = self.urn.composition.width, [shift.squeeze(-1)]
        # log-probability of what came before and of s draws left, but for that of what comes after
        before = pad(
            self.own[0], (self.rest[0].shape[-1] - width, 0), value=IMPOSSIBLE
        ) - self.first.logsumexp(-1, keepdim=True)
        for own, joint, deviation in zip(
            self.own[1:], self.joint, self.deviations[1:-1], strict=True
        ):
            probability = (before.unsqueeze(-1) + joint).exp()
            shifts.append((probability * deviation.unsqueeze(-2)).sum((-2, -1)))
            ahead = _windows(pad(before, (0, width - 1), value=IMPOSSIBLE), self.urn)
            before = (ahead + own.flip(-1).unsqueeze(-2)).logsumexp(-1)
        shifts.append(((before + self.rest[-1]).exp() * self.deviations[-1]).sum(-1))
        mean = self.centre + torch.stack(shifts, -1)
        # Rounding of the tables is much the same in all groups.
        return mean * (
            self.urn.constant("number").unsqueeze(-1)
            / mean.detach().sum(-1, keepdim=True).clamp(min=_TINY)
        )

    def variance(self) -> Tensor:
        """Var[x_j], of two groups: the same for both."""
        probability, deviation = self.first.softmax(-1), self.deviations[0]
        mean = (probability * deviation).sum(-1, keepdim=True)
        own = (probability * (deviation - mean).square()).sum(-1, keepdim=True)
        return own.expand(*own.shape[:-1], 2)

    def tail(self, largest: int) -> Tensor:
        """P(x ≥ i) of the first group for i = 1, …, largest."""
        lowest, highest = self.urn.composition.window
        tail = self.first.softmax(-1).cumsum(-1)[..., :-1].flip(-1)  # of i = lowest + 1, …, highest
        return pad(pad(tail, (lowest, 0), value=1.0), (0, largest - highest))

    def sample(self, number: int) -> Tensor:
        """Draws, ``(number, ..., c)``, by inversion of one conditional distribution after the
        other.
        """
        composition = self.urn.composition
        column = chosen_column(self.first.detach().softmax(-1).cumsum(-1), number)
        if not self.rest:
            both: Tensor = self.urn.constant("column 0")
            return torch.addcmul(
                both, column.to(both.dtype).unsqueeze(-1), self.urn.constant("signs"), value=-1
            )
        counts = [composition.width - 1 - column]
        left = composition.most_draws - counts[0]
        for joint in self.joint:
            column = chosen_column(row_of(joint.detach().softmax(-1).cumsum(-1), left))
            counts.append(composition.width - 1 - column)
            left = left - counts[-1]
        return torch.stack([*counts, left - self.urn.constant("surplus")], -1).to(self.first.dtype)


def chosen_column(cumulative: Tensor, number: int | None = None) -> Tensor:
    """The column in which a uniform number falls, for each row; never one without probability."""
    total = cumulative[..., -1]
    uniform = torch.rand(
        total.shape if number is None else (number, *total.shape),
        dtype=total.dtype,
        device=total.device,
    )
    # 1 - u lies in (0, 1]: the first column to reach it has visibly added to the sum
    return (cumulative < torch.addcmul(total, uniform, total, value=-1).unsqueeze(-1)).sum(-1)


def _law_of_two_groups(urn: SmallUrn) -> Law:
    """An exponential family in the one parameter log ω_1 / ω_2."""
    ratio = (urn.log_weights * urn.constant("signs")).sum(-1, keepdim=True)
    centre = torch.where(ratio.detach() > 0, urn.constant("most"), urn.constant("fewest"))
    deviation = urn.constant("falling") - centre[..., :1]
    return Law(urn, centre, torch.addcmul(urn.constant("pair"), deviation, ratio), (deviation,))


def _law_of_many_groups(urn: SmallUrn) -> Law:
    width = urn.composition.width
    log_weights = urn.log_weights - urn.log_weights.detach().amax(-1, keepdim=True)
    centre = _filled_from_the_heaviest(
        log_weights.detach(), urn.constant("balls"), urn.constant("number")
    )
    deviations = urn.constant("falling").unsqueeze(-2) - centre[..., :-1].unsqueeze(-1)
    own = torch.addcmul(
        urn.constant("own"), deviations, log_weights[..., :-1].unsqueeze(-1)
    ).unbind(-2)
    of_last = urn.constant("last counts") - centre[..., -1:]
    rest = [torch.addcmul(urn.constant("last"), of_last, log_weights[..., -1:])]
    joint: list[Tensor] = []
    for row in own[:0:-1]:
        behind = _windows(pad(rest[-1], (width - 1, 0), value=IMPOSSIBLE), urn)
        joint.append(behind + row.unsqueeze(-2))
        rest.append(joint[-1].logsumexp(-1))
    first = own[0] + rest[-1][..., -width:]
    return Law(
        urn,
        centre,
        first,
        (*deviations.unbind(-2), of_last),
        own,
        tuple(joint[::-1]),
        tuple(rest[::-1]),
    )


def _windows(values: Tensor, urn: SmallUrn) -> Tensor:
    """Row s holds values s, …, s + W - 1; not by `unfold`, whose derivative `vmap` does not
    know.
    """
    rows, urns = values.index_select(-1, urn.constant("windows")), urn.composition
    return rows.reshape(*values.shape[:-1], urns.most_draws + 1, urns.width)


def _filled_from_the_heaviest(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """Counts if heavier balls always came first; groups of equal weight all come first among
    themselves, which is centre enough.
    """
    heavier = log_weights.unsqueeze(-2) > log_weights.unsqueeze(-1)
    left = draws.unsqueeze(-1) - torch.where(heavier, group_sizes.unsqueeze(-2), 0.0).sum(-1)
    return left.clamp(min=0).minimum(group_sizes)


def row_of(table: Tensor, row: Tensor) -> Tensor:
    """Rows ``(number, ...)`` of tables ``(..., R, W)``."""
    index = row[..., None, None].expand(*row.shape, 1, table.shape[-1])
    return table.expand(*row.shape, *table.shape[-2:]).gather(-2, index).squeeze(-2)
