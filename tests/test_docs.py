"""The pages of the site, without building it: all of them are in its contents, their links lead to
existing places, and their examples run.
"""

import ast
import builtins
import contextlib
import importlib
import importlib.util
import io
import re
from pathlib import Path
from typing import Any

import pytest
import torch

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
CELL = re.compile(
    r"^```\{code-cell\}[^\n]*\n(?:---\n.*?^---\n|(?::[^\n]*\n)*)(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CONTENTS = re.compile(r"^```\{toctree\}\n(?P<entries>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#{1,3} (?P<text>.+)$", re.MULTILINE)
TARGET = re.compile(r"^\((?P<name>[\w-]+)\)=$", re.MULTILINE)
INCLUDED = re.compile(r"^```\{include\} (?P<path>\S+)$", re.MULTILINE)
# Pages whose examples need a package of an extra.
NEEDS = {"jax": "numpyro"}
# Pages whose examples take more than a few seconds.
SLOW = {"jax", "models"}


def anchors(page: Path) -> set[str]:
    """Named targets, and the anchors that the site makes of headings: lower case, dashes for spaces
    and no punctuation.
    """
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in HEADING.findall(prose)
    }
    return headings | set(TARGET.findall(prose))


def test_every_page_is_in_the_table_of_contents_once() -> None:
    entries = [
        line
        for block in CONTENTS.findall((DOCS / "index.md").read_text(encoding="utf-8"))
        for line in block.splitlines()
    ]
    listed = [line for line in entries if line and not line.startswith((":", "Start <self>"))]
    assert sorted([*listed, "index"]) == sorted(page.stem for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_pictures_lead_somewhere(page: Path) -> None:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in LINK.findall(prose):
        if re.match(r"https?://\S+\.\S+", target):
            continue
        file, _, anchor = target.partition("#")
        place = (page.parent / file).resolve() if file else page
        assert place.is_file(), f"{page.name} links to {target}, but there is no such file"
        assert not anchor or anchor in anchors(place), (
            f"{page.name} links to {target}, but {place.name} has no such heading"
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_included_files_exist(page: Path) -> None:
    for path in INCLUDED.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / path).is_file(), (
            f"{page.name} includes {path}, but there is no such file"
        )


def executed() -> list[Any]:
    pages = [page for page in PAGES if CELL.search(page.read_text(encoding="utf-8"))]
    return [
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if page.stem in SLOW else [])
        for page in pages
    ]


@pytest.mark.parametrize("page", executed())
def test_examples_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = NEEDS.get(page.stem)
    if needed and not importlib.util.find_spec(needed):
        pytest.skip(f"{needed} is not installed: pip install 'diffurn[{page.stem}]'")
    monkeypatch.chdir(DOCS)
    monkeypatch.syspath_prepend(str(DOCS))
    torch.set_default_dtype(torch.float32)  # as its readers run them
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell in CELL.finditer(text):
        line = text.count("\n", 0, cell.start("code"))
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile("\n" * line + cell["code"], str(page), "exec"), namespace)


def visible(page: Path) -> list[str]:
    """The cells of which a reader sees the code, or can unfold it."""
    return [
        cell["code"]
        for cell in CELL.finditer(page.read_text(encoding="utf-8"))
        if not re.search(r"remove-(?:cell|input)", cell[0][: -len(cell["code"])])
    ]


def unbound(cells: list[str]) -> set[str]:
    """The names that the code reads, but that nothing before has bound."""
    known, missing = set(dir(builtins)), set()
    for cell in cells:
        tree = ast.parse(cell)
        bound = {
            name.asname or name.name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in node.names
        }
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        bound |= {node.id for node in names if not isinstance(node.ctx, ast.Load)}
        bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        bound |= {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        known |= bound
        missing |= {node.id for node in names} - known
        missing |= {
            node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("_")
        }
    return missing


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if visible(page) and page.stem != "contributing"],
    ids=lambda page: page.stem,
)
def test_code_that_is_shown_needs_no_code_that_is_hidden(page: Path) -> None:
    assert unbound(visible(page)) == set()


def test_names_that_nothing_binds_are_found() -> None:
    cells = ["import torch as t\nx = t.ones(2)", "print(x, y)\nfrom _pages import table"]
    assert unbound(cells) == {"y", "_pages"}


RATIOS = """
## mean of each urn, Fisher's law

| c | m | B | diffurn, per item | SciPy | torch Binomial |
| --- | --- | --- | --- | --- | --- |
| 2 | 10 | 1 | 9 µs | 1,500 [differs by 3e-02] | 2 |
| 3 | 10⁴ | 1 | 8 µs | 1.5 | – |
| 4 | 10⁴ | 1 | 8 µs | would take years | 0.5 |

## How cost grows

| operation | over | B |
| --- | --- | --- |
| mean | c | 0.5 |
"""


def test_the_table_of_benchmarks_judges_equals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    bench = importlib.import_module("_bench")
    found = [(each.c, each.peer, each.ratio, each.faster) for each in bench._read("CPU", RATIOS)]
    assert found == [
        ("2", "SciPy", "1,500", "–"),  # wrong numbers
        ("2", "torch Binomial", "2", "–"),  # another distribution
        ("3", "SciPy", "1.5", "the peer"),
        ("4", "SciPy", "–", "–"),
        ("4", "torch Binomial", "0.5", "–"),
    ]


@pytest.mark.parametrize("project", ["pyproject.toml", "studies/pyproject.toml"])
def test_every_dependency_is_in_the_list_of_licences(project: str) -> None:
    text = (DOCS.parent / project).read_text(encoding="utf-8")
    dependencies = text.partition("dependencies = ")[2].partition("\n[project.")
    extras = dependencies[2].partition("\n[project.")[0]
    asked = {
        name.lower().replace("_", "-")
        for name in re.findall(r'"([A-Za-z][\w-]*)(?:\[\w+\])?>=', dependencies[0] + extras)
    }
    licences = (DOCS.parent / "THIRD_PARTY.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| ([\w.-]+) \|", licences, re.MULTILINE))
    assert asked & {"torch", "ray"}
    assert asked <= listed, f"run `make licences`: {asked - listed} missing from THIRD_PARTY.md"
