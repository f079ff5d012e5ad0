"""The tables of the pairs study, made from its records alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from diffurn_studies.clustering.scores import correlation
from diffurn_studies.harness.literature import paper
from diffurn_studies.harness.tables import Cell, Table, mean_and_deviation, with_deviation
from diffurn_studies.pairs.records import (
    ABLATED,
    FOUND,
    SCORES,
    VARIED,
    Ablation,
    Model,
    Reference,
    ablations,
    base,
    counts_of,
    family,
    fixed_settings,
    held_at,
    joined,
    known,
    mean_independent,
    methods_of,
    plain_number,
    references,
    references_of,
    seed_means,
    select,
    settings_of,
    shares_over_all,
    shown,
    shown_shared,
)

BASELINES = ("label", "ada")
DATASETS = {
    "arm": "rendered arm scenes with the factors of mpi3d",
    "sprites": "Sprites",
    "mpi3d_toy": "mpi3d toy",
}
# ŝ follows s where it rises by at least this part of what s does.
FOLLOWS = 0.5


def _cells(
    models: Sequence[Model], names: Iterable[str], digits: int = 2, tight: bool = False
) -> list[Cell]:
    return [mean_and_deviation(known(models, name), digits, tight) for name in names]


def tables(records: Mapping[str, Mapping[str, Any]], options: Any) -> list[Table]:
    """Every table of the study.

    Args:
        records: by unit.
        options: of the experiment.
    """
    models = joined(records)
    if not models:
        return []
    return [
        _numbers(models, options),
        _knowledge(models, options),
        _claims(models),
        *_run_time(records, models[0]["factors"]),
        _every_run(models),
        *_ablation(ablations(models)),
    ]


def _random_note(models: Iterable[Model]) -> list[str]:
    if None not in settings_of(models):
        return []
    return [
        "s = random: each pair has its own number of changed factors, uniform on 1 to F−1. What "
        "the paper calls s = 0 may be this: its "
        "table of run times has k = −1 in that place, which disentanglement_lib reads as a random "
        "number. Compare its s = 0 with both."
    ]


def _broken_note(models: Iterable[Model]) -> list[str]:
    number = sum(model["final"] is None for model in models)
    return (
        [f"Without {number} of the models, which broke down: see the table of every run."]
        if number
        else []
    )


def _conditions(models: Iterable[Model], options: Any) -> str:
    number = len({model["seed"] for model in models})
    seeds = "one seed" if number == 1 else f"mean ± sample standard deviation of {number} seeds"
    return (
        f"Data: {DATASETS.get(options.dataset, options.dataset)}; {options.steps:,} steps; {seeds}"
    )


def _numbers(models: Sequence[Model], options: Any) -> Table:
    factors, latents, fixed = models[0]["factors"], options.latent, fixed_settings(models)
    rows: list[list[Cell]] = []
    for shared in settings_of(models):
        for method in methods_of(select(models, shared)):
            rows.append(
                [
                    shown_shared(shared),
                    shown(method),
                    *_cells(select(models, shared, method), FOUND),
                ]
            )
        rows += _reference_rows(shown_shared(shared), references_of(models, shared, latents))
    if len(fixed) > 1:
        for method in methods_of(models):
            if means := seed_means(
                [model for shared in fixed for model in select(models, shared, method)], FOUND
            ):
                rows.append(["all", shown(method), *_cells(means, FOUND)])
        everywhere = shares_over_all(models)
        rows += _reference_rows(
            "all", references(everywhere, everywhere, factors, latents) if everywhere else {}
        )
    columns = ["s", "method", "mean k̂", f"MSE({factors}−s, k̂)", "mean ŝ", "MSE(s, ŝ)"]
    notes = [
        f"Of {latents} latents k̂ are independent and ŝ = {latents} − k̂ shared. "
        f"{_conditions(models, options)}.",
        *_headline_note(factors, latents),
        "References: the constant k̂, and apart from it the constant ŝ, that is best for all these "
        "s together; an urn of ω = 1, which "
        f"prefers neither; an oracle, k̂ = {factors} − s. s = all: the mean over the fixed s.",
        *_random_note(models),
        *_broken_note(models),
    ]
    return Table("Pairs: how many factors are shared?", columns, rows, notes)


def _headline_note(factors: int, latents: int) -> list[str]:
    spare = latents - factors
    if spare <= 0:
        return []
    return [
        f"MSE({factors}−s, k̂) is the figure to look at: with {latents} latents for {factors} "
        f"factors, {spare} carry nothing, and a perfect "
        f"model counts them as shared: its ŝ is s + {spare}, its MSE(s, ŝ) {spare**2}. The paper "
        "shows MSE(s, ŝ), as a plot alone."
    ]


def _reference_rows(shared: str, found: Mapping[str, Reference]) -> list[list[Cell]]:
    return [
        [shared, f"reference: {name}", *(f"{getattr(reference, each):.2f}" for each in FOUND)]
        for name, reference in found.items()
    ]


def _knowledge(models: Sequence[Model], options: Any) -> Table:
    rows: list[list[Cell]] = []
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
            rows.append([shown_shared(shared), shown(method), *row, in_whole, disentanglement])
    columns = ["s", "method", "S", "paper", "I", "paper", "whole", "DCI"]
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
        *([f"{unconverged} of the regressions did not converge."] if unconverged else []),
        *_random_note(models),
        *_broken_note(models),
    ]
    return Table("Pairs: what the two parts know", columns, rows, notes)


def _stated(method: str, shared: int | None, part: str) -> str | None:
    found = (
        paper("pairs_downstream")["by_method"]
        .get(shown(family(method)), {})
        .get(str(shared), {})
        .get(part)
    )
    return None if found is None else with_deviation(**found, digits=2, tight=True)


def _claims(models: Sequence[Model]) -> Table:
    factors = models[0]["factors"]
    tested = [method for method in methods_of(models) if family(method) == "hypergeometric"]
    baselines = [method for method in methods_of(models) if family(method) in BASELINES]
    comparisons = [
        (f"MSE({factors}−s, k̂) below the baselines'", "independent_error", _is_below),
        ("MSE(s, ŝ) below the baselines'", "shared_error", _is_below),
        ("I at least the baselines'", "independent_accuracy", _is_at_least),
    ]
    rows: list[list[Cell]] = []
    for claim, name, judge in comparisons:
        rows += [
            [claim, shown(method), *_compared(models, method, baselines, name, judge)]
            for method in tested
        ]
    notes = [
        "MSE and I-accuracy, at every s: the method's mean over seeds, and the best that any "
        "LabelVAE or AdaVAE of this study has there.",
        f"ŝ follows s: from the smallest to the largest s its mean rises by at least {FOLLOWS:g} "
        "of what s does; r is the correlation "
        "of s with mean ŝ over models. Open (–) where models are missing.",
    ]
    following = {"": _followed}
    if None in settings_of(models):
        following[" in pairs"] = _followed_in_pairs
        notes.append(
            "In pairs: within the models of random s, by the true s of each pair; r is over pairs."
        )
    for where, judged in following.items():
        rows += [
            [f"ŝ does not follow s{where}", shown(method), *judged(models, method, expected=False)]
            for method in baselines
        ]
        rows += [
            [f"ŝ follows s{where}", shown(method), *judged(models, method, expected=True)]
            for method in tested
        ]
    return Table(
        "Pairs: the claims under test", ["claim", "method", "holds?", "figures by s"], rows, notes
    )


def _is_below(own: float, *others: float) -> tuple[bool, str]:
    holds = own < min(others)
    return holds, f"{own:.2f}{'<' if holds else '≥'}{min(others):.2f}"


def _is_at_least(own: float, *others: float) -> tuple[bool, str]:
    holds = own >= max(others)
    return holds, f"{own:.3f}{'≥' if holds else '<'}{max(others):.3f}"


def _compared(
    models: Sequence[Model],
    method: str,
    baselines: Sequence[str],
    name: str,
    judge: Callable[..., tuple[bool, str]],
) -> list[Cell]:
    """Outcome and figures; the outcome is open where a figure is missing and the others do not
    decide.
    """
    figures: dict[str, str] = {}
    verdicts: list[bool | None] = []
    for shared in settings_of(models):
        values = [known(select(models, shared, each), name) for each in (method, *baselines)]
        verdict, figure = (
            judge(*map(statistics.fmean, values)) if baselines and all(values) else (None, "–")
        )
        verdicts.append(verdict)
        figures[shown_shared(shared)] = figure
    return [False if False in verdicts else None if None in verdicts else True, _by_shared(figures)]


def _by_shared(figures: Mapping[Any, str]) -> str | None:
    return (
        "s = " + ", ".join(f"{shared}: {figure}" for shared, figure in figures.items())
        if figures
        else None
    )


def _followed(models: Sequence[Model], method: str, expected: bool) -> list[Cell]:
    """Whether mean ŝ follows s from data set to data set."""
    own = [
        model
        for model in models
        if model["method"] == method and model["shared"] is not None and model["final"] is not None
    ]
    means = {
        shared: statistics.fmean(known(select(own, shared), "estimate"))
        for shared in fixed_settings(own)
    }
    shared = torch.tensor([float(model["shared"]) for model in own])
    return _judged(means, correlation(shared, torch.tensor(known(own, "estimate"))), expected)


def _followed_in_pairs(models: Sequence[Model], method: str, expected: bool) -> list[Cell]:
    """Whether ŝ follows s within the models of random s."""
    counts = counts_of(select(models, None, method))
    means = {
        shared: len(numbers) - 1 - mean_independent(numbers) for shared, numbers in counts.items()
    }
    return _judged(means, _correlation_over_pairs(counts), expected)


def _correlation_over_pairs(counts: Mapping[int, Sequence[int]]) -> float:
    """Of s and ŝ = d − k̂."""
    cells = [
        (shared, -number, times)
        for shared, numbers in counts.items()
        for number, times in enumerate(numbers)
    ]
    shared, estimate, times = torch.tensor(cells, dtype=torch.float64).reshape(-1, 3).T
    return correlation(*(values.repeat_interleave(times.long()) for values in (shared, estimate)))


def _judged(means: Mapping[int, float], r: float, expected: bool) -> list[Cell]:
    figures = _by_shared({shared: f"{mean:.2f}" for shared, mean in means.items()})
    if len(means) < 2:
        return [None, figures]
    least, largest = min(means), max(means)
    rise = means[largest] - means[least]
    follows = rise >= FOLLOWS * (largest - least)
    return [
        follows is expected,
        f"{figures}; rises by {rise:.2f} of {largest - least}, r = {r:.2f}",
    ]


def _run_time(records: Mapping[str, Mapping[str, Any]], factors: int) -> list[Table]:
    """Times of methods in stacks of their own; no table where none was taken."""
    stated = paper("pairs_runtime")["by_method"]
    independent = list(stated["LabelVAE"])
    rows: list[list[Cell]] = []
    speed = records.get("speed", {"milliseconds": {}})
    for method, time in speed["milliseconds"].items():
        label = speed["milliseconds"].get("label")
        own = stated.get(shown(family(method)))
        ratios = [
            None if own is None else f"{own[k]['mean'] / stated['LabelVAE'][k]['mean']:.2f}"
            for k in independent
        ]
        rows.append(
            [
                shown(method),
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
        "Ours: milliseconds that one training step takes for each of the models that are trained "
        "side by side; / LabelVAE: as a multiple "
        "of LabelVAE's. The paper's: such multiples of whole trainings on a GTX 1080 (means of 5 "
        "runs), where LabelVAE took "
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
            shown(base(model["method"])),
            model["seed"],
        ]
        row += [None if model[name] is None else plain_number(model[name]) for name in VARIED]
        row += [_rounded(model["loss"], 1), model["active"]]
        row += [
            _rounded(model[name], 2)
            for name in ("independent", "independent_error", "shared_error")
        ]
        rows.append(
            [*row, *(_rounded(model[name], 3) for name in SCORES[:3]), model["stopped_after"]]
        )
    columns = [
        "s",
        "method",
        "seed",
        *(symbol for _, symbol in VARIED.values()),
        "loss",
        "active",
        "mean k̂",
    ]
    columns += [
        f"MSE({models[0]['factors']}−s, k̂)",
        "MSE(s, ŝ)",
        "S",
        "I",
        "whole",
        "broke down at",
    ]
    notes = [
        "lr: learning rate; τ: at the end of training; loss: on test pairs, in nats; active: "
        "latents whose mean KL to the prior is above "
        "0.01 nats; broke down at: the step by which loss or parameters were no longer finite.",
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
                shown(ablation.method),
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
        f"MSE({factors}−s, k̂)",
        "MSE(s, ŝ)",
        "broke down",
    ]
    notes = [
        "Mean over s; ± is the sample standard deviation of its seeds, of those that broke down at "
        "no s. lr: learning rate; τ: at the end.",
        "The paper finds that final τ and β hardly matter, and that higher learning rates give "
        "higher losses and a less certain ŝ.",
    ]
    return [Table("Pairs: ablation", columns, rows, notes)]
