"""THIRD_PARTY.md: what diffurn depends on, itself or through others, with the licence that each
package states. Run by `make licences`.
"""

from __future__ import annotations

import importlib.metadata as metadata
import platform
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LIBRARY = "library"
HEAD = """# Packages that diffurn builds on

None of them is part of diffurn's files; pip installs them beside it. *Comes with* names the extra that asks for a package, itself or
through others; the library itself asks for torch alone. The licence is what the package states about itself. Made by `make licences`
from the metadata of what was installed on {system}. Builds of torch for GPUs bring libraries of NVIDIA or AMD under their own licences.

| package | version | licence | comes with |
|---|---|---|---|
"""


def closure(extra: str) -> set[str]:
    """Every package that an extra of diffurn asks for, also through others; without it, that the
    library asks for.
    """
    found: set[str] = set()
    waiting = [("diffurn", frozenset({extra} - {LIBRARY}))]
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
    return found


def licence(name: str) -> str:
    """As the package states it: an SPDX expression, else trove classifiers, else a short text."""
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
    extras = [LIBRARY, *sorted(metadata.metadata("diffurn").get_all("Provides-Extra", []))]
    users: dict[str, list[str]] = {}
    for extra in extras:
        for name in closure(extra):
            users.setdefault(name, []).append(extra)
    lines = []
    for name in sorted(users):
        by = [LIBRARY] if LIBRARY in users[name] else users[name]
        lines.append(
            f"| {name} | {metadata.version(name).partition('+')[0]} | {licence(name)} | "
            f"{', '.join(by)} |"
        )
    system = f"{platform.system()} with Python {platform.python_version()}"
    (ROOT / "THIRD_PARTY.md").write_text(
        HEAD.format(system=system) + "\n".join(lines) + "\n", encoding="utf-8"
    )
    print(f"THIRD_PARTY.md: {len(lines)} packages")


if __name__ == "__main__":
    main()
