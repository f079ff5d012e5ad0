"""What other tests stand on: the table of urns, and the oracles, each against another that computes
the same in another way.
"""

from __future__ import annotations

import math

import pytest
from mpmath import mp, mpf

from support import oracles, wallenius_oracles
from support.urns import (
    ENUMERABLE,
    EXTREME,
    FEW_WEIGHTS,
    LARGE,
    SMALL,
    SUBSETS,
    URNS,
    Urn,
    by_name,
    disturbed,
    probe_counts,
    support_size,
)
from support.wallenius_oracles import Balls, draw_by_draw, large_law, recorded

every_small_urn = pytest.mark.parametrize("urn", SMALL, ids=str)


# --------------------------------------------------------------------------------------------------
# The table of urns
# --------------------------------------------------------------------------------------------------


def test_the_table_spans_what_it_promises() -> None:
    assert len(URNS) >= 220
    assert len({urn.name for urn in URNS}) == len(URNS)
    assert {1, 2, 3, 50, 100, 200} <= {urn.groups for urn in URNS}
    assert sum(urn.population >= 10**9 for urn in URNS) >= 30
    assert max(urn.population for urn in URNS) == 10**10
    assert any(urn.largest_log_weight >= 49 and urn.groups == 200 for urn in URNS)
    for few in (EXTREME, SUBSETS):
        assert len(few) >= 9
    for many in (FEW_WEIGHTS, LARGE, SMALL):
        assert len(many) >= 60


@pytest.mark.parametrize("urn", URNS, ids=str)
def test_probes_are_outcomes(urn: Urn) -> None:
    probes = probe_counts(urn)
    assert all(
        sum(x) == urn.draws and all(0 <= a <= m for a, m in zip(x, urn.drawable, strict=True))
        for x in probes
    )
    assert len(probes) >= min(2, support_size(urn, limit=1))


def test_small_urns_have_no_more_outcomes_than_the_limit() -> None:
    assert max(len(oracles.enumeration(urn).outcomes) for urn in SMALL) <= ENUMERABLE
    assert all(len(oracles.enumeration(urn).outcomes) == support_size(urn) for urn in SMALL)


# --------------------------------------------------------------------------------------------------
# Fisher's law
# --------------------------------------------------------------------------------------------------


def assert_moments_agree(ours: oracles.Moments, exact: oracles.Moments, digits: int) -> None:
    assert abs(ours.log_normalizer - exact.log_normalizer) <= mpf(10) ** -digits
    for a, b in zip(ours.mean, exact.mean, strict=True):
        assert abs(a - b) <= mpf(10) ** -digits * b
    largest = max(abs(value) for value in exact.covariance.values())
    assert all(
        abs(ours.covariance[pair] - exact.covariance[pair]) <= mpf(10) ** -20 * largest
        for pair in ours.covariance
    )


@every_small_urn
def test_the_contour_oracle_agrees_with_the_enumeration(urn: Urn) -> None:
    enumerated = oracles.enumeration(urn)
    ours, exact = oracles.moments(urn), enumerated.moments()
    with mp.workdps(60):
        assert_moments_agree(ours, exact, digits=45)
        for x in enumerated.outcomes[:: 1 + len(enumerated.outcomes) // 20]:
            assert abs(oracles.log_prob(urn, x) - enumerated.log_prob(x)) <= mpf(10) ** -45
        for group, marginal in enumerate(enumerated.marginals()[:2]):
            for x in sorted(marginal)[:: 1 + len(marginal) // 3]:
                assert abs(oracles.marginal_log_prob(urn, group, x) - marginal[x]) <= mpf(10) ** -40
        assert oracles.better_exchange(urn, enumerated.mode()) is None


@pytest.mark.parametrize("urn", SMALL[::4], ids=str)
def test_the_contour_entropy_and_kl_agree_with_the_enumeration(urn: Urn) -> None:
    other = disturbed(urn, 1.0)
    with mp.workdps(60):
        assert abs(oracles.entropy(urn) - oracles.enumeration(urn).entropy()) <= mpf(10) ** -30
        assert (
            abs(oracles.kl(urn, other) - oracles.enumeration(urn).kl(oracles.enumeration(other)))
            <= mpf(10) ** -40
        )


@pytest.mark.parametrize("urn", [urn for urn in FEW_WEIGHTS if sum(urn.drawable) > 0], ids=str)
def test_the_contour_oracle_agrees_with_the_direct_sum_over_two_weights(urn: Urn) -> None:
    ours, exact = oracles.moments(urn), oracles.vandermonde(urn).moments()
    with mp.workdps(60):
        assert_moments_agree(ours, exact, digits=40)


def test_the_strided_entropy_agrees_with_the_direct_sum_at_1e9_balls() -> None:
    urn = by_name("empty-group-last-1e9")
    assert (
        abs(oracles.entropy(urn) - oracles.vandermonde(urn, with_entropy=True).entropy_of_heavy)
        <= mpf(10) ** -30
    )


@pytest.mark.parametrize(
    "name", ["medium-spread1-c2-N1e5-n4e4-40", "medium-spread1-c10-N1e5-n3e4-44"]
)
def test_a_stride_does_not_change_the_expectation(name: str) -> None:
    urn = by_name(name)
    stride = math.floor(math.sqrt(oracles.moments(urn).covariance[0, 0]) / 4)
    assert stride >= 2
    with mp.workdps(60):
        difference = oracles.expected_log_binomial(urn, 0, 1) - oracles.expected_log_binomial(
            urn, 0, stride
        )
        assert abs(difference) <= mpf(10) ** -30


def test_marginals_of_the_central_urn_are_univariate_hypergeometric() -> None:
    urn = by_name("one-weight-c200-N1e9-n8e8-112")
    size, rest, draws = urn.group_sizes[7], urn.population - urn.group_sizes[7], urn.draws
    with mp.workdps(60):
        for x in oracles.marginal_probes(urn, 7):
            ways = (
                oracles.log_binomial(size, x)
                + oracles.log_binomial(rest, draws - x)
                - oracles.log_binomial(urn.population, draws)
            )
            assert abs(oracles.marginal_log_prob(urn, 7, x) - ways) <= mpf(10) ** -40


# --------------------------------------------------------------------------------------------------
# Wallenius' law
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("urn", wallenius_oracles.SMALL, ids=str)
def test_the_integral_agrees_with_drawing_ball_by_ball(urn: Urn) -> None:
    balls = Balls.of_urn(urn)
    law = draw_by_draw(balls)
    with mp.workdps(60):
        assert abs(mp.fsum(law.law.values()) - 1) <= mpf(10) ** -50
        for x in list(law.law)[:: 1 + len(law.law) // 3]:
            assert abs(wallenius_oracles.log_prob(balls, x) - law.log_prob(x)) <= mpf(10) ** -38


def test_the_integral_agrees_with_its_textbook_form() -> None:
    """∏ C(m, x) ∫ ∏ (1 - t^{ω/D})^x dt over 0 < t < 1, by another rule in another variable."""
    sizes, weights, x = (10, 7, 8), (mpf(1), mpf(2), mpf("0.5")), (4, 3, 2)
    with mp.workdps(40):
        left = sum(w * (m - a) for w, m, a in zip(weights, sizes, x, strict=True))
        integral = mp.quad(
            lambda t: mp.fprod((1 - t ** (w / left)) ** a for w, a in zip(weights, x, strict=True)),
            [0, 0.5, 1],
        )
        direct = mp.log(
            integral * math.prod(math.comb(m, a) for m, a in zip(sizes, x, strict=True))
        )
        assert (
            abs(wallenius_oracles.log_prob(Balls.of(sizes, 9, weights), x) - direct)
            <= mpf(10) ** -30
        )


def test_the_recorded_integrals_can_be_computed_again() -> None:
    for row in recorded()[::8]:
        with mp.workdps(40):
            assert abs(
                wallenius_oracles.log_prob(row.balls, row.counts, digits=30) - row.exact
            ) <= mpf(10) ** -28 * max(1, abs(row.exact))


@pytest.mark.parametrize(
    "urn",
    [
        Urn("strided", (300, 300), 200, (0.0, 1.1)),
        Urn("three-weights", (6, 7, 5), 8, (0.0, 1.1, -0.7)),
        Urn("merged", (3, 4, 2, 5), 8, (0.0, 1.1, 0.0, 1.1)),
    ],
    ids=str,
)
def test_sums_over_a_lattice_agree_with_drawing_ball_by_ball(urn: Urn) -> None:
    lattice, direct = large_law(Balls.of_urn(urn)), draw_by_draw(Balls.of_urn(urn))
    assert abs(lattice.total - 1) <= 1e-13
    for ours, exact in zip(
        [lattice.mean, *lattice.covariance], [direct.mean, *direct.covariance], strict=True
    ):
        assert all(
            abs(a - b) <= 1e-12 * sum(urn.group_sizes) for a, b in zip(ours, exact, strict=True)
        )
