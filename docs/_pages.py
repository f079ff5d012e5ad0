"""Contents of pages besides pictures: tables of results, commands with their output, and the layers
of the two packages.
"""

from __future__ import annotations

import ast
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import diffurn
from diffurn_studies.harness.tables import Table, text

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Markdown:
    """Text that a page shows as Markdown."""

    text: str

    def _repr_markdown_(self) -> str:
        return self.text


def results(folder: str) -> dict[str, Table]:
    """Tables of a folder of `results/`, by their titles."""
    content = json.loads((ROOT / "results" / folder / "tables.json").read_text(encoding="utf-8"))
    return {table["title"]: Table.from_json(table) for table in content["tables"]}


def with_rows(table: Table, **values: str) -> Table:
    """The rows with these values in the columns of these names, without these columns."""
    kept = [place for place, name in enumerate(table.columns) if name not in values]
    chosen = [
        row
        for row in table.rows
        if all(row[table.columns.index(name)] == value for name, value in values.items())
    ]
    return replace(
        table,
        columns=[table.columns[place] for place in kept],
        rows=[[row[place] for place in kept] for row in chosen],
    )


def as_markdown(table: Table, notes: bool = True) -> Markdown:
    """A table of a study as the page shows it, without columns that hold dashes alone; without
    notes where the page has them already.
    """
    cells = [[text(cell) for cell in row] for row in table.rows]
    filled = [place for place, own in enumerate(zip(*cells, strict=True)) if set(own) != {"–"}]
    sides = ["--:" if table.is_numeric(column) else ":--" for column in range(len(table.columns))]
    lines = [[line[place] for place in filled] for line in (table.columns, sides, *cells)]
    rows = [
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    ]
    below = [f"\n{note}" for note in table.notes if notes]
    return Markdown("\n".join([f"**{table.title}**\n", *rows, *below]))


def accuracies() -> Markdown:
    """Accuracy of the paper's three priors and of ours on the three versions of MNIST."""
    title, prior = "Clustering: three priors over the assignments", "hypergeometric"
    laws = {"counts": results("clustering-counts"), "assignments": results("clustering")}
    found = {law: with_rows(tables[title], prior=prior) for law, tables in laws.items()}
    rivals = {name: with_rows(laws["assignments"][title], prior=name) for name in RIVALS}
    rows: dict[str, tuple[Table, str]] = {}
    for name in RIVALS:
        rows[f"{name}, the paper"] = rivals[name], "paper"
        rows[f"{name}, here"] = rivals[name], "accuracy (%)"
    rows["hypergeometric, the paper"] = found["counts"], "paper"
    rows["hypergeometric by counts, here"] = found["counts"], "accuracy (%)"
    rows["hypergeometric by assignments, here"] = found["assignments"], "accuracy (%)"
    versions = found["counts"].columns.index("data")
    lines = [
        [name, *(text(row[table.columns.index(column)]) for row in table.rows)]
        for name, (table, column) in rows.items()
    ]
    columns = ["prior", *(text(row[versions]) for row in found["counts"].rows)]
    return as_markdown(Table("Accuracy in % on the test images, mean ± deviation", columns, lines))


RIVALS = "uniform", "categorical"


def shell(command: str, folder: Path | str = ".") -> None:
    """Runs `diffurn ...` in a folder, and prints the command and its output."""
    from typer.testing import CliRunner

    from diffurn.cli import app

    before = Path.cwd()
    os.chdir(folder)
    try:
        # Rich prints as in a terminal, not as in a notebook.
        with mock.patch("rich.console._is_jupyter", return_value=False):
            outcome = CliRunner().invoke(
                app, shlex.split(command)[1:], env={"COLUMNS": "88", "FORCE_COLOR": None}
            )
    finally:
        os.chdir(before)
    print(f"$ {command}", *filter(None, [outcome.output.strip("\n")]), sep="\n")
    if outcome.exit_code:
        raise RuntimeError(f"{command} ended with {outcome.exit_code}")


class Layer(NamedTuple):
    """A row of the picture: some modules with a common purpose, above all that they import."""

    name: str
    purpose: str
    modules: list[str]


class Import(NamedTuple):
    """An import of a module by its full name, and whether it happens inside a function."""

    name: str
    is_late: bool


# The layers, the uppermost first, with the modules that belong to each: prefixes of full names, of
# which the longest counts.
LIBRARY = {
    "cli": ("the commands: options in, tables and JSON out", ["diffurn.cli", "diffurn._install"]),
    "explore": ("the interactive demo: numbers, figures, server", ["diffurn.explore"]),
    "jax": ("Fisher's law for JAX and NumPyro", ["diffurn.jax"]),
    "inference": ("weights ω from counts: fits and tests", ["diffurn.inference"]),
    "data": ("count tables", ["diffurn.data"]),
    "nn": (
        "layers for networks, and the interfaces of the authors' code",
        ["diffurn.nn", "diffurn.compat"],
    ),
    "distributions": (
        "check arguments, and ask _dispatch for a law",
        ["diffurn"],
    ),
    "estimators": ("gradients through a draw, from any law", ["diffurn.estimators"]),
    "_kernels": ("Triton and C kernels that replace single functions", ["diffurn._kernels"]),
    "_partition": ("the items of random partitions, given sizes", ["diffurn._partition"]),
    "_wallenius": ("the laws of Wallenius' distribution", ["diffurn._wallenius"]),
    "_fisher": ("the laws of Fisher's distribution", ["diffurn._fisher"]),
    "_law": (
        "the methods of a law, and group sizes known on the CPU",
        ["diffurn._law", "diffurn._composition"],
    ),
    "_numerics": (
        "binomials, derivatives, batches, tracing; the registry of kernels",
        ["diffurn._numerics", "diffurn._kernels.dispatch", "diffurn._kernels.library"],
    ),
}
STUDIES = {
    "cli": ("diffurn reproduce and diffurn report", ["diffurn_studies.cli"]),
    "studies": ("one package for each study of the paper", ["diffurn_studies"]),
    "stacked": ("many models trained as one", ["diffurn_studies.stacked"]),
    "harness": ("runs units, resumes them, makes tables and reports", ["diffurn_studies.harness"]),
    "diffurn": ("the library", ["diffurn"]),
}
Layers = Mapping[str, tuple[str, list[str]]]


def architecture(
    layers: Layers = LIBRARY, folder: Path = ROOT / "src" / "diffurn"
) -> tuple[list[Layer], list[tuple[str, str]]]:
    """The layers with their modules, and the pairs of layers of which one imports the other, read
    from the sources of a package.

    Kernels are imported on the first call on a GPU. Such late imports of them are left out.
    """
    modules: dict[str, list[str]] = {name: [] for name in layers}
    arrows: set[tuple[str, str]] = set()
    for path in sorted(folder.rglob("*.py")):
        module = module_name(path, folder)
        if path.stem in ("__init__", "__main__") and path.parent == folder:
            continue
        source = layer_of(module, layers)
        if path.stem != "__init__" and path.parent.name != "arms":
            modules[source].append(module.partition(".")[2])
        for each in imports_of(path, folder):
            target = layer_of(each.name, layers)
            if target not in (None, source) and not (each.is_late and target == "_kernels"):
                arrows.add((source, target))
    rows = [Layer(name, purpose, modules[name]) for name, (purpose, _) in layers.items()]
    return rows, sorted(arrows)


def module_name(path: Path, folder: Path) -> str:
    """The full name of a module, such as diffurn.cli.fit; a package has the name of its folder."""
    parts = path.relative_to(folder.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str, layers: Layers) -> str | None:
    """The layer with the longest prefix of a module's name; None for other packages."""
    matches = [
        (len(prefix), name)
        for name, (_, prefixes) in layers.items()
        for prefix in prefixes
        if f"{module}.".startswith(f"{prefix}.")
    ]
    return max(matches)[1] if matches else None


def imports_of(path: Path, folder: Path) -> Iterator[Import]:
    """All imports in a file, except those for type checkers alone. A public name of diffurn counts
    as an import of the module that defines it.
    """
    yield from _imports(ast.parse(path.read_text(encoding="utf-8")), path, folder, False)


def _imports(node: ast.AST, path: Path, folder: Path, is_late: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, is_late) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = _absolute(child, path, folder)
            yield from (Import(_home(base, alias.name), is_late) for alias in child.names)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _imports(child, path, folder, is_late or inside)


def _absolute(node: ast.ImportFrom, path: Path, folder: Path) -> str:
    """The module that names are imported from, also where it is given relative to the file."""
    if not node.level:
        return node.module or ""
    package = path.relative_to(folder.parent).parent.parts
    above = package[: len(package) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])


def _home(base: str, name: str) -> str:
    return f"{diffurn._HOMES.get(name, base) if base == 'diffurn' else base}.{name}"
