r"""Fisher's law of small urns, from tables over the whole support.

.. math:: R_i(s) = \log [z^s] \prod_{j ≥ i} (1 + ω_j z)^{m_j}
          = \log \sum_k \exp(a_i(k) + R_{i+1}(s - k)), \qquad
          a_i(k) = \log \binom{m_i}{k} + k \log ω_i.

All terms are positive, so all probabilities are relatively accurate. All shapes follow from the
sizes, and no value on the device is read. So a training step with such an urn compiles to one
graph, and can be captured in a CUDA graph.

The columns of tables stand for *falling* counts. The sum over k then runs over a sliding window of
R, and a cumulative sum over columns is P(x ≥ k).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from diffurn._composition import Composition
from diffurn._fisher.conditionals import Conditional, central_differences
from diffurn._fisher.constants import IMPOSSIBLE, NEVER, Constants, constants_of
from diffurn._fisher.quadrature import FisherLaw, Quadrature
from diffurn._kernels.dispatch import can_launch, primitive
from diffurn._law import Chain
from diffurn._numerics.autograd import ClosedForm, straight_through
from diffurn._numerics.inversion import chosen_column

# The smallest denominator.
_TINY = 1e-300


@dataclass(frozen=True)
class Tabulated(FisherLaw):
    """Fisher's law of a batch of small urns whose sizes are known on the CPU.

    Args:
        composition: the sizes.
        constants: the tensors that follow from the sizes.
        log_weights: log ω, float64 and finite, ``(..., c)``; carries the gradient.
    """

    composition: Composition
    constants: Constants
    log_weights: Tensor

    @classmethod
    def build(cls, composition: Composition, log_weights: Tensor) -> Tabulated:
        """From log-weights, some of which may be -inf; those get no gradient."""
        constants = constants_of(composition, log_weights.device)
        return cls(composition, constants, log_weights.clamp(min=NEVER))

    @property
    def general(self) -> Quadrature:
        never = self.log_weights <= NEVER
        sizes = torch.where(never, 0.0, self.constants.balls)
        draws = self.constants.total.expand(self.log_weights.shape[:-1])
        return Quadrature(torch.where(never, 0.0, self.log_weights), sizes, draws)

    @property
    def groups(self) -> int:
        return self.composition.groups

    def largest(self, group: int) -> int:
        return self.composition.largest(group)

    def log_prob(self, x: Tensor) -> Tensor:
        return self.tables().log_prob(x)

    def mean(self) -> Tensor:
        return self.tables().mean()

    def variance(self) -> Tensor:
        return self.tables().variance() if self.composition.groups == 2 else super().variance()

    def tail(self, group: int) -> Tensor:
        first = self.reordered(with_first(group, self.groups))
        return first.tables().tail(self.largest(group))

    def sample(self, num_samples: int, dtype: torch.dtype) -> Tensor:
        if self._has_kernel():
            return self._launch(num_samples).to(dtype)
        return self.tables().sample(num_samples).to(dtype)

    def rsample(self, num_samples: int) -> Tensor:
        if self._has_kernel():
            table, counts = self.constants.pair, self.constants.falling
            return self._launch(num_samples) + _SlopeOfMean.of(self.log_weights, table, counts)
        return self.tables().rsample(num_samples)

    def rsample_with_tail(self, num_samples: int, group: int) -> tuple[Tensor, Tensor]:
        order = with_first(group, self.groups)
        tables = self.reordered(order).tables()
        counts = reordered(tables.rsample(num_samples), inverse(order))
        return counts, tables.tail(self.largest(group))

    def chain(
        self,
        num_samples: int,
        order: Sequence[int] | None,
        merged: bool,
        temperature: float | Tensor,
    ) -> Chain:
        if order is None:  # a table has one order of groups for all draws
            return self.general.chain(num_samples, order, merged, temperature)
        return _Chain.build(self.reordered(order), num_samples, order, merged)

    def tables(self) -> Tables:
        return _of_two_groups(self) if self.composition.groups == 2 else _of_many_groups(self)

    def reordered(self, order: Sequence[int]) -> Tabulated:
        composition = self.composition.reordered(order)
        constants = constants_of(composition, self.constants.device)
        return Tabulated(composition, constants, reordered(self.log_weights, order))

    def _has_kernel(self) -> bool:
        return self.composition.groups == 2 and can_launch(self.log_weights)

    def _launch(self, num_samples: int) -> Tensor:
        from diffurn._kernels import pair

        known = self.constants
        return pair.sample(self.log_weights, known.pair, known.falling, known.total, num_samples)


def reordered(columns: Tensor, order: Sequence[int]) -> Tensor:
    """The last dimension in another order; one operation forward and one backward."""
    parts = columns.unbind(-1)
    if list(order) == list(range(len(parts))):
        return columns
    return torch.stack([parts[j] for j in order], -1)


def with_first(group: int, groups: int) -> list[int]:
    """The order of groups in which `group` comes first."""
    return [group, *(j for j in range(groups) if j != group)]


def inverse(order: Sequence[int]) -> list[int]:
    return [list(order).index(j) for j in range(len(order))]


class Tables(NamedTuple):
    """The tables of a batch of urns.

    Counts are relative to a centre. If one outcome is almost certain, the centre is that outcome.
    Then the covariance, which autograd derives from these tables, has no term larger than itself.

    Attributes:
        urn: the urns.
        centre: the counts if heavier balls always came first, ``(..., c)``.
        first: log-weights of the first group's counts, ``(..., W)``.
        deviations: counts minus centre, one tensor per group.
        own: a_i of all groups but the last.
        joint: a_i(k) + R_{i+1}(s - k) of the groups between the first and the last, each
            ``(..., N + 1, W)``.
        rest: R_1, …, R_{c-1}, each ``(..., N + 1)``.
    """

    urn: Tabulated
    centre: Tensor
    first: Tensor
    deviations: tuple[Tensor, ...]
    own: tuple[Tensor, ...] = ()
    joint: tuple[Tensor, ...] = ()
    rest: tuple[Tensor, ...] = ()

    def log_prob(self, x: Tensor) -> Tensor:
        """log P(x) for counts ``(..., c)``; the gamma function continues it to real ones."""
        balls, n = self.urn.constants.balls, self.urn.constants.total
        log_weights = self.urn.log_weights
        reference = log_weights.detach().amax(-1, keepdim=True)
        ways = self.urn.constants.log_factorials
        ways = ways - torch.lgamma(x + 1) - torch.lgamma(balls - x + 1)
        terms = torch.addcmul(ways, x - self.centre, log_weights - reference)
        # `shift` is zero on the support. It makes the slope in x that of log ω itself.
        shift = (x.sum(-1) - n) * reference.squeeze(-1)
        return terms.sum(-1) - self.first.logsumexp(-1) + shift

    def mean(self) -> Tensor:
        """E[x], each entry relatively accurate."""
        probability = self.first.softmax(-1)
        shift = (probability * self.deviations[0]).sum(-1, keepdim=True)
        if not self.rest:
            return torch.addcmul(self.centre, shift, self.urn.constants.signs)
        width, shifts = self.urn.composition.width, [shift.squeeze(-1)]
        # log Σ exp(Σ a_i) - log Z over the counts of earlier groups that leave s draws. Adding R(s)
        # of the groups to come gives the log-probability that s draws are left.
        before = pad(self.own[0], (self.rest[0].shape[-1] - width, 0), value=IMPOSSIBLE)
        before = before - self.first.logsumexp(-1, keepdim=True)
        between = zip(self.own[1:], self.joint, self.deviations[1:-1], strict=True)
        for own, joint, deviation in between:
            probability = (before.unsqueeze(-1) + joint).exp()
            shifts.append((probability * deviation.unsqueeze(-2)).sum((-2, -1)))
            ahead = _windows(pad(before, (0, width - 1), value=IMPOSSIBLE), self.urn)
            before = (ahead + own.flip(-1).unsqueeze(-2)).logsumexp(-1)
        shifts.append(((before + self.rest[-1]).exp() * self.deviations[-1]).sum(-1))
        mean = self.centre + torch.stack(shifts, -1)
        # The rounding errors of the tables are about the same in all groups. Scaling to the known
        # sum n removes them.
        total = mean.detach().sum(-1, keepdim=True).clamp(min=_TINY)
        return mean * (self.urn.constants.total.unsqueeze(-1) / total)

    def variance(self) -> Tensor:
        """Var[x_j] of both groups of an urn, which are equal."""
        probability, deviation = self.first.softmax(-1), self.deviations[0]
        mean = (probability * deviation).sum(-1, keepdim=True)
        own = (probability * (deviation - mean).square()).sum(-1, keepdim=True)
        return own.expand(*own.shape[:-1], 2)

    def tail(self, largest: int) -> Tensor:
        """P(x ≥ i) of the first group for i = 1, …, largest."""
        lowest, highest = self.urn.composition.window
        tail = self.first.softmax(-1).cumsum(-1)[..., :-1].flip(-1)  # of lowest + 1, …, highest
        return pad(pad(tail, (lowest, 0), value=1.0), (0, largest - highest))

    def sample(self, num_samples: int) -> Tensor:
        """Draws ``(num_samples, ..., c)``, group after group by inversion."""
        width = self.urn.composition.width
        column = chosen_column(self.first.detach().softmax(-1).cumsum(-1), num_samples)
        if not self.rest:
            both, signs = self.urn.constants.first_column, self.urn.constants.signs
            return torch.addcmul(both, column.to(both.dtype).unsqueeze(-1), signs, value=-1)
        counts = [width - 1 - column]
        left = self.urn.composition.most_draws - counts[0]
        for joint in self.joint:
            column = chosen_column(row_of(joint.detach().softmax(-1).cumsum(-1), left))
            counts.append(width - 1 - column)
            left = left - counts[-1]
        last = left - self.urn.constants.surplus
        return torch.stack([*counts, last], -1).to(self.first.dtype)

    def rsample(self, num_samples: int) -> Tensor:
        return straight_through(self.sample(num_samples), self.mean())


def _of_two_groups(urn: Tabulated) -> Tables:
    """The tables of two groups, an exponential family in the one parameter log ω_1 / ω_2."""
    ratio = (urn.log_weights * urn.constants.signs).sum(-1, keepdim=True)
    most, fewest = urn.constants.most, urn.constants.fewest
    centre = torch.where(ratio.detach() > 0, most, fewest)
    deviation = urn.constants.falling - centre[..., :1]
    first = torch.addcmul(urn.constants.pair, deviation, ratio)
    return Tables(urn, centre, first, (deviation,))


def _of_many_groups(urn: Tabulated) -> Tables:
    """The tables of three or more groups, from the last group to the first."""
    width, constants = urn.composition.width, urn.constants
    log_weights = urn.log_weights - urn.log_weights.detach().amax(-1, keepdim=True)
    sizes, draws = constants.balls, constants.total
    centre = _filled_from_the_heaviest(log_weights.detach(), sizes, draws)
    deviations = constants.falling.unsqueeze(-2) - centre[..., :-1].unsqueeze(-1)
    weighted = log_weights[..., :-1].unsqueeze(-1)
    own = torch.addcmul(constants.own, deviations, weighted).unbind(-2)
    of_last = constants.last_counts - centre[..., -1:]
    rest = [torch.addcmul(constants.last, of_last, log_weights[..., -1:])]
    joint: list[Tensor] = []
    for row in own[:0:-1]:
        behind = _windows(pad(rest[-1], (width - 1, 0), value=IMPOSSIBLE), urn)
        joint.append(behind + row.unsqueeze(-2))
        rest.append(joint[-1].logsumexp(-1))
    first = own[0] + rest[-1][..., -width:]
    all_deviations = (*deviations.unbind(-2), of_last)
    return Tables(urn, centre, first, all_deviations, own, tuple(joint[::-1]), tuple(rest[::-1]))


def _windows(values: Tensor, urn: Tabulated) -> Tensor:
    """A matrix whose row s holds values s, …, s + W - 1; vmap cannot differentiate `unfold`."""
    rows = values.index_select(-1, urn.constants.windows)
    shape = urn.composition.most_draws + 1, urn.composition.width
    return rows.reshape(*values.shape[:-1], *shape)


def _filled_from_the_heaviest(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """Counts if heavier balls always came first; their sum may exceed n if weights are equal."""
    heavier = log_weights.unsqueeze(-2) > log_weights.unsqueeze(-1)
    left = draws.unsqueeze(-1) - torch.where(heavier, group_sizes.unsqueeze(-2), 0.0).sum(-1)
    return left.clamp(min=0).minimum(group_sizes)


def row_of(table: Tensor, row: Tensor) -> Tensor:
    """Rows ``(num_samples, ...)`` of tables ``(..., R, W)``."""
    index = row[..., None, None].expand(*row.shape, 1, table.shape[-1])
    return table.expand(*row.shape, *table.shape[-2:]).gather(-2, index).squeeze(-2)


# --------------------------------------------------------------------------------------------------
# The slope of the mean of two groups, which has a kernel
# --------------------------------------------------------------------------------------------------


@primitive
def product_of_pair(log_weights: Tensor, pair: Tensor, counts: Tensor, vector: Tensor) -> Tensor:
    """Cov[x] @ vector of urns of two groups.

    Args:
        log_weights: ``(..., 2)``.
        pair: the table of the first group's counts, ``(..., W)``.
        counts: these counts, ``(W,)``.
        vector: ``(..., 2)``.
    """
    ratio = log_weights[..., :1] - log_weights[..., 1:]
    possible = pair > 0.5 * IMPOSSIBLE
    most = torch.where(possible, counts, -torch.inf).aminmax(dim=-1, keepdim=True).max
    fewest = torch.where(possible, counts, torch.inf).aminmax(dim=-1, keepdim=True).min
    deviation = counts - torch.where(ratio > 0, most, fewest)
    probability = torch.where(possible, pair + deviation * ratio, IMPOSSIBLE).softmax(-1)
    mean = (probability * deviation).sum(-1, keepdim=True)
    variance = (probability * (deviation - mean).square()).sum(-1, keepdim=True)
    product = variance * (vector[..., :1] - vector[..., 1:])
    return torch.cat([product, -product], -1)


class _SlopeOfMean(ClosedForm):
    """Zeros that have the derivatives of the mean of two groups."""

    @staticmethod
    def forward(log_weights: Tensor, pair: Tensor, counts: Tensor) -> Tensor:
        return torch.zeros_like(log_weights)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return product_of_pair(*ctx.saved_tensors, grads[0]), None, None


# --------------------------------------------------------------------------------------------------
# The groups one after another
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Chain:
    """The conditional laws, all over the same rising counts; see `Chain`.

    Args:
        urn: the urns, with their groups in the chain's order.
        tables: of the exact conditional laws; None if all later groups are merged into one.
        order: the permutation of the groups.
        batch: ``(num_samples, ...)``.
    """

    urn: Tabulated
    tables: Tables | None
    order: tuple[int, ...]
    batch: torch.Size

    @classmethod
    def build(cls, urn: Tabulated, num_samples: int, order: Sequence[int], merged: bool) -> _Chain:
        batch = torch.Size((num_samples, *urn.log_weights.shape[:-1]))
        exact = not merged and urn.composition.groups > 2
        return cls(urn, urn.tables() if exact else None, tuple(order), batch)

    @property
    def groups(self) -> int:
        return self.urn.composition.groups

    @property
    def draws(self) -> Tensor:
        return self.urn.constants.total.expand(self.batch).reshape(-1)

    def in_order(self, counts: Tensor) -> Tensor:
        return reordered(counts, inverse(self.order)).reshape(*self.batch, self.groups)

    def conditional(self, place: int, draws_left: Tensor) -> Conditional:
        draws_left = draws_left.reshape(self.batch)
        if self.tables is not None and place < self.groups - 2:
            log_weights = self._exact(self.tables, place, draws_left)
        else:
            log_weights = self._merged(place, draws_left)
        log_weights = torch.where(log_weights > 0.5 * IMPOSSIBLE, log_weights, -torch.inf)
        width = log_weights.shape[-1]
        lowest = torch.full_like(draws_left.detach(), self.urn.composition.window[0])
        return Conditional(
            lowest.reshape(-1), log_weights.expand(*self.batch, width).reshape(-1, width)
        )

    def _exact(self, tables: Tables, place: int, draws_left: Tensor) -> Tensor:
        if place == 0:
            return tables.first.flip(-1)
        n, own = draws_left.detach(), tables.own[place].flip(-1)
        index = n.to(torch.int64).unsqueeze(-1)
        index = index + self.urn.constants.surplus_minus_rising
        rest = tables.rest[place].expand(*n.shape, -1).gather(-1, index.clamp(min=0))
        log_weights = torch.where(index >= 0, own + rest, IMPOSSIBLE)
        if draws_left.requires_grad:
            possible = log_weights.detach() > 0.5 * IMPOSSIBLE
            slope = -central_differences(rest.detach(), possible)
            log_weights = log_weights + (draws_left - n).unsqueeze(-1) * slope
        return log_weights

    def _merged(self, place: int, draws_left: Tensor) -> Tensor:
        log_weights = self.urn.log_weights
        later = log_weights[..., place + 1 :]
        if later.shape[-1] > 1:
            shares = self.urn.constants.log_shares(place)
            later = (later + shares).logsumexp(-1, keepdim=True)
        ratio = log_weights[..., place : place + 1] - later
        counts = self.urn.constants.rising
        if place == 0:
            return torch.addcmul(self.urn.constants.merged(0), counts, ratio)
        left = draws_left.detach().to(torch.int64)
        law = torch.addcmul(row_of(self.urn.constants.merged_rows(place), left), counts, ratio)
        if draws_left.requires_grad:
            slope = row_of(self.urn.constants.slopes(place), left)
            law = law + (draws_left - draws_left.detach()).unsqueeze(-1) * slope
        return law
