"""`Rows`: what the solver asks of data, whatever a row is."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from torch import Tensor

R = TypeVar("R", bound="Rows")

# A direction found by Newton's method has a few correct digits: enough to tell which groups tie
# along it. With these ties taken as exact, the direction follows to rounding.
TIE = 1e-3
EXACT = 1e-9


class Rows(Protocol):
    """D data sets of independent rows: a `Sample` of counts, or `Strata` of cases and controls.

    Where the maximum lies at infinity, labels divide the balls of each row into groups that are
    drawn independently in the limit.
    """

    @property
    def constant(self) -> Tensor:
        """A part of the log-likelihood that no coefficient changes, ``(D,)``."""

    @property
    def drawn(self) -> Tensor:
        """Balls drawn in all rows, ``(D,)``."""

    @property
    def units(self) -> int:
        """The number of independent rows (or strata) of this process."""

    @property
    def all_units(self) -> int:
        """The number of independent rows (or strata) of all processes."""

    @property
    def work(self) -> int:
        """What a pass over all data costs, in the unit of progress bars."""

    def summed(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """Sums of sums over rows, over all processes."""

    def pick(self: R, data_sets: Tensor) -> R:
        """Some of the data sets."""

    def pick_rows(self: R, rows: Tensor) -> R:
        """Some of the rows (or strata) of every data set."""

    def tiles(self, differentiated: bool = False) -> list[tuple[slice, Any]]:
        """All rows in parts that fit the cache, each with the slice of its data sets. They are
        smaller if the information is to be differentiated.
        """

    def gram(self) -> Tensor:
        """Σ zᵀz of features z, centred within rows, ``(D, p, p)``."""

    def no_labels(self) -> Tensor:
        """The labels of rows that are not split, all zero."""

    def refined(self, labels: Tensor, direction: Tensor) -> Tensor:
        """Labels that also tell apart balls of different z · direction ``(D, p)``."""

    def separates(self, direction: Tensor, tolerance: float) -> Tensor:
        """Whether the likelihood never falls along a direction ``(D, p)``, and rises somewhere."""

    def split(self: R, labels: Tensor) -> R:
        """The rows of the limit, one for each label of each row."""

    def without(self: R, column: int) -> R:
        """The same rows with one feature zero everywhere."""
