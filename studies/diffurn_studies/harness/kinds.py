"""Checks of JSON that a person may have edited: the entries that an object must have, and their
kinds.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """A kind of value: its name in an error message, and a check."""

    words: str
    holds: Callable[[Any], bool]


def list_of(kind: Kind) -> Kind:
    return Kind(
        f"a list, each entry {kind.words}",
        lambda value: isinstance(value, list) and all(map(kind.holds, value)),
    )


def object_of(kind: Kind) -> Kind:
    return Kind(
        f"an object, each entry {kind.words}",
        lambda value: isinstance(value, dict) and all(map(kind.holds, value.values())),
    )


def _is_duration(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


ANYTHING = Kind("anything", lambda value: True)
TEXT = Kind("a text", lambda value: isinstance(value, str))
TEXT_OR_NULL = Kind("a text or null", lambda value: value is None or isinstance(value, str))
DURATION = Kind("a number of seconds", _is_duration)
CELL = Kind(
    "a text, a number, true, false or null",
    lambda value: value is None or isinstance(value, str | int | float),
)


def entries(content: Any, **kinds: Kind) -> list[Any]:
    """The named entries of a JSON object. A ValueError names an entry that is missing or of the
    wrong kind.

    Example:
        >>> entries({"units": ["a", "b"]}, units=list_of(TEXT))
        [['a', 'b']]
        >>> entries({"units": 3}, units=list_of(TEXT))
        Traceback (most recent call last):
        ValueError: 'units' is 3, but must be a list, each entry a text
    """
    if not isinstance(content, dict):
        raise ValueError(f"it is {reprlib.repr(content)}, but must be an object")
    for name, kind in kinds.items():
        if name not in content:
            raise ValueError(f"it has no {name!r}")
        if not kind.holds(content[name]):
            raise ValueError(f"{name!r} is {reprlib.repr(content[name])}, but must be {kind.words}")
    return [content[name] for name in kinds]
