"""The tables of the pairs study, from records whose answers are worked out by hand."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from pair_records import (
    ONCE,
    SMALL,
    ablated,
    counts,
    options,
    row,
    scored,
    scores_of,
    titled,
    train_record,
    trained,
    with_urns,
)
from scipy.optimize import minimize_scalar
from scipy.stats import hypergeom, nchypergeom_fisher

from diffurn_studies.harness.tables import Table
from diffurn_studies.pairs.figure import figures
from diffurn_studies.pairs.methods import ADAPTIVE, HYPERGEOMETRIC, LABEL, ORACLE
from diffurn_studies.pairs.records import ablations, joined
from diffurn_studies.pairs.references import floor
from diffurn_studies.pairs.tables import tables


def test_every_model_is_joined_with_its_own_score() -> None:
    models = joined(
        SMALL
        | {"score-s3": scores_of(SMALL, {"LabelVAE": 0.1, "AdaVAE": 0.2, "HGVAE": 0.3})["score-s3"]}
    )
    found = {(model["method"], model["shared"]): model["independent_accuracy"] for model in models}
    assert found == {
        (LABEL, 0): None,
        (ADAPTIVE, 0): None,
        (HYPERGEOMETRIC, 0): None,
        (LABEL, 3): 0.1,
        (ADAPTIVE, 3): 0.2,
        (HYPERGEOMETRIC, 3): 0.3,
    }


def test_a_score_of_another_learning_rate_is_not_taken() -> None:
    model = trained(ADAPTIVE, 3, counts(k4=1))
    other = scored(trained(replace(ADAPTIVE, learning_rate=1e-3), 3, counts(k4=1)), 0.9)
    assert (
        joined({"train-s3": train_record(model), "score-s3": {"models": [other]}})[0][
            "independent_accuracy"
        ]
        is None
    )


def test_errors_are_means_and_sample_deviations_over_seeds() -> None:
    first = trained(HYPERGEOMETRIC, 3, counts(k4=10))  # errors 9 (ŝ = 6 for s = 3) and 0
    second = trained(HYPERGEOMETRIC, 3, counts(k2=5, k6=5), seed=1)  # (25 + 1) / 2 = 13, and 4
    table = titled(tables({"train-s3": train_record(first, second)}, options()), "how many")
    found = row(table, "3", "HGVAE")
    assert found["mean k̂"] == "4.00 ± 0.00"
    assert found["mean ŝ"] == "6.00 ± 0.00"
    assert found["MSE(7−s, k̂)"] == "2.00 ± 2.83"
    assert found["MSE(s, ŝ)"] == "11.00 ± 2.83"
    assert any("2 seeds" in note for note in table.notes)


def test_one_seed_has_no_deviation() -> None:
    table = titled(tables(SMALL, options()), "how many")
    assert row(table, "0", "HGVAE")["MSE(7−s, k̂)"] == "0.20"
    assert any("one seed" in note for note in table.notes)


@pytest.mark.parametrize(("shared", "settings"), [("0", [0]), ("3", [3]), ("all", [0, 3])])
def test_references_are_those_of_brute_force(shared: str, settings: list[int]) -> None:
    table = titled(tables(SMALL, options()), "how many")
    numbers = range(11)
    constant = min(numbers, key=lambda k: sum((7 - s - k) ** 2 for s in (0, 3)))
    estimate = min(numbers, key=lambda e: sum((s - e) ** 2 for s in (0, 3)))
    best = row(table, shared, "reference: best constant")
    assert float(best["MSE(7−s, k̂)"]) == np.mean([(7 - s - constant) ** 2 for s in settings])
    assert float(best["MSE(s, ŝ)"]) == np.mean([(s - estimate) ** 2 for s in settings])
    even = row(table, shared, "reference: ω = 1")
    law = hypergeom(20, 10, 10).pmf(numbers)
    assert float(even["MSE(7−s, k̂)"]) == pytest.approx(
        np.mean([law @ [(7 - s - k) ** 2 for k in numbers] for s in settings]), abs=0.005
    )
    assert float(even["MSE(s, ŝ)"]) == pytest.approx(
        np.mean([law @ [(s - 10 + k) ** 2 for k in numbers] for s in settings]), abs=0.005
    )
    oracle = row(table, shared, "reference: oracle")
    assert (oracle["MSE(7−s, k̂)"], oracle["MSE(s, ŝ)"]) == ("0.00", "9.00")
    assert float(oracle["mean k̂"]) == np.mean([7 - s for s in settings])


def test_all_s_together_are_means_of_the_seeds_that_finished() -> None:
    records = {
        "train-s0": train_record(
            trained(ADAPTIVE, 0, counts(k3=1)), trained(ADAPTIVE, 0, counts(k7=1), seed=1)
        ),  # errors 16 and 0
        "train-s3": train_record(
            trained(ADAPTIVE, 3, counts(k2=1)), trained(ADAPTIVE, 3, None, seed=1)
        ),  # error 4, and none
    }
    table = titled(tables(records, options()), "how many")
    assert row(table, "all", "AdaVAE")["MSE(7−s, k̂)"] == "10.00"
    assert row(table, "3", "AdaVAE")["MSE(7−s, k̂)"] == "4.00"
    assert any("Without 1 of the models" in note for note in table.notes)


def test_random_s_is_judged_by_the_true_s_of_each_pair() -> None:
    found = {
        "1": counts(k6=3),
        "4": counts(k3=2, k5=1),
    }  # errors of k̂: 0, 0, 0, 0, 0, 4; of ŝ: 9, 9, 9, 9, 9, 1
    table = titled(
        tables(
            {"train-srandom": train_record(trained(HYPERGEOMETRIC, None, found))},
            options(shared=(-1,)),
        ),
        "how many",
    )
    own = row(table, "random", "HGVAE")
    assert (own["MSE(7−s, k̂)"], own["MSE(s, ŝ)"]) == ("0.67", "7.67")
    best = row(
        table, "random", "reference: best constant"
    )  # half the pairs share 1, half 4: 2 or 3 is best
    assert (best["MSE(7−s, k̂)"], best["MSE(s, ŝ)"]) == ("2.50", "2.50")
    assert any("disentanglement_lib" in note and "s = 0" in note for note in table.notes)


def test_notes_mention_random_s_only_if_there_is_one() -> None:
    found = tables(SMALL, options())
    assert not any("random:" in note for table in found for note in table.notes)


def test_the_headline_is_explained_where_latents_are_spare() -> None:
    assert any("s + 3" in note for note in titled(tables(SMALL, options()), "how many").notes)
    records = {"train-s3": train_record(trained(ADAPTIVE, 3, [0, 0, 0, 0, 5, 0, 0, 0]))}
    assert not any(
        "perfect" in note for note in titled(tables(records, options(latent=7)), "how many").notes
    )


def test_accuracies_stand_beside_the_papers() -> None:
    table = titled(
        tables(SMALL | scores_of(SMALL, {"LabelVAE": 0.1, "AdaVAE": 0.2, "HGVAE": 0.3}), options()),
        "know",
    )
    first, last = ["s", "method", "S", "paper", "I", "paper"], ["whole", "DCI"]
    assert list(table.columns) == [*first, "S, first s", "I, others", *last]
    (cells,) = (cells for cells in table.rows if cells[:2] == ["3", "HGVAE"])
    assert cells[2:] == ["0.30", "0.08±0.02", "0.30", "0.28±0.01", None, None, "0.50", "0.25"]
    (cells,) = (cells for cells in table.rows if cells[:2] == ["0", "LabelVAE"])
    assert cells[3:6] == [None, "0.10", "0.14±0.01"]
    assert "the paper's are of mpi3d toy" in table.notes[0]
    assert (
        "the paper's are of"
        not in titled(tables(SMALL, options(dataset="mpi3d_toy")), "know").notes[0]
    )


def test_classifiers_that_did_not_converge_are_counted() -> None:
    model = trained(ADAPTIVE, 3, counts(k4=1))
    records = {
        "train-s3": train_record(model),
        "score-s3": {"models": [scored(model, 0.2, unconverged=2)]},
    }
    assert any(
        "2 of the regressions did not converge" in note
        for note in titled(tables(records, options()), "know").notes
    )


def test_random_s_has_a_table_by_the_true_s_of_the_pairs() -> None:
    model = with_urns(
        trained(HYPERGEOMETRIC, None, {"1": counts(k6=3), "4": counts(k3=2, k5=1)}),
        {"1": counts(k6=3), "4": counts(k3=3)},
        {"1": [5.0, 25.0], "4": [4.0, 16.0]},
    )
    records = {"train-srandom": train_record(model)}
    table = titled(tables(records, options(shared=(-1,))), "by the true s")
    own = row(table, "4", "HGVAE")
    assert (own["mean k̂"], own["MSE(7−s, k̂)"]) == ("3.67", "1.33")
    assert (own["MSE(7−s, k̂), by mode"], own["MSE(7−s, k̂), by mean"]) == ("0.00", "1.00")
    assert row(table, "1", "HGVAE")["MSE(7−s, k̂), by mean"] == "1.00"
    assert not any("by the true s" in table.title for table in tables(SMALL, options()))


@pytest.mark.parametrize("latents", [10, 7])
def test_the_floor_is_the_smallest_error_that_an_urn_can_have(latents: int) -> None:
    """By SciPy's distribution and its bounded search."""
    for target in range(1, latents):

        def error(log_odds: float, target: int = target) -> float:
            law = nchypergeom_fisher(2 * latents, latents, latents, np.exp(log_odds))
            return float(law.var() + (law.mean() - target) ** 2)

        best = minimize_scalar(error, bounds=(-12, 12), method="bounded", options={"xatol": 1e-8})
        assert floor(target, latents).error == pytest.approx(best.fun, abs=1e-8)
    assert floor(latents, latents).error < 1e-12


def test_the_floor_is_a_row_of_references() -> None:
    table = titled(tables(SMALL, options()), "how many")
    for shared in (0, 3):
        own = row(table, str(shared), "reference: floor of a draw")
        assert own["MSE(7−s, k̂)"] == f"{floor(7 - shared, 10).error:.2f}"
        assert own["MSE(s, ŝ)"] == f"{floor(10 - shared, 10).error:.2f}"
        assert own["MSE(7−s, k̂), by mode"] == "–"


def test_fixed_sets_need_no_columns_of_their_own() -> None:
    scores = scores_of(SMALL, {"LabelVAE": 0.1, "AdaVAE": 0.2, "HGVAE": 0.3})
    by_factor = {
        "shared": [0.1, 0.2, 0.6, 9, 9, 9, 9],
        "independent": [9, 9, 9, 0.1, 0.2, 0.3, 0.4],
    }
    for model in scores["score-s3"]["models"]:
        model["by_factor"] = by_factor
    fixed = titled(tables(SMALL | scores, options(sampler="fixed")), "know")
    assert list(fixed.columns) == ["s", "method", "S", "paper", "I", "paper", "whole", "DCI"]
    drawn_sets = titled(tables(SMALL | scores, options()), "know")
    own = row(drawn_sets, "3", "HGVAE")
    assert (own["S, first s"], own["I, others"]) == ("0.30", "0.25")


def test_run_times_stand_beside_the_papers_as_multiples_of_labelvae() -> None:
    times = {LABEL: 0.5, replace(ADAPTIVE, payment="once"): 0.55, ORACLE: 0.45}
    speed = {
        "methods": [
            {"method": asdict(method), "label": method.label, "milliseconds": time}
            for method, time in times.items()
        ],
        "models": 12,
        "batch_size": 64,
    }
    table = titled(tables(SMALL | {"speed": speed}, options()), "run time")
    assert [row(table, name)["/ LabelVAE"] for name in ("LabelVAE", "AdaVAE (once)", "Oracle")] == [
        "1.00",
        "1.10",
        "0.90",
    ]
    ada = row(table, "AdaVAE (once)")
    assert (ada["models"], ada["ms per step and model"]) == ("12", "0.55")
    assert ada["paper, k = 4"] == f"{29479.1 / 21389.3:.2f}"
    assert ada["paper, k = −1"] == f"{29071.5 / 21907.4:.2f}"
    assert row(table, "Oracle")["paper, k = 2"] == "–"
    assert any("20,921 to 21,907 seconds" in note for note in table.notes)


def test_without_times_there_is_no_table_of_them() -> None:
    assert not any("run time" in table.title for table in tables(SMALL, options()))


def test_every_run_is_listed_with_those_that_broke_down() -> None:
    models = [
        trained(LABEL, 3, counts(k1=1)),
        trained(replace(ONCE, learning_rate=1e-5), 3, None, seed=2),
    ]
    table = titled(tables({"train-s3": train_record(*models)}, options()), "every run")
    assert len(table.rows) == 2
    broken = row(table, "3", "HGVAE (once)", 2)
    assert (broken["lr"], broken["τ"], broken["β"], broken["loss"], broken["broke down at"]) == (
        "1e-5",
        "0.01",
        "1",
        "–",
        "123",
    )
    finished = row(table, "3", "LabelVAE", 0)
    assert (
        finished["loss"],
        finished["active"],
        finished["MSE(7−s, k̂)"],
        finished["MSE(s, ŝ)"],
    ) == ("2500.0", "7", "9.00", "36.00")
    assert (finished["τ"], finished["broke down at"]) == ("–", "–")


def test_an_ablation_compares_the_s_that_all_values_have() -> None:
    table = titled(tables(ablated(), options()), "ablation")
    assert [cells[:4] for cells in table.rows] == [
        ["HGVAE", "lr 1e-6", "τ 0.01, β 1", "3"],
        ["HGVAE", "lr 1e-4", "τ 0.01, β 1", "3"],
    ]
    slow, fast = row(table, "HGVAE", "lr 1e-6"), row(table, "HGVAE", "lr 1e-4")
    assert (slow["loss"], slow["MSE(7−s, k̂)"], slow["MSE(s, ŝ)"]) == (
        "2500.5 ± 0.7",
        "2.00 ± 2.83",
        "17.00 ± 11.31",
    )
    assert (fast["MSE(7−s, k̂)"], fast["broke down"]) == ("1.00", "1 of 2")


def test_an_ablation_averages_over_s_and_leaves_out_broken_seeds() -> None:
    def models(beta: float, broken: bool) -> list[dict[str, Any]]:
        kinds = [
            (0, 0, counts(k7=1)),
            (0, 1, counts(k5=1)),
            (3, 0, counts(k1=1)),
            (3, 1, None if broken else counts(k3=1)),
        ]
        return [
            trained(replace(ADAPTIVE, beta=beta), shared, found, seed=seed)
            for shared, seed, found in kinds
        ]

    table = titled(
        tables({"train-all": train_record(*models(1.0, False), *models(2.0, True))}, options()),
        "ablation",
    )
    whole, rest = row(table, "AdaVAE", "β 1"), row(table, "AdaVAE", "β 2")
    assert whole["MSE(7−s, k̂)"] == "3.50 ± 1.41"  # (0 + 9) / 2 and (4 + 1) / 2
    assert (rest["MSE(7−s, k̂)"], rest["broke down"]) == ("4.50", "1 of 4")


def test_without_a_second_value_there_is_no_ablation() -> None:
    assert ablations(joined(SMALL)) == []
    assert not any("ablation" in table.title for table in tables(SMALL, options()))
    assert "pairs-ablation" not in figures(SMALL, options())


def test_tables_survive_json() -> None:
    for table in tables(
        ablated()
        | scores_of(ablated(), dict.fromkeys(("HGVAE", "HGVAE (lr 1e-4)", "AdaVAE"), 0.2)),
        options(),
    ):
        assert Table.from_json(json.loads(json.dumps(table.as_json()))) == table


def test_no_records_show_nothing() -> None:
    assert tables({}, options()) == []
    assert figures({}, options()) == {}
