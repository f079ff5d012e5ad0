"""`diffurn reproduce`: the paper's tables and figures.

`diffurn.cli` imports this module, so it is imported here only where a command runs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any, NamedTuple

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

from diffurn_studies.harness import settings
from diffurn_studies.harness.arms import DEFAULT, Entry
from diffurn_studies.harness.errors import RunError
from diffurn_studies.harness.study import Study
from diffurn_studies.harness.tables import duration
from diffurn_studies.registry import STUDIES

QUICK = "A quick run: small data and few steps. Its figures are no verdict on any claim."
WIDTH = 78  # of the help, in a terminal of 80 columns


class Planned(NamedTuple):
    """A run that was asked for. The caution is shown with its tables."""

    study: Study
    arm: str
    options: Any
    directory: Path
    caution: str


def command(studies: Mapping[str, Entry]) -> Callable[..., None]:
    """The command for some studies; its help lists them with their arms and options."""

    def reproduce(
        name: Annotated[
            str | None,
            typer.Argument(
                metavar="STUDY",
                help="Study to run; all runs every study. Without one, the studies are listed.",
                show_default=False,
            ),
        ] = None,
        arm: Annotated[
            str | None, typer.Option(help="Arm of the study.", show_default=DEFAULT)
        ] = None,
        quick: Annotated[
            bool,
            typer.Option(
                "--quick",
                help="A small version of it, within two minutes on two cores; no verdict on any "
                "claim.",
            ),
        ] = False,
        seeds: Annotated[
            int | None, typer.Option(min=1, help="Repetitions, if the study has some.")
        ] = None,
        device: Annotated[
            str | None, typer.Option(help="torch device, such as cpu or cuda.")
        ] = None,
        out: Annotated[
            Path | None,
            typer.Option(
                help="Run directory, by default runs/STUDY or runs/STUDY-ARM, and with -quick "
                "behind it for a quick run; the same command resumes it."
            ),
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
            typer.Option(
                "--set",
                help="A number, text or list of the options above, as name=value; repeatable.",
            ),
        ] = None,
        as_json: Annotated[
            bool, typer.Option("--json", help="Print JSON instead of tables.")
        ] = False,
    ) -> None:
        from diffurn.cli.output import refuse, standard_output
        from diffurn_studies.harness import engines, runner

        if name is None:
            width = min(WIDTH, standard_output().width)
            typer.echo("\n".join(listing(studies, width)))
            return
        try:
            asked = dict(map(settings.split, assignments or []))
            asked |= {
                option: str(value)
                for option, value in {"seeds": seeds, "device": device}.items()
                if value is not None
            }
            runs = _planned(studies, name, arm, quick, asked, out)
            chosen = engines.named(engine, address)
            for own, run in runs.items():
                # Ray writes about workers that died to the standard output.
                with redirect_stdout(sys.stderr), _progress(own) as progress:
                    runner.run(
                        run.study,
                        run.options,
                        run.directory,
                        chosen,
                        progress,
                        run.arm,
                        run.caution,
                    )
        except RunError as error:
            refuse(str(error))
        except KeyboardInterrupt:
            typer.echo(
                "diffurn: stopped; finished units are recorded, and the same command goes on from "
                "there",
                err=True,
            )
            raise typer.Exit(130) from None
        _print({own: run.directory for own, run in runs.items()}, as_json)
        if quick and as_json:
            typer.echo(QUICK, err=True)

    reproduce.__doc__ = "\n\n".join(
        [
            "Regenerate tables and figures of the paper, beside the paper's own figures.",
            "\b\n" + "\n".join(listing(studies)),
        ]
    )
    return reproduce


def listing(studies: Mapping[str, Entry], width: int = WIDTH) -> Iterator[str]:
    """The studies, their arms and their options, in lines of at most this width."""
    yield "Studies, the arms of each, and the options that --set takes:"
    for name, entry in studies.items():
        arms = entry.arm_names()
        indent = 6 + max(map(len, arms))
        yield ""
        yield from wrap(
            ": ".join(filter(None, [name, entry.summary()])),
            width,
            initial_indent="  ",
            subsequent_indent="    ",
        )
        for arm in arms:
            beginning = f"    --arm {arm}".ljust(indent + 6)
            yield from wrap(
                entry.about(arm),
                width,
                initial_indent=beginning,
                subsequent_indent=" " * (indent + 6),
            )
        yield from wrap(
            ", ".join(entry.settings()),
            width,
            initial_indent="    --set ",
            subsequent_indent=" " * 10,
        )


def _planned(
    studies: Mapping[str, Entry],
    name: str,
    arm: str | None,
    quick: bool,
    asked: Mapping[str, str],
    out: Path | None,
) -> dict[str, Planned]:
    """The runs by the names of their studies; of several studies each takes the settings that it
    has.
    """
    if name != "all" and name not in studies:
        raise RunError(f"there is no study {name!r}: choose one of {', '.join(studies)}, or all")
    if name == "all" and arm is not None:
        raise RunError(f"--arm {arm}: an arm belongs to one study; name the study instead of all")
    names = list(studies) if name == "all" else [name]
    loaded = {each: _loaded(each, studies[each]) for each in names}
    options = {each: studies[each].options(arm or DEFAULT) for each in names}
    if quick:
        options = {each: own.quick() for each, own in options.items()}
    kind = ("" if arm in (None, DEFAULT) else f"-{arm}") + "-quick" * quick
    directories = {
        each: (out or Path("runs")) / f"{each}{kind}" if name == "all" or not out else out
        for each in names
    }
    taken = _taken(options, asked)
    return {
        each: Planned(
            loaded[each],
            arm or DEFAULT,
            settings.with_settings(options[each], taken[each]),
            directories[each],
            QUICK if quick else "",
        )
        for each in names
    }


def _loaded(name: str, entry: Entry) -> Study:
    try:
        return entry.load()
    except ModuleNotFoundError as missing:
        raise RunError(
            f"the study {name} needs {missing.name}: pip install diffurn-studies"
        ) from missing


def _taken(options: Mapping[str, Any], asked: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The settings that each study takes: those that it has, and those that no study has, so that
    these are refused.
    """
    fields = {name: settings.field_names(own) for name, own in options.items()}
    unknown = [option for option in asked if not any(option in own for own in fields.values())]
    if asked.get("device") == "cpu":  # every study runs on a CPU
        unknown = [option for option in unknown if option != "device"]
    if "device" in unknown:
        raise RunError(
            f"--device {asked['device']}: {', '.join(options)} computes on the CPU alone; leave "
            "--device out"
        )
    return {
        name: {option: text for option, text in asked.items() if option in [*own, *unknown]}
        for name, own in fields.items()
    }


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int, str], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
    )
    # A unit may take hours, so the estimate averages over all of them.
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(name)
        return
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        speed_estimate_period=1e9,
    ) as bar:
        task = bar.add_task(name, total=None)

        def tell(done: int, total: int, unit: str) -> None:
            if bar.tasks[0].total is None:  # units of an earlier run do not count for the speed
                bar.reset(task, total=total, completed=done)
            bar.update(task, completed=done, description=f"{name}: {unit}" if unit else name)

        yield tell


def _lines(name: str, every: float = 10.0) -> Callable[[int, int, str], None]:
    """Progress for files and pipes: a line for a finished unit, at most one in some seconds."""
    start = time.monotonic()
    told, before = start, 0

    def tell(done: int, total: int, unit: str) -> None:
        nonlocal told, before
        now = time.monotonic()
        if now - told >= every and done > before:
            told, before = now, done
            following = f"; next: {unit}" if unit else ""
            counted = f"{done} of {total} units after {duration(now - start)}"
            typer.echo(f"{name}: {counted}{following}", err=True)

    return tell


def _print(directories: dict[str, Path], as_json: bool) -> None:
    from diffurn.cli.output import standard_output
    from diffurn_studies.harness.runner import read_published

    if as_json:
        content = {
            name: [table.as_json() for table in read_published(path).tables]
            for name, path in directories.items()
        }
        typer.echo(json.dumps(content, ensure_ascii=False))
        return
    from diffurn_studies.harness.terminal import show, show_outcome

    console = standard_output(wide=True)
    for path in directories.values():
        published = read_published(path)
        for table in published.tables:
            show(console, table)
        show_outcome(console, path, published)


reproduce = command(STUDIES)
