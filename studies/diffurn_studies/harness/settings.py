"""Options from the command line: ``--set name=value`` sets a typed field of a study's options.

Numbers, texts, choices and flat lists of them can be set. Anything else, such as a list of priors,
belongs into an arm.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from diffurn_studies.harness.errors import RunError

_YES_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class _NoSpellingError(TypeError):
    """The command line cannot write values of this type."""


def field_names(options: Any) -> list[str]:
    """The settable fields of a dataclass or of an instance."""
    return [field.name for field in fields(options) if field.init]


def split(assignment: str) -> tuple[str, str]:
    """``draws=100`` as name and text."""
    name, equals, text = assignment.partition("=")
    if not equals or not name.strip():
        raise RunError(f"--set takes name=value, not {assignment!r}")
    return name.strip(), text.strip()


def with_settings(options: Any, settings: Mapping[str, str]) -> Any:
    """`options` with some fields read from text, each by the field's type.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Options:
        ...     draws: int = 10
        ...     weights: tuple[float, ...] = (1.0,)
        >>> with_settings(Options(), {"draws": "20", "weights": "1, 2.5"})
        Options(draws=20, weights=(1.0, 2.5))
    """
    kinds = typing.get_type_hints(type(options))
    values = {}
    for name, text in settings.items():
        if name not in field_names(options):
            raise RunError(
                f"there is no option {name!r}: choose one of {', '.join(field_names(options))}"
            )
        try:
            values[name] = _parse(kinds[name], text)
        except ValueError as error:
            raise RunError(f"the option {name} is {text!r}, but must be {error}") from None
        except _NoSpellingError:
            raise RunError(
                f"the option {name} cannot be set on the command line: choose an arm that sets it, "
                "or write one"
            ) from None
    try:
        return replace(options, **values)
    except ValueError as error:
        raise RunError(str(error)) from None


def _parse(kind: Any, text: str) -> Any:
    """`text` as a value of the type `kind`; a ValueError says in words what the type is."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (tuple, list):
        return _parse_list(origin, arguments, text)
    if origin in (typing.Union, types.UnionType):
        return _parse_first_of(arguments, text)
    if origin is typing.Literal:
        for choice in arguments:
            if text == str(choice):
                return choice
        raise ValueError(f"one of {', '.join(map(str, arguments))}")
    return _parse_scalar(kind, text)


def _parse_scalar(kind: Any, text: str) -> Any:
    if kind is type(None):
        if text.lower() in ("none", "null", ""):
            return None
        raise ValueError("none")
    if kind is bool:
        if text.lower() in _YES_NO:
            return _YES_NO[text.lower()]
        raise ValueError("true or false")
    if kind in (int, float):
        try:
            return kind(text.replace("_", ""))
        except ValueError:
            raise ValueError("a whole number" if kind is int else "a number") from None
    if kind is str:
        return text
    raise _NoSpellingError


def _parse_first_of(kinds: tuple[Any, ...], text: str) -> Any:
    wanted = []
    for kind in sorted(kinds, key=lambda kind: kind is str):  # str last, since it takes any text
        try:
            return _parse(kind, text)
        except ValueError as error:
            wanted.append(str(error))
    raise ValueError(" or ".join(wanted))


def _parse_list(origin: Any, kinds: tuple[Any, ...], text: str) -> Any:
    """``1,2,3`` or ``[1, 2, 3]``."""
    items = _split_items(text)
    if origin is list or kinds[-1:] == (Ellipsis,):
        return origin(_parse(kinds[0], item) for item in items)
    if len(items) != len(kinds):
        raise ValueError(f"{len(kinds)} values with commas between them")
    return tuple(_parse(kind, item) for kind, item in zip(kinds, items, strict=True))


def _split_items(text: str) -> list[str]:
    ends = {"[": "]", "(": ")"}
    if text[:1] in ends:
        if len(text) < 2 or text[-1] != ends[text[0]]:
            raise ValueError("a list such as 1,2,3 or [1, 2, 3]")
        text = text[1:-1].strip()
    return [item.strip() for item in text.split(",")] if text else []
