"""The data sets of the study by name: arm scenes, and the files of Sprites and mpi3d_toy."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from diffurn_studies.clustering.images import DATA_FOLDER, usual_folder
from diffurn_studies.pairs import arm_scenes
from diffurn_studies.pairs.factors import FactorImages, StoredImages

MPI3D_URL = "https://storage.googleapis.com/mpi3d_disentanglement_dataset/data/mpi3d_toy.npz"
# The authors publish no checksum. Other loaders use this one for the file at its former address.
MPI3D_MD5 = "55889cb7c7dfc655d6e0277beee88868"

_FILES = {"sprites": "sprites7f_64.npz", "mpi3d_toy": "mpi3d_toy.npz"}


def load_factors(name: str, path: str | os.PathLike[str] | None = None) -> FactorImages:
    """The data set called `name`.

    Args:
        name: ``arm`` (rendered on demand, no file), ``sprites`` or ``mpi3d_toy``.
        path: the npz file, or the folder that holds it as ``sprites7f_64.npz`` or
            ``mpi3d_toy.npz``. The default is the folder `name` inside the folder that the
            environment variable ``DIFFURN_DATA`` names. If that variable is not set, mpi3d_toy is
            downloaded once.

    Example:
        >>> load_factors("arm").sizes
        (6, 6, 2, 3, 3, 40, 40)
    """
    if name == "arm":
        if path is not None:
            raise ValueError(
                f"the path is {os.fspath(path)!r}, but arm scenes are rendered, not read: leave "
                "out the path"
            )
        return arm_scenes.ArmScenes()
    if name not in _FILES:
        raise ValueError(f"there is no data set {name!r}: choose arm, sprites or mpi3d_toy")
    path = usual_folder(name) if path is None else path
    if path is None and name == "mpi3d_toy":
        return read_mpi3d(download_mpi3d())
    if path is None:
        raise ValueError(
            f"{name} needs the path of its npz file, or {DATA_FOLDER} set to a folder that holds "
            f"{name}/{_FILES[name]}"
        )
    file = _file(Path(path), _FILES[name])
    return read_sprites(file) if name == "sprites" else read_mpi3d(file)


def _file(path: Path, usual_name: str) -> Path:
    file = path / usual_name if path.is_dir() else path
    if not file.is_file():
        raise ValueError(
            f"{file} is not there: the path must be that of an npz file, or of a folder that holds "
            f"{usual_name}"
        )
    return file


def read_sprites(path: Path) -> StoredImages:
    """Sprites, or other images in the same layout.

    The file is an npz of ``index`` (pictures, height, width) and ``palette`` (colours, channels),
    both uint8, and of the lists ``factor_sizes`` and ``factor_names``.
    """
    index, palette, sizes, names = _read_arrays(
        path, ("index", "palette", "factor_sizes", "factor_names")
    )
    if (
        sizes.dtype.kind not in "iu"
        or sizes.ndim != 1
        or names.dtype.kind != "U"
        or names.ndim != 1
    ):
        raise ValueError(
            f"{path}: factor_sizes must be a list of integers and factor_names a list of strings"
        )
    return _stored(path, "sprites", names.tolist(), sizes.tolist(), index, palette)


def read_mpi3d(path: Path) -> StoredImages:
    """mpi3d_toy: an npz of ``images`` (1036800, 64, 64, 3), uint8. Its factors are those of the arm
    scenes, in the same order.
    """
    (images,) = _read_arrays(path, ("images",))
    return _stored(path, "mpi3d_toy", arm_scenes.NAMES, arm_scenes.SIZES, images)


def _stored(
    path: Path,
    name: str,
    names: Sequence[str],
    sizes: Sequence[int],
    pictures: Any,
    palette: Any = None,
) -> StoredImages:
    for array in (pictures, palette):
        if array is not None and array.dtype != "uint8":
            raise ValueError(
                f"{path}: pictures and palettes must be bytes (uint8), but there are {array.dtype} "
                f"of shape {array.shape}"
            )
    try:  # from_numpy shares NumPy's memory, so there is one copy of the pictures
        return StoredImages(
            name,
            names,
            sizes,
            torch.from_numpy(pictures),
            None if palette is None else torch.from_numpy(palette),
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _read_arrays(path: Path, keys: Sequence[str]) -> list[Any]:
    try:
        import numpy as np
    except ImportError:
        raise ValueError(
            "reading npz files needs NumPy: pip install 'diffurn[experiments]'"
        ) from None
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not an npz file; is it complete?")
    try:
        with np.load(path) as archive:
            if missing := [key for key in keys if key not in archive]:
                raise KeyError(
                    f"{path} has no {' and no '.join(missing)}: it holds "
                    f"{', '.join(archive.files) or 'nothing'}"
                )
            return [archive[key] for key in keys]
    except KeyError as error:
        raise ValueError(error.args[0]) from None
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def download_mpi3d(folder: Path | None = None, url: str = MPI3D_URL, md5: str = MPI3D_MD5) -> Path:
    """The path of mpi3d_toy's npz (12.7 GB unpacked) in a folder, by default the user's cache. The
    file is downloaded once; its checksum is compared every time.
    """
    way_out = f"download {url} by other means and give its path"
    try:
        import pooch  # type: ignore[import-untyped, import-not-found, unused-ignore]

        bar = _DownloadBar()
    except ImportError as error:
        raise ValueError(
            f"downloading mpi3d_toy needs {error.name}: pip install 'diffurn[experiments]', or "
            f"{way_out}"
        ) from None
    downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=2**20)
    folder = pooch.os_cache("diffurn") / "mpi3d_toy" if folder is None else folder
    file = _FILES["mpi3d_toy"]
    try:
        return Path(
            pooch.retrieve(url, f"md5:{md5}", fname=file, path=folder, downloader=downloader)
        )
    except (OSError, ValueError) as error:
        raise ValueError(
            f"mpi3d_toy cannot be downloaded: {str(error).rstrip('.')}; {way_out}"
        ) from error
    finally:
        bar.close()


class _DownloadBar:
    """A progress bar with the interface that pooch asks for, drawn on standard error if that is a
    terminal.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self.total = 0
        console = Console(stderr=True)
        columns = (
            TextColumn("mpi3d_toy"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._progress.add_task("", total=None)

    def update(self, bytes_more: int) -> None:
        self._progress.start()  # not earlier: nothing is drawn for a file in the cache
        self._progress.update(self._task, advance=bytes_more, total=self.total or None)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.stop()
