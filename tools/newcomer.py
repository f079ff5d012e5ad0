"""Tries a wheel in an empty folder and a fresh environment: alone, then with extras, then with the
studies. Run by `make newcomer`.

Every mistake of a user must end with exit status 2, one sentence that says what to do, and no
traceback.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import urllib.request
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
COUNTS = "m_foxes,x_foxes,m_rabbits,x_rabbits,m_hares,x_hares\n10,3,50,20,30,4\n12,4,44,18,35,3\n"
TABLES = {
    "counts.csv": COUNTS,
    "typo.csv": COUNTS.replace("x_foxes", "x_foxs"),
    "words.csv": COUNTS.replace("10,3", "10,three"),
    "too-many.csv": COUNTS.replace("10,3", "10,30"),
    "empty.csv": "",
}
ALONE = {
    "fit counts.csv": "this command needs typer: pip install 'diffurn[cli]'",
    "explore": "pip install 'diffurn[explore]'",
    "reproduce ks": "pip install diffurn-studies",
}
WITH_COMMANDS = {
    "fit missing.csv": "there is no such file",
    "fit typo.csv": "column 'm_foxes': has no column 'x_foxes' beside it",
    "fit words.csv": "line 2, column 'x_foxes': 'three' is not a number",
    "fit too-many.csv": "30 drawn, but only 10 available",
    "fit empty.csv": "the file is empty",
    "fit counts.csv --reference cats": "the groups are foxes, rabbits, hares",
    "fit counts.csv --covariate age": "neither a column 'age' nor",
    "fit counts.csv --figure picture.bmp": "must end in .png, .svg or .pdf",
    "clogit counts.csv x_foxes~age": "there is no column 'age'",
    "sample --group-sizes 3,x --draws 2 --weights 1,2": "'x' is not a number",
    "explore --no-open": "pip install 'diffurn[explore]'",
    "reproduce ks": "reproduce needs the paper's studies: pip install diffurn-studies",
    "report --help": "report needs the paper's studies: pip install diffurn-studies",
}
WITH_STUDIES = {
    "reproduce kolmogorov": "choose one of ks",
    "reproduce ks --device cuda": "leave --device out",
    "reproduce ks --engine ray": "pip install 'diffurn-studies[cluster]'",
    "report nowhere": "is not a run directory",
}
WITHOUT_GPU = {
    "reproduce pairs --quick --device cuda": "torch sees no CUDA device: choose cpu",
}


class Newcomer:
    """A fresh environment and an empty folder."""

    def __init__(self, place: Path) -> None:
        venv.create(place / "venv", with_pip=True)
        self.bin = place / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
        self.folder = place / "empty"
        self.folder.mkdir()
        for name, text in TABLES.items():
            (self.folder / name).write_text(text, encoding="utf-8")

    def install(self, *packages: str) -> None:
        pip = ["-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
        self._run("python", *pip, *packages, check=True)

    def python(self, code: str) -> str:
        # torch without NumPy warns once
        return self._run("python", "-W", "ignore", "-c", code, check=True).stdout

    def works(self, command: str, *words: str) -> None:
        done = self._run("diffurn", *command.split())
        missing = [word for word in words if word not in done.stdout]
        self._tell(command, done.returncode == 0 and not missing, done)

    def is_refused(self, command: str, sentence: str) -> None:
        done = self._run("diffurn", *command.split())
        said = " ".join(done.stderr.split())
        self._tell(
            command, done.returncode == 2 and sentence in said and "Traceback" not in said, done
        )

    def explores(self) -> None:
        command = [str(self.bin / "diffurn"), "explore", "--no-open", "--port", "0"]
        with subprocess.Popen(
            command,
            cwd=self.folder,
            text=True,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        ) as page:
            try:
                assert page.stdout is not None
                address = re.search(r"http://127\.0\.0\.1:\d+", page.stdout.readline())
                assert address, "the page has no address on this machine alone"
                assert b"<html" in urllib.request.urlopen(address[0], timeout=60).read()
            finally:
                page.terminate()
        print("ok   diffurn explore")

    def _run(
        self, program: str, *arguments: str, check: bool = False
    ) -> subprocess.CompletedProcess[str]:
        command = [str(self.bin / program), *arguments]
        return subprocess.run(
            command,
            cwd=self.folder,
            check=check,
            text=True,
            encoding="utf-8",
            stdout=subprocess.PIPE,
            stderr=None if check else subprocess.PIPE,
        )

    def _tell(self, command: str, fine: bool, done: subprocess.CompletedProcess[str]) -> None:
        print(f"{'ok  ' if fine else 'FAIL'} diffurn {command}")
        if not fine:
            sys.exit(f"exit status {done.returncode}\n{done.stdout}{done.stderr}")


def readme() -> tuple[str, str]:
    """The code of the README, and what it says it prints."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code, output = (
        "\n".join(re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
        for kind in ("python", "text")
    )
    return code, output


def main(wheel: Path, studies: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        newcomer = Newcomer(Path(place))
        library = str(wheel.resolve())
        newcomer.install(library)
        code, output = readme()
        assert newcomer.python(code) == output, "the README's code prints something else"
        print("ok   the README's code, with torch alone")
        newcomer.works("--version", "diffurn ")
        for command, sentence in ALONE.items():
            newcomer.is_refused(command, sentence)
        newcomer.install(f"{library}[cli]")
        newcomer.works("--help", "fit", "sample", "explore", "reproduce", "report")
        newcomer.works(
            "fit counts.csv --reference rabbits --figure importance.png",
            "rabbits",
            "importance.png",
        )
        newcomer.works("fit --example titanic --reference Crew", "5.278")
        for command, sentence in WITH_COMMANDS.items():
            newcomer.is_refused(command, sentence)
        newcomer.install(library, str(studies.resolve()))
        gpu = newcomer.python("import torch; print(torch.cuda.is_available())").strip() == "True"
        for command, sentence in (WITH_STUDIES | ({} if gpu else WITHOUT_GPU)).items():
            newcomer.is_refused(command, sentence)
        newcomer.install(f"{library}[explore]")
        newcomer.explores()
        left = {path.name for path in newcomer.folder.iterdir()} - {*TABLES, "importance.png"}
        assert not left, f"refused commands left {left} behind"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
