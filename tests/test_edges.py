"""Edges: the urns on which formulas divide by zero, overflow or tie; divergences; and any small urn
that hypothesis thinks of.

The oracle is the definition itself: every outcome is listed and weighed in sixty digits. Warnings
are errors throughout the test suite.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from torch import Tensor
from torch.distributions import kl_divergence

from diffurn import FisherHypergeometric
from support import oracles
from support.urns import EXTREME, NEVER, Urn

DIGITS = 60


def log(value: mpf) -> float:
    return float(mp.log(value)) if value > 0 else -math.inf


@dataclass(frozen=True)
class Law:
    """Fisher's law from its definition, P(x) ∝ ∏ C(m_j, x_j) ω_j^{x_j}; weights are exact
    numbers.
    """

    sizes: tuple[int, ...]
    draws: int
    weights: tuple[Any, ...]

    @classmethod
    def of(
        cls,
        sizes: Sequence[int],
        draws: int,
        *,
        weights: Sequence[Any] = (),
        log_weights: Sequence[float] = (),
    ) -> Law:
        with mp.workdps(DIGITS):
            exact = [mp.mpmathify(w) for w in weights] or [mp.exp(lw) for lw in log_weights]
        return cls(tuple(sizes), draws, tuple(exact))

    @cached_property
    def terms(self) -> dict[tuple[int, ...], mpf]:
        with mp.workdps(DIGITS):
            return {
                x: mp.fprod(map(self._factor, self.sizes, self.weights, x))
                for x in oracles.outcomes(self.sizes, self.draws)
            }

    @staticmethod
    def _factor(size: int, weight: mpf, count: int) -> mpf:
        return math.comb(size, count) * weight**count  # 0⁰ = 1

    @cached_property
    def normalizer(self) -> mpf:
        with mp.workdps(DIGITS):
            return mp.fsum(self.terms.values())

    def expectation(self, function: Any) -> mpf:
        with mp.workdps(DIGITS):
            return (
                mp.fsum(term * function(x) for x, term in self.terms.items() if term > 0)
                / self.normalizer
            )

    def log_prob(self, x: tuple[int, ...]) -> float:
        with mp.workdps(DIGITS):
            return log(self.terms[x] / self.normalizer)

    def mean(self) -> list[float]:
        return [float(self.expectation(lambda x, j=j: x[j])) for j in range(len(self.sizes))]

    def covariance(self) -> list[list[float]]:
        groups = range(len(self.sizes))
        mean = [self.expectation(lambda x, j=j: x[j]) for j in groups]
        return [
            [
                float(self.expectation(lambda x, i=i, j=j: (x[i] - mean[i]) * (x[j] - mean[j])))
                for j in groups
            ]
            for i in groups
        ]

    def entropy(self) -> float:
        with mp.workdps(DIGITS):
            return float(-self.expectation(lambda x: mp.log(self.terms[x] / self.normalizer)))

    def marginal_log_prob(self, x: tuple[int, ...]) -> list[float]:
        with mp.workdps(DIGITS):
            return [
                log(self.expectation(lambda y, j=j: y[j] == x[j])) for j in range(len(self.sizes))
            ]

    def mode(self) -> tuple[int, ...]:
        """Of several equally probable outcomes the one that favours the earlier groups."""
        with mp.workdps(DIGITS):
            best = max(self.terms.values())
            return max(x for x, term in self.terms.items() if term >= best * (1 - mpf(10) ** -30))

    def kl(self, other: Law) -> float:
        with mp.workdps(DIGITS):
            if any(term > 0 and other.terms[x] == 0 for x, term in self.terms.items()):
                return math.inf
            shift = mp.log(other.normalizer / self.normalizer)
            return float(self.expectation(lambda x: mp.log(self.terms[x] / other.terms[x]) + shift))


def fisher(sizes: Any, draws: Any, weights: Any, device: torch.device) -> FisherHypergeometric:
    return FisherHypergeometric(
        sizes, draws, weights=torch.tensor(weights, dtype=torch.float64, device=device)
    )


def assert_near(
    actual: Tensor, expected: Any, relative: float = 1e-11, absolute: float = 1e-11
) -> None:
    wanted = torch.tensor(expected, dtype=torch.float64, device=actual.device)
    torch.testing.assert_close(actual, wanted, rtol=relative, atol=absolute)


def assert_follows(urn: FisherHypergeometric, law: Law) -> None:
    """Every public property of the urn is that of the law."""
    device = urn.mean.device
    outcomes = list(law.terms)
    support = torch.tensor(outcomes, dtype=torch.float64, device=device)
    assert torch.equal(urn.enumerate_support(), support)
    assert bool(urn.support.check(support).all())
    assert_near(urn.log_prob(support), [law.log_prob(x) for x in outcomes])
    assert_near(urn.log_normalizer, log(law.normalizer))
    covariance = law.covariance()
    largest = max(abs(entry) for row in covariance for entry in row)
    assert_near(urn.mean, law.mean(), absolute=1e-300)
    assert_near(urn.covariance_matrix, covariance, relative=0.0, absolute=1e-9 * largest + 1e-120)
    assert_near(
        urn.variance,
        [row[j] for j, row in enumerate(covariance)],
        relative=0.0,
        absolute=1e-9 * largest + 1e-120,
    )
    assert_near(urn.entropy(), law.entropy(), relative=1e-10)
    assert tuple(urn.mode.tolist()) == law.mode()
    draws = urn.sample((20,))
    assert bool(urn.support.check(draws).all())
    assert bool((urn.log_prob(draws) > -torch.inf).all())


def assert_marginals_follow(urn: FisherHypergeometric, law: Law) -> None:
    outcomes = list(law.terms)
    for x in (outcomes[0], outcomes[len(outcomes) // 2], outcomes[-1]):
        ours = urn.marginals.log_prob(torch.tensor(x, device=urn.mean.device))
        assert_near(ours, law.marginal_log_prob(x), relative=1e-10, absolute=1e-10)


# --------------------------------------------------------------------------------------------------
# Every property at every edge
# --------------------------------------------------------------------------------------------------

EDGES: dict[str, tuple[tuple[int, ...], int, dict[str, tuple[float, ...]]]] = {
    "nothing-drawn": ((3, 5, 2), 0, {"weights": (0.5, 2.0, 1.0)}),
    "nothing-drawn-from-an-empty-urn": ((0, 0), 0, {"weights": (0.5, 2.0)}),
    "nothing-drawn-all-weights-zero": ((3, 2), 0, {"weights": (0.0, 0.0)}),
    "everything-drawn": ((3, 5, 2), 10, {"weights": (0.5, 2.0, 1.0)}),
    "everything-drawn-spread-300": ((3, 5, 2), 10, {"log_weights": (300.0, 0.0, -300.0)}),
    "one-draw": ((3, 5, 2), 1, {"weights": (0.5, 2.0, 1.0)}),
    "all-but-one": ((3, 5, 2), 9, {"weights": (0.5, 2.0, 1.0)}),
    "an-empty-group": ((4, 0, 3), 3, {"weights": (0.5, 2.0, 1.0)}),
    "an-empty-group-of-weight-zero": ((4, 0, 3), 3, {"weights": (0.5, 0.0, 1.0)}),
    "only-one-group-holds-balls": ((0, 6, 0), 4, {"weights": (0.5, 2.0, 1.0)}),
    "one-group": ((7,), 3, {"weights": (2.5,)}),
    "one-group-one-ball": ((1,), 1, {"weights": (2.5,)}),
    "one-group-spread-300": ((7,), 3, {"log_weights": (-300.0,)}),
    "weight-zero": ((3, 4, 5), 4, {"weights": (0.5, 0.0, 1.5)}),
    "weight-zero-first-and-last": ((3, 4, 5), 3, {"weights": (0.0, 1.5, 0.0)}),
    "weight-zero-and-the-rest-must-fill": ((3, 4, 2), 5, {"weights": (0.5, 0.0, 1.5)}),
    "log-weight-minus-infinity": ((3, 4, 5), 4, {"log_weights": (-0.7, NEVER, 0.4)}),
    "log-weight-minus-infinity-and-the-rest-must-fill": (
        (3, 4, 2),
        5,
        {"log_weights": (-0.7, NEVER, 0.4)},
    ),
    "log-weight-minus-infinity-spread-50": ((5, 5, 5), 5, {"log_weights": (50.0, -50.0, NEVER)}),
    "spread-300": ((4, 5, 3), 6, {"log_weights": (300.0, 0.0, -300.0)}),
    "spread-300-filled": ((4, 5, 3), 4, {"log_weights": (300.0, 0.0, -300.0)}),
    "spread-300-two-groups": ((4, 5), 4, {"log_weights": (300.0, -300.0)}),
    "all-log-weights-300": ((4, 5, 3), 6, {"log_weights": (300.0, 300.0, 300.0)}),
    "all-log-weights-minus-300": ((4, 5, 3), 6, {"log_weights": (-300.0, -300.5, -299.0)}),
    "weights-at-the-ends-of-float64": ((4, 5, 3), 6, {"weights": (1e300, 1.0, 1e-300)}),
    "equal-weights": ((4, 5, 3), 6, {"weights": (1.0, 1.0, 1.0)}),
    "equal-weights-ties": ((3, 3, 3), 4, {"weights": (2.5, 2.5, 2.5)}),
    "unequal-weights-ties": ((1, 6), 1, {"weights": (6.0, 1.0)}),
    "unequal-weights-ties-the-other-way": ((6, 1), 1, {"weights": (1.0, 6.0)}),
    "one-ball-per-group": ((1, 1, 1, 1, 1), 2, {"weights": (0.2, 3.0, 1.0, 1.0, 0.7)}),
    "one-ball-per-group-spread-300": (
        (1, 1, 1, 1),
        2,
        {"log_weights": (300.0, 100.0, -100.0, -300.0)},
    ),
    "above-int32": ((3_000_000_000, 4_000_000_000), 5, {"weights": (2.0, 0.5)}),
    "above-int32-all-but-four": ((3_000_000_000, 4), 3_000_000_000, {"weights": (0.5, 2.0)}),
    "above-int32-and-a-few": ((3_000_000_000, 2, 1), 4, {"log_weights": (-20.0, 0.5, 1.0)}),
}


def urn_and_law(edge: str, device: torch.device) -> tuple[FisherHypergeometric, Law]:
    sizes, draws, weights = EDGES[edge]
    given = {
        name: torch.tensor(values, dtype=torch.float64, device=device)
        for name, values in weights.items()
    }
    return FisherHypergeometric(sizes, draws, **given), Law.of(sizes, draws, **weights)


@pytest.mark.parametrize("edge", EDGES)
def test_every_property_is_that_of_the_law_at(edge: str, device: torch.device) -> None:
    assert_follows(*urn_and_law(edge, device))


@pytest.mark.parametrize("edge", EDGES)
def test_marginals_are_those_of_the_law_at(edge: str, device: torch.device) -> None:
    assert_marginals_follow(*urn_and_law(edge, device))


@pytest.mark.parametrize("urn", EXTREME, ids=str)
def test_extreme_log_weights_give_finite_moments_and_possible_draws(
    urn: Urn, device: torch.device
) -> None:
    distribution = FisherHypergeometric(
        urn.group_sizes, urn.draws, log_weights=torch.tensor(urn.log_weights, device=device)
    )
    draws = distribution.sample((50,))
    assert bool(distribution.support.check(draws).all())
    for result in (
        distribution.mean,
        distribution.covariance_matrix,
        distribution.entropy(),
        distribution.log_prob(draws),
    ):
        assert bool(torch.isfinite(result).all())


@pytest.mark.parametrize(
    ("sizes", "draws"),
    [((4, 5, 3), 6), ((10, 20, 30), 15), ((1, 7), 3), ((2, 0, 9, 4), 8), ((6,), 2), ((50, 50), 50)],
)
@pytest.mark.parametrize("log_weight", [0.0, -300.0, 2.5])
def test_equal_weights_are_scipys_central_law(
    log_weight: float, sizes: tuple[int, ...], draws: int, device: torch.device
) -> None:
    urn = FisherHypergeometric(
        sizes, draws, log_weights=torch.full((len(sizes),), log_weight, device=device)
    )
    central = scipy.stats.multivariate_hypergeom(m=list(sizes), n=draws)
    support = urn.enumerate_support()
    assert_near(
        urn.log_prob(support).exp(),
        central.pmf(support.long().cpu().numpy()).tolist(),
        relative=1e-10,
    )
    assert_near(urn.mean, central.mean().tolist())
    assert_near(urn.covariance_matrix, central.cov().tolist(), absolute=1e-11)


@pytest.mark.parametrize(
    ("sizes", "draws"),
    [
        ((3, 5, 4), 0),
        ((3, 5, 4), 12),
        ((7,), 3),
        ((1, 0), 1),
        ((10**9, 10**6, 3), 10**7),
        ((2,) * 300, 90),
    ],
)
def test_equal_weights_have_the_same_law_with_and_without_a_derivative(
    sizes: tuple[int, ...], draws: int, device: torch.device
) -> None:
    """Without one there are closed forms."""
    plain, learned = (
        FisherHypergeometric(
            list(sizes),
            draws,
            log_weights=torch.full((len(sizes),), 0.7, device=device, requires_grad=needed),
        )
        for needed in (False, True)
    )
    x = plain.mode
    for found, expected in (
        (plain.log_prob(x), learned.log_prob(x)),
        (plain.mean, learned.mean),
        (plain.variance, learned.variance),
    ):
        torch.testing.assert_close(found, expected.detach(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(
        plain.covariance_matrix, learned.covariance_matrix.detach(), rtol=1e-10, atol=1e-10
    )
    outside = x.clone()
    outside[0] += 1
    assert (
        FisherHypergeometric(
            list(sizes), draws, log_weights=plain.log_weights, validate_args=False
        ).log_prob(outside)
        == -torch.inf
    )


@pytest.mark.parametrize(
    ("sizes", "draws", "weights"),
    [
        ((5, 1), 2, (1.0, 2.0)),
        ((1, 5), 2, (2.0, 1.0)),
        ((18, 10), 14, (2.0, 1.5)),
        ((2, 3, 5), 4, (2.0, 1.0, 0.5)),
    ],
)
def test_a_tie_between_unequal_weights_goes_to_the_earlier_group(
    sizes: Any, draws: int, weights: Any, device: torch.device
) -> None:
    probability = {
        x: math.prod(
            math.comb(m, a) * Fraction(w) ** a for m, a, w in zip(sizes, x, weights, strict=True)
        )
        for x in oracles.outcomes(sizes, draws)
    }
    tied = [x for x, p in probability.items() if p == max(probability.values())]
    assert len(tied) > 1, "no tie, no test"
    assert tuple(fisher(sizes, draws, weights, device).mode.tolist()) == max(tied)


@pytest.mark.parametrize(("groups", "draws"), [(5, 2), (7, 6), (8, 4), (3, 0), (1, 1)])
def test_one_ball_per_group_is_a_random_subset(
    groups: int, draws: int, device: torch.device
) -> None:
    weights = [1.5 ** ((3 * j) % groups) for j in range(groups)]
    urn = FisherHypergeometric([1] * groups, draws, weights=torch.tensor(weights, device=device))
    subsets = {
        chosen: math.prod(weights[j] for j in chosen)
        for chosen in itertools.combinations(range(groups), draws)
    }
    total = math.fsum(subsets.values())
    indicators = torch.tensor(
        [[float(j in chosen) for j in range(groups)] for chosen in subsets], device=device
    )
    assert_near(urn.log_prob(indicators), [math.log(weight / total) for weight in subsets.values()])
    inclusion = [
        math.fsum(weight for chosen, weight in subsets.items() if j in chosen) / total
        for j in range(groups)
    ]
    assert_near(urn.mean, inclusion)
    assert_near(urn.variance, [p * (1 - p) for p in inclusion])
    assert_near(urn.marginals.log_prob(torch.ones(groups, device=device)).exp(), inclusion)


# --------------------------------------------------------------------------------------------------
# Sizes above int32
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draws", [4_000_000_000, 10_000_000, 6_999_999_000])
def test_sizes_above_int32_have_the_closed_form_of_equal_weights(
    draws: int, device: torch.device
) -> None:
    sizes = (3_000_000_000, 2_500_000_000, 2_000_000_000)
    population = sum(sizes)
    urn = FisherHypergeometric(
        torch.tensor(sizes, device=device),
        torch.tensor(draws, device=device),
        weights=torch.ones(3, device=device),
    )
    assert urn.group_sizes.tolist() == list(sizes)
    assert urn.draws.item() == draws
    assert_near(urn.mean, [float(Fraction(draws * m, population)) for m in sizes])
    spread = Fraction(draws * (population - draws), population**2 * (population - 1))
    entries = [
        [float(spread * (m * population * (i == j) - m * k)) for j, k in enumerate(sizes)]
        for i, m in enumerate(sizes)
    ]
    largest = max(max(row) for row in entries)
    assert_near(urn.covariance_matrix, entries, relative=0.0, absolute=1e-9 * largest)
    assert_near(urn.variance, [row[j] for j, row in enumerate(entries)], relative=1e-9)
    x = [draws * m // population for m in sizes[:2]]
    x.append(draws - sum(x))
    with mp.workdps(DIGITS):
        expected = mp.fsum(
            oracles.log_binomial(m, a) for m, a in zip(sizes, x, strict=True)
        ) - oracles.log_binomial(population, draws)
        marginals = [
            oracles.log_binomial(m, a)
            + oracles.log_binomial(population - m, draws - a)
            - oracles.log_binomial(population, draws)
            for m, a in zip(sizes, x, strict=True)
        ]
        whole = oracles.log_binomial(population, draws)
    assert_near(urn.log_prob(torch.tensor(x, device=device)), float(expected))
    assert_near(
        urn.marginals.log_prob(torch.tensor(x, device=device)),
        [float(value) for value in marginals],
        relative=1e-10,
    )
    assert_near(urn.log_normalizer, float(whole))
    # the mode of the central law is within one ball of its mean, and no neighbour is more probable
    mode = urn.mode
    assert mode.sum().item() == draws
    assert bool(((mode - urn.mean).abs() < 1.5).all())
    # entropy of a law this wide is that of the normal law of its first two groups, up to terms of
    # the order 1/n
    covariance = torch.tensor(entries)[:2, :2]
    normal = 0.5 * (2 * math.log(2 * math.pi * math.e) + float(torch.logdet(covariance)))
    assert_near(urn.entropy(), normal, relative=0.0, absolute=1e-5)
    counts = urn.sample((30,))
    assert bool(urn.support.check(counts).all())
    deviations = (counts - urn.mean).abs() / urn.variance.sqrt()
    assert bool((deviations < 6).all())


# --------------------------------------------------------------------------------------------------
# Divergence
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "draws", "first", "second"),
    [
        ((3, 4, 2), 4, (1.0, 2.0, 0.5), (1.0, 2.0, 0.5)),
        ((3, 4, 2), 4, (1.0, 2.0, 0.5), (8.0, 16.0, 4.0)),  # weights matter up to a factor
        ((3, 4, 2), 0, (1.0, 2.0, 0.5), (3.0, 1.0, 9.0)),
        ((3, 4, 2), 9, (1.0, 2.0, 0.5), (3.0, 1.0, 9.0)),
        ((5,), 3, (1.0,), (7.0,)),
        ((3, 0, 2), 2, (1.0, 2.0, 0.5), (1.0, 9.0, 0.5)),  # an empty group has no say
        ((3, 0, 2), 2, (1.0, 2.0, 0.5), (1.0, 0.0, 0.5)),
        ((3, 4, 2), 4, (1.0, 0.0, 0.5), (1.0, 0.0, 0.5)),
        ((3, 4), 0, (1.0, 1.0), (1.0, 0.0)),  # nothing drawn, so nothing impossible
        ((3, 2), 3, (1.0, 0.0), (2.0, 0.0)),
    ],
)
def test_divergence_between_equal_laws_is_zero(
    sizes: Any, draws: int, first: Any, second: Any, device: torch.device
) -> None:
    divergence = kl_divergence(
        fisher(sizes, draws, first, device), fisher(sizes, draws, second, device)
    )
    assert divergence.item() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("sizes", "draws", "first", "second"),
    [
        ((3, 4, 2), 4, (1.0, 2.0, 0.5), (3.0, 1.0, 9.0)),
        ((3, 4, 2), 4, (1.0, 2.0, 0.5), (1e30, 1.0, 1e-30)),
        (
            (3, 4, 2),
            4,
            (1.0, 0.0, 0.5),
            (1.0, 2.0, 0.5),
        ),  # the second draws what the first never does: finite
        ((3, 4, 2), 4, (1.0, 0.0, 0.5), (2.0, 0.0, 0.5)),
        ((3, 4, 2), 3, (1.0, 0.0, 0.0), (1.0, 2.0, 0.5)),
        ((1, 1, 1, 1), 2, (1.0, 2.0, 3.0, 4.0), (4.0, 3.0, 2.0, 1.0)),
        (
            (3, 4, 2),
            4,
            (1.0, 2.0, 0.5),
            (1.0, 2.0, 0.0),
        ),  # the second never draws what the first does: infinite
        ((3, 4, 2), 1, (1.0, 1e-200, 0.5), (1.0, 0.0, 0.5)),
    ],
)
def test_divergence_is_that_of_the_laws(
    sizes: Any, draws: int, first: Any, second: Any, device: torch.device
) -> None:
    divergence = kl_divergence(
        fisher(sizes, draws, first, device), fisher(sizes, draws, second, device)
    )
    expected = Law.of(sizes, draws, weights=first).kl(Law.of(sizes, draws, weights=second))
    assert divergence.item() == pytest.approx(expected, rel=1e-10)


def test_divergence_between_different_numbers_of_draws_is_infinite(device: torch.device) -> None:
    divergence = kl_divergence(
        fisher([3, 4], [2, 3, 4], [1.0, 2.0], device), fisher([3, 4], 3, [1.0, 2.0], device)
    )
    torch.testing.assert_close(
        divergence, torch.tensor([math.inf, 0.0, math.inf], device=device), rtol=0.0, atol=1e-12
    )


@pytest.mark.parametrize(
    "other", [[4, 3], [3, 4, 0]], ids=["other-sizes", "other-number-of-groups"]
)
def test_divergence_between_different_group_sizes_says_what_differs(
    other: list[int], device: torch.device
) -> None:
    with pytest.raises(
        NotImplementedError, match=re.escape(f"equal group sizes, got [3, 4] and {other}")
    ):
        kl_divergence(
            fisher([3, 4], 3, [1.0, 2.0], device), fisher(other, 3, [1.0] * len(other), device)
        )


# --------------------------------------------------------------------------------------------------
# Any small urn
# --------------------------------------------------------------------------------------------------


@st.composite
def small_laws(draw: st.DrawFn) -> Law:
    """Urns of up to five groups with rational weights, zeros among them; the weights are exact in
    float64.
    """
    groups = draw(st.integers(1, 5))
    largest = {1: 30, 2: 20, 3: 8, 4: 5, 5: 3}[groups]
    sizes = tuple(draw(st.lists(st.integers(0, largest), min_size=groups, max_size=groups)))
    weight = st.one_of(
        st.just(0.0),
        st.integers(1, 9).map(float),
        st.floats(1e-6, 1e6),
        st.floats(-280.0, 280.0).map(math.exp),
    )
    weights = tuple(draw(st.lists(weight, min_size=groups, max_size=groups)))
    drawable = sum(m for m, w in zip(sizes, weights, strict=True) if w > 0)
    return Law.of(sizes, draw(st.integers(0, drawable)), weights=weights)


@given(law=small_laws())
def test_any_small_urn_follows_its_law(law: Law, device: torch.device) -> None:
    weights = torch.tensor([float(w) for w in law.weights], device=device)
    assert_follows(FisherHypergeometric(law.sizes, law.draws, weights=weights), law)


@given(law=small_laws())
def test_marginals_of_any_small_urn_are_those_of_its_law(law: Law, device: torch.device) -> None:
    weights = torch.tensor([float(w) for w in law.weights], device=device)
    assert_marginals_follow(FisherHypergeometric(law.sizes, law.draws, weights=weights), law)


@given(law=small_laws(), data=st.data())
def test_divergence_between_any_two_small_urns_is_that_of_their_laws(
    law: Law, data: st.DataObject, device: torch.device
) -> None:
    log_weight = st.floats(-40.0, 40.0)
    log_weights = data.draw(st.lists(log_weight, min_size=len(law.sizes), max_size=len(law.sizes)))
    first = FisherHypergeometric(
        law.sizes, law.draws, weights=torch.tensor([float(w) for w in law.weights], device=device)
    )
    second = FisherHypergeometric(
        law.sizes, law.draws, log_weights=torch.tensor(log_weights, device=device)
    )
    expected = law.kl(Law.of(law.sizes, law.draws, log_weights=log_weights))
    assert kl_divergence(first, second).item() == pytest.approx(expected, rel=1e-10, abs=1e-12)


@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    fractions=st.lists(
        st.fractions(Fraction(1, 20), 20, max_denominator=20), min_size=4, max_size=4
    ),
    share=st.fractions(0, 1),
)
def test_mean_is_the_exact_rational_number(
    sizes: list[int], fractions: list[Fraction], share: Fraction, device: torch.device
) -> None:
    # powers of z by repeated multiplication: [zⁿ] ∏(1 + ω_j z)^{m_j} in rational arithmetic, no
    # enumeration, no rounding
    def coefficients(balls: list[Fraction]) -> list[Fraction]:
        polynomial = [Fraction(1)]
        for weight in balls:
            polynomial = [
                a + weight * b
                for a, b in zip([*polynomial, Fraction(0)], [Fraction(0), *polynomial], strict=True)
            ]
        return polynomial

    weights = [Fraction(float(w)) for w in fractions[: len(sizes)]]  # what float64 makes of them
    draws = int(share * sum(sizes))
    balls = [w for m, w in zip(sizes, weights, strict=True) for _ in range(m)]
    whole = coefficients(balls)[draws]
    expected = []
    for m, w in zip(sizes, weights, strict=True):
        if m == 0 or draws == 0:
            expected.append(0.0)
            continue
        others = list(balls)
        others.remove(w)
        expected.append(float(m * w * coefficients(others)[draws - 1] / whole))
    urn = FisherHypergeometric(
        sizes, draws, weights=torch.tensor([float(w) for w in weights], device=device)
    )
    assert_near(urn.mean, expected)
    with mp.workdps(DIGITS):
        assert_near(urn.log_normalizer, log(mpf(whole.numerator) / mpf(whole.denominator)))
