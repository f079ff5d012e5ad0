"""The command line: `python -m benchmarks --help`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from diffurn.cli.output import refuse, refusing

app = typer.Typer(help="Measure this package on this machine.")
Device = Annotated[str, typer.Option(help="torch device, such as cpu or cuda.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@app.callback(invoke_without_command=True)
def peers(
    context: typer.Context,
    out: Annotated[
        Path, typer.Option(help="Folder for bench.json, ratios.md and the figures.")
    ] = Path("build/bench"),
    device: Device = "cpu",
    quick: Annotated[
        bool, typer.Option("--quick", help="A coarse grid, in about a minute.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="log_prob, moments, many-draws, one-draw-each, gradient, fit, or alone for the "
            "jobs without a peer; repeatable."
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Time for the rounds of one cell; 1, or 0.05 with --quick.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare this package with SciPy, BiasedUrn, the paper's algorithm and torch's samplers."""
    if context.invoked_subcommand is not None:
        return
    from benchmarks import suite
    from benchmarks.cells import sweeps
    from benchmarks.commands import chosen_cells, compare_with_peers

    limit = (0.05 if quick else 1.0) if seconds is None else seconds
    with refusing(ValueError):
        options = suite.Options(quick, limit, tuple(only or ()), device)
    grid = options.of_grid(sweeps(quick))
    compare_with_peers(options, grid, chosen_cells(options), out, as_json)


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
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Judge every estimator of gradients through a draw against the exact gradient."""
    from benchmarks.commands import judge_gradients
    from benchmarks.gradient_problems import problems
    from benchmarks.gradients import Options

    with refusing(ValueError, about="--device: "):
        options = Options(draws, slow_draws, seed, device)
    judge_gradients(options, problems(), out, as_json)


@app.command()
def gpu(
    out: Annotated[Path, typer.Option(help="Folder for gpu.json and gpu.md.")] = Path("build/gpu"),
    device: Device = "cuda",
) -> None:
    """Measure CUDA graphs and throughput on a CUDA device."""
    from benchmarks.commands import measure_gpu
    from diffurn_studies.harness.machine import usable_device

    with refusing(ValueError):
        chosen = usable_device(device)
    if chosen.type != "cuda":
        refuse(f"--device {device}: these jobs need a CUDA device")
    measure_gpu(chosen, out)


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
    device: Device = "cpu",
    list_cells: Annotated[bool, typer.Option("--list", help="Name the cells, and stop.")] = False,
) -> None:
    """Compare two source trees of this package: time after / time before, cell by cell."""
    from benchmarks.commands import compare_trees
    from benchmarks.compare import Effort
    from benchmarks.registry import cells_of_ours
    from diffurn_studies.harness.machine import usable_device

    chosen = tuple(only or ("",))
    cells = [name for name in cells_of_ours() if any(part in name for part in chosen)]
    if not cells:
        refuse(f"--only {chosen[0]}: no cell has this in its name; --list names them all")
    if list_cells:
        typer.echo("\n".join(cells))
        return
    with refusing(ValueError):
        place = usable_device(device)
    selection = "".join(f" --only '{part}'" for part in only or ())
    command = f"python -m benchmarks compare {before} {after}{selection}"
    effort = Effort(rounds=rounds, longest=longest)
    compare_trees((before, after), cells, effort, place, command, out)


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
