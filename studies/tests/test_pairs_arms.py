"""The arms of the pairs study against the tables that were published for them."""

import json
import pkgutil
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path

import pytest

from diffurn_studies.pairs import arms
from diffurn_studies.pairs.methods import BEST, RIVALS, with_prior
from diffurn_studies.pairs.options import Options

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = {
    "random_sets": "pairs",
    "best": "pairs-best",
    "search": "pairs-search",
    "ablation": "pairs-ablation",
    "sprites": "pairs-sprites",
}
ARMS = sorted(module.name for module in pkgutil.iter_modules(arms.__path__))


def options(arm):
    return import_module(f"diffurn_studies.pairs.arms.{arm}").OPTIONS


def published(folder):
    content = json.loads((RESULTS / folder / "tables.json").read_text(encoding="utf-8"))
    return {table["title"]: table for table in content["tables"]}


def parts(label):
    """The name and the settings of a label. Older tables list the settings in another order."""
    name, _, details = label.rstrip(")").partition(" (")
    return name, frozenset(details.split(", "))


@pytest.mark.parametrize(("arm", "folder"), FOLDERS.items(), ids=FOLDERS)
def test_an_arm_has_the_methods_and_seeds_of_its_published_table(arm, folder):
    own, table = options(arm), published(folder)["Pairs: how many factors are shared?"]
    rows = [row for row in table["rows"] if not row[1].startswith("reference: ")]
    assert {parts(row[1]) for row in rows} == {parts(method.label) for method in own.methods}
    assert {row[0] for row in rows} - {"all"} == {str(shared) for shared in own.shared}
    seeds = "one seed" if own.seeds == 1 else f"of {own.seeds} seeds"
    assert f"{own.steps:,} steps; " in table["notes"][0]
    assert seeds in table["notes"][0]
    assert ("Sprites" in table["notes"][0]) == (own.dataset == "sprites")


@pytest.mark.parametrize(("arm", "folder"), FOLDERS.items(), ids=FOLDERS)
def test_an_arm_has_the_rates_of_its_published_runs(arm, folder):
    table = published(folder)["Pairs: every run"]
    columns = [table["columns"].index(symbol) for symbol in ("lr", "β")]
    rows = {(parts(row[1]), *(float(row[column]) for column in columns)) for row in table["rows"]}
    assert rows == {
        (parts(method.base.label), method.learning_rate, method.beta)
        for method in options(arm).methods
    }


def test_the_arm_speed_times_the_models_of_its_published_table():
    own, table = options("speed"), published("pairs-speed")["Pairs: run time"]
    # AdaVAE was added after the published run
    published_methods = [method.label for method in own.methods if method.kind != "adaptive"]
    assert [row[0] for row in table["rows"]] == published_methods
    assert {row[1] for row in table["rows"]} == {own.timed_models}


@pytest.mark.parametrize("arm", ARMS)
def test_the_options_of_an_arm_and_of_its_quick_version_are_plain_json(arm):
    for own in (options(arm), options(arm).quick()):
        assert json.loads(json.dumps(asdict(own)))["methods"]


def test_the_papers_arm_has_the_default_options_and_more_seeds():
    own, usual = asdict(options("paper")), asdict(Options())
    assert {name for name in own if own[name] != usual[name]} == {"seeds", "held"}
    assert (usual["sampler"], usual["steps"]) == ("fixed", 300_000)
    assert [method.label for method in Options().methods] == [
        "LabelVAE (by index)",
        "AdaVAE",
        "HGVAE",
    ]


@pytest.mark.parametrize("name", ["random", "fixed"])
def test_a_prior_is_chosen_on_seeds_that_no_judgement_sees(name):
    choice, judgement = options(f"prior_{name}"), options(f"kl_{name}")
    assert len({choice.seed, judgement.seed, options("search").seed}) == 3
    assert judgement.seeds >= 5
    assert set(choice.shared) < set(judgement.shared)
    assert (choice.sampler, choice.latent) == (judgement.sampler, judgement.latent)
    assert choice.sampler == ("fixed" if name == "fixed" else "exact")
    chosen = import_module(f"diffurn_studies.pairs.arms.kl_{name}").PRIOR
    assert with_prior(BEST, chosen) in choice.methods
    assert judgement.methods[:3] == (*RIVALS, with_prior(BEST, chosen))


@pytest.mark.parametrize("name", ["random", "fixed"])
def test_seven_latents_are_the_only_change_of_their_arm(name):
    assert options(f"kl_{name}_7") == replace(options(f"kl_{name}"), latent=7)


@pytest.mark.parametrize("name", ["kl_random", "kl_fixed", "random_s", "sprites_best"])
def test_baselines_have_the_rate_and_objective_of_the_best(name):
    methods = options(name).methods
    assert [method.kind for method in methods] == ["label", "adaptive", *["hypergeometric"] * 2]
    assert {(method.payment, method.learning_rate) for method in methods} == {("once", 1e-3)}
