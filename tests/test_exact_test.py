"""Fisher's exact test against SciPy, against sums over all outcomes in 40 digits, and against the
laws it must obey.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import stats
from scipy.stats.contingency import odds_ratio

from diffurn.inference import exact_test

ALTERNATIVES = ("two-sided", "less", "greater")
TABLES = np.random.default_rng(0).integers(0, 30, (60, 2, 2))
cells = st.integers(0, 60)
tables = st.tuples(st.tuples(cells, cells), st.tuples(cells, cells))


# --- the plainest form: all outcomes, their probabilities, their sums


@cache
def terms_around(table, odds: float, within: int) -> dict[int, mpf]:
    """Probabilities of the first cell, up to a common factor, at most `within` steps from the most
    probable one.
    """
    (a, b), (c, d) = table
    rows, columns = (a + b, c + d), (a + c, b + d)
    lowest, highest = max(0, columns[0] - rows[1]), min(rows[0], columns[0])

    def ratio(x: int) -> mpf:
        return (
            mpf(odds)
            * (rows[0] - x)
            * (columns[0] - x)
            / mpf((x + 1) * (rows[1] - columns[0] + x + 1))
        )

    low, high = lowest, highest
    while low < high:
        x = (low + high) // 2
        low, high = (x + 1, high) if ratio(x) > 1 else (low, x)
    terms = {low: mpf(1)}
    for x in range(low, min(highest, low + within)):
        terms[x + 1] = terms[x] * ratio(x)
    for x in range(low, max(lowest, low - within), -1):
        terms[x - 1] = terms[x] / ratio(x - 1)
    return terms


def exact_log_p_value(table, odds: float, alternative: str, within: int = 10**9) -> mpf:
    with mp.workdps(40):
        terms, x = terms_around(table, odds, within), table[0][0]
        extreme = {
            "two-sided": lambda k: terms[k] <= terms[x] * (1 + mpf(10) ** -7),
            "less": lambda k: k <= x,
            "greater": lambda k: k >= x,
        }[alternative]
        return mp.log(mp.fsum(t for k, t in terms.items() if extreme(k)) / mp.fsum(terms.values()))


def assert_log_p(ours: torch.Tensor, exact: mpf) -> None:
    assert abs(mpf(float(ours)) - exact) <= 1e-11 * max(1, abs(exact)), (
        float(ours),
        mp.nstr(exact, 20),
    )


@pytest.mark.parametrize("alternative", ALTERNATIVES)
@pytest.mark.parametrize("odds", [1.0, 0.2, 30.0])
def test_p_values_agree_with_the_sum_over_all_outcomes(
    odds: float, alternative: str, device: torch.device
) -> None:
    some = TABLES[:25]
    ours = exact_test(torch.tensor(some, device=device), odds, alternative).log_p_value
    for table, log_p in zip(some.tolist(), ours, strict=True):
        assert_log_p(log_p, exact_log_p_value(tuple(map(tuple, table)), odds, alternative))


@pytest.mark.parametrize("alternative", ALTERNATIVES)
@pytest.mark.parametrize(
    (
        "table",
        "odds",
        "within",
    ),  # at least 14 standard deviations around the peak, and the observed count
    [
        (((1000, 10), (20, 3000)), 1.0, 2000),  # p below the smallest float64
        (((1000, 10), (20, 3000)), 1e6, 2000),
        (((260_000, 240_000), (239_000, 261_000)), 1.0, 15_000),
        (((500_700, 500_000), (499_000, 500_000)), 1.0, 8000),
        (((500_000, 500_000), (500_000, 500_000)), 1.003, 8000),
        (((3, 10**6), (40, 10**6)), 0.3, 100),
    ],
)
def test_large_tables_and_far_tails_keep_eleven_digits(
    table, odds: float, within: int, alternative: str, device: torch.device
) -> None:
    exact = exact_log_p_value(table, odds, alternative, within)
    assert_log_p(
        exact_test(torch.tensor(table, device=device), odds, alternative).log_p_value, exact
    )


# --- SciPy


@pytest.mark.parametrize("alternative", ALTERNATIVES)
def test_p_values_agree_with_scipy(alternative: str, device: torch.device) -> None:
    ours = exact_test(torch.tensor(TABLES, device=device), alternative=alternative).p_value.cpu()
    theirs = [stats.fisher_exact(table, alternative=alternative).pvalue for table in TABLES]
    np.testing.assert_allclose(ours, theirs, rtol=1e-11)


def test_p_values_under_other_odds_agree_with_scipy(device: torch.device) -> None:
    odds = np.random.default_rng(1).uniform(0.2, 5.0, len(TABLES))
    tests = {
        side: exact_test(
            torch.tensor(TABLES, device=device), torch.tensor(odds, device=device), side
        )
        for side in ("less", "greater")
    }
    for i, (table, ratio) in enumerate(zip(TABLES, odds, strict=True)):
        law = stats.nchypergeom_fisher(table.sum(), table[0].sum(), table[:, 0].sum(), ratio)
        assert tests["less"].p_value[i].item() == pytest.approx(
            law.cdf(table[0, 0]), rel=1e-9, abs=1e-11
        )
        assert tests["greater"].p_value[i].item() == pytest.approx(
            law.sf(table[0, 0] - 1), rel=1e-9, abs=1e-11
        )


def test_odds_ratios_and_intervals_agree_with_scipy(device: torch.device) -> None:
    test = exact_test(torch.tensor(TABLES[:30], device=device))
    theirs = [odds_ratio(table) for table in TABLES[:30]]
    np.testing.assert_allclose(
        test.odds_ratio.cpu(), [result.statistic for result in theirs], rtol=1e-8
    )
    for alternative in ALTERNATIVES:
        ours = test.confidence_interval(0.9, alternative)
        intervals = [result.confidence_interval(0.9, alternative) for result in theirs]
        np.testing.assert_allclose(
            ours.low.cpu(), [interval.low for interval in intervals], rtol=1e-8
        )
        np.testing.assert_allclose(
            ours.high.cpu(), [interval.high for interval in intervals], rtol=1e-8
        )


# --- laws


@settings(max_examples=50)
@given(tables, st.floats(0.05, 20.0), st.sampled_from(ALTERNATIVES))
def test_swapping_rows_inverts_the_odds(table, odds: float, alternative: str) -> None:
    mirrored = {"less": "greater", "greater": "less"}.get(alternative, alternative)
    original, swapped = (
        exact_test(table, odds, alternative),
        exact_test(table[::-1], torch.tensor(1 / odds), mirrored),
    )
    assert original.log_p_value.item() == pytest.approx(
        swapped.log_p_value.item(), rel=1e-9, abs=1e-9
    )
    assert original.odds_ratio.item() == pytest.approx(
        1 / swapped.odds_ratio.item() if swapped.odds_ratio else math.inf, rel=1e-10, nan_ok=True
    )


@given(tables, st.floats(0.05, 20.0))
def test_the_two_one_sided_p_values_overlap_in_the_observed_outcome(table, odds: float) -> None:
    less, greater = (exact_test(table, odds, side).p_value.item() for side in ("less", "greater"))
    (a, b), (c, d) = table
    observed = (
        stats.nchypergeom_fisher.pmf(a, a + b + c + d, a + b, a + c, odds)
        if min(a + b, c + d, a + c, b + d) > 0
        else 1.0
    )
    assert less + greater == pytest.approx(1 + observed, abs=1e-9)


@settings(max_examples=25)
@given(tables)
def test_the_ends_of_an_interval_are_just_rejected(table) -> None:
    low, high = exact_test(table).confidence_interval(0.95)
    if low > 0:
        assert exact_test(table, low, "greater").p_value.item() == pytest.approx(0.025, rel=1e-9)
    if high < math.inf:
        assert exact_test(table, high, "less").p_value.item() == pytest.approx(0.025, rel=1e-9)


def test_the_odds_ratio_makes_the_observed_count_the_mean(device: torch.device) -> None:
    table = torch.tensor(
        [
            [[612_345, 387_655], [250_001, 749_999]],
            [[3, 10**6], [40, 10**6]],
            [[10**9, 17], [2 * 10**9, 50]],
        ],
        device=device,
    )
    ratios = exact_test(table).odds_ratio.tolist()
    with mp.workdps(40):
        for ((a, b), (c, d)), ratio in zip(table.tolist(), ratios, strict=True):
            terms = terms_around(((a, b), (c, d)), ratio, within=12_000)
            total = mp.fsum(terms.values())
            shift = mp.fsum(t * (x - a) for x, t in terms.items()) / total
            variance = mp.fsum(t * (x - a) ** 2 for x, t in terms.items()) / total
            assert abs(shift / variance) <= 1e-12  # the error in log ω


# --- edges


@pytest.mark.parametrize(
    "table",
    [[[0, 0], [3, 4]], [[3, 4], [0, 0]], [[0, 5], [0, 2]], [[5, 0], [2, 0]], [[0, 0], [0, 0]]],
)
def test_a_margin_of_zero_gives_p_value_one(table, device: torch.device) -> None:
    for alternative in ALTERNATIVES:
        assert exact_test(torch.tensor(table, device=device), 3.0, alternative).p_value == 1
    test = exact_test(table)
    assert math.isnan(test.odds_ratio)
    assert test.confidence_interval() == (0, math.inf)


def test_the_ends_of_the_support_have_odds_of_zero_and_infinity() -> None:
    test = exact_test([[[0, 5], [4, 3]], [[5, 0], [3, 4]]])
    assert test.odds_ratio.tolist() == [0, math.inf]
    low, high = test.confidence_interval()
    assert low[0] == 0
    assert high[0] < math.inf
    assert low[1] > 0
    assert high[1] == math.inf


def test_one_sided_intervals_are_open_on_the_other_side() -> None:
    table = [[8, 2], [1, 5]]
    assert exact_test(table, alternative="less").confidence_interval().low == 0
    assert exact_test(table, alternative="greater").confidence_interval().high == math.inf


def test_batches_of_tables_and_odds_broadcast(device: torch.device) -> None:
    table, odds = (
        torch.tensor(TABLES[:4], device=device),
        torch.tensor([[0.5], [1.0], [2.0]], device=device),
    )
    test = exact_test(table, odds)
    assert (
        test.p_value.shape
        == test.odds_ratio.shape
        == test.confidence_interval().low.shape
        == (3, 4)
    )
    torch.testing.assert_close(
        test.p_value[2, 1], exact_test(table[1], 2.0).p_value, rtol=1e-12, atol=0
    )
    assert exact_test(torch.zeros(0, 2, 2)).p_value.shape == (0,)


@pytest.mark.parametrize("odds", [0.1, [0.1], np.float64(0.1)], ids=repr)
def test_odds_of_python_are_not_rounded_to_single_precision(odds: Any) -> None:
    # X is 0, 1 or 2 with probabilities 1, 4ω, ω² out of their sum: P(X ≥ 1) = (4ω + ω²) / (1 + 4ω +
    # ω²) for ω = 0.1
    p_value = exact_test([[1, 1], [1, 1]], odds, alternative="greater").p_value.item()
    assert p_value == pytest.approx(0.41 / 1.41, rel=1e-12)


def test_counts_of_python_are_not_rounded_to_single_precision() -> None:
    floats, integers = (
        exact_test([[kind(2**24 + 1), kind(3)], [kind(5), kind(2)]]).table for kind in (float, int)
    )
    assert floats.tolist() == integers.tolist() == [[16777217.0, 3.0], [5.0, 2.0]]


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"table at index \(0, 1\) is -1"):
        exact_test([[1, -1], [2, 3]])
    with pytest.raises(ValueError, match=r"table has shape \(2, 3\)"):
        exact_test([[1, 1, 1], [2, 3, 4]])
    with pytest.raises(
        ValueError, match=r"odds is 0\.0, but the odds must be a positive finite number"
    ):
        exact_test([[1, 1], [2, 3]], odds=0.0)
    with pytest.raises(
        ValueError, match="alternative is 'both', but must be one of 'two-sided', 'less', 'greater'"
    ):
        exact_test([[1, 1], [2, 3]], alternative="both")
    with pytest.raises(ValueError, match="level is 95"):
        exact_test([[1, 1], [2, 3]]).confidence_interval(95)
