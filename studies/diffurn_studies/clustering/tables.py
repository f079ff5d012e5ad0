"""The tables of the clustering study, made from its records alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from diffurn_studies.clustering.options import Options
from diffurn_studies.clustering.priors import Categorical, Prior
from diffurn_studies.clustering.records import (
    Model,
    Records,
    class_counts,
    models_of,
    select,
    version_name,
)
from diffurn_studies.harness.literature import paper
from diffurn_studies.harness.tables import Table, counted, mean_and_deviation, with_deviation

METRICS = {"accuracy": "accuracy (%)", "nmi": "NMI (%)", "ari": "ARI (%)"}


def tables_of(records: Records, options: Options) -> list[Table]:
    """All tables of the study.

    Args:
        records: by unit.
        options: of the run.
    """
    models = models_of(records)
    return [
        _comparison(models, options),
        _claim(models, class_counts(records), options),
        _every_run(models),
    ]


def verdict_of(records: Records, options: Options) -> list[str]:
    """The accuracy of the hypergeometric prior, and how far it is ahead of the categorical one."""
    models, sentences = models_of(records), []
    names = {version: version_name(version) for version in options.versions}

    def means(prior: Prior) -> list[float]:
        ends = [_finals(models, version, prior) for version in names]
        return [100 * statistics.fmean(end["accuracy"] for end in own) for own in ends]

    for prior in options.priors:
        if prior.kind != "hypergeometric":
            continue
        own = means(prior)
        sentence = f"The {prior} prior reaches {_numbers(own)} % ({', '.join(names.values())})"
        if Categorical() in options.priors:
            ahead = [a - b for a, b in zip(own, means(Categorical()), strict=True)]
            sentence += f", {_numbers(ahead, '+')} points against the categorical prior"
        sentences.append(f"{sentence}.")
    stated = paper("clustering")["by_dataset"] if options.dataset == "mnist" else {}
    theirs = [stated[name]["accuracy"] for name in names.values() if name in stated]
    if sentences and theirs and len(theirs) == len(names):
        reached = [each["hypergeometric"]["mean"] for each in theirs]
        ahead = [each["hypergeometric"]["mean"] - each["categorical"]["mean"] for each in theirs]
        sentences.append(f"The paper has {_numbers(reached)} % and {_numbers(ahead, '+')} points.")
    return sentences


def _numbers(values: Sequence[float], sign: str = "") -> str:
    return ", ".join(f"{value:{sign}.1f}".replace("-", "−") for value in values)


def _finals(models: Iterable[Model], version: float, prior: Prior) -> list[dict[str, Any]]:
    """The last evaluations of the models of one version and prior, by seed."""
    return [model["final"] for model in select(models, version, prior)]


def _papers(version: float, metric: str, prior: Prior) -> str | None:
    stated = (
        paper("clustering")["by_dataset"]
        .get(version_name(version), {})
        .get(metric, {})
        .get(prior.kind)
    )
    return None if stated is None else with_deviation(**stated, digits=1)


def _comparison(models: Sequence[Model], options: Options) -> Table:
    rows = []
    for version in options.versions:
        for prior in options.priors:
            ends = _finals(models, version, prior)
            row: list[Any] = [version_name(version), str(prior)]
            for metric in METRICS:
                row += [
                    mean_and_deviation([100 * end[metric] for end in ends], digits=1),
                    _papers(version, metric, prior) if options.dataset == "mnist" else None,
                ]
            rows.append(row)
    columns = [
        "data",
        "prior",
        *(heading for metric in METRICS.values() for heading in (metric, "paper")),
    ]
    start = (
        "VaDE's released autoencoder"
        if options.pretrained
        else "an autoencoder of our own for every version and seed"
    )
    one = " of seed 0" if options.one_mixture else ""
    likeliest = f", the likeliest of {options.mixture_fits}" if options.mixture_fits > 1 else ""
    shared = (
        f" whose items share an urn with {options.mixture_balls:g} N balls of each cluster,"
        if options.mixture_balls
        else ""
    )
    held = (
        f" Cluster weights are learned after epoch {options.held_epochs}."
        if options.held_epochs
        else ""
    )
    notes = [
        f"{options.dataset}, test part; mean ± standard deviation of "
        f"{counted(options.seeds, 'seed')} after {options.epochs:,} epochs, from {start} "
        f"and a Gaussian mixture{one}{shared} fitted to its latents of the training "
        f"part{likeliest}.{held}",
        f"Reduced classes: {_listed(options.reduced)}, in the training and the test part alike.",
        "The hypergeometric prior is the law of the counts, which is not normalised over "
        "assignments, unless its name says assignments.",
    ]
    return Table("Clustering: three priors over the assignments", columns, rows, notes)


def _claim(models: Sequence[Model], counts: Mapping[str, Sequence[int]], options: Options) -> Table:
    """Is the hypergeometric prior ahead of the categorical one, and do its cluster sizes follow the
    classes?
    """
    rows = []
    for version in options.versions:
        rival = [end["accuracy"] for end in _finals(models, version, Categorical())]
        for prior in options.priors:
            ends = _finals(models, version, prior)
            own = [end["accuracy"] for end in ends]
            ahead = (
                None
                if prior == Categorical() or not rival
                else 100 * (sum(own) - sum(rival)) / len(own)
            )
            wins = (
                None
                if ahead is None
                else f"{sum(a > b for a, b in zip(own, rival, strict=True))} of {len(own)}"
            )
            row: list[Any] = [
                version_name(version),
                str(prior),
                None if ahead is None else f"{round(ahead, 1) + 0.0:+.1f}",
                wins,
            ]  # never -0.0
            for name in ("sizes", "shares", "weights"):
                row.append(
                    " ".join(f"{end['correlation'][name]:.2f}" for end in ends)
                    if name == "sizes" or prior.learned
                    else None
                )
            expected = " ".join(f"{100 * _reduced_share(end, options):.1f}" for end in ends)
            rows.append(
                [
                    *row,
                    f"{_true_reduced_percent(counts[version_name(version)], options):.1f}",
                    expected if prior.learned else None,
                ]
            )
    columns = [
        "data",
        "prior",
        "ahead of categorical (points)",
        "seeds ahead",
        "r of sizes",
        "r of mean/n",
        "r of π",
    ]
    columns += ["reduced classes (%)", "their mean/n (%)"]
    notes = [
        "r: correlation, run by run, of the clusters' sizes (on the test part), of the prior's "
        "mean/n and of the learned π with the "
        "frequencies of the classes they are matched to. For independent samples mean/n is π; in "
        "an urn of few balls π are odds.",
        f"Reduced classes, {_listed(options.reduced)}: their part of the test data, and of mean/n, "
        "run by run.",
        "Seeds ahead counts models that beat the categorical model that started from the same "
        "mixture and saw the same batches.",
    ]
    return Table("Clustering: the claim under test", columns, rows, notes)


def _reduced_share(final: dict[str, Any], options: Options) -> float:
    """The share of a batch that the prior expects in the clusters of the reduced classes."""
    return float(
        sum(
            share
            for share, matched in zip(final["shares"], final["classes"], strict=True)
            if matched in options.reduced
        )
    )


def _true_reduced_percent(counts: Sequence[int], options: Options) -> float:
    return 100 * sum(counts[label] for label in options.reduced) / sum(counts)


def _listed(classes: Sequence[int]) -> str:
    return ", ".join(map(str, classes))


def _every_run(models: Sequence[Model]) -> Table:
    rows = []
    for model in models:
        final, stopped = model["final"], model["stopped_after"]
        row: list[Any] = [
            version_name(model["version"]),
            model["prior"],
            model["seed"],
            f"{100 * model['accuracy'][0]:.1f}",
        ]
        row += [f"{100 * final[metric]:.1f}" for metric in METRICS]
        row += [
            " ".join(str(size) for size in sorted(final["sizes"])),
            None if stopped is None else f"broke down in epoch {stopped}",
        ]
        rows.append(row)
    columns = [
        "data",
        "prior",
        "seed",
        "accuracy of the mixture (%)",
        *METRICS.values(),
        "cluster sizes",
        "note",
    ]
    return Table("Clustering: every run", columns, rows)
