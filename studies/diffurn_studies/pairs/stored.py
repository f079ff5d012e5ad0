"""Pictures of known factors that are held in memory, and the files of Sprites and mpi3d_toy."""

from __future__ import annotations

import copy
import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from diffurn_studies.pairs import arm

if TYPE_CHECKING:
    from diffurn_studies.pairs.factors import FactorImages

MPI3D_URL = "https://storage.googleapis.com/mpi3d_disentanglement_dataset/data/mpi3d_toy.npz"
# The authors publish no checksum; this is the one that other loaders have of the file at its former
# address.
MPI3D_MD5 = "55889cb7c7dfc655d6e0277beee88868"


class StoredImages:
    """Pictures as bytes, one for every combination of the factors' values, the last factor fastest;
    floats only when looked up.

    Args:
        name: of the data set.
        names: of the factors.
        sizes: values of each factor, at least two.
        pictures: uint8, ``(∏ sizes, H, W, C)``; with a palette ``(∏ sizes, H, W)``, the number of
            each pixel's colour.
        palette: uint8, ``(colours, C)``.

    Example:
        >>> pictures = torch.arange(6, dtype=torch.uint8).reshape(6, 1, 1, 1)
        >>> data = StoredImages("steps", ("coarse", "fine"), (2, 3), pictures)
        >>> data.images(torch.tensor([1, 2])) * 255
        tensor([[[5.]]])
    """

    def __init__(
        self,
        name: str,
        names: Sequence[str],
        sizes: Sequence[int],
        pictures: Tensor,
        palette: Tensor | None = None,
    ) -> None:
        self.name, self.names, self.sizes = name, tuple(names), tuple(sizes)
        self._require_factors()
        _require_bytes(
            "pictures",
            pictures,
            "(pictures, height, width, channels)"
            if palette is None
            else "(pictures, height, width)",
        )
        if len(pictures) != math.prod(self.sizes):
            raise ValueError(
                f"there are {len(pictures)} pictures, but the factors {self.sizes} have "
                f"{math.prod(self.sizes)} combinations"
            )
        if palette is not None:
            _require_bytes("palette", palette, "(colours, channels)")
            if int(pictures.max()) >= len(palette):
                raise ValueError(
                    f"a pixel has the colour number {int(pictures.max())}, but the palette has "
                    f"{len(palette)} colours"
                )
        height, width, channels = (
            *pictures.shape[1:3],
            (pictures if palette is None else palette).shape[-1],
        )
        self.shape = (height, width, channels)
        self._pictures = pictures
        self._palette = None if palette is None else palette.to(torch.float32) / 255
        self._strides = torch.tensor(
            [math.prod(self.sizes[i + 1 :]) for i in range(len(sizes))], device=pictures.device
        )

    def _require_factors(self) -> None:
        if len(self.names) != len(self.sizes):
            raise ValueError(
                f"there are {len(self.names)} names of factors, {self.names}, but "
                f"{len(self.sizes)} sizes, {self.sizes}"
            )
        if not self.sizes or min(self.sizes) < 2:
            raise ValueError(
                f"the factors have {self.sizes} values, but each must have two at least"
            )

    def images(self, factors: Tensor) -> Tensor:
        """Pictures (..., H, W, C), float32 from 0 to 1, of factors (..., F), integers below
        `sizes`, which are not checked.
        """
        pictures = self._pictures[(factors * self._strides).sum(-1)]
        return (
            pictures.to(torch.float32) / 255
            if self._palette is None
            else self._palette[pictures.int()]
        )

    def to(self, device: torch.device | str) -> StoredImages:
        moved = copy.copy(self)
        moved._pictures, moved._strides = self._pictures.to(device), self._strides.to(device)
        moved._palette = None if self._palette is None else self._palette.to(device)
        return moved


def held(images: FactorImages, device: torch.device | str, chunk: int = 4096) -> StoredImages:
    """Every picture of a data set that draws them when asked, as bytes in memory: looking up is
    faster than drawing.

    Args:
        images: the data set, on `device`.
        device: where the pictures are to be; arm scenes take 12.7 GB.
        chunk: pictures drawn at a time.
    """
    number = math.prod(images.sizes)
    pictures = torch.empty(number, *images.shape, dtype=torch.uint8, device=device)
    for start in range(0, number, chunk):
        numbers = torch.arange(start, min(number, start + chunk), device=device)
        drawn = images.images(torch.stack(torch.unravel_index(numbers, images.sizes), -1))
        pictures[start : start + chunk] = (drawn * 255).round().to(torch.uint8)
    return StoredImages(images.name, images.names, images.sizes, pictures)


def _require_bytes(what: str, values: Tensor, axes: str) -> None:
    if values.dtype != torch.uint8 or values.ndim != axes.count(",") + 1 or not values.numel():
        raise ValueError(
            f"{what} has dtype {values.dtype} and shape {tuple(values.shape)}, but must hold bytes "
            f"(uint8) of shape {axes}"
        )


def read_sprites(path: Path) -> StoredImages:
    """Sprites, or other pictures in the same layout.

    That is an npz of ``index`` (pictures, height, width) and ``palette`` (colours, channels), both
    uint8, and of the lists ``factor_sizes`` and ``factor_names``.
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
    """mpi3d_toy: an npz of ``images`` (1036800, 64, 64, 3), uint8, whose factors are those of the
    arm scenes, in the same order.
    """
    return _stored(path, "mpi3d_toy", arm.NAMES, arm.SIZES, *_read_arrays(path, ("images",)))


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
    try:  # torch shares NumPy's memory: nothing is held twice
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


def download_mpi3d(file: str) -> Path:
    """The path of mpi3d_toy's npz (12.7 GB unpacked) in the cache, to which it is downloaded once;
    the checksum is checked every time.
    """
    way_out = f"download {MPI3D_URL} by other means and give its path"
    try:
        import pooch  # type: ignore[import-untyped, import-not-found, unused-ignore]

        bar = _DownloadBar()
    except ImportError as error:
        raise ValueError(
            f"downloading mpi3d_toy needs {error.name}: pip install 'diffurn[experiments]', or "
            f"{way_out}"
        ) from None
    downloader = pooch.HTTPDownloader(progressbar=bar, chunk_size=2**20)
    folder = pooch.os_cache("diffurn") / "mpi3d_toy"
    try:
        return Path(
            pooch.retrieve(
                MPI3D_URL, f"md5:{MPI3D_MD5}", fname=file, path=folder, downloader=downloader
            )
        )
    except (OSError, ValueError) as error:
        raise ValueError(
            f"mpi3d_toy cannot be downloaded: {str(error).rstrip('.')}; {way_out}"
        ) from error
    finally:
        bar.close()


class _DownloadBar:
    """What pooch takes for a progress bar, drawn on standard error where that is a terminal."""

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
        self._progress.start()  # only now: nothing is drawn for a file that is already there
        self._progress.update(self._task, advance=bytes_more, total=self.total or None)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.stop()
