"""Count tables: the balls of each group that were available and drawn, one experiment per row."""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from os import PathLike, fspath, fstat
from typing import IO

import torch
from torch import Tensor

from diffurn.data.delimited import (
    LARGEST_INTEGER,
    MISSING,
    Block,
    Columns,
    DelimitedText,
    Place,
    quoted,
)
from diffurn.data.renaming import AVAILABLE, DRAWN, FREQUENCY, LONG_COLUMNS, Renaming
from diffurn.data.table import CountTable
from diffurn.data.variables import Variable, read_variable

EXAMPLES = {"titanic": "titanic.csv", "ucb": "ucb_admissions.csv"}
MOST_GROUPS = 1000
MOST_CELLS = 200_000_000

Progress = Callable[[int, int], None]


def read_counts(
    path: str | PathLike[str],
    variables: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    na: str = "drop",
    progress: Progress | None = None,
) -> CountTable:
    """Reads a table of counts from a CSV file (UTF-8; separated by commas, semicolons or tabs).

    A wide table has one line per experiment, with columns ``m_<group>`` (available) and
    ``x_<group>`` (drawn) for every group. A long table has one line per experiment and group, with
    columns ``row``, ``group``, ``available``, ``drawn``; a group without a line was not available.
    In both, a column ``frequency`` says how often a row occurred. Other columns are ignored unless
    `variables` names them. Rows with a missing value (an empty cell, NA or NaN) and rows in which
    nothing is drawn are left out, and counted in `CountTable.left_out`.

    Args:
        path: the file; ``-`` is the standard input.
        variables: more columns to read, of numbers or text: covariates, clusters, …. In a wide
            table NAME is a column of that name, one value per row, or else the columns
            ``NAME_<group>`` for all groups; in a long table it is a column.
        columns: names of columns in the file, by their usual names: ``{"group": "species"}``. In a
            wide table ``m_`` and ``x_`` are beginnings of names: ``{"x_": "used_"}``.
        na: ``"drop"`` leaves rows with missing values out; ``"raise"`` makes them an error.
        progress: called with the bytes read and the bytes in all (0 if unknown).

    Raises:
        CountTableError: one sentence that names the file, the line and the column, and says what
            would be right.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "counts.csv")
        ...     _ = path.write_text("m_red,x_red,m_blue,x_blue\\n5,3,9,2\\n5,4,9,1\\n")
        ...     table = read_counts(path)
        >>> table.groups, table.counts.tolist(), table.group_sizes.tolist()
        (('red', 'blue'), [[3, 2], [4, 1]], [[5, 9], [5, 9]])
    """
    with opened(path) as (stream, name, size):
        report = (lambda done: None) if progress is None else (lambda done: progress(done, size))
        return read_stream(stream, name, variables, report, columns, na)


def example_counts(name: str) -> CountTable:
    """A table that comes with the package: ``titanic`` (Dawson 1995) or ``ucb`` (Bickel et al.
    1975).

    Example:
        >>> example_counts("titanic").groups
        ('1st class', '2nd class', '3rd class', 'Crew')
    """
    if name not in EXAMPLES:
        raise ValueError(f"there is no example {quoted(name)}, only {' and '.join(EXAMPLES)}")
    with (resources.files("diffurn.data") / "tables" / EXAMPLES[name]).open("rb") as stream:
        return read_stream(stream, EXAMPLES[name])


@contextmanager
def opened(path: str | PathLike[str]) -> Iterator[tuple[IO[bytes], str, int]]:
    """The stream, its name in messages and its size; an error of the system becomes a sentence."""
    name = fspath(path)
    try:
        if name == "-":
            yield sys.stdin.buffer, "standard input", 0
        elif "\0" in name:
            raise Place(quoted(name))("no file can have this name")
        else:
            with open(name, "rb") as stream:
                yield stream, name, fstat(stream.fileno()).st_size
    except OSError as problem:
        raise Place(name)(why_unreadable(problem)) from None


def why_unreadable(problem: OSError) -> str:
    """An error of the system in words."""
    reasons = {
        FileNotFoundError: "there is no such file",
        IsADirectoryError: "this is a folder, not a file",
        PermissionError: "there is no permission to read it",
    }
    return reasons.get(type(problem), f"it cannot be read ({problem.strerror or problem})")


def read_stream(
    stream: IO[bytes],
    name: str,
    variables: Sequence[str] = (),
    progress: Callable[[int], None] = lambda done: None,
    columns: Mapping[str, str] | None = None,
    na: str = "drop",
) -> CountTable:
    """The table of a stream of bytes; `name` is its name in messages."""
    repeated = [variable for i, variable in enumerate(variables) if variable in variables[:i]]
    if repeated:
        raise Place(name)(f"covariate {quoted(repeated[0])} was asked for twice")
    renaming = Renaming.of(columns or {})
    text = DelimitedText(
        stream,
        name,
        lambda column: column in LONG_COLUMNS or column.startswith((AVAILABLE, DRAWN)),
        progress,
        renaming.usual,
    )
    place = Place(name, text.header_line)
    renaming.check(text.shown, place.__call__)
    wide = any(column.startswith((AVAILABLE, DRAWN)) for column in text.header)
    if not wide and not set(text.header) & set(LONG_COLUMNS[1:]):
        listed = ", ".join(map(quoted, text.shown[:6])) + (", …" if len(text.shown) > 6 else "")
        raise place(
            f"the columns are {listed}, but a count table has the columns m_<group> and x_<group> "
            "for every group (wide), or row, group, available, drawn (long); if yours have other "
            "names, say which (--columns row=plot,group=species,drawn=used)"
        )
    table = _read_wide(text, variables) if wide else _read_long(text, variables)
    try:
        return table.usable(na)
    except ValueError as problem:
        raise Place(name)(str(problem)) from None


def _read_wide(text: DelimitedText, variables: Sequence[str]) -> CountTable:
    groups = _groups_of(text)
    positions = {column: j for j, column in enumerate(text.header)}
    names = [prefix + group for prefix in (AVAILABLE, DRAWN) for group in groups]
    names += [FREQUENCY] if FREQUENCY in positions else []
    measured = [_wide_variable(text, groups, variable) for variable in variables]
    labelled = "row" in positions
    columns = Columns(
        [positions["row"]] if labelled else [],
        [positions[column] for column in names],
        [positions[column] for of_one in measured for column in of_one],
    )
    c, integers = len(groups), []
    labels: list[str] = []
    lines: list[int] = []
    cells: list[list[str]] = [[] for _ in columns.cells]
    for block in text.blocks(columns):
        sizes, counts = block.integers[:, :c], block.integers[:, c : 2 * c]
        drawn = [text.shown[positions[DRAWN + group]] for group in groups]
        _check_counts(text.file, block, sizes, counts, drawn)
        _check_row_totals(text.file, block.lines, sizes)
        integers.append(block.integers)
        for whole, part in zip(cells, block.cells, strict=True):
            whole += part
        labels += block.labels[0] if labelled else []
        lines += block.lines
        _check_cells(text, len(lines), c)
    _check_any_rows(text, integers)
    all_integers = torch.cat(integers)
    frequencies = all_integers[:, 2 * c] if FREQUENCY in positions else None
    _check_frequencies(text.file, frequencies)
    read, first = {}, 0
    for name, of_one in zip(variables, measured, strict=True):
        its_cells, first = cells[first : first + len(of_one)], first + len(of_one)
        values, levels = read_variable(text.file, of_one, its_cells, lines)
        read[name] = Variable(name, values.expand(-1, c), levels)
    return CountTable(
        groups=groups,
        counts=all_integers[:, c : 2 * c].contiguous(),
        group_sizes=all_integers[:, :c].contiguous(),
        frequencies=frequencies,
        variables=read,
        row_labels=tuple(labels) if labelled else None,
    )


def _groups_of(text: DelimitedText) -> tuple[str, ...]:
    """The groups of a wide table in the order of their columns. Each must have both columns."""
    groups = list(
        dict.fromkeys(column[2:] for column in text.header if column.startswith((AVAILABLE, DRAWN)))
    )
    _check_number_of_groups(text.file, len(groups))
    present = set(text.header)
    for group in groups:
        for missing, other in ((AVAILABLE, DRAWN), (DRAWN, AVAILABLE)):
            if missing + group not in present:
                kind = "balls available" if missing == AVAILABLE else "balls drawn"
                rule = f"has no column {quoted(missing + group)} beside it for the {kind}"
                raise Place(text.file, text.header_line, other + group)(rule)
        if not group:
            raise Place(text.file, text.header_line, AVAILABLE)(
                "the name of the group is missing after the prefix"
            )
        _check_name(Place(text.file, text.header_line, AVAILABLE + group), group)
    if len(groups) == 1:
        raise Place(text.file, text.header_line)(
            f"there is only one group, {quoted(groups[0])}, but a choice needs two or more"
        )
    return tuple(groups)


def _wide_variable(text: DelimitedText, groups: tuple[str, ...], name: str) -> list[str]:
    """The columns that hold a variable: one for the rows, or one for each group."""
    if name in text.header:
        return [name]
    columns = [f"{name}_{group}" for group in groups]
    missing = [column for column in columns if column not in text.header]
    if len(missing) == len(columns):
        rule = (
            f"for covariate {quoted(name)} there is neither a column {quoted(name)} nor one "
            f"{quoted(columns[0])} for each group"
        )
        raise Place(text.file, text.header_line)(rule)
    if missing:
        raise Place(text.file, text.header_line)(
            f"covariate {quoted(name)} needs a column for each group, but {quoted(missing[0])} is "
            "missing"
        )
    return columns


def _read_long(text: DelimitedText, variables: Sequence[str]) -> CountTable:
    positions = {column: j for j, column in enumerate(text.header)}
    for column in (*LONG_COLUMNS, *variables):
        if column not in positions:
            is_ours = column in LONG_COLUMNS
            kind = (
                "a long count table has the columns row, group, available, drawn"
                if is_ours
                else "a covariate is a column"
            )
            hint = f"; if it has another name, say which (--columns {column}=…)" if is_ours else ""
            known = ", ".join(map(quoted, text.shown[:8])) + (", …" if len(text.shown) > 8 else "")
            raise Place(text.file, text.header_line)(
                f"the column {quoted(column)} is missing; {kind}, and the file has {known}{hint}"
            )
    names = ["available", "drawn"] + ([FREQUENCY] if FREQUENCY in positions else [])
    columns = Columns(
        [positions["row"], positions["group"]],
        [positions[name] for name in names],
        [positions[variable] for variable in variables],
    )
    rows: dict[str, int] = {}
    groups: dict[str, int] = {}
    cells: list[list[str]] = [[] for _ in variables]
    entries = _LongEntries(array("q"), array("q"), array("q"), [], cells)
    for block in text.blocks(columns):
        sizes, counts = block.integers[:, :1], block.integers[:, 1:2]
        _check_counts(text.file, block, sizes, counts, [text.shown[positions["drawn"]]])
        entries.rows.extend(rows.setdefault(row, len(rows)) for row in block.labels[0])
        entries.groups.extend(groups.setdefault(group, len(groups)) for group in block.labels[1])
        entries.lines.extend(block.lines)
        entries.integers.append(block.integers)
        for whole, part in zip(cells, block.cells, strict=True):
            whole += part
        _check_number_of_groups(text.file, len(groups))
    _check_any_rows(text, entries.integers)
    for group in groups:
        _check_name(Place(text.file, None, "group"), group)
    if len(groups) == 1:
        raise Place(text.file)(
            f"there is only one group, {quoted(next(iter(groups)))}, but a choice needs two or more"
        )
    _check_cells(text, len(rows), len(groups))
    return entries.table(text.file, tuple(rows), tuple(groups), tuple(variables))


@dataclass(frozen=True)
class _LongEntries:
    """The entries of a long table in the order of the file."""

    rows: array[int]  # index of the row of each entry
    groups: array[int]
    lines: array[int]
    integers: list[Tensor]  # blocks of available, drawn and perhaps frequency
    cells: list[list[str]]  # of each variable

    def table(
        self, file: str, rows: tuple[str, ...], groups: tuple[str, ...], variables: tuple[str, ...]
    ) -> CountTable:
        shape = len(rows), len(groups)
        row, group = (
            torch.frombuffer(index, dtype=torch.int64) for index in (self.rows, self.groups)
        )
        cell = row * shape[1] + group
        self._check_no_repeats(file, cell, rows, groups)
        integers = torch.cat(self.integers)
        sizes, counts = (
            integers.new_zeros(shape).view(-1).index_copy(0, cell, integers[:, k]).view(shape)
            for k in (0, 1)
        )
        # the first entry of each row
        first = torch.full((shape[0],), len(cell)).scatter_reduce(
            0, row, torch.arange(len(cell)), "amin"
        )
        _check_row_totals(
            file, torch.frombuffer(self.lines, dtype=torch.int64)[first].tolist(), sizes
        )
        frequencies = integers[:, 2][first] if integers.shape[1] == 3 else None
        if frequencies is not None:
            differs = (frequencies[row] != integers[:, 2]).nonzero()
            if len(differs):
                entry = int(differs[0])
                earlier = f"row {quoted(rows[row[entry]])} occurred {frequencies[row[entry]]} times"
                raise Place(file, self.lines[entry], FREQUENCY)(
                    f"{earlier} by an earlier line, but {integers[entry, 2]} by this one"
                )
        _check_frequencies(file, frequencies)
        read = {}
        for name, cells in zip(variables, self.cells, strict=True):
            found, levels = read_variable(file, [name], [cells], self.lines.tolist())
            # A group without a line takes a value of its row.
            values = found[first].repeat(1, shape[1])
            values.view(-1)[cell] = found[:, 0]
            read[name] = Variable(name, values, levels)
        return CountTable(groups, counts, sizes, frequencies, read, rows)

    def _check_no_repeats(
        self, file: str, cell: Tensor, rows: tuple[str, ...], groups: tuple[str, ...]
    ) -> None:
        by_cell, entry = cell.sort(stable=True)
        repeats = entry[1:][by_cell[1:] == by_cell[:-1]]
        if len(repeats):
            second = int(repeats.min())
            row, group = rows[self.rows[second]], groups[self.groups[second]]
            raise Place(file, self.lines[second])(
                f"row {quoted(row)} has a second line for group {quoted(group)}; there may be one"
            )


def _check_name(place: Place, group: str) -> None:
    if re.search(r"[\x00-\x1f\x7f-\x9f]", group):  # would garble a terminal
        raise place(
            f"the name {quoted(group)} of a group has a control character or a line break in it"
        )


def _check_number_of_groups(file: str, number: int) -> None:
    if number > MOST_GROUPS:
        raise Place(file)(
            f"there are {number:,} groups or more, but a table may have {MOST_GROUPS:,} at most"
        )


def _check_cells(text: DelimitedText, rows: int, groups: int) -> None:
    if rows * groups > MOST_CELLS:
        raise Place(text.file)(
            f"{rows:,} rows of {groups:,} groups are too many; rows times groups may be "
            f"{MOST_CELLS:,} at most"
        )


def _check_any_rows(text: DelimitedText, blocks: list[Tensor]) -> None:
    if not blocks:
        raise Place(text.file)("there is a line of column names, but no row of counts below it")


def _check_counts(
    file: str, block: Block, sizes: Tensor, counts: Tensor, columns: list[str]
) -> None:
    """Refuses more balls drawn than available; `columns` are the names of the drawn."""
    above = ((counts > sizes) & (sizes != MISSING)).nonzero()
    if len(above):
        i, j = above[0].tolist()
        raise Place(file, block.lines[i], columns[j])(
            f"{counts[i, j]} drawn, but only {sizes[i, j]} available"
        )


def _check_row_totals(file: str, lines: Sequence[int], sizes: Tensor) -> None:
    large = (sizes.double().sum(-1) > LARGEST_INTEGER).nonzero()
    if len(large):
        raise Place(file, lines[int(large[0])])(
            "the balls available in this row are more than 2^53 in all"
        )


def _check_frequencies(file: str, frequencies: Tensor | None) -> None:
    if frequencies is not None and not bool((frequencies != 0).any()):
        raise Place(file, None, FREQUENCY)("every frequency is 0, so there are no rows")
