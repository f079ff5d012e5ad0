"""Numbers, tables and paragraphs as plain text, as wide as the terminal or COLUMNS."""

from __future__ import annotations

import math
import re
import shutil
import textwrap
import unicodedata
from collections.abc import Sequence

WIDTH = 80  # where there is no terminal, and of paragraphs at most
_NARROWEST = 40
_GAP = "  "


# --- numbers


def count(number: float) -> str:
    """A number of balls; large numbers in four digits."""
    return f"{number:.4g}" if number >= 1e8 else f"{number:,.0f}"


def number_of(thing: str, number: int) -> str:
    return f"{count(number)} {thing}{'s' * (number != 1)}"


def expectation(number: float) -> str:
    return f"{number:,.1f}" if number < 1e5 else count(number)


def factor(log_value: float, digits: int) -> str:
    """exp of a coefficient, to some significant digits."""
    if math.isnan(log_value):
        return "?"
    if abs(log_value) > 700:  # beyond the range of float64
        return "∞" if log_value > 0 else "0"
    return significant(math.exp(log_value), digits)


def significant(value: float, digits: int) -> str:
    """A positive number to some significant digits."""
    if value == 0 or 1e-3 <= value < 10**digits:
        return f"{value:#.{digits}g}".rstrip(".") if value else "0"
    return f"{value:.{digits - 2}e}"


def between(lower: float, upper: float) -> str:
    """An interval of logarithms as the interval of their exponentials."""
    if math.isnan(lower) or math.isnan(upper):
        return ""
    return f"{factor(lower, 3)} – {factor(upper, 3)}"


def plain(value: float) -> str:
    return {math.inf: "∞", -math.inf: "-∞"}.get(value, "?" if math.isnan(value) else f"{value:.4g}")


def p_value(value: float) -> str:
    """To four decimals; empty for nan."""
    return "" if math.isnan(value) else "<0.0001" if value < 1e-4 else f"{value:.4f}"


def p_is(value: float) -> str:
    """Such as: p = 0.0123."""
    return "p < 0.0001" if value < 1e-4 else f"p = {p_value(value) or '?'}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Such as: a, b and c."""
    names = list(names)
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def rows_left_out(missing: int, empty: int) -> list[str]:
    """A note that counts them, if there are any."""
    parts = [number_of("row", missing) + " with missing values"] if missing else []
    parts += [number_of("row", empty) + " with nothing drawn"] if empty else []
    if not parts:
        return []
    return [f"{listed(parts)} {'is' if missing + empty == 1 else 'are'} left out."]


# --- tables


def columns_of_terminal() -> int:
    """COLUMNS, or the width of the terminal."""
    return max(_NARROWEST, shutil.get_terminal_size((WIDTH, 24)).columns)


def cells(text: str) -> int:
    """The width of a text in a terminal."""
    return sum(
        0
        if unicodedata.combining(letter)
        else 2
        if unicodedata.east_asian_width(letter) in "WF"
        else 1
        for letter in text
    )


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: text on the left in the first column, numbers on the right in the others.
    Long texts are folded.
    """
    columns = list(zip(titles, *rows, strict=True))
    widths = [max(map(cells, column)) for column in columns]
    others = sum(widths[1:]) + len(_GAP) * (len(widths) - 1)
    widths[0] = min(widths[0], max(columns_of_terminal() - others, cells(titles[0]), 8))
    lines = [_line(titles, widths), "─" * (sum(widths) + len(_GAP) * (len(widths) - 1))]
    for row in rows:
        first, *more = _folded(row[0], widths[0])
        lines.append(_line([first, *row[1:]], widths))
        lines += more
    return lines


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first = row[0] + " " * (widths[0] - cells(row[0]))
    rest = [
        " " * (width - cells(cell)) + cell for cell, width in zip(row[1:], widths[1:], strict=True)
    ]
    return _GAP.join([first, *rest]).rstrip()


def _folded(text: str, width: int) -> list[str]:
    """Pieces of a text that fit a width, cut at spaces if possible."""
    pieces, line = [], ""
    for word in re.findall(r"\S+\s*|\s+", text) or [""]:
        if line and cells(line + word.rstrip()) > width:
            pieces.append(line.rstrip())
            line = ""
        while cells(word.rstrip()) > width:
            cut = next(k for k in range(len(word), 0, -1) if k == 1 or cells(word[:k]) <= width)
            pieces.append(word[:cut])
            word = word[cut:]
        line += word
    return [*pieces, line.rstrip()] if line.strip() or not pieces else pieces


def paragraph(text: str, indent: str = "") -> list[str]:
    """Lines of a sentence."""
    return textwrap.wrap(
        text,
        min(WIDTH, columns_of_terminal()),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def as_options(text: str) -> str:
    """Advice in the words of the command line: penalty="firth" becomes --penalty firth."""
    return re.sub(
        r'\b(\w+)="([^"]*)"', lambda m: f"--{m[1]} " + (f'"{m[2]}"' if " " in m[2] else m[2]), text
    )
