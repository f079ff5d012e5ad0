"""`python -m benchmarks`: measure this package on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diffurn.cli.output import progress_bar, refusing, replacing, standard_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure

app = typer.Typer(help="Measure this package on this machine.")


@app.callback(invoke_without_command=True)
def peers(
    context: typer.Context,
    out: Annotated[
        Path, typer.Option(help="Folder for bench.json, ratios.md and the figures.")
    ] = Path("build/bench"),
    device: Annotated[
        str, typer.Option(help="torch device, such as cpu or cuda; SciPy and R use the CPU.")
    ] = "cpu",
    quick: Annotated[
        bool, typer.Option("--quick", help="A coarse grid, in about a minute.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="log_prob, moments, many-draws, one-draw-each, gradient, fit; repeatable."
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Time for the rounds of one cell; 1, or 0.05 with --quick.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Measure ours against what one would use instead: SciPy, R's BiasedUrn, the paper's algorithm,
    torch's own samplers.
    """
    if context.invoked_subcommand is not None:
        return
    from benchmarks import suite as bench
    from benchmarks.tables import all_tables, as_markdown, growths
    from diffurn_studies.harness.records import RunError, write_atomically, write_figure, write_json

    with refusing(ValueError):
        options = bench.Options(
            quick,
            (0.05 if quick else 1.0) if seconds is None else seconds,
            tuple(only or ()),
            device,
        )
    with refusing(OSError, about=f"--out {out}: "):
        out.mkdir(parents=True, exist_ok=True)
    try:
        with ExitStack() as stack:
            members = bench.company(stack)
            for sentence in members.missing:
                typer.echo(f"diffurn: {sentence}", err=True)
            with progress_bar("measuring") as progress:
                records = list(
                    bench.run(options, members.contenders, bench.selected(options), progress)
                )
    except KeyboardInterrupt:
        typer.echo("diffurn: stopped; nothing was written", err=True)
        raise typer.Exit(130) from None
    tables = all_tables(records, members.missing)
    report = bench.report(options, members, records) | {
        "tables": [table.as_json() for table in tables]
    }
    with refusing(RunError):
        for name, figure in _figures(growths(records), report["environment"]["device"]):
            write_figure(out / name, figure)
        write_atomically(
            out / "ratios.md", f"`{report['command']}`\n\n{as_markdown(tables)}".encode()
        )
        write_json(out / "bench.json", report)
    if as_json:
        typer.echo(json.dumps(report, ensure_ascii=False, allow_nan=False))
        return
    console = standard_output(wide=True)
    for table in tables:
        console.print(table.as_rich())
    console.print(f"records, tables and figures: {out}", soft_wrap=True, markup=False)


def _figures(found: Any, where: str) -> Iterator[tuple[str, Figure]]:
    from benchmarks.cells import LAWS
    from benchmarks.figure import QUANTITIES, scaling

    for law in LAWS:
        for quantity in QUANTITIES:
            figure = scaling(found, law, quantity, where)
            if figure is not None:
                yield f"{law}-{quantity}.png", figure


@app.command()
def gradients(
    out: Annotated[Path, typer.Option(help="Folder for gradients.json and gradients.png.")] = Path(
        "build/gradients"
    ),
    draws: Annotated[
        int, typer.Option(min=100, help="One-draw gradients per estimator and problem.")
    ] = 100_000,
    slow_draws: Annotated[
        int, typer.Option(min=20, help="The same for exact Gumbel chains on large urns.")
    ] = 4_000,
    seed: Annotated[int, typer.Option(help="Seed of all draws.")] = 0,
    device: Annotated[str, typer.Option(help="torch device, such as cpu or cuda.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Judge every estimator of gradients through a draw: bias, spread, time and memory against the
    exact gradient.
    """
    from benchmarks import gradients as experiment

    with refusing(ValueError, about="--device: "):
        options = experiment.Options(draws, slow_draws, seed, device)
    with refusing(OSError, about=f"--out {out}: "):
        out.mkdir(parents=True, exist_ok=True)
    judgements, total = [], experiment.number_of_judgements()
    with progress_bar("judging") as progress:
        for judgement in experiment.run(options):
            judgements.append(judgement)
            progress(len(judgements), total)
    report = experiment.report(options, judgements)
    with replacing("--out", out / "gradients.json") as file:
        file.write((json.dumps(report, indent=1, ensure_ascii=False) + "\n").encode())
    with replacing("--out", out / "gradients.png") as file:
        experiment.figure(judgements).savefig(file, format="png")
    if as_json:
        typer.echo(json.dumps(report, ensure_ascii=False))
    else:
        console = standard_output()
        for table in experiment.tables(judgements):
            console.print(table.as_rich())
        console.print(f"records and figure: {out}", soft_wrap=True, markup=False)


@app.command()
def compare(
    before: Annotated[str, typer.Argument(help="A git revision, or a folder with a src/.")],
    after: Annotated[str, typer.Argument(help="Another one; . is this checkout.")] = ".",
    out: Annotated[Path, typer.Option(help="Folder for compare.json and compare.md.")] = Path(
        "build/compare"
    ),
    only: Annotated[
        list[str] | None, typer.Option(help="Only cells whose name contains this; repeatable.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds per cell.")] = 5,
    longest: Annotated[float, typer.Option(help="Leave out cells that take more seconds.")] = 3.0,
    device: Annotated[str, typer.Option(help="torch device, such as cpu or cuda.")] = "cpu",
    list_cells: Annotated[bool, typer.Option("--list", help="Name the cells, and stop.")] = False,
) -> None:
    """Compare two source trees of this package: time after / time before, cell by cell."""
    from benchmarks.commands import compare_trees

    compare_trees(before, after, out, tuple(only or ()), rounds, longest, device, list_cells)


if __name__ == "__main__":
    app()
