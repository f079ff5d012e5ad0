"""`diffurn report`: runs on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run directories of diffurn reproduce, such as runs/ks.")
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
) -> None:
    """Show runs as one page that needs no network: tables, figures, options and environments."""
    from diffurn.cli.output import check_place, refusing
    from diffurn_studies.harness.errors import RunError
    from diffurn_studies.harness.report import write_report

    check_place("--out", out)
    with refusing(RunError):
        write_report(runs, out)
    typer.echo(f"report: {out}")
