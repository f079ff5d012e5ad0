"""Reading what the user has: tensors, arrays, lists or data frames of counts, checked, named and
brought to one shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from diffurn._validation import as_counts, require_broadcast
from diffurn.inference.sample import Sample


@dataclass(frozen=True)
class Table:
    """The sample of a fit with the names it was given.

    Attributes:
        sample: D data sets, D the product of the batch shape.
        batch_shape: of the data sets, () for a single one.
        groups: names.
    """

    sample: Sample
    batch_shape: torch.Size
    groups: tuple[str, ...]


def read_table(
    counts: Any, group_sizes: Any, frequencies: Any, groups: Sequence[str] | None
) -> Table:
    """A table of counts and group sizes; every error names the row and the group."""
    names = _group_names(counts, group_sizes, groups)
    values = plain_values(counts)
    device = values.device if isinstance(values, Tensor) else torch.device("cpu")
    x, m = (
        as_counts("counts", values, device),
        as_counts("group_sizes", plain_values(group_sizes), device),
    )
    if 0 in (x.ndim, m.ndim) or 0 in (x.numel(), m.numel()):
        raise ValueError(
            f"counts {tuple(x.shape)} and group_sizes {tuple(m.shape)} both need a last dimension "
            "of groups, and rows"
        )
    shape = require_broadcast({"counts": x.shape, "group_sizes": m.shape}, x.shape, m.shape)
    names = tuple(str(j + 1) for j in range(shape[-1])) if names is None else names
    if len(names) != shape[-1]:
        raise ValueError(
            f"groups has {len(names)} names, but counts and group_sizes have {shape[-1]} groups"
        )
    if len(set(names)) < len(names):
        raise ValueError(
            "groups must have different names, but "
            f"{next(n for n in names if names.count(n) > 1)!r} occurs twice"
        )
    batch_shape, rows, c = shape[:-2], (1, *shape)[-2], shape[-1]
    x, m = (t.double().expand(shape).reshape(-1, rows, c) for t in (x, m))
    f = _read_frequencies(frequencies, batch_shape, rows, device)
    _check_counts(x, m, batch_shape, names)
    return Table(Sample(x, m, f, None, x.new_zeros(len(x))), batch_shape, names)


def plain_values(values: Any) -> Any:
    """Tensors, arrays and lists as they are; of a data frame or series its numbers."""
    return values.to_numpy() if hasattr(values, "to_numpy") else values


def _labels(values: Any) -> tuple[str, ...] | None:
    """The columns of a data frame, or the index of a series."""
    labels = (
        getattr(values, "columns", getattr(values, "index", None))
        if hasattr(values, "to_numpy")
        else None
    )
    return None if labels is None else tuple(str(label) for label in labels)


def _group_names(
    counts: Any, group_sizes: Any, groups: Sequence[str] | None
) -> tuple[str, ...] | None:
    drawn, available = _labels(counts), _labels(group_sizes)
    if drawn is not None and available is not None and drawn != available:
        raise ValueError(
            f"counts has the columns {list(drawn)}, but group_sizes has {list(available)}; they "
            "must be the same, in one order"
        )
    return (drawn or available) if groups is None else tuple(str(name) for name in groups)


def _read_frequencies(
    frequencies: Any, batch_shape: torch.Size, rows: int, device: torch.device
) -> Tensor:
    shape = (*batch_shape, rows)
    f = (
        torch.ones((), device=device)
        if frequencies is None
        else as_counts("frequencies", plain_values(frequencies), device)
    )
    if (
        require_broadcast({"frequencies": f.shape, "rows of counts": shape}, f.shape, shape)
        != shape
    ):
        raise ValueError(
            f"frequencies has shape {tuple(f.shape)}, but the rows of counts have shape {shape}"
        )
    f = f.double().expand(shape)
    _require(
        f,
        (f >= 0) & (f == f.floor()) & (f <= 2**53),
        "frequencies",
        batch_shape,
        "a frequency must be an integer from 0 to 2^53",
    )
    none = torch.nonzero((f.sum(-1) == 0).flatten()).flatten().tolist()
    if none:
        where = f" of data set {_index(none[0], batch_shape)}" if batch_shape else ""
        raise ValueError(f"frequencies{where} are all zero; at least one row must have occurred")
    return f.reshape(-1, rows)


def _check_counts(x: Tensor, m: Tensor, batch_shape: torch.Size, names: tuple[str, ...]) -> None:
    for name, values in (("counts", x), ("group_sizes", m)):
        whole = (values >= 0) & (values == values.floor()) & (values <= 2**53)
        _require(
            values, whole, name, batch_shape, "a count must be an integer from 0 to 2^53", names
        )
    available = "only {other} balls were in the urn"
    _require(x, x <= m, "counts", batch_shape, available, names, other=m)
    total = x.sum(-1)
    _require(
        total,
        total > 0,
        "the sum of counts",
        batch_shape,
        "a row in which nothing was drawn says nothing; leave it out",
    )


def _require(
    values: Tensor,
    holds: Tensor,
    name: str,
    batch_shape: torch.Size,
    rule: str,
    groups: tuple[str, ...] = (),
    other: Tensor | None = None,
) -> None:
    """A ValueError that names the first data set, row and group for which `holds` is False."""
    if bool(holds.all()):
        return
    index = tuple(torch.nonzero(~holds)[0].tolist())
    position = index[len(values.shape) - (2 if groups else 1) :]
    where = f"row {position[0]}" + (f", group {groups[position[1]]!r}" if groups else "")
    if batch_shape:
        where = f"data set {_index(index[0], batch_shape)}, " + where
    number, rule = (
        _number(values[index]),
        rule if other is None else rule.format(other=_number(other[index])),
    )
    raise ValueError(f"{name} in {where} is {number}, but {rule}")


def _number(value: Tensor) -> str:
    return f"{value.item():.17g}"


def _index(flat: int, batch_shape: torch.Size) -> str:
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), batch_shape))
    return str(index[0]) if len(index) == 1 else str(index)


def find_group(name: str | int | None, groups: tuple[str, ...]) -> int | None:
    """The number of the reference group, given by name or by index."""
    if name is None:
        return None
    if isinstance(name, str) and name in groups:
        return groups.index(name)
    if (
        isinstance(name, Integral)
        and not isinstance(name, bool)
        and -len(groups) <= int(name) < len(groups)
    ):  # NumPy's integers as well
        return int(name) % len(groups)
    raise ValueError(
        f"reference {name!r} is not a group; the groups are {', '.join(groups)} (or an index below "
        f"{len(groups)})"
    )
