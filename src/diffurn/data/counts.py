"""Count tables: the balls of each group that were available and drawn, one experiment per row."""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from os import PathLike, fspath, fstat
from typing import IO

import torch
from torch import Tensor

from diffurn.data.delimited import LARGEST_INTEGER, Block, Columns, DelimitedText, Place, quoted

EXAMPLES = {"titanic": "titanic.csv", "ucb": "ucb_admissions.csv"}
AVAILABLE, DRAWN = "m_", "x_"  # prefixes of the wide format
LONG_COLUMNS = ("row", "group", "available", "drawn")
FREQUENCY = "frequency"
MOST_GROUPS = 1000
MOST_CELLS = 200_000_000

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class CountTable:
    """R experiments with c groups each, as read from a file.

    Attributes:
        groups: names of the groups.
        counts: balls drawn, ``(R, c)``, int64.
        group_sizes: balls available, ``(R, c)``, int64.
        frequencies: how often each row occurred, ``(R,)``, int64; None if the file does not say.
        covariates: ``(R, c, p)``, float64; None without covariates.
        covariate_names: names of the p covariates.
        row_labels: labels of the rows; None if the file has none.
    """

    groups: tuple[str, ...]
    counts: Tensor
    group_sizes: Tensor
    frequencies: Tensor | None = None
    covariates: Tensor | None = None
    covariate_names: tuple[str, ...] = ()
    row_labels: tuple[str, ...] | None = None

    def features(self, reference: str | None = None) -> tuple[Tensor, tuple[str, ...]]:
        """The covariates as `fit` takes them, shape (R, c, number of coefficients), and the names
        of the coefficients.

        A covariate that differs between the groups of a row has one coefficient. A covariate that
        is the same for all groups of a row cancels, so it gets a coefficient ``group:name`` for
        every group but the reference (by default the first). Every group but the reference also
        keeps a weight of its own, unless a covariate is a property of the groups, the same in all
        rows: own weights would explain all that such a covariate could explain.
        """
        if self.covariates is None:
            raise ValueError("this table was read without covariates")
        base = self.groups.index(self.groups[0] if reference is None else reference)
        others = [j for j in range(len(self.groups)) if j != base]
        own_weights = torch.eye(len(self.groups), dtype=torch.float64)[:, others]  # (c, c - 1)
        features, names, of_the_groups = [], [], False
        for name, values in zip(self.covariate_names, self.covariates.unbind(-1), strict=True):
            present = self.group_sizes > 0
            per_row, per_group = _same_along(values, present, 1), _same_along(values, present, 0)
            if per_row and per_group:
                raise ValueError(
                    f"covariate {quoted(name)} is the same everywhere, so it cannot explain "
                    "anything"
                )
            of_the_groups |= per_group
            features.append(values.unsqueeze(-1) * own_weights if per_row else values.unsqueeze(-1))
            names.extend([f"{self.groups[j]}:{name}" for j in others] if per_row else [name])
        if not of_the_groups:
            features.insert(0, own_weights.expand(len(self.counts), -1, -1))
            names[:0] = [self.groups[j] for j in others]
        return torch.cat(features, -1), tuple(names)


def _same_along(values: Tensor, present: Tensor, dim: int) -> bool:
    """Whether all values that are present are equal along a dimension."""
    low = torch.where(present, values, torch.inf).amin(dim)
    high = torch.where(present, values, -torch.inf).amax(dim)
    return bool((low >= high).all())


def read_counts(
    path: str | PathLike[str], covariates: Sequence[str] = (), progress: Progress | None = None
) -> CountTable:
    """Reads a table of counts from a CSV file (UTF-8; separated by commas, semicolons or tabs).

    A wide table has one line per experiment, with columns ``m_<group>`` (available) and
    ``x_<group>`` (drawn) for every group. A long table has one line per experiment and group, with
    columns ``row``, ``group``, ``available``, ``drawn``; a group without a line was not available.
    In both, a column ``frequency`` says how often a row occurred. Other columns are ignored unless
    `covariates` names them.

    Args:
        path: the file; ``-`` is the standard input.
        covariates: columns of numbers. In a wide table NAME is a column of that name, one value per
            row, or else the columns ``NAME_<group>`` for all groups; in a long table it is a
            column.
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
    with _opened(path) as (stream, name, size):
        report = (lambda done: None) if progress is None else (lambda done: progress(done, size))
        return read_stream(stream, name, covariates, report)


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
def _opened(path: str | PathLike[str]) -> Iterator[tuple[IO[bytes], str, int]]:
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
    covariates: Sequence[str] = (),
    progress: Callable[[int], None] = lambda done: None,
) -> CountTable:
    """The table of a stream of bytes; `name` is its name in messages."""
    repeated = [covariate for i, covariate in enumerate(covariates) if covariate in covariates[:i]]
    if repeated:
        raise Place(name)(f"covariate {quoted(repeated[0])} was asked for twice")
    text = DelimitedText(
        stream,
        name,
        lambda column: column in LONG_COLUMNS or column.startswith((AVAILABLE, DRAWN)),
        progress,
    )
    wide = any(column.startswith((AVAILABLE, DRAWN)) for column in text.header)
    if not wide and not set(text.header) & set(LONG_COLUMNS[1:]):
        listed = ", ".join(map(quoted, text.header[:6])) + (", …" if len(text.header) > 6 else "")
        wanted = (
            "m_<group> and x_<group> for every group (wide), or row, group, available, drawn (long)"
        )
        raise Place(name, text.header_line)(
            f"the columns are {listed}, but a count table has the columns {wanted}"
        )
    return _read_wide(text, covariates) if wide else _read_long(text, covariates)


def _read_wide(text: DelimitedText, covariates: Sequence[str]) -> CountTable:
    groups = _groups_of(text)
    positions = {column: j for j, column in enumerate(text.header)}
    names = [prefix + group for prefix in (AVAILABLE, DRAWN) for group in groups]
    names += [FREQUENCY] if FREQUENCY in positions else []
    measured = [_wide_covariate(text, groups, covariate) for covariate in covariates]
    labelled = "row" in positions
    columns = Columns(
        [positions["row"]] if labelled else [],
        [positions[column] for column in names],
        [positions[column] for of_one in measured for column in of_one],
    )
    c, rows = len(groups), 0
    integers, reals, labels = [], [], []
    for block in text.blocks(columns):
        sizes, counts = block.integers[:, :c], block.integers[:, c : 2 * c]
        _check_counts(text.file, block, sizes, counts, [DRAWN + group for group in groups])
        _check_row_totals(text.file, block.lines, sizes, counts)
        integers.append(block.integers)
        reals.append(block.reals)
        labels += block.texts[0] if labelled else []
        rows += len(block.lines)
        _check_cells(text, rows, c)
    _check_any_rows(text, integers)
    all_integers = torch.cat(integers)
    frequencies = all_integers[:, 2 * c] if FREQUENCY in positions else None
    _check_frequencies(text.file, frequencies)
    features = [
        part.expand(-1, c)
        for part in torch.cat(reals).split([len(of_one) for of_one in measured], -1)
    ]
    return CountTable(
        groups=groups,
        counts=all_integers[:, c : 2 * c].contiguous(),
        group_sizes=all_integers[:, :c].contiguous(),
        frequencies=frequencies,
        covariates=torch.stack(features, -1) if features else None,
        covariate_names=tuple(covariates),
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


def _wide_covariate(text: DelimitedText, groups: tuple[str, ...], name: str) -> list[str]:
    """The columns that hold a covariate: one for the rows, or one for each group."""
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


def _read_long(text: DelimitedText, covariates: Sequence[str]) -> CountTable:
    positions = {column: j for j, column in enumerate(text.header)}
    for column in (*LONG_COLUMNS, *covariates):
        if column not in positions:
            kind = (
                "a long count table has the columns row, group, available, drawn"
                if column in LONG_COLUMNS
                else "a covariate is a column"
            )
            raise Place(text.file, text.header_line)(
                f"the column {quoted(column)} is missing; {kind}"
            )
    names = ["available", "drawn"] + ([FREQUENCY] if FREQUENCY in positions else [])
    columns = Columns(
        [positions["row"], positions["group"]],
        [positions[name] for name in names],
        [positions[covariate] for covariate in covariates],
    )
    rows: dict[str, int] = {}
    groups: dict[str, int] = {}
    entries = _LongEntries(array("q"), array("q"), array("q"), [], [])
    for block in text.blocks(columns):
        sizes, counts = block.integers[:, :1], block.integers[:, 1:2]
        _check_counts(text.file, block, sizes, counts, ["drawn"])
        entries.rows.extend(rows.setdefault(row, len(rows)) for row in block.texts[0])
        entries.groups.extend(groups.setdefault(group, len(groups)) for group in block.texts[1])
        entries.lines.extend(block.lines)
        entries.integers.append(block.integers)
        entries.reals.append(block.reals)
        _check_number_of_groups(text.file, len(groups))
    _check_any_rows(text, entries.integers)
    for group in groups:
        _check_name(Place(text.file, None, "group"), group)
    if len(groups) == 1:
        raise Place(text.file)(
            f"there is only one group, {quoted(next(iter(groups)))}, but a choice needs two or more"
        )
    _check_cells(text, len(rows), len(groups))
    return entries.table(text.file, tuple(rows), tuple(groups), tuple(covariates))


@dataclass(frozen=True)
class _LongEntries:
    """The entries of a long table in the order of the file."""

    rows: array[int]  # index of the row of each entry
    groups: array[int]
    lines: array[int]
    integers: list[Tensor]  # blocks of available, drawn and perhaps frequency
    reals: list[Tensor]

    def table(
        self, file: str, rows: tuple[str, ...], groups: tuple[str, ...], covariates: tuple[str, ...]
    ) -> CountTable:
        shape = len(rows), len(groups)
        row, group = (
            torch.frombuffer(index, dtype=torch.int64) for index in (self.rows, self.groups)
        )
        cell = row * shape[1] + group
        self._check_no_repeats(file, cell, rows, groups)
        integers, reals = torch.cat(self.integers), torch.cat(self.reals)
        sizes, counts = (
            integers.new_zeros(shape).view(-1).index_copy(0, cell, integers[:, k]).view(shape)
            for k in (0, 1)
        )
        # the first entry of each row
        first = torch.full((shape[0],), len(cell)).scatter_reduce(
            0, row, torch.arange(len(cell)), "amin"
        )
        _check_row_totals(
            file, torch.frombuffer(self.lines, dtype=torch.int64)[first].tolist(), sizes, counts
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
        # A group without a line takes a value of its row.
        features = reals[first].unsqueeze(1).repeat(1, shape[1], 1)
        features.view(shape[0] * shape[1], -1)[cell] = reals
        return CountTable(
            groups, counts, sizes, frequencies, features if covariates else None, covariates, rows
        )

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
    above = (counts > sizes).nonzero()
    if len(above):
        i, j = above[0].tolist()
        raise Place(file, block.lines[i], columns[j])(
            f"{counts[i, j]} drawn, but only {sizes[i, j]} available"
        )


def _check_row_totals(file: str, lines: Sequence[int], sizes: Tensor, counts: Tensor) -> None:
    nothing = (counts.sum(-1) == 0).nonzero()
    if len(nothing):
        raise Place(file, lines[int(nothing[0])])(
            "nothing is drawn in this row, so it has no information; remove it"
        )
    large = (sizes.double().sum(-1) > LARGEST_INTEGER).nonzero()
    if len(large):
        raise Place(file, lines[int(large[0])])(
            "the balls available in this row are more than 2^53 in all"
        )


def _check_frequencies(file: str, frequencies: Tensor | None) -> None:
    if frequencies is not None and not bool(frequencies.any()):
        raise Place(file, None, FREQUENCY)("every frequency is 0, so there are no rows")
