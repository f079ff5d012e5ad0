"""Writes THIRD_PARTY.md: the direct and indirect dependencies of diffurn and of the studies, with
the licence that each package states. Run by `make licences`.
"""

from __future__ import annotations

import importlib.metadata as metadata
import platform
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LIBRARY, STUDIES = "library", "studies"
HEAD = """# Packages that diffurn depends on

None of them is part of diffurn's files; pip installs them beside it. *Comes with* names the extras that ask for a package, directly or
through other packages, or the studies. The library itself asks for torch alone. The licence is the one that the package states about
itself. `make licences` made this table from the metadata of the packages installed on {system}. Builds of torch for GPUs bring
libraries of NVIDIA or AMD under their own licences.

| package | version | licence | comes with |
|---|---|---|---|
"""


def closure(package: str, extra: str | None = None) -> set[str]:
    """Every package that an extra of a package asks for, directly or through others; without an
    extra, that the package itself asks for.
    """
    found: set[str] = set()
    waiting = [(package, frozenset({extra} if extra else ()))]
    seen = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        for text in metadata.requires(name) or []:
            wanted = Requirement(text)
            if wanted.marker is None or any(
                wanted.marker.evaluate({"extra": each}) for each in extras or {""}
            ):
                found.add(canonicalize_name(wanted.name))
                waiting.append((canonicalize_name(wanted.name), frozenset(wanted.extras)))
    return found - {"diffurn"}


def users() -> dict[str, list[str]]:
    """The extras that ask for each package; the studies count as one."""
    sets = {LIBRARY: closure("diffurn")}
    for extra in sorted(metadata.metadata("diffurn").get_all("Provides-Extra", [])):
        sets[extra] = closure("diffurn", extra)
    sets[STUDIES] = closure("diffurn-studies") | closure("diffurn-studies", "cluster")
    return {
        name: [each for each, found in sets.items() if name in found]
        for name in sorted(set().union(*sets.values()))
    }


def licence(name: str) -> str:
    """The licence that a package states: an SPDX expression, else trove classifiers, else a text."""
    about = metadata.metadata(name)
    if about.get("License-Expression"):
        return str(about["License-Expression"])
    classifiers = [
        each.rpartition(" :: ")[2]
        for each in about.get_all("Classifier", [])
        if each.startswith("License :: ")
    ]
    named = [each for each in classifiers if each != "OSI Approved"]
    stated = (about.get("License") or "").strip()
    return ", ".join(named) or (
        stated if stated and len(stated) < 60 and "\n" not in stated else "see its own files"
    )


def main() -> None:
    lines = []
    for name, extras in users().items():
        by = [LIBRARY] if LIBRARY in extras else extras
        version = metadata.version(name).partition("+")[0]
        lines.append(f"| {name} | {version} | {licence(name)} | {', '.join(by)} |\n")
    system = f"{platform.system()} with Python {platform.python_version()}"
    path = ROOT / "THIRD_PARTY.md"
    path.write_text(HEAD.format(system=system) + "".join(lines), encoding="utf-8")
    print(f"THIRD_PARTY.md: {len(lines)} packages")


if __name__ == "__main__":
    main()
