"""Which module may import which, and that the pictures of the layers show all modules."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "src" / "diffurn"
STUDIES = ROOT / "studies" / "diffurn_studies"
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that draws the layers from the sources."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("_pages")


def files(folder: Path) -> list[Path]:
    found = [path for path in sorted(folder.rglob("*.py")) if "tests" not in path.parts]
    assert found
    return found


def imported(pages: Any, folder: Path, package: Path) -> Iterator[tuple[str, str]]:
    """Modules under a folder, and the full names that each of them imports."""
    for path in files(folder):
        for each in pages.imports_of(path, package):
            yield pages.module_name(path, package), each.name


def is_in(name: str, modules: tuple[str, ...]) -> bool:
    return any(f"{name}.".startswith(f"{module}.") for module in modules)


# The library.

DISTRIBUTIONS = (
    *("diffurn.fisher", "diffurn.wallenius", "diffurn.partition"),
    *("diffurn._urn", "diffurn._marginals"),
)
ABOVE = (
    *("diffurn.cli", "diffurn.explore", "diffurn.inference", "diffurn.data", "diffurn.nn"),
    "diffurn.jax",
    *("diffurn._dispatch", *DISTRIBUTIONS),
)


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("_numerics", (*ABOVE, "diffurn.estimators", "diffurn._fisher", "diffurn._wallenius")),
        ("_fisher", (*ABOVE, "diffurn.estimators", "diffurn._wallenius", "torch.distributions")),
        ("_wallenius", (*ABOVE, "diffurn.estimators", "torch.distributions")),
        ("_partition", (*ABOVE, "diffurn.estimators", "torch.distributions")),
        ("_kernels", (*ABOVE, "diffurn.estimators", "torch.distributions")),
        ("estimators", (*ABOVE, "torch.distributions")),
        ("nn", ("diffurn.cli", "diffurn.explore", "diffurn.inference", "diffurn.data")),
        ("data", ("diffurn.cli", "diffurn.explore", "diffurn.inference", "diffurn.nn")),
        ("inference", ("diffurn.cli", "diffurn.explore")),
    ],
)
def test_lower_layers_do_not_know_the_upper_ones(
    folder: str, forbidden: tuple[str, ...], pages: Any
) -> None:
    found = {
        (module, name)
        for module, name in imported(pages, LIBRARY / folder, LIBRARY)
        if is_in(name, forbidden)
    }
    assert found == set()


def test_every_layer_imports_only_those_below_it(pages: Any) -> None:
    layers, arrows = pages.architecture()
    order = [layer.name for layer in layers]
    assert len(arrows) > 10
    assert [pair for pair in arrows if order.index(pair[0]) >= order.index(pair[1])] == []


def test_the_library_does_not_import_studies_or_benchmarks(pages: Any) -> None:
    names = [name for _, name in imported(pages, LIBRARY, LIBRARY)]
    assert "torch.Tensor" in names
    assert [name for name in names if is_in(name, ("diffurn_studies", "benchmarks"))] == []


def test_the_interactive_demo_uses_public_names_alone(pages: Any) -> None:
    found = {
        (module, name)
        for module, name in imported(pages, LIBRARY / "explore", LIBRARY)
        if is_in(name, ("diffurn",)) and not is_in(name, (*PUBLIC, "diffurn.explore"))
    }
    assert found == set()


# The studies and the benchmarks are built on the public names of the library.

PUBLIC = (
    "diffurn.data",
    "diffurn.estimators",
    "diffurn.inference",
    "diffurn.jax",
    "diffurn.nn",
    *DISTRIBUTIONS[:3],
)
SHARED = ("diffurn.cli.output", "diffurn.cli.files", "diffurn.__version__", "diffurn.cli.app")
EXCEPTIONS = {
    # a fused training step keeps the tilt of one step for the next
    ("diffurn_studies.clustering.fused", "diffurn._fisher.nodes.Nodes"),
    ("diffurn_studies.clustering.fused", "diffurn._fisher.tilt.log_tilt"),
    # the same sentences about arguments as in the library
    ("diffurn_studies.pairs.scores", "diffurn._validation.require"),
    # gradients of partitions that are drawn by noise of the models' own generators
    ("diffurn_studies.pairs.methods", "diffurn._partition.cuts.given_others"),
    # a type for annotations
    ("benchmarks.cells", "diffurn._urn.Urn"),
}


@pytest.mark.parametrize("folder", [STUDIES, BENCHMARKS], ids=lambda folder: folder.name)
def test_studies_and_benchmarks_use_the_public_names_of_the_library(
    folder: Path, pages: Any
) -> None:
    uses = {
        (module, name)
        for module, name in imported(pages, folder, folder)
        if name.startswith("diffurn.")
    }
    public = {(module, name) for module, name in uses if is_in(name, (*PUBLIC, *SHARED))}
    assert public
    assert uses - public - EXCEPTIONS == set()


def test_every_layer_of_the_studies_imports_only_those_below_it(pages: Any) -> None:
    layers, arrows = pages.architecture(pages.STUDIES, STUDIES)
    order = [layer.name for layer in layers]
    assert ("studies", "harness") in arrows
    assert [pair for pair in arrows if order.index(pair[0]) >= order.index(pair[1])] == []


# The pictures.


@pytest.mark.parametrize("package", ["LIBRARY", "STUDIES"])
def test_the_picture_of_the_layers_shows_each_module_but_arms_once(
    package: str, pages: Any
) -> None:
    folder = {"LIBRARY": LIBRARY, "STUDIES": STUDIES}[package]
    layers, _ = pages.architecture(getattr(pages, package), folder)
    shown = sorted(module for layer in layers for module in layer.modules)
    assert shown == sorted(
        pages.module_name(path, folder).partition(".")[2]
        for path in files(folder)
        if not path.stem.startswith("__") and path.parent.name != "arms"
    )
