"""Families of hard urns, drawn many at a time: a name and a seed determine every urn.

A family chooses the number of groups and fills arrays of group sizes, draws and log-weights, one
row an urn. The building blocks are the functions that start with an underscore; a new family is one
entry of ``FAMILIES``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from support.urns import NEVER, URNS, Urn

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Rng = np.random.Generator
Arrays = tuple[Integers, Integers, Floats]

MOST_BALLS = 10**12
NUMBERS_READ = 512  # the library reads at most so many sizes on the CPU and may then use tables


@dataclass(frozen=True)
class Batch:
    """Urns with the same number of groups, and the form in which the library is given them."""

    family: str
    index: int
    group_sizes: Integers
    draws: Integers
    log_weights: Floats
    by_weights: bool = False
    as_lists: bool = False

    def __len__(self) -> int:
        return len(self.draws)

    @property
    def groups(self) -> int:
        return self.group_sizes.shape[1]

    @property
    def weights(self) -> Floats:
        return np.exp(self.log_weights)

    @property
    def drawable(self) -> Integers:
        """Group sizes with the groups of weight zero emptied."""
        return np.where(self.log_weights == NEVER, 0, self.group_sizes)

    @property
    def exact_log_weights(self) -> NDArray[np.longdouble]:
        """The logarithms of the numbers that the library is given; weights are rounded, their
        logarithms here are not.
        """
        if not self.by_weights:
            return self.log_weights.astype(np.longdouble)
        with np.errstate(divide="ignore"):
            return np.log(self.weights.astype(np.longdouble))

    @property
    def population(self) -> Integers:
        return self.group_sizes.sum(-1)

    def take(self, rows: Sequence[int] | Integers) -> Batch:
        index = np.asarray(rows, dtype=np.int64)
        return replace(
            self,
            group_sizes=self.group_sizes[index],
            draws=self.draws[index],
            log_weights=self.log_weights[index],
        )

    def urn(self, row: int) -> Urn:
        """One row in plain numbers, as the oracles take it."""
        sizes, log_weights = (
            self.group_sizes[row].tolist(),
            self.exact_log_weights[row].astype(float).tolist(),
        )
        return Urn(
            f"{self.family}-{self.index}-{row}",
            tuple(sizes),
            int(self.draws[row]),
            tuple(log_weights),
        )


# --------------------------------------------------------------------------------------------------
# Building blocks
# --------------------------------------------------------------------------------------------------


def _log_uniform(
    rng: Rng, low: float | Floats, high: float | Floats, shape: tuple[int, ...]
) -> Integers:
    """Whole numbers from low to high, each order of magnitude as often as the next."""
    exponent = rng.uniform(np.log(low), np.log(np.asarray(high) + 1.0), shape)
    return np.minimum(np.floor(np.exp(exponent)), high).astype(np.int64)


def _tops(rng: Rng, rows: int, groups: int, most: int = MOST_BALLS) -> Integers:
    """The size of the largest group, one number an urn; half of the urns hold more than a million
    balls.
    """
    top = max(1, most // groups)
    return np.where(
        rng.random(rows) < 0.5,
        _log_uniform(rng, 1, top, (rows,)),
        _log_uniform(rng, min(10**6, top), top, (rows,)),
    )


def _sizes(rng: Rng, rows: int, groups: int, most: int = MOST_BALLS) -> Integers:
    """Sizes of all magnitudes up to a top; in a third of the urns all are equal, in another third
    some are.
    """
    top = _tops(rng, rows, groups, most)[:, None]
    mixed = _log_uniform(rng, 1.0, top.astype(float), (rows, groups))
    share = rng.choice([0.0, 0.5, 1.0], (rows, 1))
    return np.where(rng.random((rows, groups)) < share, top, mixed)


def _spread(
    rng: Rng, rows: int, groups: int, scales: Sequence[float] = (0.5, 3.0, 30.0, 300.0, 600.0)
) -> Floats:
    return rng.uniform(-1.0, 1.0, (rows, groups)) * rng.choice(scales, (rows, 1))


def _levels(rng: Rng, rows: int, groups: int, number: int, largest: float = 600.0) -> Floats:
    """So many different weights at most, in random order; the gaps between them have all
    magnitudes.
    """
    gap = np.exp(rng.uniform(np.log(1e-3), np.log(largest), (rows, number)))
    values = np.minimum(np.cumsum(gap, 1) - gap[:, :1], largest) * rng.choice(
        [-1.0, 1.0], (rows, 1)
    )
    return np.take_along_axis(values, rng.integers(0, number, (rows, groups)), 1)


def _any_draws(rng: Rng, drawable: Integers) -> Integers:
    """Anything from none to all: in a third of the urns few, in another third all but few."""
    total = drawable.sum(-1)
    few = np.minimum(_log_uniform(rng, 1, np.maximum(total, 1).astype(float), total.shape), total)
    return np.choose(
        rng.integers(0, 3, len(total)),
        [(rng.random(len(total)) * (total + 1)).astype(np.int64), few, total - few],
    ).clip(0, total)


def _boundary_draws(rng: Rng, drawable: Integers, log_weights: Floats, reach: int = 3) -> Integers:
    """Within a few balls of the number that empties some of the heaviest groups."""
    order = np.argsort(-log_weights, axis=1, kind="stable")
    filled = np.cumsum(np.take_along_axis(drawable, order, 1), 1)
    chosen = np.take_along_axis(filled, rng.integers(0, filled.shape[1], (len(filled), 1)), 1)[:, 0]
    return (chosen + rng.integers(-reach, reach + 1, len(chosen))).clip(0, filled[:, -1])


def _draws(rng: Rng, sizes: Integers, log_weights: Floats) -> Integers:
    """Half at a boundary, half anywhere."""
    drawable = np.where(log_weights == NEVER, 0, sizes)
    at_boundary = rng.random(len(sizes)) < 0.5
    return np.where(
        at_boundary, _boundary_draws(rng, drawable, log_weights), _any_draws(rng, drawable)
    )


def _with_draws(rng: Rng, sizes: Integers, log_weights: Floats) -> Arrays:
    return sizes, _draws(rng, sizes, log_weights), log_weights


def _never(rng: Rng, log_weights: Floats, share: float) -> Floats:
    return np.where(rng.random(log_weights.shape) < share, NEVER, log_weights)


# --------------------------------------------------------------------------------------------------
# Families
# --------------------------------------------------------------------------------------------------


def _ties(rng: Rng, rows: int, groups: int) -> Arrays:
    return _with_draws(
        rng, _sizes(rng, rows, groups), _levels(rng, rows, groups, int(rng.integers(1, 4)))
    )


def _near_ties(rng: Rng, rows: int, groups: int) -> Arrays:
    width = np.exp(rng.uniform(np.log(1e-14), np.log(1e-2), (rows, 1)))
    return _with_draws(
        rng,
        _sizes(rng, rows, groups),
        _levels(rng, rows, groups, 2) + width * rng.standard_normal((rows, groups)),
    )


def _two_levels(rng: Rng, rows: int, groups: int) -> Arrays:
    """Weights 1 and something else, in a third of the urns zero; huge groups beside tiny ones."""
    other = np.where(
        rng.random((rows, 1)) < 1 / 3, NEVER, -np.exp(rng.uniform(-3.0, np.log(600.0), (rows, 1)))
    )
    log_weights = np.where(rng.random((rows, groups)) < 0.5, 0.0, other)
    tiny = rng.random((rows, groups)) < 0.4
    sizes = np.where(tiny, _log_uniform(rng, 1, 500, (rows, groups)), _sizes(rng, rows, groups))
    return _with_draws(rng, sizes, log_weights)


def _boundary(rng: Rng, rows: int, groups: int) -> Arrays:
    """n empties the heavy groups, give or take a few balls, and the others are lighter by 2 to
    100.
    """
    heavy = rng.random((rows, groups)) < 0.6
    gap = np.exp(rng.uniform(np.log(2.0), np.log(100.0), (rows, 1)))
    log_weights = np.where(heavy, 0.0, -gap) + rng.choice(
        [0.0, 0.3, 2.0], (rows, 1)
    ) * rng.standard_normal((rows, groups))
    sizes = _sizes(rng, rows, groups)
    filled = np.where(heavy, sizes, 0).sum(-1)
    return sizes, (filled + rng.integers(-4, 5, rows)).clip(0, sizes.sum(-1)), log_weights


def _wide(rng: Rng, rows: int, groups: int) -> Arrays:
    return _with_draws(rng, _sizes(rng, rows, groups), _spread(rng, rows, groups))


def _gaps(rng: Rng, rows: int, groups: int) -> Arrays:
    """Empty groups and groups of weight zero, several in an urn."""
    sizes = np.where(rng.random((rows, groups)) < 0.3, 0, _sizes(rng, rows, groups))
    return _with_draws(rng, sizes, _never(rng, _spread(rng, rows, groups), 0.3))


def _edges(rng: Rng, rows: int, groups: int) -> Arrays:
    """No draw, one or two, all balls, all but one or two."""
    sizes, log_weights = _sizes(rng, rows, groups), _never(rng, _spread(rng, rows, groups), 0.1)
    total = np.where(log_weights == NEVER, 0, sizes).sum(-1)
    few = rng.integers(0, 3, rows)
    return sizes, np.where(rng.random(rows) < 0.5, few, total - few).clip(0, total), log_weights


def _equal_weights(rng: Rng, rows: int, groups: int) -> Arrays:
    return _with_draws(rng, _sizes(rng, rows, groups), np.repeat(_spread(rng, rows, 1), groups, 1))


def _subsets(rng: Rng, rows: int, groups: int) -> Arrays:
    """One ball in every group."""
    log_weights = np.where(
        rng.random((rows, 1)) < 0.5, _spread(rng, rows, groups), _levels(rng, rows, groups, 2)
    )
    return _with_draws(rng, np.ones((rows, groups), np.int64), log_weights)


def _uneven(rng: Rng, rows: int, groups: int) -> Arrays:
    """One group holds nearly all balls."""
    sizes = _log_uniform(rng, 1, 300, (rows, groups))
    np.put_along_axis(
        sizes, rng.integers(0, groups, (rows, 1)), _tops(rng, rows, groups)[:, None], 1
    )
    return _with_draws(rng, sizes, _spread(rng, rows, groups, (0.5, 5.0, 30.0)))


def _everyday(rng: Rng, rows: int, groups: int) -> Arrays:
    return _with_draws(
        rng, _sizes(rng, rows, groups, 10**5), _spread(rng, rows, groups, (0.3, 1.0, 3.0))
    )


def _small(rng: Rng, rows: int, groups: int) -> Arrays:
    """Few enough balls for tables, with weights of all kinds."""
    sizes = rng.integers(0, 1 + 60 // groups, (rows, groups))
    log_weights = np.where(
        rng.random((rows, 1)) < 0.5, _spread(rng, rows, groups), _levels(rng, rows, groups, 2)
    )
    return _with_draws(rng, sizes, _never(rng, log_weights, 0.1))


def _shared(rng: Rng, rows: int, groups: int) -> Arrays:
    """The same few balls in every urn, with different weights."""
    sizes = np.repeat(rng.integers(1, 2 + 60 // groups, (1, groups)), rows, 0)
    return (
        sizes,
        np.repeat(rng.integers(0, sizes[0].sum() + 1, 1), rows),
        _spread(rng, rows, groups, (0.5, 3.0, 30.0)),
    )


FOUND = (  # urns on which some version of the library was wrong or did not return
    Urn("equal-halves", (37925558,) * 2, 37925558, (0.0,) * 2),
    Urn("hundred-equal", (10**9,) * 100, 6 * 10**7, (0.0,) * 100),
    Urn("light-group-behind", (10**7, 2 * 10**7, 7, 10**7), 3 * 10**7 + 4, (0.0, 0.0, 0.0, -50.0)),
    Urn(
        "nearly-all-of-weight-one",
        (10502, 62393, 22349982, 58, 440, 2871825, 6081310, 7),
        25232753,
        (0.0, NEVER, 0.0, NEVER, 0.0, 0.0, NEVER, 0.0),
    ),
    Urn("never-and-hardly-ever", (4, 5, 1), 3, (0.0, NEVER, -400.0)),
    Urn("empty-and-heavy", (0, 10**9, 10**9), 1909996259, (484.0, -49.0, -392.0)),
)


def _table(rng: Rng, rows: int, groups: int) -> Arrays:
    """Urns of the tests' own table."""
    alike = [urn for urn in (*FOUND, *URNS) if urn.groups == groups]
    chosen = [alike[i] for i in rng.permutation(len(alike))[:rows]]
    log_weights = np.array([urn.log_weights for urn in chosen])
    return (
        np.array([urn.group_sizes for urn in chosen]),
        np.array([urn.draws for urn in chosen]),
        log_weights,
    )


@dataclass(frozen=True)
class Family:
    make: Callable[[Rng, int, int], Arrays]
    groups: Sequence[int]  # one is chosen for each batch
    few_numbers: bool = False  # few enough sizes for the library to read them


FEW = (1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5, 6, 8)
FAMILIES: dict[str, Family] = {
    "ties": Family(_ties, FEW),
    "near-ties": Family(_near_ties, FEW),
    "two-levels": Family(_two_levels, FEW),
    "boundary": Family(_boundary, FEW),
    "wide": Family(_wide, FEW),
    "gaps": Family(_gaps, FEW),
    "edges": Family(_edges, FEW),
    "equal-weights": Family(_equal_weights, FEW),
    "uneven": Family(_uneven, FEW),
    "everyday": Family(_everyday, FEW),
    "subsets": Family(_subsets, (2, 3, 5, 8, 12, 20, 40, 100)),
    "many-groups": Family(_ties, (12, 16, 32, 64, 100, 150, 300)),
    "small": Family(_small, (2, 2, 2, 3, 3, 4, 6, 10), few_numbers=True),
    "shared": Family(_shared, (2, 2, 2, 3, 3, 4, 6, 10)),
    "table": Family(_table, sorted({urn.groups for urn in (*FOUND, *URNS)})),
}


def groups_of(family: str, fewest: int, most: int) -> list[int]:
    """Numbers of groups that a family has, within limits."""
    return [groups for groups in FAMILIES[family].groups if fewest <= groups <= most]


def generate(
    family: str,
    seed: int,
    index: int,
    rows: int = 512,
    fewest_groups: int = 1,
    most_groups: int = 1000,
) -> Batch:
    """Batch number ``index`` of a family; a quarter of the batches are given by weights, half of
    the short ones as lists.

    There are so many rows of up to six groups, and fewer of more.
    """
    rng = np.random.default_rng([seed, zlib.crc32(family.encode()), index])
    chosen = FAMILIES[family]
    groups = int(rng.choice(groups_of(family, fewest_groups, most_groups)))
    numbers = min(6 * rows, NUMBERS_READ) if chosen.few_numbers else 6 * rows
    sizes, draws, log_weights = chosen.make(rng, max(1, min(rows, numbers // groups)), groups)
    by_weights, as_lists = bool(rng.random() < 0.25), bool(rng.random() < 0.5)
    return Batch(
        family,
        index,
        sizes,
        draws,
        log_weights,
        by_weights,
        as_lists and sizes.size <= NUMBERS_READ,
    )
