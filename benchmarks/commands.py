"""What the commands of `python -m benchmarks` do, apart from their options."""

from __future__ import annotations

import tempfile
from pathlib import Path

import typer

from benchmarks import compare
from benchmarks.compare_tables import compare_tables
from benchmarks.registry import cells_of_ours
from benchmarks.tables import as_markdown
from benchmarks.trees import source_of
from benchmarks.workers import ROOT, WorkerError
from diffurn.cli.output import progress_bar, refuse, refusing, standard_output
from diffurn_studies.harness.environment import environment, usable_device
from diffurn_studies.harness.records import RunError, write_atomically, write_json


def compare_trees(
    before: str,
    after: str,
    out: Path,
    only: tuple[str, ...],
    rounds: int,
    longest: float,
    device: str,
    list_cells: bool,
) -> None:
    """See ``python -m benchmarks compare --help``."""
    cells = [name for name in cells_of_ours() if not only or any(part in name for part in only)]
    if not cells:
        refuse(f"--only {only[0]}: no cell has this in its name; --list names them all")
    if list_cells:
        typer.echo("\n".join(cells))
        return
    with refusing(ValueError):
        where = environment(usable_device(device))
    with refusing(OSError, about=f"--out {out}: "):
        out.mkdir(parents=True, exist_ok=True)
    outcomes: list[compare.Outcome] = []
    with tempfile.TemporaryDirectory(prefix="diffurn-") as folder:
        with refusing(ValueError):
            sources = (
                source_of(before, ROOT, Path(folder, "before")),
                source_of(after, ROOT, Path(folder, "after")),
            )
        effort = compare.Effort(rounds=rounds, longest=longest)
        try:
            with progress_bar("comparing") as progress, refusing(WorkerError):
                for outcome in compare.run(sources, cells, effort, device, progress):
                    outcomes.append(outcome)
        except KeyboardInterrupt:
            typer.echo("diffurn: stopped; these cells were measured", err=True)
    tables = compare_tables(outcomes)
    chosen = "".join(f" --only '{part}'" for part in only)
    command = f"python -m benchmarks compare {before} {after}{chosen}"
    with refusing(RunError):
        write_atomically(out / "compare.md", f"`{command}`\n\n{as_markdown(tables)}".encode())
        write_json(
            out / "compare.json",
            {
                "command": command,
                "environment": where,
                "outcomes": [outcome.as_json() for outcome in outcomes],
            },
        )
    console = standard_output(wide=True)
    for table in tables:
        console.print(table.as_rich())
    console.print(f"all rounds: {out}", soft_wrap=True, markup=False)
