"""Runs an experiment unit by unit, so that it can be killed at any moment and resumed by the same
call.

A run directory belongs to one experiment with one set of options::

    options.json        experiment, options and units; a run with others is refused environment.json
    versions, device and commit, of every start records/<unit>.json what a unit found; written once,
    whole, and never run again timings.json        seconds a unit, of all attempts; kept apart, so
    that records do not depend on when they were made logs/<unit>/        scalars for TensorBoard
    files/<unit>/    files of the unit's own checkpoints/<unit>.pt   where a unit goes on
    tables.json, figures/*.png   written once all units are finished

An experiment is a module with a few functions; add its name to `EXPERIMENTS`, and ``diffurn
reproduce coins`` runs it::

    NAME = "coins"

    @dataclass(frozen=True)
    class Options:
        seeds: int = 5             # every field can be set on the command line; a field `device`
            follows --device

        @classmethod
        def quick(cls) -> Options:
            return cls(seeds=2)

    def units(options: Options) -> list[str]:
        return [f"seed{seed}" for seed in range(options.seeds)]

    def run_unit(options: Options, unit: str, workspace: Workspace) -> dict[str, Any]:
        torch.manual_seed(int(unit.removeprefix("seed")))      # a unit seeds itself
        return {"heads": float(torch.rand(1000).round().mean())}

    def table(results: Results) -> list[Table]: return [Table("Heads", ["unit", "ours"], [[unit,
        record["heads"]] for unit, record in results.records.items()])]

    def figure(results: Results) -> dict[str, Figure]:
        return {}

    def run(options: Options, out: Path | None = None, engine: Engine | None = None, progress:
        Progress | None = None) -> Results: return harness.run(sys.modules[__name__], options, out,
        engine, progress)

Options that change where and how fast a run computes, not what, may be named in a class variable
``FREE`` of `Options`: they may change when it is resumed. An experiment whose later units need
files of earlier ones says so by a function ``stages(options)``, lists of units each of which is
started when the one before is finished; `units` then are those of all stages.

A long unit saves its state now and then with `Workspace.save_checkpoint`, starts with
`Workspace.load_checkpoint`, and reports on the way with `Workspace.scalars`.
"""

from __future__ import annotations

import importlib
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from diffurn_studies.harness.engines import Engine, Job, local, same_everywhere
from diffurn_studies.harness.environment import device_named, provenance, usable_device
from diffurn_studies.harness.records import RunDirectory, RunError, write_figure, write_json
from diffurn_studies.harness.tables import Table
from diffurn_studies.harness.workspace import Workspace

__all__ = [
    "EXPERIMENTS",
    "Engine",
    "Progress",
    "Results",
    "RunError",
    "Table",
    "Workspace",
    "find",
    "read_tables",
    "run",
]

# Name on the command line -> module, imported when it is asked for.
EXPERIMENTS = {
    "ks": "diffurn_studies.ks.study",
    "minimal": "diffurn_studies.minimal.study",
    "categorical": "diffurn_studies.categorical.study",
    "pairs": "diffurn_studies.pairs.study",
    "clustering": "diffurn_studies.clustering.study",
}

# Called with the number of finished units, of all units, and the name of the next one in line (""
# at the end).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Results:
    """What an experiment's `table` and `figure` work from: all its records, in the order of its
    units.
    """

    experiment: str
    options: Any
    environment: dict[str, str]
    records: dict[str, dict[str, Any]]


def find(name: str) -> ModuleType:
    """The module of the experiment called `name`."""
    if name not in EXPERIMENTS:
        raise RunError(f"there is no experiment {name!r}: choose one of {', '.join(EXPERIMENTS)}")
    try:
        return importlib.import_module(EXPERIMENTS[name])
    except ModuleNotFoundError as missing:
        raise RunError(
            f"the experiment {name} needs {missing.name}: pip install 'diffurn[experiments]'"
        ) from missing


def run(
    experiment: ModuleType,
    options: Any,
    out: Path | str | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Results:
    """Runs the units that have no record yet, then writes tables and figures.

    Args:
        experiment: the module.
        options: its options.
        out: the run directory, new or of an earlier part of this run; None keeps nothing.
        engine: where the units run; in this process by default.
        progress: told how far the run is.
    """
    engine = engine or local
    device = _device(options, engine)
    if out is None:
        with tempfile.TemporaryDirectory(prefix="diffurn-") as folder:
            return _run(experiment, options, device, RunDirectory(Path(folder)), engine, progress)
    directory = RunDirectory(Path(os.path.realpath(out)))
    with directory.locked():
        results = _run(experiment, options, device, directory, engine, progress)
        _publish(experiment, results, directory.path)
    return results


def _run(
    experiment: ModuleType,
    options: Any,
    device: torch.device,
    directory: RunDirectory,
    engine: Engine,
    progress: Progress | None,
) -> Results:
    units = experiment.units(options)
    _require_file_names(units)
    directory.claim(experiment.NAME, options, units)
    with same_everywhere():
        environment = provenance(device)
    directory.note_environment(environment)

    records = directory.records()
    directory.timings()  # one that cannot be read is found before any unit runs

    def tell() -> None:
        if progress is not None:
            progress(
                len(records), len(units), next((unit for unit in units if unit not in records), "")
            )

    tell()
    for stage in _stages(experiment, options):
        jobs = [
            Job(experiment.__name__, options, unit, directory.path, str(device))
            for unit in stage
            if unit not in records
        ]
        with closing(
            engine(jobs)
        ) as outcomes:  # an engine cleans up even where a record cannot be written
            for outcome in outcomes:
                directory.write_record(outcome.unit, outcome.record)
                directory.note_timing(outcome.unit, outcome.seconds)
                records[outcome.unit] = outcome.record
                tell()
    return Results(experiment.NAME, options, environment, {unit: records[unit] for unit in units})


def _stages(experiment: ModuleType, options: Any) -> list[list[str]]:
    stages: list[list[str]] = (
        experiment.stages(options) if hasattr(experiment, "stages") else [experiment.units(options)]
    )
    return stages


def _require_file_names(units: list[str]) -> None:
    for unit in units:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._=,+-]{0,99}", unit):
            raise ValueError(
                f"the unit {unit!r} cannot be a file name: use up to 100 letters, digits and . _ = "
                ", + -"
            )
    if len(set(units)) < len(units):
        raise ValueError(f"units must have different names, not {units}")


def _device(options: Any, engine: Engine) -> torch.device:
    name = getattr(options, "device", "cpu")
    try:
        return (
            usable_device(name) if engine is local else device_named(name)
        )  # a cluster may have what this machine lacks
    except ValueError as problem:
        raise RunError(str(problem)) from None


def _publish(experiment: ModuleType, results: Results, directory: Path) -> None:
    about = (experiment.__doc__ or "").strip().partition("\n\n")[0]
    write_json(
        directory / "tables.json",
        {"about": about, "tables": [table.as_json() for table in experiment.table(results)]},
    )
    for name, figure in experiment.figure(results).items():
        write_figure(directory / "figures" / f"{name}.png", figure)


def read_tables(directory: Path) -> list[Table]:
    """The tables of a finished run."""
    published = RunDirectory(directory).published()
    return [] if published is None else published.tables
