"""C kernels of Wallenius' law: the numbers of PyTorch's operations, and of oracles in many digits.

`test_wallenius` and others compare all urns with oracles, by whichever way is used.
"""

from __future__ import annotations

import math

import pytest
import torch
from mpmath import mp, mpf
from scipy import stats
from torch import Tensor
from torch.func import jacfwd, jacrev, vmap

from diffurn import WalleniusHypergeometric, _dispatch
from diffurn._kernels import dispatch
from diffurn._wallenius import moments, probabilities
from diffurn._wallenius.integral import Integral
from diffurn._wallenius.sequential import Sequential
from support.tolerances import WALLENIUS
from support.urns import Urn
from support.wallenius_oracles import LARGE, SMALL, Balls, slope
from support.wallenius_oracles import log_prob as exact_log_prob

if not dispatch.HAS_NATIVE:
    pytest.skip("the C kernels were not built, or DIFFURN_NATIVE is 0", allow_module_level=True)

from diffurn._kernels.native import sampling
from diffurn._kernels.native import wallenius as kernels

PRIMITIVES = {
    "log_prob": probabilities.log_prob_value,
    "score": probabilities.score_value,
    "mean_by_integrals": moments.mean_by_integrals,
    "flow_by_integrals": moments.flow_by_integrals,
    "covariance_by_integrals": moments.covariance_by_integrals,
}


def plain(function: str, *operands: Tensor) -> Tensor:
    """PyTorch's operations, which transforms and compilers take."""
    result: Tensor = PRIMITIVES[function].__wrapped__(*operands)  # type: ignore[attr-defined]
    return result


@pytest.mark.parametrize("name", PRIMITIVES)
def test_a_kernel_is_found_from_the_primitive_that_it_replaces(name: str) -> None:
    assert dispatch.native_kernel_of(PRIMITIVES[name]) is getattr(kernels, name)


# --------------------------------------------------------------------------------------------------
# Probabilities and scores
# --------------------------------------------------------------------------------------------------


def states_of(urn: Urn, number: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """Log-weights, sizes and drawn counts of an urn."""
    weights = torch.tensor(urn.log_weights, dtype=torch.float64)
    law = WalleniusHypergeometric(urn.group_sizes, urn.draws, log_weights=weights)
    torch.manual_seed(number)
    counts = law.sample((number,))
    log_weights, sizes, _ = _dispatch.wallenius(law).operands
    return log_weights.expand_as(counts), sizes.expand_as(counts), counts


def assert_as_plain(log_weights: Tensor, sizes: Tensor, counts: Tensor) -> None:
    states = log_weights, sizes, counts
    ours, wanted = kernels.log_prob(*states), plain("log_prob", *states)
    assert ours.shape == wanted.shape
    assert ((ours - wanted).abs() <= 1e-11 * wanted.abs().clamp(min=1)).all()
    assert (ours <= 0).all()
    ours, wanted = kernels.score(*states), plain("score", *states)
    # A score is a difference of terms up to n.
    allowed = 1e-12 * (1 + counts.sum(-1, keepdim=True)) + 1e-10 * wanted.abs()
    assert ((ours - wanted).abs() <= allowed).all()


@pytest.mark.parametrize("urn", [*SMALL, *LARGE], ids=str)
def test_states_of_all_urns_have_the_numbers_of_the_plain_path(urn: Urn) -> None:
    assert_as_plain(*states_of(urn))


@pytest.mark.parametrize("scale", [0.0, 1.0, 10.0, 100.0, 700.0])
def test_random_states_have_the_numbers_of_the_plain_path(scale: float) -> None:
    torch.manual_seed(int(scale))
    for groups, most in ((2, 10), (3, 200), (8, 5), (33, 1), (4, 10**6)):
        sizes = torch.randint(0, most + 1, (60, groups)).double()
        counts = (sizes * torch.rand(60, groups)).round()
        counts[:3], counts[3:6] = 0.0, sizes[3:6]
        log_weights = scale * torch.randn(60, groups).double()
        log_weights[::2, 0] = log_weights[::2, 1]  # ties
        assert_as_plain(log_weights - log_weights.amax(-1, keepdim=True), sizes, counts)


HARD = (
    ((1000, 1000, 10), (900, 900, 3), (0.0, 3.0, -9.0)),
    ((10**6, 40), (10**6 - 1, 20), (0.0, -2.0)),  # one group runs out long before the other
    ((5, 5, 5), (5, 5, 1), (30.0, 0.0, -30.0)),
    ((1,) * 40, (1,) * 3 + (0,) * 37, tuple(0.3 * j for j in range(40))),
)


@pytest.mark.parametrize(("sizes", "counts", "log_weights"), HARD)
def test_values_and_scores_agree_with_forty_digits(
    sizes: tuple[int, ...], counts: tuple[int, ...], log_weights: tuple[float, ...]
) -> None:
    urn = Balls.of(sizes, sum(counts), [mp.exp(mpf(lw)) for lw in log_weights])
    state = [torch.tensor([x], dtype=torch.float64) for x in (log_weights, sizes, counts)]
    exact = exact_log_prob(urn, counts)
    error = abs(mpf(kernels.log_prob(*state).item()) - exact)
    assert error <= WALLENIUS.log_prob * max(1, abs(exact))
    score = kernels.score(*state)[0]
    for group in (0, 1, len(sizes) - 1):
        exact = slope(lambda balls: exact_log_prob(balls, counts), urn, group)
        assert abs(mpf(score[group].item()) - exact) <= 1e-9 * max(1, abs(exact))


def test_certain_states_have_probability_one_and_no_score() -> None:
    sizes = torch.tensor([[5.0, 3.0, 2.0], [5.0, 3.0, 2.0], [0.0, 9.0, 0.0]])
    counts = torch.tensor([[0.0, 0.0, 0.0], [5.0, 3.0, 2.0], [0.0, 4.0, 0.0]])
    log_weights = torch.tensor([[0.3, -2.0, 1.0]]).expand(3, 3)
    assert kernels.log_prob(log_weights, sizes, counts).tolist() == [0.0] * 3
    assert not kernels.score(log_weights, sizes, counts).any()


def test_an_early_group_costs_no_digits_whatever_its_weight() -> None:
    # The last group is drawn before the others, by far. So the others are an urn of their own.
    sizes = torch.tensor([50.0, 70.0, 4_302_280.0])
    counts, weights = torch.tensor([20.0, 40.0, 4_302_280.0]), torch.tensor([0.3, -0.4, 0.0])
    alone = kernels.log_prob(weights[:2], sizes[:2], counts[:2])
    score = kernels.score(weights[:2], sizes[:2], counts[:2])
    for gap in (100.0, 650.0, 720.0, 960.0, 1e4, 1e300):
        apart = weights + torch.tensor([0.0, 0.0, gap])
        torch.testing.assert_close(
            kernels.log_prob(apart, sizes, counts), alone, rtol=1e-11, atol=1e-11
        )
        torch.testing.assert_close(
            kernels.score(apart, sizes, counts)[:2], score, rtol=1e-9, atol=1e-9
        )


def test_nan_stays_in_its_row() -> None:
    log_weights = torch.zeros(3, 3)
    log_weights[1, 2] = torch.nan
    counts = torch.tensor([1.0, 2.0, 1.0]).repeat(3, 1)
    counts[2, 0] = torch.nan
    state = log_weights, torch.full((3, 3), 4.0), counts
    for values in (kernels.log_prob(*state).unsqueeze(-1), kernels.score(*state)):
        assert values.isnan().all(-1).tolist() == [False, True, True]
        assert not values[0].isnan().any()


def test_shapes_broadcast_and_empty_batches_have_no_results() -> None:
    log_weights, sizes, counts = torch.randn(4, 1, 3), torch.full((3,), 5.0), torch.ones(2, 3)
    found = kernels.log_prob(log_weights, sizes, counts)
    assert found.shape == (4, 2)
    assert found[3, 1] == kernels.log_prob(log_weights[3, 0], sizes, counts[0])
    assert kernels.score(log_weights, sizes, counts).shape == (4, 2, 3)
    assert kernels.log_prob(log_weights[:0], sizes, counts[0]).shape == (0, 1)
    assert kernels.score(log_weights[:0], sizes, counts[0]).shape == (0, 1, 3)


def test_subsets_of_many_balls_have_a_score_of_sum_zero() -> None:
    """c = 10⁴ and k = 10³; the score is invariant to the scale of the weights."""
    torch.manual_seed(1)
    log_weights = torch.randn(10_000, requires_grad=True)
    urn = WalleniusHypergeometric([1] * 10_000, 1000, log_weights=log_weights)
    subset = urn.sample()
    log_prob = urn.log_prob(subset)
    log_prob.backward()
    assert log_weights.grad is not None
    assert abs(float(log_weights.grad.sum())) < 1e-9
    assert log_weights.grad[subset == 1].min() > 0 > log_weights.grad[subset == 0].max()
    operands = log_weights.detach(), torch.ones(10_000), subset
    wanted = plain("log_prob", *probabilities._merged(1000, *operands))
    assert math.isclose(log_prob.item(), wanted.item(), rel_tol=1e-12)


# --------------------------------------------------------------------------------------------------
# Moments
# --------------------------------------------------------------------------------------------------


def urns_of(groups: int, size: float, draws: float, scale: float, number: int) -> list[Tensor]:
    """Random urns: log-weights, sizes, draws and a vector."""
    torch.manual_seed(groups)
    log_weights = (scale * torch.randn(number, groups)).clamp(-600, 0)
    sizes, n = torch.full((number, groups), size), torch.full((number,), draws)
    return [log_weights, sizes, n, torch.randn(number, groups)]


RACES = (
    (2, 10.0, 6.0, 1.0),
    (3, 200.0, 180.0, 1.0),
    (3, 5.0, 4.0, 30.0),
    (3, 5.0, 14.0, 3.0),
    (9, 1.0, 0.0, 1.0),
    (9, 1.0, 8.0, 1.0),
    (5, 7.0, 20.0, 0.0),
    (20, 3.0, 5.0, 5.0),
    (4, 1e6, 1e6, 2.0),
    (3, 1e9, 1e9, 1.0),
    (50, 1.0, 10.0, 1.0),
)


@pytest.mark.parametrize(("groups", "size", "draws", "scale"), RACES)
def test_moments_have_the_numbers_of_the_plain_path(
    groups: int, size: float, draws: float, scale: float
) -> None:
    *urn, vector = urns_of(groups, size, draws, scale, 2)
    ours, wanted = kernels.mean_by_integrals(*urn), plain("mean_by_integrals", *urn)
    assert ((ours - wanted).abs() <= 1e-12 * wanted.abs() + 1e-18 * draws).all()
    assert ((ours.sum(-1) - draws).abs() <= 1e-13 * draws).all()
    with_draws = urn[0], urn[1], urn[2].clamp(min=1), vector
    ours, wanted = (
        kernels.flow_by_integrals(*with_draws),
        plain("flow_by_integrals", *with_draws),
    )
    assert ((ours - wanted).abs() <= 1e-12 * wanted.abs().amax(-1, keepdim=True)).all()
    if groups > 20:
        return
    ours, wanted = kernels.covariance_by_integrals(*urn), plain("covariance_by_integrals", *urn)
    assert ours.shape == wanted.shape == (2, 1 + groups, groups)
    allowed = 1e-11 * wanted.abs().amax(-1, keepdim=True).amax(-2, keepdim=True)
    assert ((ours - wanted)[:, 1:].abs() <= allowed).all()
    assert ((ours - wanted)[:, 0].abs() <= 1e-12 * max(1, draws)).all()


def test_a_single_small_urn_has_a_mean_by_kernels_and_a_variance_by_dynamic_programming() -> None:
    """A variance of 7e-8 beside others of ¼ keeps its digits."""
    log_weights = torch.tensor([0.0, 0.0, 4.0], requires_grad=True)
    urn = WalleniusHypergeometric([2, 4, 4], 9, log_weights=log_weights)
    assert type(_dispatch.wallenius_for_means(urn)) is Integral
    assert type(_dispatch.wallenius_for_moments(urn)) is Sequential
    by_dynamic_programming = _dispatch.wallenius_for_moments(urn).mean()
    torch.testing.assert_close(urn.mean, by_dynamic_programming, rtol=1e-13, atol=0)
    (own,) = torch.autograd.grad(urn.mean[0], log_weights)
    (wanted,) = torch.autograd.grad(by_dynamic_programming[0], log_weights)
    torch.testing.assert_close(own, wanted, rtol=1e-12, atol=1e-16)
    assert urn.variance[2] < 1e-7
    assert type(_dispatch.wallenius_for_means(urn.expand([50]))) is Sequential


def test_the_means_of_784_items_sum_to_50_and_follow_their_weights() -> None:
    log_weights, sizes, draws, vector = urns_of(784, 1.0, 50.0, 1.0, 2)
    mean = kernels.mean_by_integrals(log_weights, sizes, draws)
    assert ((mean.sum(-1) - 50).abs() < 1e-11).all()
    assert (mean.gather(-1, log_weights.argsort(-1)).diff(dim=-1) >= 0).all()
    flow = kernels.flow_by_integrals(log_weights, sizes, draws, vector)
    step = 1e-4 * vector  # the Jacobian is symmetric
    ends = [kernels.mean_by_integrals(log_weights + t, sizes, draws) for t in (step, -step)]
    assert ((ends[0] - ends[1]) / 2e-4 - flow).abs().max() < 1e-7
    assert (flow.sum(-1).abs() < 1e-12).all()


def test_covariances_of_many_groups_take_the_plain_path() -> None:
    urn = urns_of(65, 1.0, 1.0, 1.0, 1)[:3]
    mean, covariance = kernels.covariance_by_integrals(*urn).split((1, 65), -2)
    p = torch.softmax(urn[0], -1)
    torch.testing.assert_close(mean[0, 0], p[0], rtol=1e-12, atol=0)
    torch.testing.assert_close(covariance[0], torch.diag(p[0]) - torch.outer(p[0], p[0]))


def test_moments_of_nan_are_nan_in_their_row() -> None:
    log_weights, sizes, draws, vector = urns_of(3, 5.0, 4.0, 1.0, 3)
    log_weights[1, 2], draws[2] = torch.nan, torch.nan
    urn = log_weights, sizes, draws
    for found in (
        kernels.mean_by_integrals(*urn),
        kernels.flow_by_integrals(*urn, vector),
        kernels.covariance_by_integrals(*urn).flatten(1),
    ):
        assert found.isnan().all(-1).tolist() == [False, True, True]
        assert not found[0].isnan().any()


def test_shapes_of_moments_broadcast_and_may_be_empty() -> None:
    log_weights, sizes = torch.randn(4, 1, 3), torch.full((3,), 5.0)
    draws, vector = torch.tensor([4.0, 7.0]), torch.randn(3)
    own = log_weights[2, 0], sizes, draws[1]
    mean = kernels.mean_by_integrals(log_weights, sizes, draws)
    assert mean.shape == (4, 2, 3)
    assert mean[2, 1].equal(kernels.mean_by_integrals(*own))
    flow = kernels.flow_by_integrals(log_weights, sizes, draws, vector)
    assert flow[2, 1].equal(kernels.flow_by_integrals(*own, vector))
    covariance = kernels.covariance_by_integrals(log_weights, sizes, draws)
    assert covariance[2, 1].equal(kernels.covariance_by_integrals(*own))
    empty = log_weights[:0], sizes, draws
    assert kernels.mean_by_integrals(*empty).shape == (0, 2, 3)
    assert kernels.flow_by_integrals(*empty, vector).shape == (0, 2, 3)
    assert kernels.covariance_by_integrals(*empty).shape == (0, 2, 4, 3)


# --------------------------------------------------------------------------------------------------
# Draws
# --------------------------------------------------------------------------------------------------

DRAWN = {
    "one by one": ((5, 7, 4), 8, (0.5, -0.5, 1.0)),
    "intervals": ((200, 150, 300), 250, (0.5, -0.5, 1.0)),
    "intervals that end": ((40, 40), 79, (1.0, 0.0)),
    "almost all": ((300, 200, 100), 590, (1.0, 3.0, -1.0)),
    "one group after another": ((60, 60, 60), 100, (0.0, -9.0, -30.0)),
    "equal weights": ((90, 400), 300, (0.0, 0.0)),
    "more groups than are prepared at once": ((3,) * 300, 120, (0.0, 1.0, 2.0) * 100),
}


@pytest.mark.parametrize("name", DRAWN)
def test_draws_follow_the_law_of_each_group(name: str) -> None:
    """With a fresh seed one of these tests fails once in ten thousand runs."""
    sizes, n, log_weights = DRAWN[name]
    number = 40_000 if len(sizes) < 10 else 2000
    urn = WalleniusHypergeometric(sizes, n, log_weights=torch.tensor(log_weights))
    operands = [x.unsqueeze(0) for x in _dispatch.wallenius(urn).operands]
    draws = sampling.draw_by_race(*operands, number, seed=7)[:, 0]
    assert (draws.sum(-1) == n).all()
    assert ((draws >= 0) & (draws <= torch.tensor(sizes))).all()
    for group in (0, len(sizes) - 1):
        counts = torch.arange(min(sizes[group], n) + 1.0)
        others = counts.unsqueeze(-1).expand(-1, len(sizes))
        expected = number * urn.marginals.log_prob(others)[:, group].exp()
        seen = torch.bincount(draws[:, group].long(), minlength=len(counts))
        likely = expected > 10
        observed = torch.cat([seen[likely], seen[~likely].sum().unsqueeze(0)]).double()
        wanted = torch.cat([expected[likely], expected[~likely].sum().unsqueeze(0)])
        statistic = ((observed - wanted).square() / wanted.clamp(min=1)).sum()
        assert stats.chi2.sf(float(statistic), max(1, int(likely.sum()))) > 7e-6


def test_a_seed_decides_the_draws_whatever_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    urns = torch.randn(300, 3), torch.full((300, 3), 90.0), torch.full((300,), 120.0)
    found = []
    for number in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda number=number: number)
        found.append(sampling.draw_by_race(*urns, 2, seed=5))
    assert found[0].shape == (2, 300, 3)
    assert found[1].equal(found[0])
    assert not found[0][0].equal(found[0][1])
    assert not sampling.draw_by_race(*urns, 2, seed=6).equal(found[0])
    urn = WalleniusHypergeometric([90] * 3, 120, log_weights=urns[0])
    torch.manual_seed(3)
    first, second = urn.sample(), urn.sample()
    torch.manual_seed(3)
    assert urn.sample().equal(first)
    assert urn.sample().equal(second)


def test_draws_of_nan_are_nan_in_their_row() -> None:
    urns = torch.zeros(2, 3), torch.full((2, 3), 50.0), torch.tensor([90.0, torch.nan])
    found = sampling.draw_by_race(*urns, 2, seed=1)
    assert (found[:, 0].sum(-1) == 90).all()
    assert found[:, 1].isnan().all()


# --------------------------------------------------------------------------------------------------
# Where they are called
# --------------------------------------------------------------------------------------------------


def log_prob(log_weights: Tensor) -> Tensor:
    urn = WalleniusHypergeometric([200, 150, 90], 180, log_weights=log_weights)
    return urn.log_prob(torch.tensor([80.0, 70.0, 30.0]))


@pytest.mark.filterwarnings(r"ignore:`torch.jit.script(_method)?` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    "transformed",
    [
        lambda x: vmap(log_prob)(torch.stack([x, 2 * x])),
        lambda x: jacfwd(log_prob)(x),
        lambda x: jacrev(jacrev(log_prob))(x),
        lambda x: jacfwd(jacrev(log_prob))(x),
    ],
    ids=["vmap", "jacfwd", "reverse twice", "forward over reverse"],
)
def test_transforms_give_the_numbers_of_the_plain_path(
    transformed, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_weights = torch.tensor([0.3, -1.0, 0.5])
    found = transformed(log_weights)
    monkeypatch.setattr(dispatch, "HAS_NATIVE", False)
    torch.testing.assert_close(found, transformed(log_weights), rtol=1e-10, atol=1e-10)


def test_second_derivatives_follow_from_the_plain_path() -> None:
    leaf = torch.tensor([0.3, -1.0, 0.5], requires_grad=True)
    (score,) = torch.autograd.grad(log_prob(leaf), leaf, create_graph=True)
    (curvature,) = torch.autograd.grad(score[0], leaf)
    wanted = jacrev(jacrev(log_prob))(leaf.detach())[0]
    torch.testing.assert_close(curvature, wanted, rtol=1e-9, atol=1e-9)


def test_results_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(2)
    sizes = torch.randint(1, 40, (3000, 3)).double()
    counts = (sizes * torch.rand(3000, 3)).floor()
    state, found = (torch.randn(3000, 3), sizes, counts), []
    for number in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda number=number: number)
        urn = state[0][:50], sizes[:50] + 1, counts[:50].sum(-1)
        found.append(
            (
                kernels.log_prob(*state),
                kernels.score(*state),
                kernels.mean_by_integrals(*urn),
                kernels.flow_by_integrals(*urn[:2], urn[2] + 1, state[0][:50]),
                kernels.covariance_by_integrals(*urn),
            )
        )
    for others in found[1:]:
        assert all(ours.equal(first) for ours, first in zip(others, found[0], strict=True))
