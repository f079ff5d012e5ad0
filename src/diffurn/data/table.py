"""`CountTable`: the balls of each group that were available and drawn, one experiment per row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from diffurn.data.delimited import quoted
from diffurn.data.renaming import FREQUENCY
from diffurn.data.variables import Variable


class LeftOut(NamedTuple):
    """Rows of a file that a table does not have.

    Attributes:
        missing: rows with a missing value.
        empty: rows in which nothing was drawn: they have no information.
        columns: the columns in which values are missing.
    """

    missing: int = 0
    empty: int = 0
    columns: tuple[str, ...] = ()


NOTHING = LeftOut()


@dataclass(frozen=True, eq=False)
class CountTable:
    """R experiments with c groups each, as read from a file.

    Attributes:
        groups: names of the groups.
        counts: balls drawn, ``(R, c)``, int64.
        group_sizes: balls available, ``(R, c)``, int64.
        frequencies: how often each row occurred, ``(R,)``, int64; None if the file does not say.
        variables: columns beside the counts, by name.
        row_labels: labels of the rows; None if the file has none.
        left_out: rows of the file that are not in the table.
    """

    groups: tuple[str, ...]
    counts: Tensor
    group_sizes: Tensor
    frequencies: Tensor | None = None
    variables: Mapping[str, Variable] = field(default_factory=dict)
    row_labels: tuple[str, ...] | None = None
    left_out: LeftOut = NOTHING

    def at(self, rows: Tensor) -> CountTable:
        """Some of the rows."""
        labels = self.row_labels
        return replace(
            self,
            counts=self.counts[rows],
            group_sizes=self.group_sizes[rows],
            frequencies=None if self.frequencies is None else self.frequencies[rows],
            variables={name: variable.at(rows) for name, variable in self.variables.items()},
            row_labels=None if labels is None else tuple(labels[row] for row in rows.tolist()),
        )

    def variable(self, name: str) -> Variable:
        if name not in self.variables:
            known = ", ".join(map(quoted, self.variables)) or "none"
            raise ValueError(
                f"the table was read without the column {quoted(name)}; it has {known}"
            )
        return self.variables[name]

    def by(self, name: str) -> dict[str, CountTable]:
        """One table for each value of a variable of rows, in the order of their first rows."""
        rows: dict[str, list[int]] = {}
        for row, value in enumerate(self.variable(name).texts(self.group_sizes > 0)):
            rows.setdefault(value, []).append(row)
        alone = replace(self, left_out=NOTHING)
        return {value: alone.at(torch.tensor(chosen)) for value, chosen in rows.items()}

    def usable(self, na: str = "drop") -> CountTable:
        """The table without rows in which a value is missing (-1 in counts and sizes) or nothing is
        drawn; `left_out` counts them. With `na` ``"raise"``, a missing value is an error.
        """
        present = self.group_sizes != 0
        lacking = {"the counts": (self.counts < 0) | (self.group_sizes < 0)}
        if self.frequencies is not None:
            lacking[FREQUENCY] = (self.frequencies < 0).unsqueeze(-1)
        lacking |= {name: v.missing & present for name, v in self.variables.items()}
        missing = torch.stack([gaps.any(-1) for gaps in lacking.values()]).any(0)
        if na == "raise" and bool(missing.any()):
            row = int(torch.nonzero(missing)[0])
            name = next(name for name, gaps in lacking.items() if bool(gaps[row].any()))
            label = str(row) if self.row_labels is None else quoted(self.row_labels[row])
            raise ValueError(
                f"a value of {name} is missing in row {label}; repair it, or leave such rows out"
            )
        empty = ~missing & (self.counts.sum(-1) == 0)
        kept = ~(missing | empty)
        if not bool(kept.any()):
            raise ValueError(
                f"no row is left: {int(missing.sum()):,} have missing values, and in "
                f"{int(empty.sum()):,} nothing is drawn"
            )
        if bool(kept.all()):
            return self
        columns = tuple(name for name, gaps in lacking.items() if bool(gaps.any()))
        left_out = LeftOut(int(missing.sum()), int(empty.sum()), columns)
        labels = self.row_labels or tuple(map(str, range(len(kept))))
        numbered = replace(self, row_labels=labels)
        return replace(numbered.at(torch.nonzero(kept).flatten()), left_out=left_out)
