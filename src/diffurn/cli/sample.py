"""`diffurn sample`: draws from an urn, as a table that `diffurn fit` reads."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, TypeVar

import typer

from diffurn.cli.models import Model
from diffurn.cli.output import check_place, progress_bar, refuse, refusing, replacing

if TYPE_CHECKING:
    from diffurn._urn import Urn

T = TypeVar("T")

CELLS_AT_ONCE = 1 << 20  # rows times groups


def command(
    group_sizes: Annotated[str, typer.Option(help="Balls of each group, such as 3,5,4.")],
    draws: Annotated[int, typer.Option(min=1, help="Balls taken from the urn.")],
    weights: Annotated[
        str, typer.Option(help="Importance ω of each group, such as 1,2,0.5; only ratios matter.")
    ],
    groups: Annotated[
        str | None, typer.Option(help="Names of the groups, such as a,b,c; 1,2,3 by default.")
    ] = None,
    model: Annotated[
        Model, typer.Option(help="fisher: taken at once; wallenius: one after another.")
    ] = Model.fisher,
    number: Annotated[
        int, typer.Option(min=1, help="Rows: how often to draw from the full urn.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the draws.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="File to write; standard output by default.")
    ] = None,
) -> None:
    """Draw from an urn, and write the counts as a CSV table.

    The columns are m_<group> for the balls available and x_<group> for the balls drawn, as
    `diffurn fit` reads them.
    """
    import torch

    from diffurn.data.counts import MOST_GROUPS
    from diffurn.data.delimited import parse_integer

    sizes = _listed("--group-sizes", group_sizes, parse_integer)
    if not 2 <= len(sizes) <= MOST_GROUPS:
        refuse(f"--group-sizes: {len(sizes)} groups; there must be from 2 to {MOST_GROUPS:,}")
    numbers = _listed("--weights", weights, _weight)
    names = _names(groups, len(sizes))
    if len(numbers) != len(sizes):
        refuse(f"--weights: {len(numbers)} weights for {len(sizes)} groups; give one for each")
    if out is not None:
        check_place("--out", out)
    with refusing(ValueError):
        urn = model.urn(sizes, draws, torch.tensor(numbers, dtype=torch.float64))
    destination: AbstractContextManager[IO[bytes]]
    destination = nullcontext(sys.stdout.buffer) if out is None else replacing("--out", out)
    with (
        progress_bar("drawing") as progress,
        destination as file,
        torch.random.fork_rng(devices=[]),
    ):
        torch.manual_seed(seed)
        write_draws(file, urn, names, number, progress)


def write_draws(
    file: IO[bytes],
    urn: Urn,
    names: Sequence[str],
    number: int,
    progress: Callable[[int, int], None],
    cells_at_once: int = CELLS_AT_ONCE,
) -> None:
    """Writes a number of draws from one urn as a wide count table, block by block."""
    file.write(_csv_line([f"m_{name}" for name in names] + [f"x_{name}" for name in names]))
    available = ",".join(map(str, urn.group_sizes.tolist()))
    at_once = cells_at_once // len(names)
    for done in range(0, number, at_once):
        rows = min(at_once, number - done)
        drawn = urn.sample((rows,)).long().tolist()
        lines = (f"{available},{','.join(map(str, counts))}\n" for counts in drawn)
        file.write("".join(lines).encode())
        progress(done + rows, number)


def _csv_line(cells: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()


def _listed(option: str, text: str, parse: Callable[[str], T]) -> list[T]:
    """The items of a comma-separated option."""
    items: list[T] = []
    for position, item in enumerate(text.split(","), start=1):
        with refusing(ValueError, about=f"{option}, item {position}: "):
            items.append(parse(item.strip()))
    return items


def _weight(text: str) -> float:
    from diffurn.data.delimited import parse_real, quoted

    weight = parse_real(text)
    if weight < 0:
        raise ValueError(f"{quoted(text)} is negative, but weights are 0 or more")
    return weight


def _names(groups: str | None, number: int) -> list[str]:
    if groups is None:
        return [str(j + 1) for j in range(number)]
    with refusing(csv.Error, about="--groups: "):
        names = [
            name.strip()
            for name in next(csv.reader([groups], skipinitialspace=True, strict=True), [])
        ]
    if len(names) != number:
        refuse(f"--groups: {len(names)} names for {number} groups; give one for each")
    for position, name in enumerate(names):
        if not name or not name.isprintable() or name in names[:position]:
            refuse(
                f"--groups, item {position + 1}: {name!r} cannot name a group; names are "
                "printable, not empty and differ from each other"
            )
    return names
