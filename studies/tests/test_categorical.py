"""The thought experiment with unconstrained categoricals: shares of invalid draws against exact
probabilities.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from scipy import stats

from diffurn_studies.categorical import study as categorical
from diffurn_studies.categorical.model import Categoricals, invalid_probability, valid
from diffurn_studies.categorical.options import Options
from diffurn_studies.harness.runner import run
from diffurn_studies.harness.study import Results

TINY = Options(draws=4_000, steps=40, learning_rate=0.1)
SIZES, DRAWS = (10, 7, 8), 9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("categorical") / "run"


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return run(categorical, TINY, folder)


def test_untrained_categoricals_are_invalid_as_often_as_counting_says() -> None:
    box = list(itertools.product(*(range(size + 1) for size in SIZES)))
    wrong = Fraction(sum(sum(x) != DRAWS for x in box), len(box))
    assert invalid_probability(Categoricals(False, False, 1)) == pytest.approx(
        float(wrong), abs=1e-6
    )


def test_the_rest_for_the_last_group_is_invalid_as_often_as_counting_says() -> None:
    pairs = list(itertools.product(range(11), range(8)))
    wrong = Fraction(sum(not 0 <= DRAWS - sum(x) <= 8 for x in pairs), len(pairs))
    assert invalid_probability(Categoricals(False, True, 1)) == pytest.approx(
        float(wrong), abs=1e-6
    )


def test_in_parallel_training_ends_at_the_marginals_and_no_better(results: Results) -> None:
    """The best three independent counts have the urn's marginals: the central urn's are SciPy's
    univariate laws.
    """
    marginals = [
        [stats.hypergeom.pmf(x, sum(SIZES), size, DRAWS) for x in range(size + 1)] for size in SIZES
    ]
    possible = sum(
        marginals[0][x[0]] * marginals[1][x[1]] * marginals[2][x[2]]
        for x in itertools.product(*(range(size + 1) for size in SIZES))
        if sum(x) == DRAWS
    )
    trained = run(categorical, Options(draws=1_000, steps=300, learning_rate=0.1)).records[
        "parallel"
    ]
    assert trained["invalid"][-1] == pytest.approx(1 - possible, abs=2e-3)
    assert trained["totals"][DRAWS] == pytest.approx(possible, abs=2e-3)


@pytest.mark.parametrize("way", ["parallel", "sequence", "rest"])
def test_draws_are_invalid_as_often_as_all_outcomes_say(results: Results, way: str) -> None:
    record = results.records[way]
    share = record["invalid"][-1]
    # four and a half standard errors: a false alarm once in 100,000 runs
    assert record["invalid_draws"] == pytest.approx(
        share, abs=4.5 * (share * (1 - share) / TINY.draws) ** 0.5
    )
    assert record["invalid"][0] > share
    assert sum(record["totals"]) == pytest.approx(1, abs=1e-5)


def test_what_was_possible_after_seven_of_the_first_group() -> None:
    """The paper's example: of the second group no more than two may follow."""
    second = torch.arange(8.0)
    counts = torch.stack([torch.full_like(second, 7), second, 2 - second], -1)
    assert valid(counts).tolist() == [True] * 3 + [False] * 5
    assert (
        valid(torch.tensor([[1.0, 8.0, 0.0], [9.0, 0.0, 1.0], [0.0, 0.0, 9.0]])).tolist()
        == [False] * 3
    )


def test_probabilities_in_sequence_sum_to_one() -> None:
    for rest in (False, True):
        model = Categoricals(True, rest, 4)
        assert model.log_prob(model.outcomes()).exp().sum().item() == pytest.approx(1)


def test_the_urn_is_never_invalid_and_has_three_parameters(results: Results) -> None:
    for way in ("urn-exact", "urn-merged"):
        assert results.records[way] == {"parameters": 3, "invalid_draws": 0.0}
    assert results.records["parallel"]["parameters"] == sum(size + 1 for size in SIZES)


def test_table_and_figure(results: Results, folder: Path) -> None:
    (table,) = categorical.table(results)
    by_way = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert by_way["three categoricals in parallel"]["paper"] == 25
    assert by_way["three categoricals in parallel"]["difference"] == 3
    assert by_way["the urn, exact"]["difference"] == 0
    share = 100 * results.records["parallel"]["invalid_draws"]
    assert f"{share:.1f} % of the draws of three" in categorical.verdict(results)[0]
    assert (folder / "figures" / "categorical.png").stat().st_size > 10_000


def test_a_run_repeats_itself(results: Results) -> None:
    assert run(categorical, TINY).records == results.records


@pytest.mark.parametrize(
    "wrong", [{"draws": 0}, {"steps": 0}, {"weights": (1.0, 0.0, 1.0)}, {"learning_rate": 0.0}]
)
def test_impossible_options_are_refused_with_a_reason(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Options(**wrong)


def test_the_quick_options_run() -> None:
    assert len(categorical.table(run(categorical, Options().quick()))) == 1
