"""Design matrices from columns or from a formula, with factors coded as R's treatment contrasts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from diffurn._validation import as_float64_tensor
from diffurn.inference.reading.columns import (
    Column,
    Frame,
    is_frame,
    listed,
    place,
    read_column,
    require_finite,
)

_SPECIALS = ("strata", "offset", "cluster")
_MANY_LEVELS = 1000


@dataclass(frozen=True, eq=False)
class Design:
    """The columns that coefficients multiply, without an intercept.

    Attributes:
        matrix: ``(N, p)``, float64.
        names: of the p columns; ``factor[T.level]`` is the indicator of a level.
        terms: the number of the term that each column belongs to, such as a factor.
        again: makes the matrix of the same columns from other data.
    """

    matrix: Tensor
    names: tuple[str, ...]
    terms: tuple[int, ...]
    again: Callable[[Any], Tensor]

    def without(self, columns: Collection[int]) -> Design:
        """The design without some columns."""
        kept = [k for k in range(len(self.names)) if k not in columns]
        return Design(
            self.matrix[:, kept],
            tuple(self.names[k] for k in kept),
            tuple(self.terms[k] for k in kept),
            lambda data: self.again(data)[:, kept],
        )


# --- columns


def read_covariates(values: Any, names: Sequence[str] | None = None) -> list[Column]:
    """The columns of an array ``(N, p)`` or ``(N,)``, or of a data frame."""
    if is_frame(values):
        frame = Frame.of(values)
        columns = [frame.column(name) for name in frame.columns]
    elif hasattr(values, "to_list"):  # a series
        columns = [read_column(str(getattr(values, "name", None) or "x1"), values)]
    else:
        table = as_float64_tensor("X", values).detach()
        table = table.unsqueeze(-1) if table.ndim == 1 else table
        if table.ndim != 2 or table.shape[-1] == 0:
            raise ValueError(f"X has shape {tuple(table.shape)}, but must be (rows, columns)")
        columns = [Column(f"x{k + 1}", column) for k, column in enumerate(table.unbind(-1))]
    if names is not None:
        if len(names) != len(columns):
            raise ValueError(f"names has {len(names)} entries, but X has {len(columns)} columns")
        columns = [
            Column(str(name), column.values, column.levels, column.integer)
            for name, column in zip(names, columns, strict=True)
        ]
    return columns


def design_of_columns(columns: Sequence[Column], rows: Tensor, frame: Frame | None) -> Design:
    """Numbers as they are; factors as indicators of all levels but the first."""
    for column in columns:
        require_finite(column, rows, frame)
        require_not_spoilt(column, rows, frame)
    kept = [column.at(rows) for column in columns]
    parts, names, terms = [], [], []
    for number, column in enumerate(kept):
        if column.levels is None:
            parts.append(column.values.unsqueeze(-1))
            own = [column.name]
        else:
            _require_levels(column)
            others = torch.arange(1, len(column.levels), device=column.values.device)
            parts.append((column.values.unsqueeze(-1) == others).double())
            own = [f"{column.name}[T.{level}]" for level in column.levels[1:]]
        names += own
        terms += [number] * len(own)

    def again(values: Any) -> Tensor:
        fresh = read_covariates(values)
        if len(fresh) != len(kept):
            raise ValueError(f"X has {len(fresh)} columns, but the fit had {len(kept)}")
        return torch.cat([_recoded(old, new) for old, new in zip(kept, fresh, strict=True)], -1)

    matrix = torch.cat(parts, -1) if parts else torch.zeros(len(rows), 0, dtype=torch.float64)
    return Design(matrix, tuple(names), tuple(terms), again)


def _recoded(old: Column, new: Column) -> Tensor:
    """The columns of the design for new values, by the levels of the old ones."""
    if old.levels is None or new.levels is None:
        if old.levels is not new.levels:
            raise ValueError(f"{old.name} is a factor in one data set and numbers in the other")
        return new.values.unsqueeze(-1)
    _require_known_levels(old, new)
    codes = torch.tensor([old.levels.index(level) for level in new.levels] or [0])
    return (codes[new.values].unsqueeze(-1) == torch.arange(1, len(old.levels))).double()


def _require_known_levels(old: Column, new: Column) -> None:
    unknown = [level for level in new.levels or () if level not in (old.levels or ())]
    if unknown:
        raise ValueError(
            f"{old.name} has the level {unknown[0]!r}, which the fit did not see; it saw "
            f"{listed(old.levels or ())}"
        )


def require_not_spoilt(column: Column, rows: Tensor, frame: Frame | None = None) -> None:
    """Raises a ValueError for a column of numbers that a few texts turned into a factor."""
    if column.levels is None:
        return
    texts = [level for level in column.levels if not _is_number(level)]
    if not texts or 2 * len(texts) > len(column.levels):
        return
    codes = torch.tensor([column.levels.index(text) for text in texts])
    row = int(rows[torch.isin(column.values[rows], codes.to(column.values.device))][0])
    raise ValueError(
        f"{column.name} is {column.levels[int(column.values[row])]!r} in "
        f"{place(frame, row)}, but numbers elsewhere; repair it, or write "
        f"C({column.name}) in a formula if these are levels of a factor"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _require_levels(column: Column) -> None:
    assert column.levels is not None
    if len(column.levels) == 1:
        raise ValueError(
            f"{column.name} is {column.levels[0]!r} in every row; a factor needs two levels or more"
        )
    if len(column.levels) > _MANY_LEVELS:
        raise ValueError(
            f"{column.name} is text with {len(column.levels):,} different values, which is too "
            f"many for a factor; it takes {_MANY_LEVELS:,} at most"
        )


# --- formulas


@dataclass(frozen=True, eq=False)
class Formula:
    """A formula such as ``case ~ age + C(smoker) + strata(set)``, read by formulaic.

    Attributes:
        text: as the user wrote it.
        response: the left side; None if there is none.
        right: the right side, a formula of formulaic without the special terms.
        specials: the arguments of ``strata``, ``offset`` and ``cluster``, by these names.
        variables: names of the columns that both sides and the offset use, in alphabetical order.
    """

    text: str
    response: str | None
    right: Any
    specials: dict[str, tuple[str, ...]]
    variables: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Formula:
        library = _formulaic()
        try:
            whole = library.Formula(text)
            left = str(whole.lhs) if hasattr(whole, "lhs") else None
            right = whole.rhs if hasattr(whole, "rhs") else whole
            terms, specials = _without_specials(right)
            # An intercept cancels, but with it a factor loses its first level.
            right = library.Formula([library.parser.types.Term([_one(library)]), *terms])
            names = {str(name) for name in right.required_variables}
            for part in (left, *specials.get("offset", ())):
                names |= {str(name) for name in library.Formula(part or "1").required_variables}
        except (ValueError, library.errors.FormulaicError) as problem:
            raise ValueError(f"formula {text!r} cannot be read: {_first_line(problem)}") from None
        return cls(text, left, right, specials, tuple(sorted(names)))

    def columns(self, frame: Frame) -> list[Column]:
        """The columns that the formula uses; a ValueError names one that does not exist."""
        for name in self.variables:
            if name not in frame.columns:
                raise ValueError(
                    f"formula {self.text!r} uses {name!r}, but there is no such column; the "
                    f"columns are {listed(frame.columns)}"
                )
        return [frame.column(name) for name in self.variables]

    def columns_of_right(self, frame: Frame) -> list[Column]:
        """The columns that the right side and the offset use, of other data."""
        return [frame.column(name) for name in self.variables if name in frame.columns]

    def design(self, columns: Sequence[Column], rows: Tensor, frame: Frame | None = None) -> Design:
        """The right side as a matrix, for some rows of the columns that it uses."""
        in_factors = set(re.findall(r"\bC\(\s*(\w+)", self.text))
        for column in columns:
            require_finite(column, rows, frame)
            if column.name not in in_factors:
                require_not_spoilt(column, rows, frame)
        built = self._evaluated(self.right, columns, rows)
        spec = built.model_spec
        for term, indices in spec.term_indices.items():
            if not indices:
                raise ValueError(
                    f"{term} has the same value in every row; a factor needs two levels or more"
                )
        kept = {column.name: column.at(rows) for column in columns}

        def again(data: Any) -> Tensor:
            fresh = self.columns_of_right(Frame.of(data))
            for column in fresh:
                _require_known_levels(kept[column.name], column)
            everything = torch.arange(len(fresh[0].values) if fresh else 0)
            matrix = spec.get_model_matrix(_pandas(fresh, everything), na_action="ignore")
            return _numbers(matrix, everything, None)[0]

        matrix, names = _numbers(built, rows, frame)
        by_name = {
            spec.column_names[k]: number
            for number, columns_of_term in enumerate(spec.term_indices.values())
            for k in columns_of_term
        }
        terms = tuple(by_name[name] for name in names)
        return Design(matrix.to(rows.device), names, terms, again)

    def values(
        self, expression: str, columns: Sequence[Column], rows: Tensor, frame: Frame | None = None
    ) -> Tensor:
        """An expression of columns, such as the left side or the argument of ``offset``."""
        built = self._evaluated(_formulaic().Formula(f"0 + {expression}"), columns, rows)
        matrix, names = _numbers(built, rows, frame)
        if matrix.shape[-1] != 1:
            raise ValueError(
                f"{expression} in the formula has {matrix.shape[-1]} columns ({listed(names)}), "
                "but must be one column of numbers"
            )
        return matrix[:, 0].to(rows.device)

    def _evaluated(self, formula: Any, columns: Sequence[Column], rows: Tensor) -> Any:
        import warnings

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # such as log(-1), refused later
                return formula.get_model_matrix(_pandas(columns, rows), na_action="ignore")
        except Exception as problem:  # of any type, since expressions are evaluated
            raise ValueError(
                f"formula {self.text!r} cannot be evaluated: {_first_line(problem)}"
            ) from None


def _formulaic() -> Any:
    try:
        import formulaic  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise ImportError(
            "a formula needs formulaic: pip install 'diffurn[formula]'; arrays work without"
        ) from None
    return formulaic


def _one(library: Any) -> Any:
    return library.parser.types.Factor("1", eval_method="literal")


def _without_specials(right: Any) -> tuple[list[Any], dict[str, tuple[str, ...]]]:
    """The terms other than the intercept, and the arguments of the special terms."""
    terms, specials = [], {}
    for term in right:
        text = str(term)
        match = re.fullmatch(r"(\w+)\((.*)\)", text)
        if match and match[1] in _SPECIALS and len(term.factors) == 1:
            if match[1] in specials:
                raise ValueError(f"{match[1]}() occurs twice")
            parts = match[2].split(",") if match[1] != "offset" else [match[2]]
            specials[match[1]] = tuple(part.strip() for part in parts)
        elif any(re.match(rf"({'|'.join(_SPECIALS)})\(", str(factor)) for factor in term.factors):
            raise ValueError(f"{text}: strata, offset and cluster are terms of their own")
        elif text != "1":
            terms.append(term)
    return terms, specials


def _first_line(problem: Exception) -> str:
    text = re.sub(r"\x1b?\[[0-9;]*m|[⧛⧚]", "", str(problem))
    return text.strip().split("\n")[0].rstrip(".")


def _pandas(columns: Sequence[Column], rows: Tensor) -> Any:
    """A data frame of pandas with some rows of the columns."""
    import pandas  # type: ignore[import-untyped, unused-ignore]

    series: dict[str, Any] = {}
    for column in columns:
        part = column.at(rows)
        values = part.values.cpu()
        if part.levels is not None:
            series[part.name] = pandas.Categorical.from_codes(values.numpy(), list(part.levels))
        else:
            series[part.name] = (values.to(torch.int64) if part.integer else values).numpy()
    return pandas.DataFrame(series, index=range(len(rows)))


def _numbers(built: Any, rows: Tensor, frame: Frame | None) -> tuple[Tensor, tuple[str, ...]]:
    """A model matrix of formulaic without its intercept; a ValueError for a number that is not
    finite.
    """
    names = [str(name) for name in built.columns]
    kept = [k for k, name in enumerate(names) if name != "Intercept"]
    matrix = torch.as_tensor(built.to_numpy(dtype="float64", copy=True))[:, kept]
    names = [names[k] for k in kept]
    if not bool(matrix.isfinite().all()):
        row, k = (~matrix.isfinite()).nonzero()[0].tolist()
        where = place(frame, int(rows[row]))
        raise ValueError(
            f"{names[k]} is {matrix[row, k].item()} in {where}, but must be a finite number"
        )
    return matrix, tuple(names)
