"""Random partitions: a set that is split into ordered subsets of random sizes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from diffurn import _constraints as urn_constraints
from diffurn._numerics.tracing import can_check
from diffurn._partition.law import PartitionLaw
from diffurn._partition.mode import most_probable
from diffurn._partition.stages import log_prob_of_items, sizes_of
from diffurn._validation import as_counts, as_float_tensor, require, require_broadcast
from diffurn.estimators import ConditionalST, Estimator
from diffurn.estimators.estimator import require_estimator
from diffurn.estimators.score import with_score
from diffurn.fisher import FisherHypergeometric

if TYPE_CHECKING:
    from typing_extensions import Self


class Estimate(NamedTuple):
    """A Monte Carlo estimate.

    Attributes:
        value: the mean over samples, whose gradient is an unbiased estimate as well.
        standard_error: the estimated standard deviation of `value`, without a gradient.
    """

    value: Tensor
    standard_error: Tensor


class RandomPartition(Distribution):
    r"""The subset 0, …, K - 1 of each of n items, when both the sizes and the items are random.

    The sizes (n_0, …, n_{K-1}) of the subsets follow Fisher's law of an urn with n draws, whose
    groups have the `group_sizes` and the `log_weights`. Independently, the items are taken one
    after another, each with a probability proportional to :math:`e^{s_i}` among those left (a
    Plackett-Luce order). Subset 0 gets the first n_0 items, subset 1 the next n_1, and so on. So
    items of high scores tend to be in the first subsets. Subsets may be empty. The order in which
    the items of one subset were taken does not matter:

    .. math:: P(\text{partition}) = P_{\text{Fisher}}(n_0, …, n_{K-1}) \prod_{k=0}^{K-2}
              P(\text{the first } n_k \text{ of the items left are those of subset } k).

    Each factor of the product is a probability of Wallenius' law of an urn of single balls. So
    `log_prob` is exact, without a sum over orders. It costs O(nK) in time and memory.

    A value is the subset of each item, integers of shape ``(..., n)``.

    Reference: T. M. Sutter, A. Ryser, J. Liebeskind, J. E. Vogt, *Differentiable Random Partition
    Models* (NeurIPS 2023). There the probability is bounded; here it is exact.

    Args:
        log_scores: s, finite, shape ``(..., n)``; adding a number to all of them changes nothing.
        log_weights: log ω of the subsets, shape ``(..., K)``; -inf for a subset that is empty.
        group_sizes: m, the most items that each subset can hold, integers, shape ``(..., K)``;
            by default the number of items. Larger ones bring the sizes closer to a multinomial
            law.
        mask: which items exist, booleans, shape ``(..., n)``; all by default. The others have the
            label -1 in every value, and their scores do not matter. So sets of different sizes make
            one batch.
        estimator: how `rsample` differentiates: `ConditionalST` (default), `TwoStageGumbel` or
            `CovarianceST`.
        validate_args: check arguments and values (the default, as in torch).

    Example:
        >>> scores, weights = torch.tensor([2.0, 1.0, 0.0, -1.0]), torch.tensor([1.0, 2.0]).log()
        >>> partition = RandomPartition(scores, weights)
        >>> partition.log_prob(torch.tensor([0, 0, 1, 1])).exp()
        tensor(0.2818)
        >>> partition.sample((3,)).shape
        torch.Size([3, 4])
    """

    arg_constraints = {  # noqa: RUF012 (torch's own convention)
        "log_scores": constraints.real_vector,
        "log_weights": urn_constraints.log_weights,
    }

    log_scores: Tensor
    log_weights: Tensor

    def __init__(
        self,
        log_scores: Any,
        log_weights: Any,
        group_sizes: Any = None,
        mask: Any = None,
        estimator: Estimator | None = None,
        validate_args: bool | None = None,
    ) -> None:
        scores = as_float_tensor("log_scores", log_scores)
        weights = as_float_tensor("log_weights", log_weights).to(scores.device)
        if not (scores.ndim and weights.ndim and weights.shape[-1]):
            raise ValueError(
                f"log_scores {tuple(scores.shape)} needs a last dimension of items, and "
                f"log_weights {tuple(weights.shape)} one of subsets, one or more"
            )
        validate = Distribution._validate_args if validate_args is None else validate_args
        check = validate and can_check()
        dtype = torch.promote_types(scores.dtype, weights.dtype)
        scores, weights = scores.to(dtype), weights.to(dtype)
        present = _mask_like(scores, mask)
        items = present.sum(-1)
        subsets = weights.shape[-1]
        if group_sizes is None:
            sizes = items.unsqueeze(-1).expand(*items.shape, subsets)
        else:
            sizes = as_counts("group_sizes", group_sizes, scores.device)
        described = {
            "log_scores": scores.shape,
            "log_weights": weights.shape,
            "group_sizes": sizes.shape,
        }
        batch = (scores.shape[:-1], present.shape[:-1], weights.shape[:-1], sizes.shape[:-1])
        if sizes.shape[-1:] != (subsets,):
            raise ValueError(
                f"group_sizes has shape {tuple(sizes.shape)}, but its last dimension must be the "
                f"{subsets} subsets"
            )
        batch_shape = require_broadcast(described, *batch)
        self.log_scores = scores.expand(*batch_shape, -1)
        self.mask = present.expand(*batch_shape, -1)
        super().__init__(batch_shape, scores.shape[-1:], validate_args=False)
        self._validate_args = validate
        if check:
            finite = torch.isfinite(self.log_scores) | ~self.mask
            require("log_scores", self.log_scores, finite, "must be a finite number")
            possible = torch.where(weights > -torch.inf, sizes, 0).sum(-1)
            rule = "it must be at least the number of items"
            require("group_sizes.sum(-1)", possible, possible >= items, rule)
        self.log_weights = weights.expand(*batch_shape, -1)
        urn: tuple[Any, Any] = sizes, items.expand(batch_shape)
        if mask is None:  # numbers need not be read from a GPU, nor by compiled code
            number = scores.shape[-1]
            urn = [number] * subsets if group_sizes is None else group_sizes, number
        self._urn = FisherHypergeometric(
            *urn, log_weights=self.log_weights.double(), validate_args=validate
        )
        self.estimator = ConditionalST() if estimator is None else _checked(estimator)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of log-probabilities: that of the scores and the log-weights together."""
        return self.log_scores.dtype

    @property
    def subsets(self) -> int:
        """K, the number of subsets."""
        return self._urn.event_shape[0]

    @property
    def group_sizes(self) -> Tensor:
        """m, the most items of each subset, shape ``(..., K)``."""
        return self._urn.group_sizes

    @property
    def sizes(self) -> FisherHypergeometric:
        """The law of the sizes of the subsets, in float64."""
        return self._urn

    @property
    def support(self) -> constraints.Constraint:
        return urn_constraints.partitions(self.group_sizes, self.mask)

    def _finite_scores(self) -> Tensor:
        """Scores in float64; those of missing items are 0."""
        return torch.where(self.mask, self.log_scores.double(), 0.0)

    @property
    def mode(self) -> Tensor:
        """The most probable partition, int64 ``(..., n)``.

        Whatever the sizes are, it gives the items of higher scores to earlier subsets (see
        `diffurn._partition.mode` for a proof). The best cuts are found by dynamic programming over
        all of them, in O(n² (K + 200)) time.

        Example:
            >>> RandomPartition(torch.tensor([0.0, 3.0, -1.0, 2.0]), torch.zeros(2)).mode
            tensor([1, 0, 1, 0])
        """
        with torch.no_grad():
            log_weights, sizes, _ = self._urn._operands()
            return most_probable(self._finite_scores(), self.mask, log_weights, sizes)

    def inclusion(self) -> Tensor:
        """P(item i is in subset k), exactly, shape ``(..., n, K)``; 0 for missing items.

        Differentiable in the scores and the log-weights. It takes O(n²) time and memory, with a
        large constant: up to n + 1 means of Wallenius' law of n items.

        Example:
            >>> partition = RandomPartition(torch.tensor([2.0, 0.0, -2.0]), torch.zeros(2))
            >>> partition.inclusion()[:, 0]
            tensor([0.8883, 0.5000, 0.1117])
        """
        return self._law(1).mean().to(self.dtype)

    def _law(self, num_samples: int) -> PartitionLaw:
        if self.estimator.needs_conditionals:
            law = self._urn._law_for_chains(num_samples)
        else:
            law = self._urn._law_for_draws(num_samples)
        return PartitionLaw(self._finite_scores(), self.mask, self._urn._operands(), law)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Exact draws: the subset of each item, int64, and -1 for missing items."""
        shape, num_samples = self._extended_shape(torch.Size(sample_shape)), math.prod(sample_shape)
        return self._law(num_samples).labels(num_samples).reshape(shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Memberships 1[item i is in subset k] that carry gradients, as the `estimator` defines
        them, shape ``sample_shape + (..., n, K)``; zero for missing items.

        ``draw.argmax(-1)`` is the value of a hard draw without missing items. For unbiased
        gradients of any function of the values, see `score_surrogate`.

        Example:
            >>> scores = torch.zeros(5, requires_grad=True)
            >>> draw = RandomPartition(scores, torch.zeros(3)).rsample()
            >>> draw.shape, draw.sum().item()
            (torch.Size([5, 3]), 5.0)
        """
        shape, num_samples = self._extended_shape(torch.Size(sample_shape)), math.prod(sample_shape)
        law: Any = self._law(num_samples)
        draws = self.estimator.rsample(law, num_samples)
        return draws.reshape(*shape, self.subsets).to(self.dtype)

    def log_prob(self, value: Any) -> Tensor:
        """log P(partition), differentiable twice in the scores and the log-weights.

        It is -inf where a subset holds more than its group size, or has the weight zero.
        """
        labels = self._checked_labels(value)
        sizes = sizes_of(labels, self.subsets)
        within = self._is_inside(labels, sizes)
        of_items = log_prob_of_items(self._finite_scores(), labels, sizes)
        of_sizes = self._urn._unchecked().log_prob(sizes)
        log_prob = of_sizes + torch.where(within, of_items, 0.0)
        return torch.where(within, log_prob, -torch.inf).to(self.dtype)

    def _checked_labels(self, value: Any) -> Tensor:
        value = as_counts("value", value, self.log_scores.device)
        if value.shape[-1:] != self.event_shape:
            raise ValueError(
                f"value has shape {tuple(value.shape)}, but its last dimension must be the "
                f"{self.event_shape[0]} items"
            )
        require_broadcast(
            {"value": value.shape[:-1], "batch_shape": self.batch_shape},
            value.shape[:-1],
            self.batch_shape,
        )
        value = value.expand(torch.broadcast_shapes(value.shape, self.log_scores.shape))
        labels = cast(Tensor, value.to(torch.int64))
        if self._validate_args and can_check():
            known = (labels >= 0) & (labels < self.subsets) & (labels == value)
            rule = f"it must be the number of a subset, from 0 to {self.subsets - 1}"
            require("value", value, known | ~self.mask, rule)
            require(
                "value", value, (labels == -1) | self.mask, "the item is missing: it must be -1"
            )
            sizes = sizes_of(labels, self.subsets)
            rule = "the subset holds more items than its group size"
            require("the size of a subset", sizes, sizes <= self.group_sizes, rule)
        return labels

    def _is_inside(self, labels: Tensor, sizes: Tensor) -> Tensor:
        right = torch.where(self.mask, (labels >= 0) & (labels < self.subsets), labels == -1)
        return right.all(-1) & (sizes <= self.group_sizes).all(-1)

    @property
    def mean(self) -> Tensor:
        raise NotImplementedError(
            "labels of subsets have no mean; use inclusion() for the items and sizes.mean"
        )

    @property
    def variance(self) -> Tensor:
        raise NotImplementedError(
            "labels of subsets have no variance; use inclusion() for the items and sizes.variance"
        )

    def entropy(self) -> Tensor:
        raise NotImplementedError(
            "the entropy of a random partition has no closed form; use estimate_entropy()"
        )

    def estimate_entropy(self, num_samples: int = 1000) -> Estimate:
        """-E[log P] in nats by Monte Carlo, from exact log-probabilities of exact draws.

        Args:
            num_samples: S ≥ 2.

        Example:
            >>> _ = torch.manual_seed(0)
            >>> partition = RandomPartition(torch.zeros(3), torch.zeros(2))
            >>> value, error = partition.estimate_entropy(10_000)  # exactly 2.0070
            >>> bool((value - 2.0070).abs() < 4 * error)
            True
        """
        log_prob = self._log_prob_of_samples(num_samples)[1]
        return _estimate(-log_prob, log_prob)

    def estimate_kl(self, other: Distribution, num_samples: int = 1000) -> Estimate:
        """KL(self ‖ other) in nats by Monte Carlo, from exact log-probabilities of exact draws.

        Args:
            other: a law of the same values, such as a `RandomPartition`.
            num_samples: S ≥ 2.
        """
        samples, log_prob = self._log_prob_of_samples(num_samples)
        return _estimate(log_prob - other.log_prob(samples), log_prob)

    def _log_prob_of_samples(self, num_samples: int) -> tuple[Tensor, Tensor]:
        if num_samples < 2:
            raise ValueError(f"num_samples is {num_samples}, but must be at least 2")
        samples = self.sample((num_samples,))
        return samples, self.log_prob(samples)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        new = self._get_checked_instance(type(self), _instance)
        batch_shape = torch.Size(batch_shape)
        new.log_scores = self.log_scores.expand(*batch_shape, -1)
        new.mask = self.mask.expand(*batch_shape, -1)
        new.log_weights = self.log_weights.expand(*batch_shape, -1)
        new._urn = self._urn.expand(batch_shape)
        new.estimator = self.estimator
        super(RandomPartition, new).__init__(batch_shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return cast("Self", new)

    def __repr__(self) -> str:
        shapes = f"log_scores: {tuple(self.log_scores.shape)}, subsets: {self.subsets}"
        return f"RandomPartition({shapes})"


def _checked(estimator: Any) -> Estimator:
    require_estimator(estimator)
    of_urns = estimator.needs_conditionals and not estimator.needs_order
    if of_urns or estimator.needs_perturbed_weights:
        raise ValueError(
            f"estimator is {estimator!r}, which is for urns; a RandomPartition takes "
            "ConditionalST, TwoStageGumbel or CovarianceST"
        )
    return cast(Estimator, estimator)


def _mask_like(scores: Tensor, mask: Any) -> Tensor:
    if mask is None:
        return torch.ones_like(scores, dtype=torch.bool)
    mask = torch.as_tensor(mask, device=scores.device)
    if mask.dtype != torch.bool:
        raise ValueError(f"mask has dtype {mask.dtype}, but must be boolean")
    if mask.shape[-1:] != scores.shape[-1:]:
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}, but its last dimension must be the "
            f"{scores.shape[-1]} items"
        )
    return cast(Tensor, mask)


def _estimate(values: Tensor, log_prob: Tensor) -> Estimate:
    """The mean of values ``(S, ...)`` of samples with an unbiased gradient, and its error."""
    error = values.detach().std(0) / math.sqrt(len(values))
    return Estimate(with_score(values, values.detach(), log_prob), error)
