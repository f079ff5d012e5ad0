"""The tables and the figure of the multitask study."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from diffurn_studies.harness.drawing import COLOURS, curves, legend_below, plain
from diffurn_studies.harness.study import Results
from diffurn_studies.harness.tables import Cell, Table, counted, mean_and_deviation
from diffurn_studies.partitions.options import TASK_METHODS
from diffurn_studies.partitions.ways import WAYS

CAPTIONS = {
    "partitions-multitask": "Two tasks on noisyMultiMNIST over the noise of the right digit: the "
    "accuracy of both tasks, and the share of the neurons that the right task has. Every seed is a "
    "thin line, the mean a thick one.",
}
# What is shown of a model, in %: the titles, and the functions of its record.
_ACCURACIES = {"left": "accuracy of the left task (%)", "right": "accuracy of the right task (%)"}
_SHARE = "share of the neurons of the right task (%)"


def final(results: Results, method: str, noise: float, name: str) -> list[float]:
    """The last value of every seed in %: the accuracy ``left`` or ``right``, or the ``share`` of
    the right task. Models that broke down are left out.
    """
    return [100 * _curve(model, name)[-1] for model in _models(results, method, noise)]


def _models(results: Results, method: str, noise: float) -> list[dict[str, Any]]:
    models = results.records[method]["models"]
    return [model for model in models if model["noise"] == noise and not model["broken"]]


def _curve(model: dict[str, Any], name: str) -> np.ndarray:
    values = np.asarray(model[name])
    return 1 - values if name == "share" else values


def tables_of(results: Results) -> list[Table]:
    shown = {**_ACCURACIES, "share": _SHARE}
    return [*(_over_noise(results, name, title) for name, title in shown.items()), _each(results)]


def _over_noise(results: Results, name: str, title: str) -> Table:
    options, rows = results.options, []
    for method in _methods(results, name):
        found = (final(results, method, noise, name) for noise in options.noises)
        rows.append([TASK_METHODS[method], *(mean_and_deviation(x, 1, tight=True) for x in found)])
    notes = [
        f"Two digits of {options.dataset} on one canvas, test part, by the noise p of the right "
        f"one; mean ± deviation over {counted(options.seeds, 'seed')}, {options.epochs} epochs.",
    ]
    columns = ["method", *(f"p = {noise:g}" for noise in options.noises)]
    return Table(f"Two tasks: {title}", columns, rows, notes)


def _methods(results: Results, name: str) -> list[str]:
    """Those that have a value of this name: all have accuracies."""
    return [method for method in results.options.methods if name != "share" or method in WAYS]


def _each(results: Results) -> Table:
    options, rows = results.options, []
    for method in options.methods:
        for noise in options.noises:
            by_seed: dict[int, Cell] = {
                model["seed"]: _shown(method, model) for model in _models(results, method, noise)
            }
            cells = [by_seed.get(seed) for seed in range(options.seeds)]
            rows.append([TASK_METHODS[method], f"{noise:g}", *cells])
    columns = ["method", "p", *(f"seed {seed}" for seed in range(options.seeds))]
    notes = ["Accuracies of the left and the right task, and the share of the right task, in %."]
    return Table("Two tasks: every seed", columns, rows, notes)


def _shown(method: str, model: dict[str, Any]) -> str:
    names = [*_ACCURACIES, *(["share"] if method in WAYS else [])]
    return " / ".join(f"{100 * _curve(model, name)[-1]:.1f}" for name in names)


def verdict_of(results: Results) -> list[str]:
    """The most accurate method, and how the shares follow the noise."""
    noises = results.options.noises
    means = {}
    for method in results.options.methods:
        found = [x for p in noises for name in _ACCURACIES for x in final(results, method, p, name)]
        if found:
            means[method] = fmean(found)
    if not means:
        return ["All models broke down."]
    best = max(means, key=means.__getitem__)
    sentences = [
        f"The most accurate over both tasks and all noise is: {TASK_METHODS[best]} "
        f"({means[best]:.1f} %)."
    ]
    if noises[0] < noises[-1]:
        told = [_share_over_noise(results, method) for method in _methods(results, "share")]
        sentences.append(
            f"From p = {noises[0]:g} to {noises[-1]:g} the share of the right task goes "
            f"{', '.join(filter(None, told))}."
        )
    return sentences


def _share_over_noise(results: Results, method: str) -> str:
    """From which share to which one, and in how many seeds it rises."""
    noises = results.options.noises
    start, end = (
        {
            model["seed"]: 100 * _curve(model, "share")[-1]
            for model in _models(results, method, noise)
        }
        for noise in (noises[0], noises[-1])
    )
    both = sorted(start.keys() & end.keys())
    if not both:
        return ""
    first, last = (fmean(values[seed] for seed in both) for values in (start, end))
    rises = sum(end[seed] > start[seed] for seed in both)
    of_seeds = f"rises in {rises} of {counted(len(both), 'seed')}"
    return f"from {first:.1f} to {last:.1f} % ({method}: {of_seeds})"


def figures_of(results: Results) -> dict[str, Figure]:
    options = results.options
    figure = Figure(figsize=(12, 4.6), layout="constrained", dpi=150)
    panels, handles = figure.subplots(1, 3), []
    for panel, (name, title) in zip(panels, {**_ACCURACIES, "share": _SHARE}.items(), strict=True):
        for method in _methods(results, name):
            colour = COLOURS[list(TASK_METHODS).index(method)]
            lines = [_line(results, method, name, seed) for seed in range(options.seeds)]
            curves(panel, [line for line in lines if line[0]], color=colour)
            if name == "left":
                words = TASK_METHODS[method]
                handles += panel.plot([], [], color=colour, linewidth=2, label=words)
        panel.set(title=title, xlabel="noise p of the right digit")
        plain(panel)
    legend_below(figure, handles, 2)
    return {"partitions-multitask": figure}


def _line(results: Results, method: str, name: str, seed: int) -> tuple[list[float], np.ndarray]:
    """The levels of noise at which the model of a seed did not break down, and its values."""
    found = {
        noise: 100 * _curve(model, name)[-1]
        for noise in results.options.noises
        for model in _models(results, method, noise)
        if model["seed"] == seed
    }
    return list(found), np.array(list(found.values()))
