"""Count tables and data frames as the arguments of `fit`: columns, covariates, formulas, labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from diffurn._validation import require_one_of
from diffurn.data.delimited import LARGEST_INTEGER, MISSING
from diffurn.data.renaming import AVAILABLE, DRAWN, FREQUENCY, LONG_COLUMNS, Renaming
from diffurn.data.table import CountTable
from diffurn.data.variables import Variable
from diffurn.inference.reading.columns import NA_RULES, Column, Frame, is_frame, listed
from diffurn.inference.reading.design import Design, Formula, design_of_columns, read_covariates


@dataclass(frozen=True, eq=False)
class Arguments:
    """What `fit` needs to know about the rows.

    Attributes:
        counts: x, of any kind that can be read as numbers.
        group_sizes: m.
        covariates: features, or None.
        frequencies: or None.
        groups: names of the groups, or None.
        names: names of the coefficients, or None.
        cluster: a label per row, or None.
        row_labels: or None.
        compared_with: with covariates from a table, the group that others are compared with; None
            if no coefficient compares groups.
        remarks: sentences about the table.
        left_out: rows with missing values, and rows with nothing drawn, that the table left out.
    """

    counts: Any
    group_sizes: Any
    covariates: Any = None
    frequencies: Any = None
    groups: Sequence[str] | None = None
    names: Sequence[str] | None = None
    cluster: Any = None
    row_labels: tuple[str, ...] | None = None
    compared_with: str | None = None
    remarks: tuple[str, ...] = ()
    left_out: tuple[int, int] = (0, 0)


def arguments_of_table(
    data: Any,
    covariates: Any = None,
    formula: str | None = None,
    cluster: Any = None,
    reference: str | int | None = None,
    columns: Mapping[str, str] | None = None,
    na: str = "drop",
) -> Arguments:
    """From a `CountTable` or a data frame, by names of its columns."""
    names = names_of(covariates)
    label = (cluster,) if isinstance(cluster, str) else ()
    table = read_table(data, (*variables_of(names, formula), *label), columns, na)
    labels = table.variable(cluster).texts(table.group_sizes > 0) if label else cluster
    if cluster is not None and not label:
        raise ValueError("with a table, cluster is the name of a column")
    terms = None
    if names or formula is not None:
        base = table.groups[0] if reference is None else _group(reference, table.groups)
        terms = terms_of(table, names, formula, base)
    return Arguments(
        table.counts,
        table.group_sizes,
        None if terms is None else terms.features,
        table.frequencies,
        table.groups,
        None if terms is None else terms.names,
        labels,
        table.row_labels,
        None if terms is None else terms.base,
        () if terms is None else terms.remarks,
        table.left_out[:2],
    )


def variables_of(covariates: Sequence[str], formula: str | None) -> tuple[str, ...]:
    """Names of the columns that covariates and a formula need."""
    if covariates and formula is not None:
        raise ValueError("give covariates or a formula, not both")
    if formula is None:
        return tuple(dict.fromkeys(covariates))
    return tuple(name for name in _right_side(formula).variables if name != "group")


def _right_side(text: str) -> Formula:
    formula = Formula.parse(text)
    if formula.response is not None:
        raise ValueError(
            f"formula {text!r} has a left side, but the counts are those of the table; write "
            f"~ {text.partition('~')[2].strip()}"
        )
    if formula.specials:
        raise ValueError(
            f"formula {text!r} has {next(iter(formula.specials))}(), which fit does not know: each "
            "row is a stratum, and cluster= names a column"
        )
    return formula


def names_of(covariates: Any) -> tuple[str, ...]:
    if covariates is None:
        return ()
    names = (covariates,) if isinstance(covariates, str) else tuple(covariates)
    if not all(isinstance(name, str) for name in names):
        raise ValueError("with a table, covariates are names of its columns, such as ['age']")
    return names


def _group(reference: str | int, groups: tuple[str, ...]) -> str:
    if isinstance(reference, str) and reference in groups:
        return reference
    if isinstance(reference, int) and -len(groups) <= reference < len(groups):
        return groups[reference]
    raise ValueError(f"reference {reference!r} is not a group; the groups are {listed(groups)}")


# --- data frames


def is_table(data: Any) -> bool:
    """Whether `fit` can take counts and group sizes from this alone."""
    return isinstance(data, CountTable) or is_frame(data)


def read_table(
    data: Any,
    variables: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    na: str = "drop",
) -> CountTable:
    """A count table of a data frame of pandas or polars, wide or long, as `read_counts` reads
    files; or a `CountTable` as it is.
    """
    require_one_of("na", na, NA_RULES)
    if isinstance(data, CountTable):
        if columns:
            raise ValueError("columns are for data frames and files; this table is read already")
        for name in variables:
            data.variable(name)
        return data
    renaming = Renaming.of(columns or {})
    frame = Frame.of(data)
    renaming.check(list(frame.columns), lambda sentence: ValueError(f"data: {sentence}"))
    shown = {renaming.usual(name): name for name in frame.columns}
    wide = any(name.startswith((AVAILABLE, DRAWN)) for name in shown)
    if not wide and not set(shown) & set(LONG_COLUMNS[1:]):
        raise ValueError(
            f"the columns of data are {listed(frame.columns)}, but a count table has the columns "
            "m_<group> and x_<group> for every group (wide), or row, group, available, drawn "
            "(long); columns= renames others"
        )
    usual = Frame({name: frame.columns[given] for name, given in shown.items()})
    table = _wide(usual, shown, variables, data) if wide else _long(usual, shown, variables)
    return table.usable(na)


def _wide(
    frame: Frame, shown: Mapping[str, str], variables: Sequence[str], data: Any
) -> CountTable:
    groups = tuple(
        dict.fromkeys(name[2:] for name in frame.columns if name.startswith((AVAILABLE, DRAWN)))
    )
    for group in groups:
        for wanted, other in ((AVAILABLE, DRAWN), (DRAWN, AVAILABLE)):
            if wanted + group not in frame.columns:
                kind = "available" if wanted == AVAILABLE else "drawn"
                raise ValueError(
                    f"column {shown[other + group]!r} of data has no column {wanted + group!r} "
                    f"beside it for the balls {kind}"
                )
    _require_two(groups)
    sizes, counts = (
        torch.stack([_integers(frame, shown, prefix + group) for group in groups], -1)
        for prefix in (AVAILABLE, DRAWN)
    )
    read = {}
    for name in variables:
        of_groups = [f"{name}_{group}" for group in groups]
        if name in frame.columns:
            column = _column(frame, name)
            values = column.values.unsqueeze(-1).expand(-1, len(groups))
        elif all(each in frame.columns for each in of_groups):
            column, values = _side_by_side(name, [_column(frame, each) for each in of_groups])
        else:
            raise ValueError(
                f"data has neither a column {name!r} nor one {of_groups[0]!r} for each group; the "
                f"columns are {listed(shown.values())}"
            )
        read[name] = Variable(name, values, column.levels)
    frequencies = _integers(frame, shown, FREQUENCY) if FREQUENCY in frame.columns else None
    labels = _texts(frame, "row") if "row" in frame.columns else index_labels(data)
    return CountTable(groups, counts, sizes, frequencies, read, labels)


def _side_by_side(name: str, columns: list[Column]) -> tuple[Column, Tensor]:
    """Columns of one kind, one per group, with common levels."""
    if len({column.levels is None for column in columns}) > 1:
        raise ValueError(f"the columns of {name} are partly numbers and partly text")
    if columns[0].levels is None:
        return columns[0], torch.stack([column.values for column in columns], -1)
    levels = tuple(sorted({level for column in columns for level in column.levels or ()}))
    codes = []
    for column in columns:
        place = torch.tensor([levels.index(level) for level in column.levels or ()] + [-1])
        codes.append(place[column.values])  # a missing value, -1, takes the last one
    return Column(name, codes[0], levels), torch.stack(codes, -1)


def _long(frame: Frame, shown: Mapping[str, str], variables: Sequence[str]) -> CountTable:
    for name in (*LONG_COLUMNS, *variables):
        if name not in frame.columns:
            raise ValueError(
                f"data has no column {name!r}; a long count table has the columns row, group, "
                f"available, drawn, and covariates are columns; it has {listed(shown.values())}"
            )
    rows, row = _coded(_texts(frame, "row"))
    groups, group = _coded(_texts(frame, "group"))
    _require_two(groups)
    shape = len(rows), len(groups)
    cell = row * shape[1] + group
    if len(torch.unique(cell)) < len(cell):
        values, times = torch.unique(cell, return_counts=True)
        twice = int(values[times > 1][0])
        raise ValueError(
            f"row {rows[twice // shape[1]]!r} has two lines for group {groups[twice % shape[1]]!r} "
            "in data; there may be one"
        )
    first = torch.full((shape[0],), len(cell)).scatter_reduce(
        0, row, torch.arange(len(cell)), "amin"
    )
    sizes, counts = (
        torch.zeros(shape, dtype=torch.int64)
        .view(-1)
        .index_copy(0, cell, _integers(frame, shown, name))
        .view(shape)
        for name in ("available", "drawn")
    )
    read = {}
    for name in variables:
        column = _column(frame, name)
        values = column.values[first].unsqueeze(-1).repeat(1, shape[1])
        values.view(-1)[cell] = column.values
        read[name] = Variable(name, values, column.levels)
    frequencies = None
    if FREQUENCY in frame.columns:
        every = _integers(frame, shown, FREQUENCY)
        frequencies = every[first]
        differs = torch.nonzero(frequencies[row] != every).flatten()
        if len(differs):
            raise ValueError(
                f"row {rows[int(row[differs[0]])]!r} has two values of {shown[FREQUENCY]!r} in data"
            )
    return CountTable(groups, counts, sizes, frequencies, read, rows)


def _require_two(groups: tuple[str, ...]) -> None:
    if len(groups) < 2:
        raise ValueError(
            f"there is only one group, {groups[0]!r}, in data, but a choice needs two or more"
        )


def _column(frame: Frame, name: str) -> Column:
    """A column of numbers or text; infinite numbers are refused."""
    (column,) = read_covariates({name: frame.columns[name]})
    return column


def _integers(frame: Frame, shown: Mapping[str, str], name: str) -> Tensor:
    """A column of counts, -1 where missing."""
    column = frame.column(name)
    if column.levels is not None:
        raise ValueError(
            f"column {shown[name]!r} of data holds text ({listed(column.levels[:2])}), but counts "
            "are whole numbers"
        )
    values = column.values
    holds = values.isnan() | (
        (values >= 0) & (values == values.floor()) & (values <= LARGEST_INTEGER)
    )
    if not bool(holds.all()):
        row = int(torch.nonzero(~holds)[0])
        raise ValueError(
            f"column {shown[name]!r} of data is {values[row].item():.17g} in row {row}, but a "
            "count must be an integer from 0 to 2^53"
        )
    return torch.where(values.isnan(), float(MISSING), values).to(torch.int64)


def _texts(frame: Frame, name: str) -> tuple[str, ...]:
    values = frame.columns[name]
    texts = values.to_list() if hasattr(values, "to_list") else list(values)
    missing = next((i for i, v in enumerate(texts) if v is None or v != v), None)
    if missing is not None:
        raise ValueError(f"column {name!r} of data has no value in row {missing}")
    return tuple(map(str, texts))


def _coded(texts: tuple[str, ...]) -> tuple[tuple[str, ...], Tensor]:
    numbers = {text: k for k, text in enumerate(dict.fromkeys(texts))}
    return tuple(numbers), torch.tensor([numbers[text] for text in texts])


def index_labels(data: Any) -> tuple[str, ...] | None:
    """The labels of the index of a pandas data frame, unless it only counts the rows."""
    index = getattr(data, "index", None)
    if index is None or callable(index) or type(index).__name__ == "RangeIndex":
        return None
    return tuple(map(str, index.tolist()))


# --- terms


class Terms(NamedTuple):
    """Covariates of a table as `fit` takes them.

    Attributes:
        features: ``(R, c, k)``.
        names: of the k coefficients.
        base: the group that others are compared with; None if no coefficient compares groups.
        remarks: sentences for the notes of the fit.
    """

    features: Tensor
    names: tuple[str, ...]
    base: str | None
    remarks: tuple[str, ...]


def terms_of(table: CountTable, covariates: Sequence[str], formula: str | None, base: str) -> Terms:
    """The features that covariates or a formula ask for.

    A column that differs between the groups of a row has one coefficient. A column that is the same
    for all groups of a row cancels, so it gets a coefficient ``group:column`` for every group but
    the base. Every group but the base also keeps a weight of its own, unless a column is a property
    of the groups, the same in all rows: own weights would explain all that it could explain. A
    formula that uses ``group`` has the terms that it names, and no others.
    """
    present = table.group_sizes > 0
    design, with_group = _design(table, covariates, formula, base, present)
    columns = design.matrix.new_zeros(*present.shape, len(design.names))
    columns[present] = design.matrix
    others = [j for j, group in enumerate(table.groups) if group != base]
    own = torch.eye(len(table.groups), dtype=torch.float64)[:, others]  # (c, c - 1)
    features, names, of_groups = [], [], []
    for name, values in zip(design.names, columns.unbind(-1), strict=True):
        per_row, per_group = _same_along(values, present, 1), _same_along(values, present, 0)
        if per_row and with_group:
            continue  # it cancels
        if per_row and per_group:
            raise ValueError(
                f"covariate {name!r} is the same everywhere, so it cannot explain anything"
            )
        of_groups += [name] if per_group else []
        features.append(values.unsqueeze(-1) * own if per_row else values.unsqueeze(-1))
        names += [f"{table.groups[j]}:{name}" for j in others] if per_row else [name]
    remarks: tuple[str, ...] = ()
    if of_groups and not with_group:
        of = "are properties" if len(of_groups) > 1 else "is a property"
        remarks = (
            f"{listed(of_groups)} {of} of the groups, the same in all rows, so groups have no "
            "weights of their own here: these would explain all that a property could explain.",
        )
    if not of_groups and not with_group:
        features.insert(0, own.expand(*present.shape, -1))
        names[:0] = [table.groups[j] for j in others]
    if not features:
        raise ValueError("the formula has no term that differs between the groups of a row")
    compares = with_group or len(names) > len(of_groups) or not of_groups
    return Terms(torch.cat(features, -1), tuple(names), base if compares else None, remarks)


def _design(
    table: CountTable,
    covariates: Sequence[str],
    formula: str | None,
    base: str,
    present: Tensor,
) -> tuple[Design, bool]:
    """The columns of the covariates at every row and group with balls, and whether a formula
    names the groups.
    """
    cells = torch.nonzero(present.flatten()).flatten()

    def column(name: str) -> Column:
        variable = table.variable(name)
        return Column(name, variable.values.flatten(), variable.levels)

    places = _Cells({}, None, table)
    if formula is None:
        return design_of_columns([column(name) for name in covariates], cells, places), False
    parsed = _right_side(formula)
    columns = [column(name) for name in parsed.variables if name != "group"]
    if "group" not in parsed.variables:
        return parsed.design(columns, cells, places), False
    levels = (base, *(group for group in table.groups if group != base))
    codes = torch.tensor([levels.index(group) for group in table.groups])
    columns.append(Column("group", codes.expand(present.shape).flatten(), levels))
    return parsed.design(columns, cells, places), True


@dataclass(frozen=True, eq=False)
class _Cells(Frame):
    """The places of rows and groups in messages."""

    table: CountTable | None = None

    def place(self, row: int) -> str:
        assert self.table is not None
        number, group = divmod(row, len(self.table.groups))
        labels = self.table.row_labels
        label = str(number) if labels is None else repr(labels[number])
        return f"row {label}, group {self.table.groups[group]!r}"


def _same_along(values: Tensor, present: Tensor, dim: int) -> bool:
    """Whether all values that are present are equal along a dimension."""
    low = torch.where(present, values, torch.inf).amin(dim)
    high = torch.where(present, values, -torch.inf).amax(dim)
    return bool((low >= high).all())
