"""Pictures of known factors: what a data set of them offers, and how to get one by its name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from diffurn_studies.clustering.images import DATA_FOLDER, usual_folder
from diffurn_studies.pairs.arm import ArmScenes
from diffurn_studies.pairs.stored import download_mpi3d, read_mpi3d, read_sprites

_FILES = {"sprites": "sprites7f_64.npz", "mpi3d_toy": "mpi3d_toy.npz"}
_READERS = {"sprites": read_sprites, "mpi3d_toy": read_mpi3d}


class FactorImages(Protocol):
    """A picture for every combination of F factors' values."""

    @property
    def name(self) -> str: ...

    @property
    def names(self) -> tuple[str, ...]:
        """What the F factors are called."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many values each of them has."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of a picture."""

    def images(self, factors: Tensor) -> Tensor:
        """Pictures (..., H, W, C), float32 from 0 to 1, of factors (..., F), int64 on the data's
        device; never waits for the host.
        """

    def to(self, device: torch.device | str) -> FactorImages: ...


def load_factors(name: str, path: str | os.PathLike[str] | None = None) -> FactorImages:
    """The data set called `name`.

    Args:
        name: ``arm`` (drawn when asked for, no file), ``sprites`` or ``mpi3d_toy``.
        path: the npz file, or the folder that holds it as ``sprites7f_64.npz`` or
            ``mpi3d_toy.npz``. By default that is the folder `name` in the one the environment
            variable ``DIFFURN_DATA`` points to; without that mpi3d_toy is downloaded, once.

    Example:
        >>> load_factors("arm").sizes
        (6, 6, 2, 3, 3, 40, 40)
    """
    if name == "arm":
        if path is not None:
            raise ValueError(
                f"arm scenes are drawn, not read: leave out the path, which is {os.fspath(path)!r}"
            )
        return ArmScenes()
    if name not in _READERS:
        raise ValueError(f"there is no data set {name!r}: choose arm, sprites or mpi3d_toy")
    path = usual_folder(name) if path is None else path
    if path is None and name == "mpi3d_toy":
        return read_mpi3d(download_mpi3d(_FILES[name]))
    if path is None:
        raise ValueError(
            f"{name} needs the path of its npz file, or {DATA_FOLDER} set to a folder that holds "
            f"{name}/{_FILES[name]}"
        )
    return _READERS[name](_file(Path(path), _FILES[name]))


def _file(path: Path, usual_name: str) -> Path:
    file = path / usual_name if path.is_dir() else path
    if not file.is_file():
        raise ValueError(
            f"{file} is not there: the path must be that of an npz file, or of a folder that holds "
            f"{usual_name}"
        )
    return file
