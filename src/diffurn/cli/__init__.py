"""The command `diffurn`: one module per command, thin wrappers with tables for people and JSON for machines."""

from __future__ import annotations

from typing import Annotated

import typer

from diffurn import __version__
from diffurn.cli import bench, explore, fit, report, reproduce, sample

app = typer.Typer(help="Urn models that can be learned.", no_args_is_help=True, add_completion=False)
app.add_typer(bench.app, name="bench")
app.command()(reproduce.reproduce)
app.command()(report.report)
app.command()(fit.fit)
app.command()(sample.sample)
app.command()(explore.explore)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"diffurn {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    pass
