"""Small pictures of classes: their files, their checksums, downloads, and classes that are thinned
out.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch

from diffurn_studies.clustering import images
from diffurn_studies.clustering.images import kept_items, load_images, parse_idx


def idx(values: torch.Tensor) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return bytes([0, 0, 8, values.ndim]) + sizes + bytes(values.flatten().tolist())


@pytest.fixture
def tiny_fashion(tmp_path: Path) -> tuple[Path, list[torch.Tensor]]:
    """Four small idx files, one of them packed, under the names of Fashion-MNIST."""
    generator = torch.Generator().manual_seed(0)
    parts = []
    for file, shape in zip(images.FILES, [(6, 3, 2), (6,), (4, 3, 2), (4,)], strict=True):
        values = torch.randint(0, 10, shape, generator=generator, dtype=torch.uint8)
        parts.append(values)
        if file.startswith("t10k-labels"):
            (tmp_path / f"{file}.gz").write_bytes(gzip.compress(idx(values)))
        else:
            (tmp_path / file).write_bytes(idx(values))
    return tmp_path, parts


def test_four_idx_files_become_images_and_labels(
    tiny_fashion: tuple[Path, list[torch.Tensor]],
) -> None:
    folder, parts = tiny_fashion
    loaded = load_images("fashion-mnist", folder)
    assert loaded.shape == (3, 2)
    assert torch.equal(loaded.train, parts[0].reshape(6, 6))
    assert torch.equal(loaded.train_labels, parts[1].long())
    assert torch.equal(loaded.test.reshape(4, 3, 2), parts[2])
    assert torch.equal(loaded.test_labels, parts[3].long())


def test_the_environment_names_the_folder(
    tiny_fashion: tuple[Path, list[torch.Tensor]],
) -> None:
    folder, parts = tiny_fashion
    folder.rename(folder.with_name("fashion-mnist"))
    loaded = load_images("fashion-mnist", environment={images.DATA_FOLDER: str(folder.parent)})
    assert torch.equal(loaded.train_labels, parts[1].long())


def test_other_files_under_mnists_names_are_refused(
    tiny_fashion: tuple[Path, list[torch.Tensor]],
) -> None:
    with pytest.raises(ValueError, match="checksum"):
        load_images("mnist", tiny_fashion[0])


def test_labels_that_do_not_fit_the_images_are_refused(
    tiny_fashion: tuple[Path, list[torch.Tensor]],
) -> None:
    folder, _ = tiny_fashion
    (folder / images.FILES[1]).write_bytes(idx(torch.zeros(5, dtype=torch.uint8)))
    with pytest.raises(ValueError, match="do not fit together"):
        load_images("fashion-mnist", folder)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte"):
        load_images("mnist", tmp_path)
    with pytest.raises(ValueError, match="choose mnist"):
        load_images("cifar", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x00\x08\x01\x00\x00\x00\x03\x07",
        b"\x1f\x8b\x08\x00",
        b"\x00\x00\x0d\x01\x00\x00\x00\x00",
    ],
)
def test_what_is_no_idx_file_of_bytes_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"idx file|bytes"):
        parse_idx(content)


def test_a_cut_off_packed_file_is_an_error_that_names_it(
    tiny_fashion: tuple[Path, list[torch.Tensor]],
) -> None:
    folder, _ = tiny_fashion
    path = folder / f"{images.FILES[3]}.gz"
    path.write_bytes(path.read_bytes()[:-6])
    with pytest.raises(ValueError, match="t10k-labels"):
        load_images("fashion-mnist", folder)


def test_a_download_asks_for_the_packed_file_and_its_checksum(
    tiny_fashion: tuple[Path, list[torch.Tensor]],
) -> None:
    folder, parts = tiny_fashion
    asked: list[tuple[str, str | None]] = []

    def retrieve(url: str, known_hash: str | None, file: str, name: str) -> Path:
        asked.append((url, known_hash))
        assert (name, url.rpartition("/")[2]) == ("fashion-mnist", file)
        packed = folder / file
        return packed if packed.exists() else folder / file.removesuffix(".gz")

    loaded = load_images("fashion-mnist", retrieve=retrieve, environment={})
    assert torch.equal(loaded.test_labels, parts[3].long())
    assert len(asked) == 4
    assert all(
        url.endswith("-ubyte.gz") and known is not None and len(known) == len("sha256:") + 64
        for url, known in asked
    )


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (ModuleNotFoundError("no pooch"), "needs pooch: pip install diffurn-studies, or set"),
        (OSError("no network"), "cannot be downloaded: no network; set DIFFURN_DATA to a folder"),
    ],
)
def test_a_download_that_fails_says_what_to_do(problem: Exception, sentence: str) -> None:
    def retrieve(url: str, known_hash: str | None, file: str, name: str) -> Path:
        raise problem

    with pytest.raises(ValueError, match=sentence):
        load_images("fashion-mnist", retrieve=retrieve, environment={})


def test_the_digits_need_no_files() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    loaded, original = load_images("digits"), datasets.load_digits()
    assert loaded.shape == (8, 8)
    assert len(loaded.train) + len(loaded.test) == len(original.data)
    total = torch.cat([loaded.train, loaded.test]).double().sum()
    assert abs(total / original.data.sum() - 255 / 16) < 0.01
    share = loaded.train_labels.bincount() / torch.from_numpy(original.target).bincount()
    assert torch.all((share - 0.8).abs() < 0.005)


def test_classes_are_thinned_out_to_their_share_and_no_others() -> None:
    labels = torch.randint(0, 10, (5000,))
    before = labels.bincount()
    kept = kept_items(labels, 0.6, range(5), seed=3)
    after = labels[kept].bincount()
    assert torch.equal(after[5:], before[5:])
    assert [int(n) for n in after[:5]] == [round(0.6 * int(n)) for n in before[:5]]
    assert torch.equal(kept, kept.unique())


def test_a_smaller_share_is_part_of_a_larger_one() -> None:
    labels = torch.randint(0, 10, (3000,))
    some, most = (
        kept_items(labels, 0.6, range(5), seed=1),
        kept_items(labels, 0.8, range(5), seed=1),
    )
    assert set(some.tolist()) < set(most.tolist()) < set(range(3000))
    assert torch.equal(kept_items(labels, 1.0, range(5), seed=1), torch.arange(3000))
