"""The files of a run: written whole or not at all, and checked when they are read.

A process may be killed at any moment, so a file is written under a temporary name and then renamed.
A file that cannot be read, or whose content is not what it should be, gives a `RunError`: one
sentence that names the file.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffurn.cli.files import replacing
from diffurn_studies.harness.errors import RunError
from diffurn_studies.harness.kinds import Kind, entries

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "FORMAT",
    "RunError",
    "as_plain_json",
    "parsed",
    "read_entries",
    "read_file",
    "read_json",
    "rounded",
    "write_atomically",
    "write_figure",
    "write_json",
]

# Version of the files of a run directory. A file of a newer version is refused.
FORMAT = 1
# The deepest nesting of lists and objects that is read; no file of a run has ten levels.
_DEEPEST = 100


def as_plain_json(value: Any, what: str) -> Any:
    """`value` as it will be read back: tuples become lists. A value that JSON cannot hold, NaN
    included, raises a ValueError that begins with `what`.
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{what} must be plain JSON (finite numbers, strings, lists and dicts): {error}"
        ) from None


def rounded(values: Any) -> Any:
    """A number, or nested lists of numbers, to six significant digits."""
    return (
        [rounded(value) for value in values] if isinstance(values, list) else float(f"{values:.6g}")
    )


def write_atomically(path: Path, content: bytes) -> None:
    """Writes the whole content, or leaves the old file as it is."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _require_file(path)
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise RunError(
            f"{path} cannot be written: {error.strerror or error}; what was there before is "
            "untouched"
        ) from error


def write_figure(path: Path, figure: Figure) -> None:
    image = io.BytesIO()
    figure.savefig(image, format="png")
    write_atomically(path, image.getvalue())


def write_json(path: Path, content: dict[str, Any], indent: int | None = 1) -> None:
    text = json.dumps(
        {"format": FORMAT, **content}, indent=indent, ensure_ascii=False, allow_nan=False
    )
    write_atomically(path, (text + "\n").encode())


def read_file(path: Path) -> bytes | None:
    """The content of a file; None if there is no such file."""
    try:
        _require_file(path)
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error


def _require_file(path: Path) -> None:
    """Refuses directories, devices and pipes; reading a pipe would wait for ever."""
    if path.exists() and not path.is_file():
        raise OSError("it is not a file")


def parsed(written: bytes) -> Any:
    """The JSON value in `written`; a ValueError if there is none, or if it is nested so deeply that
    Python would run out of stack.
    """
    with suppress(RecursionError):
        content = json.loads(written.decode())
        if rb"\ud" in written.lower():
            json.dumps(content, ensure_ascii=False).encode()  # fails for half a surrogate pair
        level = [content]
        for _ in range(_DEEPEST):
            level = [child for value in level for child in _children(value)]
            if not level:
                return content
    raise ValueError("its lists or objects are nested too deeply")


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a run, of a format that this version knows."""
    written = read_file(path)
    if written is None:
        raise RunError(f"{path} cannot be read: there is no such file")
    try:
        content = parsed(written)
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from error
    version = content.get("format") if isinstance(content, dict) else None
    if not isinstance(version, int):
        raise RunError(f"{path} is not a file of a diffurn run: it states no format version")
    if version > FORMAT:
        raise RunError(
            f"{path} was written by a newer diffurn (format {version}, this one reads up to "
            f"{FORMAT}): update diffurn"
        )
    return dict(content)


def read_entries(path: Path, **kinds: Kind) -> list[Any]:
    """Some entries of a JSON file of a run, each checked against its kind."""
    content = read_json(path)
    try:
        return entries(content, **kinds)
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from None
