"""What the commands of `python -m benchmarks` do: measure, write files, print tables."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import typer

from benchmarks import alone, compare, gpu, gradients, suite
from benchmarks.alone import suite as alone_suite
from benchmarks.cells import LAWS, Sweep
from benchmarks.compare_tables import compare_tables
from benchmarks.figure import QUANTITIES, scaling
from benchmarks.gradient_figure import figure as gradient_figure
from benchmarks.gradient_figure import tables as gradient_tables
from benchmarks.gradient_problems import Problem
from benchmarks.growth import Growth, growths
from benchmarks.installed import installed
from benchmarks.ours import Cell
from benchmarks.tables import all_tables, as_markdown
from benchmarks.trees import source_of
from benchmarks.workers import ROOT, WorkerError
from diffurn.cli.output import progress_bar, refusing, standard_output
from diffurn_studies.harness.machine import provenance
from diffurn_studies.harness.records import RunError, write_atomically, write_figure, write_json
from diffurn_studies.harness.tables import Table
from diffurn_studies.harness.terminal import show as show_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextmanager
def folder(out: Path) -> Iterator[None]:
    """Makes the folder for the files; problems with it or with the files become one sentence."""
    with refusing(OSError, about=f"--out {out}: "):
        out.mkdir(parents=True, exist_ok=True)
    with refusing(RunError):
        yield


def show(tables: Sequence[Table], out: Path) -> None:
    console = standard_output(wide=True)
    for table in tables:
        show_table(console, table)
    console.print(f"records, tables and figures: {out}", soft_wrap=True, markup=False)


def page(command: str, tables: Sequence[Table]) -> bytes:
    return f"`{command}`\n\n{as_markdown(tables)}".encode()


def compare_with_peers(
    options: suite.Options,
    grid: Sequence[Sweep],
    cells: Sequence[Cell],
    out: Path,
    as_json: bool = False,
) -> None:
    """Measures a grid with all contenders, and cells of this package alone."""
    device = torch.device(options.device)
    with folder(out):
        try:
            with ExitStack() as stack:
                found = installed(stack)
                for sentence in found.missing:
                    typer.echo(f"diffurn: {sentence}", err=True)
                with progress_bar("measuring the grid") as progress:
                    records = list(suite.run(options, found.contenders, grid, progress))
                with progress_bar("measuring jobs without a peer") as progress:
                    own = list(alone_suite.run(cells, device, options.seconds, progress))
        except KeyboardInterrupt:
            typer.echo("diffurn: stopped; nothing was written", err=True)
            raise typer.Exit(130) from None
        where = provenance(device) | found.versions
        tables = all_tables(records, own, found.missing)
        report = suite.report(options, where, found.missing, records, own)
        report["tables"] = [table.as_json() for table in tables]
        for name, figure in _figures(growths(records), where["device"]):
            write_figure(out / name, figure)
        write_atomically(out / "ratios.md", page(options.command, tables))
        write_json(out / "bench.json", report)
    if as_json:
        typer.echo(json.dumps(report, ensure_ascii=False, allow_nan=False))
    else:
        show(tables, out)


def chosen_cells(options: suite.Options) -> list[Cell]:
    """Cells of this package alone, if they were chosen."""
    return alone.cells() if options.has_alone else []


def _figures(found: Sequence[Growth], where: str) -> Iterator[tuple[str, Figure]]:
    for law in LAWS:
        for quantity in QUANTITIES:
            figure = scaling(found, law, quantity, where)
            if figure is not None:
                yield f"{law}-{quantity}.png", figure


def judge_gradients(
    options: gradients.Options, problems: Sequence[Problem], out: Path, as_json: bool = False
) -> None:
    """Judges all estimators on problems."""
    with folder(out):
        judgements, total = [], sum(1 for _ in gradients.cases(problems))
        with progress_bar("judging") as progress:
            for judgement in gradients.run(options, problems):
                judgements.append(judgement)
                progress(len(judgements), total)
        where = provenance(torch.device(options.device))
        report = gradients.report(options, where, judgements)
        write_json(out / "gradients.json", report)
        write_figure(out / "gradients.png", gradient_figure(judgements))
    if as_json:
        typer.echo(json.dumps(report, ensure_ascii=False))
    else:
        show(list(gradient_tables(judgements)), out)


def measure_gpu(device: torch.device, out: Path) -> None:
    """Measures the jobs that need a CUDA device."""
    with folder(out):
        rows: list[list[Any]] = [list(finding) for finding in gpu.findings(device)]
        where = provenance(device)
        title = f"{where['device']}, torch {where['torch']}"
        table = Table(title, ["job", "time"], rows)
        write_atomically(out / "gpu.md", page("python -m benchmarks gpu", [table]))
        write_json(out / "gpu.json", {"environment": where, "tables": [table.as_json()]})
    show([table], out)


def compare_trees(
    trees: tuple[str, str],
    cells: Sequence[str],
    effort: compare.Effort,
    device: torch.device,
    command: str,
    out: Path,
) -> None:
    """Compares two source trees cell by cell; an interrupted run shows the cells so far."""
    outcomes: list[compare.Outcome] = []
    with tempfile.TemporaryDirectory(prefix="diffurn-") as files:
        with refusing(ValueError):
            before = source_of(trees[0], ROOT, Path(files, "before"))
            after = source_of(trees[1], ROOT, Path(files, "after"))
        with folder(out):
            try:
                with progress_bar("comparing") as progress, refusing(WorkerError):
                    for outcome in compare.run(
                        (before, after), cells, effort, str(device), progress
                    ):
                        outcomes.append(outcome)
            except KeyboardInterrupt:
                typer.echo("diffurn: stopped; these cells were measured", err=True)
            tables = compare_tables(outcomes)
            found = [outcome.as_json() for outcome in outcomes]
            report = {"command": command, "environment": provenance(device), "outcomes": found}
            write_atomically(out / "compare.md", page(command, tables))
            write_json(out / "compare.json", report)
    show(tables, out)
