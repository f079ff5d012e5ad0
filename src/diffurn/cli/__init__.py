"""The command `diffurn`: one module per command, thin wrappers with tables for people and JSON for
machines.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated

import typer

from diffurn import __version__
from diffurn.cli import explore, fit, sample

# Commands of other packages, by entry points of the group "diffurn.commands", and how to install
# these packages.
_ADDED = {"reproduce": "diffurn-studies", "report": "diffurn-studies"}

app = typer.Typer(
    help="Urn models that can be learned.", no_args_is_help=True, add_completion=False
)
app.command("fit")(fit.command)
app.command("sample")(sample.command)
app.command()(explore.explore)


def _missing(name: str, package: str) -> None:
    """A command that says how to install it."""

    @app.command(
        name,
        help=f"Needs the package {package}.",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def say_how(context: typer.Context) -> None:
        typer.echo(
            f"diffurn: {name} needs the paper's studies: pip install {package}, or pip install "
            "./studies in a clone",
            err=True,
        )
        raise typer.Exit(2)


_found = {point.name: point for point in entry_points(group="diffurn.commands")}
for _name, _package in _ADDED.items():
    if _name in _found:
        app.command(_name)(_found[_name].load())
    else:
        _missing(_name, _package)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"diffurn {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass
