"""A run directory: the options, records and tables of one study with one set of options.

Each record carries a checksum. A record that was damaged counts as missing, and its unit runs
again. Times and machines are not part of a record, so records of two runs can be compared byte by
byte.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from diffurn.cli.files import TEMPORARY
from diffurn_studies.harness.kinds import (
    ANYTHING,
    DURATION,
    TEXT,
    TEXT_OR_NULL,
    list_of,
    object_of,
)
from diffurn_studies.harness.records import (
    FORMAT,
    RunError,
    as_plain_json,
    parsed,
    read_entries,
    read_file,
    read_json,
    write_json,
)
from diffurn_studies.harness.tables import Table


class Settings(NamedTuple):
    """The run that a directory belongs to: `options.json`.

    Attributes:
        experiment: name of the study.
        arm: name of the arm; None if the options were made in Python.
        options: by name, as plain JSON.
        units: names of all units.
    """

    experiment: str
    arm: str | None
    options: dict[str, Any]
    units: list[str]

    @classmethod
    def of(cls, experiment: str, arm: str | None, options: Any, units: Sequence[str]) -> Settings:
        """The settings of a run about to start.

        An option that is an object, such as a prior, is written as its text, ``str(option)``.
        """
        values = {field.name: _as_text(getattr(options, field.name)) for field in fields(options)}
        return cls(experiment, arm, as_plain_json(values, "options"), list(units))


def _as_text(option: Any) -> Any:
    if isinstance(option, tuple | list):
        return [_as_text(item) for item in option]
    return option if option is None or isinstance(option, str | int | float) else str(option)


class Published(NamedTuple):
    """The outcome of a finished run: `tables.json`.

    Attributes:
        about: a paragraph about the study.
        caution: a sentence above everything else, if the run is a quick one.
        verdict: two or three sentences; none in files of early versions.
        tables: of the study.
        captions: of the figures, in their order; none in files of early versions.
    """

    about: str
    caution: str
    verdict: list[str]
    tables: list[Table]
    captions: dict[str, str]


class RunDirectory:
    """Reads and writes the files of a run directory; `diffurn_studies.harness.runner` lists them.

    Args:
        path: the directory. Nothing is read or written before a method is called.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the directory and keeps other processes out of it. The lock ends with the process,
        even if that is killed.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("a")
        except OSError as error:
            raise RunError(
                f"{self.path} cannot be used as a run directory: {error.strerror or error}"
            ) from error
        with lock:
            # Windows has no fcntl, so there a directory is not locked.
            with suppress(ImportError):
                import fcntl

                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    raise RunError(
                        f"{self.path} is in use by another process: wait for it to end, or "
                        "choose another directory"
                    ) from error
            yield

    def claim(self, wanted: Settings, free: Sequence[str] = ()) -> None:
        """Takes an empty directory for a run, or checks that it holds an earlier part of this run.

        Args:
            wanted: the run.
            free: options that may differ from those of the earlier part.
        """
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
        changed = [
            f"{name} = {before.get(name)!r}, now {now.get(name)!r}"
            for name in {**before, **now}
            if before.get(name) != now.get(name) and name not in free
        ]
        if changed:
            of_arm = "" if found.arm in (None, wanted.arm) else f" of the arm {found.arm}"
            raise RunError(
                f"{self.path} holds a run{of_arm} with other options ({'; '.join(changed)}): "
                "choose another directory"
            )
        if found.units != wanted.units:
            raise RunError(
                f"{self.path} holds a run with other units, made by another version of the "
                "study: choose another directory"
            )

    def settings(self) -> Settings:
        """The run that the directory belongs to. Directories of early versions name no arm."""
        path = self.path / "options.json"
        experiment, options, units = read_entries(
            path, experiment=TEXT, options=object_of(ANYTHING), units=list_of(TEXT)
        )
        [arm] = read_entries(path, arm=TEXT_OR_NULL) if "arm" in read_json(path) else [None]
        return Settings(experiment, arm, options, units)

    def environments(self) -> list[dict[str, str]]:
        """Every environment in which the run was started or resumed, the first one first."""
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
        """The record of a finished unit; None if it is missing or damaged."""
        path = self._record_path(unit)
        try:
            written = read_file(path) or _unpacked(read_file(path.with_name(f"{path.name}.gz")))
            content = None if written is None else parsed(written)
        except ValueError:
            return None
        if not isinstance(content, dict):
            return None
        if isinstance(content.get("format"), int) and content["format"] > FORMAT:
            read_json(path)  # raises the error for newer formats
        record = content.get("record")
        return (
            record
            if isinstance(record, dict) and content.get("sha256") == _checksum(unit, record)
            else None
        )

    def records(self) -> dict[str, dict[str, Any]]:
        """The records of all finished units, in the order of the units."""
        found = {unit: self.read_record(unit) for unit in self.settings().units}
        return {unit: record for unit, record in found.items() if record is not None}

    def timings(self) -> dict[str, float]:
        """Seconds that each finished unit took, over all attempts."""
        path = self.path / "timings.json"
        [seconds] = read_entries(path, seconds=object_of(DURATION)) if path.exists() else [{}]
        return dict(seconds)

    def note_timing(self, unit: str, seconds: float) -> None:
        write_json(
            self.path / "timings.json", {"seconds": {**self.timings(), unit: round(seconds, 3)}}
        )

    def publish(self, outcome: Published) -> None:
        tables = [table.as_json() for table in outcome.tables]
        write_json(self.path / "tables.json", {**outcome._asdict(), "tables": tables})

    def published(self) -> Published | None:
        """The tables of a finished run; None before."""
        path = self.path / "tables.json"
        if not path.exists():
            return None
        about, tables = read_entries(path, about=TEXT, tables=list_of(ANYTHING))
        later = {"caution": TEXT, "verdict": list_of(TEXT), "captions": object_of(TEXT)}
        usual: dict[str, Any] = {"caution": "", "verdict": [], "captions": {}}
        for name, kind in later.items():
            if name in read_json(path):
                [usual[name]] = read_entries(path, **{name: kind})
        try:
            made = [Table.from_json(content) for content in tables]
            return Published(about, tables=made, **usual)
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
