"""The arguments, checks and support that Fisher's and Wallenius' urns share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from diffurn import _constraints as urn_constraints
from diffurn._composition import Composition, PlainSizes, are_single_balls, composition_of
from diffurn._fisher import fused
from diffurn._fisher.constants import constants_of
from diffurn._law import Law, Race, most_balls
from diffurn._marginals import Marginals
from diffurn._numerics.autograd import asks_for_derivative, is_transforming
from diffurn._numerics.enumeration import are_outcomes, enumerate_counts
from diffurn._numerics.tracing import can_check, can_read
from diffurn._validation import (
    as_counts,
    as_float_tensor,
    as_integer_tensor,
    require,
    require_broadcast,
)
from diffurn.estimators import CovarianceST, Estimator
from diffurn.estimators.estimator import require_estimator

if TYPE_CHECKING:
    from typing_extensions import Self


ENUMERATION_LIMIT = 1_000_000
# The weight that stands for zero, relative to the smallest other one, while derivatives in it are
# asked for.
_NEGLIGIBLE = math.exp(-300)
# So many numbers are checked faster in Python than by PyTorch.
_FEW_NUMBERS = 64


class _Facts(NamedTuple):
    """What the checks of valid arguments found out."""

    positive_weights: bool
    equal_weights: bool


class Urn(Distribution):
    """An urn of m = `group_sizes` balls with weights ω, from which n = `draws` are taken.

    A subclass is the law of the counts.
    """

    arg_constraints = {  # noqa: RUF012 (torch's own convention)
        "group_sizes": urn_constraints.group_sizes,
        "draws": urn_constraints.draws,
        "weights": urn_constraints.weights,
        "log_weights": urn_constraints.log_weights,
    }
    has_enumerate_support = True

    # Whether results have derivatives in weights of zero.
    _has_slopes_at_zero = True

    _known_facts: _Facts | None = None
    _has_rsample: bool | None = None

    group_sizes: Tensor
    draws: Tensor

    def __init__(
        self,
        group_sizes: Any,
        draws: Any,
        weights: Any = None,
        log_weights: Any = None,
        estimator: Estimator | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if (weights is None) == (log_weights is None):
            given = "neither" if weights is None else "both"
            raise ValueError(f"give either weights or log_weights, got {given}")
        self._is_log = log_weights is not None
        name = "log_weights" if self._is_log else "weights"
        parameter = as_float_tensor(name, log_weights if self._is_log else weights)
        validate = Distribution._validate_args if validate_args is None else validate_args
        check = validate and can_check()
        sizes, number = self._read_sizes(group_sizes, draws, parameter, check)
        if not (sizes.ndim and parameter.ndim and sizes.shape[-1] and parameter.shape[-1]):
            shapes = f"group_sizes {tuple(sizes.shape)} and {name} {tuple(parameter.shape)}"
            raise ValueError(f"{shapes} both need a last dimension of groups, one or more")
        full = sizes.shape
        if full != parameter.shape or full[:-1] != number.shape:
            described = {"group_sizes": sizes.shape, name: parameter.shape, "draws": number.shape}
            full = require_broadcast(described, full, parameter.shape, (*number.shape, 1))
        # torch reads whole numbers faster than a shape.
        self.group_sizes = sizes if sizes.shape == full else sizes.expand(*full)
        self.draws = number if number.shape == full[:-1] else number.expand(*full[:-1])
        # A leaf stays the leaf it is, so that an urn with learned weights can be copied.
        self._given = parameter if parameter.shape == full else parameter.expand(full)
        # Our own checks say more than torch's, which are skipped.
        super().__init__(full[:-1], full[-1:], validate_args=False)
        self._validate_args = validate
        self._remember(self._check_arguments() if check else None)
        self._estimator = self._checked_estimator(estimator)

    def _read_sizes(
        self, group_sizes: Any, draws: Any, parameter: Tensor, check: bool
    ) -> tuple[Tensor, Tensor]:
        """m and n as int64 tensors; those of small urns are also kept as plain numbers."""
        device = parameter.device
        self._single_balls = are_single_balls(group_sizes)
        plain = PlainSizes.read(group_sizes, draws, parameter.shape)
        self._sizes = None if plain is None else composition_of(plain)
        self._most_draws: int | None = None if plain is None else max(plain.draws)
        if self._sizes is not None:
            # Sizes read on the CPU were validated there and are cached on the device, so no
            # synchronising copy is needed. The urn gets copies of the cached tensors.
            cached = constants_of(self._sizes, device)
            return cached.group_sizes.clone(), cached.draws.clone()
        if plain is None or torch.compiler.is_compiling():
            self._most_draws = None
            sizes = as_integer_tensor("group_sizes", group_sizes, device, check)
            return sizes, as_integer_tensor("draws", draws, device, check)
        if not plain.shape:
            row = plain.group_sizes[0]
            if row.count(row[0]) == len(row):  # no copy to the device, which would synchronise
                sizes = torch.full((len(row),), row[0], dtype=torch.int64, device=device)
            else:
                sizes = torch.tensor(row, device=device)
            return sizes, torch.scalar_tensor(plain.draws[0], dtype=torch.int64, device=device)
        distinct = plain.group_sizes[:1] if plain.equal_rows else plain.group_sizes
        rows = torch.tensor(distinct, device=device).expand(len(plain.group_sizes), -1)
        number = torch.tensor(plain.draws, device=device)
        return rows.reshape(*plain.shape, -1), number.reshape(plain.shape)

    def _checked_estimator(self, estimator: Any) -> Estimator | None:
        if estimator is None:
            return None
        checked = require_estimator(estimator)
        if checked.needs_order:
            raise ValueError(
                f"estimator is {checked!r}, which is for a RandomPartition; an urn has no order of "
                "items"
            )
        checked.check(self.event_shape[0])
        return checked

    # ----------------------------------------------------------------------------------------------
    # Arguments: checked once, and watched for changes in place
    # ----------------------------------------------------------------------------------------------

    def _remember(self, facts: _Facts | None) -> None:
        self._known_facts = facts
        self._known_versions = self._versions()

    def _versions(self) -> tuple[int, ...] | None:
        """How often the arguments were changed in place; None where torch does not count."""
        if torch.compiler.is_compiling():
            return None
        try:
            return self.group_sizes._version, self.draws._version, self._given._version
        except RuntimeError:  # in inference mode
            return None

    def __getstate__(self) -> dict[str, Any]:
        unchanged = {"_sizes": self._composition, "_single_balls": self._has_single_balls()}
        return {**self.__dict__, **unchanged, "_known_facts": self._facts()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._remember(self._known_facts)  # torch counts the changes of copies anew

    @property
    def _composition(self) -> Composition | None:
        """The sizes of a small urn as plain numbers, unless they were changed in place."""
        if self._sizes is None:
            return None
        versions, known = self._versions(), self._known_versions
        if versions is None or known is None or versions[:2] == known[:2]:
            return self._sizes
        return None

    def _has_single_balls(self) -> bool:
        """Whether it was given as numbers, and not changed in place, that all m_j ≤ 1."""
        if not self._single_balls:
            return False
        versions, known = self._versions(), self._known_versions
        return versions is None or known is None or versions[0] == known[0]

    def _facts(self) -> _Facts | None:
        """Facts about valid arguments; None if they were not checked, or changed in place since."""
        if self._known_facts is None or self._known_versions is None:
            return None
        return self._known_facts if self._versions() == self._known_versions else None

    def _is_positive(self) -> bool:
        """Whether all weights are known to be positive."""
        facts = self._facts()
        return facts is not None and facts.positive_weights

    def _is_valid(self) -> Tensor:
        """Whether each urn has valid weights and enough drawable balls: shape (...)."""
        given = self._given.detach()
        if given.is_cuda:
            arguments = given, self.group_sizes, self.draws, self._is_log
            if (by_kernel := fused.are_valid(*arguments)) is not None:
                return by_kernel
        valid = given < torch.inf if self._is_log else (given >= 0) & (given < torch.inf)
        balls = self._drawable().sum(-1)
        return (valid & (self.group_sizes >= 0)).all(-1) & (self.draws >= 0) & (self.draws <= balls)

    def _or_nan(self, result: Tensor, event_dims: int = 0) -> Tensor:
        """A result in the dtype of the weights; NaN where the urn is not valid."""
        if self._facts() is None:
            valid = self._is_valid()[(...,) + (None,) * event_dims]
            result = torch.where(valid, result, torch.nan)
        return result.to(self.dtype)

    def _check_arguments(self) -> _Facts:
        """Raises an error unless all urns are valid; positive weights take one synchronisation."""
        given = self._given.detach()
        if not self.draws.numel():
            self._most_draws = 0
            return _Facts(False, False)
        possible = self._most_draws is not None  # read as plain numbers
        if possible and given.numel() <= _FEW_NUMBERS and can_read(given):
            low, high = _range_of(given.reshape(-1).tolist())
        elif possible:
            low, high = torch.stack(given.aminmax()).tolist()
        else:
            enough = (self.draws <= self.group_sizes.sum(-1)).all()
            found = torch.stack([x.double() for x in (*given.aminmax(), enough, self.draws.amax())])
            low, high, possible, most = found.tolist()
            self._most_draws = int(most)
        positive = (-math.inf if self._is_log else 0.0) < low <= high < math.inf
        if not (possible and positive):
            self._require_valid()
        return _Facts(positive, positive and low == high)

    def _require_valid(self) -> None:
        if bool(self._is_valid().all()):
            return
        given = self._given.detach()
        if self._is_log:
            rule = "a log-weight must be a number below +inf (-inf is weight zero)"
            require("log_weights", given, given < torch.inf, rule)
        else:
            rule = "a weight must be a finite number ≥ 0"
            require("weights", given, (given >= 0) & (given < torch.inf), rule)
        balls = self.group_sizes.sum(-1)
        rule = f"cannot exceed the number of balls, {_span(balls)}"
        require("draws", self.draws, self.draws <= balls, rule)
        drawable = self._drawable().sum(-1)
        rule = f"cannot exceed the number of balls with positive weight, {_span(drawable)}"
        require("draws", self.draws, self.draws <= drawable, rule)

    # ----------------------------------------------------------------------------------------------
    # Weights
    # ----------------------------------------------------------------------------------------------

    # Made anew in every call, since optimisers change weights in place.
    @property
    def log_weights(self) -> Tensor:
        return self._given if self._is_log else self._given.log()

    @property
    def weights(self) -> Tensor:
        return self._given.exp() if self._is_log else self._given

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights, of draws and of every result."""
        return self._given.dtype

    def _never_drawn(self) -> Tensor:
        return self._given.detach() == (-torch.inf if self._is_log else 0)

    def _drawable(self) -> Tensor:
        """Group sizes with the groups of weight zero emptied."""
        if self._is_positive():
            return self.group_sizes
        return self.group_sizes.masked_fill(self._never_drawn(), 0)

    def _keeps_zeros(self) -> bool:
        """Whether groups of weight zero stay in the urn, for the sake of derivatives in ω.

        Otherwise they are emptied, which does not change the other groups. Log-weights of -inf have
        no derivative.
        """
        if self._is_log or not self._has_slopes_at_zero or self._is_positive():
            return False
        if not (asks_for_derivative(self.weights) or is_transforming()):
            return False
        return not can_read(self.weights) or bool((self.weights == 0).any())

    def _operands(self) -> tuple[Tensor, Tensor, Tensor]:
        """log ω, m and n in float64, with finite log-weights: groups of weight zero are emptied.

        n is NaN, for which samplers do not wait, where an urn is not valid.
        """
        facts = self._facts()
        if facts is None and self._given.is_cuda:
            arguments = self._given, self.group_sizes, self.draws, self._is_log
            if (by_kernel := fused.operands(*arguments)) is not None:
                return by_kernel
        given, sizes, draws = self._given.double(), self.group_sizes.double(), self.draws.double()
        if facts is not None and facts.positive_weights:
            return given if self._is_log else given.log(), sizes, draws
        if facts is None:
            draws = torch.where(self._is_valid(), draws, torch.nan)
        if self._keeps_zeros():
            given = _without_zeros(given)
        else:
            never = self._never_drawn()
            given = torch.where(never, 0.0 if self._is_log else 1.0, given)
            sizes = sizes.masked_fill(never, 0.0)
        return given if self._is_log else given.log(), sizes, draws

    def _finite_log_weights(self) -> Tensor:
        """log ω in float64 for tables: -inf for weight zero, 0 where an urn is not valid."""
        given, facts = self._given.double(), self._facts()
        if (facts is None or not facts.positive_weights) and self._keeps_zeros():
            given = _without_zeros(given)
        log_weights = given if self._is_log else given.log()
        if facts is None:
            log_weights = torch.where(self._is_valid().unsqueeze(-1), log_weights, 0.0)
        return log_weights

    def _fixed(self) -> Tensor:
        """Counts that cannot vary: of weight zero, and all if every ball or one group is drawn."""
        drawable = self._drawable()
        certain = (self.draws == drawable.sum(-1)) | ((drawable > 0).sum(-1) <= 1)
        return self._never_drawn() | certain.unsqueeze(-1)

    def _fixed_pairs(self) -> Tensor:
        """Pairs of groups of which one count cannot vary: shape (..., c, c)."""
        fixed = self._fixed()
        return fixed.unsqueeze(-1) | fixed.unsqueeze(-2)

    # ----------------------------------------------------------------------------------------------
    # The distribution
    # ----------------------------------------------------------------------------------------------

    @property
    def estimator(self) -> Estimator:
        """How `rsample` differentiates."""
        return CovarianceST() if self._estimator is None else self._estimator

    @estimator.setter
    def estimator(self, estimator: Estimator | None) -> None:
        self._estimator = self._checked_estimator(estimator)

    @property
    def has_rsample(self) -> bool:
        """Whether an estimator was given. `rsample` works without one, by `CovarianceST`."""
        return self._estimator is not None if self._has_rsample is None else self._has_rsample

    @has_rsample.setter
    def has_rsample(self, value: bool) -> None:  # as Pyro's ``has_rsample_`` does
        self._has_rsample = value

    @property
    def support(self) -> constraints.Constraint:
        return urn_constraints.urn_counts(self.group_sizes, self.draws)

    @property
    def marginals(self) -> Marginals:
        """The law of each group on its own: `log_prob`, `cdf`, `sf`, `icdf` and more."""
        return Marginals(self)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Exact draws, holding integers with 0 ≤ x ≤ m and Σx = n, in the dtype of the weights."""
        shape, num_samples = self._shape_of_draws(sample_shape)
        with torch.no_grad():
            counts = self._fused_draws(num_samples) if self._given.is_cuda else None
            if counts is not None:
                return counts.reshape(shape)
            counts = self._law_for_draws(num_samples).sample(num_samples, self.dtype)
            return self._or_nan(counts.reshape(shape), event_dims=1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws that carry gradients, as the `estimator` defines them."""
        shape, num_samples = self._shape_of_draws(sample_shape)
        if self._given.is_cuda and type(self.estimator) is CovarianceST:
            counts = self._fused_draws(num_samples)
            if counts is not None:
                return counts.reshape(shape)
        counts = self.estimator.rsample(self._law_for_estimator(num_samples), num_samples)
        return self._or_nan(counts.reshape(shape), event_dims=1)

    def rank_indicators(self, group: int, sample_shape: Any = ()) -> tuple[Tensor, Tensor]:
        """Draws as from `rsample`, and with them b_i = 1[i ≤ x_group] for i = 1, …, m_group.

        The indicators, ``sample_shape + (..., m_group)``, are for models that use a count as a
        threshold ("the first x"), where the count itself carries no gradient; the `estimator`
        defines theirs. In a batch of different group sizes the largest sets the length.
        """
        groups = self.event_shape[0]
        if not -groups <= group < groups:
            raise IndexError(f"group is {group}, but the urn has the groups 0 to {groups - 1}")
        shape, num_samples = self._shape_of_draws(sample_shape)
        law, group = self._law_for_estimator(num_samples), group % groups
        counts, indicators = self.estimator.rank_indicators(law, num_samples, group)
        indicators = indicators.reshape(*shape[:-1], indicators.shape[-1])
        if not self._is_positive():  # a law leaves out the balls of weight zero
            missing = self._largest(group) - indicators.shape[-1]
            indicators = torch.nn.functional.pad(indicators, (0, missing))
        counts = self._or_nan(counts.reshape(shape), event_dims=1)
        return counts, self._or_nan(indicators, event_dims=1)

    def _largest(self, group: int) -> int:
        """The most balls that the group has in any urn of the batch."""
        if self._composition is not None:
            return self._composition.largest(group)
        return most_balls(self.group_sizes, group)

    def _fused_draws(self, num_samples: int) -> Tensor | None:
        """Finished draws with the derivative of the mean by few kernels, or None without them."""
        return None

    def _law_for_estimator(self, num_samples: int) -> Law:
        if self.estimator.needs_conditionals:
            return self._law_for_chains(num_samples)
        if self.estimator.needs_perturbed_weights:
            return self._law_for_races()
        return self._law_for_draws(num_samples)

    def _law_for_draws(self, num_samples: int) -> Law:
        raise NotImplementedError

    def _law_for_chains(self, num_samples: int) -> Law:
        raise NotImplementedError

    def _law_for_races(self) -> Race:
        raise NotImplementedError

    def _law_for_marginals(self, x: Tensor) -> Law:
        raise NotImplementedError

    def __repr__(self) -> str:
        names = "group_sizes", "draws", "log_weights" if self._is_log else "weights"
        shown = [f"{name}: {_shown(getattr(self, name))}" for name in names]
        if self._estimator is not None:
            shown.append(f"estimator: {self._estimator!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        new = self._get_checked_instance(type(self), _instance)
        batch_shape = torch.Size(batch_shape)
        full = batch_shape + self.event_shape
        new._is_log, new._sizes, new._most_draws = self._is_log, self._sizes, self._most_draws
        new._single_balls = self._has_single_balls()
        new._estimator, new._has_rsample = self._estimator, self._has_rsample
        new.group_sizes, new.draws = self.group_sizes.expand(full), self.draws.expand(batch_shape)
        new._given = self._given.expand(full)
        super(Urn, new).__init__(batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        new._remember(self._facts())
        if self._composition is None:
            new._sizes = None
        return cast("Self", new)

    def _unchecked(self) -> Self:
        """The same urn with weights in float64, which does not check values."""
        new = self.expand(self.batch_shape)
        new._given, new._validate_args = self._given.double(), False
        new._remember(self._facts())
        return new

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All outcomes in lexicographic order, shape ``(outcomes, ..., c)``.

        The urns of a batch must share m and n.
        """
        sizes, number = self.group_sizes.reshape(-1, *self.event_shape), self.draws.reshape(-1)
        if not len(number):
            raise NotImplementedError("enumerate_support needs an urn, but the batch is empty")
        if not (bool((sizes == sizes[:1]).all()) and bool((number == number[:1]).all())):
            raise NotImplementedError(
                "enumerate_support needs the same group sizes and draws in the whole batch"
            )
        m, n = sizes[0].tolist(), int(number[0])
        outcomes = enumerate_counts(m, n, ENUMERATION_LIMIT)
        if outcomes is None:
            limit = f"{ENUMERATION_LIMIT:,}"
            raise ValueError(f"the support of m = {m}, n = {n} has more than {limit} outcomes")
        outcomes = outcomes.to(self.dtype).to(self.draws.device)
        outcomes = outcomes.reshape(-1, *(1,) * len(self.batch_shape), *self.event_shape)
        if not expand:
            return outcomes
        return outcomes.expand(-1, *self.batch_shape, *self.event_shape)

    # ----------------------------------------------------------------------------------------------
    # Values
    # ----------------------------------------------------------------------------------------------

    def _with_groups(self, value: Any) -> Tensor:
        """A tensor whose last dimension is the groups and whose others broadcast with the batch."""
        value = as_counts("value", value, self.draws.device)
        if value.shape[-1:] != self.event_shape:
            groups = self.event_shape[0]
            raise ValueError(
                f"value has shape {tuple(value.shape)}, but its last dimension must be the "
                f"{groups} groups"
            )
        if value.shape[:-1] != self.batch_shape:
            batches = {"value": value.shape[:-1], "batch_shape": self.batch_shape}
            require_broadcast(batches, *batches.values())
        return cast(Tensor, value)

    def _checked_counts(self, value: Any) -> tuple[Tensor, bool]:
        """Counts of one draw in float64, and whether they were checked."""
        value = self._with_groups(value)
        x: Tensor = value.double()
        if not (self._validate_args and can_check()):
            return x, False
        counts = x.detach()
        if are_outcomes(counts, self.group_sizes.double(), self.draws.double()):
            return x, True
        possible = (counts == counts.floor()) & (counts >= 0) & (counts <= self.group_sizes)
        total = counts.sum(-1)
        rule = "counts must be integers from 0 to the size of their group"
        require("value", value, possible, rule)
        rule = f"the counts must sum to the draws, {_span(self.draws)}"
        require("value.sum(-1)", total, total == self.draws, rule)
        return x, True

    def _is_outside(self, x: Tensor) -> Tensor:
        """Which counts ``(..., c)`` are outside the support; NaN is not."""
        x = x.detach()
        incomplete = (self.draws - x.sum(-1)).abs() >= 0.5
        return incomplete | ((x < 0) | (x > self._drawable())).any(-1)

    def _marginal_support(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest possible count of each group, float64."""
        drawable, draws = self._drawable().double(), self.draws.double().unsqueeze(-1)
        others = drawable.sum(-1, keepdim=True) - drawable
        return (draws - others).clamp(min=0), torch.minimum(drawable, draws)

    def _shape_of_draws(self, sample_shape: Any) -> tuple[torch.Size, int]:
        """The shape of draws, and their number for each urn; refuses what the dtype cannot hold."""
        self._check_dtype_holds_draws()
        return self._extended_shape(torch.Size(sample_shape)), math.prod(sample_shape)

    def _check_dtype_holds_draws(self) -> None:
        largest = int(2 / torch.finfo(self.dtype).eps)
        if self._most_draws is not None and self._most_draws <= largest:
            return
        if self._validate_args and can_check():
            rule = f"{self.dtype} holds counts exactly only up to {largest}; use float64 weights"
            require("draws", self.draws, self.draws <= largest, rule)


def require_equal_sizes(p: Urn, q: Urn) -> None:
    """Raises a NotImplementedError unless two urns, of which a KL is asked for, hold the same."""
    sizes = p.group_sizes, q.group_sizes
    if p.event_shape != q.event_shape or (can_check() and not bool((sizes[0] == sizes[1]).all())):
        shown = " and ".join(str(each.tolist()) for each in sizes)
        raise NotImplementedError(f"KL needs equal group sizes, got {shown}")


def _without_zeros(weights: Tensor) -> Tensor:
    """Weights with zeros replaced by e^-300 of the smallest other one, so that slopes survive.

    The smallest float64 is e^-708, so the replacements matter where other weights are below e^-670.
    """
    zero = weights == 0
    smallest = torch.where(zero, torch.inf, weights.detach()).amin(-1, keepdim=True)
    return weights + torch.where(zero, (_NEGLIGIBLE * smallest).clamp(1e-307, 1.0), 0.0)


def _range_of(numbers: list[float]) -> tuple[float, float]:
    """The smallest and the largest number; NaN if one is NaN."""
    if math.isnan(sum(numbers)):
        return math.nan, math.nan
    return min(numbers), max(numbers)


def _shown(tensor: Tensor) -> str:
    """Few numbers as they are, many as their shape."""
    if can_check() and tensor.numel() <= 8 and tensor.ndim <= 1 and tensor.device.type == "cpu":
        entries = tensor.detach().tolist()
        numbers = entries if isinstance(entries, list) else [entries]
        text = ", ".join(f"{number:.6g}" for number in numbers)
        return f"[{text}]" if tensor.ndim else text
    return f"shape {tuple(tensor.shape)}"


def _span(values: Tensor) -> str:
    """A limit across a batch, such as 7, or from 3 to 7."""
    if not values.numel():
        return "of which there are none"
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"from {low} to {high}"
