"""Urns under torch.func and torch.compile: derivatives of every mode, vectorised and compiled, are
those of plain calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jacrev, vmap

from diffurn import FisherHypergeometric, GumbelSoftmax, WalleniusHypergeometric
from diffurn._fisher.moments import covariance_product
from test_torch_contract import (
    COUNTS,
    DRAWS,
    LOG_WEIGHTS,
    SIZES,
    Example,
    assert_same,
    every_distribution,
)

# torch itself, on first use of forward mode and of its compiler, calls functions that torch has
# deprecated
pytestmark = pytest.mark.filterwarnings(
    r"ignore:`torch.jit.script(_method)?` is deprecated:DeprecationWarning"
)


# --------------------------------------------------------------------------------------------------
# torch.func
# --------------------------------------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[[Any], Tensor]] = {
    "log_prob": lambda urn: urn.log_prob(torch.tensor(COUNTS, device=urn.draws.device)),
    "log_normalizer": lambda urn: urn.log_normalizer,
    "mean": lambda urn: urn.mean,
    "variance": lambda urn: urn.variance,
    "covariance_matrix": lambda urn: urn.covariance_matrix,
    "entropy": lambda urn: urn.entropy(),
    "marginal_log_prob": lambda urn: urn.marginals.log_prob(
        torch.tensor(COUNTS, device=urn.draws.device)
    ),
    "mode": lambda urn: urn.mode,
}
SMOOTH = [name for name in FUNCTIONS if name != "mode"]


@every_distribution
@pytest.mark.parametrize("parameter", ["weights", "log_weights"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap_over_weights_equals_the_batch(
    name: str, parameter: str, example: Example, device: torch.device
) -> None:
    values = torch.rand(6, 3, device=device) + 0.2

    def function(values: Tensor) -> Tensor:
        return FUNCTIONS[name](example.distribution(SIZES, DRAWS, **{parameter: values}))

    assert_same(vmap(function)(values), function(values))


@every_distribution
def test_vmap_over_sizes_draws_weights_and_counts_equals_the_batch(
    example: Example, device: torch.device
) -> None:
    sizes, draws = (
        torch.tensor([[3, 5, 4], [6, 2, 9]], device=device),
        torch.tensor([5, 11], device=device),
    )
    log_weights, counts = (
        torch.randn(2, 3, device=device),
        torch.tensor([[1.0, 3.0, 1.0], [4.0, 1.0, 6.0]], device=device),
    )

    def function(sizes: Tensor, draws: Tensor, log_weights: Tensor, counts: Tensor) -> Tensor:
        return example.build(log_weights, sizes, draws).log_prob(counts)

    assert_same(
        vmap(function)(sizes, draws, log_weights, counts),
        function(sizes, draws, log_weights, counts),
    )


@every_distribution
@pytest.mark.parametrize("name", SMOOTH)
def test_jacobians_by_reverse_and_forward_mode_and_by_backward_agree(
    name: str, example: Example, device: torch.device
) -> None:
    def function(log_weights: Tensor) -> Tensor:
        return FUNCTIONS[name](example.build(log_weights))

    log_weights = torch.tensor(LOG_WEIGHTS, device=device)
    reverse, forward = jacrev(function)(log_weights), jacfwd(function)(log_weights)
    assert_same(reverse, torch.autograd.functional.jacobian(function, log_weights))
    assert_same(forward, reverse)


@every_distribution
@pytest.mark.parametrize("name", SMOOTH)
def test_hessians_over_a_batch_equal_those_of_its_rows(
    name: str, example: Example, device: torch.device
) -> None:
    def function(log_weights: Tensor) -> Tensor:
        return FUNCTIONS[name](example.build(log_weights))

    log_weights = torch.randn(2, 3, device=device)
    batched = vmap(hessian(function))(log_weights)
    assert_same(batched, torch.stack([jacrev(jacrev(function))(row) for row in log_weights]), 1e-10)


# --------------------------------------------------------------------------------------------------
# Draws and quantiles under vmap
# --------------------------------------------------------------------------------------------------

LARGE: dict[str, Callable[[Tensor], Any]] = {
    "fisher": lambda weights: FisherHypergeometric([200] * 3, 100, weights=weights),
    "fisher-with-gumbels": lambda weights: FisherHypergeometric(
        [200] * 3, 100, weights=weights, estimator=GumbelSoftmax()
    ),
    "wallenius": lambda weights: WalleniusHypergeometric([200] * 3, 100, weights=weights),
}


@pytest.mark.parametrize("randomness", ["different", "same", "error"])
@pytest.mark.parametrize("urn", LARGE)
def test_draws_of_large_urns_under_vmap_say_what_to_do_instead(urn: str, randomness: str) -> None:
    # on the CPU: on CUDA devices the kernel for Fisher's law can be vmapped
    with pytest.raises(
        NotImplementedError,
        match=r"cannot be vmapped .*; make one urn with a batch of weights and draw from it "
        r"instead",
    ):
        vmap(lambda weights: LARGE[urn](weights).rsample(), randomness=randomness)(torch.rand(4, 3))
    assert LARGE[urn](torch.rand(4, 3)).rsample().sum(-1).round().tolist() == [100.0] * 4


@pytest.mark.parametrize("law", [FisherHypergeometric, WalleniusHypergeometric])
def test_draws_of_urns_with_mapped_sizes_say_what_to_do_instead(law: Any) -> None:
    with pytest.raises(
        NotImplementedError, match="draws of urns whose sizes are tensors cannot be vmapped"
    ):
        vmap(lambda sizes: law(sizes, 4, weights=torch.ones(3)).sample(), randomness="different")(
            torch.full((4, 3), 3)
        )


@pytest.mark.parametrize("law", [FisherHypergeometric, WalleniusHypergeometric])
def test_draws_that_vmap_shares_and_draws_of_small_urns_are_made(
    law: Any, device: torch.device
) -> None:
    weights = torch.rand(4, 3, device=device) + 0.1
    shared = vmap(
        lambda w: law([200] * 3, 100, weights=torch.ones(3, device=device)).sample() + 0 * w,
        randomness="same",
    )(weights)
    assert_same(shared, shared[:1].expand(4, 3))
    assert shared[0].sum().item() == 100
    small = vmap(lambda w: law(SIZES, DRAWS, weights=w).sample((50,)), randomness="different")(
        weights
    )
    assert small.sum(-1).tolist() == [[DRAWS] * 50] * 4


@pytest.mark.parametrize("urn", ["fisher", "wallenius"])
def test_gradients_through_draws_of_large_urns_can_be_transformed(
    urn: str, device: torch.device
) -> None:
    weights, direction = (
        torch.rand(3, device=device) + 0.1,
        torch.tensor([0.0, 1.0, 2.0], device=device),
    )
    found = grad(lambda weights: (direction * LARGE[urn](weights).rsample()).sum())(weights)
    leaf = weights.clone().requires_grad_()
    (expected,) = torch.autograd.grad((direction * LARGE[urn](leaf).mean).sum(), leaf)
    assert_same(found, expected, 1e-5)


def test_vmap_over_quantiles_equals_the_batch(device: torch.device) -> None:
    weights, q = torch.rand(4, 3, device=device) + 0.1, torch.tensor([0.1, 0.5, 1.0], device=device)
    assert_same(
        vmap(lambda weights: LARGE["fisher"](weights).marginals.icdf(q))(weights),
        LARGE["fisher"](weights).marginals.icdf(q),
    )


# --------------------------------------------------------------------------------------------------
# torch.compile
# --------------------------------------------------------------------------------------------------


def compiled_functions(
    example: Example, device: torch.device
) -> dict[str, Callable[[Tensor], Tensor]]:
    """What training steps are made of, each as a function of log-weights."""
    sizes, counts = torch.tensor(SIZES, device=device), torch.tensor(COUNTS, device=device)

    def product(log_weights: Tensor) -> Tensor:
        return covariance_product(*example.build(log_weights, sizes).tilted, counts)

    return {
        "log_prob": lambda log_weights: example.build(log_weights, sizes).log_prob(counts),
        "mean": lambda log_weights: example.build(log_weights, sizes).mean,
        "covariance product": product,
    }


def assert_compiles(
    function: Callable[[Tensor], Tensor], log_weights: Tensor, backend: str
) -> None:
    """In one graph, forward and backward, with the same results; rows beyond the first make every
    operand vary.
    """
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    leaf, other = (log_weights.clone().requires_grad_() for _ in range(2))
    expected, actual = function(leaf), compiled(other)
    assert_same(actual, expected, 1e-11)
    upstream = torch.randn(expected.shape, device=expected.device)
    expected.backward(upstream)
    actual.backward(upstream)
    assert_same(other.grad, leaf.grad, 1e-10)


# dynamo looks at autograd.Function by making one
dynamo_makes_functions = pytest.mark.filterwarnings(
    r"ignore:.*should not be instantiated.*:DeprecationWarning"
)


@every_distribution
@dynamo_makes_functions
@pytest.mark.parametrize("name", ["log_prob", "mean", "covariance product"])
def test_compiles_in_one_graph_forward_and_backward(
    name: str, example: Example, device: torch.device
) -> None:
    assert_compiles(
        compiled_functions(example, device)[name],
        torch.randn(4, 3, device=device),
        backend="aot_eager",
    )


@pytest.mark.slow
@pytest.mark.needs("C++")
@every_distribution
@dynamo_makes_functions
@pytest.mark.parametrize("name", ["log_prob", "mean", "covariance product"])
def test_compiles_to_machine_code_forward_and_backward(
    name: str, example: Example, device: torch.device
) -> None:
    assert_compiles(
        compiled_functions(example, device)[name],
        torch.randn(4, 3, device=device),
        backend="inductor",
    )
