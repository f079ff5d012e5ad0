"""The arguments of `clogit` as strata: checked, without missing values, with a design matrix."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from diffurn.inference.reading.columns import (
    Column,
    Frame,
    complete_rows,
    listed,
    place,
    read_column,
    read_labels,
    require_equal_lengths,
    require_finite,
)
from diffurn.inference.reading.counts import CONSTANT, without_influence
from diffurn.inference.reading.design import Design, Formula, design_of_columns, read_covariates
from diffurn.inference.solving.rowwise import Clusters
from diffurn.inference.solving.strata import Strata

_LARGEST = 2**53


@dataclass(frozen=True, eq=False)
class Arguments:
    """Where to find the columns: values, or names of columns of `data`."""

    y: Any
    X: Any
    strata: Any
    data: Any
    offset: Any
    weights: Any
    cluster: Any
    names: Sequence[str] | None
    na: str


@dataclass(frozen=True, eq=False)
class Read:
    """The rows that can be used; all tensors but `events` have n ≤ N rows.

    Attributes:
        events: 1 for a case, 0 for a control, nan in a row that cannot be used, ``(N,)``.
        outcome: name of the response.
        rows: the numbers of the rows that can be used, ``(n,)``.
        design: of the covariates.
        labels: codes of the strata, ``(n,)``.
        offset: ``(n,)``.
        frequencies: ``(n,)``.
        clusters: codes, ``(n,)``; None without clusters.
        notes: sentences about rows that were left out.
        frame: for messages.
        formula: None without a formula.
    """

    events: Tensor
    outcome: str
    rows: Tensor
    design: Design
    labels: Tensor
    offset: Tensor
    frequencies: Tensor
    clusters: Tensor | None
    notes: tuple[str, ...]
    frame: Frame | None
    formula: Formula | None

    def strata(self, wallenius: bool) -> Strata:
        """The strata with a case and a control."""
        events, n = self.events[self.rows], torch.arange(len(self.rows), device=self.rows.device)
        columns = self.offset, self.labels, self.frequencies, n, self.design.names, wallenius
        return Strata.of(self.design.matrix, events, *columns)

    def squares(self, strata: Strata) -> Tensor:
        """Σ f z² of the covariates as given, ``(1, p)``."""
        weight = strata.frequencies[strata.numbers]
        return (weight @ self.design.matrix[strata.origins].square()).unsqueeze(0)


def read_rows(arguments: Arguments) -> Read:
    """The rows without missing values; every error names the column and the row."""
    frame = None if arguments.data is None else Frame.of(arguments.data)
    formula = _formula(arguments, frame)
    response = _response(arguments.y, formula, frame)
    covariates = _covariates(arguments, formula, frame)
    strata = _labels("strata", arguments.strata, formula, frame)
    cluster = _labels("cluster", arguments.cluster, formula, frame)
    offset = _numbers("offset", arguments.offset, frame)
    weights = _numbers("weights", arguments.weights, frame)
    columns = [c for c in (response, strata, cluster, offset, weights) if c is not None]
    columns += covariates
    rows, notes = complete_rows(columns, arguments.na, frame)
    design = (
        design_of_columns(covariates, rows, frame)
        if formula is None
        else formula.design(covariates, rows, frame)
    )
    if not design.names:
        raise ValueError("there are no covariates; give at least one besides strata()")
    events = design.matrix.new_full((len(columns[0].values),), torch.nan)
    if response is not None:
        events[rows] = _zero_or_one(response, rows, frame)
    elif formula is not None and formula.response is not None:
        values = formula.values(formula.response, covariates, rows, frame)
        whole = torch.zeros_like(events).index_copy(0, rows, values)
        events[rows] = _zero_or_one(Column(formula.response, whole), rows, frame)
    shift = _offset(offset, formula, covariates, rows, frame)
    return Read(
        events,
        response.name if response is not None else str(formula and formula.response),
        rows,
        design,
        torch.zeros_like(rows) if strata is None else strata.values[rows],
        shift,
        torch.ones_like(shift) if weights is None else _frequencies(weights, rows, frame),
        None if cluster is None else cluster.values[rows],
        tuple(notes),
        frame,
        formula,
    )


def informative_strata(read: Read, wallenius: bool) -> tuple[Strata, list[str]]:
    """The strata with a case and a control, and a note that counts the other strata."""
    strata = read.strata(wallenius)
    every, number = torch.unique(read.labels, return_inverse=True)
    _require_equal("weights", read.frequencies, read, number)
    if read.clusters is not None:
        _require_equal("cluster", read.clusters, read, number)
    left_out = len(every) - strata.units
    if left_out == 0:
        return strata, []
    have, are = ("have", "are") if left_out > 1 else ("has", "is")
    reason = "no case or no control"
    if bool((read.frequencies == 0).any()):
        reason += ", or weight 0,"
    return strata, [f"{left_out:,} of {len(every):,} strata {have} {reason} and {are} left out."]


def identified(read: Read, strata: Strata) -> tuple[Read, Strata, list[str]]:
    """The strata with the columns of the design that matter, and a note that names the others.

    Raises a ValueError if there are no strata, or if a covariate does not matter at all. A level of
    a factor, or a column of an interaction, is left out, as R does.
    """
    (number,) = strata.summed(torch.tensor(strata.units, dtype=torch.float64))
    if number == 0:
        raise ValueError(
            "no stratum has both a case and a control, so there is nothing to compare; are these "
            f"the right strata?{''.join(' ' + note for note in read.notes)}"
        )
    (squares,) = strata.summed(read.squares(strata))
    names, terms = read.design.names, read.design.terms
    useless = without_influence(strata.gram(), squares)
    useful = {term for k, term in enumerate(terms) if k not in useless}
    for k, reason in useless.items():
        if terms[k] not in useful:
            if reason == CONSTANT:
                reason = "has one value within every stratum, so it cancels; leave it out"
            raise ValueError(f"{names[k]!r} {reason}")
    if not useless:
        return read, strata, []
    read = replace(read, design=read.design.without(useless))
    strata = replace(strata, **_columns_kept(strata, useless))
    left_out = listed(names[k] for k in sorted(useless))
    reason = "constant within strata or a combination of the columns before"
    if len(useless) == 1:
        return read, strata, [f"{left_out} is left out, since it is {reason}."]
    return read, strata, [f"{left_out} are left out, since each is {reason}."]


def _columns_kept(strata: Strata, useless: Collection[int]) -> dict[str, Any]:
    kept = [k for k in range(strata.parameters) if k not in useless]
    return {"design": strata.design[:, kept], "names": tuple(strata.names[k] for k in kept)}


def clusters_of(read: Read, strata: Strata) -> Clusters | None:
    """The cluster of every stratum."""
    if read.clusters is None:
        return None
    firsts = strata.sizes.cumsum(0) - strata.sizes
    _, numbers = torch.unique(read.clusters[strata.origins[firsts]], return_inverse=True)
    return Clusters(numbers, int(numbers.max()) + 1 if len(numbers) else 0)


# --- columns


def _formula(arguments: Arguments, frame: Frame | None) -> Formula | None:
    if not isinstance(arguments.y, str):
        return None
    if frame is None:
        raise ValueError(f"y is the formula {arguments.y!r}, so data is needed: a data frame")
    if arguments.X is not None:
        raise ValueError("X and a formula are both given; a formula names the covariates itself")
    formula = Formula.parse(arguments.y)
    if formula.response is None:
        raise ValueError(
            f"formula {arguments.y!r} has no left side; write the cases before a tilde, such as "
            "'case ~ age'"
        )
    return formula


def _response(y: Any, formula: Formula | None, frame: Frame | None) -> Column | None:
    """The outcome; None if it is an expression of columns."""
    if formula is None:
        return read_column("y", y)
    assert frame is not None
    assert formula.response is not None
    return frame.column(formula.response) if formula.response in frame.columns else None


def _covariates(arguments: Arguments, formula: Formula | None, frame: Frame | None) -> list[Column]:
    if formula is not None:
        assert frame is not None
        if arguments.names is not None:
            raise ValueError("names and a formula are both given; a formula has names of its own")
        return formula.columns(frame)
    if arguments.X is None:
        raise ValueError("there are no covariates; give X, or a formula and data")
    return read_covariates(arguments.X, arguments.names)


def _labels(name: str, value: Any, formula: Formula | None, frame: Frame | None) -> Column | None:
    """Labels given as values, by the name of a column or several names, or in the formula."""
    if formula is not None and name in formula.specials:
        if value is not None:
            raise ValueError(f"{name} is given twice, in the formula and as an argument")
        value = formula.specials[name]
    elif value is None:
        return None
    elif isinstance(value, str):
        value = (value,)
    elif frame is None or not _are_names(value, frame):
        return read_labels(name, value)
    columns = [_column(name, each, frame) for each in value]
    codes, missing = columns[0].values, columns[0].missing
    for column in columns[1:]:
        missing = missing | column.missing
        codes = codes * (int(column.values.max()) + 2) + column.values
    return Column(" and ".join(value), torch.where(missing, -1, codes), ())


def _are_names(value: Any, frame: Frame) -> bool:
    if not isinstance(value, (tuple, list)) or not value:
        return False
    return all(isinstance(each, str) and each in frame.columns for each in value)


def _column(argument: str, name: str, frame: Frame | None) -> Column:
    """The labels in a column, given by its name."""
    if frame is None:
        raise ValueError(f"{argument} is {name!r}, the name of a column, but there is no data")
    if name not in frame.columns:
        raise ValueError(
            f"{argument} is {name!r}, but there is no such column; the columns are "
            f"{listed(frame.columns)}"
        )
    return frame.labels(name)


def _numbers(name: str, value: Any, frame: Frame | None) -> Column | None:
    if value is None:
        return None
    if isinstance(value, str):
        _column(name, value, frame)
        assert frame is not None
        column = frame.column(value)
    else:
        column = read_column(name, value)
    if column.levels is not None:
        raise ValueError(f"{name} is text, but must be one number for each row")
    return column


def _zero_or_one(column: Column, rows: Tensor, frame: Frame | None) -> Tensor:
    if column.levels is not None:
        raise ValueError(
            f"{column.name} is text ({listed(column.levels)}), but must be 1 for a case and 0 for "
            "a control"
        )
    values = column.values[rows]
    wrong = (values != 0) & (values != 1)
    if bool(wrong.any()):
        row = int(rows[wrong][0])
        raise ValueError(
            f"{column.name} is {column.values[row].item():g} in {place(frame, row)}, but must be 1 "
            "for a case and 0 for a control"
        )
    return values


def _offset(
    offset: Column | None,
    formula: Formula | None,
    covariates: list[Column],
    rows: Tensor,
    frame: Frame | None,
) -> Tensor:
    inside = formula is not None and "offset" in formula.specials
    if offset is None:
        if not inside:
            return torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
        assert formula is not None
        return formula.values(formula.specials["offset"][0], covariates, rows, frame)
    if inside:
        raise ValueError("offset is given twice, in the formula and as an argument")
    require_finite(offset, rows, frame)
    return offset.values[rows]


def _frequencies(column: Column, rows: Tensor, frame: Frame | None) -> Tensor:
    values = column.values[rows]
    wrong = ~((values >= 0) & (values == values.floor()) & (values <= _LARGEST))
    if bool(wrong.any()):
        row = int(rows[wrong][0])
        raise ValueError(
            f"weights is {column.values[row].item():g} in {place(frame, row)}, but must say how "
            "often the stratum occurred: an integer from 0 to 2^53"
        )
    return values


def _require_equal(name: str, values: Tensor, read: Read, number: Tensor) -> None:
    """Raises a ValueError if a stratum has two values."""
    first = torch.full((int(number.max()) + 1,), len(number), device=number.device)
    first = first.scatter_reduce(0, number, torch.arange(len(number)).to(number), "amin")
    differs = values != values[first[number]]
    if bool(differs.any()):
        here = int(differs.nonzero()[0])
        row, other = int(read.rows[here]), int(read.rows[first[number[here]]])
        raise ValueError(
            f"{name} differs within a stratum, between {place(read.frame, other)} and "
            f"{place(read.frame, row)}; it must be the same in all rows of a stratum"
        )


# --- other data


def strata_of(arguments: Arguments, read: Read) -> Any:
    """The names of the columns that hold the strata, for other data."""
    if read.formula is not None and "strata" in read.formula.specials:
        return read.formula.specials["strata"]
    names = arguments.strata
    names = (names,) if isinstance(names, str) else names
    by_name = isinstance(names, (tuple, list)) and all(isinstance(each, str) for each in names)
    return names if by_name and read.frame is not None else None


@dataclass(frozen=True, eq=False)
class Again:
    """Reads other rows in the same way, for predictions."""

    design: Design
    formula: Formula | None
    names_of_strata: Any

    def read(
        self, X: Any, strata: Any, cases: Any, data: Any, offset: Any
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The design, labels of strata, offset and number of cases of every row."""
        if self.formula is None and X is None:
            raise ValueError("the fit had no formula, so predictions need X, not data")
        if self.formula is not None and data is None:
            raise ValueError("the fit had a formula, so predictions need data, not X")
        frame = None if data is None else Frame.of(data)
        matrix = self.design.again(X if self.formula is None else data)
        n = len(matrix)
        if not bool(matrix.isfinite().all()):
            row = int((~matrix.isfinite()).any(-1).nonzero()[0])
            raise ValueError(f"a covariate is missing or infinite in {place(frame, row)}")
        if strata is None and self.formula is not None:
            strata = self.names_of_strata
        labels = _labels("strata", strata, None, frame)
        shift = _numbers("offset", offset, frame)
        if offset is None and self.formula is not None and "offset" in self.formula.specials:
            assert frame is not None
            columns, everything = self.formula.columns_of_right(frame), torch.arange(n)
            expression = self.formula.specials["offset"][0]
            shift = Column("offset", self.formula.values(expression, columns, everything, frame))
        number = torch.full((n,), cases) if isinstance(cases, int) else read_column("cases", cases)
        zero = torch.zeros(n, dtype=torch.float64)
        named = [Column("X", zero), *(c for c in (labels, shift) if c is not None)]
        if isinstance(number, Column):
            named.append(number)
        require_equal_lengths(named)
        return (
            matrix,
            torch.zeros(n, dtype=torch.int64) if labels is None else labels.values,
            zero if shift is None else shift.values,
            number.values if isinstance(number, Column) else number,
        )
