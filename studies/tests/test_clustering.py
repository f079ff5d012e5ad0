"""The clustering study: its scores against scikit-learn's, training that can break down and resume,
and what a run records.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from test_images import idx
from typer.testing import CliRunner

from diffurn.cli import app
from diffurn.estimators import ExponentialAnnealing
from diffurn_studies.clustering import study as clustering
from diffurn_studies.clustering.options import Options
from diffurn_studies.clustering.priors import Categorical, Hypergeometric, Prior, Uniform
from diffurn_studies.clustering.records import models_of, version_name
from diffurn_studies.clustering.scores import confusion, correlation, score
from diffurn_studies.clustering.stack import members
from diffurn_studies.clustering.training import Schedule, Training, assigned_clusters
from diffurn_studies.clustering.vade import VaDE
from diffurn_studies.harness.errors import RunError
from diffurn_studies.harness.run_directory import RunDirectory, Settings
from diffurn_studies.harness.runner import run
from diffurn_studies.registry import STUDIES
from diffurn_studies.stacked.steps import Batches

PRIORS = (
    Uniform(),
    Categorical(),
    Hypergeometric(),
    Hypergeometric(2, shares="mean", counts="expected", law="assignments"),
)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten patterns of 6 × 6 pixels with some noise, in the files of Fashion-MNIST."""
    folder = tmp_path_factory.mktemp("pictures")
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(0, 2, (10, 6, 6), generator=generator)
    for part, number in (("train", 600), ("t10k", 200)):
        labels = torch.arange(number) % 10
        flipped = torch.rand(number, 6, 6, generator=generator) < 0.05
        images = (patterns[labels] ^ flipped.long()) * 255
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    return folder


@pytest.fixture(scope="module")
def tiny(pictures: Path) -> Options:
    pytest.importorskip("sklearn")
    return Options(
        dataset="fashion-mnist",
        data=str(pictures),
        versions=(1.0, 0.6),
        priors=PRIORS,
        seeds=1,
        epochs=6,
        batch_size=40,
        widths=(16, 16),
        latent=4,
        evaluate_every=4,
        layer_epochs=5,
        joint_epochs=15,
    )


@pytest.fixture(scope="module")
def finished(tiny: Options, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    out = tmp_path_factory.mktemp("run") / "whole"
    return out, run(clustering, tiny, out)


def test_scores_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    labels, clusters = torch.randint(0, 6, (3, 400)), torch.randint(0, 6, (3, 400))
    clusters[0] = (labels[0] + 1) % 6
    clusters[1, :200] = labels[1, :200]
    for s in range(3):
        table = confusion(clusters[s : s + 1], labels[s], 6)[0]
        found = score(table)
        assert found.nmi == pytest.approx(
            metrics.normalized_mutual_info_score(labels[s], clusters[s]), abs=1e-12
        )
        assert found.ari == pytest.approx(
            metrics.adjusted_rand_score(labels[s], clusters[s]), abs=1e-12
        )
    assert score(confusion(clusters[:1], labels[0], 6)[0]).accuracy == 1.0


def test_accuracy_is_that_of_the_best_matching() -> None:
    from itertools import permutations

    clusters, labels = torch.randint(0, 5, (1, 60)), torch.randint(0, 5, (60,))
    best = max(
        float((torch.tensor(order)[clusters[0]] == labels).double().mean())
        for order in permutations(range(5))
    )
    found = score(confusion(clusters, labels, 5)[0])
    assert found.accuracy == pytest.approx(best)
    assert float(
        (torch.tensor(found.classes)[clusters[0]] == labels).double().mean()
    ) == pytest.approx(best)


def test_one_cluster_for_all_scores_nothing_but_its_class() -> None:
    found = score(confusion(torch.zeros(1, 40, dtype=torch.int64), torch.arange(40) % 4, 4)[0])
    assert found.accuracy == 0.25
    assert found.nmi == pytest.approx(0, abs=1e-12)
    assert found.ari == pytest.approx(0, abs=1e-12)


def test_correlation_is_pearsons() -> None:
    first, second = torch.randn(10), torch.randn(10)
    assert correlation(first, second) == pytest.approx(
        float(torch.corrcoef(torch.stack([first, second]))[0, 1])
    )
    assert correlation(first, torch.ones(10)) == 0.0


def test_the_learning_rate_falls_as_vades_does() -> None:
    schedule = Schedule(0.002, 0.9, 100, 2e-4, ExponentialAnnealing(1.0, 0.5, 10))
    assert [schedule.rate(step) for step in (0, 99, 100, 10**6)] == pytest.approx(
        [0.002, 0.002, 0.0018, 2e-4]
    )
    constant = Schedule(1e-4, 1.0, 100, 2e-4, ExponentialAnnealing(1.0, 0.5, 10))
    assert constant.rate(12345) == pytest.approx(1e-4)


def small_training(
    priors: tuple[Prior, ...] = PRIORS,
    compiled: bool = False,
    half: bool = False,
    held_steps: int = 0,
) -> Training:
    torch.manual_seed(1)
    images = torch.randint(0, 256, (100, 9), dtype=torch.uint8)
    model = VaDE(priors, 9, (8, 8), 3, 4, 20, fused=compiled)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    batches = Batches([torch.arange(100)] * len(priors), list(range(len(priors))), 20, 128, 3, 4)
    schedule = Schedule(1e-2, 1.0, 1, 0.0, ExponentialAnnealing(1.0, 0.5, 10), held_steps)
    return Training(model, images, batches, schedule, compiled, half)


def parameters_of(training: Training) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in training.model.parameters()]


def test_training_lowers_the_loss_of_every_model() -> None:
    training = small_training()
    training.advance(10)
    first = training.read_measures()[:, 0]
    for goal in (110, 200):
        assert training.advance(goal) == []
        last = training.read_measures()[:, 0]
    assert (last < first - 0.2).all()
    assert assigned_clusters(training.model, training.images, chunk=30).shape == (len(PRIORS), 100)


def test_cluster_weights_stay_as_long_as_they_are_held() -> None:
    training = small_training(held_steps=20)
    start, means = (
        training.model.log_weights.detach().clone(),
        training.model.means.detach().clone(),
    )
    training.advance(20)
    assert torch.equal(training.model.log_weights, start)
    assert not torch.equal(training.model.means, means)
    training.advance(40)
    moved = (training.model.log_weights != start).all(1)
    assert moved.tolist() == [prior.learned for prior in PRIORS]


def test_a_model_that_breaks_down_stops_and_the_others_do_not_notice() -> None:
    healthy, injured = small_training(), small_training()
    for training in (healthy, injured):
        training.advance(5)
    with torch.no_grad():
        injured.model.encoder[0].weight[1, 0, 0] = torch.nan
    healthy.advance(10)
    broken = injured.advance(10)
    assert broken == [1]
    assert injured.active.tolist() == [True, False, True, True]
    stopped = parameters_of(injured)
    again = injured.advance(20)
    healthy.advance(20)
    assert again == []
    for own, before, other in zip(
        parameters_of(injured), stopped, parameters_of(healthy), strict=True
    ):
        assert torch.equal(own[1], before[1])
        assert own[1].isfinite().all()
        assert torch.equal(own[[0, 2, 3]], other[[0, 2, 3]])


def test_a_models_training_does_not_depend_on_its_neighbours() -> None:
    many, two = small_training(), small_training(PRIORS[:2])
    with torch.no_grad():
        for mine, theirs in zip(two.model.parameters(), many.model.parameters(), strict=True):
            mine.copy_(theirs[:2])
    many.advance(40)
    two.advance(40)
    for mine, theirs in zip(two.model.parameters(), many.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs[:2])


@pytest.mark.parametrize("half", [False, True])
def test_training_resumes_bit_for_bit(half: bool) -> None:
    whole, part = small_training(half=half), small_training(half=half)
    for goal in (7, 30, 31):
        whole.advance(goal)
        part.advance(goal)
    resumed = small_training(half=half)
    resumed.advance(3)
    resumed.load_state(part.state())
    whole.advance(60)
    resumed.advance(60)
    for mine, theirs in zip(parameters_of(resumed), parameters_of(whole), strict=True):
        assert torch.equal(mine, theirs)


def test_networks_in_half_precision_move_as_those_in_full_precision() -> None:
    start, full, half = small_training(), small_training(), small_training(half=True)
    full.advance(5)
    half.advance(5)
    for before, mine, theirs in zip(
        parameters_of(start), parameters_of(half), parameters_of(full), strict=True
    ):
        assert (mine - theirs).norm() <= 0.3 * (
            theirs - before
        ).norm()  # Adam makes much of the signs of small gradients


@pytest.mark.slow
@pytest.mark.needs("C++")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of inductor's own making
@pytest.mark.parametrize(("half", "tolerance"), [(False, 1e-4), (True, 0.3)])
def test_a_compiled_step_is_the_same_step(half: bool, tolerance: float) -> None:
    plain, compiled = small_training(half=half), small_training(compiled=True, half=half)
    starts = [parameter.clone() for parameter in parameters_of(plain)]
    plain.advance(3)
    compiled.advance(3)
    for before, mine, theirs in zip(
        starts, parameters_of(plain), parameters_of(compiled), strict=True
    ):
        assert (mine - theirs).norm() <= tolerance * (theirs - before).norm()


def test_the_record_holds_every_model_with_its_course(
    finished: tuple[Path, Any], tiny: Options
) -> None:
    _, results = finished
    models = models_of(results.records)
    counts = {
        name: parts
        for record in results.records.values()
        for name, parts in record["class_counts"].items()
    }
    assert [(m["version"], m["prior"], m["seed"]) for m in models] == [
        (member.version, str(member.prior), member.seed)
        for version in tiny.versions
        for member in members(tiny, version)
    ]
    for model in models:
        assert model["epochs"] == [0, 4, 6]
        assert len(model["accuracy"]) == len(model["elbo"]) == 3
        assert model["elbo"][0] is None
        final = model["final"]
        assert sum(final["sizes"]) == sum(counts[version_name(model["version"])]["test"])
        assert sum(final["weights"]) == pytest.approx(1, abs=1e-5)
        assert sum(final["shares"]) == pytest.approx(1, abs=1e-5)
        assert sorted(final["classes"]) == list(range(10))
        assert model["stopped_after"] is None
    assert counts["subsampled 60 %"]["train"] == [36] * 5 + [60] * 5
    assert counts["subsampled 60 %"]["test"] == [12] * 5 + [20] * 5
    starts = {(m["version"], m["accuracy"][0]) for m in models}
    assert len(starts) == 2  # the priors of a version start from the same mixture


def released_weights(path: Path) -> str:
    """An npz in the layout of VaDE's autoencoder, with random weights."""
    generator, sizes = torch.Generator().manual_seed(1), (36, 16, 16, 4)
    arrays = {}
    for half, layers in (("encoder", sizes), ("decoder", sizes[::-1])):
        for number, (into, out) in enumerate(itertools.pairwise(layers), start=1):
            weight = torch.randn(into, out, generator=generator) / into**0.5
            arrays |= {f"{half}{number}_W": weight.numpy(), f"{half}{number}_b": np.zeros(out)}
    np.savez(path, **arrays)
    return str(path)


def test_what_the_paper_leaves_open_is_an_option(tiny: Options, tmp_path: Path) -> None:
    options = replace(
        tiny,
        pretrained=released_weights(tmp_path / "weights.npz"),
        versions=(0.6,),
        reduced=(1, 3, 5, 7, 9),
        priors=(Hypergeometric(balls=2),),
        seeds=2,
        epochs=2,
        one_mixture=True,
        mixture_fits=2,
        decay=0.5,
        decay_epochs=1,
        smallest_rate=1e-6,
    )
    results = run(clustering, options, tmp_path / "run")
    record = results.records["kept-60"]
    assert record["class_counts"]["subsampled 60 %"]["train"] == [60, 36] * 5
    first, second = record["models"]
    assert first["accuracy"][0] == second["accuracy"][0]  # one mixture
    assert first["elbo"][-1] != second["elbo"][-1]  # other batches and noise
    comparison, claim, _ = clustering.table(results)
    assert any("Reduced classes: 1, 3, 5, 7, 9" in note for note in comparison.notes)
    assert "mixture of seed 0" in comparison.notes[0]
    assert "the likeliest of 2" in comparison.notes[0]
    assert dict(zip(claim.columns, claim.rows[0], strict=True))["reduced classes (%)"] == "37.5"


def test_seeds_have_mixtures_of_their_own_unless_told_otherwise(
    tiny: Options, tmp_path: Path
) -> None:
    options = replace(
        tiny,
        pretrained=released_weights(tmp_path / "weights.npz"),
        versions=(1.0,),
        priors=(Uniform(),),
        seeds=3,
        epochs=1,
    )
    models = run(clustering, options, tmp_path / "run").records["kept-100"]["models"]
    assert len({model["accuracy"][0] for model in models}) > 1


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"reduced": ()}, "reduced are"),
        ({"reduced": (3, 10)}, "classes from 0 to 9"),
        ({"one_mixture": True}, "one_mixture needs pretrained"),
        ({"decay_epochs": 0}, "decay_epochs is 0"),
        ({"mixture_fits": 0}, "mixture_fits is 0"),
    ],
)
def test_impossible_choices_are_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Options(**wrong)


def test_tables_and_figures_come_out(finished: tuple[Path, Any]) -> None:
    out, results = finished
    tables = clustering.table(results)
    assert [len(table.rows) for table in tables] == [8, 8, 8]
    versions, priors = len({row[0] for row in tables[0].rows}), [str(prior) for prior in PRIORS]
    ahead = {row[1]: row[2] for row in tables[1].rows[-len(PRIORS) :]}  # of the last version
    told = clustering.verdict(results)  # no figure of the paper is of this data set
    assert versions == 2
    assert [sentence.split(" prior reaches")[0] for sentence in told] == [
        f"The {prior}" for prior in priors[2:]
    ]
    for prior, sentence in zip(priors[2:], told, strict=True):
        points = str(ahead[prior]).replace("-", "−")
        assert sentence.endswith(f", {points} points against the categorical prior.")
    figures = clustering.figure(results)
    assert all(isinstance(figure, Figure) for figure in figures.values())
    assert {path.stem for path in (out / "figures").glob("*.png")} == set(figures)


def test_a_run_with_a_budget_goes_on_to_the_same_record(
    finished: tuple[Path, Any], tiny: Options, tmp_path: Path
) -> None:
    limited = replace(tiny, budget_seconds=0.0)
    for _ in range(30):
        try:
            results = run(clustering, limited, tmp_path / "run")
            break
        except RunError as stopped:
            assert "the same command goes on" in str(stopped)  # noqa: PT017 (it ends without an error at last)
    assert results.records == finished[1].records


def test_a_model_that_broke_down_is_noted_and_the_run_ends_well(
    tiny: Options, tmp_path: Path
) -> None:
    """The third model of each stack breaks down: its checkpoint is given a mean that is NaN."""
    for version in tiny.versions:
        checkpoint = tmp_path / "run" / "checkpoints" / f"kept-{100 * version:g}.pt"
        while not checkpoint.exists():
            with pytest.raises(RunError, match="the same command goes on"):
                run(clustering, replace(tiny, budget_seconds=0.0), tmp_path / "run")
        saved = torch.load(checkpoint)
        saved["state"]["training"]["model"]["means"][2] = torch.nan
        torch.save(saved, checkpoint)
    results = run(clustering, tiny, tmp_path / "run")
    models = models_of(results.records)
    assert [model["stopped_after"] is not None for model in models] == [
        number in (2, 6) for number in range(8)
    ]
    assert "broke down" in str(clustering.table(results)[-1].rows[2])
    assert models[2]["final"] is not None


def test_the_command_line_names_what_is_missing(tmp_path: Path) -> None:
    def refused(*arguments: str) -> str:
        answer = CliRunner().invoke(
            app, ["reproduce", "clustering", "--out", str(tmp_path / "run"), *arguments]
        )
        assert answer.exit_code == 2, answer.output
        return answer.output

    assert "train-images" in refused("--set", f"data={tmp_path}")
    assert "the option priors cannot be set on the command line" in refused(
        "--set", "priors=uniform"
    )
    assert "choose one of paper, assignments, beyond" in refused("--arm", "kounts")
    assert "share" in refused("--set", "versions=1.0,1.5")


def test_the_default_options_are_45_models_of_three_versions() -> None:
    assert sum(len(members(Options(), version)) for version in Options().versions) == 45
    assert clustering.units(Options()) == ["kept-100", "kept-80", "kept-60"]


@pytest.mark.parametrize("arm", STUDIES["clustering"].arm_names())
def test_every_arm_is_plain_json_and_names_each_prior_once(arm: str) -> None:
    options = STUDIES["clustering"].options(arm)
    for own in (options, options.quick()):
        written = Settings.of("clustering", arm, own, clustering.units(own))
        json.dumps(written, allow_nan=False)
        assert len(set(written.options["priors"])) == len(own.priors)


def test_the_quick_options_of_the_paper_are_those_of_the_digits() -> None:
    quick = Options().quick()
    assert (quick.dataset, quick.versions, quick.seeds, quick.epochs) == (
        "digits",
        (1.0, 0.6),
        2,
        100,
    )
    assert quick.priors == Options().priors
    assert STUDIES["clustering"].options("beyond").quick().held_epochs == 60


def test_a_run_of_the_old_command_line_is_resumed_by_its_arm(tmp_path: Path) -> None:
    """Before there were arms, ``--set priors=hypergeometric-merged`` wrote these options."""
    options = STUDIES["clustering"].options("counts-merged")
    old = {**Settings.of("clustering", None, options, []).options, "data": "mnist"}
    assert old["priors"] == ["hypergeometric-merged"]
    content = {
        "format": 1,
        "experiment": "clustering",
        "options": old,
        "units": ["kept-100", "kept-80", "kept-60"],
    }
    (tmp_path / "options.json").write_text(json.dumps(content))
    wanted = Settings.of("clustering", "counts-merged", options, clustering.units(options))
    RunDirectory(tmp_path).claim(wanted, options.FREE)
