"""Covariates: features of groups, and features of rows, which act through the groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from diffurn._validation import as_float64_tensor, require
from diffurn.inference.recession import gram
from diffurn.inference.sample import Sample
from diffurn.inference.tables import Table, find_group, plain_values

# What rounding may leave of a column that is constant in each row, and of one that depends on
# others.
_CONSTANT = 1e-13
_DEPENDENT = 1e-10


def interactions(
    row_features: Any,
    groups: Sequence[str],
    names: Sequence[str] | None = None,
    reference: str | int = 0,
) -> tuple[Tensor, tuple[str, ...]]:
    """Covariates that let the weight of each group depend on features of the row.

    A feature of the row alone, such as a year, multiplies all weights of the urn and cancels. What
    it can do is to change the weight of a group relative to the reference: one coefficient
    ``"group"`` (where all features are zero) and one ``"group:feature"`` each.

    Args:
        row_features: z, shape ``(..., R, q)``.
        groups: names of the c groups.
        names: of the q features; the columns of a data frame, or ``z1``, ``z2``, ... by default.
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
    anchor = find_group(reference, tuple(groups))
    compared = [j for j in range(len(groups)) if j != anchor]
    with_one = torch.cat([torch.ones_like(z[..., :1]), z], -1)
    indicators = torch.eye(len(groups), dtype=z.dtype, device=z.device)[:, compared]
    features = (indicators[..., None] * with_one[..., None, None, :]).flatten(-2)
    return features, tuple(
        groups[j] + suffix for j in compared for suffix in ("", *(f":{name}" for name in names))
    )


def read_features(
    covariates: Any, names: Sequence[str] | None, table: Table
) -> tuple[Tensor, tuple[str, ...]]:
    """Features as ``(D, R, c, p)``, without copying what repeats, and their names."""
    labels = getattr(covariates, "index", ())
    listed = (
        () if callable(labels) else tuple(str(label) for label in labels)
    )  # a list has a method of that name
    if set(listed) == set(table.groups) and listed != table.groups:
        raise ValueError(
            f"covariates has the rows {list(listed)}, but the groups are {list(table.groups)}; "
            "they must be in one order"
        )
    z = as_float64_tensor("covariates", plain_values(covariates), table.sample.counts.device)
    sets, rows, c = table.sample.counts.shape
    wanted = f"(groups, features) = ({c}, p) or (rows, groups, features) = ({rows}, {c}, p)"
    if z.ndim < 2 or z.shape[-2] != c or z.shape[-1] == 0:
        hint = (
            "; features of rows go through diffurn.inference.interactions"
            if z.ndim == 2 and len(z) == rows
            else ""
        )
        raise ValueError(f"covariates has shape {tuple(z.shape)}, but must be {wanted}{hint}")
    full = (*table.batch_shape, rows, c, z.shape[-1])
    try:
        expanded = z.expand(full)
    except RuntimeError:
        raise ValueError(f"covariates has shape {tuple(z.shape)}, but must be {wanted}") from None
    require("covariates", z, z.isfinite(), "every feature must be a finite number")
    return expanded.reshape(sets, rows, c, -1), _column_names(
        "covariates", covariates, z.shape[-1], names
    )


def _column_names(
    argument: str, values: Any, number: int, names: Sequence[str] | None
) -> tuple[str, ...]:
    """As given, or the columns of a data frame, or ``z1``, ``z2``, ..."""
    if names is None:
        names = getattr(values, "columns", [f"z{k + 1}" for k in range(number)])
    if len(names) != number:
        raise ValueError(f"names has {len(names)} entries, but {argument} has {number} columns")
    return tuple(str(name) for name in names)


def check_identified(sample: Sample, names: tuple[str, ...]) -> None:
    """A ValueError that names a column on which the likelihood does not depend, or not beyond the
    columns before it.
    """
    products = gram(sample)
    scale = products.diagonal(dim1=-2, dim2=-1).sqrt()
    assert sample.features is not None
    competing = torch.where(sample.competing.unsqueeze(-1), sample.features, 0.0)
    (squares,) = sample.summed(
        (sample.frequencies[..., None, None] * competing.square()).sum((1, 2))
    )
    constant = (scale <= _CONSTANT * squares.sqrt()) | (scale == 0)
    for k, name in enumerate(names):
        if bool(constant[:, k].any()):
            raise ValueError(
                f"covariates column {name!r} has one value for all groups of a row, in every row; "
                "it cancels, leave it out"
            )
    rest = products / (scale.unsqueeze(-1) * scale.unsqueeze(-2))
    for k, name in enumerate(
        names
    ):  # Cholesky by hand: the pivot is what a column has beyond those before it
        pivot = rest[:, k, k]
        if bool((pivot <= _DEPENDENT).any()):
            way_out = (
                "leave it out or, if its values are far from 0 beside their differences, "
                "subtract a typical one from all"
            )
            raise ValueError(
                f"covariates column {name!r} is, up to rounding, a linear combination of the "
                f"columns before it; {way_out}"
            )
        rest = rest - rest[:, :, k, None] * rest[:, None, k, :] / pivot[:, None, None]
