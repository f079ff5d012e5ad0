"""The usual names of the columns of a count table, and tables with other names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

AVAILABLE, DRAWN = "m_", "x_"  # beginnings of names in the wide format
LONG_COLUMNS = ("row", "group", "available", "drawn")
FREQUENCY = "frequency"
USUAL = (*LONG_COLUMNS, FREQUENCY, AVAILABLE, DRAWN)


@dataclass(frozen=True)
class Renaming:
    """Names of columns in a file, by their usual names."""

    columns: Mapping[str, str]

    @classmethod
    def of(cls, columns: Mapping[str, str]) -> Renaming:
        for usual, theirs in columns.items():
            if usual not in USUAL:
                raise ValueError(
                    f"columns has {usual!r}={theirs!r}, but can rename only {', '.join(USUAL)}"
                )
        twice = [name for name in columns.values() if list(columns.values()).count(name) > 1]
        if twice:
            raise ValueError(f"columns gives {twice[0]!r} two meanings")
        return cls(columns)

    def usual(self, name: str) -> str:
        """The usual name of a column. A column that has a usual name which another column takes
        over is an ordinary column.
        """
        for usual, theirs in self.columns.items():
            if usual in (AVAILABLE, DRAWN):
                if name.startswith(theirs):
                    return usual + name.removeprefix(theirs)
            elif name == theirs:
                return usual
        taken = name in self.columns or any(
            name.startswith(usual) for usual in self.columns if usual in (AVAILABLE, DRAWN)
        )
        return f"{name} (renamed)" if taken else name

    def check(self, names: Sequence[str], error: Callable[[str], ValueError]) -> None:
        """Raises an error for a column that is to be renamed but does not exist."""
        for usual, theirs in self.columns.items():
            prefix = usual in (AVAILABLE, DRAWN)
            if not any(name.startswith(theirs) if prefix else name == theirs for name in names):
                listed = ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")
                kind = "begins with" if prefix else "is called"
                raise error(
                    f"no column {kind} {theirs!r}, which is to be {usual!r}; the columns are "
                    f"{listed}"
                )
