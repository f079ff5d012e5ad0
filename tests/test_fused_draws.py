"""Draws that kernels make from an urn's arguments: those of the general path, in few launches."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from diffurn import FisherHypergeometric, GumbelSoftmax, _dispatch
from diffurn._fisher import moments
from diffurn.nn import SubsetSampler
from support.kernels import DEVICE, INTERPRETED, recorded, with_kernels, without_kernels
from support.philox import fixed_seed

pytest.importorskip("triton", reason="the kernels need triton, which is not installed")
if not (torch.cuda.is_available() or INTERPRETED):
    pytest.skip(
        "the kernels need a CUDA device, or TRITON_INTERPRET=1 to run without one",
        allow_module_level=True,
    )

from diffurn._kernels import operands as kernels
from diffurn._kernels import sampling

pytestmark = [
    pytest.mark.needs("triton"),
    pytest.mark.filterwarnings(
        "ignore:.*encountered in:RuntimeWarning"
    ),  # the interpreter's NumPy, on what is masked afterwards
    pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning"),
]
SIZES = (100, 40, 0, 70, 200)  # tables of their outcomes do not pay


def urn_of(log_weights: Tensor, draws: Any = 150, **options: Any) -> FisherHypergeometric:
    sizes = torch.tensor(SIZES, device=DEVICE)
    draws = torch.as_tensor(draws, device=DEVICE)
    return FisherHypergeometric(
        sizes, draws, log_weights=log_weights, validate_args=False, **options
    )


def leaf(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    values = torch.randn(*shape, len(SIZES), generator=torch.Generator().manual_seed(3))
    return values.to(DEVICE, dtype).requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("is_log", [True, False])
def test_operands_are_those_of_the_urn_tilted(dtype: torch.dtype, is_log: bool) -> None:
    log_weights = leaf(6, dtype=dtype).detach()
    log_weights[1, 0] = -math.inf
    given = log_weights if is_log else log_weights.exp()
    name = "log_weights" if is_log else "weights"
    sizes, draws = torch.tensor(SIZES, device=DEVICE), torch.tensor([0, 9, 60, 410, 150, 1])
    urn = FisherHypergeometric(sizes, draws.to(DEVICE), **{name: given})
    with without_kernels():
        wanted = _dispatch.fisher(urn).tilted
    found = kernels.operands(given, urn.group_sizes, urn.draws, is_log, centring=True)
    assert [x.dtype for x in found] == [torch.float64] * 4
    torch.testing.assert_close(found[1], wanted[1])
    torch.testing.assert_close(found[2], wanted[2])
    # Tilts agree to a small part of the standard deviation of the sum.
    torch.testing.assert_close(found[0], wanted[0], rtol=0, atol=2e-3)
    with without_kernels():
        centre = moments.centring_tilt(*found[:3])
    torch.testing.assert_close(found[3][0], centre, rtol=0, atol=2e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_one_launch_gives_operands_and_their_derivatives(dtype: torch.dtype) -> None:
    found = []
    for kernels_run in (without_kernels, with_kernels):
        weights = leaf(4, dtype=dtype).detach()
        weights[1, 0], weights[2, 1] = -math.inf, math.nan
        weights.requires_grad_()
        with kernels_run():
            urn = urn_of(weights, [150, 310, 150, 500])
            log_weights, sizes, draws = urn._operands()
            valid, numbers = urn._is_valid(), [0, 1, 3]  # rows without NaN
            slope = torch.autograd.grad(log_weights[numbers].square().sum(), weights)[0]
        assert log_weights.dtype == sizes.dtype == torch.float64
        assert slope.dtype == dtype
        rows = [x.detach()[numbers] for x in (log_weights, sizes, slope)]
        found.append((*rows, draws, valid))
    torch.testing.assert_close(*found, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("weights", "sizes", "draws"),
    [
        ([1.0, -1.0], [3, 3], 2),
        ([1.0, math.nan], [3, 3], 2),
        ([1.0, math.inf], [3, 3], 2),
        ([1.0, 1.0], [3, -1], 2),
        ([1.0, 1.0], [3, 3], 7),
        ([1.0, 1.0], [3, 3], -1),
        ([1.0, 0.0], [3, 3], 4),
    ],
)
def test_an_urn_that_is_not_valid_gives_nan_alone(
    weights: list[float], sizes: list[int], draws: int
) -> None:
    given = torch.tensor([weights, [1.0, 2.0]], device=DEVICE)
    balls = torch.tensor([sizes, [3, 3]], device=DEVICE)
    number = torch.tensor([draws, 2], device=DEVICE)
    totals = kernels.operands(given, balls, number, False)[2]
    assert totals.isnan().tolist() == [True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_draws_and_gradients_are_those_of_the_general_path(dtype: torch.dtype) -> None:
    weights, upstream = leaf(3, dtype=dtype), torch.randn(2, 3, len(SIZES), device=DEVICE)
    upstream = upstream.to(dtype)
    with with_kernels(), fixed_seed():
        urn = urn_of(weights)
        assert _dispatch.draws_are_fused(urn, 2)
        counts = urn.rsample((2,))
        (slope,) = torch.autograd.grad((counts * upstream).sum(), weights)
        tilted = kernels.operands(weights, urn.group_sizes, urn.draws, True)[:3]
        expected = sampling.draw_each(*tilted, 2, dtype)
    assert counts.dtype == slope.dtype == dtype
    assert torch.equal(counts, expected)
    assert (counts <= urn.group_sizes).all()
    assert (counts.sum(-1) == 150).all()
    with without_kernels():
        total = upstream.double().sum(0)
        wanted = urn_of(weights.detach().double()).covariance_matrix @ total.unsqueeze(-1)
    rounding = 1e-10 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(slope.double(), wanted.squeeze(-1), rtol=rounding, atol=rounding)


@pytest.mark.parametrize("items", [40, 90])
def test_subsets_have_draws_and_gradients_of_their_law(items: int) -> None:
    """Their kernels know that no group has more than one ball."""
    logits = torch.randn(3, items, device=DEVICE, requires_grad=True)
    vector = torch.randn(3, items, device=DEVICE)
    with with_kernels():
        urn = FisherHypergeometric([1], 7, log_weights=logits, validate_args=False)
        assert urn._has_single_balls()
        assert _dispatch.draws_are_fused(urn, 2)
        subsets = urn.rsample((2,))
        (slope,) = torch.autograd.grad((subsets * vector).sum(), logits)
    assert ((subsets == 0) | (subsets == 1)).all()
    assert (subsets.sum(-1) == 7).all()
    with without_kernels():
        covariance = FisherHypergeometric([1], 7, log_weights=logits.double()).covariance_matrix
        wanted = covariance.detach() @ (2 * vector.double()).unsqueeze(-1)
    torch.testing.assert_close(slope.double(), wanted.squeeze(-1), rtol=1e-4, atol=1e-5)


def test_rows_without_outcomes_have_no_gradient() -> None:
    weights = leaf(2)
    with with_kernels():
        counts = urn_of(weights, [500, 150]).rsample()
        (slope,) = torch.autograd.grad(counts.square().sum(), weights)
    assert counts[0].isnan().all()
    assert (slope[0] == 0).all()
    assert float(slope[1].abs().max()) > 0


def test_weights_of_zero_are_never_drawn() -> None:
    weights = leaf(2).detach()
    weights[:, 0] = -math.inf
    weights.requires_grad_()
    with with_kernels():
        counts = urn_of(weights).rsample((4,))
        (slope,) = torch.autograd.grad(counts.square().sum(), weights)
    assert (counts[..., 0] == 0).all()
    assert (slope[:, 0] == 0).all()
    assert torch.isfinite(slope).all()


def test_second_derivatives_are_those_of_the_covariance() -> None:
    upstream, again = torch.randn(2, len(SIZES), device=DEVICE)
    found = []
    for kernels_run in (without_kernels, with_kernels):
        weights = leaf(1)
        with kernels_run():
            counts = urn_of(weights).rsample()
            (first,) = torch.autograd.grad((counts * upstream).sum(), weights, create_graph=True)
            found.append(torch.autograd.grad((first * again).sum(), weights)[0])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


def test_samples_are_made_in_the_same_way() -> None:
    weights = leaf(2)
    with with_kernels(), fixed_seed():
        drawn, sampled = urn_of(weights).rsample((3,)), urn_of(weights).sample((3,))
    assert torch.equal(drawn.detach(), sampled)
    assert not sampled.requires_grad


@pytest.mark.parametrize(
    ("options", "is_fused"),
    [
        ({"log_weights": torch.zeros(2, 5)}, True),
        ({"weights": torch.ones(2, 5)}, True),
        ({"weights": torch.ones(2, 5, requires_grad=True)}, False),
        ({"log_weights": torch.zeros(2, 5, dtype=torch.bfloat16)}, False),
    ],
)
def test_derivatives_in_weights_keep_the_general_path(
    options: dict[str, Tensor], is_fused: bool
) -> None:
    given = {name: value.detach().to(DEVICE) for name, value in options.items()}
    for name, value in options.items():
        given[name].requires_grad_(value.requires_grad)
    urn = FisherHypergeometric(torch.tensor(SIZES, device=DEVICE), 150, **given)
    with with_kernels():
        assert _dispatch.draws_are_fused(urn, 1) == is_fused
    with without_kernels():
        assert not _dispatch.draws_are_fused(urn, 1)


def test_transforms_and_other_estimators_keep_the_general_path() -> None:
    found: list[bool] = []

    def function(log_weights: Tensor) -> Tensor:
        found.append(_dispatch.draws_are_fused(urn_of(log_weights), 1))
        return log_weights.sum()

    with with_kernels():
        torch.func.grad(function)(leaf(2).detach())
        counts = urn_of(leaf(2), estimator=GumbelSoftmax(0.5, hard=False)).rsample()
    assert found == [False]
    assert (counts != counts.round()).any()


# Of the interpreter, and of sizes that are read since they lie on the CPU.
_OF_TESTS = {
    "aten.copy_.default",
    "aten.lift_fresh.default",
    "aten.scalar_tensor.default",
    "aten.set_.source_Storage",
    "aten.set_.source_Storage_storage_offset",
}


class _Operations(TorchDispatchMode):
    """Counts the operations that write a result."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        if not function.is_view and "empty" not in str(function):
            self.names[str(function)] += 1
        return function(*arguments, **(options or {}))


def test_a_draw_and_its_gradient_launch_few_operations() -> None:
    """Beside three kernels, the seed alone is an operation of PyTorch."""
    weights = leaf(3)
    upstream = torch.ones(3, len(SIZES), device=DEVICE)
    sizes, draws = torch.tensor(SIZES, device=DEVICE), torch.tensor(150, device=DEVICE)
    with with_kernels(), _Operations() as operations:
        counts = FisherHypergeometric(
            sizes, draws, log_weights=weights, validate_args=False
        ).rsample()
        torch.autograd.grad(counts, weights, upstream)
    found = {name: number for name, number in operations.names.items() if name not in _OF_TESTS}
    assert found == {"aten.randint.default": 1}


@pytest.mark.skipif(INTERPRETED, reason="only CUDA devices are waited for")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
@pytest.mark.parametrize("with_mask", [False, True], ids=["", "mask"])
def test_a_layer_never_waits_for_the_device(with_mask: bool) -> None:
    """Neither in a step, nor while a step is recorded, whose copies draw anew."""
    logits = torch.randn(64, 784, device=DEVICE, requires_grad=True)
    mask = torch.arange(784, device=DEVICE) < 700 if with_mask else None
    vector, sampler = torch.randn(784, device=DEVICE), SubsetSampler(50)

    def step() -> tuple[Tensor, Tensor]:
        subsets = sampler(logits, mask)
        return subsets.detach(), torch.autograd.grad((subsets @ vector).sum(), logits)[0]

    step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph, (subsets, slope) = recorded(step)
    graph.replay()
    first = subsets.clone()
    graph.replay()
    assert not torch.equal(first, subsets)
    assert (subsets.sum(-1) == 50).all()
    with without_kernels():
        inclusion = sampler.inclusion(logits, mask)
        wanted = torch.autograd.grad((inclusion @ vector).sum(), logits)[0]
    torch.testing.assert_close(slope, wanted, rtol=1e-4, atol=1e-6)
