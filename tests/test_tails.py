"""cdf, sf, icdf and their logarithms, of every group's marginal: against sums in 40 and more
digits, SciPy and the laws they must obey.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import stats

from diffurn import FisherHypergeometric
from diffurn._fisher.marginals import gram_rule
from support import oracles
from support.distributions import fisher
from support.tolerances import FISHER
from support.urns import NEVER, SMALL, Urn, by_name

FALLEN = mpf(10) ** -22  # where a log-concave tail may be cut, relative to its sum


def log_tails_at(
    urn: Urn, group: int, xs: list[int], device: torch.device
) -> list[tuple[float, float]]:
    """Ours, of one group: (log_cdf, log_sf) at each x."""
    value = torch.zeros(len(xs), urn.groups, dtype=torch.float64, device=device)
    value[:, group] = torch.tensor([float(x) for x in xs], dtype=torch.float64)
    distribution = fisher(urn, device)
    return list(
        zip(
            distribution.marginals.log_cdf(value)[:, group].tolist(),
            distribution.marginals.log_sf(value)[:, group].tolist(),
            strict=True,
        )
    )


def assert_log(ours: float, exact: mpf, tolerance: float = FISHER.tails) -> None:
    """The logarithm of a probability within the tolerance, relative to it or to one, whichever is
    more.
    """
    if exact == 0:
        assert ours == -math.inf
        return
    with mp.workdps(40):
        reference = mp.log(exact)
        assert math.isfinite(ours), (ours, mp.nstr(reference, 20))
        assert abs(mpf(ours) - reference) <= tolerance * max(1, abs(reference)), (
            ours,
            mp.nstr(reference, 20),
        )


# --------------------------------------------------------------------------------------------------
# Against oracles
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("urn", [urn for urn in SMALL[::2] if urn.groups <= 100], ids=str)
def test_tails_agree_with_the_enumeration_at_every_count(urn: Urn, device: torch.device) -> None:
    marginals = oracles.enumeration(urn).marginals()
    for group in range(0, urn.groups, 1 + urn.groups // 6):
        counts = sorted(marginals[group])
        with mp.workdps(40):
            masses = [mp.exp(marginals[group][x]) for x in counts]
            lower, upper = (
                list(accumulate(masses)),
                [*list(accumulate(masses[:0:-1]))[::-1], mpf(0)],
            )
        every = range(0, len(counts), 1 + len(counts) // 40)
        for i, (log_cdf, log_sf) in zip(
            every, log_tails_at(urn, group, [counts[i] for i in every], device), strict=True
        ):
            assert_log(log_cdf, lower[i])
            assert_log(log_sf, upper[i])


def tail_sum(first: mpf, ratios: Iterator[mpf]) -> mpf:
    """first · (1 + r₁ + r₁r₂ + …), cut where the rest, at most a geometric series, no longer
    counts.
    """
    sum_, term = mpf(1), mpf(1)
    for ratio in ratios:
        term *= ratio
        sum_ += term
        if ratio < 1 and term * ratio < FALLEN * sum_ * (1 - ratio):
            break
    return first * sum_


def two_group_ratios(urn: Urn, start: int, step: int) -> Iterator[mpf]:
    """P(X = x + step) / P(X = x) from x = start on, X the first of two groups, to the end of the
    support.
    """
    (a, b), n = urn.group_sizes, urn.draws
    odds = mp.exp(mpf(urn.log_weights[0]) - mpf(urn.log_weights[1]))
    x = start
    while True:
        up, down = (
            ((a - x) * (n - x), (x + 1) * (b - n + x + 1))
            if step > 0
            else (x * (b - n + x), (a - x + 1) * (n - x + 1))
        )
        if up == 0:
            return
        yield mpf(up) / down * (odds if step > 0 else 1 / odds)
        x += step


def many_group_ratios(
    urn: Urn, group: int, start: int, step: int, count: int = 1500
) -> Iterator[mpf]:
    """The same for a group among many: the others' masses around their new total from one circle,
    by the contour oracle.
    """
    rest, size = oracles.balls_without(urn, group), urn.group_sizes[group]
    lowest, highest = max(0, urn.draws - oracles.number_of(rest)), min(size, urn.draws)
    count = min(count, (highest - start if step > 0 else start - lowest) + 1)
    circle = oracles.Circle(rest, urn.draws - start, 45, reach=count)
    masses = circle.probabilities(urn.draws - start, step, count)
    odds = mp.exp(mpf(urn.log_weights[group]) + mpf(circle.log_radius))
    for i in range(count - 1):
        x = start + step * i
        own = mpf(size - x) / (x + 1) * odds if step > 0 else mpf(x) / (size - x + 1) / odds
        yield own * masses[i + 1] / masses[i]


def exact_tails(
    urn: Urn, group: int, x: int, ratios: Callable[[int, int], Iterator[mpf]]
) -> tuple[mpf, mpf]:
    """P(X ≤ x) and P(X > x): the tail away from the mean as a sum, the other as what it leaves."""
    with mp.workdps(40):
        upper = x >= oracles.moments(urn).mean[group]
        start = x + 1 if upper else x
        summed = tail_sum(
            mp.exp(oracles.marginal_log_prob(urn, group, start)), ratios(start, 1 if upper else -1)
        )
        return (1 - summed, summed) if upper else (summed, 1 - summed)


def probes(urn: Urn, group: int) -> list[int]:
    """Near the mean, and where log P(X = x) is about -10, -100 and -1000, on both sides; not the
    ends of the support.
    """
    rest = oracles.number_of(oracles.balls_without(urn, group))
    lowest, highest = max(0, urn.draws - rest), min(urn.group_sizes[group], urn.draws)
    return [x for x in oracles.marginal_probes(urn, group) if lowest < x < highest]


def assert_tails(
    urn: Urn,
    group: int,
    ratios: Callable[[int, int], Iterator[mpf]],
    device: torch.device,
    xs: list[int],
) -> None:
    for x, ours in zip(xs, log_tails_at(urn, group, xs, device), strict=True):
        for log_p, exact in zip(ours, exact_tails(urn, group, x, ratios), strict=True):
            assert_log(log_p, exact)


@cache
def two_groups(a: int, b: int, draws: int, log_odds: float) -> Urn:
    return Urn(f"{a}-{b}-{draws}-{log_odds:g}", (a, b), draws, (log_odds, 0.0))


@pytest.mark.parametrize(
    "urn",
    [
        two_groups(70, 90, 60, 0.5),  # windows around the length where the sum changes its form
        two_groups(200, 300, 150, -0.3),
        two_groups(10**9, 40, 10**6, 3.0),
        two_groups(10**6, 10**6, 10**6, 0.0),
        two_groups(10**9, 10**6, 10**6, -4.0),
        two_groups(2**31 + 11, 10**8, 2**20, 1.0),
        two_groups(10**9, 10**9, 120, 1.0),
        by_name("scipy-minus-infinity-odds-1e-6"),
        by_name("lighter-group-must-help"),
        by_name("medium-spread1-c2-N1e5-n4e4-40"),
    ],
    ids=str,
)
def test_tails_of_two_groups_keep_eleven_digits(urn: Urn, device: torch.device) -> None:
    assert_tails(
        urn, 0, lambda start, step: two_group_ratios(urn, start, step), device, probes(urn, 0)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "urn",
    [two_groups(10**9, 10**9, 9 * 10**8, 0.7), two_groups(4 * 10**8, 6 * 10**9, 10**9, 2.0)],
    ids=str,
)
def test_tails_of_a_billion_balls_keep_eleven_digits(urn: Urn, device: torch.device) -> None:
    assert_tails(
        urn, 0, lambda start, step: two_group_ratios(urn, start, step), device, probes(urn, 0)
    )


@pytest.mark.parametrize(
    "name",
    [
        "paper-200x3-odds-10",
        "titanic",
        "medium-spread1-c5-N1e4-n5e2-42",
        "medium-spread5-c8-N5e2-n4e2-51",
        "medium-spread1-c10-N1e5-n3e4-44",
    ],
)
def test_tails_of_many_groups_keep_eleven_digits(name: str, device: torch.device) -> None:
    urn = by_name(name)
    group = max(range(urn.groups), key=lambda j: oracles.moments(urn).covariance[j, j])
    assert_tails(
        urn,
        group,
        lambda start, step: many_group_ratios(urn, group, start, step),
        device,
        probes(urn, group)[::3],
    )


@pytest.mark.parametrize(
    ("urn", "group", "xs"),
    [
        (Urn("others-are-few", (10**9, 6, 5), 4000, (-13.0, 0.25, -0.125)), 0, range(3989, 4000)),
        (
            Urn("others-end-nearby", (440, 3000, 26, 45), 2211, (6.5, 1.25, -27.0, 7.25)),
            1,
            range(1715, 1740, 3),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Urn) else "",
)
def test_tails_end_where_the_other_groups_end(
    urn: Urn, group: int, xs: range, device: torch.device
) -> None:
    """Beyond its reach the quadrature of the others repeats itself, which must not be summed."""
    assert_tails(
        urn, group, lambda start, step: many_group_ratios(urn, group, start, step), device, list(xs)
    )


@pytest.mark.parametrize("population", [10**3, 10**5, 10**7])
def test_groups_of_equal_weight_count_as_one_for_the_tails_of_the_others(
    population: int, device: torch.device
) -> None:
    """So that the sum over many groups is held to the oracle of two."""
    alone = two_groups(population, 3 * population, population, 0.4)
    split = Urn(
        "split", (population, population, 2 * population - 7, 7), population, (0.4, 0.0, 0.0, 0.0)
    )
    xs = probes(alone, 0)[:5]
    for x, (log_cdf, log_sf) in zip(xs, log_tails_at(split, 0, xs, device), strict=True):
        lower, upper = exact_tails(
            alone, 0, x, lambda start, step: two_group_ratios(alone, start, step)
        )
        assert_log(log_cdf, lower)
        assert_log(log_sf, upper)


@pytest.mark.parametrize("length", [61, 62, 80, 150, 700, 12_345])
def test_the_gram_rule_sums_polynomials_and_exponentials(length: int) -> None:
    nodes, weights = gram_rule(torch.tensor(float(length)))
    k = np.arange(length) / (length - 1)
    t = nodes.numpy() / (length - 1)
    for function in (
        lambda u: u**3,
        lambda u: u**55,
        lambda u: np.exp(-37 * u),
        lambda u: np.exp(-37 * u * u),
        lambda u: np.exp(-70 * u),
    ):
        exact = math.fsum(function(k))
        assert abs(float(weights.numpy() @ function(t)) - exact) <= 1e-12 * exact


# --------------------------------------------------------------------------------------------------
# Against SciPy
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "draws", "odds"),
    [(10, 15, 12, 2.5), (40, 60, 30, 0.2), (500, 300, 400, 1.0), (7, 3, 4, 20.0)],
)
def test_cdf_sf_and_icdf_agree_with_scipy(
    a: int, b: int, draws: int, odds: float, device: torch.device
) -> None:
    urn = FisherHypergeometric([a, b], draws, weights=torch.tensor([odds, 1.0], device=device))
    law = stats.nchypergeom_fisher(a + b, a, draws, odds)
    xs = np.arange(-2, a + 3)
    value = torch.tensor(np.stack([xs, xs], -1), device=device)
    np.testing.assert_allclose(
        urn.marginals.cdf(value)[:, 0].cpu(), law.cdf(xs), rtol=1e-9, atol=1e-11
    )
    np.testing.assert_allclose(
        urn.marginals.sf(value)[:, 0].cpu(), law.sf(xs), rtol=1e-9, atol=1e-11
    )
    probabilities = np.random.default_rng(0).uniform(size=200)
    ours = urn.marginals.icdf(torch.tensor(probabilities, device=device).unsqueeze(-1))[:, 0]
    np.testing.assert_array_equal(ours.cpu(), law.ppf(probabilities))


def test_the_far_tail_that_scipy_rounds_to_zero_stays_finite(device: torch.device) -> None:
    urn = fisher(two_groups(10**6, 10**6, 10**6, 0.0), device)
    assert urn.marginals.sf([9 * 10**5, 0])[0] == 0  # below the smallest float64
    assert -1e6 < urn.marginals.log_sf([9 * 10**5, 0])[0] < -1e5
    assert urn.marginals.cdf([9 * 10**5, 0])[0] == 1


# --------------------------------------------------------------------------------------------------
# Laws
# --------------------------------------------------------------------------------------------------

sizes_and_weights = st.lists(
    st.tuples(st.integers(0, 200), st.floats(-6, 6) | st.just(NEVER)), min_size=1, max_size=4
)


@st.composite
def urns(draw: st.DrawFn) -> FisherHypergeometric:
    groups = draw(sizes_and_weights)
    drawable = sum(size for size, log_weight in groups if log_weight != NEVER)
    draws = draw(st.integers(0, drawable))
    return FisherHypergeometric(
        [size for size, _ in groups], draws, log_weights=torch.tensor([lw for _, lw in groups])
    )


@settings(max_examples=40)
@given(urns())
def test_cdf_grows_from_zero_to_one_and_complements_sf(urn: FisherHypergeometric) -> None:
    xs = (
        torch.arange(-1.0, float(urn.group_sizes.max()) + 1)
        .unsqueeze(-1)
        .expand(-1, *urn.event_shape)
    )
    cdf, sf = urn.marginals.cdf(xs), urn.marginals.sf(xs)
    assert (cdf[0] == 0).all()
    assert (sf[0] == 1).all()
    assert (cdf[-1] == 1).all()
    assert (sf[-1] == 0).all()
    assert (cdf.diff(dim=0) >= -1e-13).all()
    assert (cdf + sf - 1).abs().max() <= 1e-13


@settings(max_examples=40)
@given(urns())
def test_differences_of_the_cdf_are_the_marginal_probabilities(urn: FisherHypergeometric) -> None:
    xs = (
        torch.arange(0.0, float(urn.group_sizes.max()) + 1)
        .unsqueeze(-1)
        .expand(-1, *urn.event_shape)
    )
    assert (
        urn.marginals.cdf(xs) - urn.marginals.cdf(xs - 1) - urn.marginals.log_prob(xs).exp()
    ).abs().max() <= 1e-12


@settings(max_examples=40)
@given(urns(), st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_icdf_inverts_the_cdf_exactly(
    urn: FisherHypergeometric, probabilities: list[float]
) -> None:
    q = torch.tensor(probabilities).unsqueeze(-1).expand(-1, *urn.event_shape)
    x = urn.marginals.icdf(q)
    inner = (q > 0) & (q < 1)
    assert (urn.marginals.log_prob(x) > -math.inf).all()
    assert (urn.marginals.cdf(x) >= q).all()
    assert (urn.marginals.cdf(x - 1) < q)[inner].all()


@given(st.integers(0, 400), st.integers(0, 400), st.floats(-8, 8), st.data())
def test_swapping_two_groups_swaps_the_tails(
    a: int, b: int, log_odds: float, data: st.DataObject
) -> None:
    draws, x = data.draw(st.integers(0, a + b)), data.draw(st.integers(-2, 402))
    urn = FisherHypergeometric([a, b], draws, log_weights=torch.tensor([log_odds, 0.0]))
    log_cdf = urn.marginals.log_cdf([x, x])[0]
    log_sf_of_other = urn.marginals.log_sf([0, draws - x - 1])[1]  # X₁ ≤ x means X₂ ≥ n - x
    assert log_cdf == log_sf_of_other or abs(log_cdf - log_sf_of_other) <= 1e-12 * max(
        1.0, abs(float(log_cdf))
    )


# --------------------------------------------------------------------------------------------------
# Edges, shapes, gradients
# --------------------------------------------------------------------------------------------------


def test_groups_that_are_never_drawn_have_a_certain_count(device: torch.device) -> None:
    urn = fisher(by_name("never-drawn-middle"), device)
    assert urn.marginals.cdf([2, 0, 2])[1] == 1
    assert urn.marginals.log_sf([2, 0, 2])[1] == -math.inf
    assert urn.marginals.cdf([2, -1, 2])[1] == 0
    assert urn.marginals.icdf(0.999)[1] == 0


@pytest.mark.parametrize(
    ("sizes", "draws", "certain"),
    [([4, 7], 0, [0, 0]), ([4, 7], 11, [4, 7]), ([9], 5, [5]), ([0, 6], 3, [0, 3]), ([0], 0, [0])],
)
def test_certain_counts_are_steps(
    sizes: list[int], draws: int, certain: list[int], device: torch.device
) -> None:
    urn = FisherHypergeometric(sizes, draws, weights=torch.ones(len(sizes), device=device))
    x = torch.tensor(certain, device=device)
    assert (urn.marginals.cdf(x) == 1).all()
    assert (urn.marginals.sf(x) == 0).all()
    assert (urn.marginals.cdf(x - 1) == 0).all()
    assert (urn.marginals.log_cdf(x - 1) == -math.inf).all()
    for q in (0.0, 0.5, 1.0):
        assert (urn.marginals.icdf(q) == x).all()


def test_the_ends_of_the_support_belong_to_probabilities_zero_and_one(device: torch.device) -> None:
    urn = fisher(two_groups(10**6, 10**6, 1_200_000, 0.0), device)
    assert urn.marginals.icdf(0.0).tolist() == [200_000, 200_000]
    assert urn.marginals.icdf(1.0).tolist() == [10**6, 10**6]


def test_real_values_are_rounded_down_and_infinite_ones_allowed(device: torch.device) -> None:
    urn = fisher(by_name("biasedurn-three-colours"), device)
    torch.testing.assert_close(
        urn.marginals.cdf([3.7, 2.999, 4.0]), urn.marginals.cdf([3, 2, 4]), rtol=0, atol=0
    )
    assert urn.marginals.cdf([math.inf, -math.inf, 0.5])[:2].tolist() == [1, 0]


def test_values_and_probabilities_are_checked(device: torch.device) -> None:
    urn = fisher(by_name("biasedurn-three-colours"), device)
    with pytest.raises(ValueError, match=r"value at index \(1,\) is nan"):
        urn.marginals.cdf([1.0, math.nan, 2.0])
    with pytest.raises(ValueError, match="3 groups"):
        urn.marginals.log_sf([1.0, 2.0])
    for q in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="a probability must be a number from 0 to 1"):
            urn.marginals.icdf(q)
    with pytest.raises(ValueError, match="do not broadcast"):
        urn.marginals.icdf([0.1, 0.2])


def test_batches_broadcast(device: torch.device) -> None:
    log_weights = torch.randn(5, 1, 3, device=device)
    urn = FisherHypergeometric(
        torch.tensor([[10, 20, 30], [300, 20, 10]], device=device), 17, log_weights=log_weights
    )
    value = torch.randint(0, 18, (4, 1, 1, 3), device=device)
    cdf = urn.marginals.cdf(value)
    assert cdf.shape == (4, 5, 2, 3)
    single = FisherHypergeometric(urn.group_sizes[3, 1], 17, log_weights=log_weights[3, 0])
    torch.testing.assert_close(
        cdf[2, 3, 1], single.marginals.cdf(value[2, 0, 0]), rtol=1e-12, atol=0
    )
    assert urn.marginals.icdf(torch.rand(7, 1, 1, 1, device=device)).shape == (7, 5, 2, 3)


def test_float32_urns_answer_in_float32(device: torch.device) -> None:
    urn = fisher(two_groups(10**6, 10**6, 10**6, 0.0), device, torch.float32)
    x = urn.marginals.icdf(0.3)
    assert x.dtype == urn.marginals.cdf(x).dtype == urn.marginals.log_sf(x).dtype == torch.float32
    assert (urn.marginals.cdf(x) >= 0.3).all()
    assert (urn.marginals.cdf(x - 1) < 0.3).all()


@pytest.mark.parametrize(
    ("sizes", "draws", "x"),
    [
        ([10, 7, 8], 9, [3, 2, 4]),
        ([10_000, 7000, 8000], 9000, [3100, 2500, 3000]),
        ([10, 7], 8, [3, 5]),
        ([10_000, 7000], 8000, [4100, 3500]),
    ],
)
def test_log_tails_are_differentiable_in_the_log_weights(
    sizes: list[int], draws: int, x: list[int], device: torch.device
) -> None:
    log_weights = (0.3 * torch.randn(2, len(sizes), device=device)).requires_grad_()

    def log_tails(log_weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        urn = FisherHypergeometric(sizes, draws, log_weights=log_weights)
        return urn.marginals.log_cdf(x), urn.marginals.log_sf(x)

    assert torch.autograd.gradcheck(log_tails, (log_weights,), rtol=1e-4, atol=1e-6)


def test_the_gradient_of_the_cdf_is_finite_where_it_is_certain(device: torch.device) -> None:
    log_weights = torch.tensor([0.5, NEVER, 1.0], device=device, requires_grad=True)
    urn = FisherHypergeometric([5, 4, 6], 7, log_weights=log_weights)
    urn.marginals.cdf([[5, 0, 0], [0, -1, 9], [2, 0, 3]]).sum().backward()
    assert torch.isfinite(log_weights.grad).all()
