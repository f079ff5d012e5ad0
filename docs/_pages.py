"""What pages show besides pictures: tables of results, commands with their output, and the
package's own structure.
"""

from __future__ import annotations

import ast
import json
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from diffurn_studies.harness.tables import Table, text

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "diffurn"


@dataclass(frozen=True)
class Markdown:
    """Text that a page takes as its own."""

    text: str

    def _repr_markdown_(self) -> str:
        return self.text


def results(folder: str) -> dict[str, Table]:
    """Tables of a folder of `results/`, by their titles."""
    content = json.loads((ROOT / "results" / folder / "tables.json").read_text(encoding="utf-8"))
    return {table["title"]: Table.from_json(table) for table in content["tables"]}


def with_rows(table: Table, **values: str) -> Table:
    """Only the rows that have these values in the columns of these names; the columns are left
    out.
    """
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


def as_markdown(table: Table) -> Markdown:
    """A table of the experiments as the page shows it."""
    sides = ["--:" if table.is_numeric(column) else ":--" for column in range(len(table.columns))]
    lines = [table.columns, sides, *([text(cell) for cell in row] for row in table.rows)]
    rows = [
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    ]
    below = [f"\n{note}" for note in table.notes]
    return Markdown("\n".join([f"**{table.title}**\n", *rows, *below]))


def shell(command: str, folder: Path | str = ".") -> None:
    """Runs `diffurn ...` in a folder and prints the command with what it says."""
    from typer.testing import CliRunner

    from diffurn.cli import app

    before = Path.cwd()
    os.chdir(folder)
    try:
        with mock.patch(
            "rich.console._is_jupyter", return_value=False
        ):  # as in a terminal, not as in a notebook
            outcome = CliRunner().invoke(
                app, shlex.split(command)[1:], env={"COLUMNS": "88", "FORCE_COLOR": None}
            )
    finally:
        os.chdir(before)
    print(f"$ {command}", *filter(None, [outcome.output.strip("\n")]), sep="\n")
    if outcome.exit_code:
        raise RuntimeError(f"{command} ended with {outcome.exit_code}")


# How the layers of the package are called here, the uppermost first; each is a folder, but for the
# distributions.
LAYERS = {
    "cli": "commands: options in, tables and JSON out",
    "explore": "the interactive page: numbers, pictures, server",
    "experiments": "the paper's studies and the bench: config, run, table, figure",
    "models": "what the studies train, as stacks of models",
    "data": "count tables and pictures",
    "inference": "ω from counts",
    "distributions": "Fisher's and Wallenius' urns for torch.distributions",
    "estimators": "gradients through a draw",
    "exact": "the mathematics, pure functions of tensors",
}


def architecture() -> tuple[list[tuple[str, str, list[str]]], list[tuple[str, str]]]:
    """The layers with their modules, and which layer imports which: read from the sources, with an
    `ast`.
    """
    modules: dict[str, list[str]] = {name: [] for name in LAYERS}
    imports: set[tuple[str, str]] = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[0] in ("__init__", "__main__"):
            continue
        layer = _layer(parts[0])
        if parts[-1] != "__init__":
            modules[layer].append(".".join(parts[1:] or parts))
        imports |= {(layer, target) for target in map(_layer, _imported(path)) if target != layer}
    return [(name, purpose, modules[name]) for name, purpose in LAYERS.items()], sorted(imports)


def _layer(name: str) -> str:
    return name if name in LAYERS else "distributions"


def _imported(path: Path) -> set[str]:
    """First parts of what a module imports from the package; public names stand for the layer that
    defines them.
    """
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "diffurn":
            found |= {_home(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("diffurn."):
            found.add(node.module.split(".")[1])
    return {name for name in found if name}


def _home(name: str) -> str:
    import diffurn

    if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists():
        return name
    module = getattr(getattr(diffurn, name), "__module__", "")
    return module.split(".")[1] if module.startswith("diffurn.") else ""
