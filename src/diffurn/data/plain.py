"""Tables of plain columns, such as the rows of a case-control study."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike

import torch
from torch import Tensor

from diffurn.data.counts import opened
from diffurn.data.delimited import MISSING_CELLS, Columns, DelimitedText, Place
from diffurn.data.variables import read_variable


@dataclass(frozen=True, eq=False)
class PlainTable:
    """Some columns of a file.

    Attributes:
        header: names of all columns of the file.
        variables: by name: numbers, float64, nan where missing; or codes of levels, int64, -1 where
            missing, with the levels in alphabetical order; ``(N,)`` each.
        labels: codes of labels, by name, int64, -1 where missing; ``(N,)`` each.
        lines: the line of each row.
    """

    header: tuple[str, ...]
    variables: dict[str, tuple[Tensor, tuple[str, ...] | None]]
    labels: dict[str, Tensor]
    lines: list[int]


def read_plain(
    path: str | PathLike[str],
    variables: Sequence[str],
    labels: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> PlainTable:
    """Reads columns of a CSV file (UTF-8; separated by commas, semicolons or tabs).

    Args:
        path: the file; ``-`` is the standard input.
        variables: columns of numbers or text.
        labels: columns whose cells are names, whether they look like numbers or not.
        progress: called with the bytes read and the bytes in all (0 if unknown).

    Raises:
        CountTableError: one sentence that names the file, the line and the column, and says what
            would be right.
    """
    wanted = list(dict.fromkeys([*variables, *labels]))
    with opened(path) as (stream, name, size):
        report = (lambda done: None) if progress is None else (lambda done: progress(done, size))
        text = DelimitedText(stream, name, lambda column: column in wanted, report)
        for column in wanted:
            if column not in text.header:
                listed = ", ".join(text.header[:12]) + (", …" if len(text.header) > 12 else "")
                raise Place(name)(f"there is no column {column!r}; the columns are {listed}")
        cells: list[list[str]] = [[] for _ in wanted]
        lines: list[int] = []
        positions = [text.header.index(column) for column in wanted]
        for block in text.blocks(Columns([], [], positions)):
            lines += block.lines
            for whole, part in zip(cells, block.cells, strict=True):
                whole += part
    if not lines:
        raise Place(name)("there is a line of column names, but no row below it")
    by_name = dict(zip(wanted, cells, strict=True))
    read = {}
    for column in variables:
        values, levels = read_variable(name, [column], [by_name[column]], lines)
        read[column] = values[:, 0], levels
    return PlainTable(
        tuple(text.header), read, {column: _codes(by_name[column]) for column in labels}, lines
    )


def _codes(cells: list[str]) -> Tensor:
    numbers: dict[str, int] = dict.fromkeys(MISSING_CELLS, -1)
    number = len(numbers)
    return torch.tensor([numbers.setdefault(cell, len(numbers) - number) for cell in cells])
