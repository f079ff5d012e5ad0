"""Urns on which numbers were once wrong, NaN or never came: ties, boundaries, weight zero, and
weights that are none.

`make fuzz` looks for more of them (`tests/fuzzing`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from scipy.stats import hypergeom
from torch import Tensor
from torch.distributions import Distribution

from diffurn import FisherHypergeometric, WalleniusHypergeometric
from diffurn._fisher.tilt import log_tilt
from support import oracles
from support.distributions import assert_possible
from support.urns import NEVER, Urn

LAWS = [FisherHypergeometric, WalleniusHypergeometric]

TIED = Urn("tied", (37925558,) * 2, 37925558, (0.0, 0.0))
BOUNDARY = Urn("boundary", (10**7, 2 * 10**7, 7, 10**7), 3 * 10**7 + 4, (0.0, 0.0, 0.0, -50.0))
WITH_ZEROS = Urn(
    "with zeros",
    (10502, 62393, 22349982, 58, 440, 2871825, 6081310, 7),
    25232753,
    (0.0, NEVER, 0.0, NEVER, 0.0, 0.0, NEVER, 0.0),
)
MANY_TIED = Urn("many tied", (10**9,) * 100, 6 * 10**7, (0.0,) * 100)
LIGHT_BEHIND_ZERO = Urn("light behind zero", (4, 5, 1), 3, (0.0, NEVER, -400.0))


def float64(values: Any, **options: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, **options)


def fisher(urn: Urn, device: torch.device, learned: bool = False) -> FisherHypergeometric:
    log_weights = float64(urn.log_weights, device=device, requires_grad=learned)
    return FisherHypergeometric(urn.group_sizes, urn.draws, log_weights=log_weights)


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("urn", [TIED, BOUNDARY, WITH_ZEROS], ids=str)
def test_probabilities_and_moments_of_hard_urns_are_right(
    urn: Urn, learned: bool, device: torch.device
) -> None:
    law, exact = fisher(urn, device, learned), oracles.moments(urn)
    mode = law.mode
    assert law.log_prob(mode).item() == pytest.approx(
        float(oracles.log_prob(urn, [int(x) for x in mode.tolist()])), abs=1e-9
    )
    torch.testing.assert_close(
        law.mean.detach().cpu(), float64([float(x) for x in exact.mean]), rtol=1e-12, atol=0
    )
    torch.testing.assert_close(
        law.variance.detach().cpu(),
        float64([float(exact.covariance[j, j]) for j in range(urn.groups)]),
        rtol=1e-9,
        atol=1e-30,
    )


@pytest.mark.parametrize("urn", [TIED, BOUNDARY, WITH_ZEROS, MANY_TIED], ids=str)
def test_hard_urns_are_drawn_from(urn: Urn, device: torch.device) -> None:
    law = fisher(urn, device)
    draws = law.sample((20,))
    assert_possible(draws, urn)
    # Seven standard deviations and a ball are left less than once in 1e9 draws of a group.
    assert ((draws - law.mean).abs() <= 7 * law.variance.sqrt() + 1).all()


def test_the_mean_of_many_tied_groups_has_the_slope_of_its_closed_form(
    device: torch.device,
) -> None:
    log_weights = torch.zeros(100, dtype=torch.float64, device=device, requires_grad=True)
    law = FisherHypergeometric(MANY_TIED.group_sizes, MANY_TIED.draws, log_weights=log_weights)
    (slope,) = torch.autograd.grad(law.mean[0], log_weights)
    balls, n = 10**11, MANY_TIED.draws
    assert slope[0].item() == pytest.approx(n * (balls - n) / (balls - 1) * 0.01 * 0.99, rel=1e-9)


def test_tails_of_light_groups_do_not_see_groups_of_weight_zero(device: torch.device) -> None:
    law = fisher(LIGHT_BEHIND_ZERO, device)
    # x_0 ≤ 2 means that the light ball is drawn: log of 6 e^-400 / (4 + 6 e^-400)
    assert law.marginals.log_cdf(float64([2.0, 0.0, 0.0], device=device))[
        0
    ].item() == pytest.approx(math.log(1.5) - 400, rel=1e-12)
    light = 1.5 * math.exp(-400)
    torch.testing.assert_close(law.variance.cpu(), float64([light, 0.0, light]), rtol=1e-12, atol=0)
    torch.testing.assert_close(
        law.covariance_matrix[0].cpu(), float64([light, 0.0, -light]), rtol=1e-12, atol=0
    )


def test_weight_zero_does_not_leak_where_derivatives_are_asked_for(device: torch.device) -> None:
    weights = float64([1.0, 0.0, 1e-200], device=device, requires_grad=True)
    law = FisherHypergeometric([4, 5, 1], 3, weights=weights)
    torch.testing.assert_close(
        law.variance.detach().cpu(), float64([1.5e-200, 0.0, 1.5e-200]), rtol=1e-12, atol=0
    )
    law.mean[1].backward()
    # with five balls of weight ω beside four of weight one, E x_1 → ω · 5 · 6 / 4
    assert weights.grad is not None
    assert weights.grad[1].item() == pytest.approx(7.5, rel=1e-9)


def test_an_empty_group_of_a_large_weight_has_a_mean_of_zero(device: torch.device) -> None:
    law = WalleniusHypergeometric(
        [0, 10**9, 10**9], 1909996259, log_weights=float64([484.0, -49.0, -392.0], device=device)
    )
    torch.testing.assert_close(law.mean.cpu(), float64([0.0, 1e9, 909996259.0]), rtol=1e-14, atol=0)


@pytest.mark.parametrize("extra", [0, 100])
def test_a_rare_group_of_many_balls_has_the_variance_of_its_mean(
    extra: int, device: torch.device
) -> None:
    """Balls of weight ω → 0 are drawn as a Poisson process while all but three others arrive, in
    the time 1/4 + 1/5 + … + 1/m.
    """
    size, weight = 43084270901, 1e-74
    weights = float64([weight, 1.0], device=device)
    law = WalleniusHypergeometric([size + extra, size], size - 3, weights=weights)
    harmonic = math.log(size) + 0.57721566490153286 + 0.5 / size
    expected = (size + extra) * weight * (harmonic - 11 / 6)
    signs = float64([[1.0, -1.0], [-1.0, 1.0]])
    covariance = law.covariance_matrix.cpu()
    torch.testing.assert_close(covariance, expected * signs, rtol=1e-9, atol=0)
    assert law.mean[0].item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("sizes", "draws", "log_weights", "counts"),
    [
        ((2, 9030952355), 4452126965, (391.0, 0.0), (2, 4452126963)),
        ((500, 500, 500), 800, (600.0, -100.0, -600.0), (500, 300, 0)),
        ((1, 1, 1), 2, (-525.8, -496.7, 459.0), (0, 1, 1)),
    ],
)
def test_log_probabilities_of_almost_sure_outcomes_are_not_above_zero(
    sizes: Sequence[int],
    draws: int,
    log_weights: Sequence[float],
    counts: Sequence[int],
    device: torch.device,
) -> None:
    law = WalleniusHypergeometric(sizes, draws, log_weights=float64(log_weights, device=device))
    assert -1e-9 <= law.log_prob(float64(counts, device=device)).item() <= 0


@pytest.mark.parametrize(
    ("sizes", "draws", "weights", "count"),
    [
        ((103228, 278745464), 278745466, (8.241152146216273e-06, 1.114829581276927), 30),
        ((13420, 13420), 26800, (1.0, 1.0), 13395),
        ((5388, 43391820), 43391900, (1e-9, 1.0), 100),
    ],
)
def test_tails_are_sums_of_probabilities_where_almost_all_balls_are_drawn(
    sizes: tuple[int, int],
    draws: int,
    weights: tuple[float, float],
    count: int,
    device: torch.device,
) -> None:
    law = WalleniusHypergeometric(sizes, draws, weights=float64(weights, device=device))
    first = torch.arange(
        max(0, draws - sizes[1]), min(sizes[0], draws) + 1, dtype=torch.float64, device=device
    )[:30_000]
    log_prob = law.log_prob(torch.stack([first, draws - first], -1))
    lower, upper = (
        torch.logsumexp(log_prob[side], 0).item() for side in (first <= count, first > count)
    )
    counts = float64([count, 0], device=device)
    assert law.marginals.log_cdf(counts)[0].item() == pytest.approx(lower, rel=1e-8, abs=1e-12)
    assert law.marginals.log_sf(counts)[0].item() == pytest.approx(upper, rel=1e-8, abs=1e-12)


def test_tails_of_an_urn_are_those_of_the_balls_that_are_left(device: torch.device) -> None:
    """418 of nine billion balls are left: counting them instead, with inverse weights, is the same
    law in small numbers.
    """
    size, left, log_weights = 4450039038, 418, float64([0.0, -0.17442822496848853], device=device)
    drawn = FisherHypergeometric([size] * 2, 2 * size - left, log_weights=log_weights)
    remaining = FisherHypergeometric([size] * 2, left, log_weights=-log_weights)
    counts = float64([198.0, 235.0], device=device)
    torch.testing.assert_close(
        drawn.marginals.log_cdf(size - counts),
        remaining.marginals.log_sf(counts - 1),
        rtol=1e-12,
        atol=0,
    )


def test_the_log_normalizer_of_huge_urns_keeps_its_digits(device: torch.device) -> None:
    """Of one group it is a binomial coefficient: here 460,320,997,600 over 12."""
    law = FisherHypergeometric(
        [460320997600], 460320997588, log_weights=torch.zeros(1, dtype=torch.float64, device=device)
    )
    assert law.log_normalizer.item() == pytest.approx(
        math.log(math.comb(460320997600, 12)), rel=1e-13
    )


def test_an_urn_of_weights_zero_from_which_nothing_is_drawn_is_certain(
    device: torch.device,
) -> None:
    weights = torch.zeros(3, dtype=torch.float64, device=device, requires_grad=True)
    law = FisherHypergeometric([7, 2000, 283], 0, weights=weights)
    assert law.log_prob(float64([0.0, 0.0, 0.0], device=device)).item() == pytest.approx(
        0.0, abs=1e-12
    )
    assert law.rsample().tolist() == [0.0, 0.0, 0.0]


def test_long_tails_are_right_beside_short_ones_in_a_batch(device: torch.device) -> None:
    """Long tails are summed at the nodes of a rule, short ones term by term. Balls of equal weight
    follow the hypergeometric distribution.
    """
    urns = [
        (size, n, n // 2 + round(deviations * math.sqrt(n / 4 * (1 - n / (2 * size)))))
        for size, n in ((2_000_000, 340_575), (150, 150), (90_000, 60_001))
        for deviations in (-4, 0, 4)
    ]
    size, n, x = float64(urns, device=device).unbind(-1)
    weights = torch.ones(2, dtype=torch.float64, device=device)
    law = WalleniusHypergeometric(torch.stack([size, size], -1), n, weights=weights)
    expected = [hypergeom.logsf(count, 2 * size, size, n) for size, n, count in urns]
    log_sf = law.marginals.log_sf(torch.stack([x, x], -1))[:, 0]
    torch.testing.assert_close(log_sf.cpu(), float64(expected), rtol=1e-8, atol=1e-10)


def test_the_heaviest_of_single_balls_far_apart_are_drawn(device: torch.device) -> None:
    log_weights = [-479.3, -159.4, 439.1, -283.0, -44.8, -587.3, -375.8, -140.0, 202.7, -594.7]
    law = WalleniusHypergeometric([1] * 10, 7, log_weights=float64(log_weights, device=device))
    heaviest = torch.tensor(log_weights).argsort(descending=True)[:7]
    expected = torch.zeros(10, dtype=torch.float64).scatter(0, heaviest, 1.0)
    torch.testing.assert_close(law.mean.cpu(), expected, rtol=0, atol=1e-30)
    torch.testing.assert_close(law.variance.cpu(), torch.zeros_like(expected), rtol=0, atol=1e-30)


def test_tails_of_few_balls_beside_billions_keep_ten_digits(device: torch.device) -> None:
    few, many, draws = 258, 386544587986, 229448437086
    log_weights = float64([1.9259430872270444, 3.605896344283648], device=device)
    law = WalleniusHypergeometric([few, many], draws, log_weights=log_weights)
    counts = torch.arange(44, few + 1, dtype=torch.float64, device=device)
    expected = law.log_prob(torch.stack([counts, draws - counts], -1)).logsumexp(0).item()
    log_sf = law.marginals.log_sf(float64([43.0, draws], device=device))[0].item()
    assert log_sf == pytest.approx(expected, abs=1e-10)


def test_tails_of_a_skewed_count_are_summed_to_their_end(device: torch.device) -> None:
    """The count of the light group is near its lowest value of 4, and falls like a Poisson law."""
    size, log_weights = 139191619, float64([3.290823818952683, -17.67245062866105], device=device)
    law = WalleniusHypergeometric([size, size], size + 4, log_weights=log_weights)
    counts = torch.arange(5, 100, dtype=torch.float64, device=device)
    log_prob = law.log_prob(torch.stack([size + 4 - counts, counts], -1))
    log_sf = law.marginals.log_sf(float64([size, 4.0], device=device))[1].item()
    assert log_sf == pytest.approx(log_prob.logsumexp(0).item(), abs=1e-10)


def test_groups_further_apart_than_float64_reaches_stay_apart(device: torch.device) -> None:
    """Of balls a, b, c with weights 1, e^-700, e^-1400 the first two are a and c with probability
    e^-700: b and c race at odds of e^700.
    """
    law = WalleniusHypergeometric(
        [1, 1, 1], 2, log_weights=float64([0.0, -700.0, -1400.0], device=device)
    )
    assert law.log_prob(float64([1.0, 0.0, 1.0], device=device)).item() == pytest.approx(
        -700.0, rel=1e-12
    )
    assert law.mean.tolist()[:2] == [1.0, 1.0]
    assert law.sample((5,)).tolist() == [[1.0, 1.0, 0.0]] * 5


# --------------------------------------------------------------------------------------------------
# The tilt
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
def test_tilts_are_right_to_a_hundredth_of_a_standard_deviation(
    compiled: bool, device: torch.device
) -> None:
    """Ten thousand urns with two levels of weights and draws within three balls of a group's end;
    by both schedules.
    """
    generator = torch.Generator().manual_seed(0)
    sizes = torch.floor(10 ** (9 * torch.rand(10_000, 4, generator=generator, dtype=torch.float64)))
    levels = 10 ** (3 * torch.rand(10_000, 2, generator=generator, dtype=torch.float64) - 0.3)
    log_weights = levels.gather(-1, torch.randint(2, (10_000, 4), generator=generator))
    ends = sizes.gather(-1, log_weights.argsort(-1, descending=True)).cumsum(-1)
    end = ends.gather(-1, torch.randint(4, (10_000, 1), generator=generator)).squeeze(-1)
    draws = (
        (end + torch.randint(-3, 4, (10_000,), generator=generator))
        .clamp(min=1)
        .minimum(sizes.sum(-1))
    )
    log_weights, sizes, draws = (operand.to(device) for operand in (log_weights, sizes, draws))
    tilted = torch.compile(log_tilt, backend="eager", fullgraph=True) if compiled else log_tilt
    log_odds = log_weights + tilted(log_weights, sizes, draws).unsqueeze(-1)
    spread = (sizes * torch.sigmoid(log_odds) * torch.sigmoid(-log_odds)).sum(-1).sqrt()
    missed = (sizes * torch.sigmoid(log_odds)).sum(-1) - (draws - 0.5)
    assert (missed.abs() <= 0.01 * spread).all()


def test_an_urn_without_balls_has_a_finite_tilt(device: torch.device) -> None:
    nothing = torch.zeros(2, 3, dtype=torch.float64, device=device)
    assert log_tilt(nothing, nothing, nothing[:, 0]).isfinite().all()


# --------------------------------------------------------------------------------------------------
# Weights that are none, and tensors that are changed in place
# --------------------------------------------------------------------------------------------------

COMPOSITIONS = [
    ((5, 5, 5), 5),
    ((10, 10), 10),
    ((500, 500, 500), 700),
    ((10**9, 10**9), 10**9),
    ((1,) * 12, 6),
]


def assert_all_nan(law: Distribution) -> None:
    assert law.sample().isnan().all()
    assert law.sample((3,)).isnan().all()
    assert law.rsample().isnan().all()
    some = torch.zeros_like(law.mean)
    for result in (
        law.mean,
        law.variance,
        law.marginals.cdf(some),
        law.marginals.icdf(0.5 + some),
        law.log_prob(some),
    ):
        assert result.isnan().all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0])
@pytest.mark.parametrize(("sizes", "draws"), COMPOSITIONS)
@pytest.mark.parametrize("law", LAWS)
def test_weights_that_became_invalid_give_nan(
    law: type[Distribution], sizes: tuple[int, ...], draws: int, bad: float, device: torch.device
) -> None:
    """A diverged optimiser writes them into an urn that was valid; without checks they get in from
    the start.
    """
    weights = torch.ones(len(sizes), dtype=torch.float64, device=device)
    checked = law(sizes, draws, weights=weights)
    weights[0 if bad else slice(None)] = bad
    checked._validate_args = False  # of the values of log_prob
    assert_all_nan(checked)
    assert_all_nan(law(sizes, draws, weights=weights, validate_args=False))
    with pytest.raises(ValueError, match="weight"):
        law(sizes, draws, weights=weights)


@pytest.mark.parametrize("law", LAWS)
def test_only_invalid_rows_of_a_batch_are_nan(
    law: type[Distribution], device: torch.device
) -> None:
    weights = float64([[1.0, 2.0], [math.nan, 1.0], [0.5, 1.0]], device=device)
    for size in (10, 1000):
        found = law([size, size], size, weights=weights, validate_args=False)
        for result in (found.mean, found.sample(), found.rsample((4,))):
            assert result.isnan().all(-1).reshape(-1, 3).tolist() == [[False, True, False]] * (
                result.numel() // 6
            )


@pytest.mark.parametrize("law", LAWS)
def test_weights_that_became_invalid_give_nan_in_a_compiled_step(
    law: type[Distribution], device: torch.device
) -> None:
    def step(weights: Tensor) -> tuple[Tensor, Tensor]:
        urn = law([10, 10], 10, weights=weights)
        return urn.sample((2,)), urn.mean

    for result in torch.compile(step, backend="eager", fullgraph=True)(
        float64([math.nan, 1.0], device=device)
    ):
        assert result.isnan().all()


@pytest.mark.parametrize("law", LAWS)
def test_an_urn_whose_sizes_are_changed_is_another_urn(
    law: type[Distribution], device: torch.device
) -> None:
    """And no urn but that one: the tensors that urns of one composition share are not handed
    out.
    """
    weights = float64([1.0, 2.0, 0.5], device=device)
    changed, expected = law([3, 5, 4], 5, weights=weights), law([2, 4, 3], 5, weights=weights).mean
    changed.group_sizes -= 1
    torch.testing.assert_close(changed.mean, expected, rtol=1e-9, atol=0)
    assert law([3, 5, 4], 5, weights=weights).group_sizes.tolist() == [3, 5, 4]
    other = law([3, 5, 4], 5, weights=weights)
    other.draws += 1
    assert law([3, 5, 4], 5, weights=weights).draws.item() == 5
