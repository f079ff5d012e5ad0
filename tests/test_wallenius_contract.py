"""Wallenius' law: the torch contract, and bad input, which is refused as by Fisher's urn."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import jacfwd, jacrev, vmap

from diffurn import FisherHypergeometric, WalleniusHypergeometric
from support.distributions import assert_dtype
from test_bad_input import BAD_ARGUMENTS, BAD_VALUES, GOOD
from test_torch_contract import EMPTY

# --------------------------------------------------------------------------------------------------
# The torch contract
# --------------------------------------------------------------------------------------------------

SIZES, DRAWS, COUNTS = [3, 5, 4], 5, [1.0, 3.0, 1.0]


def build(
    log_weights: Any, sizes: Any = SIZES, draws: Any = DRAWS, **others: Any
) -> WalleniusHypergeometric:
    return WalleniusHypergeometric(sizes, draws, log_weights=log_weights, **others)


def results(urn: WalleniusHypergeometric) -> dict[str, Tensor]:
    counts = torch.ones(3, dtype=urn.dtype, device=urn.draws.device)
    found = {
        "log_prob": urn.log_prob(torch.tensor(COUNTS, device=urn.draws.device)),
        "marginal_log_prob": urn.marginals.log_prob(counts),
    }
    return found | {"mean": urn.mean, "covariance_matrix": urn.covariance_matrix}


def test_arguments_broadcast_and_every_urn_is_what_it_would_be_alone(device: torch.device) -> None:
    sizes = torch.tensor([[[3, 5, 4]], [[6, 2, 9]]], device=device)
    draws, log_weights = (
        torch.tensor([[[1]], [[5]], [[9]]], device=device),
        torch.randn(4, 3, device=device),
    )
    urn = build(log_weights, sizes, draws)
    assert (urn.batch_shape, urn.event_shape) == ((3, 2, 4), (3,))
    counts = urn.sample()
    log_prob, mean, covariance = urn.log_prob(counts), urn.mean, urn.covariance_matrix
    assert (log_prob.shape, mean.shape, covariance.shape) == (
        (3, 2, 4),
        (3, 2, 4, 3),
        (3, 2, 4, 3, 3),
    )
    for i, j, k in ((0, 0, 0), (1, 1, 1), (2, 0, 3), (0, 1, 2)):
        alone = build(log_weights[k], sizes[j, 0], draws[i, 0, 0])
        torch.testing.assert_close(
            log_prob[i, j, k], alone.log_prob(counts[i, j, k]), rtol=1e-12, atol=1e-12
        )
        torch.testing.assert_close(mean[i, j, k], alone.mean, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            covariance[i, j, k], alone.covariance_matrix, rtol=1e-11, atol=1e-12
        )


def test_values_broadcast_against_the_batch(device: torch.device) -> None:
    urn = build(torch.randn(4, 3, device=device))
    support = urn.enumerate_support(expand=False)
    assert support.shape == (len(support), 1, 3)
    assert urn.log_prob(support).shape == (len(support), 4)
    torch.testing.assert_close(
        urn.log_prob(support).exp().sum(0), torch.ones(4, device=device), rtol=1e-11, atol=1e-11
    )


def test_expanding_is_building_with_a_larger_batch(device: torch.device) -> None:
    urn = build(torch.randn(4, 3, device=device))
    expanded, before = urn.expand((6, 4)), results(urn)
    assert isinstance(expanded, WalleniusHypergeometric)
    assert (expanded.batch_shape, expanded.event_shape) == ((6, 4), (3,))
    assert expanded.sample((2,)).shape == expanded.rsample((2,)).shape == (2, 6, 4, 3)
    for name, result in results(expanded).items():
        torch.testing.assert_close(
            result, before[name].expand(6, *before[name].shape), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("empty", EMPTY)
def test_an_empty_batch_has_empty_results(empty: str, large: bool, device: torch.device) -> None:
    sizes, draws, shape = EMPTY[empty]([100_000 * m for m in SIZES] if large else SIZES)
    log_weights = torch.zeros(shape, device=device, requires_grad=True)
    urn = WalleniusHypergeometric(sizes, draws, log_weights=log_weights)
    assert urn.mean.shape == urn.variance.shape == (0, 3)
    assert urn.covariance_matrix.shape == (0, 3, 3)
    assert urn.log_prob(torch.zeros(0, 3, device=device)).shape == (0,)
    for name in ("marginal_log_prob", "cdf", "sf", "log_cdf", "log_sf", "icdf"):
        assert getattr(urn, name)(torch.ones(3, device=device)).shape == (0, 3)
    for number in (2, 50_000):
        assert urn.sample((number,)).shape == urn.rsample((number,)).shape == (number, 0, 3)
    urn.rsample((2,)).sum().backward()
    assert log_weights.grad.tolist() == torch.zeros(shape).tolist()


@pytest.mark.parametrize(
    ("dtype", "parameter"),
    [(torch.float32, "weights"), (torch.float32, "log_weights"), (torch.float64, "weights")],
)
def test_every_result_has_the_dtype_of_the_weights(
    dtype: torch.dtype, parameter: str, device: torch.device
) -> None:
    values = torch.tensor(
        [0.5, 1.5, 1.0], dtype=dtype, device=device
    )  # the same number in every dtype
    urn = WalleniusHypergeometric(SIZES, DRAWS, **{parameter: values})
    reference = results(WalleniusHypergeometric(SIZES, DRAWS, **{parameter: values.double()}))
    assert_dtype(urn, results(urn), reference, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_tails_and_quantiles_have_the_dtype_of_the_weights(
    dtype: torch.dtype, device: torch.device
) -> None:
    urn = WalleniusHypergeometric(
        [3, 5], 4, weights=torch.tensor([2.0, 0.5], dtype=dtype, device=device)
    )
    for name, value in (
        ("cdf", 2.0),
        ("sf", 2.0),
        ("log_cdf", 2.0),
        ("log_sf", 2.0),
        ("icdf", 0.5),
    ):
        found = getattr(urn, name)(torch.full((2,), value, dtype=dtype, device=device))
        assert (found.dtype, found.shape) == (dtype, (2,)), name


@pytest.mark.parametrize("learned", [False, True], ids=["constant", "learned"])
@pytest.mark.parametrize(
    "way",
    [copy.deepcopy, copy.copy, lambda urn: pickle.loads(pickle.dumps(urn))],
    ids=["deepcopy", "copy", "pickle"],
)
def test_copies_are_equal(way: Callable[[Any], Any], learned: bool, device: torch.device) -> None:
    urn = build(torch.tensor([0.5, 1.5, 1.0], device=device, requires_grad=learned))
    mean, twin, counts = urn.mean, way(urn), torch.tensor(COUNTS, device=device)
    assert type(twin) is WalleniusHypergeometric
    assert repr(twin) == repr(urn)
    assert torch.equal(twin.mean, mean)
    assert torch.equal(twin.log_prob(counts), urn.log_prob(counts))


def test_vmap_over_log_weights_equals_the_batch(device: torch.device) -> None:
    log_weights, counts = torch.randn(6, 3, device=device), torch.tensor(COUNTS, device=device)
    mapped = vmap(lambda lw: build(lw).log_prob(counts))(log_weights)
    torch.testing.assert_close(mapped, build(log_weights).log_prob(counts), rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings(
    r"ignore:`torch.jit.script` is deprecated:DeprecationWarning"
)  # torch's own, of its forward mode
@pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
def test_moments_of_small_urns_can_be_transformed(
    jacobian: Callable[..., Any], device: torch.device
) -> None:
    log_weights = torch.randn(6, 3, device=device)
    mapped = vmap(jacobian(lambda lw: build(lw).mean))(log_weights)
    for lw, found in zip(log_weights, mapped, strict=True):
        torch.testing.assert_close(
            found,
            torch.autograd.functional.jacobian(lambda lw: build(lw).mean, lw),
            rtol=1e-12,
            atol=1e-12,
        )


def test_weights_changed_in_place_are_seen(device: torch.device) -> None:
    log_weights = torch.zeros(3, device=device)
    urn = build(log_weights)
    before = urn.mean
    log_weights.copy_(torch.tensor([3.0, 0.0, -3.0], device=device))
    assert not torch.allclose(urn.mean, before)
    torch.testing.assert_close(urn.mean, build(log_weights.clone()).mean)


def test_repr_shows_the_shapes_of_what_was_given(device: torch.device) -> None:
    urn = build(torch.zeros(2, 3, device=device))
    assert (
        repr(urn)
        == "WalleniusHypergeometric(group_sizes: (2, 3), draws: (2,), log_weights: (2, 3))"
    )


# --------------------------------------------------------------------------------------------------
# Bad input
# --------------------------------------------------------------------------------------------------


def message_of(action: Callable[[], Any]) -> str:
    with pytest.raises(ValueError, match=r"\w") as error:
        action()
    return str(error.value)


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_bad_arguments_are_refused_with_the_sentence_of_fishers_urn_for(case: str) -> None:
    changed = BAD_ARGUMENTS[case][0]
    arguments = {
        name: value
        for name, value in GOOD.items()
        if name != "weights" or "log_weights" not in changed
    } | changed
    assert message_of(lambda: WalleniusHypergeometric(**arguments)) == message_of(
        lambda: FisherHypergeometric(**arguments)
    )


@pytest.mark.parametrize("case", BAD_VALUES)
def test_bad_values_are_refused_with_the_sentence_of_fishers_urn_for(case: str) -> None:
    value = torch.tensor(BAD_VALUES[case][0])
    ours, theirs = WalleniusHypergeometric(**GOOD), FisherHypergeometric(**GOOD)
    assert message_of(lambda: ours.log_prob(value)) == message_of(lambda: theirs.log_prob(value))


@pytest.mark.parametrize("method", ["sample", "rsample"])
def test_draws_too_large_for_the_dtype_ask_for_float64(method: str, device: torch.device) -> None:
    urn = WalleniusHypergeometric(
        [10**8, 10**8], 2**24 + 1, weights=torch.ones(2, dtype=torch.float32, device=device)
    )
    assert "use float64 weights" in message_of(getattr(urn, method))
