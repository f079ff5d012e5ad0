"""Small grey pictures of ten classes: MNIST, Fashion-MNIST, and scikit-learn's digits, which need
no download.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

CLASSES = 10
FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
DATA_FOLDER = "DIFFURN_DATA"

_SOURCES = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion-mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
}
# sha256 of the unpacked files, since copies of a file differ in how they are packed.
_MNIST = dict(
    zip(
        FILES,
        (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        strict=True,
    )
)
# sha256 of the packed files, as the authors publish them.
_FASHION_PACKED = dict(
    zip(
        FILES,
        (
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
        strict=True,
    )
)


@dataclass(frozen=True, eq=False)
class Images:
    """Pictures as bytes, flattened, with their classes, in a training and a test part."""

    train: Tensor  # (N, height · width), uint8
    train_labels: Tensor  # (N,), int64
    test: Tensor
    test_labels: Tensor
    shape: tuple[int, int]


# Takes the URL, the known hash or None, the file's name and the data set's name; returns the path
# of the downloaded file.
Retrieve = Callable[[str, str | None, str, str], Path]


def _retrieve_by_pooch(url: str, known_hash: str | None, file: str, name: str) -> Path:
    """Downloads a file once, to the user's cache."""
    import pooch  # type: ignore[import-untyped, import-not-found, unused-ignore]

    folder = pooch.os_cache("diffurn") / name
    return Path(pooch.retrieve(url, known_hash, fname=file, path=folder))


def load_images(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    retrieve: Retrieve = _retrieve_by_pooch,
    environment: Mapping[str, str] = os.environ,
) -> Images:
    """The data set called `name`.

    Args:
        name: ``mnist``, ``fashion-mnist`` or ``digits`` (8 × 8, part of scikit-learn).
        folder: holds the four idx files, packed (.gz) or not. The default is the folder `name` in
            the folder that the environment variable ``DIFFURN_DATA`` names. If that is not set,
            the files are downloaded once.
        retrieve: downloads a file.
        environment: the environment variables.
    """
    if name == "digits":
        return _digits()
    if name not in _SOURCES:
        raise ValueError(f"there is no data set {name!r}: choose mnist, fashion-mnist or digits")
    folder = usual_folder(name, environment) if folder is None else folder
    paths = [
        _downloaded(name, file, retrieve) if folder is None else _found(name, file, Path(folder))
        for file in FILES
    ]
    parts = [_read_idx(name, file, path) for file, path in zip(FILES, paths, strict=True)]
    for images, labels in (parts[:2], parts[2:]):
        if (
            images.ndim != 3
            or labels.shape != images.shape[:1]
            or (len(labels) and int(labels.max()) >= CLASSES)
        ):
            raise ValueError(
                f"the files of {name} do not fit together: images {tuple(images.shape)}, labels "
                f"{tuple(labels.shape)}"
            )
    train, train_labels, test, test_labels = parts
    return Images(
        train.flatten(1),
        train_labels.long(),
        test.flatten(1),
        test_labels.long(),
        (train.shape[1], train.shape[2]),
    )


def usual_folder(name: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder of a data set by the environment variable; None if that is not set."""
    root = environment.get(DATA_FOLDER)
    return Path(root) / name if root else None


def _read_idx(name: str, file: str, path: Path) -> Tensor:
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if name == "mnist" and hashlib.sha256(content).hexdigest() != _MNIST[file]:
        raise ValueError(
            f"{path} is not MNIST's {file}: its checksum differs; is the download complete?"
        )
    return parse_idx(content, str(path))


def _found(name: str, file: str, folder: Path) -> Path:
    for path in (folder / file, folder / f"{file}.gz"):
        if path.is_file():
            return path
    raise ValueError(
        f"{folder} holds neither {file} nor {file}.gz: it must hold the four files of {name}"
    )


def _downloaded(name: str, file: str, retrieve: Retrieve) -> Path:
    way_out = f"set {DATA_FOLDER} to a folder that holds {name}/{file}.gz"
    # MNIST is checked after unpacking.
    known = f"sha256:{_FASHION_PACKED[file]}" if name == "fashion-mnist" else None
    try:
        return retrieve(f"{_SOURCES[name]}{file}.gz", known, f"{file}.gz", name)
    except ImportError:
        raise ValueError(
            f"downloading {name} needs pooch: pip install diffurn-studies, or {way_out}"
        ) from None
    except OSError as error:
        raise ValueError(f"{name} cannot be downloaded: {error}; {way_out}") from error


def parse_idx(content: bytes, name: str = "the file") -> Tensor:
    """The array of bytes in an idx file: two zeros, the type 8, the number of dimensions, the
    big-endian sizes, the values.

    Example:
        >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
        tensor([7, 9], dtype=torch.uint8)
    """
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise ValueError(f"{name} is not an idx file of bytes")
    header = 4 + 4 * content[3]
    sizes = [int.from_bytes(content[start : start + 4], "big") for start in range(4, header, 4)]
    if len(content) != header + math.prod(sizes):
        raise ValueError(
            f"{name} has {len(content)} bytes, but its header says {header + math.prod(sizes)}"
        )
    return torch.frombuffer(bytearray(content[header:]), dtype=torch.uint8).reshape(sizes)


def _digits() -> Images:
    """A fixed split: four fifths of each class for training, one fifth for testing."""
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        raise ValueError("the digits come with scikit-learn: pip install diffurn-studies") from None
    content = load_digits()
    # The digits have shades of grey from 0 to 16.
    images = torch.from_numpy(content.data * (255 / 16)).round().to(torch.uint8)
    labels = torch.from_numpy(content.target).long()
    training = kept_items(labels, 0.8, range(CLASSES), seed=0)
    testing = (
        torch.ones(len(labels), dtype=torch.bool)
        .index_fill(0, training, False)
        .nonzero()
        .squeeze(1)
    )
    return Images(images[training], labels[training], images[testing], labels[testing], (8, 8))


def kept_items(labels: Tensor, share: float, classes: Sequence[int], seed: int) -> Tensor:
    """Numbers of the items that are left, ascending, when each of `classes` keeps a `share` of its
    items. The items of a smaller share are among those of a larger one.

    Example:
        >>> # two of four zeros, three ones
        >>> kept_items(torch.tensor([0, 1, 0, 1, 0, 1, 0]), 0.5, classes=range(1), seed=0).shape
        torch.Size([5])
    """
    generator = torch.Generator().manual_seed(seed)
    kept = []
    for label in range(int(labels.max()) + 1):
        members = (labels == label).nonzero().squeeze(1)
        order = torch.randperm(len(members), generator=generator)
        kept.append(members[order[: round(share * len(members))]] if label in classes else members)
    return torch.cat(kept).sort().values
