"""Subsets of k of d items: do draws, scores and gradients belong to one law?

Layers that choose k of d items draw hard subsets and estimate gradients through them. The study
compares the field's estimators with ours on small problems whose laws and gradients are known
exactly: the total variation of the draws to the law that is scored, the mean score, the bias and
the spread of gradients, and the time of a step. Two released codes draw by Gumbel top-k, which is
Wallenius' law, and score Fisher's.

Run it with ``diffurn reproduce subsets``.
"""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from diffurn_studies.harness.study import Results
from diffurn_studies.harness.tables import Table
from diffurn_studies.harness.workspace import Workspace
from diffurn_studies.subsets import toy
from diffurn_studies.subsets.figure import CAPTIONS as CAPTIONS
from diffurn_studies.subsets.figure import figures_of
from diffurn_studies.subsets.options import Options
from diffurn_studies.subsets.tables import SPEED, tables_of, verdict_of

NAME = "subsets"


def units(options: Options) -> list[str]:
    return [*(f"seed{seed}" for seed in range(options.seeds)), SPEED]


def run_unit(options: Options, unit: str, workspace: Workspace) -> dict[str, Any]:
    if unit == SPEED:
        return toy.run_speed(options)
    return toy.run_seed(options, int(unit.removeprefix("seed")))


def table(results: Results) -> list[Table]:
    return tables_of(results)


def verdict(results: Results) -> list[str]:
    return verdict_of(results)


def figure(results: Results) -> dict[str, Figure]:
    return figures_of(results)
