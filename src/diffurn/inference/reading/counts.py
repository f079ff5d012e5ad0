"""From tensors, arrays, lists or data frames to a `Sample`: checked, named and of one shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from diffurn._validation import (
    as_counts,
    as_float64_tensor,
    require,
    require_broadcast,
    require_one_of,
)
from diffurn.inference.reading.columns import NA_RULES
from diffurn.inference.solving.sample import Sample

if TYPE_CHECKING:
    pass

T = TypeVar("T")

_LARGEST = 2**53  # float64 holds every integer up to here
# Rounding may leave this much of a column that is constant in each row, and of a column that
# depends on others.
_CONSTANT = 1e-13
_DEPENDENT = 1e-10


class Read(NamedTuple):
    """Rows that were read.

    Attributes:
        sample: the rows with information.
        kept: their numbers among all rows, ``(R,)``.
        left_out: rows of each data set with missing values, and with nothing drawn, ``(D, 2)``.
    """

    sample: Sample
    kept: Tensor
    left_out: Tensor


def read_rows(
    counts: Any,
    group_sizes: Any,
    frequencies: Any = None,
    groups: Sequence[str] | None = None,
    covariates: Any = None,
    names: Sequence[str] | None = None,
    lacking: Tensor | None = None,
    na: str = "drop",
) -> Read:
    """The arguments of `fit` as a sample; every error names the row and the group. Rows with
    missing values (nan, or where `lacking` ``(R,)`` says so) and rows with nothing drawn are left
    out.
    """
    require_one_of("na", na, NA_RULES)
    named = _group_names(counts, group_sizes, groups)
    drawn, available = plain_values(counts), plain_values(group_sizes)
    device = drawn.device if isinstance(drawn, Tensor) else torch.device("cpu")
    x, m = as_counts("counts", drawn, device), as_counts("group_sizes", available, device)
    if 0 in (x.ndim, m.ndim, x.numel(), m.numel()):
        raise ValueError(
            f"counts {tuple(x.shape)} and group_sizes {tuple(m.shape)} both need a last dimension "
            "of groups, and at least one row"
        )
    shape = require_broadcast({"counts": x.shape, "group_sizes": m.shape}, x.shape, m.shape)
    c, rows, batch_shape = shape[-1], (1, *shape)[-2], shape[:-2]
    named = tuple(str(j + 1) for j in range(c)) if named is None else named
    _check_group_names(named, c)
    x, m = x.double().expand(shape), m.double().expand(shape)
    x, m = x.reshape(-1, rows, c), m.reshape(-1, rows, c)
    f = _read_frequencies(frequencies, batch_shape, rows, x)
    numbers = torch.arange(rows, device=device)
    sample = Sample(x, m, f, None, named, named, batch_shape, x.new_zeros(len(x)), numbers)
    if covariates is not None:
        sample = _with_design(sample, covariates, names)
    elif names is not None:
        raise ValueError(
            f"names {list(names)} are given, but there are no covariates to name; name the groups "
            "with groups="
        )
    return _with_information(sample, lacking, na)


def _with_information(sample: Sample, lacking: Tensor | None, na: str) -> Read:
    """The rows without those that have missing values or nothing drawn. In a batch, a row that only
    some data sets can use has frequency 0 in the others.
    """
    missing = _gaps(sample, lacking, na)
    if missing is not None:
        sample = _zero_where(missing, sample)
    x, m, f, z = sample.counts, sample.group_sizes, sample.frequencies, sample.design
    if z is not None:
        if bool(z.isnan().any()):  # of groups without balls
            z = torch.where((m == 0).unsqueeze(-1), torch.nan_to_num(z), z)
            sample = replace(sample, design=z)
        require("covariates", z, z.isfinite(), "every feature must be a finite number")
    _check_counts(x, m, sample.batch_shape, sample.groups)
    lost = x.sum(-1) == 0
    if not bool(lost.any()):
        _check_frequencies(f, sample.batch_shape)
        return Read(sample, sample.row_numbers, lost.new_zeros(len(x), 2, dtype=torch.int64))
    missing = torch.zeros_like(lost) if missing is None else missing
    empty = lost & ~missing
    left_out = torch.stack([missing.sum(-1), empty.sum(-1)], -1)
    _require_rows(left_out, lost, sample.batch_shape)
    sample = replace(sample, frequencies=torch.where(empty, 0.0, f))
    _check_frequencies(sample.frequencies, sample.batch_shape)
    kept = torch.nonzero(~lost.all(0)).flatten()
    if len(kept) < x.shape[1]:
        numbers = torch.arange(len(kept), device=x.device)
        sample = replace(sample.pick_rows(kept), row_numbers=numbers)
    return Read(sample, kept, left_out)


def _gaps(sample: Sample, lacking: Tensor | None, na: str) -> Tensor | None:
    """Rows of each data set with missing values, ``(D, R)``; None if there are none."""
    x, m, f, z = sample.counts, sample.group_sizes, sample.frequencies, sample.design
    numbers = (x, m, f) if z is None else (x, m, f, z)
    if lacking is None and all(math.isfinite(part.detach().sum()) for part in numbers):
        return None
    gaps = {"counts": x.isnan().any(-1), "group_sizes": m.isnan().any(-1)}
    gaps["frequencies"] = f.isnan()
    if z is not None:
        gaps["covariates"] = (z.isnan().any(-1) & (m != 0)).any(-1)
    if lacking is not None:
        if len(lacking) != f.shape[1]:
            raise ValueError(
                f"cluster has {len(lacking):,} labels, but there are {f.shape[1]:,} rows; give one "
                "label per row"
            )
        gaps["cluster"] = lacking.expand(f.shape)
    missing = torch.stack([gap.expand(f.shape) for gap in gaps.values()]).any(0)
    if not bool(missing.any()):
        return None
    if na == "raise":
        d, row = torch.nonzero(missing)[0].tolist()
        name = next(name for name, gap in gaps.items() if bool(gap.expand(f.shape)[d, row]))
        where = f"data set {_index(d, sample.batch_shape)}, " if sample.batch_shape else ""
        raise ValueError(
            f"{name} has a missing value in {where}row {row}; repair it, or leave such rows out by "
            'na="drop"'
        )
    return missing


def _zero_where(missing: Tensor, sample: Sample) -> Sample:
    gap, z = missing.unsqueeze(-1), sample.design
    return replace(
        sample,
        counts=torch.where(gap, 0.0, sample.counts),
        group_sizes=torch.where(gap, 0.0, sample.group_sizes),
        frequencies=torch.where(missing, 0.0, sample.frequencies),
        design=None if z is None else torch.where(gap.unsqueeze(-1), 0.0, z),
    )


def _require_rows(left_out: Tensor, lost: Tensor, batch_shape: torch.Size) -> None:
    """Raises a ValueError if all rows of a data set are lost."""
    nothing = torch.nonzero(lost.all(-1)).flatten().tolist()
    if nothing:
        where = f" of data set {_index(nothing[0], batch_shape)}" if batch_shape else ""
        missing, without = left_out[nothing[0]].tolist()
        raise ValueError(
            f"no row{where} is left: {missing:,} have missing values, and in {without:,} nothing "
            "is drawn"
        )


def plain_values(values: Any) -> Any:
    """The numbers of a data frame or series; other containers as they are."""
    return values.to_numpy() if hasattr(values, "to_numpy") else values


def find_group(name: str | int | None, groups: Sequence[str]) -> int | None:
    """The index of the reference group, given by name or by index."""
    if name is None:
        return None
    if isinstance(name, str) and name in groups:
        return list(groups).index(name)
    if isinstance(name, Integral) and not isinstance(name, bool):  # NumPy's integers as well
        index = int(name)
        if -len(groups) <= index < len(groups):
            return index % len(groups)
    raise ValueError(
        f"reference {name!r} is not a group; the groups are {', '.join(groups)} (or an index below "
        f"{len(groups)})"
    )


# --- names of groups


def _group_names(
    counts: Any, group_sizes: Any, groups: Sequence[str] | None
) -> tuple[str, ...] | None:
    """As given, or the labels of data frames."""
    drawn, available = _labels(counts), _labels(group_sizes)
    if drawn is not None and available is not None and drawn != available:
        raise ValueError(
            f"counts has the columns {list(drawn)}, but group_sizes has {list(available)}; they "
            "must be the same, in one order"
        )
    return (drawn or available) if groups is None else tuple(str(name) for name in groups)


def _labels(values: Any) -> tuple[str, ...] | None:
    """The columns of a data frame, or the index of a series."""
    if not hasattr(values, "to_numpy"):
        return None
    labels = getattr(values, "columns", getattr(values, "index", None))
    return None if labels is None else tuple(str(label) for label in labels)


def _check_group_names(names: tuple[str, ...], c: int) -> None:
    if len(names) != c:
        raise ValueError(
            f"groups has {len(names)} names, but counts and group_sizes have {c} groups"
        )
    if len(set(names)) < c:
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"groups must have different names, but {twice!r} occurs twice")


# --- frequencies and counts


def _read_frequencies(
    frequencies: Any, batch_shape: torch.Size, rows: int, counts: Tensor
) -> Tensor:
    if frequencies is None:
        return counts.new_ones(()).expand(len(counts), rows)
    f = as_counts("frequencies", plain_values(frequencies), counts.device)
    shape = (*batch_shape, rows)
    try:
        f = f.double().expand(shape)
    except RuntimeError:
        raise ValueError(
            f"frequencies has shape {tuple(f.shape)}, but the rows of counts have shape {shape}"
        ) from None
    f = f.reshape(-1, rows)
    whole = f.isnan() | ((f >= 0) & (f == f.floor()) & (f <= _LARGEST))
    _require("frequencies", f, whole, "a frequency must be an integer from 0 to 2^53", batch_shape)
    return f


def _check_frequencies(f: Tensor, batch_shape: torch.Size) -> None:
    none = torch.nonzero(f.sum(-1) == 0).flatten()
    if len(none):
        where = f" of data set {_index(int(none[0]), batch_shape)}" if batch_shape else ""
        raise ValueError(f"frequencies{where} are all zero; at least one row must have occurred")


def _check_counts(x: Tensor, m: Tensor, batch_shape: torch.Size, groups: tuple[str, ...]) -> None:
    within = x.clamp(min=0).minimum(m).floor()
    if torch.equal(x, within) and torch.equal(m, m.clamp(max=_LARGEST).floor()):
        return
    for name, values in (("counts", x), ("group_sizes", m)):
        whole = (values >= 0) & (values == values.floor()) & (values <= _LARGEST)
        rule = "a count must be an integer from 0 to 2^53"
        _require(name, values, whole, rule, batch_shape, groups)
    _require("counts", x, x <= m, "only {} balls were in the urn", batch_shape, groups, m)


def _require(
    name: str,
    values: Tensor,
    holds: Tensor,
    rule: str,
    batch_shape: torch.Size,
    groups: tuple[str, ...] = (),
    other: Tensor | None = None,
) -> None:
    """Raises a ValueError that names the first data set, row and group for which `holds` is False.
    The number of `other` at that place fills the gap in `rule`.
    """
    if bool(holds.all()):
        return
    place = tuple(torch.nonzero(~holds)[0].tolist())
    where = f"data set {_index(place[0], batch_shape)}, " if batch_shape else ""
    where += f"row {place[1]}" + (f", group {groups[place[2]]!r}" if groups else "")
    if other is not None:
        rule = rule.format(_number(other[place]))
    raise ValueError(f"{name} in {where} is {_number(values[place])}, but {rule}")


def _number(value: Tensor) -> str:
    return f"{value.item():.17g}"


def _index(flat: int, batch_shape: torch.Size) -> str:
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), batch_shape))
    return str(index[0]) if len(index) == 1 else str(index)


# --- covariates


def interactions(
    row_features: Any,
    groups: Sequence[str],
    names: Sequence[str] | None = None,
    reference: str | int = 0,
) -> tuple[Tensor, tuple[str, ...]]:
    """Covariates that let the weight of each group depend on features of the row.

    A feature of the row alone, such as a year, multiplies all weights of the urn and cancels. But
    it can change the weight of a group relative to the reference. Every other group gets one
    coefficient ``"group"`` (its log-weight where all features are zero) and one coefficient
    ``"group:feature"`` per feature.

    Args:
        row_features: z, shape ``(..., R, q)``.
        groups: names of the c groups.
        names: names of the q features; by default the columns of a data frame, or ``z1``, ``z2``,
            ...
        reference: the group that the others are compared with.

    Returns:
        Features of shape ``(..., R, c, (c - 1)(1 + q))`` and their names, as `fit` takes them.

    Example:
        >>> from diffurn.inference import fit, interactions
        >>> years = [[0.0], [1.0], [2.0]]
        >>> features, names = interactions(years, groups=["men", "women"], names=["year"])
        >>> names
        ('women', 'women:year')
        >>> counts = [[5, 3], [5, 4], [4, 6]]
        >>> fit(counts, [10, 10], covariates=features, names=names).coefficients.shape
        torch.Size([2])
    """
    z = as_float64_tensor("row_features", plain_values(row_features))
    if z.ndim < 2:
        raise ValueError(f"row_features has shape {tuple(z.shape)}, but must be (rows, features)")
    names = _column_names("row_features", row_features, z.shape[-1], names)
    anchor = find_group(reference, groups)
    compared = [j for j in range(len(groups)) if j != anchor]
    with_one = torch.cat([torch.ones_like(z[..., :1]), z], -1)
    indicators = torch.eye(len(groups), dtype=z.dtype, device=z.device)[:, compared]
    features = (indicators[..., None] * with_one[..., None, None, :]).flatten(-2)
    suffixes = ("", *(f":{name}" for name in names))
    return features, tuple(groups[j] + suffix for j in compared for suffix in suffixes)


def _with_design(sample: Sample, covariates: Any, names: Sequence[str] | None) -> Sample:
    """The sample with covariates as its design, without copies of repeated features."""
    labels = getattr(covariates, "index", ())  # a list has a method of that name
    listed = () if callable(labels) else tuple(str(label) for label in labels)
    if set(listed) == set(sample.groups) and listed != sample.groups:
        raise ValueError(
            f"covariates has the rows {list(listed)}, but the groups are {list(sample.groups)}; "
            "they must be in one order"
        )
    z = as_float64_tensor("covariates", plain_values(covariates), sample.counts.device)
    sets, rows, c = sample.counts.shape
    wanted = f"(groups, features) = ({c}, p) or (rows, groups, features) = ({rows}, {c}, p)"
    wrong = f"covariates has shape {tuple(z.shape)}, but must be {wanted}"
    if z.ndim < 2 or z.shape[-2] != c or z.shape[-1] == 0:
        of_rows = z.ndim == 2 and len(z) == rows
        hint = "; features of rows go through diffurn.inference.interactions" if of_rows else ""
        raise ValueError(wrong + hint)
    try:
        design = z.expand(*sample.batch_shape, rows, c, z.shape[-1]).reshape(sets, rows, c, -1)
    except RuntimeError:
        raise ValueError(wrong) from None
    require("covariates", z, ~z.isinf(), "every feature must be a finite number")
    columns = _column_names("covariates", covariates, z.shape[-1], names)
    return replace(sample, design=design, names=columns)


def _column_names(
    argument: str, values: Any, number: int, names: Sequence[str] | None
) -> tuple[str, ...]:
    """As given, or the columns of a data frame, or ``z1``, ``z2``, ..."""
    if names is None:
        names = getattr(values, "columns", [f"z{k + 1}" for k in range(number)])
    if len(names) != number:
        raise ValueError(f"names has {len(names)} entries, but {argument} has {number} columns")
    return tuple(str(name) for name in names)


def identified(sample: Sample) -> Sample:
    """The sample with a centred design. Raises a ValueError that names a column on which the
    likelihood does not depend, or not beyond the columns before it.
    """
    assert sample.design is not None
    competing = torch.where(sample.competing.unsqueeze(-1), sample.design, 0.0)
    (squares,) = sample.summed(
        (sample.frequencies[..., None, None] * competing.square()).sum((1, 2))
    )
    for k, reason in without_influence(sample.gram(), squares).items():
        if reason == CONSTANT:
            reason = "has one value for all groups of a row, in every row; it cancels, leave it out"
        raise ValueError(f"covariates column {sample.names[k]!r} {reason}")
    return replace(sample, design=sample.centred_design())


CONSTANT = "is constant"
_COMBINATION = (
    "is, up to rounding, a linear combination of the columns before it; leave it out or, if its "
    "values are large compared with their differences, subtract a typical one from all"
)


def without_influence(products: Tensor, squares: Tensor) -> dict[int, str]:
    """The features on which the likelihood does not depend, or not beyond the features before them,
    each with the reason.

    Args:
        products: Σ zᵀz of the centred features, ``(D, p, p)``.
        squares: Σ z² of the features as given, ``(D, p)``.
    """
    scale = products.diagonal(dim1=-2, dim2=-1).sqrt()
    constant = ((scale <= _CONSTANT * squares.sqrt()) | (scale == 0)).any(0).tolist()
    found = {k: CONSTANT for k, is_constant in enumerate(constant) if is_constant}
    scale = torch.where(scale > 0, scale, 1.0)
    rest = products / (scale.unsqueeze(-1) * scale.unsqueeze(-2))
    # A Cholesky decomposition: the pivot is the part of a column that is independent of the columns
    # before it.
    for k in range(len(constant)):
        pivot = rest[:, k, k]
        if k not in found and bool((pivot <= _DEPENDENT).any()):
            found[k] = _COMBINATION
        if k not in found:
            rest = rest - rest[:, :, k, None] * rest[:, None, k, :] / pivot[:, None, None]
    return found
