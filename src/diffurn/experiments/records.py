"""What a run leaves on disk: JSON files that are whole or not there, whenever the process is killed, and a lock on their directory.

A file is written under a temporary name, flushed to the disk and renamed, so no reader sees half of it; a record carries a checksum
beside that, so damage from elsewhere counts as "not there" and the unit runs again. Nothing that differs from run to run (times, hosts)
is part of a record.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Version of the files of a run directory; one written by a newer diffurn is refused instead of misread.
FORMAT = 1
_TEMPORARY = ".tmp"


class RunError(ValueError):
    """A run cannot go on, for a reason outside the program; the message is a sentence for the user."""


def as_plain_json(value: Any, what: str) -> Any:
    """`value` as it will be read back: tuples become lists, and what JSON has no word for is an error that says `what` held it."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} must be plain JSON (finite numbers, strings, lists and dicts): {error}") from None


def rounded(values: Any) -> Any:
    """A number, or lists of them, to six digits: enough for any figure, and short."""
    return [rounded(value) for value in values] if isinstance(values, list) else float(f"{values:.6g}")


def write_atomically(path: Path, content: bytes) -> None:
    """The new content or, on any failure, the old one: never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{_TEMPORARY}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise RunError(f"{path} cannot be written: {error.strerror or error}; what was there before is untouched") from error


def _sync_directory(path: Path) -> None:
    """Makes a rename last through a power cut, on systems where directories can be flushed."""
    with suppress(OSError, AttributeError):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_figure(path: Path, figure: Figure) -> None:
    image = io.BytesIO()
    figure.savefig(image, format="png")
    write_atomically(path, image.getvalue())


def write_json(path: Path, content: dict[str, Any], indent: int | None = 1) -> None:
    text = json.dumps({"format": FORMAT, **content}, indent=indent, ensure_ascii=False, allow_nan=False)
    write_atomically(path, (text + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from error
    version = content.get("format") if isinstance(content, dict) else None
    if not isinstance(version, int):
        raise RunError(f"{path} is not a file of a diffurn run: it states no format version")
    if version > FORMAT:
        raise RunError(f"{path} was written by a newer diffurn (format {version}, this one reads up to {FORMAT}): update diffurn")
    return dict(content)


class RunDirectory:
    """One experiment with one set of options: `options.json`, `environment.json`, `records/<unit>.json` and what belongs to them.

    Args:
        path: the directory; nothing is read or written before a method is called.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the directory and keeps other processes out of it; the lock goes with the process, however that ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("a")
        except OSError as error:
            raise RunError(f"{self.path} cannot be used as a run directory: {error.strerror or error}") from error
        with lock:
            with suppress(ImportError):  # there is no flock on Windows; two runs on one directory are the user's business there
                import fcntl

                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    message = f"{self.path} is in use by another process: wait for it to end, or choose another directory"
                    raise RunError(message) from error
            yield

    def claim(self, experiment: str, options: Any, units: Sequence[str]) -> None:
        """Takes an empty directory for this run, or checks that it holds an earlier part of just this run."""
        wanted = {"experiment": experiment, "options": as_plain_json(asdict(options), "options"), "units": list(units)}
        free = getattr(options, "FREE", ())
        if not (self.path / "options.json").exists():
            strange = sorted(entry.name for entry in self.path.iterdir() if entry.name != ".lock" and entry.suffix != _TEMPORARY)
            if strange:
                raise RunError(f"{self.path} is neither empty nor a run directory: it holds {strange[0]} but no options.json")
            write_json(self.path / "options.json", wanted)
        self._refuse_another_run(wanted, free)
        for folder in (".", "records", "checkpoints", "figures"):
            for leftover in (self.path / folder).glob(f".*{_TEMPORARY}"):
                leftover.unlink()

    def _refuse_another_run(self, wanted: dict[str, Any], free: Sequence[str]) -> None:
        found = self.settings()
        if found["experiment"] != wanted["experiment"]:
            raise RunError(f"{self.path} holds a run of {found['experiment']}, not of {wanted['experiment']}: choose another directory")
        before, now = found["options"], wanted["options"]
        differing = [name for name in {**before, **now} if before.get(name) != now.get(name) and name not in free]
        changed = [f"{name} = {before.get(name)!r}, now {now.get(name)!r}" for name in differing]
        if changed:
            raise RunError(f"{self.path} holds a run with other options ({'; '.join(changed)}): choose another directory")
        if found["units"] != wanted["units"]:
            raise RunError(f"{self.path} holds a run with other units, made by another version of the experiment: choose another directory")

    def settings(self) -> dict[str, Any]:
        """`experiment`, `options` and the names of all `units`."""
        content = read_json(self.path / "options.json")
        if not {"experiment", "options", "units"} <= content.keys():
            raise RunError(f"{self.path / 'options.json'} is damaged: it lacks the experiment, its options or its units")
        return content

    def environments(self) -> list[dict[str, str]]:
        """Where the run was started, followed by every other environment it was resumed in."""
        path = self.path / "environment.json"
        return list(read_json(path)["environments"]) if path.exists() else []

    def note_environment(self, now: dict[str, str]) -> None:
        before = self.environments()
        if now not in before:
            write_json(self.path / "environment.json", {"environments": [*before, now]})

    def _record_path(self, unit: str) -> Path:
        return self.path / "records" / f"{unit}.json"

    def write_record(self, unit: str, record: dict[str, Any]) -> None:
        write_json(self._record_path(unit), {"unit": unit, "sha256": _checksum(unit, record), "record": record}, indent=None)

    def read_record(self, unit: str) -> dict[str, Any] | None:
        """The record of a finished unit; None where there is none, or none that can be trusted."""
        path = self._record_path(unit)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror or error}") from error
        if isinstance(content, dict) and isinstance(content.get("format"), int) and content["format"] > FORMAT:
            read_json(path)  # says that it is newer
        try:
            return dict(content["record"]) if content["sha256"] == _checksum(unit, content["record"]) else None
        except (KeyError, TypeError):
            return None

    def records(self) -> dict[str, dict[str, Any]]:
        """Every finished unit's record, in the order of the units."""
        found = {unit: self.read_record(unit) for unit in self.settings()["units"]}
        return {unit: record for unit, record in found.items() if record is not None}

    def timings(self) -> dict[str, float]:
        """Seconds that each finished unit took, with those of earlier attempts that it went on from."""
        path = self.path / "timings.json"
        return dict(read_json(path)["seconds"]) if path.exists() else {}

    def note_timing(self, unit: str, seconds: float) -> None:
        write_json(self.path / "timings.json", {"seconds": {**self.timings(), unit: round(seconds, 3)}})


def _checksum(unit: str, record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps([unit, record]).encode()).hexdigest()
