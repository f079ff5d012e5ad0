"""Which layer of the package may import which, and that the site's picture of them shows all
modules.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

import pytest

import diffurn

PACKAGE = Path(diffurn.__file__).parent
DOCS = Path(__file__).parents[1] / "docs"


def imports_of(path: Path) -> set[str]:
    """Absolute names of all modules, and of the names taken from them, that a file imports."""
    module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    package = (
        module.removesuffix(".__init__") if path.stem == "__init__" else module.rpartition(".")[0]
    )
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = (
                package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            )
            base = ".".join([*above, *([node.module] if node.module else [])])
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("exact", r"torch.distributions"),
        ("exact", r"diffurn.fisher"),
        ("exact", r"diffurn._kl"),
        ("exact", r"diffurn._constraints"),
        ("exact", r"diffurn.estimators"),
        ("estimators", r"diffurn.fisher"),
        ("estimators", r"diffurn._kl"),
    ],
)
def test_lower_layers_do_not_know_the_upper_ones(folder: str, forbidden: str) -> None:
    files = sorted((PACKAGE / folder).rglob("*.py"))
    assert files
    knowing = {
        path.name
        for path in files
        for name in imports_of(path)
        if name == forbidden or name.startswith(forbidden + ".")
    }
    assert knowing == set()


@pytest.mark.parametrize("folder", ["exact", "estimators"])
def test_lower_layers_do_not_import_the_package_itself(folder: str) -> None:
    # `from diffurn import …` would reach everything
    allowed = ("diffurn._fisher", "diffurn.estimators")
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        ours = {
            name for name in imports_of(path) if name == "diffurn" or name.startswith("diffurn.")
        }
        assert {name for name in ours if not name.startswith(allowed)} == set(), path.name


@pytest.fixture
def picture(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[list[tuple[str, str, list[str]]], list[tuple[str, str]]]:
    """Layers with their modules, and arrows between them, as the site draws them from the
    sources.
    """
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("_pages").architecture()


def test_every_layer_imports_only_those_below_it(picture: Any) -> None:
    layers, arrows = picture
    order = [name for name, _, _ in layers]
    assert [
        (source, target) for source, target in arrows if order.index(source) >= order.index(target)
    ] == []


def test_the_picture_of_the_layers_shows_every_module_once(picture: Any) -> None:
    shown = sorted(f"{name}.{module}" for name, _, modules in picture[0] for module in modules)
    paths = [
        path.relative_to(PACKAGE).with_suffix("").parts
        for path in PACKAGE.rglob("*.py")
        if not path.stem.startswith("__")
    ]
    assert shown == sorted(
        ".".join(parts if len(parts) > 1 else ("distributions", *parts)) for parts in paths
    )
