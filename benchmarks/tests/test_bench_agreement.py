"""Reference values, and the comparison of results with them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench_fakes import CPU
from scipy import stats

from benchmarks import reference
from benchmarks.agreement import Judge, of_draws
from benchmarks.cells import Case, Problem


def two_groups(operation: str, law: str, size: int) -> Case:
    return Case(operation, law, 2, size, 20)


@pytest.mark.parametrize("law", ["fisher", "wallenius"])
def test_the_judge_agrees_with_scipy_where_scipy_is_right(law: str) -> None:
    theirs = getattr(stats, f"nchypergeom_{law}")(60, 30, 18, 2.5)
    moments = reference.exact_row(two_groups("moments", law, 30), math.log(2.5), 0)
    mean, variance = theirs.stats(moments="mv")
    np.testing.assert_allclose(moments, [mean, 18 - mean, variance, variance], rtol=1e-9)
    log_prob = reference.exact_row(two_groups("log_prob", law, 30), math.log(2.5), 11)
    np.testing.assert_allclose(log_prob, [theirs.logpmf(11)], rtol=1e-9)


def test_the_judge_knows_the_maximum_of_the_likelihood() -> None:
    odds = stats.contingency.odds_ratio([[12, 6], [18, 24]]).statistic
    assert abs(reference.score(30, 18, math.log(odds), 12)) < 1e-9
    assert abs(reference.score(30, 18, math.log(odds) + 0.1, 12)) > 0.1


def test_the_judge_says_who_is_right() -> None:
    problem = Problem(two_groups("log_prob", "fisher", 100), CPU)
    judge = Judge(problem)
    wrong = judge.reference + 1e-3
    assert "ours is right" in judge(wrong).words
    judge.reference, wrong = wrong, judge.reference
    assert "theirs is right" in judge(wrong).words


def test_draws_of_another_law_are_told_from_exact_ones() -> None:
    generator = np.random.default_rng(0)
    moments = np.array([[10.0, 10.0, 4.0, 4.0]])
    good = generator.normal(10, 2, (20_000, 2))
    assert of_draws(moments, good).same
    assert of_draws(moments, good + 0.6).words.startswith("means off by 0.3")
    assert of_draws(moments, 10 + 1.2 * (good - 10)).words.startswith("variance off by +4")
    assert of_draws(moments, good[:50] * 1.2 - 2).same  # too few to tell
    assert of_draws(moments, good * np.nan).words == "draws that are no numbers"
