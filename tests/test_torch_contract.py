"""The torch contract: shapes, dtypes, copies and batches in pieces; transforms and compilation are
in test_torch_transforms.py.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, kl_divergence
from torch.func import vmap

import diffurn
from diffurn import FisherHypergeometric, RandomPartition, WalleniusHypergeometric
from diffurn._numerics.batching import in_chunks
from support.distributions import assert_dtype

SIZES, DRAWS, LOG_WEIGHTS, COUNTS = [3, 5, 4], 5, [0.3, -0.7, 0.1], [1.0, 3.0, 1.0]


@dataclass(frozen=True)
class Example:
    """A public distribution and how to build a small one of it: three groups, any batch shape."""

    distribution: type[Distribution]

    def __str__(self) -> str:
        return self.distribution.__name__

    def build(self, log_weights: Any, sizes: Any = SIZES, draws: Any = DRAWS, **others: Any) -> Any:
        return self.distribution(sizes, draws, log_weights=log_weights, **others)


EXAMPLES = (Example(FisherHypergeometric),)
# Wallenius' law has no normaliser; its contract is in test_wallenius_contract.py and
# test_wallenius_sums.py. That of a partition, which is no urn, is in test_partitions.py.
ELSEWHERE = {WalleniusHypergeometric, RandomPartition}
every_distribution = pytest.mark.parametrize("example", EXAMPLES, ids=str)


def test_every_public_distribution_has_an_example() -> None:
    public = [getattr(diffurn, name) for name in diffurn.__all__]
    distributions = {
        thing for thing in public if isinstance(thing, type) and issubclass(thing, Distribution)
    }
    assert distributions == {example.distribution for example in EXAMPLES} | ELSEWHERE


def results(urn: Any) -> dict[str, Tensor]:
    """All that is computed from an urn of three groups, but draws."""
    counts = torch.zeros(3, dtype=urn.dtype, device=urn.mean.device)
    return {
        "log_prob": urn.log_prob(urn.mode),
        "log_normalizer": urn.log_normalizer,
        "mean": urn.mean,
        "variance": urn.variance,
        "covariance_matrix": urn.covariance_matrix,
        "mode": urn.mode,
        "entropy": urn.entropy(),
        "marginal_log_prob": urn.marginals.log_prob(counts),
        "kl_divergence": kl_divergence(urn, urn),
        "weights": urn.weights,
        "log_weights": urn.log_weights,
    }


EVENT_SHAPES = {
    "log_prob": (),
    "log_normalizer": (),
    "mean": (3,),
    "variance": (3,),
    "covariance_matrix": (3, 3),
    "mode": (3,),
    "entropy": (),
    "marginal_log_prob": (3,),
    "kl_divergence": (),
    "weights": (3,),
    "log_weights": (3,),
}


def assert_same(actual: Any, expected: Any, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# --------------------------------------------------------------------------------------------------
# Shapes
# --------------------------------------------------------------------------------------------------

BROADCASTS = {
    # shapes of group_sizes, draws and log_weights, and the batch shape they make
    "nothing-batched": ((3,), (), (3,), ()),
    "sizes-batched": ((4, 3), (), (3,), (4,)),
    "draws-batched": ((3,), (4,), (3,), (4,)),
    "weights-batched": ((3,), (), (4, 3), (4,)),
    "all-batched": ((4, 3), (4,), (4, 3), (4,)),
    "all-differently-batched": ((2, 1, 1, 3), (5, 1), (4, 3), (2, 5, 4)),
    "one-size-for-all-groups": ((1,), (), (3,), ()),
    "one-weight-for-all-groups": ((2, 3), (), (1,), (2,)),
}


@every_distribution
@pytest.mark.parametrize("case", BROADCASTS)
def test_all_arguments_broadcast(case: str, example: Example, device: torch.device) -> None:
    sizes_shape, draws_shape, weights_shape, batch = BROADCASTS[case]
    sizes = torch.randint(3, 7, sizes_shape, device=device)
    draws = torch.randint(0, 9, draws_shape, device=device)
    log_weights = torch.randn(weights_shape, device=device)
    urn = example.build(log_weights, sizes, draws)
    assert urn.batch_shape == batch
    assert urn.event_shape == (3,)
    found = results(urn)
    assert {name: tuple(result.shape) for name, result in found.items()} == {
        name: (*batch, *event) for name, event in EVENT_SHAPES.items()
    }
    for shape in ((), (7,), (2, 3), (0,)):
        for counts in (urn.sample(shape), urn.rsample(shape)):
            assert counts.shape == (*shape, *batch, 3)
            assert urn.log_prob(counts).shape == (*shape, *batch)
            assert torch.equal(counts.sum(-1), urn.draws.to(counts.dtype).expand(counts.shape[:-1]))
    # every urn of the batch is what it would be alone
    flat = [
        values.reshape(-1, *values.shape[len(batch) :])
        for values in (urn.log_weights, urn.group_sizes, urn.draws)
    ]
    for i, (log_weight, size, number) in enumerate(zip(*flat, strict=True)):
        alone = results(example.build(log_weight, size, number))
        for name, result in found.items():
            assert_same(result.reshape(-1, *EVENT_SHAPES[name])[i], alone[name])


@every_distribution
def test_expanding_is_building_with_a_larger_batch(example: Example, device: torch.device) -> None:
    log_weights = torch.randn(4, 3, device=device)
    urn = example.build(log_weights, draws=torch.tensor([1, 5, 7, 12], device=device))
    before = results(urn)
    expanded = urn.expand((6, 4))
    assert isinstance(expanded, example.distribution)
    assert expanded.batch_shape == (6, 4)
    assert expanded.event_shape == (3,)
    assert expanded.estimator == urn.estimator
    assert expanded.sample((2,)).shape == (2, 6, 4, 3)
    for name, result in results(expanded).items():
        assert_same(result, before[name].expand(6, *before[name].shape))


@every_distribution
@pytest.mark.parametrize("parameter", ["weights", "log_weights"])
def test_an_expanded_urn_sends_gradients_to_the_same_weights(
    parameter: str, example: Example, device: torch.device
) -> None:
    leaf = torch.tensor([0.5, 1.5, 1.0], device=device, requires_grad=True)
    urn = example.distribution(SIZES, DRAWS, **{parameter: leaf})
    (alone,) = torch.autograd.grad(urn.mean[0], leaf)
    (together,) = torch.autograd.grad(urn.expand((5,)).mean[:, 0].sum(), leaf)
    assert_same(together, 5 * alone)


EMPTY: dict[str, Callable[[list[int]], tuple[Any, Any, tuple[int, ...]]]] = {
    # group_sizes, draws and the shape of the log-weights, from the group sizes of an urn
    "weights": lambda sizes: (sizes, DRAWS, (0, 3)),
    "draws": lambda sizes: (sizes, torch.zeros(0, dtype=torch.int64), (3,)),
    "list-of-draws": lambda sizes: (sizes, [], (3,)),
    "sizes": lambda sizes: (torch.zeros(0, 3, dtype=torch.int64), DRAWS, (3,)),
    "all": lambda sizes: (
        torch.zeros(0, 3, dtype=torch.int64),
        torch.zeros(0, dtype=torch.int64),
        (0, 3),
    ),
    "weights-beside-one-number-of-draws": lambda sizes: (sizes, [DRAWS], (0, 3)),
}


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("empty", EMPTY)
def test_an_empty_batch_has_empty_results(empty: str, large: bool, device: torch.device) -> None:
    sizes, draws, shape = EMPTY[empty]([100_000 * m for m in SIZES] if large else SIZES)
    log_weights = torch.zeros(shape, device=device, requires_grad=True)
    urn = FisherHypergeometric(sizes, draws, log_weights=log_weights)
    assert urn.batch_shape == (0,)
    assert {name: tuple(result.shape) for name, result in results(urn).items()} == {
        name: (0, *event) for name, event in EVENT_SHAPES.items()
    }
    for number in (2, 50_000):
        assert urn.sample((number,)).shape == urn.rsample((number,)).shape == (number, 0, 3)
    for name in ("log_prob", "cdf", "sf", "log_cdf", "log_sf", "icdf"):
        assert getattr(urn.marginals, name)(torch.ones(3, device=device)).shape == (0, 3)
    urn.rsample((2,)).sum().backward()
    assert log_weights.grad.tolist() == torch.zeros(shape).tolist()
    with pytest.raises(NotImplementedError, match="the batch is empty"):
        urn.enumerate_support()


@pytest.mark.parametrize(
    "estimator",
    [diffurn.CovarianceST(), diffurn.GumbelSoftmax()],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.parametrize("empty", EMPTY)
def test_rank_indicators_of_an_empty_batch_are_empty(
    empty: str, estimator: Any, device: torch.device
) -> None:
    sizes, draws, shape = EMPTY[empty](SIZES)
    counts, indicators = FisherHypergeometric(
        sizes, draws, log_weights=torch.zeros(shape, device=device), estimator=estimator
    ).rank_indicators(1, (2,))
    assert counts.shape == (2, 0, 3)
    assert indicators.shape[:-1] == (2, 0)


@every_distribution
def test_independent_urns_are_one_distribution(example: Example, device: torch.device) -> None:
    urn = example.build(torch.randn(2, 4, 3, device=device))
    joint = Independent(urn, 1)
    assert joint.batch_shape == (2,)
    assert joint.event_shape == (4, 3)
    counts = joint.rsample((5,))
    assert counts.shape == (5, 2, 4, 3)
    assert_same(joint.log_prob(counts), urn.log_prob(counts).sum(-1))
    assert_same(joint.entropy(), urn.entropy().sum(-1))
    assert bool(joint.support.check(counts).all())
    assert_same(kl_divergence(joint, joint), torch.zeros(2, device=device))


@every_distribution
def test_divergence_is_registered_and_broadcasts(example: Example, device: torch.device) -> None:
    p, q = (
        example.build(torch.randn(4, 1, 3, device=device)),
        example.build(torch.randn(5, 3, device=device)),
    )
    divergence = kl_divergence(p, q)
    assert divergence.shape == (4, 5)
    assert bool((divergence > 0).all())
    assert_same(
        divergence[2, 3],
        kl_divergence(example.build(p.log_weights[2, 0]), example.build(q.log_weights[3])),
    )


@pytest.mark.parametrize("law", [FisherHypergeometric, WalleniusHypergeometric])
def test_marginals_have_the_mean_and_the_variance_of_the_urn(
    law: type[Distribution], device: torch.device
) -> None:
    urn = law(SIZES, DRAWS, log_weights=torch.tensor(LOG_WEIGHTS, device=device))
    assert torch.equal(urn.marginals.mean, urn.mean)
    assert torch.equal(urn.marginals.variance, urn.variance)
    counts = torch.arange(max(SIZES) + 1, device=device).unsqueeze(-1).expand(-1, 3)
    probability = urn.marginals.log_prob(counts).exp()
    assert_same((probability * counts).sum(0), urn.mean, 1e-10)
    assert_same((probability * (counts - urn.mean).square()).sum(0), urn.variance, 1e-10)


@pytest.mark.parametrize("law", [FisherHypergeometric, WalleniusHypergeometric])
@pytest.mark.parametrize(
    "method", ["cdf", "icdf", "sf", "log_cdf", "log_sf", "marginal_log_prob", "tilted"]
)
def test_methods_of_single_groups_are_those_of_the_marginals_alone(
    method: str, law: type[Distribution]
) -> None:
    """torch's own `cdf` and `icdf` raise; the others are not there."""
    urn = law(SIZES, DRAWS, weights=torch.ones(3))
    with pytest.raises((AttributeError, NotImplementedError)):
        getattr(urn, method)(torch.ones(3))


@pytest.mark.parametrize("law", [FisherHypergeometric, WalleniusHypergeometric])
def test_repr_shows_few_numbers_as_they_were_given(law: type[Distribution]) -> None:
    weights = torch.tensor([1.0, 2.5, 1 / 3], requires_grad=True)
    start = f"{law.__name__}(group_sizes: [3, 5, 4], draws: 5"
    assert repr(law(SIZES, DRAWS, weights=weights)) == f"{start}, weights: [1, 2.5, 0.333333])"
    never = torch.tensor([0.0, -torch.inf, 1.5])
    assert repr(law(SIZES, DRAWS, log_weights=never)) == f"{start}, log_weights: [0, -inf, 1.5])"


@pytest.mark.parametrize("law", [FisherHypergeometric, WalleniusHypergeometric])
def test_repr_shows_the_shapes_of_many_numbers(law: type[Distribution]) -> None:
    batch = law(SIZES, DRAWS, log_weights=torch.zeros(20, 3))
    shapes = "group_sizes: shape (20, 3), draws: shape (20,), log_weights: shape (20, 3)"
    assert repr(batch) == f"{law.__name__}({shapes})"
    groups = law([1] * 9, 4, weights=torch.ones(9))
    shapes = "group_sizes: shape (9,), draws: 4, weights: shape (9,)"
    assert repr(groups) == f"{law.__name__}({shapes})"


@pytest.mark.parametrize("law", [FisherHypergeometric, WalleniusHypergeometric])
def test_repr_reads_no_value_under_vmap(law: type[Distribution]) -> None:
    shown = []

    def step(weights: Tensor) -> Tensor:
        shown.append(repr(law(SIZES, DRAWS, weights=weights)))
        return weights

    vmap(step)(torch.ones(2, 3))
    shapes = "group_sizes: shape (3,), draws: shape (), weights: shape (3,)"
    assert shown == [f"{law.__name__}({shapes})"]


@pytest.mark.parametrize("law", [FisherHypergeometric, WalleniusHypergeometric])
def test_repr_shows_an_estimator_that_was_given(law: type[Distribution]) -> None:
    urn = law(SIZES, DRAWS, weights=torch.ones(3), estimator=diffurn.CovarianceST())
    assert repr(urn).endswith("weights: [1, 1, 1], estimator: CovarianceST())")


def test_repr_of_the_support_names_a_constraint() -> None:
    """torch's own `repr` cuts the first letter of a class name off."""
    urn = FisherHypergeometric(SIZES, DRAWS, weights=torch.ones(3))
    assert repr(urn.support).lower().replace("_", "").startswith("urncounts(")
    assert repr(urn.marginals) == f"marginals of {urn!r}"


@every_distribution
def test_torch_finds_the_constraints_of_every_argument(
    example: Example, device: torch.device
) -> None:
    urn = example.build(torch.tensor([0.0, -torch.inf, 1.0], device=device))
    for name in ("group_sizes", "draws", "weights", "log_weights"):
        assert bool(example.distribution.arg_constraints[name].check(getattr(urn, name)).all()), (
            name
        )
    assert not bool(
        example.distribution.arg_constraints["log_weights"].check(
            torch.tensor([0.0, torch.inf], device=device)
        )
    )
    assert not bool(
        example.distribution.arg_constraints["weights"].check(
            torch.tensor([0.0, -1.0], device=device)
        )
    )


# --------------------------------------------------------------------------------------------------
# Dtypes and kinds of input
# --------------------------------------------------------------------------------------------------


@every_distribution
@pytest.mark.parametrize("parameter", ["weights", "log_weights"])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str
)
def test_every_result_has_the_dtype_of_the_weights(
    dtype: torch.dtype, parameter: str, example: Example, device: torch.device
) -> None:
    values = torch.tensor(
        [0.5, 1.5, 1.0], dtype=dtype, device=device
    )  # the same number in every dtype
    urn = example.distribution(SIZES, DRAWS, **{parameter: values})
    reference = results(example.distribution(SIZES, DRAWS, **{parameter: values.double()}))
    assert urn.dtype == dtype
    assert_dtype(urn, results(urn), reference, dtype)


@every_distribution
@pytest.mark.parametrize("default", [torch.float32, torch.float64], ids=str)
def test_plain_numbers_take_torchs_default_dtype(default: torch.dtype, example: Example) -> None:
    torch.set_default_dtype(default)
    for weights in ([1, 2, 3], [1.0, 2.0, 3.0], (1, 2, 3)):
        assert example.distribution(SIZES, DRAWS, weights=weights).mean.dtype == default


@every_distribution
@pytest.mark.parametrize(
    "kind", [list, tuple, np.array, torch.tensor], ids=["list", "tuple", "numpy", "tensor"]
)
def test_lists_tuples_arrays_and_tensors_mean_the_same(
    kind: Callable[[Any], Any], example: Example
) -> None:
    urn = example.distribution(kind(SIZES), DRAWS, log_weights=kind(LOG_WEIGHTS))
    expected = example.build(torch.tensor(LOG_WEIGHTS), torch.tensor(SIZES), torch.tensor(DRAWS))
    assert_same(results(urn), results(expected))
    assert_same(urn.log_prob(kind(COUNTS)), expected.log_prob(torch.tensor(COUNTS)))
    assert_same(
        urn.marginals.log_prob(kind(COUNTS)), expected.marginals.log_prob(torch.tensor(COUNTS))
    )


INTEGER_DTYPES = (
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.float64,
    torch.float32,
    torch.float16,
)


@every_distribution
@pytest.mark.parametrize("dtype", INTEGER_DTYPES, ids=str)
def test_sizes_draws_and_counts_may_have_any_dtype_that_holds_integers(
    dtype: torch.dtype, example: Example, device: torch.device
) -> None:
    log_weights = torch.tensor(LOG_WEIGHTS, device=device)
    urn = example.build(
        log_weights,
        torch.tensor(SIZES, dtype=dtype, device=device),
        torch.tensor(DRAWS, dtype=dtype, device=device),
    )
    assert urn.group_sizes.dtype == torch.int64
    assert urn.draws.dtype == torch.int64
    assert_same(urn.mean, example.build(log_weights).mean)
    value = torch.tensor(COUNTS, device=device)
    assert_same(urn.log_prob(value.to(dtype)), urn.log_prob(value))


@every_distribution
@pytest.mark.parametrize(
    "dtype", [np.int64, np.int32, np.uint8, np.float32], ids=lambda dtype: dtype.__name__
)
def test_numpy_arrays_of_counts_may_have_any_dtype(
    dtype: Any, example: Example, device: torch.device
) -> None:
    log_weights = torch.tensor(LOG_WEIGHTS, device=device)
    urn = example.build(log_weights, np.array(SIZES, dtype=dtype), dtype(DRAWS))
    assert_same(urn.mean, example.build(log_weights).mean)


@every_distribution
def test_everything_is_computed_where_the_weights_are(
    example: Example, device: torch.device
) -> None:
    urn = example.build(
        torch.tensor(LOG_WEIGHTS, device=device)
    )  # sizes and draws are plain numbers
    for result in (
        *results(urn).values(),
        urn.sample((3,)),
        urn.rsample((3,)),
        urn.enumerate_support(),
        urn.group_sizes,
        urn.draws,
    ):
        assert result.device.type == device.type


@every_distribution
def test_draws_follow_torchs_generator(example: Example, device: torch.device) -> None:
    urn = example.build(torch.randn(5, 3, device=device))
    torch.manual_seed(7)
    first = urn.sample((100,))
    torch.manual_seed(7)
    again = urn.sample((100,))
    assert torch.equal(first, again)
    assert not torch.equal(first, urn.sample((100,)))


# --------------------------------------------------------------------------------------------------
# Copies
# --------------------------------------------------------------------------------------------------

COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda urn: pickle.loads(pickle.dumps(urn)),
}


@every_distribution
@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])
@pytest.mark.parametrize("requires_grad", [False, True], ids=["constant", "learned"])
@pytest.mark.parametrize("parameter", ["weights", "log_weights"])
@pytest.mark.parametrize("way", COPIES)
def test_copies_are_equal(
    way: str,
    parameter: str,
    requires_grad: bool,
    used: bool,
    example: Example,
    device: torch.device,
) -> None:
    values = torch.tensor([0.5, 1.5, 1.0], device=device, requires_grad=requires_grad)
    urn = example.distribution(SIZES, DRAWS, **{parameter: values})
    expected = (
        results(urn) if used else results(example.distribution(SIZES, DRAWS, **{parameter: values}))
    )
    twin = COPIES[way](urn)
    assert type(twin) is type(urn)
    assert repr(twin) == repr(urn)
    for name, result in results(twin).items():
        assert_same(result.detach(), expected[name].detach())
    assert bool(twin.support.check(twin.sample((10,))).all())


@every_distribution
def test_weights_changed_in_place_are_seen(example: Example, device: torch.device) -> None:
    # an optimiser steps in place; an urn that was built once and used before must not answer from
    # its old weights
    sizes, new = [200, 200, 200], torch.tensor([8.0, 0.0, -8.0], device=device)
    log_weights = torch.zeros(3, device=device)
    urn = example.build(log_weights, sizes, 180)
    before = urn.mean
    log_weights.copy_(new)
    assert not torch.equal(urn.mean, before)
    assert_same(urn.mean, example.build(new, sizes, 180).mean)


# --------------------------------------------------------------------------------------------------
# Chunks
# --------------------------------------------------------------------------------------------------


@every_distribution
def test_a_long_batch_equals_its_pieces(example: Example, device: torch.device) -> None:
    rows = 2000  # several pieces of every quantity on CPU
    log_weights = 2 * torch.randn(rows, 3, device=device)
    sizes = torch.randint(0, 40, (rows, 3), device=device)
    draws = (torch.rand(rows, device=device) * (sizes.sum(-1) + 1)).floor()

    def evaluate(piece: slice) -> tuple[dict[str, Tensor], Tensor]:
        leaf = log_weights[piece].clone().requires_grad_()
        urn = example.build(leaf, sizes[piece], draws[piece])
        found = results(urn)
        torch.autograd.backward(
            [found["log_prob"].sum(), (found["mean"] * sizes[piece]).sum(), found["entropy"].sum()]
        )
        assert leaf.grad is not None
        return {name: result.detach() for name, result in found.items()}, leaf.grad

    whole, gradient = evaluate(slice(None))
    for start in (0, 1700, rows - 20):
        piece = slice(start, start + 20)
        found, piece_gradient = evaluate(piece)
        for name, result in found.items():
            assert_same(whole[name][piece], result)
        assert_same(gradient[piece], piece_gradient)
    for row in range(0, rows, 99):
        alone, _ = evaluate(slice(row, row + 1))
        for name, result in alone.items():
            assert_same(whole[name][row : row + 1], result)


def test_chunks_are_evaluated_piece_by_piece_in_order(device: torch.device) -> None:
    lengths: list[int] = []

    def function(vectors: Tensor, scalars: Tensor) -> Tensor:
        lengths.append(max(len(vectors), len(scalars)))
        return vectors * scalars.unsqueeze(-1)

    vectors, scalars = torch.randn(5, 1, 3, device=device), torch.randn(4, device=device)
    huge = 1 << 40  # elements of work per row: every row on its own
    result = in_chunks(function, vectors, scalars, events=(1, 0), work=huge)
    assert lengths == [1] * 20
    assert torch.equal(result, vectors * scalars.unsqueeze(-1))
    lengths.clear()
    assert torch.equal(in_chunks(function, vectors, scalars, events=(1, 0), work=1), result)
    assert len(lengths) == 1
