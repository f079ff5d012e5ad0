"""What a run leaves on disk: JSON files that are whole or not there, whenever the process is
killed, and a lock on their directory.

A record carries a checksum, so damage from elsewhere counts as "not there" and the unit runs again;
of every other file the parts that are read are checked, and what is wrong is said with the name of
the file. Nothing that differs from run to run (times, hosts) is part of a record.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from diffurn.cli.files import TEMPORARY, replacing
from diffurn_studies.harness.kinds import (
    ANYTHING,
    DURATION,
    TEXT,
    Kind,
    entries,
    list_of,
    object_of,
)
from diffurn_studies.harness.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Version of the files of a run directory; one written by a newer diffurn is refused instead of
# misread.
FORMAT = 1
# Lists and objects inside each other; no file of a run has ten levels.
_DEEPEST = 100


class RunError(ValueError):
    """A run cannot go on, for a reason outside the program; the message is a sentence for the
    user.
    """


def as_plain_json(value: Any, what: str) -> Any:
    """`value` as it will be read back: tuples become lists, and what JSON has no word for is an
    error that says `what` held it.
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{what} must be plain JSON (finite numbers, strings, lists and dicts): {error}"
        ) from None


def rounded(values: Any) -> Any:
    """A number, or lists of them, to six digits: enough for any figure, and short."""
    return (
        [rounded(value) for value in values] if isinstance(values, list) else float(f"{values:.6g}")
    )


def write_atomically(path: Path, content: bytes) -> None:
    """The new content or, on any failure, the old one: never a part."""
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
    """The content of a file, None where there is none; what the system refuses becomes a
    sentence.
    """
    try:
        _require_file(path)
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error


def _require_file(path: Path) -> None:
    """Refuses a pipe, which would be waited for, and whatever else is there but no file."""
    if path.exists() and not path.is_file():
        raise OSError("it is not a file")


def _parsed(written: bytes) -> Any:
    """JSON; a ValueError where it is none, or nested so deeply that Python's functions for it would
    run out of stack.
    """
    with suppress(RecursionError):
        content = json.loads(written.decode())
        if rb"\ud" in written.lower():
            json.dumps(content, ensure_ascii=False).encode()  # half of a surrogate pair is no text
        level = [content]
        for _ in range(_DEEPEST):
            level = [child for value in level for child in _children(value)]
            if not level:
                return content
    raise ValueError("its lists or objects are nested too deeply")


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def read_json(path: Path) -> dict[str, Any]:
    written = read_file(path)
    if written is None:
        raise RunError(f"{path} cannot be read: there is no such file")
    try:
        content = _parsed(written)
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
    """Some entries of a JSON file of a run, each checked for its kind."""
    content = read_json(path)
    try:
        return entries(content, **kinds)
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from None


class Settings(NamedTuple):
    """What a run directory belongs to."""

    experiment: str
    options: dict[str, Any]
    units: list[str]


class Published(NamedTuple):
    """What a finished run has to show, beside its figures."""

    about: str
    tables: list[Table]


class RunDirectory:
    """One experiment with one set of options: `options.json`, `environment.json`,
    `records/<unit>.json` and what belongs to them.

    Args:
        path: the directory; nothing is read or written before a method is called.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the directory and keeps other processes out of it; the lock goes with the process,
        however that ends.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("a")
        except OSError as error:
            raise RunError(
                f"{self.path} cannot be used as a run directory: {error.strerror or error}"
            ) from error
        with lock:
            with suppress(
                ImportError
                # there is no flock on Windows; two runs on one directory are the user's business
                # there
            ):
                import fcntl

                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    message = (
                        f"{self.path} is in use by another process: wait for it to end, or "
                        "choose another directory"
                    )
                    raise RunError(message) from error
            yield

    def claim(self, experiment: str, options: Any, units: Sequence[str]) -> None:
        """Takes an empty directory for this run, or checks that it holds an earlier part of just
        this run.
        """
        wanted = Settings(experiment, as_plain_json(asdict(options), "options"), list(units))
        free = getattr(options, "FREE", ())
        if not (self.path / "options.json").exists():
            strange = sorted(
                entry.name
                for entry in self.path.iterdir()
                if entry.name != ".lock" and entry.suffix != TEMPORARY
            )
            if strange:
                raise RunError(
                    f"{self.path} is neither empty nor a run directory: it holds {strange[0]} but "
                    "no options.json"
                )
            write_json(self.path / "options.json", wanted._asdict())
        self._refuse_another_run(wanted, free)
        for folder in (".", "records", "checkpoints", "figures"):
            for leftover in (self.path / folder).glob(f".*{TEMPORARY}"):
                with suppress(OSError):
                    leftover.unlink()

    def _refuse_another_run(self, wanted: Settings, free: Sequence[str]) -> None:
        found = self.settings()
        if found.experiment != wanted.experiment:
            raise RunError(
                f"{self.path} holds a run of {found.experiment}, not of {wanted.experiment}: "
                "choose another directory"
            )
        before, now = found.options, wanted.options
        differing = [
            name
            for name in {**before, **now}
            if before.get(name) != now.get(name) and name not in free
        ]
        changed = [f"{name} = {before.get(name)!r}, now {now.get(name)!r}" for name in differing]
        if changed:
            raise RunError(
                f"{self.path} holds a run with other options ({'; '.join(changed)}): choose "
                "another directory"
            )
        if found.units != wanted.units:
            raise RunError(
                f"{self.path} holds a run with other units, made by another version of the "
                "experiment: choose another directory"
            )

    def settings(self) -> Settings:
        """The experiment, its options and the names of all units."""
        return Settings(
            *read_entries(
                self.path / "options.json",
                experiment=TEXT,
                options=object_of(ANYTHING),
                units=list_of(TEXT),
            )
        )

    def environments(self) -> list[dict[str, str]]:
        """Where the run was started, followed by every other environment it was resumed in."""
        path = self.path / "environment.json"
        [environments] = (
            read_entries(path, environments=list_of(object_of(TEXT))) if path.exists() else [[]]
        )
        return list(environments)

    def note_environment(self, now: dict[str, str]) -> None:
        before = self.environments()
        if now not in before:
            write_json(self.path / "environment.json", {"environments": [*before, now]})

    def _record_path(self, unit: str) -> Path:
        return self.path / "records" / f"{unit}.json"

    def write_record(self, unit: str, record: dict[str, Any]) -> None:
        write_json(
            self._record_path(unit),
            {"unit": unit, "sha256": _checksum(unit, record), "record": record},
            indent=None,
        )

    def read_record(self, unit: str) -> dict[str, Any] | None:
        """The record of a finished unit; None where there is none, or none that can be trusted."""
        path = self._record_path(unit)
        try:
            written = read_file(path) or _unpacked(read_file(path.with_name(f"{path.name}.gz")))
            content = None if written is None else _parsed(written)
        except ValueError:
            return None
        if not isinstance(content, dict):
            return None
        if isinstance(content.get("format"), int) and content["format"] > FORMAT:
            read_json(path)  # says that it is newer
        record = content.get("record")
        return (
            record
            if isinstance(record, dict) and content.get("sha256") == _checksum(unit, record)
            else None
        )

    def records(self) -> dict[str, dict[str, Any]]:
        """Every finished unit's record, in the order of the units."""
        found = {unit: self.read_record(unit) for unit in self.settings().units}
        return {unit: record for unit, record in found.items() if record is not None}

    def timings(self) -> dict[str, float]:
        """Seconds that each finished unit took, with those of earlier attempts that it went on
        from.
        """
        path = self.path / "timings.json"
        [seconds] = read_entries(path, seconds=object_of(DURATION)) if path.exists() else [{}]
        return dict(seconds)

    def note_timing(self, unit: str, seconds: float) -> None:
        write_json(
            self.path / "timings.json", {"seconds": {**self.timings(), unit: round(seconds, 3)}}
        )

    def published(self) -> Published | None:
        """What was written when all units were finished; None before."""
        path = self.path / "tables.json"
        if not path.exists():
            return None
        about, tables = read_entries(path, about=TEXT, tables=list_of(ANYTHING))
        try:
            return Published(about, [Table.from_json(content) for content in tables])
        except ValueError as error:
            raise RunError(f"{path} is damaged: {error}") from None


def _unpacked(archive: bytes | None) -> bytes | None:
    """A record of a committed run, which is compressed; a ValueError if it is damaged."""
    try:
        return None if archive is None else gzip.decompress(archive)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(str(error)) from error


def _checksum(unit: str, record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps([unit, record]).encode()).hexdigest()
