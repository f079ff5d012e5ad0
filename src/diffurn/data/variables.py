"""Columns beside the counts: numbers or text, of rows or of rows and groups."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from diffurn.data.delimited import MISSING_CELLS, Place, parse_real, quoted


@dataclass(frozen=True, eq=False)
class Variable:
    """One value for each row and group.

    Attributes:
        name: of the column, or the common beginning of the columns of all groups.
        values: ``(R, c)``: numbers, float64, nan where missing; or codes of levels, int64, -1 where
            missing. A variable of rows has the same value for all groups.
        levels: the texts in alphabetical order; None for numbers.
    """

    name: str
    values: Tensor
    levels: tuple[str, ...] | None = None

    @property
    def missing(self) -> Tensor:
        """``(R, c)``."""
        return self.values.isnan() if self.levels is None else self.values < 0

    def at(self, rows: Tensor) -> Variable:
        """Some of the rows."""
        return replace(self, values=self.values[rows])

    def texts(self, present: Tensor) -> list[str]:
        """The values of a variable of rows as texts; `present` are the groups with balls.

        Raises:
            ValueError: if it differs between the groups of a row.
        """
        first = present.double().argmax(-1, keepdim=True)
        value = self.values.gather(-1, first)
        differs = ((self.values != value) & present).any(-1)
        if bool(differs.any()):
            row = int(torch.nonzero(differs)[0])
            raise ValueError(
                f"{self.name} differs between the groups of row {row}, but must be one value per "
                "row"
            )
        if self.levels is not None:
            return [self.levels[code] for code in value.flatten().tolist()]
        return [f"{number:.15g}" for number in value.flatten().tolist()]


def read_variable(
    file: str, columns: Sequence[str], cells: Sequence[Sequence[str]], lines: list[int]
) -> tuple[Tensor, tuple[str, ...] | None]:
    """Cells of one or more columns as values ``(lines, columns)`` of one kind, and the levels.

    If every cell with a value is a number, the values are numbers. If no cell is, they are text.
    """
    numbers = [_numbers_at_once(of_one) for of_one in cells]
    if all(found is not None for found in numbers):
        return torch.stack([found for found in numbers if found is not None], -1), None
    texts: set[str] = set()
    place, wrong, some_numbers = None, "", False
    for column, of_one in zip(columns, cells, strict=True):
        for line, cell in zip(lines, of_one, strict=True):
            if cell in MISSING_CELLS:
                continue
            try:
                parse_real(cell)
                some_numbers = True
            except ValueError as problem:
                if place is None or (_spoilt_number(cell) and not _spoilt_number(wrong)):
                    place, wrong, message = Place(file, line, column), cell, str(problem)
                texts.add(cell)
    if place is not None and _spoilt_number(wrong):
        raise place(message)
    if place is not None and some_numbers:
        raise place(
            f"{quoted(wrong)} is not a number, but other cells of this column are; a column is "
            "either numbers or text"
        )
    if place is None:  # numbers in unusual forms
        values = [
            [float("nan") if cell in MISSING_CELLS else parse_real(cell) for cell in of_one]
            for of_one in cells
        ]
        return torch.tensor(values, dtype=torch.float64).T.contiguous(), None
    levels = tuple(sorted(texts))
    code = {level: k for k, level in enumerate(levels)}
    codes = [[code.get(cell, -1) for cell in of_one] for of_one in cells]
    return torch.tensor(codes, dtype=torch.int64).T.contiguous(), levels


def _spoilt_number(cell: str) -> bool:
    """Whether a cell was meant as a number: a decimal comma, an infinity, foreign digits."""
    return bool(re.fullmatch(r"[+-]?\d*[,._]\d+|[+-]?(inf|infinity)|[+-]?\d+", cell.lower()))


def _numbers_at_once(cells: Sequence[str]) -> Tensor | None:
    """Numbers in plain notation, nan where missing; None if a cell is unusual."""
    everything = "".join(cells)
    if "_" in everything or not everything.isascii():  # Python would read 1_000 or ٣
        return None
    try:
        values = array("d", (float("nan") if c in MISSING_CELLS else float(c) for c in cells))
    except ValueError:
        return None
    numbers = torch.frombuffer(values, dtype=torch.float64)
    return None if bool(numbers.isinf().any()) else numbers.clone()
