"""Atomic writing: a file is complete or absent, even if the process is killed."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

TEMPORARY = ".tmp"


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that replaces `path` when the block ends without an error; otherwise the old
    file stays.

    The file is written under a temporary name in the same folder, flushed to the disk and renamed.
    A link stays a link: its target is replaced. Devices and pipes are written directly.
    """
    if _is_stream(path):
        with path.open("wb") as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    temporary = target.with_name(f".diffurn-{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
        _sync_directory(target.parent)
    finally:
        with suppress(OSError):
            temporary.unlink()


def _is_stream(path: Path) -> bool:
    """Whether this is a device or a pipe, such as /dev/stdout, even if it leads to a plain file."""
    return path.exists() and (
        not path.is_file()
        or (path.parts[:2] in (("/", "dev"), ("/", "proc")) and path.is_symlink())
    )


def _sync_directory(path: Path) -> None:
    """Makes a rename permanent on systems where directories can be flushed."""
    with suppress(OSError, AttributeError):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
