"""Wallenius' law: moments and marginals, against the urn followed ball by ball and against sums of
16-digit integrals.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cached_property

import pytest
import torch
from hypothesis import given
from mpmath import mp, mpf
from torch import Tensor

from diffurn import WalleniusHypergeometric, _dispatch
from diffurn._wallenius.integral import Integral
from diffurn._wallenius.sequential import Sequential, States
from support import wallenius_oracles as oracles
from support.distributions import GeneralWallenius, assert_log_probs, wallenius
from support.tolerances import WALLENIUS, WALLENIUS_SMALL
from support.urns import Urn
from support.wallenius_oracles import E6, LARGE, SMALL, Balls, DrawByDraw, draw_by_draw, large_law
from test_wallenius import small_urns

every_small_urn = pytest.mark.parametrize("urn", SMALL, ids=str)
# Bells, of two or three distinct weights, and urns with a handful of outcomes.
BELLS = (
    Urn("1e6x2", (10**6, 10**6), 10**6, (0.0, 0.9)),
    Urn("1e6x2-odds-20", (10**6, 10**6), 10**6, (3.0, 0.0)),
    Urn("1e6-and-1e4", (10**6, 10**4), 400_000, (0.0, -0.7)),
    Urn("1e5x8-two-weights", (10**5,) * 8, 300_000, (0.0, 1.5) * 4),
    Urn("paper-200x3-odds-10", (200, 200, 200), 180, (0.0, math.log(10.0), 0.0)),
    pytest.param(
        Urn("1e6x3", (10**6, 10**6, 10**5), 10**6, (0.0, 0.9, 2.3)), marks=pytest.mark.slow
    ),  # a two-dimensional lattice
)
FEW_OUTCOMES = (
    Urn("1e6x2-three-draws", (10**6, 10**6), 3, (0.0, 3.0)),
    Urn("1e6x2-all-but-three", (10**6, 10**6), 2 * 10**6 - 3, (0.0, 0.05)),
    Urn("1e6-and-one", (10**6, 1), 300_000, (0.0, 1.5)),
    Urn("1e6-and-four-odds-1e6", (10**6, 4), 300_000, (E6, 0.0)),
)


def is_sequential(urn: WalleniusHypergeometric) -> bool:
    """Whether the urn's moments come from dynamic programming."""
    return isinstance(_dispatch.wallenius_for_moments(urn), Sequential)


SEQUENTIAL = tuple(urn for urn in SMALL if is_sequential(wallenius(urn, torch.device("cpu"))))


class AllSmall:
    """All small urns as one batch, filled up with empty groups, so that the moments of all of them
    cost one call each.
    """

    def __init__(self, device: torch.device) -> None:
        groups = max(urn.groups for urn in SMALL)
        sizes = torch.tensor(
            [urn.group_sizes + (0,) * (groups - urn.groups) for urn in SMALL], device=device
        )
        log_weights = torch.tensor(
            [urn.log_weights + (0.5,) * (groups - urn.groups) for urn in SMALL],
            dtype=torch.float64,
            device=device,
        )
        self.urns = WalleniusHypergeometric(
            sizes,
            torch.tensor([urn.draws for urn in SMALL], device=device),
            log_weights=log_weights,
        )
        assert not is_sequential(self.urns), "with so many states, moments are integrals over time"

    @cached_property
    def mean(self) -> Tensor:
        return self.urns.mean

    @cached_property
    def covariance(self) -> Tensor:
        return self.urns.covariance_matrix


@pytest.fixture(scope="module")
def together(device: torch.device) -> AllSmall:
    return AllSmall(device)


def assert_within(
    ours: Tensor, exact: Sequence[mpf], absolute: float, relative: float = 0.0
) -> None:
    for value, reference in zip(ours.flatten().tolist(), exact, strict=True):
        assert abs(mpf(value) - reference) <= absolute + relative * abs(reference), (
            value,
            mp.nstr(reference, 20),
        )


def assert_covariance(covariance: Tensor, exact: list[list[mpf]], tolerance: float) -> None:
    """Every entry to within ``tolerance`` of the largest one, and rows that sum to zero."""
    flat = list(itertools.chain.from_iterable(exact))
    largest = float(max(abs(entry) for entry in flat))
    assert_within(covariance, flat, tolerance * largest + 1e-25)
    assert_rows_sum_to_zero(covariance)


def assert_rows_sum_to_zero(covariance: Tensor) -> None:
    largest = covariance.abs().max().item()
    assert (covariance - covariance.mT).abs().max().item() <= WALLENIUS.symmetry * largest + 1e-18
    assert (
        max(abs(math.fsum(row)) for row in covariance.tolist())
        <= WALLENIUS.row_sums * largest + 1e-17
    )


# --------------------------------------------------------------------------------------------------
# Mean and covariance
# --------------------------------------------------------------------------------------------------


@every_small_urn
def test_mean_keeps_ten_digits_in_every_entry(urn: Urn, together: AllSmall) -> None:
    """In the smallest entry too, though it may be 1e-60."""
    ours = together.mean[SMALL.index(urn)]
    assert_within(
        ours[: urn.groups],
        draw_by_draw(Balls.of_urn(urn)).mean,
        absolute=0.0,
        relative=WALLENIUS.mean,
    )
    assert not ours[urn.groups :].any()


@every_small_urn
def test_covariance_keeps_ten_digits_of_its_largest_entry(urn: Urn, together: AllSmall) -> None:
    covariance = together.covariance[SMALL.index(urn)]
    assert_covariance(
        covariance[: urn.groups, : urn.groups],
        draw_by_draw(Balls.of_urn(urn)).covariance,
        WALLENIUS_SMALL.covariance,
    )
    assert not covariance[urn.groups :].any()


def test_dynamic_programming_computes_most_small_urns() -> None:
    assert len(SEQUENTIAL) >= 25


@pytest.mark.parametrize("urn", SEQUENTIAL, ids=str)
def test_moments_by_dynamic_programming_keep_twelve_digits(urn: Urn, device: torch.device) -> None:
    ours, exact = wallenius(urn, device), draw_by_draw(Balls.of_urn(urn))
    assert_within(ours.mean, exact.mean, absolute=0.0, relative=1e-12)
    assert_covariance(ours.covariance_matrix, exact.covariance, 1e-12)


@given(urn=small_urns())
def test_moments_of_any_small_urn_are_right(urn: Urn, device: torch.device) -> None:
    """And the smallest variance is as accurate as the largest, however sure the outcome is."""
    ours, exact = wallenius(urn, device), DrawByDraw(Balls.of_urn(urn))
    assert_within(ours.mean, exact.mean, absolute=0.0, relative=WALLENIUS.mean)
    assert_within(
        ours.variance,
        [row[j] for j, row in enumerate(exact.covariance)],
        absolute=1e-28,
        relative=1e-9,
    )


def test_a_batch_of_different_small_urns_has_the_moments_of_each(device: torch.device) -> None:
    urns = [urn for urn in SEQUENTIAL if urn.groups == 3]
    sizes, draws = (
        torch.tensor([urn.group_sizes for urn in urns]),
        torch.tensor([urn.draws for urn in urns]),
    )
    log_weights = torch.tensor([urn.log_weights for urn in urns], device=device)
    together = WalleniusHypergeometric(sizes.tolist(), draws.tolist(), log_weights=log_weights)
    assert is_sequential(together)
    mean, covariance = together.mean, together.covariance_matrix
    for place, urn in enumerate(urns):
        alone = wallenius(urn, device)
        torch.testing.assert_close(mean[place], alone.mean, rtol=1e-13, atol=1e-300)
        torch.testing.assert_close(
            covariance[place], alone.covariance_matrix, rtol=1e-12, atol=1e-30
        )


def test_a_long_batch_of_small_urns_is_worked_off_in_pieces(device: torch.device) -> None:
    """Value and gradient are those of its urns alone."""
    log_weights = torch.randn(3000, 2, device=device, requires_grad=True)
    slope = torch.randn(3000, 2, device=device)
    urns = WalleniusHypergeometric([60, 40], 50, log_weights=log_weights)
    assert is_sequential(urns)
    mean = urns.mean
    (gradient,) = torch.autograd.grad((mean * slope).sum(), log_weights)
    for place in (0, 1234, 2999):
        alone = log_weights[place].detach().requires_grad_()
        own = WalleniusHypergeometric([60, 40], 50, log_weights=alone).mean
        torch.testing.assert_close(mean[place], own, rtol=1e-13, atol=0.0)
        torch.testing.assert_close(
            gradient[place],
            torch.autograd.grad((own * slope[place]).sum(), alone)[0],
            rtol=1e-11,
            atol=1e-13,
        )


def test_the_mean_of_a_small_urn_is_differentiable_twice(device: torch.device) -> None:
    log_weights = torch.tensor([0.3, -1.1, 0.6], device=device, requires_grad=True)

    def mean(log_weights: Tensor) -> Tensor:
        urn = WalleniusHypergeometric([4, 3, 5], 6, log_weights=log_weights)
        assert is_sequential(urn)
        return urn.mean

    assert torch.autograd.gradcheck(mean, log_weights)
    assert torch.autograd.gradgradcheck(mean, log_weights)


@pytest.mark.parametrize("name", ["single-group", "never-drawn", "all-balls"])
def test_an_urn_alone_has_the_moments_it_has_in_a_batch_with_empty_groups(
    name: str, together: AllSmall, device: torch.device
) -> None:
    place, urn = next((place, urn) for place, urn in enumerate(SMALL) if urn.name == name)
    alone, groups = wallenius(urn, device), urn.groups
    torch.testing.assert_close(alone.mean, together.mean[place, :groups], rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(
        alone.covariance_matrix,
        together.covariance[place, :groups, :groups],
        rtol=1e-10,
        atol=1e-11,
    )
    torch.testing.assert_close(
        alone.variance, alone.covariance_matrix.diagonal(), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("urn", [*BELLS, *FEW_OUTCOMES], ids=str)
def test_moments_are_right_up_to_a_million_balls_per_group(urn: Urn, device: torch.device) -> None:
    exact, ours = large_law(Balls.of_urn(urn)), wallenius(urn, device)
    assert abs(exact.total - 1) <= 1e-11, "the oracle itself"
    assert_within(ours.mean, exact.mean, absolute=0.0, relative=WALLENIUS.mean)
    assert_covariance(ours.covariance_matrix, exact.covariance, WALLENIUS.covariance)


@pytest.mark.parametrize("urn", LARGE[::2], ids=str)
def test_means_sum_to_the_draws_and_rows_of_the_covariance_to_zero(
    urn: Urn, device: torch.device
) -> None:
    ours = wallenius(urn, device)
    assert math.fsum(ours.mean.tolist()) == pytest.approx(urn.draws, rel=WALLENIUS.sum_of_means)
    assert_rows_sum_to_zero(ours.covariance_matrix)


def test_equal_weights_have_the_central_moments_at_a_million_balls(device: torch.device) -> None:
    sizes, draws = torch.tensor([10**6, 3 * 10**5, 7], dtype=torch.float64, device=device), 654_321
    ours = WalleniusHypergeometric(sizes, draws, weights=torch.full((3,), 2.5, device=device))
    share, total = sizes / sizes.sum(), sizes.sum()
    torch.testing.assert_close(ours.mean, draws * share, rtol=1e-11, atol=0.0)
    central = draws * (total - draws) / (total - 1) * (share.diag() - share.outer(share))
    torch.testing.assert_close(ours.covariance_matrix, central, rtol=1e-9, atol=1e-6)


SLOPED = ("three-colours", "lopsided", "all-but-one", "odds-1e6", "odds-1e12-one-more")


def exact_jacobian(
    urn: Urn, function: Callable[[DrawByDraw], Sequence[mpf]] = lambda law: law.mean
) -> list[list[mpf]]:
    """∂ function_i / ∂ log ω_j, of the mean or of another function of the law."""
    balls, columns = Balls.of_urn(urn), []
    for j in range(urn.groups):
        with mp.workdps(60):
            step = mpf(10) ** -10
            above, below = (function(DrawByDraw(balls.tilted(j, sign * step))) for sign in (1, -1))
            columns.append([(a - b) / (2 * step) for a, b in zip(above, below, strict=True)])
    return [list(row) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("kind", [WalleniusHypergeometric, GeneralWallenius])
@pytest.mark.parametrize("urn", [urn for urn in SMALL if urn.name in SLOPED], ids=str)
def test_the_mean_has_the_slope_of_the_exact_mean(
    urn: Urn, kind: type[WalleniusHypergeometric], device: torch.device
) -> None:
    log_weights = torch.tensor(urn.log_weights, device=device)

    def mean(log_weights: Tensor) -> Tensor:
        return kind(urn.group_sizes, urn.draws, log_weights=log_weights).mean

    jacobian = torch.autograd.functional.jacobian(mean, log_weights)
    exact = list(itertools.chain.from_iterable(exact_jacobian(urn)))
    assert_within(jacobian, exact, 1e-9 * float(max(abs(entry) for entry in exact)) + 1e-14)


@pytest.mark.parametrize("urn", BELLS[:1], ids=str)
def test_the_mean_of_a_large_urn_has_the_slope_of_its_differences(
    urn: Urn, device: torch.device
) -> None:
    log_weights = torch.tensor(urn.log_weights, device=device)

    def mean(log_weights: Tensor) -> Tensor:
        return WalleniusHypergeometric(urn.group_sizes, urn.draws, log_weights=log_weights).mean

    jacobian = torch.autograd.functional.jacobian(mean, log_weights)
    balls, step = Balls.of_urn(urn), mpf("1e-4")
    above, below = (large_law(balls.tilted(0, sign * step)).mean[0] for sign in (1, -1))
    exact = (above - below) / (2 * step)
    assert_within(jacobian, [exact, -exact, -exact, exact], absolute=0.0, relative=1e-6)


# --------------------------------------------------------------------------------------------------
# Marginals
# --------------------------------------------------------------------------------------------------


MARGINALS = (
    "two-groups",
    "three-colours",
    "one-ball-per-group",
    "lopsided",
    "all-but-one",
    "single-group",
    "empty-group",
    "no-draws",
)
MARGINALS += (
    "never-drawn",
    "never-drawn-rest-must-fill",
    "odds-1e6",
    "odds-1e6-two-groups",
    "odds-1e12",
    "odds-1e12-one-more",
)
TWO_GROUPS = tuple(urn for urn in SMALL if urn.groups == 2)
urns_with_marginals = pytest.mark.parametrize(
    "urn", [urn for urn in SMALL if urn.name in MARGINALS], ids=str
)


def test_variances_of_an_almost_sure_subset_are_not_negative(device: torch.device) -> None:
    """They are below 1e-30, as are rounding errors. The urn was found by `make fuzz`."""
    text = """
        -171.87542095944158 218.98984459274874 20.12688565795586 42.41279153317701
        137.62739245877228 248.4642121060541 84.42163252701566 207.95679091244006
        -16.896109279124794 103.60667939012825 -194.75874921697212 214.464161756805
    """
    values = [float(value) for value in text.split()]
    log_weights = torch.tensor(values, dtype=torch.float64, device=device)
    variance = WalleniusHypergeometric([1] * 12, 4, log_weights=log_weights).variance
    assert (variance >= 0).all()
    assert (variance <= 1e-30).all()


two_groups_with_marginals = pytest.mark.parametrize("urn", TWO_GROUPS, ids=str)


def marginal_grid(urn: Urn, device: torch.device) -> tuple[list[int], Tensor]:
    """Counts from -1 to one more than the largest group holds, and the same for every group."""
    counts = list(range(-1, max(urn.group_sizes) + 2))
    return counts, torch.tensor(counts, dtype=torch.float64, device=device).unsqueeze(-1).expand(
        -1, urn.groups
    )


def assert_logs(ours: Tensor, exact: Sequence[mpf], tolerance: float) -> None:
    """Logarithms of probabilities that may be zero."""
    assert_log_probs(
        ours,
        [mp.log(probability) if probability > 0 else -mp.inf for probability in exact],
        tolerance,
    )


@urns_with_marginals
def test_marginals_agree_with_drawing_ball_by_ball_at_every_count(
    urn: Urn, device: torch.device
) -> None:
    counts, grid = marginal_grid(urn, device)
    ours = wallenius(urn, device).marginals.log_prob(grid)
    for group, marginal in enumerate(draw_by_draw(Balls.of_urn(urn)).marginals):
        assert_logs(
            ours[:, group], [marginal.get(x, mpf(0)) for x in counts], WALLENIUS_SMALL.marginal
        )


@two_groups_with_marginals
def test_cumulated_probabilities_agree_with_drawing_ball_by_ball(
    urn: Urn, device: torch.device
) -> None:
    """Both tails to a relative accuracy, through their logarithms, and certain beyond the ends."""
    (counts, grid), distribution = marginal_grid(urn, device), wallenius(urn, device)
    log_cdf, log_sf = distribution.marginals.log_cdf(grid), distribution.marginals.log_sf(grid)
    torch.testing.assert_close(
        distribution.marginals.cdf(grid), log_cdf.exp(), rtol=1e-13, atol=0.0
    )
    torch.testing.assert_close(distribution.marginals.sf(grid), log_sf.exp(), rtol=1e-13, atol=0.0)
    assert_tails(urn, counts, log_cdf, log_sf)


CUMULATED = [
    ("three-colours", [2]),
    pytest.param("five-groups", [0, 1, 2], marks=pytest.mark.slow),
    pytest.param("never-drawn", [1, 3], marks=pytest.mark.slow),
    pytest.param("odds-1e12-one-more", [0, 4], marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "counts"), CUMULATED)
def test_tails_of_several_groups_agree_with_drawing_ball_by_ball(
    name: str, counts: list[int], device: torch.device
) -> None:
    urn = next(urn for urn in SMALL if urn.name == name)
    grid = (
        torch.tensor(counts, dtype=torch.float64, device=device)
        .unsqueeze(-1)
        .expand(-1, urn.groups)
    )
    distribution = wallenius(urn, device)
    assert_tails(
        urn, counts, distribution.marginals.log_cdf(grid), distribution.marginals.log_sf(grid)
    )


def assert_tails(urn: Urn, counts: list[int], log_cdf: Tensor, log_sf: Tensor) -> None:
    with mp.workdps(60):
        for group, marginal in enumerate(draw_by_draw(Balls.of_urn(urn)).marginals):
            assert_logs(
                log_cdf[:, group],
                [mp.fsum(p for k, p in marginal.items() if k <= x) for x in counts],
                WALLENIUS_SMALL.tails,
            )
            assert_logs(
                log_sf[:, group],
                [mp.fsum(p for k, p in marginal.items() if k > x) for x in counts],
                WALLENIUS_SMALL.tails,
            )


@pytest.mark.parametrize(
    "urn",
    [
        *TWO_GROUPS,
        *(
            pytest.param(urn, marks=pytest.mark.slow)
            for urn in SMALL
            if urn.name in ("three-colours", "odds-1e12")
        ),
    ],
    ids=str,
)
def test_quantiles_invert_the_cumulated_probabilities(urn: Urn, device: torch.device) -> None:
    """The smallest count whose cumulated probability is at least q, for q well between two
    steps.
    """
    qs = [1e-6, 0.02, 0.3, 0.5, 0.77, 0.999]
    ours = wallenius(urn, device).marginals.icdf(torch.tensor(qs, device=device).unsqueeze(-1))
    assert ours.shape == (len(qs), urn.groups)
    for group, marginal in enumerate(draw_by_draw(Balls.of_urn(urn)).marginals):
        steps = list(itertools.accumulate(marginal.values()))
        for row, q in enumerate(qs):
            if all(abs(step - q) > 1e-11 for step in steps):
                assert ours[row, group] == next(
                    x for x, step in zip(marginal, steps, strict=True) if step >= q
                ), (group, q)


ALGORITHMS: dict[str, Callable[[WalleniusHypergeometric], Integral]] = {
    "integral": lambda urn: Integral.build(*urn._operands()),
    "sequential": lambda urn: Sequential.of(
        Integral.build(*urn._operands()), States.of(urn._composition)
    ),
}
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


@every_algorithm
@pytest.mark.parametrize(
    "urn", [urn for urn in SEQUENTIAL if urn.drawable == urn.group_sizes], ids=str
)
def test_tails_of_a_group_keep_ten_digits(urn: Urn, algorithm: str, device: torch.device) -> None:
    """P(X_j ≥ i) for i = 1, …, m_j, as rank indicators use them."""
    law, exact = ALGORITHMS[algorithm](wallenius(urn, device)), draw_by_draw(Balls.of_urn(urn))
    for group, size in enumerate(urn.group_sizes):
        tail = law.tail(group)
        assert tail.shape == (size,)
        assert_within(tail, exact.tail(group), absolute=0.0, relative=WALLENIUS_SMALL.tails)


@every_algorithm
@pytest.mark.parametrize("urn", [urn for urn in SMALL if urn.name in SLOPED], ids=str)
def test_tails_of_a_group_have_the_slopes_of_the_exact_ones(
    urn: Urn, algorithm: str, device: torch.device
) -> None:
    group = urn.groups - 1

    def tail(log_weights: Tensor) -> Tensor:
        built = WalleniusHypergeometric(urn.group_sizes, urn.draws, log_weights=log_weights)
        return ALGORITHMS[algorithm](built).tail(group)

    log_weights = torch.tensor(urn.log_weights, device=device)
    jacobian = torch.autograd.functional.jacobian(tail, log_weights)
    exact = exact_jacobian(urn, lambda law: law.tail(group))
    flat = list(itertools.chain.from_iterable(exact))
    assert_within(jacobian, flat, 1e-9 * float(max(abs(entry) for entry in flat)) + 1e-14)


@every_algorithm
def test_tails_of_a_batch_are_those_of_its_urns(algorithm: str, device: torch.device) -> None:
    """The largest group sets the length; beyond their own size urns have zeros."""
    sizes, draws, log_weights = [[4, 3, 5], [0, 2, 7]], [6, 3], torch.randn(2, 3, device=device)
    urns = WalleniusHypergeometric(sizes, draws, log_weights=log_weights)
    for group in range(3):
        tail = ALGORITHMS[algorithm](urns).tail(group)
        assert tail.shape == (2, max(row[group] for row in sizes))
        for place, (row, n) in enumerate(zip(sizes, draws, strict=True)):
            urn = Urn("alone", tuple(row), n, tuple(log_weights[place].tolist()))
            exact = [*DrawByDraw(Balls.of_urn(urn)).tail(group), *[mpf(0)] * 9][: tail.shape[-1]]
            assert_within(tail[place], exact, absolute=1e-300, relative=WALLENIUS_SMALL.tails)


def test_marginals_of_a_million_balls_are_those_of_the_merged_urn(device: torch.device) -> None:
    """Other groups of one weight are as one group."""
    urn = Urn("three", (10**6, 4 * 10**5, 6 * 10**5), 10**6, (0.0, 0.9, 0.9))
    merged = Balls.of_urn(Urn("two", (10**6, 10**6), 10**6, (0.0, 0.9)))
    xs = [x for x, _ in oracles.probe_counts(merged, shifts=(0.0, 2.0, -2.0, 6.0))[2:]]
    ours = wallenius(urn, device).marginals.log_prob(
        torch.tensor([[x, 0, 0] for x in xs], device=device)
    )[:, 0]
    with mp.workdps(30):
        assert_logs(
            ours,
            [mp.exp(oracles.log_prob(merged, (x, 10**6 - x), digits=20)) for x in xs],
            WALLENIUS.marginal,
        )


def test_cumulated_probabilities_of_a_large_urn_are_sums_of_its_marginals(
    device: torch.device,
) -> None:
    urn = wallenius(Urn("2e4-and-5e3", (20_000, 5000), 15_000, (0.0, 0.9)), device)
    mean, deviation = urn.mean, urn.variance.sqrt()
    steps = torch.arange(-900, 901, device=device).unsqueeze(-1)
    grid = mean.round() + steps
    probability = urn.marginals.log_prob(grid).exp()
    assert bool((probability.sum(0) - 1).abs().max() < 1e-10)
    for shift in (-3, 0, 2):
        x = (mean + shift * deviation).round()
        below = torch.where(grid <= x, probability, 0.0).sum(0)
        torch.testing.assert_close(urn.marginals.cdf(x), below, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(urn.marginals.sf(x), 1 - below, rtol=1e-9, atol=1e-10)
        middle = below - torch.where(grid == x, probability, 0.0).sum(0) / 2
        assert torch.equal(urn.marginals.icdf(middle), x)
