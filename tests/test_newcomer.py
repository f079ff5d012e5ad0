"""What a stranger meets first: an import that is quick and brings torch alone, and sentences where
something is missing.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import diffurn
from benchmarks import gradients
from diffurn.__main__ import main
from diffurn.cli import app
from diffurn_studies.harness import engines
from diffurn_studies.harness.machine import usable_device
from support.processes import interruptible

runner = CliRunner()


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the extras."""
    for name in [
        name
        for name in sys.modules
        if name.partition(".")[0] in ("typer", "rich") or name.startswith("diffurn.cli")
    ]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("typer", "rich"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_import_brings_nothing_but_the_package_and_the_standard_library() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import diffurn; "
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "diffurn.fisher" in loaded
    assert {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names == {"diffurn"}
    assert not [
        name for name in loaded if re.match(r"diffurn\.(cli|experiments|explore|models|data)", name)
    ]


def test_version_is_printed() -> None:
    result = runner.invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"diffurn {diffurn.__version__}\n")


@pytest.mark.usefixtures("without")
def test_without_extras_a_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["diffurn", "fit", "counts.csv"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr() == (
        "",
        "diffurn: this command needs typer: pip install 'diffurn[experiments]'\n",
    )


@pytest.mark.usefixtures("without")
def test_without_extras_the_page_names_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["diffurn", "explore"])
    with pytest.raises(SystemExit):
        main()
    assert "pip install 'diffurn[explore]'" in capsys.readouterr().err


@pytest.mark.usefixtures("without")
def test_without_extras_the_version_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["diffurn", "--version"])
    main()
    assert capsys.readouterr().out == f"diffurn {diffurn.__version__}\n"


def test_a_package_that_a_command_needs_later_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    (tmp_path / "options.json").write_text(
        '{"format": 1, "experiment": "ks", "options": {}, "units": []}', encoding="utf-8"
    )
    monkeypatch.setattr(
        sys, "argv", ["diffurn", "report", str(tmp_path), "--out", str(tmp_path / "page.html")]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert (
        "this command needs jinja2: pip install 'diffurn[experiments]'" in capsys.readouterr().err
    )


STARTS = {
    # how the command is started: as a module, and by the script that installers write
    "module": ["-m", "diffurn"],
    "script": ["{folder}/diffurn"],
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.5, 1.0, 2.0, 4.0])
def test_ctrl_c_ends_a_command_quietly_at_any_moment(
    start: str, seconds: float, tmp_path: Path
) -> None:
    # says when torch begins to load: before that, it is Python that starts
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            print('loading', flush=True)\n"
        "sys.meta_path.insert(0, Watch())\n"
    )
    (tmp_path / "diffurn").write_text(
        "import sys\nfrom diffurn.__main__ import main\nsys.exit(main())\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(diffurn.__file__).parents[1])])
    command = [sys.executable, *(part.format(folder=tmp_path) for part in STARTS[start])]
    endless = [
        "sample",
        "--group-sizes",
        "30,50,40",
        "--draws",
        "50",
        "--weights",
        "1,2,0.5",
        "--number",
        str(10**12),
        "--out",
        "/dev/null",
    ]
    with interruptible(
        [*command, *endless],
        {**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (130, "", "")


def test_ctrl_c_while_another_program_loads_the_package_is_its_own() -> None:
    code = (
        "import signal, diffurn; print(signal.getsignal(signal.SIGINT) is "
        "signal.default_int_handler)"
    )
    with interruptible([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.communicate(timeout=60)[0] == "True\n"


def refused(*arguments: str) -> str:
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, "one sentence"
    return result.stderr


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("command", ["reproduce pairs --quick", "bench --quick", "bench gradients"])
def test_a_machine_without_gpu_is_told_what_to_choose(command: str, tmp_path: Path) -> None:
    sentence = refused(*command.split(), "--device", "cuda", "--out", str(tmp_path / "out"))
    assert (
        "torch sees no CUDA device: choose cpu, or install a torch that was built for this "
        "machine's GPU" in sentence
    )
    assert not (tmp_path / "out").exists()


def test_a_study_without_a_choice_of_device_says_so() -> None:
    assert "--device cuda: ks computes on the CPU alone; leave --device out" in refused(
        "reproduce", "ks", "--device", "cuda"
    )


@pytest.mark.parametrize("name", ["gpu", "cuda:x", ""])
def test_a_device_that_nobody_knows_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"there is no device '.*': choose cpu, cuda or cuda:0"):
        usable_device(name)


def test_a_device_that_holds_no_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="the device meta cannot be used"):
        gradients.Options(device="meta")


def test_a_missing_engine_is_said_before_a_folder_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    sentence = refused(
        "reproduce", "ks", "--quick", "--engine", "ray", "--out", str(tmp_path / "out")
    )
    assert "the engine ray needs Ray: pip install 'diffurn-studies[cluster]'" in sentence
    assert not (tmp_path / "out").exists()
    assert engines.named("local") is engines.local
