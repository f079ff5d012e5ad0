"""The study of pairs: what a run records, that it can be interrupted, and what a model that breaks
down leaves.
"""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from diffurn.cli import app
from diffurn_studies.harness.pictures import unpacked
from diffurn_studies.harness.runner import RunError
from diffurn_studies.pairs import study as pairs
from diffurn_studies.pairs.study import Options, stacks, units
from diffurn_studies.pairs.training import PairTraining

pytest.importorskip(
    "sklearn", reason="scoring needs scikit-learn: pip install 'diffurn[experiments]'"
)

# a handful of pairs for forty places of the arm
pytestmark = pytest.mark.filterwarnings("ignore:The number of unique classes")

METHODS = (
    "label",
    "ada-once-lr1e-3",
    "hypergeometric",
    "hypergeometric-covariance-log1p-once-lr1e-3",
)


@pytest.fixture(scope="module")
def tiny():
    return Options(
        shared=(3, -1),
        methods=METHODS,
        seeds=2,
        steps=6,
        batch_size=4,
        channels=2,
        latent=5,
        annealing_steps=4,
        evaluate_every=3,
        test_pairs=90,
        score_train=60,
        timed_models=1,
        timed_steps=1,
        workers=1,
    )


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory):
    out = tmp_path_factory.mktemp("pairs") / "run"
    return out, pairs.run(tiny, out)


def test_training_comes_before_scoring(tiny):
    assert units(tiny) == ["train-s3", "train-srandom", "speed", "score-s3", "score-srandom"]
    assert {name: len(models) for name, models in stacks(tiny).items()} == {"s3": 8, "srandom": 8}
    assert units(replace(tiny, together=True)) == ["train-all", "speed", "score-all"]


def test_the_record_holds_every_model_with_its_course(finished, tiny):
    record = finished[1].records["train-s3"]
    assert record["factors"][0] == "object colour"
    assert [
        (model["method"], model["shared"], model["seed"]) for model in record["models"]
    ] == stacks(tiny)["s3"]
    for model in record["models"]:
        assert model["shared"] == 3
        assert model["stopped_after"] is None
        assert model["curve"]["step"] == [3, 6]
        assert all(
            len(model["curve"][name]) == 2
            for name in ("loss", "reconstruction", "kl", "independent")
        )
        assert model["final"]["loss"] == pytest.approx(
            model["final"]["reconstruction"] + model["beta"] * model["final"]["kl"], rel=1e-4
        )
        assert sum(model["final"]["counts"]["3"]) == 90
        assert len(model["final"]["profile"]) == tiny.latent + 1
        assert model["pictures"] is None  # they are large, so one unit has them
    label = record["models"][0]
    assert label["final"]["counts"]["3"][1] == 90
    assert label["final"]["profile"][1] == pytest.approx(
        label["final"]["loss"], rel=1e-4
    )  # its k is always 1


def test_pictures_are_kept_of_the_first_seed(finished, tiny):
    for model in finished[1].records["train-srandom"]["models"]:
        assert (model["pictures"] is None) == (model["seed"] != 0)
        if model["pictures"]:
            pictured = unpacked(model["pictures"]["pairs"], 64, 64).reshape(6, 2, 2, 64, 64, 3)
            assert pictured[:, 0].std() > 20  # the originals, scenes
            assert pictured[:, 1].std() < 20  # what untrained models make of them: grey
            assert unpacked(model["pictures"]["traversals"], 64, 64).shape[0] == tiny.latent * 7


def test_random_numbers_of_shared_factors_are_counted_apart(finished):
    model = finished[1].records["train-srandom"]["models"][0]
    assert model["shared"] is None
    counts = model["final"]["counts"]
    assert set(counts) <= {str(shared) for shared in range(1, 7)}
    assert len(counts) > 1
    assert sum(map(sum, counts.values())) == 90


def test_methods_share_start_pairs_and_noise_of_a_seed(finished):
    """LabelVAE and HGVAE of one seed differ in k̂ alone, so their first losses are nearly equal;
    another seed's are not.
    """
    models = finished[1].records["train-s3"]["models"]
    label, other_seed, urn = models[0], models[1], models[4]
    assert urn["curve"]["reconstruction"][0] == pytest.approx(
        label["curve"]["reconstruction"][0], rel=1e-3
    )
    assert (
        abs(other_seed["curve"]["reconstruction"][0] / label["curve"]["reconstruction"][0] - 1)
        > 1e-6
    )


def test_scores_are_of_the_latents_that_training_kept(finished, tiny):
    out, results = finished
    scored = results.records["score-s3"]["models"]
    assert [(model["method"], model["shared"], model["seed"]) for model in scored] == stacks(tiny)[
        "s3"
    ]
    assert all(-1 <= model["whole_accuracy"] <= 1 for model in scored)
    with np.load(out / "files" / "train-s3" / "latents.npz") as kept:
        assert kept["means"].shape == (8, 90, 2, tiny.latent)
        assert (kept["independent"][:2].sum(-1) == 1).all()  # LabelVAE
        assert (kept["shared"].sum(-1) == 3).all()
        assert ((kept["factors"][:, :, 0] == kept["factors"][:, :, 1]) == kept["shared"]).all()


def test_speed_is_measured_for_every_method(finished):
    speeds = finished[1].records["speed"]["milliseconds"]
    assert list(speeds) == list(METHODS)
    assert all(value > 0 for value in speeds.values())


def test_tables_and_figures_come_out(finished):
    out, results = finished
    assert len(pairs.table(results)) >= 5
    assert {path.stem for path in (out / "figures").glob("*.png")} == set(pairs.figure(results))


def test_a_run_with_a_budget_goes_on_to_the_same_record(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("diffurn_studies.stacked.training.BLOCK", 2)
    short = replace(tiny, shared=(3,), timed_models=0, methods=METHODS[-2:], seeds=1)
    whole = pairs.run(short, tmp_path / "whole").records
    limited = replace(short, budget_seconds=0.0)
    stops = 0
    for _ in range(10):
        try:
            records = pairs.run(limited, tmp_path / "run").records
            break
        except RunError as stopped:
            stops += 1
            assert "the same command goes on" in str(stopped)  # noqa: PT017 (it ends without an error at last)
    assert stops > 0
    assert records == whole


def test_a_model_that_breaks_down_names_step_setting_and_checkpoint_and_the_others_go_on(
    finished, tiny, tmp_path, monkeypatch, capfd
):
    advance = PairTraining.advance

    def breaks(training, goal):
        if training.step > 0 and bool(training.active[5]):
            with torch.no_grad():
                training.model.importance.weight[5] = torch.nan
        return advance(training, goal)

    monkeypatch.setattr(PairTraining, "advance", breaks)
    results = pairs.run(replace(tiny, shared=(3,), timed_models=0), tmp_path / "run")
    said = capfd.readouterr().err
    assert (
        "method='hypergeometric', shared=3, seed=1) broke down between steps 0 and 6; its last "
        "good checkpoint is that of step 0" in said
    )
    broken, healthy = (
        results.records["train-s3"]["models"][5],
        results.records["train-s3"]["models"][4],
    )
    assert (broken["stopped_after"], broken["final"], broken["curve"]["step"]) == (6, None, [3])
    assert results.records["score-s3"]["models"][5]["whole_accuracy"] is None
    assert {**healthy, "pictures": None} == finished[1].records["train-s3"]["models"][4]
    assert pairs.table(results)


def test_stacks_of_one_number_and_of_all_train_the_same_models(finished, tiny, tmp_path):
    some = replace(tiny, together=True, timed_models=0, methods=METHODS[::3], seeds=1)
    together = pairs.run(some, tmp_path / "run").records["train-all"]["models"]
    apart = [
        model
        for name in ("train-s3", "train-srandom")
        for model in finished[1].records[name]["models"]
    ]
    others = [model for model in apart if model["method"] in some.methods and model["seed"] == 0]
    for own, other in zip(together, others, strict=True):
        assert (own["method"], own["shared"], own["seed"]) == (
            other["method"],
            other["shared"],
            other["seed"],
        )
        assert own["curve"]["loss"] == pytest.approx(other["curve"]["loss"], rel=1e-5)
        assert own["final"]["counts"].keys() == other["final"]["counts"].keys()


def test_missing_latents_are_named(tiny, tmp_path):
    short = replace(tiny, shared=(3,), timed_models=0, methods=("label",), seeds=1)
    pairs.run(short, tmp_path / "run")
    (tmp_path / "run" / "files" / "train-s3" / "latents.npz").unlink()
    (tmp_path / "run" / "records" / "score-s3.json").unlink()
    with pytest.raises(RunError, match=r"latents\.npz, the latents to score, cannot be read"):
        pairs.run(short, tmp_path / "run")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["methods=label,vae"], "no method 'vae'"),
        (["methods=ada,ada"], "each named once"),
        (["shared=8"], "shared is 8, but arm has 7 factors"),
        (["shared=-2"], "not -2"),
        (["test_pairs=10", "score_train=10"], "must be more than score_train"),
        (["dataset=sprites"], "sprites needs the path"),
        (["dataset=sprites", "data=nowhere.npz"], "nowhere.npz is not there"),
    ],
)
def test_the_command_line_names_what_is_wrong(arguments, message, tmp_path, monkeypatch):
    monkeypatch.delenv("DIFFURN_DATA", raising=False)
    settings = [word for argument in arguments for word in ("--set", argument)]
    answer = CliRunner().invoke(
        app, ["reproduce", "pairs", "--out", str(tmp_path / "run"), *settings]
    )
    assert answer.exit_code == 2, answer.output
    assert message in " ".join(answer.output.split())


def test_options_are_plain_json():
    for options in (Options(), Options.quick()):
        json.dumps(asdict(options))


@pytest.mark.slow
@pytest.mark.needs("C++")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of inductor's own making
def test_a_compiled_step_is_the_same_step(tiny):
    from diffurn_studies.pairs.study import _images, _source, _training

    def parameters(options):
        chosen = stacks(options)["s3"]
        source = _source(options, _images(options), chosen, torch.device("cpu"))
        training = _training(options, chosen, source, list(range(len(chosen))))
        training.advance(3)
        return [parameter.detach() for parameter in training.model.parameters()]

    for mine, theirs in zip(
        parameters(tiny), parameters(replace(tiny, compiled=True)), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
