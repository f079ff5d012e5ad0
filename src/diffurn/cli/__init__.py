"""The command `diffurn`: one module per command.

Other packages add commands by entry points of the group ``diffurn.commands``, each of which names a
function that Typer can read. None of these modules imports torch before a command runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated

import typer

from diffurn import __version__
from diffurn._install import how_to_install
from diffurn._kernels.library import described
from diffurn.cli import clogit, explore, fit, sample
from diffurn.cli.output import refuse

OF_THE_STUDIES = ("reproduce", "report")


def build(points: Iterable[EntryPoint]) -> typer.Typer:
    """The command with all its subcommands: the library's own, and those of the entry points."""
    app = typer.Typer(
        help="Urn models that can be learned.", no_args_is_help=True, add_completion=False
    )
    app.callback()(_main)
    app.command("fit")(fit.command)
    app.command("clogit")(clogit.command)
    app.command("sample")(sample.command)
    app.command("explore")(explore.command)
    found = {point.name: point for point in points}
    for name in OF_THE_STUDIES:
        if name not in found:
            _add_refusal(
                app,
                name,
                "Needs the paper's studies, a package of its own.",
                f"{name} needs the paper's studies: {how_to_install(name)}",
            )
    for name, point in found.items():
        try:
            command = point.load()
        except Exception as problem:  # whatever a broken package raises, the others must work
            _add_refusal(
                app,
                name,
                f"Cannot be loaded: {problem}.",
                f"{name} cannot be loaded from {point.value} ({type(problem).__name__}: "
                f"{problem}); install the package that provides it again",
            )
        else:
            app.command(name)(command)
    return app


def _add_refusal(app: typer.Typer, name: str, summary: str, sentence: str) -> None:
    """Adds a command that answers everything, also --help, with a sentence and exit status 2."""

    @app.command(
        name,
        help=summary,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def say(context: typer.Context) -> None:
        refuse(sentence)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"diffurn {__version__}, {described()}")
        raise typer.Exit


def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


app = build(entry_points(group="diffurn.commands"))
