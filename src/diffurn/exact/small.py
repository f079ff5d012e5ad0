r"""Small urns whose sizes the host knows: tables over the whole support, in place of tilts, quadratures and rejection.

.. math:: R_i(s) = \log [z^s] \prod_{j ≥ i} (1 + ω_j z)^{m_j} = \log \sum_k \exp(a_i(k) + R_{i+1}(s - k)), \qquad
          a_i(k) = \log \binom{m_i}{k} + k \log ω_i.

All terms are positive, so all probabilities are relatively accurate. All shapes follow from the sizes, and no number on a device is looked
at: a training step with such an urn in it can be compiled in one graph, or captured in a CUDA graph.

The columns of tables stand for *falling* counts: the sum over k then runs over a sliding window of R, and a cumulative sum is P(x ≥ k).
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from diffurn.exact.conditionals import Conditional, central_differences
from diffurn.exact.tracing import can_read, is_capturing, is_transforming

# Log-weight of what cannot happen, and log ω of a ball of weight zero: finite, so that no gradient meets inf - inf.
_IMPOSSIBLE = -1e300
_NEVER = -1e30
_TINY = 1e-300
# The largest table of an urn, in numbers: beyond it, ways that do not look at every count are faster even for one urn.
MOST_CELLS = 1024
# The same for all tables of a batch, of two groups and of more (whose tables are convolved), measured on one CPU core; where operations
# wait for their launch rather than for memory, more is affordable.
_MOST_CELLS_OF_A_BATCH = {2: 1 << 20, 3: 1 << 17}
_CELLS_PER_LAUNCH = 32
# Of one group: log-factorials of more balls than this lose digits that are promised.
_MOST_BALLS = 1024
# Groups are drawn one after another, ten operations each.
_MOST_GROUPS = 32
# More sizes than this are a data set: reading them again for every urn would cost more than it saves.
_MOST_NUMBERS = 512
# Constants that are kept ready for the next urn of the same composition.
_REMEMBERED = 1024


class Composition(NamedTuple):
    """What the host knows of a batch of urns.

    Attributes:
        shape: of the batch; () stands for one composition of all urns.
        group_sizes: m, one row an urn.
        draws: n, one number an urn.
    """

    shape: tuple[int, ...]
    group_sizes: tuple[tuple[int, ...], ...]
    draws: tuple[int, ...]

    @property
    def groups(self) -> int:
        return len(self.group_sizes[0])

    @property
    def most_draws(self) -> int:
        return max(self.draws)

    @property
    def window(self) -> tuple[int, int]:
        """The counts that the table of a group holds: of two groups those that are possible for the first, otherwise all from 0."""
        if self.groups > 2:
            return 0, min(max(max(row) for row in self.group_sizes), self.most_draws)
        rows = list(zip(self.group_sizes, self.draws, strict=True))
        return min(max(0, n - row[1]) for row, n in rows), max(min(row[0], n) for row, n in rows)

    @property
    def width(self) -> int:
        lowest, highest = self.window
        return highest - lowest + 1

    @property
    def cells(self) -> int:
        """Of the largest table of an urn."""
        return self.width if self.groups == 2 else (self.most_draws + 1) * self.width

    def pays_for(self, urns: int, draws: int, device: torch.device) -> bool:
        """Whether tables are the faster way to so many draws of each of so many urns; a compiled or captured step has no other."""
        cells = urns * (self.groups - 1) * (self.cells + draws * self.width)
        affordable = _MOST_CELLS_OF_A_BATCH[min(self.groups, 3)]
        return cells <= (affordable if device.type == "cpu" and not torch.compiler.is_compiling() else affordable * _CELLS_PER_LAUNCH)

    def largest(self, group: int) -> int:
        return max(row[group] for row in self.group_sizes)

    def reordered(self, order: Sequence[int]) -> Composition:
        return Composition(self.shape, tuple(tuple(row[j] for j in order) for row in self.group_sizes), self.draws)


def composition_of(group_sizes: Any, draws: Any, weights_shape: Sequence[int]) -> Composition | None:
    """The composition of valid, small urns with weights of that shape, if it can be read without waiting for a device.

    Example:
        >>> composition_of([3, 5], 4, weights_shape=(2,))
        Composition(shape=(), group_sizes=((3, 5),), draws=(4,))
    """
    if not weights_shape or not 2 <= weights_shape[-1] <= _MOST_GROUPS:
        return None
    groups = weights_shape[-1]
    sizes, numbers = _read(group_sizes), _read(draws)
    if sizes is None or numbers is None or not sizes[0] or not sizes[1] or sizes[0][-1] not in (1, groups):
        return None
    per_row = sizes[0][-1]
    rows = [tuple(sizes[1][i : i + per_row]) * (groups // per_row) for i in range(0, len(sizes[1]), per_row)]
    shape, number = sizes[0][:-1], numbers[1]
    if not numbers[0]:
        number = number * len(rows)
    elif not shape:
        shape, rows = numbers[0], rows * len(number)
    elif shape != numbers[0]:
        return None
    if any(ours != theirs and 1 not in (ours, theirs) for ours, theirs in zip(shape[::-1], weights_shape[-2::-1], strict=False)):
        return None
    if max(max(row) for row in rows) > _MOST_BALLS or not all(n <= sum(row) for row, n in zip(rows, number, strict=True)):
        return None
    composition = Composition(shape, tuple(rows), tuple(number))
    return composition if composition.cells <= MOST_CELLS else None


class _Numbers(NamedTuple):
    shape: tuple[int, ...]
    entries: list[int]


def _read(value: Any) -> _Numbers | None:
    """An array of whole numbers; None for anything else, and for what cannot be looked at."""
    if not isinstance(value, (int, float, list, tuple)):
        if not can_read(value) or math.prod(value.shape) > _MOST_NUMBERS:
            return None
        value = value.tolist()
    numbers = _flattened(value)
    return None if numbers is None or len(numbers.entries) > _MOST_NUMBERS else numbers


def _flattened(value: Any) -> _Numbers | None:
    if isinstance(value, (list, tuple)):
        if len(value) > _MOST_NUMBERS:
            return None
        entries: list[int] = []
        inner: tuple[int, ...] | None = None
        for part in value:
            numbers = _flattened(part)
            if numbers is None or (inner is not None and numbers.shape != inner):
                return None
            inner = numbers.shape
            entries += numbers.entries
        return _Numbers((len(value), *(inner or ())), entries)
    if isinstance(value, float):
        value = int(value) if value.is_integer() else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        return None
    return _Numbers((), [len(range(value))])  # `torch.compile` would rather leave a number open than look at it


# --------------------------------------------------------------------------------------------------------------------------------
# Constants: a captured graph can read them, but could not copy them from the host
# --------------------------------------------------------------------------------------------------------------------------------

_remembered: OrderedDict[Any, Tensor] = OrderedDict()
_captured: dict[Any, Tensor] = {}
_compiled = SimpleNamespace()
_names: dict[Any, str] = {}


def constant(name: str, composition: Composition, device: torch.device, group: int = 0) -> Tensor:
    """A tensor made from the composition alone, shape ``composition.shape + (...)``."""
    arguments = (name, *composition, device, group)
    if torch.compiler.is_compiling():
        return cast(Tensor, getattr(_compiled, _name_in_graphs(*arguments)))
    return _constant(*arguments)


def _name_in_graphs(*arguments: Any) -> str:
    """Where a compiled graph finds a constant, as one of its inputs: one made while tracing would be copied from the host each time."""
    name = _names.setdefault(arguments, f"constant_{len(_names)}")
    if not hasattr(_compiled, name):
        setattr(_compiled, name, _constant(*arguments))
    return name


# What `torch.compiler.assume_constant_result` does, which would import the compiler with the library.
_name_in_graphs._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _constant(name: str, shape: Any, group_sizes: Any, draws: Any, device: torch.device, group: int) -> Tensor:
    key = (name, shape, group_sizes, draws, device, group)
    tensor = _remembered.get(key)
    if tensor is None:
        with torch.inference_mode(False):  # what inference mode makes, a training step could not use
            urns = Composition(shape, group_sizes, draws)
            rows = [_MAKERS[name](sizes, n, urns, group) for sizes, n in zip(group_sizes, draws, strict=True)]
            tensor = torch.tensor(rows, dtype=torch.int64 if name in _WHOLE else torch.float64, device=device)
            tensor = tensor[0] if name in _SHARED else tensor.reshape(shape + tensor.shape[1:])
        if is_transforming() or type(tensor) is not Tensor:  # it lives no longer than the transform
            return tensor
        _remembered[key] = tensor
        if len(_remembered) > _REMEMBERED:
            _remembered.popitem(last=False)
    elif is_capturing():
        _captured[key] = tensor  # a graph keeps reading this memory, and does not own it
    return tensor


def _log_ways(size: int, counts: Sequence[int]) -> list[float]:
    """log C(size, count) of each count."""
    return [math.log(math.comb(size, count)) if 0 <= count <= size else _IMPOSSIBLE for count in counts]


def _rising(composition: Composition) -> range:
    lowest, highest = composition.window
    return range(lowest, highest + 1)


def _with_the_rest(first: int, later: int, left: int, counts: Sequence[int]) -> list[float]:
    """log C(first, k) + log C(later, left - k) of each count k."""
    return [a + b for a, b in zip(_log_ways(first, counts), _log_ways(later, [left - k for k in counts]), strict=True)]


def _slopes(later: int) -> list[float]:
    """∂ log C(later, s) / ∂ s = ψ(later - s + 1) - ψ(s + 1) for s = 0, …, later: differences of harmonic numbers."""
    harmonic = [0.0, *itertools.accumulate(1 / i for i in range(1, later + 1))]
    return [backward - forward for forward, backward in zip(harmonic, harmonic[::-1], strict=True)]


def _by_draws_left(values: Sequence[float], otherwise: float, urns: Composition) -> list[list[float]]:
    """values[s] as a table: row n, column k holds s = n - k."""
    counts = _rising(urns)
    return [[values[n - k] if 0 <= n - k < len(values) else otherwise for k in counts] for n in range(urns.most_draws + 1)]


def _merged_rows(first: int, later: int, urns: Composition) -> list[list[float]]:
    own = _log_ways(first, _rising(urns))
    rest = _by_draws_left(_log_ways(later, range(min(later, urns.most_draws) + 1)), _IMPOSSIBLE, urns)
    return [[a + b for a, b in zip(own, row, strict=True)] for row in rest]


def _log_shares(sizes: Sequence[int]) -> list[float]:
    """log m_j / Σm, the weights of the paper's merge rule; without any balls, any will do."""
    return [(math.log(m / sum(sizes)) if m else _NEVER) if sum(sizes) else 0.0 for m in sizes]


# Each from the sizes and draws of one urn, the composition of all, and the number of a group where it matters.
_MAKERS: dict[str, Callable[[tuple[int, ...], int, Composition, int], Any]] = {
    "group sizes": lambda sizes, n, urns, i: sizes,
    "draws": lambda sizes, n, urns, i: n,
    "balls": lambda sizes, n, urns, i: sizes,
    "number": lambda sizes, n, urns, i: n,
    "log factorials": lambda sizes, n, urns, i: [math.lgamma(m + 1) for m in sizes],
    "falling": lambda sizes, n, urns, i: _rising(urns)[::-1],
    "rising": lambda sizes, n, urns, i: _rising(urns),
    # two groups: the law of the first, but for its weight; both counts where the first is smallest, where largest, and in column 0
    "pair": lambda sizes, n, urns, i: _with_the_rest(sizes[0], sizes[1], n, _rising(urns)[::-1]),
    "fewest": lambda sizes, n, urns, i: _both(max(0, n - sizes[1]), n),
    "most": lambda sizes, n, urns, i: _both(min(sizes[0], n), n),
    "column 0": lambda sizes, n, urns, i: _both(urns.window[1], n),
    "signs": lambda sizes, n, urns, i: (1, -1),
    # more groups: the last one holds N - n balls more, which are always drawn, so that all urns of a batch draw N
    "own": lambda sizes, n, urns, i: [_log_ways(m, _rising(urns)[::-1]) for m in sizes[:-1]],
    "last": lambda sizes, n, urns, i: _log_ways(sizes[-1], _last_counts(n, urns)),
    "last counts": lambda sizes, n, urns, i: _last_counts(n, urns),
    "windows": lambda sizes, n, urns, i: [s + w for s in range(urns.most_draws + 1) for w in range(urns.width)],
    "surplus": lambda sizes, n, urns, i: urns.most_draws - n,
    "surplus - rising": lambda sizes, n, urns, i: [urns.most_draws - n - k for k in _rising(urns)],
    # group i against all later ones as one: its law and slope, for n and for every number of draws left
    "merged": lambda sizes, n, urns, i: _with_the_rest(sizes[i], sum(sizes[i + 1 :]), n, _rising(urns)),
    "merged rows": lambda sizes, n, urns, i: _merged_rows(sizes[i], sum(sizes[i + 1 :]), urns),
    "slopes": lambda sizes, n, urns, i: _by_draws_left(_slopes(sum(sizes[i + 1 :])), 0.0, urns),
    "log shares": lambda sizes, n, urns, i: _log_shares(sizes[i + 1 :]),
}
_WHOLE = {"group sizes", "draws", "windows", "surplus", "surplus - rising"}
_SHARED = {"windows"}  # the same for all urns of a batch


def _both(first: int, draws: int) -> tuple[int, int]:
    return first, draws - first


def _last_counts(draws: int, composition: Composition) -> range:
    surplus = composition.most_draws - draws
    return range(-surplus, composition.most_draws + 1 - surplus)


# --------------------------------------------------------------------------------------------------------------------------------
# The law
# --------------------------------------------------------------------------------------------------------------------------------


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
        return cls(composition, log_weights.clamp(min=_NEVER))

    def constant(self, name: str, group: int = 0) -> Tensor:
        return constant(name, self.composition, self.log_weights.device, group)

    def reordered(self, order: Sequence[int]) -> SmallUrn:
        return SmallUrn(self.composition.reordered(order), reordered(self.log_weights, order))

    def law(self) -> Law:
        return _law_of_two_groups(self) if self.composition.groups == 2 else _law_of_many_groups(self)


def reordered(columns: Tensor, order: Sequence[int]) -> Tensor:
    """The last dimension in another order, in one operation forward and one backward."""
    parts = columns.unbind(-1)
    return columns if list(order) == list(range(len(parts))) else torch.stack([parts[j] for j in order], -1)


def with_first(group: int, groups: int) -> list[int]:
    """The order in which one group comes first."""
    return [group, *(j for j in range(groups) if j != group)]


def inverse(order: Sequence[int]) -> list[int]:
    return [order.index(j) for j in range(len(order))]


class Law(NamedTuple):
    """An urn's tables.

    Counts are taken relative to a centre that is the sure outcome, if there is one: then the covariance, which automatic differentiation
    makes from these tables, has no term larger than itself.

    Attributes:
        urn: whose they are.
        centre: the groups filled from the heaviest down, ``(..., c)``.
        first: log-weights of the first group's counts, ``(..., W)``.
        deviations: counts minus centre, one tensor a group.
        own: a_i of all groups but the last.
        joint: a_i(k) + R_{i+1}(s - k) of all groups but the first and the last, ``(..., N + 1, W)``.
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
        """log P(x) for counts ``(..., c)``, continued to real ones between 0 and m by the gamma function."""
        balls, n = self.urn.constant("balls"), self.urn.constant("number")
        reference = self.urn.log_weights.detach().amax(-1, keepdim=True)
        ways = self.urn.constant("log factorials") - torch.lgamma(x + 1) - torch.lgamma(balls - x + 1)
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
        before = pad(self.own[0], (self.rest[0].shape[-1] - width, 0), value=_IMPOSSIBLE) - self.first.logsumexp(-1, keepdim=True)
        for own, joint, deviation in zip(self.own[1:], self.joint, self.deviations[1:-1], strict=True):
            probability = (before.unsqueeze(-1) + joint).exp()
            shifts.append((probability * deviation.unsqueeze(-2)).sum((-2, -1)))
            ahead = _windows(pad(before, (0, width - 1), value=_IMPOSSIBLE), self.urn)
            before = (ahead + own.flip(-1).unsqueeze(-2)).logsumexp(-1)
        shifts.append(((before + self.rest[-1]).exp() * self.deviations[-1]).sum(-1))
        mean = self.centre + torch.stack(shifts, -1)
        # Rounding of the tables is much the same in all groups.
        return mean * (self.urn.constant("number").unsqueeze(-1) / mean.detach().sum(-1, keepdim=True).clamp(min=_TINY))

    def tail(self, largest: int) -> Tensor:
        """P(x ≥ i) of the first group for i = 1, …, largest."""
        return at_least(self.first.softmax(-1), self.urn.composition, largest)

    def sample(self, number: int) -> Tensor:
        """Draws, ``(number, ..., c)``, by inversion of one conditional distribution after the other."""
        composition = self.urn.composition
        column = _column(self.first.detach().softmax(-1).cumsum(-1), number)
        if not self.rest:
            both: Tensor = self.urn.constant("column 0")
            return torch.addcmul(both, column.to(both.dtype).unsqueeze(-1), self.urn.constant("signs"), value=-1)
        counts = [composition.width - 1 - column]
        left = composition.most_draws - counts[0]
        for joint in self.joint:
            column = _column(_row(joint.detach().softmax(-1).cumsum(-1), left))
            counts.append(composition.width - 1 - column)
            left = left - counts[-1]
        return torch.stack([*counts, left - self.urn.constant("surplus")], -1).to(self.first.dtype)


def at_least(of_counts: Tensor, composition: Composition, largest: int) -> Tensor:
    """Σ_{k ≥ i} y_k for i = 1, …, largest, from y over the falling counts of the window."""
    lowest, highest = composition.window
    tail = of_counts.cumsum(-1)[..., :-1].flip(-1)  # of i = lowest + 1, …, highest
    return pad(pad(tail, (lowest, 0), value=1.0), (0, largest - highest))


def _column(cumulative: Tensor, number: int | None = None) -> Tensor:
    """The column in which a uniform number falls, for each row; never one without probability."""
    total = cumulative[..., -1]
    uniform = torch.rand(total.shape if number is None else (number, *total.shape), dtype=total.dtype, device=total.device)
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
    centre = _filled_from_the_heaviest(log_weights.detach(), urn.constant("balls"), urn.constant("number"))
    deviations = urn.constant("falling").unsqueeze(-2) - centre[..., :-1].unsqueeze(-1)
    own = torch.addcmul(urn.constant("own"), deviations, log_weights[..., :-1].unsqueeze(-1)).unbind(-2)
    of_last = urn.constant("last counts") - centre[..., -1:]
    rest = [torch.addcmul(urn.constant("last"), of_last, log_weights[..., -1:])]
    joint: list[Tensor] = []
    for row in own[:0:-1]:
        behind = _windows(pad(rest[-1], (width - 1, 0), value=_IMPOSSIBLE), urn)
        joint.append(behind + row.unsqueeze(-2))
        rest.append(joint[-1].logsumexp(-1))
    first = own[0] + rest[-1][..., -width:]
    return Law(urn, centre, first, (*deviations.unbind(-2), of_last), own, tuple(joint[::-1]), tuple(rest[::-1]))


def _windows(values: Tensor, urn: SmallUrn) -> Tensor:
    """Row s holds values s, …, s + W - 1; not by `unfold`, whose derivative `vmap` does not know."""
    rows, urns = values.index_select(-1, urn.constant("windows")), urn.composition
    return rows.reshape(*values.shape[:-1], urns.most_draws + 1, urns.width)


def _filled_from_the_heaviest(log_weights: Tensor, group_sizes: Tensor, draws: Tensor) -> Tensor:
    """Counts if heavier balls always came first; groups of equal weight all come first among themselves, which is centre enough."""
    heavier = log_weights.unsqueeze(-2) > log_weights.unsqueeze(-1)
    left = draws.unsqueeze(-1) - torch.where(heavier, group_sizes.unsqueeze(-2), 0.0).sum(-1)
    return left.clamp(min=0).minimum(group_sizes)


# --------------------------------------------------------------------------------------------------------------------------------
# The chain rule
# --------------------------------------------------------------------------------------------------------------------------------


class Chain(NamedTuple):
    """The conditional laws of the groups one after the other, exact or `merged`, each over the same rising counts."""

    urn: SmallUrn
    law: Law | None  # None: all later groups as one, which two groups are anyhow

    @classmethod
    def build(cls, urn: SmallUrn, merged: bool) -> Chain:
        return cls(urn, None if merged or urn.composition.groups == 2 else urn.law())

    def conditional(self, group: int, draws_left: Tensor) -> Conditional:
        """α of a group's counts for the draws left ``(number, ...)``, differentiable in these as `conditionals.conditional` has it."""
        if self.law is not None and group < self.urn.composition.groups - 2:
            log_weights = self._exact(self.law, group, draws_left)
        else:
            log_weights = self._merged(group, draws_left)
        log_weights = torch.where(log_weights > 0.5 * _IMPOSSIBLE, log_weights, -torch.inf)
        lowest = torch.full_like(draws_left.detach(), self.urn.composition.window[0])
        return Conditional(lowest, log_weights.expand(*draws_left.shape, log_weights.shape[-1]))

    def _exact(self, law: Law, group: int, draws_left: Tensor) -> Tensor:
        if group == 0:
            return law.first.flip(-1)
        n, own = draws_left.detach(), law.own[group].flip(-1)
        index = n.to(torch.int64).unsqueeze(-1) + self.urn.constant("surplus - rising")
        rest = law.rest[group].expand(*n.shape, -1).gather(-1, index.clamp(min=0))
        log_weights = torch.where(index >= 0, own + rest, _IMPOSSIBLE)
        if draws_left.requires_grad:
            slope = -central_differences(rest.detach(), log_weights.detach() > 0.5 * _IMPOSSIBLE)
            log_weights = log_weights + (draws_left - n).unsqueeze(-1) * slope
        return log_weights

    def _merged(self, group: int, draws_left: Tensor) -> Tensor:
        log_weights = self.urn.log_weights
        later = log_weights[..., group + 1 :]
        if later.shape[-1] > 1:
            later = (later + self.urn.constant("log shares", group)).logsumexp(-1, keepdim=True)
        ratio, counts = log_weights[..., group : group + 1] - later, self.urn.constant("rising")
        if group == 0:
            return torch.addcmul(self.urn.constant("merged"), counts, ratio)
        law = torch.addcmul(self._row("merged rows", group, draws_left), counts, ratio)
        if draws_left.requires_grad:
            law = law + (draws_left - draws_left.detach()).unsqueeze(-1) * self._row("slopes", group, draws_left)
        return law

    def _row(self, name: str, group: int, draws_left: Tensor) -> Tensor:
        """The row of a table ``(..., N + 1, W)`` that belongs to the draws left."""
        return _row(self.urn.constant(name, group), draws_left.detach().to(torch.int64))


def _row(table: Tensor, row: Tensor) -> Tensor:
    """Rows ``(number, ...)`` of tables ``(..., R, W)``."""
    index = row[..., None, None].expand(*row.shape, 1, table.shape[-1])
    return table.expand(*row.shape, *table.shape[-2:]).gather(-2, index).squeeze(-2)
