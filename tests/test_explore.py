"""The interactive demo without a browser: its numbers against brute force, its sentences, its
server.
"""

from __future__ import annotations

import importlib
import itertools
import math
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from diffurn import WalleniusHypergeometric
from diffurn.cli import app
from diffurn.explore import numbers, server, subsets
from diffurn.explore.limits import COUNT, DIVERSITY, FISHER, SPREAD, SQUARE, THRESHOLD, WALLENIUS
from diffurn.explore.numbers import Question, Setting
from support.oracles import outcomes
from support.processes import Ended, diffurn_without, interruptible

Counts = tuple[int, ...]
Brute = dict[Counts, float]

URNS = [
    ((3, 5, 4), 5, (1.0, 2.0, 0.5)),
    ((2, 3), 3, (1.0, 8.0)),
    ((4, 0, 3, 2), 6, (0.25, 4.0, 1.0, 3.0)),  # an empty group
    ((1, 2, 1, 1, 2), 7, (1.0, 2.0, 3.0, 4.0, 5.0)),  # all balls drawn
    ((3, 2, 1, 2, 3), 4, (32.0, 1 / 32, 1.0, 2.0, 0.5)),
]


def fisher_by_hand(sizes: Counts, draws: int, weights: tuple[float, ...]) -> Brute:
    masses = {
        x: math.prod(math.comb(m, k) * w**k for m, k, w in zip(sizes, x, weights, strict=True))
        for x in outcomes(sizes, draws)
    }
    return {x: mass / sum(masses.values()) for x, mass in masses.items()}


def wallenius_by_hand(sizes: Counts, draws: int, weights: tuple[float, ...]) -> Brute:
    """Ball by ball: the next comes from a group with probability proportional to the weight that it
    has left.
    """
    law: Brute = {(0,) * len(sizes): 1.0}
    for _ in range(draws):
        following: Brute = defaultdict(float)
        for x, mass in law.items():
            left = [(m - k) * w for m, k, w in zip(sizes, x, weights, strict=True)]
            for j, share in enumerate(left):
                if share > 0:
                    following[(*x[:j], x[j] + 1, *x[j + 1 :])] += mass * share / sum(left)
        law = following
    return law


def merged_by_hand(sizes: Counts, draws: int, weights: tuple[float, ...]) -> Brute:
    """Every group against all later ones as a single one of their average weight."""
    law: Brute = {}
    for x in outcomes(sizes, draws):
        probability, left = 1.0, draws
        for i in range(len(sizes) - 1):
            later = sum(sizes[i + 1 :])
            average = (
                sum(m * w for m, w in zip(sizes[i + 1 :], weights[i + 1 :], strict=True)) / later
            )
            probability *= fisher_by_hand((sizes[i], later), left, (weights[i], average))[
                x[i], left - x[i]
            ]
            left -= x[i]
        law[x] = probability
    return law


BY_HAND: dict[str, Callable[[Counts, int, tuple[float, ...]], Brute]] = {
    FISHER: fisher_by_hand,
    WALLENIUS: wallenius_by_hand,
}


def gradient_by_differences(
    setting: Setting, f: Callable[[Counts], float], step: float = 1e-4
) -> list[float]:
    """Central differences of E[f(x)] in each log ω."""

    def expectation(j: int, by: float) -> float:
        weights = tuple(w * math.exp(by) if i == j else w for i, w in enumerate(setting.weights))
        return sum(
            mass * f(x)
            for x, mass in BY_HAND[setting.model](
                setting.group_sizes, setting.draws, weights
            ).items()
        )

    return [
        (expectation(j, step) - expectation(j, -step)) / (2 * step)
        for j in range(len(setting.weights))
    ]


@pytest.fixture(params=[(model, *urn) for model in BY_HAND for urn in URNS], ids=str)
def setting(request: pytest.FixtureRequest) -> Setting:
    return Setting(*request.param)


def by_hand(setting: Setting) -> Brute:
    return BY_HAND[setting.model](setting.group_sizes, setting.draws, setting.weights)


def marginal_by_hand(law: Brute, group: int, count: int) -> float:
    return sum(mass for x, mass in law.items() if x[group] == count)


def test_marginals_means_and_deviations_are_those_of_brute_force(setting: Setting) -> None:
    law, expected = numbers.distribution_of(setting), by_hand(setting)
    found = numbers.marginals(law.outcomes, law.probabilities, setting.largest)
    for j in range(len(setting.group_sizes)):
        for count in range(setting.largest + 1):
            assert float(found[count, j]) == pytest.approx(
                marginal_by_hand(expected, j, count), abs=1e-12
            )
        mean = sum(mass * x[j] for x, mass in expected.items())
        assert float(law.mean[j]) == pytest.approx(mean, abs=1e-11)
        variance = sum(mass * (x[j] - mean) ** 2 for x, mass in expected.items())
        assert float(law.deviation[j]) == pytest.approx(math.sqrt(variance), abs=1e-6)


@pytest.mark.parametrize("function", [COUNT, SQUARE, SPREAD, THRESHOLD, DIVERSITY])
def test_exact_gradients_are_those_of_brute_force(setting: Setting, function: str) -> None:
    question = Question(function, group=1, threshold=2)
    mean = sum(mass * x[1] for x, mass in by_hand(setting).items())
    functions: dict[str, Callable[[Counts], float]] = {
        COUNT: lambda x: x[1],
        SQUARE: lambda x: x[1] ** 2,
        SPREAD: lambda x: (x[1] - mean) ** 2,
        THRESHOLD: lambda x: float(x[1] >= 2),
        DIVERSITY: lambda x: 1 - sum((k / setting.draws) ** 2 for k in x),
    }
    found = numbers.gradient(setting, question, temperature=0.5, num_samples=20, seed=0)
    assert found.value == pytest.approx(
        sum(mass * functions[function](x) for x, mass in by_hand(setting).items()), abs=1e-11
    )
    assert found.exact.tolist() == pytest.approx(
        gradient_by_differences(setting, functions[function]), abs=2e-7
    )
    for estimate in found.estimates.values():
        assert estimate.average.isfinite().all()
        assert estimate.deviation.isfinite().all()


@pytest.mark.parametrize("urn", URNS, ids=str)
def test_the_merged_law_and_its_distance_are_those_of_brute_force(
    urn: tuple[Counts, int, tuple[float, ...]],
) -> None:
    setting = Setting(FISHER, *urn)
    law, merged = numbers.distribution_of(setting), numbers.merged_probabilities(setting)
    exact_by_hand, merged_law = fisher_by_hand(*urn), merged_by_hand(*urn)
    assert merged.tolist() == pytest.approx(
        [merged_law[tuple(map(int, x))] for x in law.outcomes.tolist()], abs=1e-12
    )
    distance = sum(abs(exact_by_hand[x] - merged_law[x]) for x in exact_by_hand) / 2
    assert float(numbers.total_variation(law.probabilities, merged)) == pytest.approx(
        distance, abs=1e-12
    )
    marginals = (
        numbers.marginals(law.outcomes, masses, setting.largest)
        for masses in (law.probabilities, merged)
    )
    for j, found in enumerate(numbers.total_variation(*marginals).tolist()):
        counts = range(setting.largest + 1)
        apart = (
            sum(
                abs(marginal_by_hand(exact_by_hand, j, k) - marginal_by_hand(merged_law, j, k))
                for k in counts
            )
            / 2
        )
        assert found == pytest.approx(apart, abs=1e-12)


def test_shares_of_draws_approach_the_law(setting: Setting) -> None:
    # Five standard deviations and five draws: wrong once in a million, also for counts that hardly
    # ever come.
    drawn = numbers.draw(setting, 20_000, seed=1)
    assert (drawn.sum(-1) == setting.draws).all()
    expected = by_hand(setting)
    for j, column in enumerate(numbers.shares(drawn, setting.largest).unbind(-1)):
        for count, share in enumerate(column.tolist()):
            probability = marginal_by_hand(expected, j, count)
            assert (
                abs(share - probability)
                <= 5 * math.sqrt(max(probability * (1 - probability), 0) / 20_000) + 5 / 20_000
            )


def test_a_seed_gives_the_same_draws_again_and_leaves_torchs_own_alone() -> None:
    setting = Setting(FISHER, *URNS[0])
    state = torch.random.get_rng_state()
    first, second, other = (numbers.draw(setting, 50, seed) for seed in (3, 3, 4))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("function", [COUNT, THRESHOLD])
def test_the_covariance_is_exact_where_it_should_be(function: str) -> None:
    found = numbers.gradient(
        Setting(FISHER, *URNS[0]), Question(function, 1, 3), temperature=0.5, num_samples=50, seed=0
    )
    assert found.estimates["CovarianceST"].bias < 1e-10
    assert found.estimates["CovarianceST"].spread < 1e-10
    assert found.estimates["Gumbel, merged"].spread > 0.1


def test_a_threshold_beyond_the_group_has_no_gradient() -> None:
    found = numbers.gradient(
        Setting(FISHER, *URNS[0]),
        Question(THRESHOLD, 0, 4),
        temperature=0.5,
        num_samples=20,
        seed=0,
    )
    assert found.value == 0
    assert found.exact.abs().max() == 0
    assert all(estimate.average.abs().max() == 0 for estimate in found.estimates.values())


def test_wallenius_estimates_are_those_of_rsample() -> None:
    setting, question = Setting(WALLENIUS, *URNS[0]), Question(SQUARE, 1)
    estimates = numbers.one_sample_gradients(
        setting, question, temperature=1.0, num_samples=4, seed=5
    )["rsample"]
    log_weights = setting.log_weights.requires_grad_()
    torch.manual_seed(5)
    values = (
        WalleniusHypergeometric(setting.group_sizes, setting.draws, log_weights=log_weights)
        .rsample((4,))[:, 1]
        .square()
    )
    expected = torch.stack(
        [torch.autograd.grad(value, log_weights, retain_graph=True)[0] for value in values]
    )
    torch.testing.assert_close(estimates, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("sizes", "draws", "sentence"),
    [
        ((0, 0, 0), 1, "All groups are empty"),
        ((3, 5, 4), 13, "13 balls cannot be drawn from an urn of 12"),
        ((20,) * 5, 50, "more than 5,000 outcomes"),
        ((3, None, 4), 5, "The size of group 2 must be a whole number"),
        ((3, 2.5, 4), 5, "The size of group 2 must be a whole number from 0 to 20"),
        ((3, 5, 200), 5, "The size of group 3 must be a whole number from 0 to 20"),
        ((3, 5, 4), None, "The number of balls drawn must be a whole number from 1 to 60"),
        ((3, 5, 4), 0, "The number of balls drawn must be a whole number from 1 to 60"),
        ((1,) * 6, 3, "The number of groups must be a whole number from 2 to 5"),
    ],
)
def test_what_no_urn_can_be_is_refused_with_a_sentence(
    sizes: tuple[float | None, ...], draws: float | None, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        numbers.as_setting(FISHER, len(sizes), draws, sizes, (0.0,) * len(sizes))


def test_weights_are_given_as_powers_of_two() -> None:
    assert numbers.as_setting(FISHER, 2.0, 5.0, (3.0, 5.0), (-1.0, 3.0)) == Setting(
        FISHER, (3, 5), 5, (0.5, 8.0)
    )
    for wrong in (None, 1e6, math.nan):
        with pytest.raises(ValueError, match="log₂ ω of group 2 must be a number from -5 to 5"):
            numbers.as_setting(FISHER, 2, 5, (3, 5), (0.0, wrong))


# The command.


def needs_gradio() -> None:
    reason = "the page needs gradio: pip install 'diffurn[explore]'"
    pytest.importorskip("gradio", reason=reason, exc_type=ImportError)


def test_without_its_packages_the_command_says_what_to_install(tmp_path: Path) -> None:
    ended = diffurn_without(["gradio"], tmp_path, "explore")
    assert ended == Ended(2, "", "diffurn: the page needs gradio: pip install 'diffurn[explore]'\n")


def test_a_port_that_is_taken_is_refused_with_what_to_do() -> None:
    needs_gradio()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = CliRunner().invoke(
            app, ["explore", "--no-open", "--port", str(taken.getsockname()[1])]
        )
    assert result.exit_code == 2
    assert "choose another port, or 0 for any free one" in result.stderr


def test_only_this_machine_is_listened_to() -> None:
    with server.listen(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


# The page, as far as it goes without a browser.


def tab(name: str) -> Any:
    needs_gradio()
    return importlib.import_module(f"diffurn.explore.{name}_tab")


START = (FISHER, 3, 5, 3, 5, 4, 4, 4, 0.0, 1.0, -1.0, 2.0, -2.0)


def test_the_page_shows_a_panel_for_each_group_and_a_table() -> None:
    page = tab("urn")
    refusal, panels, merged = page.show_distribution(*START, 1000, 0)
    assert refusal["visible"] is False
    assert panels.count("<img") == 3
    assert "all at once" in merged
    chart = page.show_gradient(*START, "squared count", 2, 3, 0.5, 0)
    assert chart.count("<img") == 1
    assert "Gumbel, merged" in chart


def test_the_page_answers_an_impossible_urn_with_a_sentence() -> None:
    page = tab("urn")
    impossible = (START[0], START[1], 50, *START[3:])
    refusal, panels, merged = page.show_distribution(*impossible, 1000, 0)
    assert "50 balls cannot be drawn from an urn of 12" in refusal["value"]
    assert (panels, merged, page.show_gradient(*impossible, "count", 2, 3, 0.5, 0)) == ("", "", "")
    assert "τ must be a number from 0.05 to 2." in page.show_gradient(
        *START, "count", 2, 3, None, 0
    )
    assert (
        "The seed must be a whole number from 0 to"
        in page.show_distribution(*START, 1000, -1)[0]["value"]
    )


def test_an_interrupt_ends_the_server_cleanly() -> None:
    needs_gradio()
    command = [sys.executable, "-u", "-m", "diffurn", "explore", "--no-open", "--port", "0"]
    with interruptible(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "http://127.0.0.1:" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "stopped\n", "")


# Subsets.


def subset_laws_by_hand(weights: tuple[float, ...], k: int) -> tuple[Brute, Brute]:
    """Fisher's law by products of weights, Wallenius' by all orders in which items are taken."""
    items = range(len(weights))
    products = {s: math.prod(weights[i] for i in s) for s in itertools.combinations(items, k)}
    fisher = {s: mass / sum(products.values()) for s, mass in products.items()}
    wallenius: Brute = defaultdict(float)
    for order in itertools.permutations(items, k):
        mass, left = 1.0, sum(weights)
        for i in order:
            mass *= weights[i] / left
            left -= weights[i]
        wallenius[tuple(sorted(order))] += mass
    return fisher, wallenius


def test_laws_of_subsets_are_those_by_hand() -> None:
    choice = subsets.Choice((4.0, 2.0, 0.5, 1.0, 0.25), 3)
    found = subsets.laws_of(choice)
    fisher, wallenius = subset_laws_by_hand(choice.weights, choice.k)
    chosen = [tuple(row.nonzero().flatten().tolist()) for row in found.subsets]
    assert sorted(chosen) == sorted(fisher)
    for law, inclusion, by_hand in (
        (found.fisher, found.inclusion_fisher, fisher),
        (found.wallenius, found.inclusion_wallenius, wallenius),
    ):
        assert law.tolist() == pytest.approx([by_hand[s] for s in chosen], rel=1e-9)
        assert inclusion.tolist() == pytest.approx(
            [sum(p for s, p in by_hand.items() if i in s) for i in range(5)], rel=1e-9
        )
    assert subsets.entropy(found.fisher) == pytest.approx(
        -sum(p * math.log(p) for p in fisher.values())
    )


def test_gumbel_top_k_draws_are_wallenius() -> None:
    """Five standard errors in each of ten subsets: a false alarm in 200,000 seeds."""
    choice = subsets.Choice((4.0, 2.0, 0.5, 1.0, 0.25), 3)
    shares, law = subsets.top_k_shares(choice, 10_000, 0), subsets.laws_of(choice).wallenius
    assert ((shares - law).abs() < 5 * (law * (1 - law) / 10_000).sqrt()).all()
    assert torch.equal(subsets.top_k_shares(choice, 10_000, 0), shares)


def test_the_tab_of_subsets_shows_a_chart_and_a_table() -> None:
    page = tab("subsets")
    refusal, chart, listed = page.show_subsets(6, 3, *page.SCORES, 100, 0)
    assert refusal["visible"] is False
    assert (chart.count("<img"), listed.count("<tr>"), "20 subsets" in listed) == (1, 7, True)
    impossible = page.show_subsets(6, 3, 9.0, *page.SCORES[1:], 100, 0)
    assert "log₂ ω of item 1 must be a number from -5 to 5." in impossible[0]["value"]
    assert impossible[1:] == ("", "")


# The reader's own table.


def test_a_pasted_table_is_fitted() -> None:
    page = tab("table")
    shown = page.show_fit(page.EXAMPLE, FISHER, "Crew")
    assert shown.count("<img") == 1
    assert "711 of 2,201 drawn" in shown
    wide = "m_red;x_red;m_<b>;x_<b>\n5;3;9;2\n5;4;9;1\n"
    shown = page.show_fit(wide, WALLENIUS, "")
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown.replace("&lt;b&gt;", "")


@pytest.mark.parametrize(
    ("text", "model", "reference", "sentence"),
    [
        ("", FISHER, "", "the table: the file is empty"),
        ("m_a,x_a,m_b,x_b\n5,6,9,2\n", FISHER, "", "the table, line 2"),
        ("m_a,x_a,m_b,x_b\n5,3,9,2\n", FISHER, "c", "is not a group"),
        ("m_a,x_a,m_b,x_b\n5,3,9,2\n", "Poisson", "", "The model must be"),
        (5, FISHER, "", "The table must be a text of at most 50,000 characters."),
        ("x" * 50_001, FISHER, "", "The table must be a text of at most 50,000 characters."),
    ],
)
def test_a_table_that_cannot_be_fitted_gets_a_sentence(
    text: Any, model: str, reference: str, sentence: str
) -> None:
    shown = tab("table").show_fit(text, model, reference)
    assert sentence in shown
    assert "<img" not in shown
