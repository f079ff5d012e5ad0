"""A tiny experiment for the tests of the harness; run as a script, it is the command line with this
experiment added.

Units: `fast0`, `fast1`, ... draw numbers; `slow` takes its time and keeps nothing on the way;
`steps0`, `steps1` walk step by step, log every step and save a checkpoint now and then. Every
attempt leaves its process id in the unit's folder, so tests can count and kill them.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from matplotlib.figure import Figure

from diffurn_studies.harness import runner as harness
from diffurn_studies.harness.runner import Engine, Progress, Results, Table, Workspace

NAME = "tiny"


@dataclass(frozen=True)
class Options:
    """What the tiny experiment does.

    Attributes:
        seeds: number of fast units.
        steps: of a walk.
        pause: seconds a step of a walk takes; a slow unit takes ten of them.
        scale: of the numbers drawn.
        sizes: what is drawn, for tests of the command line.
        law: likewise.
        loud: likewise.
        limit: likewise.
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
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps}, but must be at least 1")

    @classmethod
    def quick(cls) -> Options:
        return cls(seeds=1, steps=10)


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


def figure(results: Results) -> dict[str, Figure]:
    picture = Figure(figsize=(4, 2.5), layout="constrained")
    picture.subplots().bar(
        list(results.records), [record["value"] for record in results.records.values()]
    )
    return {"values": picture}


def run(
    options: Options,
    out: Path | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Results:
    return harness.run(sys.modules[__name__], options, out, engine, progress)


if __name__ == "__main__":
    from diffurn.cli import app

    harness.EXPERIMENTS["tiny"] = "tiny_experiment"
    app()
