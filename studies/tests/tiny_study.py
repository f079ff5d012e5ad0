"""A tiny study for the tests of the harness; run as a script, it is a command line for this study.

Units: `fast0`, `fast1`, ... draw numbers; `slow` takes its time and saves no checkpoint; `steps0`,
`steps1` walk step by step, log every step and save a checkpoint now and then. Every attempt leaves
its process id in the unit's folder, so that tests can count and kill the attempts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import tiny_arms
import torch
import typer
from matplotlib.figure import Figure

from diffurn_studies.cli.report import report
from diffurn_studies.cli.reproduce import command
from diffurn_studies.harness.arms import Entry
from diffurn_studies.harness.study import Results, Study
from diffurn_studies.harness.tables import Table
from diffurn_studies.harness.workspace import Workspace

NAME = "tiny"


@dataclass(frozen=True)
class Options:
    """What the tiny study does.

    Attributes:
        seeds: number of fast units.
        steps: of a walk.
        pause: seconds a step of a walk takes; a slow unit takes ten of them.
        scale: of the numbers drawn.
        sizes: of the tensors drawn.
        law: for tests of the command line, as are the next two.
        loud: true or false.
        limit: a number or none.
        label: an object, which the command line cannot set.
        device: where to compute.
    """

    seeds: int = 3
    steps: int = 40
    pause: float = 0.0
    scale: float = 1.0
    sizes: tuple[int, ...] = (3, 1000)
    law: Literal["normal", "uniform"] = "normal"
    loud: bool = False
    limit: int | None = None
    label: complex = 1j
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps}, but must be at least 1")

    def quick(self) -> Options:
        return replace(self, seeds=1, steps=10)


def units(options: Options) -> list[str]:
    return [*(f"fast{seed}" for seed in range(options.seeds)), "slow", "steps0", "steps1"]


def run_unit(options: Options, unit: str, workspace: Workspace) -> dict[str, Any]:
    with (workspace.directory / "attempts").open("a") as attempts:
        attempts.write(f"{os.getpid()}\n")
    torch.manual_seed(units(options).index(unit))
    if unit.startswith("steps"):
        return _walk(options, workspace)
    if unit == "slow":
        time.sleep(10 * options.pause)
    # a sum over many numbers: its last bits depend on the dtype and on the number of threads
    sums = [
        float(torch.rand(size, 1000, device=workspace.device).mul(options.scale).sum())
        for size in options.sizes
    ]
    return {"value": sums[0], "sums": sums, "threads": torch.get_num_threads()}


def _walk(options: Options, workspace: Workspace) -> dict[str, Any]:
    state = workspace.load_checkpoint() or {"step": 0, "place": torch.zeros(3)}
    for step in range(state["step"], options.steps):
        state = {"step": step + 1, "place": state["place"] + options.scale * torch.randn(3)}
        workspace.scalars(step, place=state["place"][0], distance=state["place"].norm())
        if step % 7 == 3:
            workspace.save_checkpoint(state)
        time.sleep(options.pause)
    return {"value": float(state["place"].norm()), "place": state["place"].tolist()}


def table(results: Results) -> list[Table]:
    rows = [
        [unit, record["value"], 1.0, record["value"] - 1.0]
        for unit, record in results.records.items()
    ]
    return [
        Table(
            "Values <found>",
            ["unit", "ours", "paper", "difference"],
            rows,
            ["The paper never had this & never will."],
        )
    ]


def verdict(results: Results) -> list[str]:
    return [f"The tiny study has {len(results.records)} values <found>."]


CAPTIONS = {"values": "The values & nothing else."}


def figure(results: Results) -> dict[str, Figure]:
    picture = Figure(figsize=(4, 2.5), layout="constrained")
    picture.subplots().bar(
        list(results.records), [record["value"] for record in results.records.values()]
    )
    return {"values": picture}


@dataclass(frozen=True)
class Changed:
    """The tiny study with other units, or another way to run them."""

    units: Callable[[Options], list[str]] = units
    run_unit: Callable[[Options, str, Workspace], dict[str, Any]] = run_unit
    table: Callable[[Results], list[Table]] = table
    verdict: Callable[[Results], list[str]] = verdict
    figure: Callable[[Results], dict[str, Figure]] = figure
    CAPTIONS: dict[str, str] = field(default_factory=lambda: CAPTIONS)
    NAME: str = field(default=NAME, init=False)


def command_line(studies: Mapping[str, Entry]) -> typer.Typer:
    """The commands `reproduce`, for some studies, and `report`."""
    made = typer.Typer(add_completion=False)
    made.command("reproduce")(command(studies))
    made.command("report")(report)
    return made


def load() -> Study:
    """This module under its own name, even if it runs as a script."""
    import tiny_study

    return tiny_study


APP = command_line({"tiny": Entry(load, tiny_arms)})

if __name__ == "__main__":
    APP()
