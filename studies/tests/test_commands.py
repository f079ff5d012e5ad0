"""`diffurn reproduce` and `diffurn report` where something is missing: a sentence, exit status 2,
and no folder left behind.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from diffurn_studies.harness import engines
from diffurn_studies.harness.machine import usable_device
from support.processes import diffurn_without


def test_a_package_that_a_command_needs_later_is_named(tmp_path: Path) -> None:
    (tmp_path / "options.json").write_text(
        '{"format": 1, "experiment": "ks", "options": {}, "units": []}', encoding="utf-8"
    )
    page = tmp_path / "page.html"
    ended = diffurn_without(["jinja2"], tmp_path, "report", str(tmp_path), "--out", str(page))
    assert ended.status == 2
    assert "this command needs jinja2: pip install diffurn-studies" in ended.errors
    assert not page.exists()


def test_a_machine_without_gpu_is_told_what_to_choose(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["reproduce", "pairs", "--quick", "--device", "cuda", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "diffurn", *command],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert (
        "torch sees no CUDA device: choose cpu, or install a torch that was built for this "
        "machine's GPU" in done.stderr
    )
    assert not out.exists()


def test_a_study_without_a_choice_of_device_says_so(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    ended = diffurn_without([], tmp_path, "reproduce", "ks", "--device", "cuda", "--out", out)
    assert (ended.status, ended.output) == (2, "")
    assert "--device cuda: ks computes on the CPU alone; leave --device out" in ended.errors


@pytest.mark.parametrize("name", ["gpu", "cuda:x", ""])
def test_an_unknown_device_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"there is no device '.*': choose cpu, cuda or cuda:0"):
        usable_device(name)


def test_a_device_that_holds_no_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="the device meta cannot be used"):
        usable_device("meta")


def test_a_missing_engine_is_said_before_a_folder_is_made(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = diffurn_without(
        ["ray"], tmp_path, "reproduce", "ks", "--quick", "--engine", "ray", "--out", str(out)
    )
    assert (ended.status, ended.output, ended.errors.count("\n")) == (2, "", 1)
    assert "the engine ray needs Ray: pip install 'diffurn-studies[cluster]'" in ended.errors
    assert not out.exists()


def test_the_local_engine_needs_nothing() -> None:
    assert engines.named("local") is engines.local
