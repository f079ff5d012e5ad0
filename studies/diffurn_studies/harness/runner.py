"""Runs a study unit by unit. A run can be killed at any moment; the same call resumes it.

A run directory belongs to one study with one set of options::

    options.json             study, arm, options and units; another run is refused
    environment.json         versions, device and commit of every start
    records/<unit>.json      the result of a unit, written once
    timings.json             seconds per unit over all attempts, kept apart from the records
    logs/<unit>/             scalars for TensorBoard
    files/<unit>/            files that the unit itself writes
    checkpoints/<unit>.pt    the state from which an interrupted unit goes on
    tables.json, figures/    written when all units are finished
"""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from diffurn_studies.harness.engines import Engine, Job, local, same_everywhere
from diffurn_studies.harness.machine import device_named, provenance, usable_device
from diffurn_studies.harness.records import RunError, write_figure
from diffurn_studies.harness.run_directory import Published, RunDirectory, Settings
from diffurn_studies.harness.study import Progress, Results, Study, stages_of
from diffurn_studies.harness.tables import Table
from diffurn_studies.harness.workspace import Workspace

__all__ = [
    "Engine",
    "Progress",
    "Results",
    "RunError",
    "Table",
    "Workspace",
    "publish",
    "read_published",
    "run",
]


def run(
    study: Study,
    options: Any,
    out: Path | str | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
    arm: str | None = None,
    caution: str = "",
) -> Results:
    """Runs the units that have no record yet, then writes tables and figures.

    Args:
        study: the study.
        options: its options.
        out: the run directory, new or of an earlier part of this run; None keeps nothing.
        engine: where the units run; in this process by default.
        progress: called before the first unit and after each one.
        arm: name of the arm that the options come from; the run directory remembers it.
        caution: a sentence that is shown above the tables.
    """
    engine = engine or local
    device = _device(options, engine)
    if out is None:
        with tempfile.TemporaryDirectory(prefix="diffurn-") as folder:
            directory = RunDirectory(Path(folder))
            return _run(study, options, device, directory, engine, progress, arm)
    directory = RunDirectory(Path(os.path.realpath(out)))
    with directory.locked():
        results = _run(study, options, device, directory, engine, progress, arm)
        publish(study, results, directory, caution)
    return results


def publish(
    study: Study,
    results: Results,
    directory: RunDirectory,
    caution: str = "",
    with_figures: bool = True,
) -> None:
    """Writes tables, verdict and figures of a finished run."""
    about = " ".join((study.__doc__ or "").strip().partition("\n\n")[0].split())
    figures = study.figure(results)
    directory.publish(
        Published(
            about,
            caution,
            study.verdict(results),
            study.table(results),
            {name: study.CAPTIONS[name] for name in figures},
        )
    )
    if with_figures:
        for name, figure in figures.items():
            write_figure(directory.path / "figures" / f"{name}.png", figure)


def _run(
    study: Study,
    options: Any,
    device: torch.device,
    directory: RunDirectory,
    engine: Engine,
    progress: Progress | None,
    arm: str | None,
) -> Results:
    units = study.units(options)
    _require_file_names(units)
    directory.claim(Settings.of(study.NAME, arm, options, units), getattr(options, "FREE", ()))
    with same_everywhere():
        environment = provenance(device)
    directory.note_environment(environment)

    records = directory.records()
    directory.timings()  # a damaged file is found before any unit runs

    def tell() -> None:
        if progress is not None:
            following = next((unit for unit in units if unit not in records), "")
            progress(len(records), len(units), following)

    tell()
    for stage in stages_of(study, options):
        jobs = [
            Job(study, options, unit, directory.path, str(device))
            for unit in stage
            if unit not in records
        ]
        # Closing the generator lets the engine cancel its tasks if a record cannot be written.
        with closing(engine(jobs)) as outcomes:
            for outcome in outcomes:
                directory.write_record(outcome.unit, outcome.record)
                directory.note_timing(outcome.unit, outcome.seconds)
                records[outcome.unit] = outcome.record
                tell()
    return Results(study.NAME, options, environment, {unit: records[unit] for unit in units})


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
    """The device of the options. Only the local engine needs it on this machine."""
    name = getattr(options, "device", "cpu")
    try:
        return usable_device(name) if engine is local else device_named(name)
    except ValueError as problem:
        raise RunError(str(problem)) from None


def read_published(directory: Path) -> Published:
    """Tables and verdict of a run; before it is finished there are none."""
    return RunDirectory(directory).published() or Published("", "", [], [], {})
