"""Small urns whose sizes are known on the CPU: the same law from tables, without a CPU-GPU
synchronisation and in one compiled graph.
"""

from __future__ import annotations

import gc
import importlib
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.distributions import Distribution

from diffurn import (
    CovarianceST,
    FisherHypergeometric,
    GumbelSoftmax,
    WalleniusHypergeometric,
    _composition,
    _dispatch,
)
from diffurn._fisher import constants
from diffurn._fisher.conditionals import Conditional, conditional, merged
from diffurn._fisher.tabulated import Tabulated
from diffurn._kernels import dispatch as kernels
from support import oracles
from support.distributions import GeneralFisher
from support.kernels import without_kernels
from support.samplers import Chance
from support.synchronisation import NoSynchronisation, capturing
from support.urns import NEVER, SMALL, Urn

pytestmark = pytest.mark.filterwarnings(
    r"ignore:`torch.jit.script(_method)?` is deprecated:DeprecationWarning",
    r"ignore:.*should not be instantiated.*:DeprecationWarning",
)

EXTREME = (
    Urn("500-filled", (4, 5, 3), 4, (500.0, 0.0, -500.0)),
    Urn("500-between", (4, 5, 3), 6, (500.0, 0.0, -500.0)),
    Urn("500-two-groups", (6, 7), 5, (500.0, -500.0)),
    Urn("500-two-groups-swapped", (6, 7), 5, (-500.0, 500.0)),
    Urn("500-in-common", (4, 5, 3), 6, (500.0, 499.0, 500.5)),
    Urn("never-first", (4, 5), 3, (NEVER, 0.5)),
    Urn("never-last", (4, 5), 3, (0.5, NEVER)),
    Urn("never-between", (4, 5, 3), 6, (0.5, NEVER, -1.0)),
    Urn("never-and-500", (4, 5, 3, 2), 5, (-500.0, NEVER, 2.0, 500.0)),
    Urn("all-never-nothing-drawn", (4, 5, 3), 0, (NEVER, NEVER, NEVER)),
    Urn("an-empty-group", (4, 0, 3), 5, (0.5, 3.0, -1.0)),
    Urn("an-empty-group-of-two", (0, 6), 5, (0.5, 3.0)),
    Urn("no-balls", (0, 0, 0), 0, (0.5, 3.0, 1.0)),
    Urn("nothing-drawn", (4, 5, 3), 0, (0.5, 3.0, 1.0)),
    Urn("everything-drawn", (4, 5, 3), 12, (0.5, -300.0, 1.0)),
    Urn("everything-drawn-of-two", (4, 5), 9, (0.5, -300.0)),
    Urn("a-big-group-and-a-small-one", (900, 4), 902, (0.5, 1.5)),
    Urn("one-ball-each", (1,) * 12, 5, tuple(0.7 * i for i in range(12))),
)


@pytest.fixture(autouse=True)
def without_c_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be faster than tables for these urns."""
    monkeypatch.setattr(kernels, "HAS_NATIVE", False)


def composition_of(sizes: Any, draws: Any, weights_shape: Sequence[int]) -> Any:
    plain = _composition.PlainSizes.read(sizes, draws, weights_shape)
    return None if plain is None else _composition.composition_of(plain)


TABLED = (
    *EXTREME,
    *[
        urn
        for urn in SMALL
        if composition_of(urn.group_sizes, urn.draws, (urn.groups,)) is not None
    ][::3],
)
every_urn = pytest.mark.parametrize("urn", TABLED, ids=str)


def fisher(urn: Urn, device: torch.device, **others: Any) -> FisherHypergeometric:
    log_weights = torch.tensor(urn.log_weights, device=device, requires_grad=True)
    distribution = FisherHypergeometric(
        urn.group_sizes, urn.draws, log_weights=log_weights, **others
    )
    assert isinstance(_dispatch.fisher_for_draws(distribution, 1), Tabulated)
    return distribution


def assert_near(
    actual: Tensor, expected: Any, relative: float = 1e-10, absolute: float = 1e-300
) -> None:
    wanted = torch.tensor([float(entry) for entry in expected], device=actual.device)
    torch.testing.assert_close(actual.detach(), wanted, rtol=relative, atol=absolute)


# --------------------------------------------------------------------------------------------------
# Accuracy, against the enumeration of all outcomes in sixty digits
# --------------------------------------------------------------------------------------------------


@every_urn
def test_means_keep_ten_digits_in_every_entry(urn: Urn, device: torch.device) -> None:
    assert_near(fisher(urn, device).mean, oracles.enumeration(urn).moments().mean)


def test_means_of_one_draw_are_the_shares_of_the_groups(device: torch.device) -> None:
    """To 13 digits, though group sizes differ by a factor of five hundred and weights are tied."""
    sizes = [995, 2, 995, 40, 3, 7, 612, 995] * 4
    log_weights = torch.zeros(32, device=device, requires_grad=True)
    urn = FisherHypergeometric(sizes, 1, log_weights=log_weights)
    assert isinstance(_dispatch.fisher_for_draws(urn, 1), Tabulated)
    assert_near(urn.mean, [size / sum(sizes) for size in sizes], relative=1e-13)


@every_urn
def test_means_sum_to_the_draws(urn: Urn, device: torch.device) -> None:
    assert abs(math.fsum([*fisher(urn, device).mean.tolist(), -urn.draws])) <= 1e-15 * urn.draws


@every_urn
def test_variances_keep_nine_digits_of_the_largest(urn: Urn, device: torch.device) -> None:
    wanted = [float(oracles.enumeration(urn).moments().covariance[j, j]) for j in range(urn.groups)]
    assert_near(
        fisher(urn, device).variance, wanted, relative=0, absolute=1e-9 * max(wanted) + 1e-120
    )


@every_urn
def test_probabilities_of_outcomes_keep_ten_digits(urn: Urn, device: torch.device) -> None:
    outcomes = [x for x, log_p in oracles.enumeration(urn).log_probs.items() if log_p > -math.inf]
    outcomes = outcomes[:: max(1, len(outcomes) // 50)]
    ours = fisher(urn, device).log_prob(torch.tensor(outcomes, device=device))
    assert_near(ours, [oracles.enumeration(urn).log_probs[x] for x in outcomes], absolute=1e-10)


@every_urn
def test_slope_of_the_mean_is_the_covariance_to_nine_digits(urn: Urn, device: torch.device) -> None:
    """Also where the outcome is nearly sure, and the covariance below 1e-100."""
    distribution, wanted = fisher(urn, device), oracles.enumeration(urn).moments().covariance
    largest = max(abs(float(entry)) for entry in wanted.values())
    rows = [
        torch.autograd.grad(entry, distribution.log_weights, retain_graph=True)[0]
        for entry in distribution.mean
    ]
    for (i, j), entry in wanted.items():
        if NEVER not in (urn.log_weights[i], urn.log_weights[j]):
            assert abs(float(rows[i][j]) - float(entry)) <= 1e-9 * largest + 1e-120


@every_urn
def test_rank_indicators_have_the_slope_of_exact_tail_probabilities(
    urn: Urn, device: torch.device
) -> None:
    group, distribution = urn.groups - 1, fisher(urn, device)
    tail = Tabulated.build(distribution._composition, distribution.log_weights).tail(group)
    log_marginal = oracles.enumeration(urn).marginals()[group]
    wanted = [
        sum(oracles.mp.exp(p) for x, p in log_marginal.items() if x >= i)
        for i in range(1, urn.group_sizes[group] + 1)
    ]
    assert_near(tail, wanted)


@pytest.mark.parametrize(
    "urn", [urn for urn in EXTREME if urn.largest_log_weight < 10 and urn.draws], ids=str
)
def test_derivatives_match_finite_differences_to_second_order(
    urn: Urn, device: torch.device
) -> None:
    counts = torch.tensor(next(iter(oracles.enumeration(urn).log_probs)), device=device)
    leaf = torch.tensor(urn.log_weights, device=device).requires_grad_()
    for function in (
        lambda lw: FisherHypergeometric(urn.group_sizes, urn.draws, log_weights=lw).mean,
        lambda lw: FisherHypergeometric(urn.group_sizes, urn.draws, log_weights=lw).log_prob(
            counts
        ),
    ):
        assert torch.autograd.gradcheck(function, (leaf,))
        assert torch.autograd.gradgradcheck(function, (leaf,))


def test_urns_of_one_batch_may_differ(device: torch.device) -> None:
    sizes, draws = [[[3, 5, 4], [0, 2, 7]], [[1, 1, 1], [6, 0, 0]]], [[5, 9], [2, 3]]
    log_weights = torch.randn(5, 2, 2, 3, device=device)
    urn = FisherHypergeometric(torch.tensor(sizes), draws, log_weights=log_weights)
    assert isinstance(_dispatch.fisher_for_draws(urn, 50), Tabulated)
    counts = urn.sample((50,))
    assert bool(urn.support.check(counts).all())
    for i in range(2):
        for j in range(2):
            alone = FisherHypergeometric(sizes[i][j], draws[i][j], log_weights=log_weights[:, i, j])
            torch.testing.assert_close(urn.mean[:, i, j], alone.mean, rtol=1e-12, atol=1e-13)
            torch.testing.assert_close(
                urn.log_prob(counts)[:, :, i, j],
                alone.log_prob(counts[:, :, i, j]),
                rtol=1e-12,
                atol=1e-12,
            )
    pairs = FisherHypergeometric(
        [[3, 5], [9, 1]], [4, 6], log_weights=torch.zeros(2, 2, device=device)
    )
    torch.testing.assert_close(pairs.mean, torch.tensor([[1.5, 2.5], [5.4, 0.6]], device=device))
    assert pairs.rank_indicators(0, (3,))[1].shape == (3, 2, 9)


# --------------------------------------------------------------------------------------------------
# Draws
# --------------------------------------------------------------------------------------------------

CHAINS = {
    "covariance": CovarianceST(),
    "gumbel": GumbelSoftmax(0.5),
    "gumbel-ordered": GumbelSoftmax(0.5, order=(3, 1, 0, 2)),
}


@pytest.mark.parametrize("estimator", CHAINS)
def test_draws_follow_the_law(estimator: str, device: torch.device) -> None:
    """χ² over all 155 outcomes (false alarm 1e-6)."""
    weights = torch.tensor([1.0, 4.0, 0.5, 2.0], device=device)
    urn = FisherHypergeometric([4, 3, 5, 6], 8, weights=weights, estimator=CHAINS[estimator])
    number = 2000
    assert isinstance(urn._law_for_estimator(number), Tabulated)
    assert isinstance(_dispatch.fisher_for_draws(urn, number), Tabulated)
    outcomes = urn.enumerate_support()
    expected = urn.log_prob(outcomes).exp() * 10 * number
    for draw in (urn.sample, urn.rsample):
        counts = torch.cat([draw((number,)) for _ in range(10)])
        observed = (counts.unsqueeze(1) == outcomes).all(-1).sum(0)
        assert int(observed.sum()) == len(counts)
        rare = (expected < 5).nonzero().squeeze(-1)
        pooled = [
            torch.cat([values[expected >= 5], values[rare].sum().reshape(1)]).cpu().numpy()
            for values in (observed, expected)
        ]
        assert stats.chisquare(*pooled, sum_check=False).pvalue > 1e-6


@pytest.mark.parametrize("parameter", ["weights", "log_weights"])
def test_groups_of_weight_zero_are_never_drawn(parameter: str, device: torch.device) -> None:
    """Even if the uniform numbers are the smallest and the largest there are."""
    weights = torch.tensor([0.0, 1.0, 0.0, 2.0], device=device)
    for value in (0.0, 1 - 2.0**-53):

        def constant(shape: Any, value: float = value, **options: Any) -> Tensor:
            return torch.full(shape, value, **options)

        for order in ([0, 1, 2, 3], [1, 0, 3, 2]):
            values = weights[order] if parameter == "weights" else weights[order].log()
            four = FisherHypergeometric([3, 4, 5, 2], 3, **{parameter: values})
            two = FisherHypergeometric([3, 4], 3, **{parameter: values[:2]})
            with Chance({torch.rand: constant}):
                of_four, of_two = four.sample((2,)), two.sample((2,))
            assert bool((of_four[:, weights[order] == 0] == 0).all())
            assert bool((of_two[:, weights[order][:2] == 0] == 0).all())


def test_the_chain_of_two_groups_equals_the_general_one(
    device: torch.device,
) -> None:
    start = torch.randn(30, 2, device=device)
    for conditionals in ("exact", "merged"):
        found = []
        for build in (FisherHypergeometric, GeneralFisher):
            leaf = start.clone().requires_grad_()
            urn = build(
                [7, 9], 8, log_weights=leaf, estimator=GumbelSoftmax(0.7, conditionals=conditionals)
            )
            torch.manual_seed(1)
            counts, indicators = urn.rank_indicators(0, (4,))
            torch.manual_seed(1)
            drawn = urn.rsample((4,))
            upstream = [
                torch.linspace(-1, 2, part.numel(), device=device).reshape(part.shape)
                for part in (counts, indicators, drawn)
            ]
            torch.autograd.backward([counts, indicators, drawn], upstream)
            found.append((counts.detach(), indicators.detach(), drawn.detach(), leaf.grad))
        torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11)


def normalized(law: Conditional, counts: int) -> Tensor:
    """The law's probabilities by count, 0, …, counts."""
    index = law.lowest.unsqueeze(-1) + law.steps
    inside = law.log_weights > -torch.inf
    probability = law.log_weights.softmax(-1)
    return torch.zeros(*law.lowest.shape, counts + 1).scatter_add(
        -1, (index * inside).to(torch.int64), probability * inside
    )


@pytest.mark.parametrize("is_merged", [False, True], ids=["exact", "merged"])
@pytest.mark.parametrize("group", [0, 1, 2])
def test_conditional_laws_and_their_slopes_are_those_of_the_general_chain(
    is_merged: bool, group: int
) -> None:
    """With them, and the same noise, every step of the two chains is the same."""
    sizes, draws, rows = (4, 3, 5, 6), 8, 40
    start = torch.randn(rows, 4)
    left = (
        torch.full((rows,), float(draws))
        if group == 0
        else torch.randint(6 * (group == 1), 12 - 4 * group, (rows,)).to(start.dtype)
    )
    upstream, found = torch.randn(rows, 7), []
    for tabled in (True, False):
        log_weights, draws_left = (
            start.clone().requires_grad_(),
            left.clone().requires_grad_(group > 0),
        )
        if tabled:
            tabulated = Tabulated.build(composition_of(sizes, draws, (4,)), log_weights)
            chain = tabulated.chain(1, order=range(4), merged=is_merged, temperature=1.0)
            law = chain.conditional(group, draws_left)
        else:
            balls = torch.tensor(sizes, dtype=start.dtype).expand(rows, -1)
            later = log_weights[:, group + 1 :], balls[:, group + 1 :]
            law = conditional(
                log_weights[:, group],
                balls[:, group],
                *(merged(*later) if is_merged else later),
                draws_left,
                38.0,
            )
        probability = normalized(law, 6)
        probability.backward(upstream)
        found.append(
            (
                probability.detach(),
                log_weights.grad,
                draws_left.grad if group else torch.zeros(rows),
            )
        )
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-11)


@every_urn
def test_tables_hand_over_the_urn_that_they_were_built_from(urn: Urn, device: torch.device) -> None:
    distribution = fisher(urn, device)
    tabulated = Tabulated.build(distribution._composition, distribution._finite_log_weights())
    tilted = tabulated.general.tilted
    for ours, theirs in zip(tilted, _dispatch.fisher(distribution).tilted, strict=True):
        torch.testing.assert_close(ours, theirs)


# --------------------------------------------------------------------------------------------------
# Which urns
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "draws"),
    [
        ([3, 5], 4),
        ((3, 5), 4),
        (torch.tensor([3, 5]), torch.tensor(4)),
        (np.array([3, 5]), np.int64(4)),
        ([3.0, 5.0], 4.0),
    ],
    ids=["list", "tuple", "tensor", "numpy", "float"],
)
def test_sizes_on_the_cpu_are_known(sizes: Any, draws: Any) -> None:
    known = composition_of(sizes, draws, (2,))
    assert known is not None
    assert (known.shape, known.group_sizes, known.draws) == ((), ((3, 5),), (4,))


@pytest.mark.parametrize(
    ("sizes", "draws", "groups"),
    [
        ([3, 5], 9, 2),
        ([3, -5], 1, 2),
        ([3, 5.5], 1, 2),
        ([True, True], 1, 2),
        ([3], 1, 1),
        ([3, 5, 4], 1, 2),
        ([[3, 5], [4]], 1, 2),
        ([], 0, 2),
        ([[3, 5]] * 3, [1, 2], 2),
        ([40, 40, 40], 60, 3),
        ([10**9, 5], 5, 2),
        ([3, math.nan], 1, 2),
        (torch.ones(5000, 2, dtype=torch.int64), 1, 2),
        (torch.tensor([3, 5], device="meta"), 4, 2),
    ],
)
def test_other_urns_take_the_general_path(sizes: Any, draws: Any, groups: int) -> None:
    assert composition_of(sizes, draws, (groups,)) is None


def test_shapes_that_do_not_broadcast_are_reported_as_they_were_given() -> None:
    with pytest.raises(ValueError, match=r"group_sizes \(2,\), weights \(5, 2\), draws \(3,\)"):
        FisherHypergeometric([3, 5], [1, 2, 3], weights=torch.ones(5, 2))


@pytest.mark.parametrize("distribution", [FisherHypergeometric, WalleniusHypergeometric])
def test_an_impossible_urn_that_was_not_checked_is_nan(distribution: type[Distribution]) -> None:
    impossible = distribution([5, 5], 8, weights=torch.tensor([1.0, 0.0]), validate_args=False)
    assert impossible.sample((3,)).isnan().all()
    assert impossible.mean.isnan().all()
    assert distribution(
        [5, 5], 5, weights=torch.tensor([1.0, 0.0]), validate_args=False
    ).sample().tolist() == [5.0, 0.0]


def test_many_draws_and_large_batches_take_the_general_path(device: torch.device) -> None:
    urn = FisherHypergeometric([10, 10, 10], 15, log_weights=torch.zeros(64, 3, device=device))
    assert isinstance(_dispatch.fisher_for_chains(urn, 10), Tabulated)
    assert not isinstance(_dispatch.fisher_for_chains(urn, 10**7), Tabulated)
    assert not isinstance(_dispatch.fisher_for_draws(urn.expand([10**5, 64]), 10), Tabulated)


def test_constants_made_in_inference_mode_serve_training() -> None:
    sizes = [2, 3, 11]
    with torch.inference_mode():
        FisherHypergeometric(sizes, 7, weights=torch.ones(3)).rsample()
    leaf = torch.zeros(3, requires_grad=True)
    FisherHypergeometric(sizes, 7, log_weights=leaf).rsample()[0].backward()
    assert leaf.grad is not None


def test_equal_sizes_share_their_constants() -> None:
    device, first = torch.device("cpu"), composition_of([500, 7], 1, (2,))
    again = composition_of(torch.tensor([500, 7]), 1, (2,))
    assert constants.constants_of(first, device).pair is constants.constants_of(again, device).pair


def test_constants_of_old_compositions_are_forgotten() -> None:
    known = weakref.ref(composition_of([501, 7], 1, (2,)))
    assert known() is not None
    for size in range(300):
        composition_of([501, 8 + size], 1, (2,))
    gc.collect()
    assert known() is None


def test_constants_that_a_graph_was_captured_with_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph keeps reading their memory, and does not own it."""
    device, sizes = torch.device("cuda"), composition_of([502, 7], 1, (2,))
    monkeypatch.setattr(constants, "_captured", set())
    constants.constants_of(sizes, device)
    assert constants._captured == set()
    monkeypatch.setattr(constants, "is_capturing", lambda: True)
    kept = constants.constants_of(sizes, device)
    assert constants._captured == {kept}
    constants.constants_of(sizes, torch.device("cpu"))
    assert constants._captured == {kept}


# --------------------------------------------------------------------------------------------------
# Training steps
# --------------------------------------------------------------------------------------------------

ESTIMATORS: dict[str, Any] = {
    "covariance": CovarianceST(),
    "merged": GumbelSoftmax(0.7, conditionals="merged"),
    "exact": GumbelSoftmax(0.7),
    "exact-rao": GumbelSoftmax(0.7, rao_blackwell=2),
    "relaxed": GumbelSoftmax(0.7, hard=False, order=(1, 0)),
}


def steps(sizes: Sequence[int], draws: Any) -> dict[str, Callable[[Tensor], Tensor]]:
    """Parts of training steps as functions of log-weights."""

    def urn(log_weights: Tensor, estimator: Any = None) -> FisherHypergeometric:
        return FisherHypergeometric(sizes, draws, log_weights=log_weights, estimator=estimator)

    def ranks(estimator: Any) -> Callable[[Tensor], Tensor]:
        return lambda log_weights: torch.cat(urn(log_weights, estimator).rank_indicators(1), -1)

    found: dict[str, Callable[[Tensor], Tensor]] = {
        "mean": lambda log_weights: urn(log_weights).mean,
        "sample, log_prob": lambda log_weights: urn(log_weights).log_prob(
            urn(log_weights.detach()).sample()
        ),
    }
    for name, estimator in ESTIMATORS.items():
        if name != "relaxed" or len(sizes) == 2:
            found[f"rsample {name}"] = lambda log_weights, estimator=estimator: urn(
                log_weights, estimator
            ).rsample((2,))
            found[f"rank_indicators {name}"] = ranks(estimator)
    found["rsample of Wallenius"] = lambda log_weights: WalleniusHypergeometric(
        sizes, draws, log_weights=log_weights
    ).rsample((2,))
    return found


@pytest.mark.parametrize("sizes", [torch.tensor([10, 10]), [4, 3, 5, 2]], ids=["tensor", "list"])
def test_a_captured_step_never_synchronises(sizes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the device "meta", which has no numbers, every look at one would fail.

    Constants are ready after the warm-up that CUDA graphs need anyhow.
    """
    capturing(monkeypatch)
    log_weights = torch.zeros(64, len(sizes), device="meta", requires_grad=True)
    for function in steps(sizes, 7).values():
        function(log_weights)
        with NoSynchronisation():
            result = function(log_weights)
            torch.autograd.grad(result, log_weights, torch.empty_like(result))


def values_and_gradient(
    step: Callable[[Tensor], Tensor], log_weights: Tensor, seed: int
) -> tuple[Tensor, Tensor]:
    leaf = log_weights.clone().requires_grad_()
    torch.manual_seed(seed)
    result = step(leaf)
    result.backward(
        torch.linspace(-1, 2, result.numel(), device=result.device).reshape(result.shape)
    )
    assert leaf.grad is not None
    return result.detach(), leaf.grad


def assert_compiles(
    function: Callable[[Tensor], Tensor], log_weights: Tensor, backend: str
) -> None:
    """In one graph, with the draws and the gradient of the uncompiled step."""
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    # On a GPU, kernels would make other draws from the same seed.
    with without_kernels():
        expected = values_and_gradient(function, log_weights, seed=3)
        found = values_and_gradient(compiled, log_weights, seed=3)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


QUICK = {
    2: ["rsample covariance", "rank_indicators merged", "rsample of Wallenius"],
    4: ["rsample exact", "rank_indicators covariance"],
}
COMPILED = [(sizes, name) for sizes in ((10, 10), (4, 3, 5, 2)) for name in steps(sizes, 7)]


@pytest.mark.parametrize(
    ("sizes", "name"), [(s, n) for s, n in COMPILED if n in QUICK[len(s)]], ids=str
)
def test_steps_compile_in_one_graph(
    sizes: tuple[int, ...], name: str, device: torch.device
) -> None:
    assert_compiles(steps(sizes, 7)[name], torch.randn(8, len(sizes), device=device), "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "name"), COMPILED, ids=str)
def test_every_step_compiles_in_one_graph(
    sizes: tuple[int, ...], name: str, device: torch.device
) -> None:
    assert_compiles(steps(sizes, 7)[name], torch.randn(8, len(sizes), device=device), "aot_eager")


@pytest.mark.slow
@pytest.mark.needs("C++")
@pytest.mark.filterwarnings("ignore:\\s*Online softmax is disabled:UserWarning")  # of the compiler
@pytest.mark.parametrize(
    ("sizes", "name"), [(s, n) for s, n in COMPILED if n in QUICK[len(s)]], ids=str
)
def test_steps_compile_to_machine_code(
    sizes: tuple[int, ...], name: str, device: torch.device
) -> None:
    config = importlib.import_module("torch._inductor.config")
    with config.patch(fallback_random=True):  # the draws of the uncompiled step
        assert_compiles(
            steps(sizes, 7)[name], torch.randn(8, len(sizes), device=device), "inductor"
        )


@pytest.mark.parametrize("sizes", [(10, 10), (4, 3, 5, 2)], ids=str)
def test_compiled_gradients_do_not_depend_on_the_draws(
    sizes: tuple[int, ...], device: torch.device
) -> None:
    """The gradient of `CovarianceST` depends on the weights alone; on a GPU the uncompiled step
    draws by Triton kernels.
    """
    torch.compiler.reset()
    step, log_weights = (
        steps(sizes, 7)["rsample covariance"],
        torch.randn(8, len(sizes), device=device),
    )
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    (draws, gradient), (others, expected) = (
        values_and_gradient(f, log_weights, seed) for f, seed in ((compiled, 3), (step, 4))
    )
    assert not torch.equal(draws, others)
    assert bool((draws.sum(-1) == 7).all())
    assert bool((others.sum(-1) == 7).all())
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-10)


def test_a_compiled_step_may_be_given_other_draws(device: torch.device) -> None:
    torch.compiler.reset()

    @torch.compile(fullgraph=True, backend="eager")
    def step(log_weights: Tensor, draws: int) -> Tensor:
        return FisherHypergeometric([10, 10], draws, log_weights=log_weights).rsample()

    for draws in (3, 4, 9):
        assert bool((step(torch.zeros(5, 2, device=device), draws).sum(-1) == draws).all())
