"""`diffurn reproduce`: the paper's tables and figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from diffurn.cli.output import refuse, standard_output


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="ks, minimal, categorical, ...; all runs every experiment, each in a folder of "
            "its own."
        ),
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version of it, in a minute or two.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Repetitions, where the experiment has some.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="torch device, such as cpu or cuda.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Run directory, by default runs/NAME; the same command resumes it."),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="local, or ray for the cores of a Ray cluster.")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="Ray cluster to use, such as auto; by default one is started here."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any option of the experiment, as name=value; repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Regenerate tables and figures of the paper, beside the paper's own figures."""
    from diffurn_studies.harness import engines, settings
    from diffurn_studies.harness import runner as harness

    try:
        names = list(harness.EXPERIMENTS) if name == "all" else [name]
        modules = {each: harness.find(each) for each in names}
        asked = dict(map(settings.split, assignments or []))
        asked |= {
            option: str(value)
            for option, value in {"seeds": seeds, "device": device}.items()
            if value is not None
        }
        options = _options(modules, quick, asked)
        directories = {
            each: (out or Path("runs")) / each if name == "all" or out is None else out
            for each in names
        }
        chosen = engines.named(engine, address)
        for each in names:
            with (
                redirect_stdout(sys.stderr),
                _progress(each) as progress,
            ):  # Ray tells stdout about workers that died
                harness.run(modules[each], options[each], directories[each], chosen, progress)
    except harness.RunError as error:
        refuse(str(error))
    except KeyboardInterrupt:
        typer.echo(
            "diffurn: stopped; finished units are recorded, and the same command goes on from "
            "there",
            err=True,
        )
        raise typer.Exit(130) from None
    _print(directories, as_json)


def _options(modules: dict[str, Any], quick: bool, asked: dict[str, str]) -> dict[str, Any]:
    """Options of every experiment; of several, each takes the settings it has a field for."""
    from diffurn_studies.harness import settings
    from diffurn_studies.harness.records import RunError

    options = {
        name: module.Options().quick() if quick else module.Options()
        for name, module in modules.items()
    }
    fields = {name: settings.field_names(each) for name, each in options.items()}
    nobodys = [option for option in asked if not any(option in names for names in fields.values())]
    if asked.get("device") == "cpu":  # where there is no choice of device, it is this one
        nobodys = [option for option in nobodys if option != "device"]
    if "device" in nobodys:
        raise RunError(
            f"--device {asked['device']}: {', '.join(modules)} computes on the CPU alone; leave "
            "--device out"
        )
    taken = {
        name: {
            option: text for option, text in asked.items() if option in [*fields[name], *nobodys]
        }
        for name in options
    }
    return {name: settings.with_settings(each, taken[name]) for name, each in options.items()}


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int, str], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
    )
    # Units may take hours, so the estimate looks at all of them, not at the last half minute.
    console = Console(stderr=True)
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        speed_estimate_period=1e9,
    ) as bar:
        task = bar.add_task(name, total=None)

        def tell(done: int, total: int, unit: str) -> None:
            if bar.tasks[0].total is None:  # what an earlier run finished says nothing about speed
                bar.reset(task, total=total, completed=done)
            bar.update(task, completed=done, description=f"{name}: {unit}" if unit else name)

        yield tell


def _print(directories: dict[str, Path], as_json: bool) -> None:
    from diffurn_studies.harness.runner import read_tables

    if as_json:
        content = {
            name: [table.as_json() for table in read_tables(path)]
            for name, path in directories.items()
        }
        typer.echo(json.dumps(content, ensure_ascii=False))
        return
    console = standard_output(wide=True)
    for path in directories.values():
        for table in read_tables(path):
            console.print(table.as_rich())
        figures = (
            ", ".join(sorted(image.name for image in (path / "figures").glob("*.png"))) or "none"
        )
        console.print(
            f"records and tables: {path}   figures: {figures}", soft_wrap=True, markup=False
        )
