"""Fits of tables that are separated: groups never or always drawn, blocks that never compete,
weights without a bound.
"""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from diffurn.inference import fit
from support import fit_oracles as oracle
from support.fit_oracles import CHAIN, assert_close

INF, NAN = math.inf, math.nan


def test_a_group_never_drawn_has_weight_zero_and_an_upper_bound() -> None:
    counts, sizes = [[2, 0, 3], [1, 0, 2]], [[4, 3, 5], [2, 2, 6]]
    result = fit(counts, sizes, reference=0)
    assert_close(result.coefficients[1], -INF, 0)
    assert_close(result.standard_errors[1], INF, 0)
    assert_close(result.lower[1], -INF, 0)
    value = oracle.log_likelihood(counts, sizes, oracle.indicators(2, 3, 0))
    target = float(result.log_likelihood) - norm.ppf(0.975) ** 2 / 2
    assert_close(
        result.upper[1], oracle.profile_end(value, np.array([1.0, 0.0]), target, -20.0, 5.0), 1e-6
    )
    # the other two groups remain as an urn of their own
    rest = fit([[2, 3], [1, 2]], [[4, 5], [2, 6]], reference=0)
    assert_close(result.coefficients[[0, 2]], rest.coefficients, 1e-9)
    assert_close(result.standard_errors[[0, 2]], rest.standard_errors, 1e-9)
    assert_close(result.log_likelihood, rest.log_likelihood, 1e-10)
    assert_close(result.expected, result.observed, 1e-6)
    assert "2 was never drawn" in str(result)
    assert int(result.parameters) == 2


def test_a_group_always_drawn_has_infinite_weight_and_a_lower_bound() -> None:
    counts, sizes = [[4, 1, 3], [2, 2, 2]], [[4, 3, 5], [2, 4, 6]]
    result = fit(counts, sizes, reference=2)
    assert_close(result.coefficients[0], INF, 0)
    assert_close(result.upper[0], INF, 0)
    value = oracle.log_likelihood(counts, sizes, oracle.indicators(2, 3, 2))
    target = float(result.log_likelihood) - norm.ppf(0.975) ** 2 / 2
    assert_close(
        result.lower[0], oracle.profile_end(value, np.array([1.0, 0.0]), target, 20.0, -5.0), 1e-6
    )
    assert "1 was always drawn" in str(result)
    null = oracle.maximum(lambda b: value(np.array([0.0, b[0]])), np.zeros(1))[1]
    assert_close(result.p_values[0], chi2.sf(2 * (float(result.log_likelihood) - null), 1), 1e-7)


def test_blocks_drawn_one_after_the_other_are_fitted_each_on_its_own() -> None:
    result = fit(*CHAIN, groups="abcd", reference="a")
    assert_close(result.coefficients[2:], [-INF, -INF], 0)
    assert math.isfinite(float(result.coefficients[1]))
    pairs = result.contrasts(None)
    within = dict(zip(pairs.pairs, pairs.estimate.tolist(), strict=True))
    assert within["a", "c"] == INF
    second_block = fit([[1, 2], [2, 1]], [[4, 4], [4, 4]])
    assert_close(
        within["c", "d"], second_block.coefficients[0] - second_block.coefficients[1], 1e-9
    )
    assert "c and d: drawn only after all of a and b had been" in str(result)
    seen_from_below = fit(*CHAIN, groups="abcd", reference="c")
    assert_close(seen_from_below.coefficients[:2], [INF, INF], 0)


def test_a_centred_fit_is_relative_to_the_largest_block() -> None:
    result = fit(
        *CHAIN, groups="abcd"
    )  # two blocks of two groups; 18 draws of a and b, 6 of c and d
    assert_close(result.coefficients[:2].sum(), 0.0, 1e-12)
    assert_close(result.coefficients[2:], [-INF, -INF], 0)
    larger = fit([[9, 1, 1, 2], [9, 2, 2, 1]], [9, 3, 3, 3])  # the first group is always drawn
    assert_close(larger.coefficients[0], INF, 0)
    assert_close(larger.coefficients[1:].sum(), 0.0, 1e-12)


def test_groups_that_never_compete_are_not_comparable() -> None:
    result = fit([[2, 1, 0, 0], [0, 0, 1, 2]], [[3, 3, 0, 0], [0, 0, 4, 4]], reference=0)
    assert_close(result.coefficients[2:], [NAN, NAN], 0)
    assert_close(result.lower[2:], [NAN, NAN], 0)
    assert int(result.parameters) == 2
    assert "not comparable" in str(result)
    assert_close(
        fit([[2, 1], [2, 1]], [[2, 1], [2, 1]]).coefficients[1], NAN, 0
    )  # everything was drawn
    ridge = fit(
        [[2, 1, 0, 0], [0, 0, 1, 2]], [[3, 3, 0, 0], [0, 0, 4, 4]], reference=0, penalty="ridge"
    )
    assert_close(ridge.coefficients[2:], [NAN, NAN], 0)


def test_a_group_without_balls_has_weight_nan() -> None:
    result = fit([[2, 0, 3], [1, 0, 2]], [[4, 0, 5], [2, 0, 6]], groups=["a", "none", "c"])
    rest = fit([[2, 3], [1, 2]], [[4, 5], [2, 6]])
    assert_close(
        result.coefficients, [float(rest.coefficients[0]), NAN, float(rest.coefficients[1])], 1e-9
    )
    assert_close(result.standard_errors[[0, 2]], rest.standard_errors, 1e-9)
    assert int(result.parameters) == 1
    assert "none has no ball in any row" in str(result)
    assert_close(
        fit([[2, 0, 3], [1, 0, 2]], [[4, 0, 5], [2, 0, 6]], penalty="firth").coefficients[1], NAN, 0
    )


@st.composite
def small_tables(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]]]:
    groups = draw(st.integers(2, 4))
    sizes = draw(
        st.lists(
            st.lists(st.integers(0, 3), min_size=groups, max_size=groups).filter(any),
            min_size=1,
            max_size=4,
        )
    )
    counts = [[draw(st.integers(0, m)) for m in row] for row in sizes]
    kept = [(x, m) for x, m in zip(counts, sizes, strict=True) if any(x)]
    return ([x for x, _ in kept], [m for _, m in kept]) if kept else ([sizes[0]], [sizes[0]])


@settings(max_examples=60)
@given(small_tables())
def test_ratios_are_infinite_exactly_as_linear_programming_says(
    table: tuple[list[list[int]], list[list[int]]],
) -> None:
    counts, sizes = table
    result = fit(counts, sizes)
    assert bool(result.converged)
    pairs = result.contrasts(None)
    present = np.array(sizes).sum(0) > 0
    unit = np.eye(len(counts[0]))
    for (first, second), estimate in zip(pairs.pairs, pairs.estimate.tolist(), strict=True):
        j, k = int(first) - 1, int(second) - 1
        if not (present[j] and present[k]):
            assert math.isnan(estimate)
            continue
        up, down = (
            oracle.recession(counts, sizes, sign * (unit[j] - unit[k])) > 1e-6 for sign in (1, -1)
        )
        expected = NAN if up and down else INF if up else -INF if down else None
        if expected is None:
            assert math.isfinite(estimate)
        else:
            np.testing.assert_equal(estimate, expected)
    if bool(result.coefficients.isfinite().all()):
        means = [
            oracle.moments(m, sum(x), result.coefficients.numpy())[0]
            for x, m in zip(counts, sizes, strict=True)
        ]
        np.testing.assert_allclose(np.sum(means, 0), np.sum(counts, 0), atol=1e-7)
