"""Subsets of k of d items: do draws, scores and gradients belong to one law, and what do networks
gain?

Layers that choose k of d items draw hard subsets and estimate gradients through them. On small
problems, whose laws and gradients are known exactly, the study measures the total variation of the
draws to the law that is scored, the mean score, the bias and the spread of gradients, and the time
of a step. Two released codes draw by Gumbel top-k, which is Wallenius' law, and score Fisher's.
The other arms train networks with every contender on the tasks of the field's papers.

Run it with ``diffurn reproduce subsets``, and a task with ``--arm``.
"""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from diffurn_studies.harness.study import Results
from diffurn_studies.harness.tables import Table
from diffurn_studies.harness.workspace import Workspace
from diffurn_studies.subsets import figure as toy_figure
from diffurn_studies.subsets import tables as toy_tables
from diffurn_studies.subsets import toy, training, training_tables
from diffurn_studies.subsets.options import Options, TrainingOptions

NAME = "subsets"
CAPTIONS = {
    **toy_figure.CAPTIONS,
    **{
        f"subsets-{task}": f"{words.capitalize()}: the validation loss over the steps; every seed, "
        "and the mean of the seeds."
        for task, words in training_tables.WORDS.items()
    },
}
AnyOptions = Options | TrainingOptions


def stages(options: AnyOptions) -> list[list[str]]:
    if isinstance(options, TrainingOptions):
        return training.stages(options)
    return [[*(f"seed{seed}" for seed in range(options.seeds)), toy_tables.SPEED]]


def units(options: AnyOptions) -> list[str]:
    return [unit for stage in stages(options) for unit in stage]


def run_unit(options: AnyOptions, unit: str, workspace: Workspace) -> dict[str, Any]:
    if isinstance(options, TrainingOptions):
        return training.run_unit(options, unit, workspace)
    if unit == toy_tables.SPEED:
        return toy.run_speed(options)
    return toy.run_seed(options, int(unit.removeprefix("seed")))


def table(results: Results) -> list[Table]:
    if isinstance(results.options, TrainingOptions):
        return training_tables.tables_of(results)
    return toy_tables.tables_of(results)


def verdict(results: Results) -> list[str]:
    if isinstance(results.options, TrainingOptions):
        return training_tables.verdict_of(results)
    return toy_tables.verdict_of(results)


def figure(results: Results) -> dict[str, Figure]:
    if isinstance(results.options, TrainingOptions):
        return training_tables.figures_of(results)
    return toy_figure.figures_of(results)
