"""`diffurn report`: runs as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diffurn.cli.output import check_place, refusing


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run directories of diffurn reproduce, such as runs/ks.")
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
) -> None:
    """Show runs as one page that needs no network: tables, figures, settings and environment."""
    from diffurn_studies.harness.records import RunError
    from diffurn_studies.harness.report import write_report

    check_place("--out", out)
    with refusing(RunError):
        write_report(runs, out)
    typer.echo(f"report: {out}")
