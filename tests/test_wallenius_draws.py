"""Wallenius' law: draws, against the law that takes ball after ball, and gradients through them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from diffurn import FisherHypergeometric, WalleniusHypergeometric, _dispatch, score_surrogate
from diffurn._wallenius import sampling
from diffurn._wallenius.integral import Integral
from diffurn._wallenius.outcomes import OutcomeTable
from diffurn._wallenius.sequential import Sequential
from support import wallenius_oracles as oracles
from support.distributions import GeneralWallenius, assert_possible, wallenius
from support.goodness import chi_square_p_value
from support.urns import NEVER, Urn
from support.wallenius_oracles import LARGE, SMALL, Balls, draw_by_draw, large_law
from test_wallenius_moments import BELLS, assert_within, exact_jacobian

# --------------------------------------------------------------------------------------------------
# Draws
# --------------------------------------------------------------------------------------------------

# The seeds are fixed, so a test that passes always passes. With a fresh seed and a right sampler,
# FALSE_ALARM is the probability that any of the p-values below is too small; they share it evenly.
FALSE_ALARM = 1e-4
DRAWN = tuple(urn for urn in SMALL if len(draw_by_draw(Balls.of_urn(urn)).law) > 1)
MIXED_URNS, LARGE_DRAWN = 24, BELLS[:5]
P_VALUES = 6 * len(DRAWN) + MIXED_URNS + 2 * len(LARGE_DRAWN)
LEVEL = FALSE_ALARM / P_VALUES


def p_value(counts: Tensor, law: oracles.DrawByDraw) -> float:
    """Of all outcomes at once; one that the law does not hold fails at once."""
    seen, number = np.unique(counts.long().cpu().numpy(), axis=0, return_counts=True)
    places = {x: place for place, x in enumerate(law.law)}
    observed = np.zeros(len(places), dtype=np.int64)
    observed[[places[tuple(row)] for row in seen.tolist()]] = number
    return chi_square_p_value(observed, np.array([float(p) for p in law.law.values()]))


# One by one or by a table of all states, and by a race or by a table of all outcomes.
both_ways = pytest.mark.parametrize("kind", [WalleniusHypergeometric, GeneralWallenius])


@both_ways
@pytest.mark.parametrize("regime", ["many-draws-of-one-urn", "one-draw-of-each-copy"])
@pytest.mark.parametrize("urn", DRAWN, ids=str)
def test_draws_follow_the_law(
    urn: Urn, regime: str, kind: type[WalleniusHypergeometric], device: torch.device
) -> None:
    number = 20_000
    copies, sample_shape = ((), (number,)) if regime == "many-draws-of-one-urn" else ((number,), ())
    counts = wallenius(urn, device, copies=copies, kind=kind).sample(sample_shape)
    assert counts.shape == (number, urn.groups)
    assert p_value(counts, draw_by_draw(Balls.of_urn(urn))) >= LEVEL


@pytest.mark.parametrize("way", ["a race", "one by one"])
@pytest.mark.parametrize("urn", DRAWN, ids=str)
def test_draws_by_operations_of_pytorch_follow_the_law(
    urn: Urn, way: str, device: torch.device
) -> None:
    rows = _dispatch.wallenius(wallenius(urn, device, copies=(20_000,))).within_reach()
    if way == "a race":
        counts = sampling.draw_by_race(*rows)
    else:
        counts = sampling.draw_one_by_one(*rows, urn.draws)
    assert p_value(counts, draw_by_draw(Balls.of_urn(urn))) >= LEVEL


def test_the_number_of_draws_decides_the_sampler(device: torch.device) -> None:
    """Tables for many draws of one urn, else ball by ball if the balls are few, else by a race."""
    weights = torch.tensor([1.0, 3.0, 0.5], device=device)
    few = WalleniusHypergeometric([4, 3, 5], 6, weights=weights)
    many = WalleniusHypergeometric([4000, 3000, 5000], 6000, weights=weights)
    unread = GeneralWallenius([4, 3, 5], 6, weights=weights)

    def chosen(urn: WalleniusHypergeometric, number: int) -> tuple[type[Integral], int | None]:
        law = _dispatch.wallenius_for_draws(urn, number)
        return type(law), law.most_draws

    assert chosen(few, 30_000)[0] is chosen(unread, 30_000)[0] is OutcomeTable
    assert chosen(few.expand([2]), 3000) == (Sequential, 6)  # ball by ball
    assert chosen(few, 100)[1] == 6
    assert chosen(many, 3000) == chosen(unread, 100) == (Integral, None)  # by a race


@pytest.mark.parametrize("scale", [1, 1000])
def test_an_impossible_urn_that_was_not_checked_has_draws_of_nan(
    scale: int, device: torch.device
) -> None:
    """Balls of weight zero do not count."""
    weights = torch.tensor([1.0, 0.0], device=device)
    urn = WalleniusHypergeometric(
        [3 * scale, 4 * scale], 5 * scale, weights=weights, validate_args=False
    )
    assert urn.sample((2,)).isnan().all()


@both_ways
@pytest.mark.parametrize(
    ("sizes", "draws", "log_weights", "only"),
    [
        ((4, 3), 7, (0.0, 0.7), [4, 3]),
        ((4, 3), 0, (0.0, 0.7), [0, 0]),
        ((4, 3, 2), 6, (0.0, NEVER, 0.7), [4, 0, 2]),
    ],
)
def test_many_draws_of_a_sure_outcome_are_that_outcome(
    sizes: tuple[int, ...],
    draws: int,
    log_weights: tuple[float, ...],
    only: list[int],
    kind: type[WalleniusHypergeometric],
    device: torch.device,
) -> None:
    urn = wallenius(Urn("sure", sizes, draws, log_weights), device, torch.float32, kind=kind)
    counts = urn.sample((2, 1000))
    assert counts.dtype == torch.float32
    assert torch.equal(counts.cpu(), torch.tensor(only, dtype=torch.float32).expand(2, 1000, -1))


def test_one_draw_of_each_of_many_different_urns_follows_the_law_of_each(
    device: torch.device,
) -> None:
    rng, copies = np.random.default_rng(5), 1500
    urns = []
    while len(urns) < MIXED_URNS:
        sizes = tuple(int(m) for m in rng.integers(0, 5, 4))
        if sum(sizes) > 1:
            weights = tuple(float(lw) for lw in rng.normal(0.0, 3.0, 4))
            urns.append(Urn(f"mixed-{len(urns)}", sizes, int(rng.integers(1, sum(sizes))), weights))
    order = torch.tensor(rng.permutation(np.repeat(np.arange(MIXED_URNS), copies)))
    sizes, draws = (
        torch.tensor([urn.group_sizes for urn in urns])[order],
        torch.tensor([urn.draws for urn in urns])[order],
    )
    log_weights = torch.tensor([urn.log_weights for urn in urns])[order]
    counts = (
        WalleniusHypergeometric(sizes, draws, log_weights=log_weights.to(device)).sample().cpu()
    )
    for place, urn in enumerate(urns):
        assert p_value(counts[order == place], oracles.DrawByDraw(Balls.of_urn(urn))) >= LEVEL, urn


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("urn", LARGE, ids=str)
def test_draws_of_large_urns_are_possible(
    urn: Urn, dtype: torch.dtype, device: torch.device
) -> None:
    for counts in (
        wallenius(urn, device, dtype).sample((20,)),
        wallenius(urn, device, dtype, copies=(3, 2)).sample(),
    ):
        assert counts.dtype == dtype
        assert_possible(counts, urn)


@pytest.mark.parametrize("urn", LARGE_DRAWN, ids=str)
def test_draws_of_large_urns_have_the_exact_mean_and_variance(
    urn: Urn, device: torch.device
) -> None:
    exact, number = large_law(Balls.of_urn(urn)), 2000
    first = wallenius(urn, device).sample((number,))[:, 0].double()
    mean, variance = float(exact.mean[0]), float(exact.covariance[0][0])
    z = (first.mean().item() - mean) / math.sqrt(variance / number)
    assert 2 * stats.norm.sf(abs(z)) >= LEVEL, z
    # as normal as a sum of 200 draws or more
    ratio = ((first - mean) ** 2).sum().item() / variance
    assert 2 * min(stats.chi2.sf(ratio, number), stats.chi2.cdf(ratio, number)) >= LEVEL, ratio


@st.composite
def urns_of_any_kind(draw: st.DrawFn) -> Urn:
    groups = draw(st.integers(1, 5))
    sizes = draw(st.lists(st.integers(0, 30), min_size=groups, max_size=groups))
    log_weight = st.floats(-30.0, 30.0) | st.floats(-3.0, 3.0) | st.just(NEVER)
    weights = tuple(draw(st.lists(log_weight, min_size=groups, max_size=groups)))
    return Urn(
        "drawn",
        tuple(sizes),
        draw(st.integers(0, sum(Urn("drawn", tuple(sizes), 0, weights).drawable))),
        weights,
    )


@given(urn=urns_of_any_kind())
def test_no_urn_gives_an_impossible_draw(urn: Urn, device: torch.device) -> None:
    assert_possible(wallenius(urn, device).sample((20,)), urn)
    assert_possible(wallenius(urn, device, torch.float32, copies=(3,)).sample(), urn)


@pytest.mark.parametrize("method", ["sample", "rsample"])
@pytest.mark.parametrize("sample_shape", [(), (0,), (2, 3)], ids=str)
@pytest.mark.parametrize("batch_shape", [(), (5,), (3, 2), (0,)], ids=str)
def test_draws_have_the_shape_of_sample_batch_and_event(
    batch_shape: tuple[int, ...], sample_shape: tuple[int, ...], method: str, device: torch.device
) -> None:
    urn = SMALL[1]
    counts = getattr(wallenius(urn, device, copies=batch_shape), method)(sample_shape)
    assert counts.shape == (*sample_shape, *batch_shape, urn.groups)
    assert_possible(counts, urn)


def test_draws_of_copies_are_independent_and_follow_torchs_generator(device: torch.device) -> None:
    urn = wallenius(
        next(urn for urn in LARGE if urn.name == "paper-200x3-odds-10"), device, copies=(50,)
    )
    torch.manual_seed(7)
    first = urn.sample((20,))
    torch.manual_seed(7)
    assert torch.equal(first, urn.sample((20,)))
    assert not (first == first[:, :1]).all(-1).all(0)[1:].any()
    assert not (first == first[:1]).all(-1).all(-1)[1:].any()


# --------------------------------------------------------------------------------------------------
# Gradients through draws
# --------------------------------------------------------------------------------------------------


def test_rsample_gives_the_draws_of_sample(device: torch.device) -> None:
    leaf = torch.tensor([0.0, 0.7, -0.7], device=device, requires_grad=True)
    urn = WalleniusHypergeometric([10, 7, 8], 9, log_weights=leaf)
    torch.manual_seed(3)
    hard = urn.rsample((100,))
    torch.manual_seed(3)
    assert torch.equal(hard.detach(), urn.sample((100,)))
    assert hard.requires_grad


@pytest.mark.parametrize("parameter", ["weights", "log_weights"])
def test_the_gradient_of_a_linear_function_of_a_draw_is_that_of_the_mean(
    parameter: str, device: torch.device
) -> None:
    slope = torch.tensor([1.0, -2.0, 0.5], device=device)
    leaf = torch.tensor([1.0, 2.0, 0.5], device=device, requires_grad=True)
    urn = WalleniusHypergeometric([10, 7, 8], 9, **{parameter: leaf})
    (through_draws,) = torch.autograd.grad((urn.rsample((50,)) * slope).sum(-1).mean(), leaf)
    (of_the_mean,) = torch.autograd.grad((urn.mean * slope).sum(), leaf)
    torch.testing.assert_close(through_draws, of_the_mean, rtol=1e-11, atol=1e-13)


def test_the_backward_pass_of_a_draw_is_exact(device: torch.device) -> None:
    urn = SMALL[1]
    jacobian = exact_jacobian(urn)
    for group in range(urn.groups):
        leaf = torch.tensor(urn.log_weights, device=device, requires_grad=True)
        WalleniusHypergeometric(urn.group_sizes, urn.draws, log_weights=leaf).rsample()[
            group
        ].backward()
        assert_within(leaf.grad, jacobian[group], 1e-10)


@both_ways
def test_rank_indicators_send_back_the_exact_gradient_of_tails(
    kind: type[WalleniusHypergeometric], device: torch.device
) -> None:
    """Forward they are hard: b_i = 1[i ≤ x]. Backward they have the slope of P(X ≥ i)."""
    urn, number = Urn("three", (4, 3, 5), 6, (0.3, -1.1, 0.6)), 3
    leaf = torch.tensor(urn.log_weights, device=device, requires_grad=True)
    for group in range(urn.groups):
        built = kind(urn.group_sizes, urn.draws, log_weights=leaf)
        counts, indicators = built.rank_indicators(group, (number,))
        size = urn.group_sizes[group]
        assert indicators.shape == (number, size)
        ranks = torch.arange(1, size + 1, device=device)
        assert torch.equal(indicators.detach(), (ranks <= counts[:, group, None]).to(leaf.dtype))
        assert_possible(counts, urn)
        jacobian = exact_jacobian(urn, lambda law, group=group: law.tail(group))
        for i in range(size):
            (gradient,) = torch.autograd.grad(indicators[-1, i], leaf, retain_graph=True)
            assert_within(gradient, jacobian[i], 1e-10)


@pytest.mark.parametrize("scale", [1, 1000], ids=["small", "large"])
@pytest.mark.parametrize("kind", [WalleniusHypergeometric, FisherHypergeometric])
def test_rank_indicators_of_a_group_of_weight_zero_are_zero(
    kind: type[WalleniusHypergeometric], scale: int, device: torch.device
) -> None:
    weights = torch.tensor([1.0, 0.0, 2.0], device=device)
    urn = kind([3 * scale, 4 * scale, 5 * scale], 3 * scale, weights=weights)
    counts, indicators = urn.rank_indicators(1, (2,))
    assert indicators.shape == (2, 4 * scale)
    assert not indicators.any()
    assert not counts[:, 1].any()


@pytest.mark.parametrize(
    "control_variate", [None, pytest.param("covariance", marks=pytest.mark.slow)]
)
def test_the_score_surrogate_is_unbiased(control_variate: str | None, device: torch.device) -> None:
    """Within four standard errors; with a fresh seed three entries would raise a false alarm about
    once in 1500 times.
    """
    urn, estimates = Urn("5x3", (5, 5, 5), 6, (0.4, 0.0, -0.8)), 50
    leaf = torch.tensor(urn.log_weights, device=device).repeat(estimates, 1).requires_grad_()
    distribution = WalleniusHypergeometric(urn.group_sizes, urn.draws, log_weights=leaf)
    score_surrogate(
        distribution, lambda x: (x[..., 0] * x[..., 1] - 3).square(), 200, control_variate
    ).sum().backward()
    balls = Balls.of_urn(urn)
    for group in range(urn.groups):
        exact = oracles.slope(
            lambda tilted: oracles.DrawByDraw(tilted).expectation(lambda x: (x[0] * x[1] - 3) ** 2),
            balls,
            group,
        )
        own = leaf.grad[:, group]
        z = (own.mean().item() - float(exact)) / (own.std().item() / math.sqrt(estimates))
        assert abs(z) <= 4, z
