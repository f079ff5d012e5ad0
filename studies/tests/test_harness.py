"""The harness: runs that are killed, resumed, refused, and short of space."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tiny_arms
import tiny_study as tiny
import torch
import typer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner

from diffurn_studies.cli import reproduce
from diffurn_studies.harness import settings
from diffurn_studies.harness.arms import Entry
from diffurn_studies.harness.engines import Engine, Job, Outcomes
from diffurn_studies.harness.errors import RunError
from diffurn_studies.harness.machine import commit_of
from diffurn_studies.harness.run_directory import RunDirectory, Settings
from diffurn_studies.harness.runner import read_published, run
from diffurn_studies.harness.workspace import Workspace
from diffurn_studies.registry import STUDIES
from support.processes import interruptible

SCRIPT = [sys.executable, tiny.__file__, "reproduce", "tiny"]
ALONE = {**os.environ, "OMP_NUM_THREADS": "1"}
runner = CliRunner()


def files(directory: Path) -> dict[str, bytes]:
    """Every record, byte by byte."""
    return {path.name: path.read_bytes() for path in sorted((directory / "records").iterdir())}


def attempts(directory: Path, unit: str) -> list[int]:
    with suppress(FileNotFoundError):
        return [int(line) for line in (directory / "files" / unit / "attempts").read_text().split()]
    return []


def logged(directory: Path, unit: str, name: str) -> list[tuple[int, float]]:
    log = EventAccumulator(str(directory / "logs" / unit))
    log.Reload()
    return [(event.step, event.value) for event in log.Scalars(name)]


def wait_until(happened: Callable[[], object], process: subprocess.Popen[Any]) -> None:
    give_up = time.monotonic() + 60
    while not happened():
        assert process.poll() is None, "the run ended before it could be interrupted"
        assert time.monotonic() < give_up, "the run got nowhere within a minute"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def run_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("once") / "run"
    run(tiny, tiny.Options(), out)
    return out


@pytest.fixture
def uninterrupted(run_once: Path, tmp_path: Path) -> Path:
    """A whole run of the default options, for a test to do with as it likes."""
    shutil.copytree(run_once, tmp_path / "whole")
    return tmp_path / "whole"


def in_workspaces(**given: Any) -> Engine:
    """An engine like `local` whose workspaces are made with other arguments."""

    def engine(jobs: Sequence[Job]) -> Outcomes:
        for job in jobs:
            yield job.in_workspace(Workspace(job.run, job.unit, torch.device(job.device), **given))

    return engine


def refused(*arguments: str | Path, app: typer.Typer = tiny.APP) -> str:
    """The sentence with which the command line refuses `arguments`."""
    result = runner.invoke(app, ["reproduce", *map(str, arguments)])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    return " ".join(result.stderr.split())


# --- a run and what it leaves
# --------------------------------------------------------------------------------------------------


def test_a_run_leaves_options_environment_records_tables_and_figures(uninterrupted: Path) -> None:
    directory = RunDirectory(uninterrupted)
    assert directory.settings().options["sizes"] == [3, 1000]
    assert directory.settings().units == ["fast0", "fast1", "fast2", "slow", "steps0", "steps1"]
    [place] = directory.environments()
    assert {"diffurn", "torch", "python", "device"} <= place.keys()
    assert list(directory.records()) == directory.settings().units
    assert directory.timings().keys() == directory.records().keys()
    assert [table.title for table in read_published(uninterrupted).tables] == ["Values <found>"]
    assert (uninterrupted / "figures" / "values.png").read_bytes().startswith(b"\x89PNG")
    assert [step for step, _ in logged(uninterrupted, "steps0", "distance")] == list(range(40))


def test_without_tensorboard_nothing_is_logged_and_all_else_is_the_same(
    uninterrupted: Path, tmp_path: Path
) -> None:
    run(tiny, tiny.Options(), tmp_path / "run", in_workspaces(logs=False))
    assert not (tmp_path / "run" / "logs").exists()
    assert files(tmp_path / "run") == files(uninterrupted)


def test_without_a_directory_the_results_are_the_same_and_nothing_is_kept(
    uninterrupted: Path, tmp_path: Path
) -> None:
    before = set(tmp_path.rglob("*"))
    results = run(tiny, tiny.Options())
    assert results.records == RunDirectory(uninterrupted).records()
    assert set(tmp_path.rglob("*")) == before


def test_a_run_depends_on_no_state_of_the_process_and_changes_none(
    uninterrupted: Path, tmp_path: Path
) -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    try:
        torch.set_num_threads(threads + 1)
        run(tiny, tiny.Options(), tmp_path / "more threads")
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    assert torch.get_default_dtype() == torch.float64
    assert torch.equal(torch.get_rng_state(), state)
    assert files(tmp_path / "more threads") == files(uninterrupted)
    assert RunDirectory(uninterrupted).records()["fast0"]["threads"] == 1


def test_progress_counts_units_and_names_the_next_one(tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    options = tiny.Options(seeds=1, steps=2)
    run(tiny, options, tmp_path, progress=lambda *told: seen.append(told))
    assert seen == [(0, 4, "fast0"), (1, 4, "slow"), (2, 4, "steps0"), (3, 4, "steps1"), (4, 4, "")]
    seen.clear()
    run(tiny, options, tmp_path, progress=lambda *told: seen.append(told))
    assert seen == [(4, 4, "")]


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_is_found_by_its_name_and_has_the_papers_arm(name: str) -> None:
    entry = STUDIES[name]
    assert name == entry.load().NAME
    assert entry.arm_names()[0] == "paper"
    for arm in entry.arm_names():
        assert entry.about(arm)
        assert entry.load().units(entry.options(arm))


# --- killed and resumed
# --------------------------------------------------------------------------------------------------


def test_a_run_killed_often_ends_with_the_records_of_a_whole_run(
    uninterrupted: Path, tmp_path: Path
) -> None:
    """Three SIGKILLs and a Ctrl-C: in a unit without checkpoints, twice in one with them, and in
    the last one.
    """
    out, moments = tmp_path / "killed", random.Random(20)
    checkpoint = out / "checkpoints" / "steps0.pt"
    finished: dict[str, tuple[bytes, int]] = {}

    def start() -> AbstractContextManager[subprocess.Popen[bytes]]:
        command = [*SCRIPT, "--out", str(out), "--set", "pause=0.04"]
        return interruptible(command, env=ALONE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def interrupt(signal_number: int, sign: Callable[[], object]) -> tuple[int, str]:
        with start() as process:
            wait_until(sign, process)
            time.sleep(moments.uniform(0, 0.3))
            process.send_signal(signal_number)
            _, errors = process.communicate()
        finished.update(
            {
                name: (content, len(attempts(out, Path(name).stem)))
                for name, content in files(out).items()
            }
        )
        return process.returncode, errors.decode()

    assert interrupt(signal.SIGKILL, lambda: attempts(out, "slow"))[0] == -signal.SIGKILL
    assert len(finished) >= 3
    assert interrupt(signal.SIGKILL, checkpoint.exists)[0] == -signal.SIGKILL
    first = checkpoint.read_bytes()
    assert interrupt(signal.SIGKILL, lambda: checkpoint.read_bytes() != first)[0] == -signal.SIGKILL
    status, errors = interrupt(signal.SIGINT, lambda: attempts(out, "steps1"))
    assert (status, "Traceback" in errors) == (130, False)
    assert "the same command goes on" in errors
    with start() as process:
        wait_until(lambda: len(attempts(out, "steps1")) == 2, process)
        with pytest.raises(RunError, match="in use by another process"):
            run(tiny, tiny.Options(pause=0.04), out)
        _, last_words = process.communicate()
    assert process.returncode == 0, last_words.decode()

    assert files(out) == files(uninterrupted)
    assert {
        name: (files(out)[name], len(attempts(out, Path(name).stem))) for name in finished
    } == finished, "a finished unit ran again"
    assert len(attempts(out, "steps0")) == 3
    assert not list(out.rglob("*.tmp"))
    for unit in ("steps0", "steps1"):
        assert logged(out, unit, "distance") == logged(uninterrupted, unit, "distance")
        assert len(list((out / "logs" / unit).iterdir())) == 1


def test_a_unit_that_fails_leaves_earlier_records_and_can_run_again(
    uninterrupted: Path, tmp_path: Path
) -> None:
    def fail_in_steps1(options: tiny.Options, unit: str, workspace: Workspace) -> dict[str, Any]:
        if unit == "steps1":
            raise ZeroDivisionError("as it happens")
        return tiny.run_unit(options, unit, workspace)

    with pytest.raises(ZeroDivisionError):
        run(tiny.Changed(run_unit=fail_in_steps1), tiny.Options(), tmp_path / "again")
    assert len(files(tmp_path / "again")) == 5
    assert not (tmp_path / "again" / "tables.json").exists()
    run(tiny, tiny.Options(), tmp_path / "again")
    assert files(tmp_path / "again") == files(uninterrupted)


def test_a_part_of_a_record_never_counts_as_a_record(tmp_path: Path) -> None:
    directory, record = RunDirectory(tmp_path), {"value": 0.1, "of": ["ω", None, True, 10**30]}
    directory.write_record("one", record)
    [path] = (tmp_path / "records").iterdir()
    whole = path.read_bytes()
    assert directory.read_record("one") == record
    for length in range(len(whole) - 1):  # the last byte is a newline
        path.write_bytes(whole[:length])
        assert directory.read_record("one") is None
    for damaged in (
        whole.replace(b"0.1", b"0.2"),
        b"\x00" * len(whole),
        b"[]",
        b'{"format": 1}',
        b"3",
    ):
        path.write_bytes(damaged)
        assert directory.read_record("one") is None
    path.rename(path.with_name("other.json")).write_bytes(whole)
    assert directory.read_record("other") is None, "a record under another unit's name"


def test_a_damaged_record_is_made_again(uninterrupted: Path) -> None:
    before = files(uninterrupted)
    (uninterrupted / "records" / "fast1.json").write_bytes(before["fast1.json"][:40])
    (uninterrupted / "records" / ".fast1.json.1.tmp").write_bytes(before["fast1.json"][:40])
    run(tiny, tiny.Options(), uninterrupted)
    assert files(uninterrupted) == before
    assert [len(attempts(uninterrupted, unit)) for unit in ("fast0", "fast1", "steps0")] == [
        1,
        2,
        1,
    ]


def test_the_seconds_of_a_unit_are_those_of_all_its_attempts(tmp_path: Path) -> None:
    now = [0.0]

    def stops_twice(options: tiny.Options, unit: str, workspace: Workspace) -> dict[str, Any]:
        stops = (workspace.load_checkpoint() or {"stops": 0})["stops"]
        now[0] += 10
        if stops < 2:
            workspace.save_checkpoint({"stops": stops + 1})
            raise RunError("the time is used up")
        return {"value": 1.0}

    study = tiny.Changed(units=lambda options: ["one"], run_unit=stops_twice)
    engine = in_workspaces(clock=lambda: now[0])
    for _ in range(2):
        with pytest.raises(RunError, match="used up"):
            run(study, tiny.Options(), tmp_path, engine)
    run(study, tiny.Options(), tmp_path, engine)
    assert RunDirectory(tmp_path).timings() == {"one": 30.0}


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "one.pt").write_bytes(b"no checkpoint")
    workspace = Workspace(tmp_path, "one", torch.device("cpu"))
    with pytest.raises(
        RunError, match=r"one\.pt cannot be read: delete it to start the unit one anew"
    ):
        workspace.load_checkpoint()


@pytest.mark.parametrize("value", [float("nan"), torch.ones(1), {1, 2}])
def test_a_record_that_is_not_plain_json_is_refused_by_its_unit(
    value: object, tmp_path: Path
) -> None:
    study = tiny.Changed(run_unit=lambda *_: {"value": value})
    with pytest.raises(ValueError, match="the record of unit fast0 must be plain JSON"):
        run(study, tiny.Options(), tmp_path)
    assert not (tmp_path / "records").exists()


@pytest.mark.parametrize("units", [["../up"], ["a b"], [""], ["same", "same"], [".hidden"]])
def test_units_that_cannot_be_file_names_are_refused(units: list[str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"file name|different names"):
        run(tiny.Changed(units=lambda options: units), tiny.Options(), tmp_path / "out")
    assert not list(tmp_path.rglob("*.json"))


def test_a_run_resumed_elsewhere_remembers_both_environments(uninterrupted: Path) -> None:
    here = RunDirectory(uninterrupted).environments()[0]
    elsewhere = {**here, "torch": "9.9"}
    rewrite(uninterrupted / "environment.json", environments=[elsewhere])
    run(tiny, tiny.Options(), uninterrupted)
    run(tiny, tiny.Options(), uninterrupted)
    assert RunDirectory(uninterrupted).environments() == [elsewhere, here]


def test_the_commit_is_that_of_the_file_not_of_a_surrounding_project(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    (tmp_path / "tracked.py").write_text("pass\n")
    (tmp_path / "untracked.py").write_text("pass\n")
    git("init", "--quiet")
    git("add", "tracked.py")
    git("commit", "--quiet", "--message", "one")
    git("tag", "v1")
    assert commit_of(tmp_path / "tracked.py") == git("rev-parse", "HEAD")
    assert commit_of(tmp_path / "untracked.py") is None
    (tmp_path / "tracked.py").write_text("changed\n")
    assert commit_of(tmp_path / "tracked.py") == git("rev-parse", "HEAD") + "-dirty"


# --- refused
# --------------------------------------------------------------------------------------------------


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("spoil", "arguments", "sentence"),
    [
        (
            lambda out: None,
            ["--set", "scale=2"],
            "holds a run with other options (scale = 1.0, now 2.0)",
        ),
        (
            lambda out: rewrite(out / "options.json", experiment="ks"),
            [],
            "holds a run of ks, not of tiny",
        ),
        (
            lambda out: rewrite(out / "options.json", units=["x"]),
            [],
            "holds a run with other units",
        ),
        (
            lambda out: rewrite(out / "options.json", format=99),
            [],
            "options.json was written by a newer diffurn (format 99",
        ),
        (
            lambda out: rewrite(out / "records" / "slow.json", format=99),
            [],
            "slow.json was written by a newer diffurn (format 99",
        ),
        (lambda out: (out / "options.json").write_text("{"), [], "options.json is damaged"),
        (
            lambda out: (out / "options.json").write_text("{}"),
            [],
            "options.json is not a file of a diffurn run",
        ),
        (
            lambda out: (out / "options.json").write_text('{"format": 1}'),
            [],
            "options.json is damaged: it has no 'experiment'",
        ),
        (lambda out: (out / "options.json").unlink(), [], "is neither empty nor a run directory"),
        (
            lambda out: None,
            ["--device", "cuda:77"],
            "torch sees no CUDA device" if not torch.cuda.is_available() else "cannot be used",
        ),
    ],
)
def test_a_directory_of_another_run_is_refused_and_left_alone(
    spoil: Callable[[Path], object], arguments: list[str], sentence: str, uninterrupted: Path
) -> None:
    spoil(uninterrupted)
    before = {path: path.read_bytes() for path in uninterrupted.rglob("*") if path.is_file()}
    assert sentence in refused("tiny", "--out", uninterrupted, *arguments)
    assert {
        path: path.read_bytes() for path in uninterrupted.rglob("*") if path.is_file()
    } == before


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "cannot be used as a run directory: Not a directory" in refused(
        "tiny", "--out", tmp_path / "file" / "below"
    )
    assert "cannot be used as a run directory: File exists" in refused(
        "tiny", "--out", tmp_path / "file"
    )
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(
    hasattr(os, "geteuid") and os.geteuid() == 0, reason="permissions do not bind root"
)
def test_a_directory_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    assert "Permission denied" in refused("tiny", "--out", tmp_path / "below")


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with RunDirectory(tmp_path).locked():
        assert "is in use by another process" in refused("tiny", "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_an_unknown_study_is_refused_with_the_known_ones() -> None:
    assert refused("kss") == "diffurn: there is no study 'kss': choose one of tiny, or all"


def test_an_unknown_arm_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    sentence = refused("tiny", "--arm", "long-walk", "--out", tmp_path / "out")
    assert sentence == "diffurn: there is no arm 'long-walk': choose one of paper, short-walk"
    assert not (tmp_path / "out").exists()


def test_an_arm_is_of_one_study() -> None:
    assert "an arm belongs to one study" in refused("all", "--arm", "short-walk")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "seeds"], "--set takes name=value, not 'seeds'"),
        (["--set", "sedes=3"], "there is no option 'sedes': choose one of seeds, steps, pause"),
        (["--set", "seeds=three"], "the option seeds is 'three', but must be a whole number"),
        (["--set", "seeds=1.5"], "must be a whole number"),
        (["--set", "scale=wide"], "must be a number"),
        (["--set", "sizes=1,b"], "the option sizes is '1,b', but must be a whole number"),
        (["--set", "sizes=[1"], "must be a list such as 1,2,3"),
        (["--set", "law=cauchy"], "must be one of normal, uniform"),
        (["--set", "loud=perhaps"], "must be true or false"),
        (["--set", "limit=x"], "must be a whole number or none"),
        (["--set", "label=2"], "the option label cannot be set on the command line: choose an arm"),
        (["--set", "steps=0"], "steps is 0, but must be at least 1"),
        (["--set", "device=toaster"], "there is no device 'toaster'"),
        (["--engine", "steam"], "there is no engine 'steam': choose local or ray"),
        (["--address", "auto"], "an address is for the ray engine"),
    ],
)
def test_bad_options_are_refused_in_a_sentence(
    arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    assert sentence in refused("tiny", "--out", tmp_path / "out", *arguments)
    assert not (tmp_path / "out" / "options.json").exists()


def test_every_kind_of_option_can_be_set() -> None:
    texts = {
        "seeds": "1_000",
        "pause": "1e-3",
        "sizes": "[4, 5]",
        "law": "uniform",
        "loud": "yes",
        "limit": "7",
        "device": "cuda",
    }
    expected = tiny.Options(
        seeds=1000, pause=0.001, sizes=(4, 5), law="uniform", loud=True, limit=7, device="cuda"
    )
    assert settings.with_settings(tiny.Options(), texts) == expected
    assert settings.with_settings(
        expected, {"limit": "none", "sizes": "", "loud": "false"}
    ) == tiny.Options(seeds=1000, pause=0.001, sizes=(), law="uniform", device="cuda")


# --- no space left
# --------------------------------------------------------------------------------------------------


def test_a_full_disk_ends_the_run_with_a_sentence_and_loses_nothing(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, whole = tmp_path / "full", os.fsync
    written: list[int] = []

    def fill_up(handle: int) -> None:
        written.append(handle)
        if len(written) > 12:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(handle)

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fill_up)
        sentence = refused("tiny", "--out", out)
    assert "cannot be written: No space left on device; " in sentence
    assert "what was there before is untouched" in sentence
    kept = files(out)
    assert 0 < len(kept) < 6
    assert not list(out.rglob("*.tmp"))
    run(tiny, tiny.Options(), out)
    assert files(out) == files(uninterrupted)
    assert {name: files(out)[name] for name in kept} == kept


def test_a_real_full_file_system_ends_the_run_with_a_sentence(
    uninterrupted: Path, tmp_path: Path
) -> None:
    if (
        shutil.which("unshare") is None
        or subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", tmp_path]).returncode
    ):
        pytest.skip("a small file system of its own needs unshare (util-linux) and user namespaces")
    (tmp_path / "small").mkdir()
    mount = f"mount -t tmpfs -o size=96k none {tmp_path}/small"
    steps = [
        mount,
        f"{' '.join(SCRIPT)} --out {tmp_path}/small/run",
        "status=$?",
        f"cp -r {tmp_path}/small/run {tmp_path}/copy",
        "exit $status",
    ]
    result = subprocess.run(
        ["unshare", "-rm", "sh", "-c", "; ".join(steps)], env=ALONE, capture_output=True, text=True
    )
    assert result.returncode == 2, result.stderr
    assert "No space left on device" in result.stderr
    assert "Traceback" not in result.stderr
    kept = files(tmp_path / "copy")
    assert kept
    run(tiny, tiny.Options(), tmp_path / "copy")
    assert files(tmp_path / "copy") == files(uninterrupted)


def test_a_limit_on_file_sizes_ends_the_run_with_a_sentence(
    uninterrupted: Path, tmp_path: Path
) -> None:
    command = f"ulimit -f 4; exec {' '.join(SCRIPT)} --out {tmp_path}/run"
    result = subprocess.run(["bash", "-c", command], env=ALONE, capture_output=True, text=True)
    assert result.returncode == 2, result.stderr
    assert "File too large" in result.stderr
    assert "Traceback" not in result.stderr
    assert len(files(tmp_path / "run")) >= 4
    run(tiny, tiny.Options(), tmp_path / "run")
    assert files(tmp_path / "run") == files(uninterrupted)


# --- the command line
# --------------------------------------------------------------------------------------------------


def test_reproduce_prints_tables_and_says_where_everything_is(tmp_path: Path) -> None:
    result = runner.invoke(
        tiny.APP,
        [
            "reproduce",
            "tiny",
            "--quick",
            "--seeds",
            "2",
            "--device",
            "cpu",
            "--out",
            str(tmp_path / "new" / "run"),
        ],
    )
    assert result.exit_code == 0, result.output
    assert "Values <found>" in result.stdout
    assert "fast1" in result.stdout
    assert "fast2" not in result.stdout
    assert str(tmp_path / "new" / "run") in result.stdout
    assert "values.png" in result.stdout
    assert RunDirectory(tmp_path / "new" / "run").settings().options["steps"] == 10


def test_reproduce_prints_json_for_machines_and_nothing_else(uninterrupted: Path) -> None:
    result = runner.invoke(tiny.APP, ["reproduce", "tiny", "--out", str(uninterrupted), "--json"])
    assert result.exit_code == 0, result.output
    [table] = json.loads(result.stdout)["tiny"]
    found = RunDirectory(uninterrupted).records()
    assert [row[:2] for row in table["rows"]] == [
        [unit, record["value"]] for unit, record in found.items()
    ]


def test_all_runs_every_study_in_a_folder_of_its_own(tmp_path: Path) -> None:
    command = ["reproduce", "all", "--quick", "--set", "steps=3", "--out", str(tmp_path)]
    result = runner.invoke(tiny.APP, command)
    assert result.exit_code == 0, result.output
    assert RunDirectory(tmp_path / "tiny-quick").settings().options["steps"] == 3
    assert "there is no option 'stairs'" in refused("all", "--set", "stairs=3")


def test_without_a_study_the_studies_and_arms_are_listed() -> None:
    listed = runner.invoke(tiny.APP, ["reproduce"])
    assert listed.exit_code == 0
    lines = [
        "Studies, the arms of each, and the options that --set takes:",
        "",
        "  tiny",
        "    --arm paper       Forty steps",
        "    --arm short-walk  Two steps and one seed",
    ]
    assert listed.stdout.splitlines() == lines
    helped = runner.invoke(tiny.APP, ["reproduce", "--help"])
    assert all(line.strip() in helped.stdout for line in lines)


def test_a_run_directory_remembers_its_arm_and_is_resumed_by_it(
    tmp_path: Path,
) -> None:
    out = tmp_path / "run"
    command = ["reproduce", "tiny", "--arm", "short-walk", "--set", "scale=2", "--out", str(out)]
    assert runner.invoke(tiny.APP, command).exit_code == 0
    found = RunDirectory(out).settings()
    assert found.arm == "short-walk"
    assert (found.options["seeds"], found.options["steps"], found.options["scale"]) == (1, 2, 2.0)
    assert found.options["label"] == "1j"
    assert runner.invoke(tiny.APP, command).exit_code == 0
    assert len(attempts(out, "fast0")) == 1, "a finished unit ran again"
    assert "holds a run of the arm short-walk with other options" in refused("tiny", "--out", out)


def test_quick_and_settings_apply_on_top_of_an_arm(tmp_path: Path) -> None:
    command = ["reproduce", "tiny", "--arm", "short-walk", "--quick", "--set", "steps=3"]
    assert runner.invoke(tiny.APP, [*command, "--out", str(tmp_path / "run")]).exit_code == 0
    found = RunDirectory(tmp_path / "run").settings().options
    assert (found["seeds"], found["steps"]) == (1, 3)


def test_a_quick_run_has_a_folder_of_its_own_and_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole, quick = (
        runner.invoke(tiny.APP, ["reproduce", "tiny", "--set", "steps=2", *more])
        for more in ([], ["--quick"])
    )
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["tiny", "tiny-quick"]
    told = "Its figures are no verdict on any claim."
    assert (told in quick.stdout, told in whole.stdout) == (True, False)
    assert "Outcome of the quick run" in quick.stdout
    cautions = [
        json.loads((tmp_path / "runs" / name / "tables.json").read_text())["caution"]
        for name in ("tiny", "tiny-quick")
    ]
    assert [told in caution for caution in cautions] == [False, True]
    for_machines = runner.invoke(
        tiny.APP, ["reproduce", "tiny", "--set", "steps=2", "--quick", "--json"]
    )
    assert json.loads(for_machines.stdout)["tiny"]
    assert told in for_machines.stderr


def test_a_run_ends_with_its_verdict_and_the_places_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = runner.invoke(tiny.APP, ["reproduce", "tiny", "--set", "steps=2"]).stdout
    end = shown[shown.index("Verdict") :].splitlines()
    assert end[1] == "The tiny study has 6 values <found>."
    assert str(Path("runs/tiny/figures/values.png")) in end
    assert f"diffurn report {Path('runs/tiny')}  # tables and figures on one page" in end


def test_tables_of_an_early_version_have_no_verdict(uninterrupted: Path) -> None:
    path = uninterrupted / "tables.json"
    content = json.loads(path.read_text())
    for name in ("caution", "verdict", "captions"):
        del content[name]
    path.write_text(json.dumps(content))
    found = RunDirectory(uninterrupted).published()
    assert found is not None
    assert (found.caution, found.verdict, found.captions) == ("", [], {})
    assert found.tables[0].title == "Values <found>"


def test_files_and_pipes_get_lines_of_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([0.0, 1.0, 12.0, 13.0, 60.0, 90.0])
    monkeypatch.setattr(reproduce.time, "monotonic", lambda: next(times))
    tell = reproduce._lines("tiny")
    for done, unit in ((0, "a"), (1, "b"), (2, "c"), (2, "c"), (3, "")):
        tell(done, 3, unit)
    assert capsys.readouterr().err.splitlines() == [
        "tiny: 1 of 3 units after 12 seconds; next: b",
        "tiny: 2 of 3 units after 60 seconds; next: c",
        "tiny: 3 of 3 units after 90 seconds",
    ]


def test_the_list_of_studies_fits_into_eighty_columns() -> None:
    lines = "\n".join(reproduce.listing(STUDIES)).splitlines()
    assert max(map(len, lines)) <= 78
    assert all(not line or line.startswith("  ") for line in lines[1:])


@pytest.mark.parametrize("name", STUDIES)
def test_the_list_of_studies_names_every_option_of_every_arm(name: str) -> None:
    entry = STUDIES[name]
    named = {
        option for arm in entry.arm_names() for option in settings.field_names(entry.options(arm))
    }
    assert entry.summary()
    assert set(entry.settings()) == named


def test_a_directory_of_an_early_version_names_no_arm_and_is_resumed(uninterrupted: Path) -> None:
    content = json.loads((uninterrupted / "options.json").read_text())
    del content["arm"]
    (uninterrupted / "options.json").write_text(json.dumps(content))
    result = runner.invoke(tiny.APP, ["reproduce", "tiny", "--out", str(uninterrupted)])
    assert result.exit_code == 0, result.output
    assert len(attempts(uninterrupted, "fast0")) == 1


@dataclass(frozen=True)
class WithPrior:
    prior: tuple[complex, ...] = (1j, 2.0)
    rate: float = 0.5


def test_options_that_are_objects_are_written_as_their_text() -> None:
    found = Settings.of("tiny", None, WithPrior(), ["one"])
    assert found.options == {"prior": ["1j", 2.0], "rate": 0.5}


def test_a_missing_package_is_named() -> None:
    def load() -> Any:
        raise ModuleNotFoundError("no module", name="a_package_that_is_not_there")

    app = tiny.command_line({"more": Entry(load, tiny_arms)})
    sentence = "the study more needs a_package_that_is_not_there: pip install diffurn-studies"
    assert sentence in refused("more", app=app)
