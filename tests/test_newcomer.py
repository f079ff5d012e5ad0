"""The first minutes with diffurn: an import that brings torch alone and only when it is used, help
that comes at once, and a sentence for everything that is missing.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import diffurn
from diffurn._kernels.library import described, is_switched_off
from diffurn.cli import app, build
from support.processes import Ended, diffurn_without, interruptible

runner = CliRunner()
KERNELS = "with C kernels" if diffurn.native_kernels() else "without C kernels"
if is_switched_off():
    KERNELS = described()
VERSION = f"diffurn {diffurn.__version__}, {KERNELS}\n"
STUDIES = "pip install diffurn-studies, or pip install ./studies in a clone of diffurn"


def loaded_by(code: str, *options: str) -> set[str]:
    """The modules that Python has loaded after it has run the code."""
    report = "; import sys; print('\\n' + ' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, *options, "-c", code + report], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


# The import.


def test_the_import_alone_does_not_load_torch() -> None:
    loaded = loaded_by("import diffurn; diffurn.__version__; dir(diffurn)")
    assert "diffurn" in loaded
    assert {"torch", "diffurn.fisher"} & loaded == set()


def test_all_public_names_bring_torch_and_nothing_else() -> None:
    before = loaded_by("import torch")
    after = loaded_by("import torch; from diffurn import *")
    assert {"diffurn.fisher", "diffurn.inference"} <= after
    brought = {name.partition(".")[0] for name in after - before} - sys.stdlib_module_names
    assert brought == {"diffurn"}
    assert not [name for name in after if name.startswith(("diffurn.cli", "diffurn.explore"))]


def test_every_public_name_is_listed_and_found() -> None:
    assert set(diffurn.__all__) <= set(dir(diffurn))
    for name in diffurn.__all__:
        assert getattr(diffurn, name) is not None
    assert diffurn.inference.fit is diffurn.fit
    assert diffurn.data.example_counts("titanic").groups[-1] == "Crew"


def test_a_misspelt_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'diffurn' has no attribute 'FischerUrn'"):
        diffurn.FischerUrn  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'FischerUrn'"):
        exec("from diffurn import FischerUrn")


def test_an_urn_survives_pickling_into_a_process_that_never_imported_it() -> None:
    urn = diffurn.FisherHypergeometric([3, 5, 4], 5, weights=torch.tensor([1.0, 2.0, 0.5]))
    code = f"import pickle; print(pickle.loads({pickle.dumps(urn)!r}).mean.tolist())"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{urn.mean.tolist()}\n"


def test_the_divergence_of_two_urns_is_registered_with_them() -> None:
    code = (
        "import diffurn, torch; urn = diffurn.FisherHypergeometric([3, 5], 4, weights=[1.0, 2.0]); "
        "print(float(torch.distributions.kl_divergence(urn, urn)))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    assert abs(float(done.stdout)) < 1e-6


# The command.


def test_version_is_printed() -> None:
    result = runner.invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, VERSION)


@pytest.mark.parametrize(
    "command", ["--version", "--help", "fit --help", "sample --help", "explore --help"]
)
def test_help_comes_without_loading_torch(command: str) -> None:
    code = (
        f"import sys; sys.argv = ['diffurn', *{command.split()}]\n"
        "from diffurn.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code\n"
        "import sys"
    )
    loaded = loaded_by(code)
    assert "diffurn" in loaded
    assert "torch" not in loaded


def test_without_extras_a_command_says_what_to_install(tmp_path: Path) -> None:
    ended = diffurn_without(["typer", "rich"], tmp_path, "fit", "counts.csv")
    assert ended == Ended(2, "", "diffurn: this command needs typer: pip install 'diffurn[cli]'\n")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [("explore", "pip install 'diffurn[explore]'"), ("reproduce", STUDIES), ("report", STUDIES)],
)
def test_without_extras_a_command_names_its_own(
    command: str, sentence: str, tmp_path: Path
) -> None:
    ended = diffurn_without(["typer", "rich"], tmp_path, command)
    assert ended == Ended(2, "", f"diffurn: this command needs typer: {sentence}\n")


def test_without_extras_the_version_is_printed(tmp_path: Path) -> None:
    ended = diffurn_without(["typer", "rich"], tmp_path, "--version")
    assert ended == Ended(0, VERSION, "")


# Commands of other packages.


@pytest.mark.parametrize("arguments", [[], ["--help"], ["ks", "--quick", "--seeds", "3"]])
@pytest.mark.parametrize("name", ["reproduce", "report"])
def test_without_the_studies_their_commands_say_how_to_install_them(
    name: str, arguments: list[str]
) -> None:
    result = runner.invoke(build([]), [name, *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"diffurn: {name} needs the paper's studies: {STUDIES}\n"


BROKEN = {
    "module": ("no_such_module:reproduce", "ModuleNotFoundError: No module named 'no_such_module'"),
    "attribute": ("json:no_such_function", "AttributeError: module 'json' has no attribute"),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_a_broken_command_of_another_package_gets_a_sentence(
    case: str, arguments: list[str]
) -> None:
    place, problem = BROKEN[case]
    broken = build([EntryPoint("reproduce", place, "diffurn.commands")])
    result = runner.invoke(broken, ["reproduce", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"diffurn: reproduce cannot be loaded from {place} ({problem}")
    assert result.stderr.endswith("; install the package that provides it again\n")
    assert runner.invoke(broken, ["sample", "--help"]).exit_code == 0


def test_help_lists_all_commands_also_those_that_are_missing() -> None:
    added = EntryPoint("another", "diffurn.cli.explore:command", "diffurn.commands")
    broken = EntryPoint("broken", "no_such_module:f", "diffurn.commands")
    result = runner.invoke(build([added, broken]), ["--help"])
    assert result.exit_code == 0
    for name in ("fit", "sample", "explore", "reproduce", "report", "another", "broken"):
        assert f" {name} " in result.output


# Ctrl-C.

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
    # prints a line when the command line begins to load: before that, Python itself starts
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Watch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'diffurn.cli':\n"
        "            print('loading', flush=True)\n"
        "sys.meta_path.insert(0, Watch())\n"
    )
    (tmp_path / "diffurn").write_text(
        "import sys\nfrom diffurn.__main__ import main\nsys.exit(main())\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(diffurn.__file__).parents[1])])
    command = [sys.executable, *(part.format(folder=tmp_path) for part in STARTS[start])]
    urn = ["--group-sizes", "30,50,40", "--draws", "50", "--weights", "1,2,0.5"]
    endless = ["sample", *urn, "--number", str(10**12), "--out", "/dev/null"]
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


def test_another_program_that_imports_diffurn_keeps_its_own_ctrl_c() -> None:
    code = (
        "import signal, diffurn; diffurn.FisherHypergeometric; "
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    with interruptible(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.communicate(timeout=60)[0] == "True\n"
