"""The tables and figures of the pairs study, from records whose answers are worked out by hand."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import hypergeom

from diffurn_studies.harness.pictures import packed, unpacked
from diffurn_studies.harness.tables import Table, text
from diffurn_studies.pairs.figure import figures
from diffurn_studies.pairs.methods import ADAPTIVE, HYPERGEOMETRIC, LABEL, ORACLE, Method
from diffurn_studies.pairs.options import Options
from diffurn_studies.pairs.records import ablations, joined
from diffurn_studies.pairs.tables import tables

FACTORS = [
    "object colour",
    "shape",
    "size",
    "camera height",
    "background colour",
    "horizontal",
    "vertical",
]
SHAPE = (4, 5, 3)
STEPS = 1_000
ONCE = replace(HYPERGEOMETRIC, payment="once")


def options(**changes: Any) -> Options:
    return replace(Options(shared=(0, 3), seeds=1, steps=STEPS, latent=10), **changes)


def counts(**pairs: int) -> list[int]:
    """counts(k4=10): ten pairs with k̂ = 4."""
    return [pairs.get(f"k{number}", 0) for number in range(11)]


def trained(
    method: Method,
    shared: int | None,
    found: dict[str, list[int]] | list[int] | None,
    seed: int = 0,
    **changes: Any,
) -> dict[str, Any]:
    """A model; found are its counts, None if it broke down."""
    steps = list(range(0, STEPS + 1, 100)) if found is not None else [0, 100]
    by_shared = {str(shared): found} if isinstance(found, list) else found
    final = {
        "loss": 2500.0 + seed,
        "reconstruction": 2470.0,
        "kl": 30.0,
        "active": 7,
        "counts": by_shared,
    }
    final["profile"] = [2500.0 + (number - 4) ** 2 for number in range(11)]
    return {
        "method": asdict(method),
        "label": method.label,
        "shared": shared,
        "seed": seed,
        "stopped_after": None if found is not None else 123,
        "curve": {
            name: [5000.0 / (1 + step) + seed for step in steps]
            for name in ("loss", "reconstruction", "kl", "independent")
        }
        | {"step": steps},
        "final": final if found is not None else None,
        "pictures": None,
        **changes,
    }


def scored(
    model: dict[str, Any],
    independent: float | None,
    shared: float | None = 0.3,
    unconverged: int = 0,
) -> dict[str, Any]:
    setting = {name: model[name] for name in ("method", "label", "shared", "seed")}
    scores = {
        "shared_accuracy": shared,
        "independent_accuracy": independent,
        "whole_accuracy": 0.5,
        "disentanglement": 0.25,
    }
    return {**setting, **scores, "by_factor": {}, "unconverged": unconverged}


def train_record(*models: dict[str, Any]) -> dict[str, Any]:
    return {
        "dataset": "arm",
        "factors": FACTORS,
        "shape": list(SHAPE),
        "steps": STEPS,
        "models": list(models),
    }


def with_pictures(model: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    pairs, values = (
        random.integers(0, 256, (*size, *SHAPE), dtype=np.uint8) for size in ((8, 2, 2), (10, 7))
    )
    return {**model, "pictures": {"pairs": packed(pairs), "traversals": packed(values)}}


SMALL = {
    "train-s0": train_record(
        trained(LABEL, 0, counts(k1=10)),
        trained(ADAPTIVE, 0, counts(k2=10)),
        trained(HYPERGEOMETRIC, 0, counts(k7=8, k6=2)),
    ),
    "train-s3": train_record(
        trained(LABEL, 3, counts(k1=10)),
        trained(ADAPTIVE, 3, counts(k1=5, k2=5)),
        trained(HYPERGEOMETRIC, 3, counts(k4=10)),
    ),
}


def scores_of(records: dict[str, Any], independent: dict[str, float]) -> dict[str, Any]:
    """The units that score these models, each method with its own I-accuracy."""
    return {
        unit.replace("train", "score"): {
            "models": [scored(model, independent[model["label"]]) for model in record["models"]]
        }
        for unit, record in records.items()
    }


def titled(found: list[Table], words: str) -> Table:
    (table,) = (table for table in found if words in table.title)
    return table


def row(table: Table, *start: Any) -> dict[str, str]:
    """The one row that starts so, by column; of columns that share a heading the last."""
    (cells,) = (cells for cells in table.rows if tuple(cells[: len(start)]) == start)
    return {column: text(cell) for column, cell in zip(table.columns, cells, strict=True)}


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
    assert not any("random:" in note for table in found[:3] for note in table.notes)


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
    assert list(table.columns) == ["s", "method", "S", "paper", "I", "paper", "whole", "DCI"]
    (cells,) = (cells for cells in table.rows if cells[:2] == ["3", "HGVAE"])
    assert cells[2:] == ["0.30", "0.08±0.02", "0.30", "0.28±0.01", "0.50", "0.25"]
    (cells,) = (cells for cells in table.rows if cells[:2] == ["0", "LabelVAE"])
    assert cells[3:6] == [None, "0.10", "0.14±0.01"]
    assert "the paper's are of mpi3d toy" in table.notes[0]
    assert (
        "the paper's are of"
        not in titled(tables(SMALL, options(dataset="mpi3d_toy")), "know").notes[0]
    )


def test_missing_scores_leave_cells_empty_and_claims_open() -> None:
    found = tables(SMALL, options())
    for cells in titled(found, "know").rows:
        assert (cells[2], cells[4], cells[6], cells[7]) == (None, None, None, None)
    assert row(titled(found, "claims"), "I at least the baselines'", "HGVAE")["holds?"] == "–"


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


def test_claims_hold_where_they_do() -> None:
    table = titled(
        tables(SMALL | scores_of(SMALL, {"LabelVAE": 0.1, "AdaVAE": 0.2, "HGVAE": 0.2}), options()),
        "claims",
    )
    errors = row(table, "MSE(7−s, k̂) below the baselines'", "HGVAE")
    assert errors["holds?"] == "yes"
    assert errors["figures by s"] == "s = 0: 0.20<25.00, 3: 0.00<6.50"
    assert (
        row(table, "MSE(s, ŝ) below the baselines'", "HGVAE")["figures by s"]
        == "s = 0: 10.40<64.00, 3: 9.00<30.50"
    )
    assert (
        row(table, "I at least the baselines'", "HGVAE")["figures by s"]
        == "s = 0: 0.200≥0.200, 3: 0.200≥0.200"
    )
    assert row(table, "I at least the baselines'", "HGVAE")["holds?"] == "yes"
    follows = row(table, "ŝ follows s", "HGVAE")  # from 3.2 to 6
    assert follows["holds?"] == "yes"
    assert follows["figures by s"] == "s = 0: 3.20, 3: 6.00; rises by 2.80 of 3, r = 1.00"
    assert row(table, "ŝ does not follow s", "LabelVAE")["figures by s"].endswith(
        "rises by 0.00 of 3, r = 0.00"
    )
    assert row(table, "ŝ does not follow s", "AdaVAE")["holds?"] == "yes"  # from 8 to 8.5


def test_claims_fail_where_they_do() -> None:
    records = {
        "train-s0": train_record(
            trained(ADAPTIVE, 0, counts(k7=1)), trained(HYPERGEOMETRIC, 0, counts(k7=1))
        ),
        "train-s3": train_record(
            trained(ADAPTIVE, 3, counts(k4=1)), trained(HYPERGEOMETRIC, 3, counts(k7=1))
        ),
    }
    table = titled(
        tables(records | scores_of(records, {"AdaVAE": 0.25, "HGVAE": 0.24}), options()),
        "claims",
    )
    assert (
        row(table, "MSE(7−s, k̂) below the baselines'", "HGVAE")["figures by s"]
        == "s = 0: 0.00≥0.00, 3: 9.00≥0.00"
    )
    claims = ("MSE(7−s, k̂) below the baselines'", "I at least the baselines'", "ŝ follows s")
    assert [row(table, claim, "HGVAE")["holds?"] for claim in claims] == ["no", "no", "no"]
    assert row(table, "ŝ does not follow s", "AdaVAE")["holds?"] == "no"


def test_a_claim_about_broken_models_is_open_unless_refuted() -> None:
    broken = trained(HYPERGEOMETRIC, 0, None)
    for independent, outcome in ((4, "–"), (7, "no")):
        records = {
            "train-s0": train_record(trained(ADAPTIVE, 0, counts(k2=1)), broken),
            "train-s3": train_record(
                trained(ADAPTIVE, 3, counts(k2=1)),
                trained(HYPERGEOMETRIC, 3, counts(**{f"k{independent}": 1})),
            ),
        }
        claim = row(
            titled(tables(records, options()), "claims"),
            "MSE(7−s, k̂) below the baselines'",
            "HGVAE",
        )
        assert claim["holds?"] == outcome
        assert claim["figures by s"].startswith("s = 0: –, 3: ")


def test_following_in_pairs_is_the_correlation_over_pairs() -> None:
    found = {"1": counts(k6=3, k2=1), "4": counts(k3=2, k5=2), "6": counts(k1=4)}
    records = {
        "train-srandom": train_record(
            trained(ADAPTIVE, None, {"1": counts(k1=2), "6": counts(k1=2)}),
            trained(HYPERGEOMETRIC, None, found),
        )
    }
    table = titled(tables(records, options(shared=(-1,))), "claims")
    shared = np.repeat([1, 4, 6], 4)
    estimate = 10 - np.array([6, 6, 6, 2, 3, 3, 5, 5, 1, 1, 1, 1])
    r = np.corrcoef(shared, estimate)[0, 1]
    claim = row(table, "ŝ follows s in pairs", "HGVAE")
    assert (
        claim["figures by s"] == f"s = 1: 5.00, 4: 6.00, 6: 9.00; rises by 4.00 of 5, r = {r:.2f}"
    )
    assert claim["holds?"] == "yes"
    assert row(table, "ŝ does not follow s in pairs", "AdaVAE")["holds?"] == "yes"
    assert row(table, "ŝ follows s", "HGVAE")["holds?"] == "–"


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


def ablated() -> dict[str, Any]:
    """Two learning rates, one of them at s = 3 only; and a single value of everything else."""
    fast = replace(HYPERGEOMETRIC, learning_rate=1e-4)
    return {
        "train-s0": train_record(trained(HYPERGEOMETRIC, 0, counts(k7=1))),
        "train-s3": train_record(
            trained(HYPERGEOMETRIC, 3, counts(k4=1)),
            trained(HYPERGEOMETRIC, 3, counts(k2=1), seed=1),
            trained(fast, 3, counts(k5=1)),
            trained(fast, 3, None, seed=1),
            trained(ADAPTIVE, 3, counts(k4=1)),
        ),
    }


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


def drawn(records: dict[str, Any], **changes: Any) -> dict[str, Figure]:
    """Warnings are errors here, and some come only as a figure is drawn."""
    made = figures(records, options(**changes))
    for figure in made.values():
        figure.draw_without_rendering()
    return made


def lines(panel: Any) -> list[tuple[list[float], list[float]]]:
    return [
        (list(map(float, line.get_xdata())), list(map(float, line.get_ydata())))
        for line in panel.lines
    ]


def heights(panel: Any) -> list[list[float]]:
    return [values for _, values in lines(panel)]


def test_figures_are_drawn_from_one_seed_and_one_s() -> None:
    assert set(drawn({"train-s3": SMALL["train-s3"]})) == {
        "pairs-shared",
        "pairs-training",
        "pairs-profile",
    }


def test_the_figure_of_shared_factors_holds_errors_and_references() -> None:
    left, middle, right = drawn(SMALL)["pairs-shared"].axes
    for values in ([81.0, 36.0], [64.0, 30.5], [10.4, 9.0]):  # LabelVAE, AdaVAE, HGVAE
        assert any(values == pytest.approx(each) for each in heights(left))
    for values in ([36.0, 9.0], [25.0, 6.5], [0.2, 0.0]):
        assert any(values == pytest.approx(each) for each in heights(middle))
    for values in (
        [9.0, 9.0],
        [1.0, 4.0],
    ):  # oracle; the best constants for s = 0 and 3 are ŝ = 1, or 2, and k̂ = 5, or 6
        assert values in heights(left)
    assert any(each == pytest.approx([4.0, 1.0]) for each in heights(middle))
    assert ([0.0, 7.0], [0.0, 7.0]) in lines(right)
    assert any(
        where == pytest.approx([7, 4], abs=0.1) and values == pytest.approx([6.8, 4.0])
        for where, values in lines(right)
    )


def test_random_s_stands_apart_in_the_figure_of_shared_factors() -> None:
    random = train_record(
        trained(HYPERGEOMETRIC, None, {"1": counts(k6=3), "4": counts(k3=2, k5=1)})
    )
    left, _, right = drawn(SMALL | {"train-srandom": random})["pairs-shared"].axes
    assert [label.get_text() for label in left.get_xticklabels()] == ["0", "3", "random"]
    assert any(each == pytest.approx([46 / 6]) for each in heights(left))
    assert ([6.0, 3.0], pytest.approx([6.0, 11 / 3])) in lines(right)  # by 7−s


def test_curves_end_where_models_broke_down_and_do_not_enter_the_mean() -> None:
    models = [trained(ADAPTIVE, 3, counts(k2=1), seed) for seed in (0, 1)] + [
        trained(ADAPTIVE, 3, None, 2)
    ]
    number, loss = drawn({"train-s3": train_record(*models)})["pairs-training"].axes
    steps = list(map(float, range(0, STEPS + 1, 100)))
    expected = [5000 / (1 + step) + 0.5 for step in steps]
    assert any(
        where == steps and values == pytest.approx(expected) for where, values in lines(loss)
    )
    assert ([0.0, 100.0], [5002.0, pytest.approx(5000 / 101 + 2)]) in lines(loss)
    assert [4.0, 4.0] in heights(number)  # 7−s
    assert loss.get_ylim()[1] < 1_000  # the first steps do not hide the others


def test_profiles_start_from_their_minimum_and_mark_the_truth() -> None:
    _, panel = drawn(SMALL)["pairs-profile"].axes
    assert [float((number - 4) ** 2) for number in range(11)] in heights(panel)
    assert ([4.0, 4.0], [0.0, 1.0]) in lines(panel)


def test_the_figure_of_the_ablation_holds_means_by_value() -> None:
    panels = drawn(ablated())["pairs-ablation"].axes
    assert [panel.get_ylabel() for panel in panels] == [
        "loss (nats)",
        r"MSE(7−s, $\hat{k}$)",
        r"MSE(s, $\hat{s}$)",
    ]
    assert ([1e-6, 1e-4], [2.0, 1.0]) in lines(panels[1])
    assert [label.get_text() for label in panels[2].get_xticklabels()] == ["1e-6", "1e-4"]


def test_pictures_show_each_method_and_leave_out_the_oracle_first() -> None:
    methods = (ORACLE, LABEL, ADAPTIVE, HYPERGEOMETRIC, ONCE)
    models = [
        with_pictures(trained(method, 3, counts(k4=1)), place)
        for place, method in enumerate(methods)
    ]
    made = drawn(
        {
            "train-s1": train_record(with_pictures(trained(LABEL, 1, counts(k1=1)))),
            "train-s3": train_record(*models),
        }
    )
    names = ["LabelVAE", "AdaVAE", "HGVAE", "HGVAE (once)"]
    assert [panel.get_title() for panel in made["pairs-traversals"].axes] == names
    assert [
        label.get_text() for label in made["pairs-reconstructions"].axes[0].get_yticklabels()
    ] == ["picture", *names]
    for name in ("pairs-reconstructions", "pairs-traversals"):
        assert "s = 3" in made[name].get_suptitle()


def test_pictures_stand_where_their_labels_say() -> None:
    model = with_pictures(trained(ADAPTIVE, 3, counts(k4=1)))
    made = drawn({"train-s3": train_record(model)})
    pairs, values = (
        unpacked(model["pictures"][kind], *SHAPE[:2]) for kind in ("pairs", "traversals")
    )
    height, width = SHAPE[:2]
    for view, panel in enumerate(made["pairs-reconstructions"].axes):
        assert panel.get_title() == f"view {view + 1}"
        for line in (0, 1):  # the picture, and what the model makes of it
            top, left = line * (height + 3), 5 * (width + 3)
            shown_picture = np.asarray(panel.images[0].get_array())[
                top : top + height, left : left + width
            ]
            assert np.array_equal(shown_picture, pairs.reshape(8, 2, 2, *SHAPE)[5, line, view])
    (panel,) = made["pairs-traversals"].axes
    whole = np.asarray(panel.images[0].get_array())
    top, left = 9 * (height + 3), 2 * (width + 3)
    assert np.array_equal(
        whole[top : top + height, left : left + width], values.reshape(10, 7, *SHAPE)[9, 2]
    )
    assert [label.get_text() for label in panel.get_xticklabels()] == ["−2", "0", "2"]


def test_more_methods_than_colours_are_still_told_apart() -> None:
    models = [
        trained(replace(HYPERGEOMETRIC, learning_rate=rate * 1e-5), 3, counts(k4=1))
        for rate in range(1, 11)
    ]
    legend = drawn({"train-s3": train_record(*models)})["pairs-training"].legends[0]
    styles = {
        (handle.get_color(), str(handle.get_linestyle()), handle.get_linewidth())
        for handle in legend.get_lines()
    }
    assert len(styles) == 12  # ten methods, each seed, the truth
