"""Images in memory, their files, and data sets by name. The files are small ones in the layout of
the real ones.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diffurn_studies.clustering import images
from diffurn_studies.pairs import datasets
from diffurn_studies.pairs.arm_scenes import NAMES, SIZES, ArmScenes
from diffurn_studies.pairs.datasets import load_factors, read_sprites
from diffurn_studies.pairs.factors import StoredImages, held

SPRITES = (3, 2, 4)


@pytest.fixture(autouse=True)
def data_folder(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Tests run without DIFFURN_DATA; the result sets it."""
    monkeypatch.delenv(images.DATA_FOLDER, raising=False)
    return lambda folder: monkeypatch.setenv(images.DATA_FOLDER, str(folder))


def sprite_arrays() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    return {
        "index": generator.integers(0, 5, (24, 4, 3), dtype=np.uint8),
        "palette": generator.integers(0, 256, (5, 3), dtype=np.uint8),
        "factor_sizes": np.array(SPRITES),
        "factor_names": np.array(["body", "hair", "frame"]),
    }


@pytest.fixture
def sprites(tmp_path: Path) -> Path:
    path = tmp_path / "sprites7f_64.npz"
    np.savez_compressed(path, **sprite_arrays())
    return path


@pytest.fixture(scope="session")
def mpi3d(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All 1,036,800 pictures of two pixels, whose three bytes hold the picture's number."""
    numbers = np.arange(np.prod(SIZES), dtype="<u4")
    pictures = np.repeat(numbers.view(np.uint8).reshape(-1, 1, 1, 4)[..., :3], 2, axis=2)
    path = tmp_path_factory.mktemp("mpi3d") / "mpi3d_toy.npz"
    np.savez(path, images=pictures)
    return path


def numbers_of(pictures: torch.Tensor) -> torch.Tensor:
    """The numbers that the fixture mpi3d hides in its pictures."""
    return ((pictures * 255).round().long() * torch.tensor([1, 256, 65536])).sum(-1)[..., 0, 0]


def test_every_combination_finds_its_own_picture_the_last_factor_fastest() -> None:
    pictures = torch.randint(0, 256, (24, 2, 3, 1), dtype=torch.uint8)
    data = StoredImages("mine", ["a", "b", "c"], SPRITES, pictures)
    assert (data.name, data.names, data.sizes, data.shape) == (
        "mine",
        ("a", "b", "c"),
        SPRITES,
        (2, 3, 1),
    )
    grid = torch.tensor(list(itertools.product(*map(range, SPRITES))))
    found = data.images(grid)
    assert found.dtype == torch.float32
    assert torch.equal(found, pictures.float() / 255)
    assert torch.equal(data.images(grid.reshape(3, 2, 4, 3)), found.reshape(3, 2, 4, 2, 3, 1))
    assert torch.equal(data.images(grid[7]), found[7])


def test_sprites_are_read_with_their_palette_and_factors(sprites: Path) -> None:
    arrays, data = sprite_arrays(), load_factors("sprites", sprites)
    assert (data.name, data.names, data.sizes, data.shape) == (
        "sprites",
        ("body", "hair", "frame"),
        SPRITES,
        (4, 3, 3),
    )
    for factors in itertools.product(*map(range, SPRITES)):
        expected = (
            arrays["palette"][arrays["index"].reshape(*SPRITES, 4, 3)[factors]].astype(np.float32)
            / 255
        )
        np.testing.assert_array_equal(data.images(torch.tensor(factors)).numpy(), expected)


def test_mpi3d_is_read_in_its_published_order(mpi3d: Path) -> None:
    data = load_factors("mpi3d_toy", mpi3d)
    assert (data.names, data.sizes, data.shape) == (NAMES, SIZES, (1, 2, 3))
    factors = torch.stack([torch.randint(0, size, (500,)) for size in SIZES], -1)
    expected = np.ravel_multi_index(tuple(factors.T.numpy()), SIZES)
    np.testing.assert_array_equal(numbers_of(data.images(factors)).numpy(), expected)


def test_pictures_stay_bytes_in_one_copy(mpi3d: Path) -> None:
    data = load_factors("mpi3d_toy", mpi3d)
    assert isinstance(data, StoredImages)
    assert data._pictures.dtype == torch.uint8
    array = np.zeros((6, 1, 1, 1), np.uint8)
    shared = datasets._stored(Path("mine.npz"), "mine", ["a", "b"], [2, 3], array)
    array[5] = 255
    assert shared.images(torch.tensor([1, 2])).item() == 1.0


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
@pytest.mark.parametrize("kind", ["palette", "plain"])
def test_a_lookup_is_one_graph_without_a_look_at_values(kind: str, sprites: Path) -> None:
    plain = StoredImages(
        "plain", ["a", "b", "c"], SPRITES, torch.randint(0, 256, (24, 2, 2, 3), dtype=torch.uint8)
    )
    data = read_sprites(sprites) if kind == "palette" else plain
    factors = torch.stack([torch.randint(0, size, (5, 2)) for size in SPRITES], -1)
    torch.compiler.reset()
    compiled = torch.compile(data.images, fullgraph=True, backend="eager")
    assert torch.equal(compiled(factors), data.images(factors))


def test_data_sets_move_between_devices(device: torch.device, sprites: Path) -> None:
    factors = torch.tensor([[1, 1, 3], [2, 0, 0]])
    here = read_sprites(sprites)
    there = here.to(device)
    assert torch.equal(there.images(factors.to(device)).cpu(), here.images(factors))
    assert here.images(factors).device.type == "cpu"


def test_the_arm_needs_no_file() -> None:
    assert isinstance(load_factors("arm"), ArmScenes)
    with pytest.raises(ValueError, match=r"here\.npz.*leave out the path"):
        load_factors("arm", "here.npz")


def test_a_folder_or_the_environment_says_where_the_file_is(
    sprites: Path, data_folder: Callable[[Path], None]
) -> None:
    assert load_factors("sprites", str(sprites.parent)).sizes == SPRITES
    (sprites.parent / "sprites").mkdir()
    sprites.rename(sprites.parent / "sprites" / sprites.name)
    data_folder(sprites.parent)
    assert load_factors("sprites").sizes == SPRITES
    with pytest.raises(ValueError, match=r"mpi3d_toy is not there: .*holds mpi3d_toy\.npz"):
        load_factors("mpi3d_toy")


def test_errors_name_the_right_data_sets_and_paths(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'cars': choose arm, sprites or mpi3d_toy"):
        load_factors("cars")
    with pytest.raises(
        ValueError, match=r"needs the path .*DIFFURN_DATA.*sprites/sprites7f_64\.npz"
    ):
        load_factors("sprites")
    with pytest.raises(ValueError, match=r"sprites7f_64\.npz is not there"):
        load_factors("sprites", tmp_path)
    with pytest.raises(ValueError, match=r"gone\.npz is not there"):
        load_factors("mpi3d_toy", tmp_path / "gone.npz")


BROKEN = {
    "index is missing": ({"index": None}, "has no index: it holds palette"),
    "all is missing": (
        dict.fromkeys(sprite_arrays()),
        "no index and no palette and .* and no factor_names: it holds nothing",
    ),
    "floats": ({"index": np.zeros((24, 4, 3))}, "bytes.*float64"),
    "pickled": ({"index": np.array([None, {}])}, "cannot be read"),
    "too few": ({"index": np.zeros((23, 4, 3), np.uint8)}, "23 pictures.*24 combinations"),
    "colours instead of numbers": (
        {"index": np.zeros((24, 4, 3, 3), np.uint8)},
        r"\(24, 4, 3, 3\).*\(pictures, height, width\)",
    ),
    "a colour too many": (
        {"index": np.full((24, 4, 3), 5, np.uint8)},
        "colour number 5, but the palette has 5",
    ),
    "a flat palette": ({"palette": np.zeros(15, np.uint8)}, r"palette.*\(colours, channels\)"),
    "a wide palette": ({"palette": np.zeros((5, 3), np.int64)}, "bytes.*int64"),
    "a nameless factor": ({"factor_names": np.array(["body", "hair"])}, "2 names.*3 sizes"),
    "numbers for names": ({"factor_names": np.arange(3)}, "factor_names a list of strings"),
    "fractional sizes": (
        {"factor_sizes": np.array([3.0, 2.0, 4.0])},
        "factor_sizes must be a list of integers",
    ),
    "a factor of one value": ({"factor_sizes": np.array([24, 1, 1])}, "at least two"),
}


@pytest.mark.parametrize(("changes", "message"), BROKEN.values(), ids=BROKEN)
def test_a_file_of_another_layout_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = tmp_path / "other.npz"
    np.savez(
        path,
        **{key: value for key, value in (sprite_arrays() | changes).items() if value is not None},
    )
    with pytest.raises(ValueError, match=rf"other\.npz.*{message}"):
        load_factors("sprites", path)


def test_mpi3d_of_another_layout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mpi3d_toy.npz"
    np.savez(path, images=np.zeros((460_800, 1, 1, 3), np.uint8))
    with pytest.raises(ValueError, match=r"460800 pictures.*1036800 combinations"):
        load_factors("mpi3d_toy", path)
    np.savez(path, pictures=np.zeros((2, 1, 1, 3), np.uint8))
    with pytest.raises(ValueError, match="has no images: it holds pictures"):
        load_factors("mpi3d_toy", path)


def single_array() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    return buffer.getvalue()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", single_array()])
def test_what_is_no_npz_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "sprites7f_64.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"sprites7f_64\.npz is not an npz file"):
        load_factors("sprites", path)


def test_a_damaged_npz_file_is_refused(sprites: Path) -> None:
    content = bytearray(sprites.read_bytes())
    content[60:120] = bytes(60)
    sprites.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="cannot be read"):
        load_factors("sprites", sprites)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *message: Any) -> None:
        pass


@pytest.fixture
def published(mpi3d: Path) -> Iterator[str]:
    """The address of a web server on this machine that offers the file."""
    pytest.importorskip("pooch", reason="downloads need pooch: pip install 'diffurn[experiments]'")
    handler = partial(Quiet, directory=str(mpi3d.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/{mpi3d.name}"
        server.shutdown()
        thread.join()


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def test_a_file_is_downloaded_once_and_its_checksum_compared(
    mpi3d: Path, published: str, tmp_path: Path
) -> None:
    for address in (published, "http://127.0.0.1:9/not-asked-again"):
        file = datasets.download_mpi3d(tmp_path, address, md5(mpi3d))
        assert file == tmp_path / "mpi3d_toy.npz"
        data = datasets.read_mpi3d(file)
        assert int(numbers_of(data.images(torch.tensor([0, 0, 0, 0, 0, 1, 2])))) == 42


def test_downloads_are_kept_in_the_users_cache(
    mpi3d: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pooch = pytest.importorskip("pooch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = pooch.os_cache("diffurn") / "mpi3d_toy" / "mpi3d_toy.npz"
    kept.parent.mkdir(parents=True)
    shutil.copy(mpi3d, kept)
    assert datasets.download_mpi3d(md5=md5(mpi3d)) == kept


def test_the_progress_bar_of_a_download_ends_at_the_whole_file() -> None:
    bar = datasets._DownloadBar()
    bar.total = 3 * 2**20 - 5
    for _ in range(3):  # pooch counts whole chunks, then starts again and counts the file
        bar.update(2**20)
    bar.reset()
    bar.update(bar.total)
    assert bar._progress.tasks[0].percentage == 100.0
    bar.close()


def test_a_failed_download_says_what_else_can_be_done(published: str, tmp_path: Path) -> None:
    advice = "download http://127.0.0.1.* by other means and give its path"
    with pytest.raises(ValueError, match=f"cannot be downloaded: .*404.*; {advice}"):
        datasets.download_mpi3d(tmp_path, f"{published}.gone", "0" * 32)
    with pytest.raises(ValueError, match=f"cannot be downloaded: .*hash.*; {advice}"):
        datasets.download_mpi3d(tmp_path, published, "0" * 32)
    assert not list(tmp_path.iterdir())


def test_mpi3d_is_downloaded_if_no_path_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    advice = (
        r"needs pooch: pip install 'diffurn\[experiments\]', or download https://storage.*toy\.npz"
    )
    with pytest.raises(ValueError, match=advice):
        load_factors("mpi3d_toy")


def test_pictures_that_are_drawn_can_be_held_in_memory():
    class Drawn:
        name, names, sizes, shape = "drawn", ("one", "other"), (2, 3), (1, 2, 1)

        def images(self, factors):
            return (factors.float() / 5)[..., None, :, None]

        def to(self, device):
            return self

    stored = held(Drawn(), "cpu", chunk=4)
    factors = torch.cartesian_prod(torch.arange(2), torch.arange(3))
    torch.testing.assert_close(
        stored.images(factors), Drawn().images(factors), rtol=0, atol=0.5 / 255
    )
