"""The study of subsets: contenders against brute force, and the tables."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from diffurn.nn import SubsetSampler
from diffurn_studies.harness.runner import run
from diffurn_studies.harness.study import Results
from diffurn_studies.subsets import study as subsets
from diffurn_studies.subsets import toy
from diffurn_studies.subsets.contenders import (
    CONTENDERS,
    ImplicitLikelihood,
    MaximumOfConcretes,
    SfessCode,
    SimpleCode,
    StraightThrough,
    clamped_log_prob,
    gamma_sums,
    largest,
    perturbed,
)
from diffurn_studies.subsets.options import Options

TINY = Options(seeds=2, gradients=200, draws=2_000, timed_rows=2)
DOUBLE = torch.float64
# The seeds are fixed. A standard normal variate is beyond ±5 with probability 6e-7.
DEVIATIONS = 5.0
every_contender = pytest.mark.parametrize("name", CONTENDERS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("subsets") / "run"


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return run(subsets, TINY, folder)


def all_subsets(items: int, k: int) -> Tensor:
    chosen = torch.tensor(list(itertools.combinations(range(items), k)))
    return torch.zeros(len(chosen), items, dtype=DOUBLE).scatter(-1, chosen, 1.0)


# Contenders.


@every_contender
def test_draws_have_k_items_and_gradients_reach_the_logits(name: str) -> None:
    torch.manual_seed(1)
    contender = CONTENDERS[name](0.7)
    logits = torch.randn(5, 8, requires_grad=True)
    drawn = contender.draw(logits, 3, 4)
    assert drawn.shape == (4, 5, 8)
    assert ((drawn == 0) | (drawn == 1)).all()
    assert (drawn.sum(-1) <= 3).all()
    assert (drawn.sum(-1) == 3).all() or isinstance(contender, MaximumOfConcretes)
    loss = contender.expectation(lambda x: (x @ torch.arange(8.0)).square(), logits, 3, 4)
    assert loss.shape == ()
    (slope,) = torch.autograd.grad(loss, logits)
    assert slope.abs().sum() > 0


@every_contender
def test_a_loss_may_depend_on_several_subsets(name: str) -> None:
    torch.manual_seed(2)
    logits, items = torch.randn(6, 2, 7, requires_grad=True), torch.arange(7.0)
    loss = CONTENDERS[name]().expectation(lambda x: (x @ items).prod(-1), logits, 3, 4)
    (slope,) = torch.autograd.grad(loss, logits)
    assert slope.shape == (6, 2, 7)
    assert slope.isfinite().all()


def test_the_score_of_sfess_is_that_of_fishers_law_where_nothing_is_clamped() -> None:
    torch.manual_seed(3)
    logits, listed = torch.randn(7, dtype=DOUBLE), all_subsets(7, 3)
    exact = torch.log_softmax(listed @ logits, 0)
    assert (clamped_log_prob(logits, listed, 3) - exact).abs().max() < 1e-10


def test_the_clamped_normaliser_of_sfess_has_no_gradient() -> None:
    """log P(Binomial(784, ½) = 50) is −361; the code returns the logarithm of 2⁻²³."""
    exact = math.log(math.comb(784, 50)) - 784 * math.log(2)
    assert exact < -300
    logits = torch.zeros(784, dtype=DOUBLE, requires_grad=True)
    subset = (torch.arange(784) < 50).double()
    log_prob = clamped_log_prob(logits, subset, 50)
    assert log_prob.item() == pytest.approx(-784 * math.log(2) + 23 * math.log(2))
    (slope,) = torch.autograd.grad(log_prob, logits)
    assert (slope - (subset - 0.5)).abs().max() < 1e-12


def test_the_baseline_of_sfess_shortens_the_gradient() -> None:
    """For k = 1 both laws are the softmax, so nothing but the baseline is wrong."""
    torch.manual_seed(4)
    logits, prices = torch.tensor([0.5, -0.3, 0.1, 0.0], dtype=DOUBLE), torch.arange(4).double()
    p = torch.softmax(logits, -1)
    exact = p * (prices - p @ prices)
    rows, samples = 20_000, 4
    copies = logits.expand(rows, -1).clone().requires_grad_()
    loss = SfessCode().expectation(lambda x: x @ prices, copies, 1, samples)
    slopes = rows * torch.autograd.grad(loss, copies)[0]
    error = slopes.mean(0) - (1 - 1 / samples) * exact
    assert (error.abs() < DEVIATIONS * slopes.std(0) / math.sqrt(rows)).all()
    assert ((slopes.mean(0) - exact).abs() > 0.2 * exact.abs()).any()


def test_simples_code_has_the_exact_gradient_of_linear_losses() -> None:
    torch.manual_seed(5)
    logits, prices = torch.randn(6, dtype=DOUBLE, requires_grad=True), torch.randn(6, dtype=DOUBLE)
    listed = all_subsets(6, 3)
    value = torch.softmax(listed @ logits, 0) @ (listed @ prices)
    (exact,) = torch.autograd.grad(value, logits)
    loss = SimpleCode().expectation(lambda x: x @ prices, logits, 3, 4)
    (slope,) = torch.autograd.grad(loss, logits)
    assert (slope - exact).abs().max() < 1e-10


def test_imle_moves_each_item_by_the_gradient_of_its_own_loss() -> None:
    """The noise is the same for both subsets, and the number of items does not change the move."""
    logits = torch.randn(5, 6, dtype=DOUBLE, requires_grad=True)
    prices = torch.randn(6, dtype=DOUBLE)
    contender = ImplicitLikelihood(0.5)
    torch.manual_seed(6)
    loss = contender.expectation(lambda x: 0.3 * (x @ prices), logits, 2, 3)
    (slope,) = torch.autograd.grad(loss, logits)
    torch.manual_seed(6)
    noise = 0.5 * gamma_sums(logits, 2, 3)
    first = largest(logits + noise, 2)
    second = largest(logits - contender.step * 0.3 * prices + noise, 2)
    assert (slope - (first - second).mean(0) / (contender.step * 5)).abs().max() < 1e-12
    assert (first != second).any()


@pytest.mark.parametrize("k", [1, 5])
def test_the_sum_of_k_gamma_sums_is_nearly_a_gumbel_variate(k: int) -> None:
    torch.manual_seed(7)
    number = 50_000
    sums = gamma_sums(torch.zeros(k, dtype=DOUBLE), k, number).sum(-1)
    # Ten terms of the series of Euler's constant and of ζ(2).
    mean = math.fsum(1 / i for i in range(1, 11)) - math.log(10)
    variance = math.fsum(1 / i**2 for i in range(1, 11))
    assert abs(sums.mean() - mean) < DEVIATIONS * math.sqrt(variance / number)
    assert sums.var().item() == pytest.approx(variance, rel=0.1)


def test_straight_through_gradients_are_those_of_a_softmax() -> None:
    logits = torch.randn(6, dtype=DOUBLE, requires_grad=True)
    prices = torch.randn(6, dtype=DOUBLE)
    torch.manual_seed(8)
    loss = StraightThrough(0.5).expectation(lambda x: x @ prices, logits, 2, 3)
    (slope,) = torch.autograd.grad(loss, logits)
    torch.manual_seed(8)
    soft = 2 * torch.softmax(perturbed(logits, 3) / 0.5, -1)
    (wanted,) = torch.autograd.grad((soft @ prices).mean(), logits)
    assert (slope - wanted).abs().max() < 1e-12


# Small problems.


@pytest.mark.parametrize("size", toy.SIZES[:2], ids=lambda size: size.name)
@pytest.mark.parametrize("law", toy.LAWS)
def test_exact_gradients_are_those_of_differences(size: toy.Size, law: toy.Law) -> None:
    problem = toy.Problem.random(size, 1.0, torch.Generator().manual_seed(9))
    assert problem.subsets is not None
    step, towards = 1e-5, torch.linspace(-1, 1, size.items, dtype=DOUBLE)
    for name, loss in problem.losses.items():
        values = [
            SubsetSampler(size.k, law)
            .log_prob(problem.logits + sign * step * towards, listed)
            .exp()
            @ loss(listed)
            for sign in (1, -1)
            for listed in [problem.subsets]
        ]
        difference = (values[0] - values[1]) / (2 * step)
        assert abs(problem.gradient(name, law) @ towards - difference) < 1e-6


def test_the_distance_is_linear_so_large_problems_have_exact_gradients() -> None:
    problem = toy.Problem.random(toy.Size(8, 3), 1.0, torch.Generator().manual_seed(10))
    large = toy.Problem(problem.size, problem.logits, problem.losses, None)
    for law in toy.LAWS:
        difference = problem.gradient("distance", law) - large.gradient("distance", law)
        assert difference.abs().max() < 1e-9


def test_total_variation_is_known_of_draws_of_one_subset() -> None:
    problem = toy.Problem.random(toy.Size(5, 2), 1.0, torch.Generator().manual_seed(11))
    assert problem.subsets is not None
    probability = torch.softmax(problem.subsets @ problem.logits, 0)
    found = toy._total_variation(problem, problem.subsets[3].expand(10, -1), "fisher")
    assert found["variation"] == pytest.approx(1 - probability[3].item())
    empty = toy._total_variation(problem, torch.zeros(10, 5), "fisher")
    assert empty["variation"] == pytest.approx(1)


# The study.


def test_claims_of_the_layer_hold_on_tiny_problems_too(results: Results) -> None:
    verdicts = {row[0]: row[1] for row in subsets.table(results)[0].rows}
    assert verdicts["draws follow the law that is scored"] == "yes"
    assert verdicts["the mean score of the draws is zero"] == "yes"
    assert verdicts["unbiased estimators have no bias"] == "yes"
    assert verdicts["SFESS, its code: its mean score is zero"] == "no"
    assert verdicts["SIMPLE, its code: draws follow the law scored"] == "no"
    told = subsets.verdict(results)
    assert told[0].startswith("Ours: draws follow the law that is scored: yes (off on 0 of 20);")
    assert "draws follow the law scored: no" in told[1]
    assert re.search(r"smallest error for \d of 7 losses; \d are even", told[-1])


def test_few_contenders_have_tables_too() -> None:
    few = Options(contenders=("covariance", "l2x"), seeds=1, gradients=50, draws=200, timed_rows=1)
    results = run(subsets, few)
    assert len(subsets.table(results)) == 8
    assert len(subsets.verdict(results)) == 2


def test_tables_have_a_row_for_every_contender_and_the_figure_is_drawn(
    results: Results, folder: Path
) -> None:
    tables = {table.title: table for table in subsets.table(results)}
    for title in ("draws and scores", "gradients for 3 of 6", "time of a step"):
        assert len(tables[f"Subsets: {title}"].rows) == len(CONTENDERS)
    assert len(tables["Subsets: bias of every seed"].rows) == 7 * len(CONTENDERS)
    assert (folder / "figures" / "subsets-toy.png").stat().st_size > 10_000


def test_the_records_of_a_seed_repeat_themselves(results: Results) -> None:
    assert toy.run_seed(TINY, 1) == results.records["seed1"]


@pytest.mark.parametrize(
    "wrong", [{"contenders": ("simple",)}, {"samples": 1}, {"scale": 0.0}, {"gradients": 0}]
)
def test_impossible_options_are_refused_with_a_reason(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Options(**wrong)
