"""Source trees of the library: folders, and git revisions unpacked into folders."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path


def source_of(name: str, repository: Path, into: Path) -> Path:
    """The folder that holds the package `diffurn` of a source tree.

    Args:
        name: a folder with a `src/`, or a git revision; a folder is preferred.
        repository: where git looks for revisions.
        into: an empty folder for the files of a revision.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        for source in (folder / "src", folder):
            if (source / "diffurn" / "__init__.py").is_file():
                return source.resolve()
        raise ValueError(f"the folder {name} has no src/diffurn")
    git = ["git", "-C", str(repository)]
    found = subprocess.run(
        [*git, "archive", "--format=tar", name, "src/diffurn"], capture_output=True
    )
    if found.returncode:
        complaint = found.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ValueError(
            f"{name} is neither a folder nor a git revision with src/diffurn"
            + "".join(f" ({line})" for line in complaint)
        )
    with tarfile.open(fileobj=BytesIO(found.stdout)) as archive:
        archive.extractall(into)
    return (into / "src").resolve()
