"""The tasks of the study of subsets: their data, losses and scores against formulas, and runs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from diffurn_studies.harness.records import RunError
from diffurn_studies.harness.runner import run
from diffurn_studies.harness.study import Results
from diffurn_studies.registry import STUDIES
from diffurn_studies.subsets import kuramoto, training, training_tables
from diffurn_studies.subsets import study as subsets
from diffurn_studies.subsets.contenders import CONTENDERS, Contender, Loss, largest
from diffurn_studies.subsets.options import TrainingOptions
from diffurn_studies.subsets.tasks import Parts, Task, parts_of, task_of

TINY = TrainingOptions(
    contenders=("gumbel-st", "covariance"),
    seeds=2,
    samples=2,
    steps=20,
    batch_size=8,
    rates=(0.01, 0.1),
    temperatures=(1.0,),
    tuning_steps=5,
    tuning_seeds=2,
    hidden=(16,),
    dataset="digits",
    repeats=3,
    timed_steps=2,
)
KINDS = {"pixels": 5, "pixels-each": 5, "vae": 2, "neighbours": 5}
ARMS = [arm for arm in STUDIES["subsets"].arm_names() if arm != "paper"]


class Certain(Contender):
    """Takes the k largest logits."""

    def expectation(self, f: Loss, logits: Tensor, k: int, samples: int) -> Tensor:
        return f(largest(logits, k).expand(samples, *logits.shape)).mean()


def options_of(task: Any) -> TrainingOptions:
    return replace(TINY, task=task, k=KINDS.get(task, 3), latents=4 if task == "vae" else 1)


@pytest.fixture
def equation() -> Parts:
    return parts_of(replace(TINY, task="regression"))


def made(task: str) -> Task:
    torch.manual_seed(1)
    options = options_of(task)
    return task_of(options, parts_of(options))


# The equation.


def test_the_simulation_solves_the_equation() -> None:
    """Its time derivative is a difference in time; the right-hand side knows space alone."""
    u, derivative = kuramoto.simulate()
    terms = kuramoto.terms_of(u)
    columns = [kuramoto.TERMS.index(term) for term in kuramoto.TRUE_TERMS]
    right_side = terms[:, columns] @ torch.tensor(list(kuramoto.TRUE_TERMS.values())).double()
    error = (derivative.flatten() - right_side).std() / derivative.std()
    assert error < 1e-3
    assert 1 < u.std() < 1.6  # it is not at rest


def test_terms_are_products_of_powers_and_derivatives() -> None:
    wave = 3 * 2 * math.pi / kuramoto.LENGTH
    x = kuramoto.LENGTH * torch.arange(kuramoto.POINTS).double() / kuramoto.POINTS
    found = dict(
        zip(kuramoto.TERMS, kuramoto.terms_of(torch.sin(wave * x).unsqueeze(0)).T, strict=True)
    )
    sine, cosine = torch.sin(wave * x), torch.cos(wave * x)
    wanted = {
        "1": torch.ones_like(x),
        "u²": sine**2,
        "u·u_x": wave * sine * cosine,
        "u_xx": -(wave**2) * sine,
        "u_xxxx": wave**4 * sine,
        "u³·u_xxxxx": wave**5 * sine**3 * cosine,
    }
    for term, values in wanted.items():
        assert (found[term] - values).abs().max() < 1e-6
    assert len(found) == 24


def test_the_right_terms_leave_only_the_noise(equation: Parts) -> None:
    task = task_of(replace(TINY, task="regression"), equation)
    columns = [kuramoto.TERMS.index(term) for term in kuramoto.TRUE_TERMS]
    solution = torch.linalg.lstsq(
        equation.train.inputs[:, columns], equation.train.answers.unsqueeze(-1)
    ).solution.flatten()
    with torch.no_grad():
        task.get_parameter("logits")[columns] = 5.0
        task.get_parameter("coefficients")[columns] = solution
        scores = task.scores(equation.test)
        loss = task.loss(Certain(), torch.arange(2000))
    assert scores["right terms"] == 3
    # Means of 7,680 and of 2,000 squares of normal variates, within five standard errors.
    assert scores["loss"] == pytest.approx(0.04, rel=5 * math.sqrt(2 / 7680) + 0.01)
    assert loss.item() == pytest.approx(0.04, rel=5 * math.sqrt(2 / 2000) + 0.01)


# Losses and scores.


@pytest.mark.parametrize("kind", ["pixels", "pixels-each"])
def test_a_classifier_sees_the_chosen_pixels_alone(kind: str) -> None:
    task, rows = made(kind), torch.arange(12)
    images, labels = task.parts.train.inputs[rows], task.parts.train.answers[rows]
    with torch.no_grad():
        if kind == "pixels":
            task.get_parameter("logits").copy_(torch.randn(64))
            scores = task.get_parameter("logits").expand(12, -1)
        else:
            scores = task.get_submodule("scorer")(images)
    seen = images.clone()
    for row in range(12):
        hidden = scores[row].argsort(descending=True)[5:]
        seen[row, hidden] = 0
    wanted = cross_entropy(task.get_submodule("classifier")(seen), labels)
    assert task.loss(Certain(), rows).item() == pytest.approx(wanted.item(), rel=1e-5)
    part = type(task.parts.train)(images, labels)
    with torch.no_grad():
        assert task.scores(part)["loss"] == pytest.approx(wanted.item(), rel=1e-5)


def test_the_bound_of_a_vae_is_an_error_and_a_divergence() -> None:
    task, rows = made("vae"), torch.arange(6)
    images = task.parts.train.inputs[rows]
    logits = task.get_submodule("encoder")(images).unflatten(-1, (4, 4))
    found = task.get_submodule("decoder")(largest(logits, 2).flatten(-2))
    error = binary_cross_entropy_with_logits(found, images, reduction="sum") / 6
    pairs = torch.combinations(torch.arange(4))
    log_prob = torch.log_softmax(logits[..., pairs].sum(-1), -1)
    divergence = (log_prob.exp() * (log_prob + math.log(6))).sum(-1).sum(-1).mean()
    wanted = (error + divergence).item()
    assert task.loss(Certain(), rows).item() == pytest.approx(wanted, rel=1e-5)


def test_the_loss_of_neighbours_is_their_share_of_another_class() -> None:
    task = made("neighbours")
    rows = torch.arange(4 + task.besides)
    with torch.no_grad():
        places = task.get_submodule("embedding")(task.parts.train.inputs[rows])
        labels = task.parts.train.answers[rows]
        shares = []
        for query in range(4):
            distances = (places[4:] - places[query]).square().sum(-1)
            nearest = distances.argsort()[:5]
            shares.append((labels[4:][nearest] == labels[query]).float().mean().item())
        assert task.loss(Certain(), rows).item() == pytest.approx(-sum(shares) / 4)


@pytest.mark.parametrize("kind", [*KINDS, "regression"])
@pytest.mark.parametrize("name", CONTENDERS)
def test_every_contender_trains_every_task(kind: str, name: str, equation: Parts) -> None:
    options = options_of(kind)
    parts = equation if kind == "regression" else parts_of(options)
    begun = training.Training(options, CONTENDERS[name](), 0.01, 0, parts, torch.device("cpu"))
    before = [parameter.clone() for parameter in begun.task.selector()]
    begun.advance(2)
    assert begun.step == 2
    for old, new in zip(before, begun.task.selector(), strict=True):
        assert new.isfinite().all()
        assert (old != new).any()
    assert (begun.variance() or 0) >= 0
    assert begun.scores("validation")["loss"] is not None


def test_contenders_start_from_the_same_weights_and_batches(equation: Parts) -> None:
    cpu = torch.device("cpu")
    options = replace(TINY, task="regression")
    pair = [
        training.Training(options, CONTENDERS[name](), 0.01, 3, equation, cpu)
        for name in ("imle", "covariance")
    ]
    for old, new in zip(*(each.task.parameters() for each in pair), strict=True):
        assert (old == new).all()
    assert (pair[0]._drawn(5) == pair[1]._drawn(5)).all()


# Runs.


def test_a_run_chooses_rates_and_makes_tables(tmp_path: Path) -> None:
    options = options_of("pixels")
    results = run(subsets, options, tmp_path / "run")
    tables = {table.title: table for table in subsets.table(results)}
    assert len(tables["Subsets, pixels, one mask: contenders"].rows) == 2
    for name in options.contenders:
        record = results.records[f"tune-{name}"]
        assert {each["rate"] for each in record["tried"]} == set(options.rates)
        best = min(record["tried"], key=lambda each: each["loss"])
        assert results.records[f"{name}-seed1"]["rate"] == best["rate"] == record["rate"]
    assert results.records["covariance-seed0"]["steps"] == list(range(2, 21, 2))
    assert (tmp_path / "run" / "figures" / "subsets-pixels.png").stat().st_size > 10_000
    told = subsets.verdict(results)
    assert told[0].startswith("Smallest test loss of the field: Gumbel top-k")
    assert told[2].endswith("the difference is of too few seeds to be judged.")
    assert "times as long as one by Gumbel top-k" in told[-1]


def test_the_discrete_vae_has_the_published_loss_beside_it() -> None:
    """From records written by hand; a loss that is not finite is a dash."""
    options = replace(
        STUDIES["subsets"].options("discrete-vae"), contenders=("covariance",), seeds=1
    )
    seed = {
        "test": {"loss": None, "loss by the mode": 171.0},
        "variance at the start": 0.5,
        "variance at the end": None,
    }
    records = {"covariance-seed0": seed, "speed": {"milliseconds": {"covariance": 1.5}}}
    table = training_tables.contenders(Results("subsets", options, {}, records))
    assert table.rows == [
        ["exact covariance (SIMPLE, its paper)", None, "171.00", "0.5", None, "1.50"]
    ]
    assert any("170.6" in note for note in table.notes)
    digits = STUDIES["subsets"].options("subset-vae-digits")
    digits = replace(digits, contenders=("covariance",), seeds=1)
    other = training_tables.contenders(Results("subsets", digits, {}, records))
    assert not any("170.6" in note for note in other.notes)


def test_a_missing_choice_is_explained(tmp_path: Path) -> None:
    options = replace(options_of("regression"), contenders=("covariance",), seeds=1)
    run(subsets, options, tmp_path / "run")
    (tmp_path / "run" / "files" / "tune-covariance" / "choice.json").unlink()
    (tmp_path / "run" / "records" / "covariance-seed0.json").unlink()
    with pytest.raises(RunError, match="delete the record of the unit tune-covariance"):
        run(subsets, options, tmp_path / "run")


def test_differences_are_judged_by_the_deviations_of_seeds() -> None:
    judged = training_tables._significance
    first = [1.0, 1.1, 0.9, 1.05, 0.95]
    assert judged(first, [x + 0.01 for x in first]).startswith("no more than chance")
    assert judged(first, [x + 1.0 for x in first]).startswith("more than chance")
    assert judged(first, first[:4]).startswith("of too few seeds")


@pytest.mark.parametrize("arm", ARMS)
def test_arms_have_a_quick_version_on_the_digits(arm: str) -> None:
    options = STUDIES["subsets"].options(arm)
    quick = options.quick()
    assert (quick.task, quick.dataset) == (options.task, "digits")
    assert quick.steps < 1000 <= options.steps
    assert quick.k < quick.latents or quick.task != "vae"
    assert json.dumps(subsets.units(options))


@pytest.mark.parametrize(
    "wrong",
    [{"rates": ()}, {"temperatures": (0.0,)}, {"hidden": ()}, {"noise": -1.0}, {"k": 0}],
)
def test_impossible_options_are_refused_with_a_reason(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(TINY, **wrong)
