"""The tables of the study, from its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from diffurn_studies.harness.literature import paper
from diffurn_studies.harness.tables import Cell, Table, mean_and_deviation, with_deviation
from diffurn_studies.pairs import claims
from diffurn_studies.pairs.methods import LABEL, VARIED, Method, plain_number
from diffurn_studies.pairs.options import Options
from diffurn_studies.pairs.records import (
    ABLATED,
    CHOICES,
    ERRORS,
    FIRST,
    FOUND,
    SCORES,
    Ablation,
    Model,
    ablations,
    fixed_settings,
    found_at,
    held_at,
    joined,
    known,
    methods_of,
    seed_means,
    select,
    settings_of,
    shown_shared,
)
from diffurn_studies.pairs.references import (
    Reference,
    references,
    references_of,
    shares_over_all,
)

DATASETS = {
    "arm": "rendered arm scenes with the factors of mpi3d",
    "sprites": "Sprites",
    "mpi3d_toy": "mpi3d toy",
}


def _cells(
    models: Sequence[Model], names: Iterable[str], digits: int = 2, tight: bool = False
) -> list[Cell]:
    return [mean_and_deviation(known(models, name), digits, tight) for name in names]


def tables(records: Mapping[str, Mapping[str, Any]], options: Options) -> list[Table]:
    """All tables of the study.

    Args:
        records: by unit.
        options: of the run.
    """
    models = joined(records)
    if not models:
        return []
    return [
        claims.claims_of(models),
        _numbers(models, options),
        *_by_true_number(models, options),
        _knowledge(models, options),
        *_run_time(records, models[0]["factors"]),
        _every_run(models),
        *_ablation(ablations(models)),
    ]


def verdict_of(records: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The claims in two sentences."""
    models = joined(records)
    return claims.verdict_of(models) if models else []


def _random_note(models: Iterable[Model]) -> list[str]:
    if None not in settings_of(models):
        return []
    return [
        "s = random: each pair has its own number of changed factors, uniform on 1 to F−1. The "
        "paper's s = 0 may be this case: its table of run times has k = −1 in that place, which "
        "disentanglement_lib reads as a random number. Compare the paper's s = 0 with both."
    ]


def _broken_note(models: Iterable[Model]) -> list[str]:
    number = sum(model["final"] is None for model in models)
    return (
        [f"Without {number} of the models, which broke down: see the table of every run."]
        if number
        else []
    )


def _conditions(models: Iterable[Model], options: Options) -> str:
    number = len({model["seed"] for model in models})
    seeds = "one seed" if number == 1 else f"mean ± sample standard deviation of {number} seeds"
    return (
        f"Data: {DATASETS.get(options.dataset, options.dataset)}; {options.steps:,} steps; {seeds}"
    )


def _numbers(models: Sequence[Model], options: Options) -> Table:
    factors, latents, fixed = models[0]["factors"], options.latent, fixed_settings(models)
    rows: list[list[Cell]] = []
    for shared in settings_of(models):
        for method in methods_of(select(models, shared)):
            rows.append(
                [
                    shown_shared(shared),
                    method.label,
                    *_cells(select(models, shared, method), FOUND),
                ]
            )
        rows += _reference_rows(shown_shared(shared), references_of(models, shared, latents))
    if len(fixed) > 1:
        for method in methods_of(models):
            if means := seed_means(
                [model for shared in fixed for model in select(models, shared, method)], FOUND
            ):
                rows.append(["all", method.label, *_cells(means, FOUND)])
        everywhere = shares_over_all(models)
        rows += _reference_rows(
            "all", references(everywhere, everywhere, factors, latents) if everywhere else {}
        )
    columns = ["s", "method", *_error_columns(factors)]
    notes = [
        f"Of {latents} latents k̂ are independent and ŝ = {latents} − k̂ shared. "
        f"{_conditions(models, options)}.",
        CHOICES_NOTE,
        *_partition_note(models),
        *_headline_note(factors, latents),
        "References: the constant k̂, and separately the constant ŝ, with the smallest error over "
        f"all these s; draws from an urn with equal weights, ω = 1; the smallest error of a draw, "
        f"min over ω of E(k̂ − ({factors}−s))², and separately for ŝ; an oracle, k̂ = {factors} − s. "
        "s = all: the mean over the fixed s.",
        *_random_note(models),
        *_broken_note(models),
    ]
    return Table("Pairs: how many factors are shared?", columns, rows, notes)


CHOICES_NOTE = (
    "HGVAE's k̂ is drawn from an urn. By mode and by mean: the same errors if k̂ is the mode or the "
    "mean of that urn instead. For the other methods all three are the same. A dash marks a run "
    "that recorded draws only."
)


def _partition_note(models: Iterable[Model]) -> list[str]:
    if not any(model["method"].kind == "partition" for model in models):
        return []
    return [
        "DRPM-VAE: k̂ is drawn from the same urn, and the latents by a random partition. The "
        "settings of its authors are not known, since they released no code of this experiment."
    ]


def _error_columns(factors: int) -> list[str]:
    """The headings of the values `FOUND`."""
    return [
        "mean k̂",
        *_by_choice(f"MSE({factors}−s, k̂)"),
        "mean ŝ",
        *_by_choice("MSE(s, ŝ)"),
    ]


def _by_choice(error: str) -> list[str]:
    return [error, f"{error}, by mode", f"{error}, by mean"]


def _by_true_number(models: Sequence[Model], options: Options) -> list[Table]:
    """The models of random s by the true s of a pair; no table if there are none."""
    random = [model for model in select(models, None) if model["final"] is not None]
    if not random:
        return []
    factors, rows = models[0]["factors"], []
    for shared in sorted({int(number) for model in random for number in model["final"]["counts"]}):
        for method in methods_of(random):
            own = [
                found_at(model["final"], factors, method, [str(shared)])
                for model in select(random, None, method)
                if str(shared) in model["final"]["counts"]
            ]
            rows.append([str(shared), method.label, *_cells(own, FOUND)])
    notes = [f"Models of random s alone. {_conditions(random, options)}.", CHOICES_NOTE]
    columns = ["true s", "method", *_error_columns(factors)]
    return [Table("Pairs: random s, by the true s of a pair", columns, rows, notes)]


def _headline_note(factors: int, latents: int) -> list[str]:
    spare = latents - factors
    if spare <= 0:
        return []
    return [
        f"With {latents} latents for {factors} factors, "
        f"{spare} carry no information. A perfect model counts them as shared: its ŝ is "
        f"s + {spare}, its MSE(s, ŝ) {spare**2}. The paper's figure is MSE(s, ŝ), a plot without "
        "numbers."
    ]


def _reference_rows(shared: str, found: Mapping[str, Reference]) -> list[list[Cell]]:
    return [
        [shared, f"reference: {name}", *(_reference_cell(reference, each) for each in FOUND)]
        for name, reference in found.items()
    ]


def _reference_cell(reference: Reference, name: str) -> str | None:
    value = getattr(reference, name.removesuffix("_draw"), None)  # only draws have errors
    return None if value is None else f"{value:.2f}"


def _knowledge(models: Sequence[Model], options: Options) -> Table:
    random_sets, rows = options.sampler != "fixed", []
    for shared in settings_of(models):
        for method in methods_of(select(models, shared)):
            own = select(models, shared, method)
            in_shared, in_independent, in_whole, disentanglement = _cells(
                own, SCORES[:4], tight=True
            )
            row = [
                in_shared,
                _stated(method, shared, "shared"),
                in_independent,
                _stated(method, shared, "independent"),
            ]
            row += _cells(own, FIRST, tight=True) if random_sets else []
            rows.append([shown_shared(shared), method.label, *row, in_whole, disentanglement])
    first = ["S, first s", "I, others"] if random_sets else []
    columns = ["s", "method", "S", "paper", "I", "paper", *first, "whole", "DCI"]
    same = (
        "as the paper's"
        if options.dataset == "mpi3d_toy"
        else "the paper's are of mpi3d toy, so compare the order of the methods alone"
    )
    unconverged = sum(map(int, known(models, "unconverged")))
    notes = [
        f"{_conditions(models, options)}; {same}.",
        "Adjusted balanced accuracy of logistic regressions (0 is chance, 1 is perfect). S: of the "
        "shared factors from the shared latents; "
        "I: of the independent factors from the independent latents; whole: of all factors from "
        "all latents. DCI: disentanglement.",
        *(SETS_NOTES[:1] if random_sets else SETS_NOTES[1:]),
        *([f"{unconverged} of the regressions did not converge."] if unconverged else []),
        *_random_note(models),
        *_broken_note(models),
    ]
    return Table("Pairs: what the two parts know", columns, rows, notes)


SETS_NOTES = [
    "Trained on random sets of shared factors. The columns 'first s' and 'others' average S over "
    "the first s factors and I over the others, as if the sets were fixed, which the paper's "
    "probably were.",
    "Trained on fixed sets: the first s factors are shared in every pair. S averages over these, I "
    "over the others.",
]


def _stated(method: Method, shared: int | None, part: str) -> str | None:
    """The paper's value."""
    found = (
        paper("pairs_downstream")["by_method"].get(method.name, {}).get(str(shared), {}).get(part)
    )
    return None if found is None else with_deviation(**found, digits=2, tight=True)


def _run_time(records: Mapping[str, Mapping[str, Any]], factors: int) -> list[Table]:
    """The speed of every method; no table if it was not measured."""
    stated = paper("pairs_runtime")["by_method"]
    independent = list(stated["LabelVAE"])
    rows: list[list[Cell]] = []
    speed = records.get("speed", {"methods": []})
    times = {Method.from_fields(each["method"]): each["milliseconds"] for each in speed["methods"]}
    label = times.get(LABEL)
    for method, time in times.items():
        own = stated.get(method.name)
        ratios = [
            None if own is None else f"{own[k]['mean'] / stated['LabelVAE'][k]['mean']:.2f}"
            for k in independent
        ]
        rows.append(
            [
                method.label,
                speed["models"],
                f"{time:.3g}",
                f"{time / label:.2f}" if label else None,
                *ratios,
            ]
        )
    columns = [
        "method",
        "models",
        "ms per step and model",
        "/ LabelVAE",
        *(f"paper, k = {k.replace('-', '−')}" for k in independent),
    ]
    seconds = [time["mean"] for time in stated["LabelVAE"].values()]
    notes = [
        "Ours: milliseconds per training step and model, for models trained in one stack; "
        "/ LabelVAE: as a multiple of LabelVAE's. The paper's: the same multiples of whole "
        "trainings on a GTX 1080 (means of 5 runs), where LabelVAE took "
        f"{min(seconds):,.0f} to {max(seconds):,.0f} seconds.",
        f"k = {factors} − s are the independent factors; the paper's k = −1 may mean s = 0, or a "
        "random s.",
    ]
    return [Table("Pairs: run time", columns, rows, notes)] if rows else []


def _every_run(models: Sequence[Model]) -> Table:
    rows: list[list[Cell]] = []
    for model in models:
        row: list[Cell] = [
            shown_shared(model["shared"]),
            model["method"].base.label,
            model["seed"],
        ]
        row += [None if model[name] is None else plain_number(model[name]) for name in VARIED]
        row += [_rounded(model["loss"], 1), model["active"]]
        row += [
            _rounded(model[name], 2)
            for name in ("independent", *(f"{e}_{by}" for e in ERRORS for by in CHOICES))
        ]
        rows.append(
            [
                *row,
                *(_rounded(model[name], 3) for name in SCORES[:3]),
                _rounded(model["log_prior"], 2),
                model["stopped_after"],
            ]
        )
    columns = [
        "s",
        "method",
        "seed",
        *VARIED.values(),
        "loss",
        "active",
        *(name for name in _error_columns(models[0]["factors"]) if name != "mean ŝ"),
    ]
    columns += ["S", "I", "whole", "log ω₀", "broke down at"]
    notes = [
        "lr: learning rate; τ: at the end of training; loss: on test pairs, in nats; active: "
        "latents whose mean KL to the prior is above "
        "0.01 nats; log ω₀: of the prior of k̂; broke down at: the step by which loss or "
        "parameters were no longer finite.",
    ]
    return Table("Pairs: every run", columns, rows, notes)


def _rounded(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def _ablation(found: Sequence[Ablation]) -> list[Table]:
    if not found:
        return []
    rows: list[list[Cell]] = []
    for ablation in found:
        for value, own in ablation.models.items():
            row: list[Cell] = [
                ablation.method.label,
                held_at(ablation.varied, value),
                ablation.held,
            ]
            means = seed_means(own, ABLATED)
            row += [
                ", ".join(map(shown_shared, settings_of(own))),
                *_cells(means, ABLATED[:1], 1),
                *_cells(means, ABLATED[1:]),
            ]
            rows.append([*row, f"{sum(model['final'] is None for model in own)} of {len(own)}"])
    factors = next(iter(found[0].models.values()))[0]["factors"]
    columns = [
        "method",
        "varied",
        "held",
        "s",
        "loss",
        *_by_choice("MSE(s, ŝ)"),
        *_by_choice(f"MSE({factors}−s, k̂)"),
        "broke down",
    ]
    notes = [
        "Mean over s; ± is the sample standard deviation of its seeds, of those that broke down at "
        "no s. lr: learning rate; τ: at the end.",
        "The paper finds that final τ and β hardly matter, and that higher learning rates give "
        "higher losses and a less certain ŝ.",
    ]
    return [Table("Pairs: ablation", columns, rows, notes)]
