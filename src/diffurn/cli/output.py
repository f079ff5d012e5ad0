"""Output of all commands: errors in one sentence, files written at once, progress bars."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from diffurn.cli import files

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def refuse(sentence: str) -> NoReturn:
    """Ends the command: the sentence on standard error, exit status 2."""
    typer.echo(f"diffurn: {' '.join(sentence.split())}", err=True)
    raise typer.Exit(2)


@contextmanager
def refusing(*errors: type[Exception], about: str = "") -> Iterator[None]:
    """Ends the command with the message of an error of these types."""
    try:
        yield
    except errors as problem:
        refuse(about + str(problem))


def check_place(option: str, path: Path) -> None:
    """Refuses a path that cannot be written, before the work begins."""
    if "\0" in str(path):
        refuse(f"{option}: no file can have the name {str(path)!r}")
    if path.is_dir():
        refuse(f"{option} {path}: this is a folder; give the name of a file")
    if not path.parent.is_dir():
        refuse(f"{option} {path}: the folder {path.parent} does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        refuse(f"{option} {path}: there is no permission to write it")


@contextmanager
def replacing(option: str, path: Path) -> Iterator[IO[bytes]]:
    """A file that appears only when it is complete. A failure ends the command with a sentence
    about the option.
    """
    try:
        with files.replacing(path) as file:
            yield file
    except OSError as problem:
        refuse(f"{option} {path}: cannot be written ({problem.strerror or problem})")


@contextmanager
def progress_bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """A function of the work done and of all work. It draws a bar on standard error if that is a
    terminal; the bar disappears at the end.
    """
    console = Console(stderr=True)
    columns = TextColumn(description), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task(description, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)


def standard_output(wide: bool = False) -> Console:
    """The console of reports. Letters that the terminal cannot show become question marks. `wide`
    gives 140 columns where the output is not a terminal and COLUMNS does not say otherwise.
    """
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    console = Console(highlight=False)
    if wide and not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 140
    return console


def print_result(
    record: dict[str, Any], text: str, as_json: bool, files: Mapping[str, Path | None]
) -> None:
    """A result as JSON, or as text with the files that were written, by what they hold."""
    from diffurn.inference.results.words import as_options

    if as_json:
        whole = json.dumps(record, ensure_ascii=False, allow_nan=False, indent=1)
        typer.echo(whole.encode())
        return
    lines = [as_options(text), *(f"{kind}: {path}" for kind, path in files.items() if path)]
    standard_output().out("\n".join(lines), highlight=False)


def write_figure(option: str, drawn: Figure | None, path: Path | None) -> None:
    if drawn is None or path is None:
        return
    with replacing(option, path) as file, warnings.catch_warnings():
        # Letters that the font lacks become boxes.
        warnings.filterwarnings("ignore", message="Glyph")
        drawn.savefig(file, format=path.suffix[1:].lower())
