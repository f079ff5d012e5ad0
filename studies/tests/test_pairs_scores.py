"""Scores of latents made by hand, against scikit-learn and the definitions."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest
from scipy import linalg, stats

from diffurn_studies.pairs.references import references
from diffurn_studies.pairs.scores import (
    Latents,
    adjusted_accuracy,
    disentanglement,
    downstream,
    squared_errors,
)

SIZES = (2, 3, 4)
PAIRS, TRAIN = 7000, 1000


def draw_factors(shared: int, seed: int = 0, pairs: int = PAIRS) -> tuple[np.ndarray, np.ndarray]:
    """Values (N, 2, F) of pairs that share exactly so many factors, and which (N, F)."""
    generator = np.random.default_rng(seed)
    sizes = np.array(SIZES)
    first = generator.integers(0, sizes, (pairs, len(SIZES)))
    other = (first + generator.integers(1, sizes, first.shape)) % sizes
    equal = generator.random(first.shape).argsort(1).argsort(1) < shared
    return np.stack([first, np.where(equal, first, other)], 1), equal


def code(factors: np.ndarray, seed: int = 1) -> np.ndarray:
    """Two latents without meaning after one for each factor, which equals it up to a scale that
    lets a penalised regression see it.
    """
    noise = np.random.default_rng(seed).normal(size=(*factors.shape[:2], 2))
    return np.concatenate([20.0 * factors, noise], -1)


def latents(
    factors: np.ndarray, equal: np.ndarray, means: np.ndarray, independent: np.ndarray | None = None
) -> Latents:
    """As a perfect method would call them, the latents without meaning being shared, unless told
    otherwise.
    """
    if independent is None:
        independent = np.pad(~equal, [(0, 0), (0, means.shape[-1] - equal.shape[-1])])
    return Latents(means, np.zeros_like(means), independent, factors.astype(np.uint8), equal)


def perfect(shared: int = 1, **options: Any) -> Latents:
    factors, equal = draw_factors(shared, **options)
    return latents(factors, equal, code(factors))


def chance_band(size: int, tests: int) -> float:
    """Five standard deviations of a guess's adjusted accuracy: a false alarm in 2,000,000 for each
    factor.
    """
    chance = 1 / size
    return 5 * float(np.sqrt(chance * (1 - chance) / tests)) / (1 - chance)


@pytest.fixture
def sklearn_metrics() -> Any:
    return pytest.importorskip("sklearn.metrics")


@pytest.mark.usefixtures("sklearn_metrics")
def test_a_perfect_code_is_read_without_error_from_the_part_it_is_in() -> None:
    record = downstream(perfect(), TRAIN, SIZES)
    assert record["by_factor"] == {
        "shared": [1.0] * 3,
        "independent": [1.0] * 3,
        "whole": [1.0] * 3,
    }
    assert [record[f"{part}_accuracy"] for part in ("shared", "independent", "whole")] == [1.0] * 3
    assert record["disentanglement"] == pytest.approx(1.0, abs=1e-6)
    assert record["unconverged"] == 0


@pytest.mark.usefixtures("sklearn_metrics")
def test_nothing_is_read_from_the_part_that_a_code_is_not_in() -> None:
    right = perfect()
    record = downstream(right._replace(independent=~right.independent), TRAIN, SIZES)
    assert record["by_factor"]["whole"] == [1.0] * 3
    tests = (PAIRS - TRAIN) // 4  # a third of the pairs share a factor, two thirds do not
    for part in ("shared", "independent"):
        for size, score in zip(SIZES, record["by_factor"][part], strict=True):
            assert abs(score) < chance_band(size, tests)


@pytest.mark.usefixtures("sklearn_metrics")
def test_noise_scores_nothing() -> None:
    factors, equal = draw_factors(2)
    generator = np.random.default_rng(2)
    noise = generator.normal(size=(PAIRS, 2, 5))
    record = downstream(
        latents(factors, equal, noise, generator.random((PAIRS, 5)) < 0.5), TRAIN, SIZES
    )
    for scores in record["by_factor"].values():
        for size, score in zip(SIZES, scores, strict=True):
            assert abs(score) < chance_band(size, (PAIRS - TRAIN) // 4)
    assert record["disentanglement"] < 0.05


@pytest.mark.usefixtures("sklearn_metrics")
def test_the_shared_part_is_the_average_of_both_views() -> None:
    factors, equal = draw_factors(3)
    means = code(factors)
    distance = np.random.default_rng(3).normal(scale=50.0, size=(PAIRS, means.shape[-1]))
    record = downstream(
        latents(factors, equal, means + np.stack([distance, -distance], 1)), TRAIN, SIZES
    )
    assert record["shared_accuracy"] == 1.0
    assert record["whole_accuracy"] < 0.6


@pytest.mark.usefixtures("sklearn_metrics")
def test_factors_without_pairs_or_without_two_values_are_left_out() -> None:
    nothing_shared = downstream(perfect(shared=0), TRAIN, SIZES)
    assert nothing_shared["shared_accuracy"] is None
    assert nothing_shared["by_factor"]["shared"] == [None] * 3
    assert nothing_shared["independent_accuracy"] == 1.0
    all_shared = downstream(perfect(shared=3), TRAIN, SIZES)
    assert all_shared["independent_accuracy"] is None
    assert all_shared["shared_accuracy"] == 1.0

    mixed = perfect()
    mixed.factors[TRAIN:, :, 1] = 0  # the test pairs show one value only
    mixed.shared[:TRAIN, 2] = False  # no training pair shares this one
    record = downstream(mixed, TRAIN, SIZES)
    assert [score is None for score in record["by_factor"]["shared"]] == [False, True, True]
    assert [score is None for score in record["by_factor"]["independent"]] == [False, True, False]
    assert record["shared_accuracy"] == record["by_factor"]["shared"][0]
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def by_hand(data: Latents, factor: int, metrics: Any) -> tuple[float, float, float]:
    """The protocol pair by pair, with another solver run to the optimum, and scikit-learn's own
    score.
    """
    linear_model = pytest.importorskip("sklearn.linear_model")

    def score(rows: list[tuple[int, list[float], int]]) -> float:
        model = linear_model.LogisticRegression(solver="newton-cg", tol=1e-10, max_iter=1000)
        model.fit([x for i, x, _ in rows if i < TRAIN], [y for i, _, y in rows if i < TRAIN])
        guesses = model.predict([x for i, x, _ in rows if i >= TRAIN])
        return float(
            metrics.balanced_accuracy_score(
                [y for i, _, y in rows if i >= TRAIN], guesses, adjusted=True
            )
        )

    shared_rows, first_rows, second_rows, whole_rows = [], [], [], []
    for i in range(PAIRS):
        (one, two), (value, other), alone = (
            data.means[i],
            data.factors[i, :, factor],
            data.independent[i],
        )
        whole_rows.append((i, list(one), value))
        if data.shared[i, factor]:
            shared_rows.append(
                (
                    i,
                    [
                        0.0 if own else (a + b) / 2
                        for a, b, own in zip(one, two, alone, strict=True)
                    ],
                    value,
                )
            )
        else:
            first_rows.append(
                (i, [a if own else 0.0 for a, own in zip(one, alone, strict=True)], value)
            )
            second_rows.append(
                (i, [b if own else 0.0 for b, own in zip(two, alone, strict=True)], other)
            )
    return score(shared_rows), (score(first_rows) + score(second_rows)) / 2, score(whole_rows)


def entangled(shared: int = 2) -> Latents:
    """Factors mixed and blurred, and a mask that is right most of the time."""
    factors, equal = draw_factors(shared)
    generator = np.random.default_rng(4)
    means = np.tanh(factors @ generator.normal(size=(3, 5))) + 0.3 * generator.normal(
        size=(PAIRS, 2, 5)
    )
    return latents(factors, equal, means, np.abs(means[:, 0] - means[:, 1]) > 0.6)


def test_scores_are_those_of_the_protocol_at_the_exact_optimum(sklearn_metrics: Any) -> None:
    data = entangled()
    found = downstream(data, TRAIN, SIZES)["by_factor"]
    for factor in range(len(SIZES)):
        expected = by_hand(data, factor, sklearn_metrics)
        # the default tolerance stops within a few borderline pairs of the optimum
        assert [
            found[part][factor] for part in ("shared", "independent", "whole")
        ] == pytest.approx(expected, abs=0.01)
        assert 0.05 < min(expected) < max(expected) < 0.99


@pytest.mark.usefixtures("sklearn_metrics")
def test_classifiers_that_do_not_converge_are_counted_and_do_not_warn() -> None:
    assert downstream(entangled(), TRAIN, SIZES, iterations=1)["unconverged"] == 12


@pytest.mark.usefixtures("sklearn_metrics")
def test_half_precision_is_enough() -> None:
    half = entangled()
    half = half._replace(means=half.means.astype(np.float16))
    assert downstream(half, TRAIN, SIZES) == downstream(
        half._replace(means=half.means.astype(np.float64)), TRAIN, SIZES
    )


@pytest.mark.slow
@pytest.mark.usefixtures("sklearn_metrics")
def test_scores_do_not_depend_on_the_number_of_workers() -> None:
    assert downstream(entangled(), TRAIN, SIZES, workers=2) == downstream(entangled(), TRAIN, SIZES)


def test_adjusted_accuracy_is_scikit_learns(sklearn_metrics: Any) -> None:
    generator = np.random.default_rng(5)
    for size, present in (
        (2, 2),
        (6, 6),
        (40, 31),
    ):  # at last nine values that the test pairs lack, but a classifier may name
        labels = generator.integers(0, present, 300)
        guesses = np.where(generator.random(300) < 0.4, labels, generator.integers(0, size, 300))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="y_pred contains classes not in y_true")
            expected = sklearn_metrics.balanced_accuracy_score(labels, guesses, adjusted=True)
        assert adjusted_accuracy(labels, guesses) == pytest.approx(expected, abs=1e-12)


def test_chance_is_one_in_the_values_that_occur_in_the_test_pairs() -> None:
    labels = np.array([3, 3, 7, 9, 9, 9])
    for guess in (3, 7, 9):
        assert adjusted_accuracy(labels, np.full(6, guess)) == pytest.approx(0.0, abs=1e-15)
    assert adjusted_accuracy(labels, np.full(6, 8)) == pytest.approx(-0.5)
    assert adjusted_accuracy(labels, labels) == 1.0


def test_disentanglement_follows_its_definition() -> None:
    generator = np.random.default_rng(6)
    importances = generator.gamma(0.3, size=(10, 7))
    importances[4] = 0.0
    importances[5, 2:] = 0.0
    expected = 0.0
    for row in importances:
        if row.sum() > 0:
            expected += row.sum() / importances.sum() * (1 - stats.entropy(row / row.sum(), base=7))
    assert disentanglement(importances) == pytest.approx(expected, abs=1e-12)
    assert disentanglement(np.ones((4, 3))) == pytest.approx(0.0, abs=1e-12)
    assert disentanglement(np.zeros((4, 3))) == 0.0


@pytest.mark.usefixtures("sklearn_metrics")
def test_a_code_that_mixes_all_factors_in_every_latent_is_not_disentangled() -> None:
    factors, equal = draw_factors(1)
    noise = np.random.default_rng(7).normal(size=(PAIRS, 2, 1))
    scaled = np.concatenate([factors - factors.mean((0, 1)), noise], -1) / [
        *factors.std((0, 1)),
        1.0,
    ]
    record = downstream(latents(factors, equal, scaled @ linalg.hadamard(4)), TRAIN, SIZES)
    assert record["disentanglement"] < 0.15


@pytest.mark.parametrize("train", [0, PAIRS])
def test_both_parts_must_have_pairs(train: int) -> None:
    with pytest.raises(
        ValueError, match=f"train is {train}, but it must leave at least one of the {PAIRS} pairs"
    ):
        downstream(perfect(), train, SIZES)


def test_bad_latents_are_named() -> None:
    data = perfect()
    with pytest.raises(ValueError, match="there are 2 sizes, but the pairs have 3 factors"):
        downstream(data, TRAIN, SIZES[:2])
    data.factors[7, 1, 2] = 4
    with pytest.raises(
        ValueError,
        match=r"factors at index \(7, 1, 2\) is 4, but factors of sizes \(2, 3, 4\) start at 0",
    ):
        downstream(data, TRAIN, SIZES)
    data = perfect()
    data.means[5, 0, 1] = np.nan
    with pytest.raises(
        ValueError, match=r"means at index \(5, 0, 1\) is nan, but they must be finite"
    ):
        downstream(data, TRAIN, SIZES)


def test_squared_errors_are_those_of_the_pairs_one_by_one() -> None:
    generator = np.random.default_rng(8)
    true, independent = generator.integers(0, 6, 500), generator.integers(0, 11, 500)
    counts = {
        str(s): [int(((true == s) & (independent == k)).sum()) for k in range(11)] for s in range(6)
    }
    expected = (np.mean((true - (10 - independent)) ** 2), np.mean((7 - true - independent) ** 2))
    assert squared_errors(counts, 7) == pytest.approx(expected, rel=1e-12)


def test_squared_errors_need_a_pair() -> None:
    with pytest.raises(ValueError, match="must count at least one pair"):
        squared_errors({"3": [0, 0, 0]}, 7)


@pytest.mark.parametrize(
    "shares",
    [
        {3: 1.0},
        {0: 0.25, 1: 0.25, 3: 0.25, 5: 0.25},
        dict.fromkeys(range(1, 7), 1 / 6),
        {0: 0.9, 6: 0.1},
    ],
)
@pytest.mark.parametrize("size", [7, 10])
def test_reference_errors_are_those_of_brute_force(shares: dict[int, float], size: int) -> None:
    found = {
        name: (each.shared_error, each.independent_error)
        for name, each in references(shares, shares, 7, size).items()
    }
    chosen = np.arange(size + 1)
    s, share = np.array(list(shares)), np.array(list(shares.values()))
    shared, independent = (s[:, None] - (size - chosen)) ** 2, (7 - s[:, None] - chosen) ** 2
    assert found["best constant"] == pytest.approx(
        (min(share @ shared), min(share @ independent)), rel=1e-12
    )
    law = stats.hypergeom(2 * size, size, size).pmf(chosen)
    assert found["ω = 1"] == pytest.approx(
        (share @ shared @ law, share @ independent @ law), rel=1e-12
    )
    assert found["oracle"] == pytest.approx((share @ ((s - (size - (7 - s))) ** 2), 0.0), abs=1e-12)
    log_odds = np.linspace(-30, 30, 6001)
    laws = stats.nchypergeom_fisher.pmf(chosen, 2 * size, size, size, np.exp(log_odds)[:, None])
    floors = [share @ (errors @ laws.T).min(1) for errors in (shared, independent)]
    assert found["floor of a draw"] == pytest.approx(floors, abs=1e-3)
    assert list(found) == ["best constant", "ω = 1", "floor of a draw", "oracle"]
