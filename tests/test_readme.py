"""The README: its code runs and prints the output that it shows, and it is short. Tables of results
are up to date.
"""

import contextlib
import io
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
LINK = re.compile(r"\]\((?P<target>[^)#\s]+)[^)]*\)")
CODE_THEN_OUTPUT = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


def test_readme_code_prints_what_the_readme_shows() -> None:
    torch.set_default_dtype(torch.float32)  # as its readers run it
    blocks = list(CODE_THEN_OUTPUT.finditer(README.read_text(encoding="utf-8")))
    assert blocks, "README.md holds no ```python block"
    namespace: dict[str, Any] = {}
    for block in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block["code"], str(README), "exec"), namespace)
        assert printed.getvalue() == (block["output"] or "")


def test_the_readme_is_short_and_shows_code_early() -> None:
    text = README.read_text(encoding="utf-8")
    assert 300 <= len(text.split()) <= 550
    assert len(text[: text.index("```python")].split()) <= 250


PAGES = (
    "docs/reproducing.md",
    "docs/pairs.md",
    "docs/clustering.md",
    "results/README.md",
)


@pytest.mark.parametrize("page", PAGES)
def test_tables_of_results_are_those_of_the_records(page: str) -> None:
    glance = runpy.run_path(str(ROOT / "tools" / "glance.py"))
    (shown,) = glance["BLOCK"].findall((ROOT / page).read_text(encoding="utf-8"))
    assert shown == glance["TABLES"][ROOT / page](), "run `make glance`"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name: str) -> None:
    for target in LINK.findall((ROOT / name).read_text(encoding="utf-8")):
        assert target.startswith("https://") or (ROOT / target).is_file(), (
            f"{name} links to {target}, but there is no such file"
        )
