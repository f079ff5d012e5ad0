"""The pairs study: its records, interrupted runs, and models that break down."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from diffurn.cli import app
from diffurn_studies.harness.engines import same_everywhere
from diffurn_studies.harness.pictures import unpacked
from diffurn_studies.harness.runner import Results, RunError, Workspace, run
from diffurn_studies.pairs import study as pairs
from diffurn_studies.pairs.methods import (
    ADAPTIVE,
    HYPERGEOMETRIC,
    LABEL,
    Hypergeometric,
    Method,
)
from diffurn_studies.pairs.options import Options, stacks
from diffurn_studies.pairs.stack import StackUnit, load_images, source_of, training_of
from diffurn_studies.pairs.study import units

pytest.importorskip(
    "sklearn", reason="scoring needs scikit-learn: pip install 'diffurn[experiments]'"
)

# a handful of pairs for forty places of the arm
pytestmark = pytest.mark.filterwarnings("ignore:The number of unique classes")

METHODS = (
    LABEL,
    replace(ADAPTIVE, payment="once", learning_rate=1e-3),
    HYPERGEOMETRIC,
    Method(Hypergeometric("covariance", "log1p"), payment="once", learning_rate=1e-3),
    Method(Hypergeometric(sorting="stochastic", prior="learned"), learning_rate=1e-2),
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
        sampler="exact",
    )


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory):
    out = tmp_path_factory.mktemp("pairs") / "run"
    return out, run(pairs, tiny, out)


def settings(models):
    """Method, s and seed of models in a record."""
    return [
        (Method.from_fields(model["method"]), model["shared"], model["seed"]) for model in models
    ]


def training(options):
    """The stack of s = 3 at its first step."""
    chosen = stacks(options)["s3"]
    source = source_of(options, load_images(options), chosen, torch.device("cpu"))
    return training_of(options, chosen, source, list(range(len(chosen))))


def test_training_comes_before_scoring(tiny):
    assert units(tiny) == ["train-s3", "train-srandom", "speed", "score-s3", "score-srandom"]
    assert {name: len(models) for name, models in stacks(tiny).items()} == {"s3": 10, "srandom": 10}
    assert units(replace(tiny, together=True)) == ["train-all", "speed", "score-all"]


def test_the_record_holds_every_model_with_its_course(finished, tiny):
    record = finished[1].records["train-s3"]
    assert record["factors"][0] == "object colour"
    assert settings(record["models"]) == stacks(tiny)["s3"]
    for model in record["models"]:
        assert model["label"] == Method.from_fields(model["method"]).label
        assert model["stopped_after"] is None
        assert model["curve"]["step"] == [3, 6]
        assert all(
            len(model["curve"][name]) == 2
            for name in ("loss", "reconstruction", "kl", "independent")
        )
        assert model["final"]["loss"] == pytest.approx(
            model["final"]["reconstruction"] + model["method"]["beta"] * model["final"]["kl"],
            rel=1e-4,
        )
        assert sum(model["final"]["counts"]["3"]) == 90
        assert len(model["final"]["profile"]) == tiny.latent + 1
        assert model["pictures"] is None  # they are large, so one unit has them
    label = record["models"][0]
    assert label["final"]["counts"]["3"][1] == 90
    assert label["final"]["profile"][1] == pytest.approx(
        label["final"]["loss"], rel=1e-4
    )  # its k is always 1


def test_models_with_an_urn_record_its_modes_and_means(finished):
    for model in finished[1].records["train-srandom"]["models"]:
        final = model["final"]
        method = Method.from_fields(model["method"])
        assert ("modes" in final) == ("means" in final) == (method.kind == "hypergeometric")
        if method.kind == "hypergeometric":
            pairs = {shared: sum(numbers) for shared, numbers in final["counts"].items()}
            assert {shared: sum(numbers) for shared, numbers in final["modes"].items()} == pairs
            for first, second in final["means"].values():
                assert 0 <= first <= 5
                assert first**2 <= second * (1 + 1e-5)
            learned = method.aggregation.prior == "learned"
            assert (final["log_prior"] is not None) == learned
            assert not learned or final["log_prior"] != 0


@pytest.mark.parametrize("latent", [7, 10])
def test_fixed_sets_train_with_seven_and_ten_latents(tiny, latent, tmp_path):
    own = replace(tiny, sampler="fixed", latent=latent, shared=(3,), seeds=1, timed_models=0)
    records = run(pairs, own, tmp_path).records
    for model in records["train-s3"]["models"]:
        assert sum(model["final"]["counts"]["3"]) == 90
        assert len(model["final"]["counts"]["3"]) == latent + 1
    for model in records["score-s3"]["models"]:
        by_factor = model["by_factor"]
        assert by_factor["shared"][3:] == [None] * 4
        assert by_factor["independent"][:3] == [None] * 3
        known = [score for score in by_factor["shared"][:3] if score is not None]
        assert model["shared_accuracy"] == pytest.approx(sum(known) / len(known))


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
    assert settings(scored) == stacks(tiny)["s3"]
    assert all(-1 <= model["whole_accuracy"] <= 1 for model in scored)
    with np.load(out / "files" / "train-s3" / "latents.npz") as kept:
        assert kept["means"].shape == (len(scored), 90, 2, tiny.latent)
        assert (kept["independent"][:2].sum(-1) == 1).all()  # LabelVAE
        assert (kept["shared"].sum(-1) == 3).all()
        assert ((kept["factors"][:, :, 0] == kept["factors"][:, :, 1]) == kept["shared"]).all()


def test_speed_is_measured_for_every_method(finished):
    speeds = finished[1].records["speed"]["methods"]
    assert [Method.from_fields(each["method"]) for each in speeds] == list(METHODS)
    assert all(each["milliseconds"] > 0 for each in speeds)


def test_tables_and_figures_come_out(finished):
    out, results = finished
    assert len(pairs.table(results)) >= 5
    assert {path.stem for path in (out / "figures").glob("*.png")} == set(pairs.figure(results))


def test_a_run_with_a_budget_goes_on_to_the_same_record(tiny, tmp_path):
    short = replace(
        tiny, shared=(3,), timed_models=0, methods=METHODS[-2:], seeds=1, evaluate_every=2
    )
    whole = run(pairs, short, tmp_path / "whole").records
    limited = replace(short, budget_seconds=0.0)
    for step in (2, 4):  # a budget that is used up stops at the next point of the curves
        message = f"after {step} of 6 steps: everything is saved, and the same command goes on"
        with pytest.raises(RunError, match=message):
            run(pairs, limited, tmp_path / "run")
    assert run(pairs, limited, tmp_path / "run").records == whole


def test_a_stack_goes_on_from_any_block_to_the_same_measures(tiny):
    whole, first, second = (training(tiny) for _ in range(3))
    for goal in (2, 3):
        whole.advance(goal)
    first.advance(2)
    second.load_state(first.state())
    second.advance(3)
    assert torch.equal(second.read_measures(), whole.read_measures())
    for mine, theirs in zip(second.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_broken_model_is_named_and_the_others_go_on(finished, tiny, tmp_path, capfd):
    options = replace(tiny, shared=(3,), timed_models=0)
    workspaces = {
        unit: Workspace(tmp_path, unit, torch.device("cpu")) for unit in ("train-s3", "score-s3")
    }
    with same_everywhere():
        stack = StackUnit(options, "s3", workspaces["train-s3"])
        stack.training.advance(3)
        stack.note_losses()
        with torch.no_grad():
            stack.training.model.importance.weight[5] = torch.nan
        trained = stack.run()
    assert (
        "HGVAE, s = 3, seed 1: broke down between steps 0 and 6; its last good checkpoint is that "
        "of step 0" in capfd.readouterr().err
    )
    broken, healthy = trained["models"][5], trained["models"][4]
    assert (broken["stopped_after"], broken["final"], broken["curve"]["step"]) == (6, None, [3])
    assert {**healthy, "pictures": None} == finished[1].records["train-s3"]["models"][4]
    scored = pairs.run_unit(options, "score-s3", workspaces["score-s3"])
    assert scored["models"][5]["whole_accuracy"] is None
    assert pairs.table(Results("pairs", options, {}, {"train-s3": trained, "score-s3": scored}))


def test_stacks_of_one_number_and_of_all_train_the_same_models(finished, tiny, tmp_path):
    some = replace(tiny, together=True, timed_models=0, methods=METHODS[::3], seeds=1)
    together = run(pairs, some, tmp_path / "run").records["train-all"]["models"]
    apart = [
        model
        for name in ("train-s3", "train-srandom")
        for model in finished[1].records[name]["models"]
    ]
    labels = [method.label for method in some.methods]
    others = [model for model in apart if model["label"] in labels and model["seed"] == 0]
    assert settings(together) == settings(others)
    for own, other in zip(together, others, strict=True):
        assert own["curve"]["loss"] == pytest.approx(other["curve"]["loss"], rel=1e-5)
        assert own["final"]["counts"].keys() == other["final"]["counts"].keys()


def test_missing_latents_are_named(tiny, tmp_path):
    short = replace(tiny, shared=(3,), timed_models=0, methods=(LABEL,), seeds=1)
    run(pairs, short, tmp_path / "run")
    (tmp_path / "run" / "files" / "train-s3" / "latents.npz").unlink()
    (tmp_path / "run" / "records" / "score-s3.json").unlink()
    with pytest.raises(RunError, match=r"latents\.npz, the latents to score, cannot be read"):
        run(pairs, short, tmp_path / "run")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"methods": (ADAPTIVE, ADAPTIVE)}, "methods are AdaVAE, AdaVAE, but .* each named once"),
        ({"methods": ()}, "methods are none, but must be at least one"),
        ({"shared": (1, 1)}, "shared are 1, 1, but"),
        ({"shared": (-2,)}, "shared holds -2, but must hold numbers of factors, or -1"),
        ({"seeds": 0}, "seeds is 0, but must be at least 1"),
        ({"test_pairs": 10, "score_train": 10}, "must be more than score_train, which is 10"),
    ],
)
def test_impossible_options_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Options(**fields)


def test_more_shared_factors_than_there_are_is_refused(tiny):
    with pytest.raises(RunError, match="shared is 8, but arm has 7 factors"):
        run(pairs, replace(tiny, shared=(8,)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["test_pairs=10", "score_train=10"], "must be more than score_train"),
        (["dataset=sprites"], "sprites needs the path"),
        (["dataset=sprites", "data=nowhere.npz"], "nowhere.npz is not there"),
    ],
)
def test_the_command_line_names_what_is_wrong(arguments, message, tmp_path):
    changes = [word for argument in arguments for word in ("--set", argument)]
    answer = CliRunner(env={"DIFFURN_DATA": None}).invoke(
        app, ["reproduce", "pairs", "--out", str(tmp_path / "run"), *changes]
    )
    assert answer.exit_code == 2, answer.output
    assert message in " ".join(answer.output.split())


def test_quick_options_keep_the_methods_and_raise_their_rates():
    options = Options(methods=(LABEL, HYPERGEOMETRIC, METHODS[1])).quick()
    assert [method.label for method in options.methods] == [
        "LabelVAE (lr 1e-3)",
        "HGVAE (lr 1e-3)",
        "AdaVAE (once, lr 1e-3)",
    ]
    assert options.shared == (1, 5)
    assert (options.seeds, options.steps, options.device) == (1, 400, "cpu")


@pytest.mark.slow
@pytest.mark.needs("C++")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised inside inductor
def test_a_compiled_step_is_the_same_step(tiny):
    plain, compiled = training(tiny), training(replace(tiny, compiled=True))
    for stack in (plain, compiled):
        stack.advance(3)
    for mine, theirs in zip(plain.model.parameters(), compiled.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
