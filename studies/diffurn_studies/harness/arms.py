"""Arms of a study: ready-made options, one small module each.

An arm is a module ``arms/<name>.py`` beside its study, with a docstring (what it is and what it
showed) and a constant ``OPTIONS``. ``diffurn reproduce <study> --arm <name>`` runs it; in the name
of an arm a dash stands for the underscore of its module.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from diffurn_studies.harness.errors import RunError
from diffurn_studies.harness.study import Study

# The arm that runs unless another is named.
DEFAULT = "paper"


@dataclass(frozen=True)
class Entry:
    """A study in the registry.

    Args:
        load: imports the study. Listing the studies must not import torch or matplotlib, so this is
            done when the study runs.
        arms: the package of its arms.
    """

    load: Callable[[], Study]
    arms: ModuleType

    def arm_names(self) -> list[str]:
        """The default arm first, the others by name."""
        found = [module.name.replace("_", "-") for module in pkgutil.iter_modules(self._folders)]
        return sorted(found, key=lambda name: (name != DEFAULT, name))

    def about(self, arm: str) -> str:
        """The first line of an arm's docstring, read without importing the arm."""
        [path] = [Path(folder) / f"{_module(arm)}.py" for folder in self._folders]
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        return docstring.partition("\n")[0].rstrip(".")

    def summary(self) -> str:
        """The docstring of the study's package, in which its arms are."""
        package = sys.modules.get(self.arms.__name__.rpartition(".")[0])
        return "" if package is None else (package.__doc__ or "").strip().rstrip(".")

    def settings(self) -> list[str]:
        """The names of the options of all arms, read without importing them."""
        names: list[str] = []
        for path in (Path(folder).parent / "options.py" for folder in self._folders):
            names += _option_names(path) if path.is_file() else []
        return list(dict.fromkeys(names))

    def options(self, arm: str) -> Any:
        """The options of an arm."""
        if arm not in self.arm_names():
            raise RunError(f"there is no arm {arm!r}: choose one of {', '.join(self.arm_names())}")
        return importlib.import_module(f"{self.arms.__name__}.{_module(arm)}").OPTIONS

    @property
    def _folders(self) -> list[str]:
        return list(self.arms.__path__)


def _option_names(path: Path) -> Iterator[str]:
    """The fields of the classes of options in a module."""
    for each in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(each, ast.ClassDef) and each.name.endswith("Options"):
            fields = (line for line in each.body if isinstance(line, ast.AnnAssign))
            for line in fields:
                if "ClassVar" not in ast.unparse(line.annotation):
                    yield ast.unparse(line.target)


def _module(arm: str) -> str:
    return arm.replace("-", "_")
