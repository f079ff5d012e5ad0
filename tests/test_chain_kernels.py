"""Triton kernels for the Gumbel-Softmax chain: with the same noise, the draws and gradients of
PyTorch's operations.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from diffurn import FisherHypergeometric, GumbelSoftmax, _dispatch
from diffurn._fisher import relaxed
from diffurn._fisher.conditionals import Conditional
from support.distributions import assert_possible
from support.goodness import Yardstick
from support.kernels import DEVICE, INTERPRETED, recorded, with_kernels, without_kernels
from support.philox import SEED, fixed_seed, gumbel
from support.urns import Urn, by_name

pytest.importorskip("triton", reason="the kernels need triton, which is not installed")
if not (torch.cuda.is_available() or INTERPRETED):
    pytest.skip(
        "the kernels need a CUDA device, or TRITON_INTERPRET=1 to run without one",
        allow_module_level=True,
    )

from diffurn._kernels import chain as kernels

pytestmark = [
    pytest.mark.needs("triton"),
    pytest.mark.filterwarnings(
        "ignore:.*encountered in:RuntimeWarning"
    ),  # the interpreter's NumPy, on what is masked afterwards
]
FALSE_ALARM = 1e-4
MERGED, EXACT = GumbelSoftmax(0.7, conditionals="merged"), GumbelSoftmax(0.7)

if INTERPRETED:  # it takes as long for a program of a thousand rows as for one of ten
    kernels.OF_MERGED["ROWS"] = kernels.OF_MERGED_SLOPES["ROWS"] = 1 << 12


@dataclass(frozen=True)
class WithNoiseOfKernels(GumbelSoftmax):
    """PyTorch's operations with the noise that the kernels compute for a seed."""

    def _noise(self, place: int, law: Conditional) -> Tensor:
        counts = (law.lowest.detach().unsqueeze(-1) + law.steps).cpu().numpy()
        return torch.tensor(gumbel(np.arange(len(counts)), place, counts), device=DEVICE)


def law_of(urn: Urn, leaf: Tensor) -> Any:
    given = FisherHypergeometric(urn.group_sizes, urn.draws, log_weights=leaf)
    return _dispatch.fisher(given)


def leaf_of(urn: Urn, copies: int = 2) -> Tensor:
    weights = torch.tensor(urn.log_weights, device=DEVICE)
    return (weights + 0.1 * torch.arange(copies, device=DEVICE).unsqueeze(-1)).requires_grad_()


def by_operations(estimator: GumbelSoftmax, urn: Urn, leaf: Tensor, number: int) -> Tensor:
    settings = {each.name: getattr(estimator, each.name) for each in fields(estimator)}
    with without_kernels():
        return WithNoiseOfKernels(**settings).rsample(law_of(urn, leaf), number)


def by_kernels(estimator: GumbelSoftmax, urn: Urn, leaf: Tensor, number: int) -> Tensor:
    with with_kernels(), fixed_seed():
        law = law_of(urn, leaf)
        assert relaxed.has_kernel(DEVICE, urn.groups, estimator._relaxation())
        return estimator.rsample(law, number)


def assert_same(estimator: GumbelSoftmax, urn: Urn, number: int = 3, digits: float = 1e-9) -> None:
    results = []
    for way in (by_operations, by_kernels):
        leaf = leaf_of(urn)
        counts = way(estimator, urn, leaf, number)
        upstream = torch.randn(counts.shape, generator=torch.Generator().manual_seed(1))
        (slope,) = torch.autograd.grad((counts * upstream.to(DEVICE)).sum(), leaf)
        results.append((counts.detach(), slope))
    (wanted, slopes), (counts, own) = results
    if estimator.hard:
        assert torch.equal(counts, wanted)
    else:
        torch.testing.assert_close(counts, wanted, rtol=1e-9, atol=1e-9)
    scale = max(1e-3, float(slopes.abs().max()))
    assert float((own - slopes).abs().max()) <= digits * scale


FEW = Urn("few-groups", (5, 7, 9, 4), 11, (0.3, -1.0, 0.5, 2.0))


@pytest.mark.parametrize("conditionals", ["merged", "exact"])
@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("through", [True, False])
def test_draws_and_gradients_are_those_of_pytorch(
    conditionals: Any, hard: bool, through: bool
) -> None:
    estimator = GumbelSoftmax(0.7, hard=hard, conditionals=conditionals, through_draws_left=through)
    assert_same(estimator, FEW)


@pytest.mark.parametrize("estimator", [MERGED, EXACT], ids=["merged", "exact"])
@pytest.mark.parametrize(
    "name",
    [
        "paper-200x3-odds-10",
        "titanic",
        "empty-group-middle",
        "almost-sure-5x3-first-filled",
        "extreme-5x3-one-more",
        "no-draws-1e9",
        "all-balls-1e9",
        "never-drawn-middle",
        "biasedurn-univariate",
    ],
)
def test_unusual_urns_are_drawn_as_by_pytorch(name: str, estimator: GumbelSoftmax) -> None:
    assert_same(estimator, by_name(name), digits=1e-7)


@pytest.mark.parametrize("estimator", [MERGED, EXACT], ids=["merged", "exact"])
def test_windows_of_many_blocks_are_drawn_as_by_pytorch(estimator: GumbelSoftmax) -> None:
    assert_same(estimator, Urn("20000x3", (20_000,) * 3, 25_000, (0.0, 1.2, -0.7)), 1, 1e-7)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
def test_merged_draws_at_any_temperature_are_those_of_pytorch(temperature: float) -> None:
    urn = by_name("paper-200x3-odds-10")
    for hard in (True, False):
        assert_same(replace(MERGED, temperature=temperature, hard=hard), urn)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 1.05])
def test_exact_draws_at_low_temperatures_are_those_of_pytorch(temperature: float) -> None:
    for hard in (True, False):
        assert_same(replace(EXACT, temperature=temperature, hard=hard), FEW)


@pytest.mark.parametrize("estimator", [MERGED, EXACT], ids=["merged", "exact"])
def test_a_permutation_is_the_order_of_the_draws(estimator: GumbelSoftmax) -> None:
    assert_same(replace(estimator, order=(2, 0, 3, 1)), FEW)


def test_many_groups_are_read_in_tiles() -> None:
    """More groups than a tile of the quadrature has."""
    rng = np.random.default_rng(2)
    sizes, weights = rng.integers(0, 9, 19), rng.normal(0.0, 1.0, 19)
    urn = Urn("0-to-8x19", tuple(sizes.tolist()), 40, tuple(weights.tolist()))
    assert_same(MERGED, urn, 1)
    assert_same(EXACT, urn, 1)


def p_value_of_merged_draws(urn: Urn, counts: np.ndarray, rng: np.random.Generator) -> float:
    """Of the paper's chain by SciPy: P(x < count) plus a random part of P(count) is uniform."""
    weights, uniform = np.exp(urn.log_weights), []
    left = np.full(len(counts), urn.draws)
    for j in range(urn.groups - 1):
        later = sum(urn.group_sizes[j + 1 :])
        merged = weights[j + 1 :] @ np.array(urn.group_sizes[j + 1 :]) / later
        size = urn.group_sizes[j]
        for n in np.unique(left):
            own = counts[left == n, j].astype(int)
            pmf = stats.nchypergeom_fisher.pmf(
                np.arange(size + 1), size + later, size, n, weights[j] / merged
            )
            below = np.concatenate([[0.0], np.cumsum(pmf)])
            uniform.append(below[own] + rng.random(len(own)) * pmf[own])
        left = left - counts[:, j].astype(int)
    return float(stats.kstest(np.concatenate(uniform), "uniform").pvalue)


def test_merged_draws_follow_scipys_law() -> None:
    number = 4000 if INTERPRETED else 1_000_000
    leaf = torch.tensor(FEW.log_weights, device=DEVICE)
    with with_kernels():
        counts = MERGED.rsample(law_of(FEW, leaf), number)
    assert_possible(counts.cpu(), FEW)
    p_value = p_value_of_merged_draws(FEW, counts.cpu().numpy(), np.random.default_rng(1))
    assert p_value >= FALSE_ALARM


def test_exact_draws_follow_fishers_law() -> None:
    urn, number = Urn("5x4", (5,) * 4, 8, (0.3, -1.0, 0.5, 1.0)), 150 if INTERPRETED else 1_000_000
    with with_kernels():
        counts = EXACT.rsample(law_of(urn, torch.tensor(urn.log_weights, device=DEVICE)), number)
    assert_possible(counts.cpu(), urn)
    p_values = Yardstick(urn).p_values([counts.cpu().numpy().astype(np.int64)])
    assert min(p_values) >= FALSE_ALARM / len(p_values)


@pytest.mark.parametrize("estimator", [MERGED, EXACT], ids=["merged", "exact"])
def test_random_orders_keep_the_counts_possible(estimator: GumbelSoftmax) -> None:
    leaf = leaf_of(FEW)
    with with_kernels():
        counts = replace(estimator, order="random").rsample(law_of(FEW, leaf), 3)
    assert_possible(counts.detach().cpu(), FEW)
    (slope,) = torch.autograd.grad(counts.square().sum(), leaf)
    assert torch.isfinite(slope).all()
    assert float(slope.abs().max()) > 0


@pytest.mark.parametrize("estimator", [MERGED, EXACT], ids=["merged", "exact"])
def test_an_urn_without_outcomes_gives_nan_alone(estimator: GumbelSoftmax) -> None:
    weights = torch.tensor([[1.0, 0.0, 0.0], [1.0, 2.0, 3.0]], device=DEVICE).requires_grad_()
    urn = FisherHypergeometric(
        [5, 5, 9], 8, weights=weights, estimator=estimator, validate_args=False
    )
    with with_kernels():
        counts = urn.rsample()
        (slope,) = torch.autograd.grad(counts[1].square().sum(), weights)
    assert counts[0].isnan().all()
    assert float(counts[1].detach().sum()) == 8
    assert torch.isfinite(slope[1]).all()


@pytest.mark.parametrize("estimator", [MERGED, EXACT], ids=["merged", "exact"])
def test_urns_in_float32_are_drawn_by_kernels(estimator: GumbelSoftmax) -> None:
    weights = torch.ones(2, 3, dtype=torch.float32, device=DEVICE, requires_grad=True)
    with with_kernels():
        urn = FisherHypergeometric([50] * 3, 60, weights=weights, estimator=estimator)
        counts = urn.rsample((2,))
        counts.square().sum().backward()
    assert counts.dtype == weights.grad.dtype == torch.float32
    assert (counts.sum(-1) == 60).all()


def test_nothing_is_drawn_for_no_urns() -> None:
    for estimator in (MERGED, EXACT):
        for shape, number in (((0, 4), 3), ((2, 4), 0)):
            leaf = torch.zeros(shape, device=DEVICE, requires_grad=True)
            with with_kernels():
                counts = estimator.rsample(law_of(FEW, leaf), number)
                counts.sum().backward()
            assert counts.shape == (number, *shape)
            assert (leaf.grad == 0).all()


@pytest.mark.parametrize(
    "estimator",
    [
        GumbelSoftmax(torch.tensor(0.5, requires_grad=True)),
        GumbelSoftmax(2.0),
    ],
    ids=["learned-temperature", "exact-in-the-tails"],
)
def test_other_relaxations_have_no_kernel(estimator: GumbelSoftmax) -> None:
    with with_kernels():
        assert not relaxed.has_kernel(DEVICE, 3, estimator._relaxation())
        assert relaxed.has_kernel(DEVICE, 3, EXACT._relaxation())
        assert not relaxed.has_kernel(DEVICE, 1, EXACT._relaxation())


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("estimator", [MERGED, EXACT], ids=["merged", "exact"])
def test_second_derivatives_are_those_of_pytorch(estimator: GumbelSoftmax, hard: bool) -> None:
    estimator, found = replace(estimator, hard=hard), []
    upstream, again = torch.randn(2, FEW.groups, device=DEVICE)
    for way in (by_operations, by_kernels):
        leaf = leaf_of(FEW)
        counts = way(estimator, FEW, leaf, 2)
        with torch.enable_grad():
            loss = (counts.square() * upstream).sum()
            (first,) = torch.autograd.grad(loss, leaf, create_graph=True)
            found.append((first.detach(), *torch.autograd.grad((first * again).sum(), leaf)))
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-8)


def test_the_noise_for_pytorch_is_that_of_the_words() -> None:
    lowest = torch.tensor([0.0, 7.0, 3e9], device=DEVICE)
    seed = torch.tensor([SEED], device=DEVICE)
    found = kernels.noise(seed, 5, lowest, 40).cpu().numpy()
    wanted = gumbel(np.arange(3), 5, lowest.cpu().numpy()[:, None] + np.arange(40))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile's own making
@pytest.mark.parametrize("estimator", [MERGED, EXACT], ids=["merged", "exact"])
def test_the_chain_compiles_as_one_graph(estimator: GumbelSoftmax) -> None:
    sizes = torch.tensor(FEW.group_sizes, device=DEVICE)
    draws = torch.tensor(FEW.draws, device=DEVICE)

    def step(log_weights: Tensor) -> Tensor:
        urn = FisherHypergeometric(
            sizes, draws, log_weights=log_weights, estimator=estimator, validate_args=False
        )
        return urn.rsample()

    leaf = leaf_of(FEW)
    backend = "aot_eager" if INTERPRETED else "inductor"
    with with_kernels():
        counts = torch.compile(step, fullgraph=True, backend=backend)(leaf)
        counts.square().sum().backward()
    assert_possible(counts.detach().cpu(), FEW)
    assert torch.isfinite(leaf.grad).all()


@pytest.mark.skipif(INTERPRETED, reason="graphs are recorded on CUDA devices")
@pytest.mark.parametrize("estimator", [MERGED, EXACT], ids=["merged", "exact"])
def test_a_recorded_graph_draws_anew_each_time(estimator: GumbelSoftmax) -> None:
    leaf, sizes = leaf_of(FEW), torch.tensor(FEW.group_sizes, device=DEVICE)
    draws = torch.tensor(FEW.draws, device=DEVICE)

    def step() -> tuple[Tensor, Tensor]:
        urn = FisherHypergeometric(
            sizes, draws, log_weights=leaf, estimator=estimator, validate_args=False
        )
        counts = urn.rsample((50,))
        return counts.detach(), torch.autograd.grad(counts.square().sum(), leaf)[0]

    graph, (counts, slope) = recorded(step)
    graph.replay()
    first = counts.clone()
    graph.replay()
    assert not torch.equal(first, counts)
    assert_possible(counts.reshape(-1, FEW.groups).cpu(), FEW)
    assert torch.isfinite(slope).all()
