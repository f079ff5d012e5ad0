"""`diffurn bench`: measure this package on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

app = typer.Typer(help="Measure this package on this machine.", no_args_is_help=True)


@app.command()
def gradients(
    out: Annotated[Path, typer.Option(help="Folder for gradients.json and gradients.png.")] = Path("build/gradients"),
    draws: Annotated[int, typer.Option(min=100, help="One-draw gradients per estimator and problem.")] = 100_000,
    slow_draws: Annotated[int, typer.Option(min=20, help="The same for exact Gumbel chains on large urns.")] = 4_000,
    seed: Annotated[int, typer.Option(help="Seed of all draws.")] = 0,
    device: Annotated[str, typer.Option(help="torch device, such as cpu or cuda.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Judge every estimator of gradients through a draw: bias, spread, time and memory against the exact gradient."""
    from diffurn.experiments import gradients as experiment

    options = experiment.Options(draws, slow_draws, seed, device)
    errors = Console(stderr=True)
    judgements = list(track(experiment.run(options), "judging", total=experiment.number_of_judgements(), console=errors, transient=True))
    report = experiment.report(options, judgements)
    out.mkdir(parents=True, exist_ok=True)
    (out / "gradients.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    experiment.figure(judgements).savefig(out / "gradients.png")
    if as_json:
        typer.echo(json.dumps(report, ensure_ascii=False))
    else:
        console = Console()
        for table in experiment.tables(judgements):
            console.print(table)
        console.print(f"records and figure: {out}", highlight=False)
