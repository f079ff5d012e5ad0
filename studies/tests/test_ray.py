"""The engine `ray`: the same records as in one process, whatever happens to the workers."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_study as tiny
from test_harness import attempts, files, logged
from typer.testing import CliRunner

from diffurn_studies.harness.runner import run

runner = CliRunner()
ray = pytest.importorskip(
    "ray", reason="the engine ray needs Ray: pip install 'diffurn-studies[cluster]'"
)


@pytest.fixture(scope="module", autouse=True)
def workers_find_the_tiny_study() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(tiny.__file__).parent), prepend=os.pathsep)
        yield


@pytest.fixture(scope="class")
def two_workers() -> Iterator[None]:
    try:
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield
    finally:
        ray.shutdown()


def kill_worker_of(unit: str, out: Path, sign: Path) -> None:
    """Kills the process that runs `unit` as soon as `sign` appears."""
    give_up = time.monotonic() + 300  # a busy machine starts its workers slowly
    while not (sign.exists() and attempts(out, unit)) and time.monotonic() < give_up:
        time.sleep(0.005)
    os.kill(attempts(out, unit)[0], signal.SIGKILL)


@pytest.mark.usefixtures("two_workers")
class TestInACluster:
    def test_killed_workers_cost_nothing_but_time(self, tmp_path: Path) -> None:
        """One dies in a unit with checkpoints, one in a unit without."""
        options, out = tiny.Options(pause=0.04), tmp_path / "ray"
        signs = {
            "slow": out / "files" / "slow" / "attempts",
            "steps0": out / "checkpoints" / "steps0.pt",
        }
        killers = [
            threading.Thread(target=kill_worker_of, args=(unit, out, sign))
            for unit, sign in signs.items()
        ]
        for killer in killers:
            killer.start()
        result = runner.invoke(
            tiny.APP,
            [
                "reproduce",
                "tiny",
                "--set",
                "pause=0.04",
                "--engine",
                "ray",
                "--json",
                "--out",
                str(out),
            ],
        )
        for killer in killers:
            killer.join()
        assert result.exit_code == 0, result.output
        rows = json.loads(result.stdout)["tiny"][0][
            "rows"
        ]  # what Ray says about dead workers is elsewhere
        assert [row[0] for row in rows] == tiny.units(options)

        run(tiny, tiny.Options(), tmp_path / "local")
        assert files(out) == files(tmp_path / "local")
        tried = {unit: len(attempts(out, unit)) for unit in tiny.units(options)}
        assert (tried["slow"], tried["steps0"]) == (2, 2)
        assert not any(os.getpid() in attempts(out, unit) for unit in tried)
        for unit in ("steps0", "steps1"):
            assert logged(out, unit, "distance") == logged(tmp_path / "local", unit, "distance")
        assert ray.is_initialized(), "a cluster that was there before stays"

    def test_a_sentence_from_a_worker_reaches_the_user_and_other_records_stay(
        self, tmp_path: Path
    ) -> None:
        out, options = tmp_path / "run", tiny.Options(steps=4)
        run(tiny, options, out)
        whole = files(out)
        (out / "records" / "fast0.json").unlink()
        (out / "records" / "steps0.json").unlink()
        (out / "checkpoints" / "steps0.pt").write_bytes(b"no checkpoint")
        result = runner.invoke(
            tiny.APP,
            ["reproduce", "tiny", "--set", "steps=4", "--out", str(out), "--engine", "ray"],
        )
        assert result.exit_code == 2, result.output
        assert "steps0.pt cannot be read: delete it to start the unit steps0 anew" in " ".join(
            result.stderr.split()
        )
        assert {**whole, **files(out)} == whole


@pytest.mark.slow
def test_the_command_line_starts_a_cluster_and_leaves_none_behind(tmp_path: Path) -> None:
    command = ["reproduce", "tiny", "--quick", "--engine", "ray", "--out", str(tmp_path / "ray")]
    result = runner.invoke(tiny.APP, command)
    assert result.exit_code == 0, result.output
    assert not ray.is_initialized()
    run(tiny, tiny.Options().quick(), tmp_path / "local")
    assert files(tmp_path / "ray") == files(tmp_path / "local")
    assert runner.invoke(tiny.APP, command).stdout == result.stdout


@pytest.mark.parametrize(
    ("address", "reason"),
    [("127.0.0.1:1", "Connection refused"), ("nonsense", "Invalid address format")],
)
def test_a_cluster_that_is_not_there_is_named(address: str, reason: str, tmp_path: Path) -> None:
    result = runner.invoke(
        tiny.APP,
        ["reproduce", "tiny", "--engine", "ray", "--address", address, "--out", str(tmp_path)],
    )
    assert result.exit_code == 2, result.output
    sentence = " ".join(result.stderr.split())
    assert f"no Ray cluster at {address}: " in sentence
    assert reason in sentence


def test_a_missing_ray_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    result = runner.invoke(
        tiny.APP, ["reproduce", "tiny", "--engine", "ray", "--out", str(tmp_path)]
    )
    assert (result.exit_code, "pip install 'diffurn-studies[cluster]'" in result.stderr) == (
        2,
        True,
    )
