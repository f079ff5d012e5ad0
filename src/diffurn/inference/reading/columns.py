"""Columns of data: numbers, factors and labels from any container, and rows with missing values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from diffurn._validation import require_one_of, usable_array

NA_RULES = ("drop", "raise")
_LISTED = 10  # so many names are listed in a message


@dataclass(frozen=True, eq=False)
class Column:
    """One value for each row: a number, or a level of a factor.

    Attributes:
        name: of the column, for coefficients and messages.
        values: numbers, float64, nan where missing; or codes of levels, int64, -1 where missing.
        levels: names of the levels in order, the reference first; None for numbers.
        integer: whether the numbers were given as integers, which `C(name)` shows as such.
    """

    name: str
    values: Tensor
    levels: tuple[str, ...] | None = None
    integer: bool = False

    @property
    def missing(self) -> Tensor:
        """Rows without a value, ``(N,)``."""
        return self.values.isnan() if self.levels is None else self.values < 0

    def at(self, rows: Tensor) -> Column:
        """Some of the rows, without levels that no longer occur."""
        values = self.values[rows]
        if not self.levels:
            return replace(self, values=values)
        used = torch.bincount(values[values >= 0], minlength=len(self.levels)) > 0
        number = used.cumsum(0) - 1
        levels = tuple(x for x, kept in zip(self.levels, used.tolist(), strict=True) if kept)
        codes = torch.where(values >= 0, number[values.clamp(min=0)], -1)
        return replace(self, values=codes, levels=levels)


def read_column(name: str, values: Any) -> Column:
    """A column of numbers, of truth values (as 0 and 1), or of text as a factor.

    The levels of a factor are those of a categorical series, or the sorted texts; the first is the
    reference. Missing values are None, nan and the NA of data frames.
    """
    if isinstance(values, Tensor):
        _require_one_dimension(name, tuple(values.shape))
        if values.is_complex():
            raise ValueError(f"{name} has dtype {values.dtype}, but must be real numbers or text")
        return Column(name, values.detach().double(), integer=not values.is_floating_point())
    categories = getattr(getattr(values, "dtype", None), "categories", None)
    ordered = None if categories is None else [str(level) for level in categories]
    if hasattr(values, "to_list"):  # a series of pandas or polars
        numeric = _numeric_array(values.to_numpy()) if ordered is None else None
        values = values.to_list() if numeric is None else numeric
    elif hasattr(values, "dtype"):
        numeric = _numeric_array(values)
        values = values.tolist() if numeric is None else numeric
    if hasattr(values, "dtype"):
        _require_one_dimension(name, tuple(values.shape))
        tensor = torch.as_tensor(usable_array(values))
        return Column(name, tensor.double(), integer=not tensor.is_floating_point())
    return _column_of_list(name, list(values), ordered)


def _numeric_array(array: Any) -> Any:
    """An array of numbers that torch can read, or None."""
    kind = getattr(getattr(array, "dtype", None), "kind", "O")
    return array if kind in "biuf" and str(array.dtype) != "float128" else None


def _require_one_dimension(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 1:
        raise ValueError(f"{name} has shape {shape}, but must have one value for each row")


def _column_of_list(name: str, values: list[Any], ordered: list[str] | None) -> Column:
    gaps = [is_missing(value) for value in values]
    present = {type(value) for value, gap in zip(values, gaps, strict=True) if not gap}
    if ordered is None and all(_is_number(kind) for kind in present):
        numbers = [math.nan if gap else float(x) for x, gap in zip(values, gaps, strict=True)]
        integer = bool(present) and all(not issubclass(kind, float) for kind in present)
        return Column(name, torch.tensor(numbers, dtype=torch.float64), integer=integer)
    if ordered is None:
        others = {kind for kind in present if not issubclass(kind, str)}
        if others:  # the text among numbers is more likely to be wrong
            odd = present - others or others
            row = next(i for i, value in enumerate(values) if type(value) in odd)
            raise ValueError(
                f"{name} has {values[row]!r} in row {row}, but a column is either numbers or text"
            )
    texts = [None if gap else str(value) for value, gap in zip(values, gaps, strict=True)]
    levels = sorted({text for text in texts if text is not None}) if ordered is None else ordered
    number = {level: code for code, level in enumerate(levels)}
    codes = torch.tensor([-1 if text is None else number[text] for text in texts])
    column = Column(name, codes.to(torch.int64), tuple(levels))
    return column.at(torch.arange(len(codes)))


def _is_number(kind: type) -> bool:
    return issubclass(kind, (int, float)) or (hasattr(kind, "__float__") and kind is not str)


def is_missing(value: Any) -> bool:
    """Whether a value is None, nan, or the NA or NaT of pandas."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and math.isnan(value)


def read_labels(name: str, values: Any) -> Column:
    """A column of labels, such as those of strata: numbers and text alike become codes, without
    names of the levels for numbers.
    """
    array = values.to_numpy() if hasattr(values, "to_numpy") else values
    numeric = getattr(getattr(array, "dtype", None), "kind", "O") in "biuf"
    if isinstance(values, Tensor) or numeric:
        whole = values if isinstance(values, Tensor) else torch.as_tensor(usable_array(array))
        _require_one_dimension(name, tuple(whole.shape))
        missing = whole.isnan() if whole.is_floating_point() else torch.zeros_like(whole).bool()
        codes = torch.unique(torch.where(missing, 0, whole), return_inverse=True)[1]
        return Column(name, torch.where(missing, -1, codes), ())
    column = read_column(name, values)
    return column if column.levels is not None else read_labels(name, column.values)


# --- data frames


@dataclass(frozen=True, eq=False)
class Frame:
    """Named columns of equal length.

    Attributes:
        columns: as they were given, by name.
        lines: the line of each row in a file, for messages; None if rows are counted from 0.
    """

    columns: Mapping[str, Any]
    lines: Sequence[int] | None = None

    @classmethod
    def of(cls, data: Any) -> Frame:
        """From a data frame of pandas or polars, or a dictionary of columns."""
        if isinstance(data, Frame):
            return data
        if not is_frame(data):
            raise ValueError(
                f"data is of type {type(data).__name__}, but must be a data frame of pandas or "
                "polars, or a dictionary of columns"
            )
        names = list(data) if isinstance(data, Mapping) else list(data.columns)
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"data has two columns {str(twice)!r}; every name may occur once")
        return cls({str(name): data[name] for name in names})

    def place(self, row: int) -> str:
        """A row in messages."""
        return f"row {row}" if self.lines is None else f"line {self.lines[row]}"

    def column(self, name: str) -> Column:
        values = self._get(name)
        return values if isinstance(values, Column) else read_column(name, values)

    def labels(self, name: str) -> Column:
        values = self._get(name)
        if not isinstance(values, Column):
            return read_labels(name, values)
        return values if values.levels is not None else read_labels(name, values.values)

    def _get(self, name: str) -> Any:
        if name not in self.columns:
            raise ValueError(f"there is no column {name!r}; the columns are {listed(self.columns)}")
        return self.columns[name]


def place(frame: Frame | None, row: int) -> str:
    """A row in messages."""
    return f"row {row}" if frame is None else frame.place(row)


def is_frame(data: Any) -> bool:
    """Whether this is a data frame or a dictionary of columns."""
    return isinstance(data, (Frame, Mapping)) or (
        hasattr(data, "columns") and hasattr(data, "__getitem__")
    )


def listed(names: Iterable[str]) -> str:
    """The first names, for messages."""
    names = [str(name) for name in names]
    return ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")


# --- rows that can be used


def require_equal_lengths(columns: Sequence[Column]) -> None:
    for column in columns[1:]:
        if len(column.values) != len(columns[0].values):
            raise ValueError(
                f"{columns[0].name} has {len(columns[0].values)} rows, but {column.name} has "
                f"{len(column.values)}"
            )


def complete_rows(
    columns: Sequence[Column], na: str = "drop", frame: Frame | None = None
) -> tuple[Tensor, list[str]]:
    """The numbers of the rows without a missing value, and a note that counts the other rows.

    Args:
        columns: all columns that are used.
        na: ``"drop"`` leaves rows with missing values out; ``"raise"`` raises a ValueError.
        frame: where the columns come from, for messages.
    """
    require_one_of("na", na, NA_RULES)
    require_equal_lengths(columns)
    gaps = torch.stack([column.missing for column in columns])
    lacking = gaps.any(0)
    number, rows = int(lacking.sum()), len(lacking)
    if rows == 0:
        raise ValueError("there are no rows")
    if number == 0:
        return torch.arange(rows, device=lacking.device), []
    names = dict.fromkeys(
        column.name for column, gap in zip(columns, gaps, strict=True) if bool(gap.any())
    )
    if na == "raise":
        row = int(lacking.nonzero()[0])
        name = next(c.name for c, gap in zip(columns, gaps, strict=True) if bool(gap[row]))
        raise ValueError(
            f"{name} is missing in {place(frame, row)}; repair it, or leave rows "
            'with missing values out by na="drop"'
        )
    if number == rows:
        raise ValueError(f"every row has a missing value ({listed(names)})")
    have = "have missing values and are" if number > 1 else "has missing values and is"
    return (~lacking).nonzero().flatten(), [
        f"{number:,} of {rows:,} rows {have} left out (missing: {listed(names)})."
    ]


def require_finite(column: Column, rows: Tensor, frame: Frame | None = None) -> None:
    """Raises a ValueError that names the first row with an infinite number."""
    wrong = column.values.isinf() if column.levels is None else column.missing & False
    if bool(wrong[rows].any()):
        row = int(rows[wrong[rows]][0])
        raise ValueError(
            f"{column.name} is {column.values[row].item()} in {place(frame, row)}, "
            "but must be a finite number"
        )
