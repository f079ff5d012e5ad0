"""Delimited text: separators, quotes and encodings are recognised; errors name the line as an
editor counts it.
"""

from __future__ import annotations

import codecs
import csv
import io
import math
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import IO, Any, NamedTuple, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

DELIMITERS = ",;\t"
MISSING = -1  # in place of a missing count
MISSING_CELLS = frozenset(("", "NA", "N/A", "NaN", "nan", "null"))
LARGEST_INTEGER = 2**53  # up to here float64 holds every integer
BYTES_AT_ONCE = 1 << 20
RECORDS_AT_ONCE = 8192
LONGEST_LINE = 1 << 24
FOREIGN_FORMATS = {
    b"PK\x03\x04": "a ZIP archive, perhaps an Excel workbook; export the sheet as CSV",
    b"\x1f\x8b": "compressed by gzip; unpack it first",
    b"\xff\xfe": "encoded as UTF-16; save it as UTF-8",
    b"\xfe\xff": "encoded as UTF-16; save it as UTF-8",
}


class CountTableError(ValueError):
    """A count table that cannot be read: the file, line and column, and what would be right."""


class Place(NamedTuple):
    """A place in a file; a call with a message makes an error about it."""

    file: str
    line: int | None = None
    column: str | None = None

    def __call__(self, message: str) -> CountTableError:
        line = "" if self.line is None else f", line {self.line}"
        column = "" if self.column is None else f", column {quoted(self.column)}"
        return CountTableError(f"{self.file}{line}{column}: {message}")


def quoted(text: str, longest: int = 60) -> str:
    """Text of a file for messages: shortened, and with control characters escaped."""
    return repr(text if len(text) <= longest else text[: longest - 1] + "…")


class Block(NamedTuple):
    """Some converted records of a table: the first line of each, and its cells by kind."""

    lines: list[int]
    labels: list[list[str]]  # by column
    integers: Tensor  # (records, columns), int64; MISSING where there is no value
    cells: list[list[str]]  # by column, as they are


class Columns(NamedTuple):
    """Positions of the columns to read, by kind."""

    labels: Sequence[int]
    integers: Sequence[int]
    cells: Sequence[int]


class DelimitedText:
    """A table of delimited text, read once from start to end in bounded memory.

    Args:
        stream: its bytes.
        file: its name in messages.
        recognised: whether a column name is known; the separator is guessed from the header by it.
        renamed: the usual name of a column, from its name in the file.
        progress: called with the number of bytes read so far.
    """

    def __init__(
        self,
        stream: IO[bytes],
        file: str,
        recognised: Callable[[str], bool],
        progress: Callable[[int], None],
        renamed: Callable[[str], str] = lambda name: name,
    ) -> None:
        self.file = file
        self._line = 0  # the last line of the latest record
        lines = _text_lines(stream, file, progress)
        skipped = 0
        for first in lines:
            if first.strip():
                break
            skipped += 1
        else:
            raise Place(file)(
                "the file is empty; it should hold a line of column names and one line per row of "
                "counts"
            )
        delimiter = _guess_delimiter(first, lambda name: recognised(renamed(name)))
        self._reader = csv.reader(
            chain([first], lines), delimiter=delimiter, skipinitialspace=True, strict=True
        )
        self._skipped = skipped
        _, header = next(self._records())
        self.shown = [name.strip() for name in header]  # the names in messages
        self.header = [renamed(name) for name in self.shown]
        seen: set[str] = set()
        for name in self.header:
            if name and name in seen:
                raise Place(file, self.header_line, name)(
                    "two columns have this name; every name may occur once"
                )
            seen.add(name)

    @property
    def header_line(self) -> int:
        return self._skipped + 1

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """The records that are not blank, each with its first line."""
        reader = self._reader
        while True:
            line = self._skipped + reader.line_num + 1
            try:
                record = next(reader)
            except StopIteration:
                return
            except csv.Error as problem:
                reason = (
                    "a quoted cell never ends" if "unexpected end" in str(problem) else str(problem)
                )
                raise Place(self.file, line)(
                    f"this is not delimited text ({reason}); check the quotes from here on"
                ) from None
            if len(record) > 1 or (record and record[0].strip()):
                yield line, record

    def blocks(self, columns: Columns) -> Iterator[Block]:
        """The records after the header, converted block by block. A cell that cannot be converted
        is an error that names its place.
        """
        records = self._records()
        while True:
            lines: list[int] = []
            rows: list[list[str]] = []
            for line, record in records:
                lines.append(line)
                rows.append(record)
                if len(rows) == RECORDS_AT_ONCE:
                    break
            if not rows:
                return
            # Whole columns at once; cell by cell only to find the cell that is wrong.
            yield self._convert_at_once(lines, rows, columns) or self._convert_by_cell(
                lines, rows, columns
            )

    def _convert_at_once(
        self, lines: list[int], rows: list[list[str]], columns: Columns
    ) -> Block | None:
        width = len(self.header)
        if any(len(row) != width for row in rows):
            return None
        labels = [[row[column].strip() for row in rows] for column in columns.labels]
        integers = _integers(rows, columns.integers)
        if integers is None or not all(map(all, labels)):
            return None
        if not bool(((integers >= 0) & (integers <= LARGEST_INTEGER)).all()):
            return None
        return Block(lines, labels, integers, _cells(rows, columns))

    def _convert_by_cell(self, lines: list[int], rows: list[list[str]], columns: Columns) -> Block:
        labels: list[list[str]] = [[] for _ in columns.labels]
        integers = array("q")
        for line, row in zip(lines, rows, strict=True):
            if len(row) != len(self.header):
                many = "few" if len(row) < len(self.header) else "many"
                raise Place(self.file, line)(
                    f"too {many} cells, {len(row)} instead of the {len(self.header)} that the "
                    "column names ask for"
                )
            for of_column, column in zip(labels, columns.labels, strict=True):
                of_column.append(self._cell(line, row, column, str))
            integers.extend(
                MISSING
                if row[column].strip() in MISSING_CELLS
                else self._cell(line, row, column, parse_integer)
                for column in columns.integers
            )
        return Block(lines, labels, _as_tensor(integers, len(rows)), _cells(rows, columns))

    def _cell(self, line: int, row: list[str], column: int, parse: Callable[[str], T]) -> T:
        cell = row[column].strip()
        try:
            if not cell:
                raise ValueError("the cell is empty")
            return parse(cell)
        except ValueError as problem:
            raise Place(self.file, line, self.shown[column])(str(problem)) from None


def parse_integer(text: str) -> int:
    """A count: an integer from 0 to 2^53, also written as 12.0 or 1e3."""
    if re.fullmatch(r"[+-]?[0-9]+", text):
        number = int(text[:400])  # far above the largest count; Python limits the digits
    else:
        real = parse_real(text)
        if not real.is_integer():
            raise ValueError(f"{quoted(text)} is not a whole number, but counts are")
        number = int(real)
    if number < 0:
        raise ValueError(f"{quoted(text)} is negative, but counts are 0 or more")
    if number > LARGEST_INTEGER:
        raise ValueError(f"{quoted(text)} is above 2^53 = {LARGEST_INTEGER}, the largest count")
    return number


def parse_real(text: str) -> float:
    """A finite number in plain notation, with a point for the decimals."""
    try:
        number = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        point = (
            "; decimals are written with a point"
            if re.fullmatch(r"[+-]?[0-9]*,[0-9]+", text)
            else ""
        )
        raise ValueError(f"{quoted(text)} is not a number{point}")
    return number


def _as_tensor(numbers: array[Any], rows: int) -> Tensor:
    return (
        torch.frombuffer(numbers, dtype=torch.int64).reshape(rows, -1)
        if numbers
        else torch.empty(rows, 0, dtype=torch.int64)
    )


def _cells(rows: list[list[str]], columns: Columns) -> list[list[str]]:
    return [[row[column].strip() for row in rows] for column in columns.cells]


def _integers(rows: list[list[str]], columns: Sequence[int]) -> Tensor | None:
    """The integers of some columns, or None where one is unusual."""
    if not columns:
        return torch.empty(len(rows), 0, dtype=torch.int64)
    picked = map(itemgetter(*columns), rows)
    cells: list[str] = list(picked if len(columns) == 1 else chain.from_iterable(picked))
    everything = "".join(cells)
    if "_" in everything or not everything.isascii():  # Python would read 1_000 or ٣
        return None
    try:
        return _as_tensor(array("q", map(int, cells)), len(rows))
    except (ValueError, OverflowError):
        return None


def _guess_delimiter(header: str, recognised: Callable[[str], bool]) -> str:
    """The separator with the most recognised names in the header; among equals, the one with the
    most names.
    """

    def score(delimiter: str) -> tuple[int, int]:
        try:
            names = next(csv.reader([header], delimiter=delimiter, skipinitialspace=True))
        except csv.Error:
            return 0, 0
        return sum(recognised(name.strip()) for name in names), len(names)

    return max(DELIMITERS, key=score)


def _text_lines(stream: IO[bytes], file: str, progress: Callable[[int], None]) -> Iterator[str]:
    """The lines of UTF-8 text with their line ends of any kind; other content is an error."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    pending, line, size = "", 1, 0
    while True:
        chunk = stream.read(BYTES_AT_ONCE)
        if not size:
            for beginning, description in FOREIGN_FORMATS.items():
                if chunk.startswith(beginning):
                    raise Place(file)(f"the file is {description}")
        size += len(chunk)
        if b"\0" in chunk:
            line += len(_split_lines(pending.encode() + chunk[: chunk.index(b"\0")])) - 1
            raise Place(file, line)(
                "there is a NUL byte, so this is a binary file or UTF-16; a count table is UTF-8 "
                "text"
            )
        try:
            text = pending + decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as problem:
            before = _split_lines(pending.encode() + problem.object[: problem.start])
            byte = (
                f"byte {len(before[-1]) + 1} of the line is 0x{problem.object[problem.start]:02X}"
            )
            raise Place(file, line + len(before) - 1)(
                f"{byte}, which is not UTF-8; save the file as UTF-8"
            ) from None
        pieces = list(io.StringIO(text, newline=""))
        pending = pieces.pop() if chunk and pieces and not pieces[-1].endswith("\n") else ""
        line += len(pieces)
        if len(pending) > LONGEST_LINE:
            raise Place(file, line)(
                f"the line is longer than {LONGEST_LINE:,} characters, so this is not a table of "
                "counts"
            )
        progress(size)
        yield from pieces
        if not chunk:
            return


def _split_lines(data: bytes) -> list[bytes]:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
