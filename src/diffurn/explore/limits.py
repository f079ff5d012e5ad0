"""The limits of the page's fields. The sliders are built from them, and the values of every request
are checked against them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Kind = TypeVar("Kind", str, int)


@dataclass(frozen=True)
class Real:
    """A number between two limits. The slider moves in steps, but every number is allowed.

    Example:
        >>> TEMPERATURE.checked(1e9)
        Traceback (most recent call last):
        ValueError: τ must be a number from 0.05 to 2.
    """

    name: str
    lowest: float
    highest: float
    step: float

    def checked(self, value: Any) -> float:
        """The value as a float; ValueError says what would be right."""
        if not isinstance(value, int | float) or not self.lowest <= value <= self.highest:
            raise ValueError(
                f"{self.name} must be a number from {self.lowest:g} to {self.highest:g}."
            )
        return float(value)


@dataclass(frozen=True)
class Whole:
    """A whole number between two limits. JSON has one type for all numbers, so 5.0 is 5.

    Example:
        >>> DRAWS.checked(5.0)
        5
    """

    name: str
    lowest: int
    highest: int
    step: int = 1

    def checked(self, value: Any) -> int:
        """The value as an int; ValueError says what would be right."""
        if (
            not isinstance(value, int | float)
            or not self.lowest <= value <= self.highest
            or value != int(value)
        ):
            raise ValueError(
                f"{self.name} must be a whole number from {self.lowest:,} to {self.highest:,}."
            )
        return int(value)


@dataclass(frozen=True)
class Choice(Generic[Kind]):
    """One of a few words, or of a few whole numbers.

    Example:
        >>> NUM_SAMPLES.checked(10**9)
        Traceback (most recent call last):
        ValueError: The number of samples to compare with must be 100, 1,000 or 10,000.
    """

    name: str
    choices: tuple[Kind, ...]

    def checked(self, value: Any) -> Kind:
        """The choice that equals the value; ValueError lists all choices."""
        for choice in self.choices:
            if value == choice:
                return choice
        *others, last = map(self.label, self.choices)
        raise ValueError(f"{self.name} must be {', '.join(others)} or {last}.")

    @staticmethod
    def label(choice: Kind) -> str:
        return choice if isinstance(choice, str) else f"{choice:,}"


@dataclass(frozen=True)
class Words:
    """A text up to a length.

    Example:
        >>> REFERENCE.checked(" mouse ")
        'mouse'
    """

    name: str
    longest: int

    def checked(self, value: Any) -> str:
        """The text without blanks around it; ValueError says what would be right."""
        if not isinstance(value, str) or len(value) > self.longest:
            raise ValueError(f"{self.name} must be a text of at most {self.longest:,} characters.")
        return value.strip()


FISHER, WALLENIUS = "Fisher", "Wallenius"
COUNT, SQUARE, SPREAD, THRESHOLD, DIVERSITY = (
    "count",
    "squared count",
    "squared distance from the mean",
    "threshold",
    "diversity",
)
MOST_GROUPS, MOST_BALLS = 5, 20

# The urn.
MODEL = Choice("The model", (FISHER, WALLENIUS))
GROUPS = Whole("The number of groups", 2, MOST_GROUPS)
DRAWS = Whole("The number of balls drawn", 1, 60)
SIZES = tuple(Whole(f"The size of group {j}", 0, MOST_BALLS) for j in range(1, MOST_GROUPS + 1))
LOG2_WEIGHTS = tuple(Real(f"log₂ ω of group {j}", -5, 5, 0.1) for j in range(1, MOST_GROUPS + 1))

# Samples of it.
NUM_SAMPLES = Choice("The number of samples to compare with", (100, 1_000, 10_000))
SEED = Whole("The seed", 0, 2**31)

# The function whose gradient is shown.
FUNCTION = Choice("f(x)", (COUNT, SQUARE, SPREAD, THRESHOLD, DIVERSITY))
GROUP = Whole("The group", 1, MOST_GROUPS)
LEVEL = Whole("The threshold", 1, MOST_BALLS)
TEMPERATURE = Real("τ", 0.05, 2.0, 0.05)

# Subsets.
MOST_ITEMS = 8
ITEMS = Whole("The number of items", 2, MOST_ITEMS)
CHOSEN = Whole("The number of chosen items", 1, MOST_ITEMS - 1)
SCORES = tuple(Real(f"log₂ ω of item {j}", -5, 5, 0.1) for j in range(1, MOST_ITEMS + 1))

# The reader's own table.
TABLE = Words("The table", 50_000)
REFERENCE = Words("The reference", 100)
