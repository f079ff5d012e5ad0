"""What Fisher's and Wallenius' urns have in common: their arguments, their checks and their
support.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from diffurn import _constraints as urn_constraints
from diffurn import _fisher as exact
from diffurn._composition import Composition, composition_of
from diffurn._fisher.constants import constant
from diffurn._numerics.tracing import can_check, is_vmapping
from diffurn._validation import (
    as_counts,
    as_float64_tensor,
    as_float_tensor,
    as_integer_tensor,
    require,
    require_broadcast,
)

if TYPE_CHECKING:
    from typing_extensions import Self

ENUMERATION_LIMIT = 1_000_000


class _Derived:
    """A parameter made from the one that was given; never remembered, since optimisers change
    weights in place.
    """

    def __init__(self, derive: Callable[[Any], Tensor]) -> None:
        self.derive = derive

    def __get__(self, instance: Any, owner: type) -> Tensor:
        return cast(Tensor, self if instance is None else self.derive(instance))


class Urn(Distribution):
    """An urn of m = `group_sizes` balls with weights ω, from which n = `draws` are taken; a law of
    the counts is a subclass.
    """

    arg_constraints = {  # noqa: RUF012 (torch's own convention)
        "group_sizes": urn_constraints.group_sizes,
        "draws": urn_constraints.draws,
        "weights": urn_constraints.weights,
        "log_weights": urn_constraints.log_weights,
    }
    has_rsample = True
    has_enumerate_support = True

    group_sizes: Tensor
    draws: Tensor

    def __init__(
        self,
        group_sizes: Any,
        draws: Any,
        weights: Any = None,
        log_weights: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if (weights is None) == (log_weights is None):
            raise ValueError(
                "give either weights or log_weights, got "
                f"{'neither' if weights is None else 'both'}"
            )
        self._parameter = "weights" if log_weights is None else "log_weights"
        parameter = as_float_tensor(
            self._parameter, weights if log_weights is None else log_weights
        )
        check = (
            Distribution._validate_args if validate_args is None else validate_args
        ) and can_check()
        # Sizes of small urns that were read on the CPU are valid and cached on the device, so no
        # synchronising copy is needed.
        self._known_sizes = composition_of(group_sizes, draws, parameter.shape)
        if self._known_sizes is None:
            sizes = as_integer_tensor("group_sizes", group_sizes, parameter.device, check)
            number = as_integer_tensor("draws", draws, parameter.device, check)
        else:
            sizes = constant("group sizes", self._known_sizes, parameter.device)
            number = constant("draws", self._known_sizes, parameter.device)
        if (
            0 in (*sizes.shape[-1:], *parameter.shape[-1:])
            or sizes.ndim == 0
            or parameter.ndim == 0
        ):
            shapes = (
                f"group_sizes {tuple(sizes.shape)} and {self._parameter} {tuple(parameter.shape)}"
            )
            raise ValueError(f"{shapes} both need a last dimension of groups, one or more")
        described = {
            "group_sizes": sizes.shape,
            self._parameter: parameter.shape,
            "draws": number.shape,
        }
        full = require_broadcast(described, sizes.shape, parameter.shape, (*number.shape, 1))
        cached = self._known_sizes is not None
        self.group_sizes, self.draws = (
            _expanded(sizes, full, cached),
            _expanded(number, full[:-1], cached),
        )
        # A leaf stays the leaf it is, so that an urn with learned weights can be copied.
        setattr(
            self, self._parameter, parameter if parameter.shape == full else parameter.expand(full)
        )
        # Our own checks say more than torch's, so torch is told to skip its.
        super().__init__(full[:-1], full[-1:], validate_args=False)
        self._validate_args = (
            Distribution._validate_args if validate_args is None else validate_args
        )
        self._most_draws: int | None = (
            None if self._known_sizes is None else self._known_sizes.most_draws
        )
        if check:
            self._check_arguments()
        self._remember_versions(check)

    def _remember_versions(self, checked: bool) -> None:
        self._versions_of_sizes = _versions(self.group_sizes, self.draws)
        self._versions_checked = (
            _versions(getattr(self, self._parameter), self.group_sizes, self.draws)
            if checked
            else None
        )

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_known_sizes": self._composition,
            "_is_checked_copy": self._is_checked(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        checked = state.pop("_is_checked_copy")
        self.__dict__.update(state)
        self._remember_versions(checked)  # torch counts anew for copies

    @property
    def _composition(self) -> Composition | None:
        """The sizes of a small urn as plain numbers, unless they were changed in place."""
        return (
            self._known_sizes
            if _versions(self.group_sizes, self.draws) in (None, self._versions_of_sizes)
            else None
        )

    def _is_checked(self) -> bool:
        """Whether the arguments were found valid and have not been changed in place since, by a
        diverging optimiser for instance.
        """
        if self._versions_checked is None:
            return False
        return (
            _versions(getattr(self, self._parameter), self.group_sizes, self.draws)
            == self._versions_checked
        )

    def _is_valid(self) -> Tensor:
        """Whether each urn has weights that are weights, and as many drawable balls as draws: shape
        (...), without synchronisation.
        """
        parameter: Tensor = getattr(self, self._parameter).detach()
        valid = (
            (parameter >= 0) & (parameter < torch.inf)
            if self._parameter == "weights"
            else parameter < torch.inf
        )
        sizes = self.group_sizes
        return (
            (valid & (sizes >= 0)).all(-1)
            & (self.draws >= 0)
            & (self.draws <= self._drawable().sum(-1))
        )

    def _or_nan(self, result: Tensor, event_dims: int = 0) -> Tensor:
        """A result in the dtype of the weights, and NaN where the urn is not valid: never a number
        that only looks like one.
        """
        if not self._is_checked():
            result = torch.where(self._is_valid()[(...,) + (None,) * event_dims], result, torch.nan)
        return result.to(self.dtype)

    def _draws_or_nan(self) -> Tensor:
        """n in float64; NaN, on which no sampler waits, where the urn is not valid."""
        draws: Tensor = self.draws.double()
        return draws if self._is_checked() else torch.where(self._is_valid(), draws, torch.nan)

    def _check_arguments(self) -> None:
        parameter = getattr(self, self._parameter).detach()
        if self._known_sizes is not None and self._are_weights_positive_and_finite():
            return  # and the draws are known not to exceed the balls
        if not self.draws.numel():
            self._most_draws = 0
            return
        # One synchronisation for urns whose weights are all positive, as most are; what follows
        # only finds out what is wrong.
        enough = (self.draws <= self.group_sizes.sum(-1)).all()
        found = torch.stack(
            [value.double() for value in (*parameter.aminmax(), enough, self.draws.amax())]
        )
        low, high, possible, most = found.tolist()
        self._most_draws = int(most)
        if (
            possible
            and (0.0 if self._parameter == "weights" else -math.inf) < low <= high < math.inf
        ) or bool(self._is_valid().all()):
            return
        if self._parameter == "weights":
            require(
                "weights",
                parameter,
                (parameter >= 0) & (parameter < torch.inf),
                "a weight must be a finite number ≥ 0",
            )
        else:
            require(
                "log_weights",
                parameter,
                parameter < torch.inf,
                "a log-weight must be a number below +inf (-inf is weight zero)",
            )
        total = self.group_sizes.sum(-1)
        require(
            "draws",
            self.draws,
            self.draws <= total,
            f"cannot exceed the number of balls, {_span(total)}",
        )
        drawable = self._drawable().sum(-1)
        require(
            "draws",
            self.draws,
            self.draws <= drawable,
            f"cannot exceed the number of balls with positive weight, {_span(drawable)}",
        )

    @_Derived
    def log_weights(self) -> Tensor:
        return self.weights.log()

    @_Derived
    def weights(self) -> Tensor:
        return self.log_weights.exp()

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights, of draws and of every result."""
        parameter: Tensor = getattr(self, self._parameter)
        return parameter.dtype

    @property
    def support(self) -> constraints.Constraint:
        return urn_constraints.urn_counts(self.group_sizes, self.draws)

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{name}: {tuple(getattr(self, name).shape)}"
            for name in ("group_sizes", "draws", self._parameter)
        )
        return f"{type(self).__name__}({shapes})"

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        new = self._get_checked_instance(type(self), _instance)
        batch_shape = torch.Size(batch_shape)
        full = batch_shape + self.event_shape
        for name in (
            "_parameter",
            "_known_sizes",
            "_most_draws",
            "_versions_of_sizes",
            "_versions_checked",
        ):
            setattr(new, name, getattr(self, name))
        new.group_sizes, new.draws = self.group_sizes.expand(full), self.draws.expand(batch_shape)
        setattr(new, self._parameter, getattr(self, self._parameter).expand(full))
        super(Urn, new).__init__(batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return cast("Self", new)

    def _detached_log_weights(self) -> Tensor:
        return self._as_log_weights(getattr(self, self._parameter).detach().double())

    def _as_log_weights(self, parameter: Tensor) -> Tensor:
        return parameter.log() if self._parameter == "weights" else parameter

    def _never_drawn(self) -> Tensor:
        parameter: Tensor = getattr(self, self._parameter).detach()
        return parameter == (0 if self._parameter == "weights" else -torch.inf)

    def _drawable(self) -> Tensor:
        """Group sizes with the groups of weight zero emptied."""
        return self.group_sizes.masked_fill(self._never_drawn(), 0)

    def _are_weights_positive_and_finite(self) -> bool:
        parameter = getattr(self, self._parameter).detach()
        if not parameter.numel():
            return True
        low, high = parameter.aminmax()
        return bool(
            (low > (0 if self._parameter == "weights" else -torch.inf)) & (high < torch.inf)
        )

    def _fixed(self) -> Tensor:
        """Counts that cannot vary: of groups of weight zero, and all if every other ball is drawn
        or one group alone can be.
        """
        drawable = self._drawable()
        certain = (self.draws == drawable.sum(-1)) | ((drawable > 0).sum(-1) <= 1)
        return self._never_drawn() | certain.unsqueeze(-1)

    def _fixed_pairs(self) -> Tensor:
        """Pairs of groups of which one count cannot vary: shape (..., c, c)."""
        fixed = self._fixed()
        return fixed.unsqueeze(-1) | fixed.unsqueeze(-2)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All outcomes in lexicographic order, shape ``(outcomes, ..., c)``; urns of one batch must
        share m and n.
        """
        sizes, number = self.group_sizes.reshape(-1, *self.event_shape), self.draws.reshape(-1)
        if not len(number):
            raise NotImplementedError("enumerate_support needs an urn, but the batch is empty")
        if not (bool((sizes == sizes[:1]).all()) and bool((number == number[:1]).all())):
            raise NotImplementedError(
                "enumerate_support needs the same group sizes and draws in the whole batch"
            )
        outcomes = exact.enumerate_counts(sizes[0].tolist(), int(number[0]), ENUMERATION_LIMIT)
        if outcomes is None:
            raise ValueError(
                f"the support of m = {sizes[0].tolist()}, n = {int(number[0])} has more than "
                f"{ENUMERATION_LIMIT:,} outcomes"
            )
        outcomes = outcomes.to(self.dtype).to(self.draws.device)
        outcomes = outcomes.reshape(-1, *(1,) * len(self.batch_shape), *self.event_shape)
        return outcomes.expand(-1, *self.batch_shape, *self.event_shape) if expand else outcomes

    def _with_groups(self, value: Any) -> Tensor:
        """A tensor whose last dimension is the groups and whose others broadcast with the batch."""
        value = as_counts("value", value, self.draws.device)
        if value.shape[-1:] != self.event_shape:
            raise ValueError(
                f"value has shape {tuple(value.shape)}, but its last dimension must be the "
                f"{self.event_shape[0]} groups"
            )
        batches = {"value": value.shape[:-1], "batch_shape": self.batch_shape}
        require_broadcast(batches, *batches.values())
        return cast(Tensor, value)

    def _checked_value(self, value: Any, joint: bool = True) -> Tensor:
        """Counts in float64; those of one draw (`joint`) or of each group on its own."""
        value = self._with_groups(value)
        x: Tensor = value.double()
        if self._validate_args and can_check():
            counts = x.detach()
            whole = counts == counts.floor()
            if joint:
                self._check_counts(
                    value, whole & (counts >= 0) & (counts <= self.group_sizes), counts.sum(-1)
                )
            else:
                require(
                    "value", value, whole & (counts.abs() < torch.inf), "counts must be integers"
                )
        return x

    def _check_counts(self, value: Tensor, possible: Tensor, total: Tensor) -> None:
        complete = total == self.draws
        if bool(possible.all() & complete.all()):  # a device is asked once, as for arguments
            return
        require(
            "value", value, possible, "counts must be integers from 0 to the size of their group"
        )
        require(
            "value.sum(-1)",
            total,
            complete,
            f"the counts must sum to the draws, {_span(self.draws)}",
        )

    def _marginal_support(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest possible count of each group, float64."""
        drawable, draws = self._drawable().double(), self.draws.double().unsqueeze(-1)
        others = drawable.sum(-1, keepdim=True) - drawable
        return (draws - others).clamp(min=0), torch.minimum(drawable, draws)

    def _marginal_log_tails(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log P(X_j ≤ x_j) and log P(X_j > x_j) in float64, for integers x_j on the support below
        its highest point.
        """
        raise NotImplementedError

    def _log_tails(self, value: Any) -> tuple[Tensor, Tensor]:
        value = self._with_groups(value)
        if self._validate_args and can_check():
            require("value", value, ~value.isnan(), "counts must be numbers")
        x = torch.floor(value.detach().double())
        lowest, highest = self._marginal_support()
        inside = torch.minimum(x.maximum(lowest), (highest - 1).maximum(lowest))
        return exact.certain_outside(x, lowest, highest, *self._marginal_log_tails(inside))

    def log_cdf(self, value: Any) -> Tensor:
        """log P(X_j ≤ x_j), accurate relative to the probability however small it is; see `cdf`."""
        return self._or_nan(self._log_tails(value)[0], event_dims=1)

    def log_sf(self, value: Any) -> Tensor:
        """log P(X_j > x_j), accurate relative to the probability however small it is; see `cdf`."""
        return self._or_nan(self._log_tails(value)[1], event_dims=1)

    def cdf(self, value: Any) -> Tensor:
        """P(X_j ≤ x_j), each group on its own: value and result have the shape (..., c). Real
        values are rounded down.
        """
        return self._or_nan(self._log_tails(value)[0].exp(), event_dims=1)

    def sf(self, value: Any) -> Tensor:
        """P(X_j > x_j) = 1 - cdf, without the cancellation."""
        return self._or_nan(self._log_tails(value)[1].exp(), event_dims=1)

    def icdf(self, value: Any) -> Tensor:
        """The smallest possible count x_j with P(X_j ≤ x_j) ≥ q_j, each group on its own, for
        probabilities q that broadcast to (..., c).

        It agrees with `cdf` to the last bit: cdf(icdf(q)) ≥ q > cdf(icdf(q) - 1) for 0 < q < 1. The
        ends of the support belong to q = 0
        and q = 1 (SciPy's ``ppf(0)`` is one less, which is not a possible count).
        """
        self._check_dtype_holds_draws()
        q = as_float64_tensor("value", value, self.draws.device).detach()
        described = {"value": q.shape, "batch_shape + event_shape": self.group_sizes.shape}
        shape = require_broadcast(described, *described.values())
        if self._validate_args and can_check():
            require("value", q, (q >= 0) & (q <= 1), "a probability must be a number from 0 to 1")
        lowest, highest = (end.expand(shape) for end in self._marginal_support())
        low, high = lowest - 1, highest
        widths = (
            self.group_sizes if is_vmapping() else highest - lowest
        )  # unless they are mapped, sizes can be read under vmap
        with torch.no_grad():
            for _ in range(int(widths.max()).bit_length() if high.numel() else 0):
                middle = torch.floor((low + high) / 2)
                enough = self.cdf(middle) >= q
                low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
        return self._or_nan(
            torch.where(q <= 0, lowest, torch.where(q >= 1, highest, high)), event_dims=1
        )

    def _shape_of_draws(self, sample_shape: Any) -> tuple[torch.Size, int]:
        """The shape that draws have, and how many they are of each urn; refuses those that the
        dtype cannot hold.
        """
        self._check_dtype_holds_draws()
        return self._extended_shape(torch.Size(sample_shape)), math.prod(sample_shape)

    def _check_dtype_holds_draws(self) -> None:
        largest = int(2 / torch.finfo(self.dtype).eps)
        if self._most_draws is not None and self._most_draws <= largest:
            return
        if self._validate_args and can_check():
            require(
                "draws",
                self.draws,
                self.draws <= largest,
                f"{self.dtype} holds counts exactly only up to {largest}; use float64 weights",
            )


def _expanded(tensor: Tensor, shape: torch.Size, cached: bool) -> Tensor:
    """In that shape; of cached tensors, which serve every urn of a composition, a copy."""
    tensor = tensor.clone() if cached else tensor
    return tensor if tensor.shape == shape else tensor.expand(shape)


def _versions(*tensors: Tensor) -> tuple[int, ...] | None:
    """How often each tensor was changed in place; None where torch does not count: while compiling,
    and in inference mode.
    """
    if torch.compiler.is_compiling():
        return None
    try:
        return tuple([tensor._version for tensor in tensors])
    except RuntimeError:
        return None


def _span(values: Tensor) -> str:
    """A limit across a batch, such as 7, or from 3 to 7."""
    if not values.numel():
        return "of which there are none"
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"from {low} to {high}"
