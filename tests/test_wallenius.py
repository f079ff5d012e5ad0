"""Wallenius' law: probabilities against R, SciPy, the urn followed ball by ball and integrals in
many digits; their gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp
from scipy import stats
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from diffurn import WalleniusHypergeometric, _dispatch
from diffurn._kernels import dispatch
from diffurn._wallenius.sequential import Sequential
from support import biasedurn
from support import wallenius_oracles as oracles
from support.distributions import GeneralWallenius, assert_log_probs, wallenius
from support.tolerances import WALLENIUS, WALLENIUS_SMALL
from support.urns import NEVER, Urn
from support.wallenius_oracles import LARGE, SMALL, Balls, Recorded, draw_by_draw, recorded

every_small_urn = pytest.mark.parametrize("urn", SMALL, ids=str)
every_large_urn = pytest.mark.parametrize("urn", LARGE, ids=str)


def outcomes_of(urn: Urn, device: torch.device) -> Tensor:
    """All that is possible if no weight is zero."""
    return wallenius(urn, device).enumerate_support()


# --------------------------------------------------------------------------------------------------
# R's BiasedUrn
# --------------------------------------------------------------------------------------------------

RECORDED = recorded()
# Of 128 probabilities BiasedUrn gives 12 as zero, all below 1e-21, and gets 4 others below 1e-16
# wrong by 1.5e-7 to 1.2e-3.
RIGHT = [row for row in RECORDED if row.relative_error <= oracles.TRUSTED]


def ours_at(row: Recorded, device: torch.device) -> Tensor:
    odds = torch.tensor(row.odds, dtype=torch.float64, device=device)
    return WalleniusHypergeometric(row.sizes, row.draws, weights=odds).log_prob(
        torch.tensor(row.counts, device=device)
    )


def test_the_record_spans_what_it_promises() -> None:
    urns = {(row.sizes, row.draws, row.odds) for row in RECORDED}
    assert len(urns) >= 60
    assert {len(sizes) for sizes, _, _ in urns} == set(range(2, 9))
    assert {min(min(sizes) for sizes, _, _ in urns), max(max(sizes) for sizes, _, _ in urns)} == {
        1,
        10**5,
    }
    assert {min(min(odds) for _, _, odds in urns), max(max(odds) for _, _, odds in urns)} == {
        1e-6,
        1e6,
    }
    assert any(draws == 1 for _, draws, _ in urns)
    assert any(draws == sum(sizes) - 1 for sizes, draws, _ in urns)
    assert len(RIGHT) == 112


@pytest.mark.parametrize("row", RIGHT, ids=str)
def test_probabilities_agree_with_those_recorded_from_biasedurn(
    row: Recorded, device: torch.device
) -> None:
    assert ours_at(row, device).exp().item() == pytest.approx(row.value, rel=1e-7)


@pytest.mark.parametrize("row", RECORDED, ids=str)
def test_probabilities_are_right_also_where_biasedurn_loses_digits(
    row: Recorded, device: torch.device
) -> None:
    assert_log_probs(ours_at(row, device).reshape(1), [row.exact], WALLENIUS_SMALL.log_prob)


@pytest.mark.needs("BiasedUrn")
def test_the_record_is_what_biasedurn_says_today() -> None:
    for row, (value,) in zip(
        RECORDED, biasedurn.evaluate(row.call for row in RECORDED), strict=True
    ):
        if row.relative_error <= oracles.TRUSTED:
            assert value == pytest.approx(row.value, rel=1e-7), row.call


# --------------------------------------------------------------------------------------------------
# Every outcome of small urns, some of large ones
# --------------------------------------------------------------------------------------------------


# By dynamic programming where it pays, and by integrals.
both_ways = pytest.mark.parametrize("kind", [WalleniusHypergeometric, GeneralWallenius])


@both_ways
@every_small_urn
def test_log_prob_of_every_outcome_is_that_of_drawing_ball_by_ball(
    urn: Urn, kind: type[WalleniusHypergeometric], device: torch.device
) -> None:
    """Also where a weight is zero: such outcomes have no probability at all."""
    law, outcomes = draw_by_draw(Balls.of_urn(urn)), outcomes_of(urn, device)
    ours = wallenius(urn, device, kind=kind).log_prob(outcomes)
    assert_log_probs(
        ours,
        [law.log_prob([int(x) for x in row]) for row in outcomes.tolist()],
        WALLENIUS_SMALL.log_prob,
    )


@both_ways
@every_small_urn
def test_probabilities_sum_to_one(
    urn: Urn, kind: type[WalleniusHypergeometric], device: torch.device
) -> None:
    ours = wallenius(urn, device, kind=kind).log_prob(outcomes_of(urn, device))
    assert ours.exp().sum().item() == pytest.approx(1.0, abs=1e-11)


@every_large_urn
def test_log_prob_keeps_nine_digits_from_the_centre_to_the_far_tails(
    urn: Urn, device: torch.device
) -> None:
    balls = Balls.of_urn(urn)
    probes = oracles.probe_counts(balls)
    ours = wallenius(urn, device).log_prob(torch.tensor(probes, device=device))
    assert_log_probs(
        ours, [oracles.log_prob(balls, x, digits=20) for x in probes], WALLENIUS.log_prob
    )


@st.composite
def small_urns(draw: st.DrawFn) -> Urn:
    groups = draw(st.integers(1, 4))
    sizes = draw(st.lists(st.integers(0, 4), min_size=groups, max_size=groups))
    log_weight = st.floats(-30.0, 30.0) | st.floats(-2.0, 2.0) | st.just(NEVER)  # odds up to 1e26
    weights = tuple(draw(st.lists(log_weight, min_size=groups, max_size=groups)))
    drawable = Urn("drawn", tuple(sizes), 0, weights).drawable
    return Urn("drawn", tuple(sizes), draw(st.integers(0, sum(drawable))), weights)


@both_ways
@given(urn=small_urns())
def test_any_small_urn_is_right(
    urn: Urn, kind: type[WalleniusHypergeometric], device: torch.device
) -> None:
    law, outcomes = oracles.DrawByDraw(Balls.of_urn(urn)), outcomes_of(urn, device)
    ours = wallenius(urn, device, kind=kind).log_prob(outcomes)
    assert_log_probs(
        ours,
        [law.log_prob([int(x) for x in row]) for row in outcomes.tolist()],
        WALLENIUS_SMALL.log_prob,
    )


def test_probabilities_of_small_urns_do_not_underflow(device: torch.device) -> None:
    """Followed ball by ball where all of them fit into float64, integrated where one does not; both
    have the digits.
    """
    urn = Urn("five-of-each", (5, 5), 5, (0.0, -300.0))
    ours, law = (
        wallenius(urn, device).log_prob(outcomes_of(urn, device)),
        oracles.DrawByDraw(Balls.of_urn(urn)),
    )
    assert ours.min().item() == pytest.approx(-1500.0, rel=1e-2)
    assert_log_probs(
        ours,
        [law.log_prob([int(x) for x in row]) for row in outcomes_of(urn, device).tolist()],
        WALLENIUS_SMALL.log_prob,
    )


@pytest.mark.parametrize("values", [1, 40])
def test_dynamic_programming_gives_the_probabilities_of_the_integral(
    values: int, device: torch.device
) -> None:
    """In a long batch; without C kernels where several values of each urn are asked for."""
    log_weights = torch.randn(300, 3, device=device)
    urn = WalleniusHypergeometric([10, 7, 8], 9, log_weights=log_weights)
    counts = urn.sample((values,))
    integrated = WalleniusHypergeometric(
        [10, 7, 8], 9, log_weights=log_weights.clone().requires_grad_()
    ).log_prob(counts)
    law = _dispatch.wallenius_for_values(urn, 300 * values)
    by_states = values > 1 or dispatch.HAS_NATIVE
    assert isinstance(law, Sequential) == (by_states and device.type == "cpu")
    ours = urn.log_prob(counts)
    assert ours.shape == (values, 300)
    torch.testing.assert_close(ours, integrated.detach(), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("sizes", "draws"),
    [((4, 5, 3), 6), ((10, 20, 30), 15), ((1, 7), 3), ((2, 0, 9, 4), 8), ((50, 50), 50)],
)
@pytest.mark.parametrize("log_weight", [0.0, -300.0, 2.5])
def test_equal_weights_are_scipys_central_law(
    log_weight: float, sizes: tuple[int, ...], draws: int, device: torch.device
) -> None:
    urn = WalleniusHypergeometric(
        sizes, draws, log_weights=torch.full((len(sizes),), log_weight, device=device)
    )
    support = urn.enumerate_support()
    central = stats.multivariate_hypergeom(m=list(sizes), n=draws).pmf(support.long().cpu().numpy())
    np.testing.assert_allclose(urn.log_prob(support).exp().cpu().numpy(), central, rtol=1e-10)


@pytest.mark.parametrize(
    ("sizes", "draws", "odds"),
    [((10, 15), 12, 2.5), ((100, 40), 50, 0.1), ((7, 900), 300, 6.0), ((300, 300), 20, 0.5)],
)
def test_two_groups_agree_with_scipy(
    sizes: tuple[int, int], draws: int, odds: float, device: torch.device
) -> None:
    urn = WalleniusHypergeometric(sizes, draws, weights=torch.tensor([odds, 1.0], device=device))
    support = urn.enumerate_support()
    theirs = stats.nchypergeom_wallenius(sum(sizes), sizes[0], draws, odds).pmf(
        support[:, 0].cpu().numpy()
    )
    seen = theirs > 1e-8  # further out SciPy loses digits, then everything
    np.testing.assert_allclose(
        urn.log_prob(support).exp().cpu().numpy()[seen], theirs[seen], rtol=1e-7
    )


def test_odds_of_1e12_are_fine_where_scipy_sums_to_nan(device: torch.device) -> None:
    urn = Urn("two", (30, 40), 35, (math.log(1e12), 0.0))
    outcomes = outcomes_of(urn, device)
    ours, balls = wallenius(urn, device).log_prob(outcomes), Balls.of_urn(urn)
    assert bool(torch.isfinite(ours).all())
    assert ours.exp().sum().item() == pytest.approx(1.0, abs=1e-12)
    assert_log_probs(
        ours[::6],
        [oracles.log_prob(balls, [int(a) for a in x], digits=20) for x in outcomes[::6].tolist()],
        WALLENIUS_SMALL.log_prob,
    )


def test_float32_log_prob_is_computed_in_float64_and_rounded_once(device: torch.device) -> None:
    urn = Urn("1e6x2", (10**6, 10**6), 10**6, (0.0, 0.875))  # weights that float32 holds exactly
    x = torch.tensor([[360_000, 640_000], [359_000, 641_000]], device=device)
    ours, exact = (
        wallenius(urn, device, torch.float32).log_prob(x),
        wallenius(urn, device).log_prob(x),
    )
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, exact.to(torch.float32), rtol=2e-7, atol=0.0)


# --------------------------------------------------------------------------------------------------
# Edges
# --------------------------------------------------------------------------------------------------


def test_one_draw_is_a_categorical(device: torch.device) -> None:
    sizes, weights = (
        torch.tensor([3, 8, 0, 5], device=device),
        torch.tensor([2.0, 0.5, 9.0, 0.0], device=device),
    )
    urn = WalleniusHypergeometric(sizes, 1, weights=weights)
    expected = torch.distributions.Categorical(probs=sizes * weights)
    torch.testing.assert_close(
        urn.log_prob(torch.eye(4, device=device)[:2]), expected.logits[:2], rtol=1e-12, atol=1e-12
    )
    # an empty group cannot be asked for, a group of weight zero can
    assert urn.log_prob(torch.eye(4, device=device)[3]).item() == -math.inf


@pytest.mark.parametrize(
    ("sizes", "draws", "weights", "certain"),
    [
        ((3, 5, 2), 0, (0.5, 2.0, 1.0), (0, 0, 0)),
        ((3, 5, 2), 10, (0.5, 2.0, 1.0), (3, 5, 2)),
        ((3, 4, 2), 5, (0.5, 0.0, 1.5), (3, 0, 2)),  # D = 0 though balls are left
        ((7,), 3, (2.5,), (3,)),
        ((0, 6, 0), 4, (0.5, 2.0, 1.0), (0, 4, 0)),
        ((3, 4, 5), 3, (0.0, 1.5, 0.0), (0, 3, 0)),
        ((10**6, 10**6), 2 * 10**6, (1e-12, 1.0), (10**6, 10**6)),
    ],
    ids=str,
)
def test_certain_outcomes_have_probability_one(
    sizes: tuple[int, ...],
    draws: int,
    weights: tuple[float, ...],
    certain: tuple[int, ...],
    device: torch.device,
) -> None:
    urn = WalleniusHypergeometric(sizes, draws, weights=torch.tensor(weights, device=device))
    assert urn.log_prob(torch.tensor(certain, device=device)).item() == pytest.approx(
        0.0, abs=1e-15
    )


def test_what_needs_a_ball_of_weight_zero_is_impossible(device: torch.device) -> None:
    urn = WalleniusHypergeometric(
        [3, 4, 5], 4, weights=torch.tensor([0.5, 0.0, 1.5], device=device)
    )
    assert (
        urn.log_prob(torch.tensor([[1, 1, 2], [0, 4, 0]], device=device)).tolist()
        == [-math.inf] * 2
    )


def test_unchecked_values_outside_the_support_are_impossible(device: torch.device) -> None:
    urn = WalleniusHypergeometric(
        [3, 4, 5], 4, weights=torch.tensor([0.5, 1.0, 1.5], device=device), validate_args=False
    )
    outside = torch.tensor([[1, 1, 1], [4, 0, 0], [-1, 4, 1], [0, 5, -1]], device=device)
    assert urn.log_prob(outside).tolist() == [-math.inf] * 4


@pytest.mark.parametrize("factor", [1e-9, 7.0, 1e9])
def test_a_common_factor_of_the_weights_changes_nothing(
    factor: float, device: torch.device
) -> None:
    weights = torch.tensor([0.3, 5.0, 1e-4, 1.0], device=device)
    urn, scaled = (
        WalleniusHypergeometric([5, 3, 6, 4], 9, weights=w) for w in (weights, factor * weights)
    )
    support = urn.enumerate_support()
    torch.testing.assert_close(
        scaled.log_prob(support), urn.log_prob(support), rtol=1e-12, atol=1e-12
    )


def test_groups_of_equal_weight_can_be_merged(device: torch.device) -> None:
    """The merged count has the law of the merged urn; within it the balls are split as without
    weights.
    """
    urn = WalleniusHypergeometric(
        [3, 4, 5], 6, weights=torch.tensor([2.0, 0.5, 2.0], device=device)
    )
    merged = WalleniusHypergeometric([8, 4], 6, weights=torch.tensor([2.0, 0.5], device=device))
    support = urn.enumerate_support()
    together = torch.stack([support[:, 0] + support[:, 2], support[:, 1]], -1)
    ways = [
        math.comb(3, int(a)) * math.comb(5, int(b)) / math.comb(8, int(a + b))
        for a, _, b in support.tolist()
    ]
    torch.testing.assert_close(
        urn.log_prob(support), merged.log_prob(together) + torch.tensor(ways, device=device).log()
    )


# --------------------------------------------------------------------------------------------------
# Gradients
# --------------------------------------------------------------------------------------------------

GRADIENTS = {
    "three-colours": ((10, 7, 8), (0.0, 0.7, -0.7), (4, 3, 2)),
    "tail": ((10, 7, 8), (0.0, 0.7, -0.7), (1, 0, 8)),
    "equal-weights": ((4, 5, 3), (1.7, 1.7, 1.7), (2, 3, 1)),
    "one-draw": ((4, 7, 2), (1.0, -2.0, 0.5), (0, 1, 0)),
    "all-but-one": ((4, 7, 2), (1.0, -2.0, 0.5), (4, 6, 2)),
    "everything": ((4, 7, 2), (1.0, -2.0, 0.5), (4, 7, 2)),
    "nothing": ((4, 7, 2), (1.0, -2.0, 0.5), (0, 0, 0)),
    "filled-groups": ((4, 7, 2), (1.0, -2.0, 0.5), (4, 1, 2)),
    "empty-group": ((4, 0, 5), (1.0, -2.0, 0.5), (2, 0, 3)),
    "odds-1e6": ((5, 5, 5), (oracles.E6, 0.0, -oracles.E6), (4, 3, 0)),
    "medium": ((300, 200, 100), (0.0, 1.0, 2.0), (90, 110, 80)),
}


def log_prob_function(case: str, device: torch.device) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    sizes, log_weights, x = GRADIENTS[case]
    counts = torch.tensor(x, device=device)
    leaf = torch.tensor(log_weights, device=device, requires_grad=True)
    return lambda lw: WalleniusHypergeometric(sizes, sum(x), log_weights=lw).log_prob(counts), leaf


@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients_in_log_weights_agree_with_differences(case: str, device: torch.device) -> None:
    function, leaf = log_prob_function(case, device)
    assert gradcheck(function, (leaf,), eps=1e-5, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("case", GRADIENTS)
def test_second_derivatives_in_log_weights_agree_with_differences(
    case: str, device: torch.device
) -> None:
    function, leaf = log_prob_function(case, device)
    assert gradgradcheck(function, (leaf,), eps=1e-5, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("case", GRADIENTS)
def test_gradients_keep_nine_digits(case: str, device: torch.device) -> None:
    sizes, log_weights, x = GRADIENTS[case]
    function, leaf = log_prob_function(case, device)
    (ours,) = torch.autograd.grad(function(leaf), leaf)
    balls = Balls.of_urn(Urn(case, sizes, sum(x), log_weights))
    for group, value in enumerate(ours.tolist()):
        exact = oracles.slope(lambda urn: oracles.log_prob(urn, x, digits=30), balls, group)
        assert abs(value - exact) <= 1e-9 * max(1.0, max(x)), (group, value, mp.nstr(exact, 20))


@pytest.mark.parametrize("name", ["1e6x2", "1e6x2-odds-1e6", "1e6x3", "1e6-uneven"])
def test_gradients_of_large_urns_are_right(name: str, device: torch.device) -> None:
    urn = next(urn for urn in LARGE if urn.name == name)
    balls = Balls.of_urn(urn)
    x = oracles.probe_counts(balls)[-1]
    leaf = torch.tensor(urn.log_weights, device=device, requires_grad=True)
    ours = WalleniusHypergeometric(urn.group_sizes, urn.draws, log_weights=leaf).log_prob(
        torch.tensor(x, device=device)
    )
    (gradient,) = torch.autograd.grad(ours, leaf)
    exact = oracles.slope(lambda tilted: oracles.log_prob(tilted, x, digits=30), balls, 0)
    assert abs(gradient[0].item() - exact) <= 1e-9 * math.sqrt(urn.draws) * max(
        1.0, abs(float(exact))
    ), (gradient, mp.nstr(exact, 20))


def test_scaling_all_weights_has_no_gradient(device: torch.device) -> None:
    for case in GRADIENTS:
        function, leaf = log_prob_function(case, device)
        (gradient,) = torch.autograd.grad(function(leaf), leaf)
        assert gradient.sum().item() == pytest.approx(0.0, abs=1e-9)


def test_gradients_in_weights_and_in_log_weights_are_one(device: torch.device) -> None:
    x = torch.tensor([4.0, 3.0, 2.0], device=device)
    weights = torch.tensor([1.0, 2.0, 0.5], device=device, requires_grad=True)
    log_weights = weights.detach().log().requires_grad_()
    (by_weights,) = torch.autograd.grad(
        WalleniusHypergeometric([10, 7, 8], 9, weights=weights).log_prob(x), weights
    )
    (by_logs,) = torch.autograd.grad(
        WalleniusHypergeometric([10, 7, 8], 9, log_weights=log_weights).log_prob(x), log_weights
    )
    torch.testing.assert_close(by_weights * weights.detach(), by_logs, rtol=1e-11, atol=1e-12)


def test_a_group_never_drawn_has_finite_gradients_elsewhere(device: torch.device) -> None:
    leaf = torch.tensor([0.3, NEVER, -0.4], device=device, requires_grad=True)
    value = WalleniusHypergeometric([5, 6, 4], 5, log_weights=leaf).log_prob(
        torch.tensor([3, 0, 2], device=device)
    )
    (gradient,) = torch.autograd.grad(value, leaf)
    without = torch.tensor([0.3, -0.4], device=device, requires_grad=True)
    alone = WalleniusHypergeometric([5, 4], 5, log_weights=without).log_prob(
        torch.tensor([3, 2], device=device)
    )
    torch.testing.assert_close(
        gradient[[0, 2]], torch.autograd.grad(alone, without)[0], rtol=1e-10, atol=1e-12
    )
