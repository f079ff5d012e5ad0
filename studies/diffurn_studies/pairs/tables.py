"""The tables of the study, from its records."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from diffurn_studies.clustering.scores import correlation
from diffurn_studies.harness.literature import paper
from diffurn_studies.harness.tables import Cell, Table, mean_and_deviation, with_deviation
from diffurn_studies.pairs.methods import LABEL, VARIED, Method, plain_number
from diffurn_studies.pairs.options import Options
from diffurn_studies.pairs.records import (
    ABLATED,
    FOUND,
    SCORES,
    Ablation,
    Model,
    Reference,
    ablations,
    counts_of,
    fixed_settings,
    held_at,
    joined,
    known,
    mean_independent,
    methods_of,
    references,
    references_of,
    seed_means,
    select,
    settings_of,
    shares_over_all,
    shown_shared,
)

BASELINES = ("label", "adaptive")
DATASETS = {
    "arm": "rendered arm scenes with the factors of mpi3d",
    "sprites": "Sprites",
    "mpi3d_toy": "mpi3d toy",
}
# ŝ follows s if it rises by at least this fraction of the rise of s.
FOLLOWS = 0.5


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
    columns = ["s", "method", "mean k̂", f"MSE({factors}−s, k̂)", "mean ŝ", "MSE(s, ŝ)"]
    notes = [
        f"Of {latents} latents k̂ are independent and ŝ = {latents} − k̂ shared. "
        f"{_conditions(models, options)}.",
        *_headline_note(factors, latents),
        "References: the constant k̂, and separately the constant ŝ, with the smallest error over "
        f"all these s; an urn with equal weights, ω = 1; an oracle, k̂ = {factors} − s. "
        "s = all: the mean over the fixed s.",
        *_random_note(models),
        *_broken_note(models),
    ]
    return Table("Pairs: how many factors are shared?", columns, rows, notes)


def _headline_note(factors: int, latents: int) -> list[str]:
    spare = latents - factors
    if spare <= 0:
        return []
    return [
        f"MSE({factors}−s, k̂) is the main figure: with {latents} latents for {factors} factors, "
        f"{spare} carry no information. A perfect model counts them as shared: its ŝ is "
        f"s + {spare}, its MSE(s, ŝ) {spare**2}. The paper shows MSE(s, ŝ), as a plot only."
    ]


def _reference_rows(shared: str, found: Mapping[str, Reference]) -> list[list[Cell]]:
    return [
        [shared, f"reference: {name}", *(f"{getattr(reference, each):.2f}" for each in FOUND)]
        for name, reference in found.items()
    ]


def _knowledge(models: Sequence[Model], options: Options) -> Table:
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
            rows.append([shown_shared(shared), method.label, *row, in_whole, disentanglement])
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


def _stated(method: Method, shared: int | None, part: str) -> str | None:
    """The paper's value."""
    found = (
        paper("pairs_downstream")["by_method"].get(method.name, {}).get(str(shared), {}).get(part)
    )
    return None if found is None else with_deviation(**found, digits=2, tight=True)


def _claims(models: Sequence[Model]) -> Table:
    factors = models[0]["factors"]
    tested = [method for method in methods_of(models) if method.kind == "hypergeometric"]
    baselines = [method for method in methods_of(models) if method.kind in BASELINES]
    comparisons = [
        (f"MSE({factors}−s, k̂) below the baselines'", "independent_error", _is_below),
        ("MSE(s, ŝ) below the baselines'", "shared_error", _is_below),
        ("I at least the baselines'", "independent_accuracy", _is_at_least),
    ]
    rows: list[list[Cell]] = []
    for claim, name, judge in comparisons:
        rows += [
            [claim, method.label, *_compared(models, method, baselines, name, judge)]
            for method in tested
        ]
    notes = [
        "MSE and I-accuracy, at every s: the method's mean over seeds, and the best that any "
        "LabelVAE or AdaVAE of this study has there.",
        f"ŝ follows s: from the smallest to the largest s its mean rises by at least {FOLLOWS:g} "
        "of the rise of s; r is the correlation of s with mean ŝ over models. Open (–) if models "
        "are missing.",
    ]
    following = {"": _followed}
    if None in settings_of(models):
        following[" in pairs"] = _followed_in_pairs
        notes.append(
            "In pairs: within the models of random s, by the true s of each pair; r is over pairs."
        )
    for where, judged in following.items():
        rows += [
            [f"ŝ does not follow s{where}", method.label, *judged(models, method, expected=False)]
            for method in baselines
        ]
        rows += [
            [f"ŝ follows s{where}", method.label, *judged(models, method, expected=True)]
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
    method: Method,
    baselines: Sequence[Method],
    name: str,
    judge: Callable[..., tuple[bool, str]],
) -> list[Cell]:
    """Outcome and figures. The outcome is open if a figure is missing and the others do not refute
    the claim.
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


def _followed(models: Sequence[Model], method: Method, expected: bool) -> list[Cell]:
    """Whether mean ŝ follows s over the data sets."""
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


def _followed_in_pairs(models: Sequence[Model], method: Method, expected: bool) -> list[Cell]:
    """Whether ŝ follows s within the models of random s."""
    counts = counts_of(select(models, None, method))
    means = {
        shared: len(numbers) - 1 - mean_independent(numbers) for shared, numbers in counts.items()
    }
    return _judged(means, _correlation_over_pairs(counts), expected)


def _correlation_over_pairs(counts: Mapping[int, Sequence[int]]) -> float:
    """The correlation of s and ŝ = d − k̂."""
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
            for name in ("independent", "independent_error", "shared_error")
        ]
        rows.append(
            [*row, *(_rounded(model[name], 3) for name in SCORES[:3]), model["stopped_after"]]
        )
    columns = [
        "s",
        "method",
        "seed",
        *VARIED.values(),
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
