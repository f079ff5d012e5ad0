"""Tables for a terminal: no word and no number is broken, however narrow it is.

Two things make room. Settings in brackets behind a name that occurs again and again move below the
table. A table that is still too wide is shown in parts, each with the first columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import ascii_lowercase

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from diffurn_studies.harness.run_directory import Published
from diffurn_studies.harness.tables import Table, text

_SETTINGS = re.compile(r"(?P<name>[^()]+) \((?P<details>.{9,})\)")
_BETWEEN, _EDGE = 3, 1  # blanks between two columns, and before the first
_NUMBER = 24  # the longest text that counts as one number, such as 1.25 ± 0.03


def show(console: Console, table: Table) -> None:
    """Prints the table, in as many parts as the width of the console asks for."""
    cells = [[text(cell) for cell in row] for row in table.rows]
    notes = list(table.notes)
    if sum(_whole_widths(table, cells)) + _BETWEEN * len(table.columns) + _EDGE > console.width:
        cells, legend = _without_settings(cells)
        notes = [*legend, *notes]
    least, whole = _least_widths(table, cells), _whole_widths(table, cells)
    for number, part in enumerate(_parts(table, cells, least, console.width)):
        shown = RichTable(title=None if number else escape(table.title), box=box.SIMPLE_HEAD)
        room = console.width - _EDGE - _BETWEEN * len(part)
        widths = _shared(room, *([own[column] for column in part] for own in (least, whole)))
        for column, width in zip(part, widths, strict=True):
            shown.add_column(
                escape(table.columns[column]),
                justify="right" if table.is_numeric(column) else "left",
                width=width,
            )
        for row in cells:
            shown.add_row(*(escape(row[column]) for column in part))
        console.print(shown)
    if notes:
        console.print(Text("\n".join(notes), style="dim italic"))
    console.print()


def show_outcome(console: Console, path: Path, published: Published) -> None:
    """Prints the verdict of a run, and the places of its files."""
    lines = [sentence for sentence in (published.caution, *published.verdict) if sentence]
    if lines:
        heading = "Outcome of the quick run" if published.caution else "Verdict"
        console.print(Text(heading, style="bold"))
        console.print(Text("\n".join(lines)))
        console.print()
    figures = [str(path / "figures" / f"{name}.png") for name in published.captions]
    console.print(Text("Where to look next", style="bold"))
    for line in (*figures, f"diffurn report {path}  # tables and figures on one page"):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    console.print()


def _shared(room: int, least: Sequence[int], whole: Sequence[int]) -> list[int]:
    """Widths that fit into the room. What is left above the least widths goes to the columns that
    lack most.
    """
    widths = list(least)
    for _ in range(room - sum(least)):
        lacking = [wanted - own for wanted, own in zip(whole, widths, strict=True)]
        if max(lacking) <= 0:
            break
        widths[lacking.index(max(lacking))] += 1
    return widths


def _least_widths(table: Table, cells: Sequence[Sequence[str]]) -> list[int]:
    """The longest piece of every column that stays in one line: a number or a word; of texts at
    least a dozen letters.
    """
    least = []
    for column, heading in enumerate(table.columns):
        own = [row[column] for row in cells]
        longest = max(map(cell_len, own), default=0)
        pieces = [*heading.split(), *(word for cell in own for word in cell.split())]
        is_number = table.is_numeric(column) and longest <= _NUMBER
        least.append(max([longest if is_number else min(12, longest), *map(cell_len, pieces)]))
    return least


def _whole_widths(table: Table, cells: Sequence[Sequence[str]]) -> list[int]:
    """The widths of columns whose lines are not broken."""
    return [
        max([cell_len(heading), *(cell_len(row[column]) for row in cells)])
        for column, heading in enumerate(table.columns)
    ]


def _parts(
    table: Table, cells: Sequence[Sequence[str]], least: Sequence[int], width: int
) -> Iterator[list[int]]:
    """Columns that fit beside each other, each time behind the first ones, which tell the rows
    apart.
    """
    keys = 1
    while keys < min(4, len(least) - 1) and len({tuple(row[:keys]) for row in cells}) < len(cells):
        keys += 1
    while keys > 1 and sum(least[:keys]) + _BETWEEN * keys > width / 2:
        keys -= 1
    part: list[int] = []
    for group in _groups(table.columns, keys):
        wanted = [*range(keys), *part, *group]
        if part and _EDGE + sum(least[column] + _BETWEEN for column in wanted) > width:
            yield [*range(keys), *part]
            part = []
        part += group
    yield [*range(keys), *part]


def _groups(headings: Sequence[str], keys: int) -> Iterator[list[int]]:
    """The columns behind the keys. The paper's figures stay beside ours."""
    group: list[int] = []
    for column in range(keys, len(headings)):
        if group and not headings[column].startswith(("paper", "difference")):
            yield group
            group = []
        group.append(column)
    yield group


def _without_settings(cells: Sequence[Sequence[str]]) -> tuple[list[list[str]], list[str]]:
    """The cells with names alone, told apart by letters, and the settings that belong to them."""
    found = dict.fromkeys(cell for row in cells for cell in row if _SETTINGS.fullmatch(cell))
    names = [_SETTINGS.fullmatch(cell)["name"] for cell in found]  # type: ignore[index]
    short: dict[str, str] = {}
    for cell, name in zip(found, names, strict=True):
        letter = ascii_lowercase[sum(other == name for other in names[: len(short)]) % 26]
        short[cell] = f"{name} {letter}" if names.count(name) > 1 else name
    legend = [f"{own}: {_SETTINGS.fullmatch(cell)['details']}." for cell, own in short.items()]  # type: ignore[index]
    return [[short.get(cell, cell) for cell in row] for row in cells], legend
