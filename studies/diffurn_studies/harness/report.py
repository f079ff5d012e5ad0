"""The report: one self-contained page of run directories, for screens, phones and paper.

The page is made from the files of the runs alone. So it can show runs of other machines and of
earlier versions.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import diffurn
from diffurn.cli.files import replacing
from diffurn_studies.harness.records import RunError, read_file
from diffurn_studies.harness.run_directory import RunDirectory
from diffurn_studies.harness.tables import Table, duration, text

# Columns with these headings are set apart.
_KINDS = ("paper", "difference")
_PNG = b"\x89PNG\r\n\x1a\n"


class Picture(NamedTuple):
    name: str
    caption: str
    source: str


class ShownTable(NamedTuple):
    """A table as the template takes it: each cell is a text and a CSS class."""

    title: str
    headings: list[tuple[str, str]]
    rows: list[list[tuple[str, str]]]
    notes: Sequence[str]


@dataclass(frozen=True)
class ShownRun:
    """A run directory as the template takes it."""

    anchor: str
    directory: str
    experiment: str
    about: str
    caution: str
    verdict: list[str]
    finished: int
    total: int
    duration: str
    tables: list[ShownTable]
    figures: list[Picture]
    options: list[tuple[str, str]]
    environments: list[dict[str, str]]

    @property
    def is_finished(self) -> bool:
        return self.finished == self.total


def write_report(
    runs: Sequence[Path], out: Path, title: str = "diffurn: reproduced experiments"
) -> None:
    """Writes the page; on failure the old page stays.

    Args:
        runs: run directories, in the order of the page.
        out: the HTML file.
        title: of the page.
    """
    shown = [read_run(path, f"run-{number}") for number, path in enumerate(runs, 1)]
    content = page(shown, title).encode(errors="replace")
    try:
        with replacing(out) as file:
            file.write(content)
    except OSError as error:
        raise RunError(
            f"{out} cannot be written: {error.strerror or error}; what was there before is "
            "untouched"
        ) from error


def page(runs: Sequence[ShownRun], title: str) -> str:
    from jinja2 import Environment, StrictUndefined

    template = (
        resources.files("diffurn_studies.harness")
        .joinpath("report.html.j2")
        .read_text(encoding="utf-8")
    )
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    return environment.from_string(template).render(
        runs=runs, title=title, version=diffurn.__version__
    )


def read_run(path: Path, anchor: str) -> ShownRun:
    """A run directory for the page; an unfinished run has no tables yet."""
    directory = RunDirectory(path)
    if not (path / "options.json").exists():
        inside = [str(each.parent) for each in sorted(path.glob("*/options.json"))]
        hint = f"; give its runs instead: {' '.join(inside[:5])}" if inside else ""
        raise RunError(f"{path} is not a run directory: it has no options.json{hint}")
    settings = directory.settings()
    finished, total = len(directory.records()), len(settings.units)
    published = directory.published() if finished == total else None
    return ShownRun(
        anchor=anchor,
        directory=str(path),
        experiment=settings.experiment,
        about="" if published is None else published.about,
        caution="" if published is None else published.caution,
        verdict=[] if published is None else published.verdict,
        finished=finished,
        total=total,
        duration=duration(sum(directory.timings().values())),
        tables=[] if published is None else [_shown(table) for table in published.tables],
        figures=[] if published is None else list(_pictures(path / "figures", published.captions)),
        options=[
            *([] if settings.arm is None else [("arm", settings.arm)]),
            *((name, _spelled(value)) for name, value in settings.options.items()),
        ],
        environments=directory.environments(),
    )


def _shown(table: Table) -> ShownTable:
    kinds = [_kind(table, column) for column in range(len(table.columns))]
    rows = [list(zip(map(text, row), kinds, strict=True)) for row in table.rows]
    return ShownTable(table.title, list(zip(table.columns, kinds, strict=True)), rows, table.notes)


def _kind(table: Table, column: int) -> str:
    words = ["number"] if table.is_numeric(column) else []
    return " ".join(
        words
        + [kind for kind in _KINDS if re.match(rf"{kind}(?![\w'’])", table.columns[column].lower())]
    )


def _pictures(folder: Path, captions: Mapping[str, str]) -> Iterator[Picture]:
    """The pictures with captions in their order, and then those without."""
    order = list(captions)
    found = {image.stem: image for image in sorted(folder.glob("*.png"))}
    for name in sorted(found, key=lambda name: order.index(name) if name in order else len(order)):
        yield _picture(found[name], captions.get(name, ""))


def _picture(image: Path, caption: str) -> Picture:
    content = read_file(image) or b""
    if not content.startswith(_PNG):
        raise RunError(f"{image} is damaged: it is not a PNG picture")
    return Picture(
        image.stem, caption, f"data:image/png;base64,{base64.b64encode(content).decode()}"
    )


def _spelled(value: Any) -> str:
    """An option as `--set` takes it; an object as JSON."""
    if isinstance(value, list) and not any(isinstance(item, list | dict) for item in value):
        return ", ".join(map(_spelled, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
