"""Run directories that were edited or damaged by hand: `reproduce` and `report` go on, or say in
one sentence which file is wrong.
"""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_study as tiny
from typer.testing import CliRunner, Result

from diffurn_studies.harness.runner import run

runner = CliRunner()
JSON_FILES = (
    "options.json",
    "environment.json",
    "timings.json",
    "tables.json",
    "records/fast0.json",
)
DEEP = "[" * 100_000
CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "a list": b"[]",
    "a number": b"3",
    "a list with the format": b'[{"format": 1}]',
    "the format alone": b'{"format": 1}',
    "a later format": b'{"format": 2}',
    "a format in words": b'{"format": "one"}',
    "binary": b"\x89PNG\r\n\x1a\n\x00\xff",
    "UTF-16": '{"format": 1}'.encode("utf-16"),
    "deep nesting without an end": DEEP.encode(),
    "deep nesting": b'{"format": 1, "experiment": ' + b"[" * 900 + b"]" * 900 + b"}",
    "a huge number": b'{"format": ' + b"9" * 5000 + b"}",
}
WRONG: tuple[Any, ...] = (
    None,
    3,
    -1.5,
    float("inf"),
    float("nan"),
    True,
    "x",
    "\ud800",
    [],
    {},
    [1],
    [[]],
    ["x"],
    {"x": 1},
    {"x": "y"},
)
WRONG_ENTRIES = 25  # per file, drawn from all combinations of a place and a value


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "tiny"
    run(tiny, tiny.Options().quick(), out, arm="paper")
    return out


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in a JSON value another value can be put."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def with_wrong_entry(content: Any, place: tuple[Any, ...], wrong: Any) -> bytes:
    content = copy.deepcopy(content)
    inner = content
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = wrong
    return json.dumps(content).encode()


def assert_fine_or_one_sentence(result: Result, directory: Path, file: str) -> None:
    """No traceback: success, or exit status 2 and one sentence that names the file, or the
    directory if that belongs to another run.
    """
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(
        result.exception
    )
    if result.exit_code == 0:
        return
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("diffurn: ")
    assert result.stderr.count("\n") == 1
    assert str(directory) in result.stderr
    assert Path(file).name in result.stderr or f"{directory} holds a run " in result.stderr, (
        result.stderr
    )


def check(finished: Path, folder: Path, file: str, damage: Callable[[Path], object]) -> None:
    """Both commands on a damaged copy, each on its own."""
    for number, command in enumerate(
        (["report", "--out", str(folder / "page.html")], ["reproduce", "tiny", "--quick", "--out"])
    ):
        directory = folder / f"run{number}"
        shutil.copytree(finished, directory)
        damage(directory / file)
        assert_fine_or_one_sentence(
            runner.invoke(tiny.APP, [*command, str(directory)]), directory, file
        )
        shutil.rmtree(directory)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("file", JSON_FILES)
def test_a_file_with_other_content_is_named(
    file: str, content: str, finished: Path, tmp_path: Path
) -> None:
    check(finished, tmp_path, file, lambda path: path.write_bytes(CONTENTS[content]))


@pytest.mark.parametrize("file", JSON_FILES)
def test_a_truncated_file_is_named(file: str, finished: Path, tmp_path: Path) -> None:
    whole = (finished / file).read_bytes()
    for length in (1, len(whole) // 3, len(whole) // 2, len(whole) - 3):
        check(
            finished, tmp_path, file, lambda path, length=length: path.write_bytes(whole[:length])
        )


@pytest.mark.parametrize("file", JSON_FILES)
def test_an_entry_of_the_wrong_kind_is_named(file: str, finished: Path, tmp_path: Path) -> None:
    content = json.loads((finished / file).read_bytes())
    every = [(place, wrong) for place in places(content) for wrong in WRONG]
    for place, wrong in random.Random(0).sample(every, min(WRONG_ENTRIES, len(every))):
        damaged = with_wrong_entry(content, place, wrong)
        check(finished, tmp_path, file, lambda path, damaged=damaged: path.write_bytes(damaged))


def as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").touch()


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


@pytest.mark.parametrize("damage", [as_directory, as_pipe, as_loop])
@pytest.mark.parametrize("file", [*JSON_FILES, "figures/values.png"])
def test_something_that_is_no_file_is_named(
    file: str, damage: Callable[[Path], object], finished: Path, tmp_path: Path
) -> None:
    check(finished, tmp_path, file, damage)


@pytest.mark.parametrize("folder", ["records", "figures", "files", "logs", "checkpoints"])
def test_a_file_in_place_of_a_folder_is_named(folder: str, finished: Path, tmp_path: Path) -> None:
    def damage(path: Path) -> None:
        (path.parent / "records" / "steps0.json").unlink()  # so that a unit runs
        shutil.rmtree(path)
        path.write_text("a file")

    check(finished, tmp_path, folder, damage)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04"])
def test_a_checkpoint_that_cannot_be_read_is_named(
    content: bytes, finished: Path, tmp_path: Path
) -> None:
    def damage(path: Path) -> None:
        path.write_bytes(content)
        (path.parents[1] / "records" / "steps0.json").unlink()

    check(finished, tmp_path, "checkpoints/steps0.pt", damage)


def test_a_picture_that_is_none_is_named(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "figures" / "values.png").write_text("a text")
    result = runner.invoke(
        tiny.APP, ["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")]
    )
    assert result.exit_code == 2
    assert "values.png is damaged: it is not a PNG picture" in result.stderr


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("options.json", "[1, 2]", "is not a file of a diffurn run: it states no format version"),
        (
            "options.json",
            '{"format": 1, "experiment": "tiny", "options": [], "units": []}',
            "'options' is [], but must be an object",
        ),
        (
            "options.json",
            '{"format": 1, "experiment": "tiny", "options": {}, "units": 3}',
            "'units' is 3, but must be a list",
        ),
        ("environment.json", '{"format": 1}', "is damaged: it has no 'environments'"),
        (
            "environment.json",
            '{"format": 1, "environments": ' + DEEP,
            "is damaged: its lists or objects are nested too deeply",
        ),
        (
            "timings.json",
            '{"format": 1, "seconds": {"slow": "1 h"}}',
            "'seconds' is {'slow': '1 h'}, but must be an object",
        ),
        (
            "tables.json",
            '{"format": 1, "about": "", "tables": [{"title": 3}]}',
            "is damaged: 'title' is 3, but must be a text",
        ),
    ],
)
def test_the_sentence_says_what_is_wrong(
    file: str, content: str, sentence: str, finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / file).write_text(content)
    result = runner.invoke(
        tiny.APP, ["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")]
    )
    assert result.exit_code == 2
    assert (
        f"{tmp_path / 'run' / file} "
        f"{'' if sentence.startswith('is ') else 'is damaged: '}{sentence}" in result.stderr
    )
    assert not (tmp_path / "page.html").exists()
