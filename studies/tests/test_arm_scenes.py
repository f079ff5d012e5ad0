"""Arm scenes: what every picture must show, seen from the pictures alone.

A pixel belongs to the object where its colour makes a difference; places and outlines are measured
on those pixels.
"""

from __future__ import annotations

import itertools
import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor

from diffurn_studies.pairs.arm_scenes import NAMES, SIZES, ArmScenes

COLOUR, SHAPE, SIZE, CAMERA, BACKGROUND, HORIZONTAL, VERTICAL = range(7)
AXES = (HORIZONTAL, VERTICAL)
WHITE, BLUE = 0, 3
VISIBLE = 0.1  # the least change of some pixel that counts as seen; 26 of 255 steps
PIXELS = 64

scenes = ArmScenes()


def random_scenes(number: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.stack(
        [torch.randint(0, size, (number,), generator=generator) for size in SIZES], -1
    )


def with_value(factors: Tensor, factor: int, value: Tensor | int) -> Tensor:
    changed = factors.clone()
    changed[..., factor] = value
    return changed


def largest_change(one: Tensor, other: Tensor) -> Tensor:
    return (one - other).abs().flatten(-3).amax(-1)


def object_mask(factors: Tensor) -> Tensor:
    """How far each pixel belongs to the object, from 0 to about 1: white and blue differ most in
    red.
    """
    white, blue = (scenes.images(with_value(factors, COLOUR, colour)) for colour in (WHITE, BLUE))
    return (white - blue)[..., 0]


def centres(factors: Tensor) -> tuple[Tensor, Tensor]:
    """Middles of the objects in pixels, to the right and up."""
    mask, pixel = object_mask(factors), torch.arange(PIXELS, dtype=torch.float32)
    total = mask.sum((-1, -2))
    return (mask.sum(-2) * pixel).sum(-1) / total, -(mask.sum(-1) * pixel).sum(-1) / total


def test_the_grid_is_that_of_mpi3d() -> None:
    assert scenes.sizes == (6, 6, 2, 3, 3, 40, 40)
    assert len(scenes.names) == len(NAMES) == 7
    assert scenes.shape == (64, 64, 3)


def test_all_values_are_colours() -> None:
    ends = torch.tensor(list(itertools.product(*[(0, size - 1) for size in SIZES])))
    for factors in (ends, random_scenes(100)):
        pictures = scenes.images(factors)
        assert pictures.dtype == torch.float32
        assert torch.all((pictures >= 0) & (pictures <= 1))


@pytest.mark.parametrize("factor", range(7), ids=NAMES)
def test_every_change_of_a_single_factor_is_seen(factor: int) -> None:
    """All pairs of values; for the axes, whose neighbours are the hardest to tell apart, each value
    and the next.
    """
    factors = random_scenes(195 if factor in AXES else 50, seed=factor)
    if factor in AXES:
        values = torch.arange(len(factors)) % (SIZES[factor] - 1)
        pictures = [
            scenes.images(with_value(factors, factor, each)) for each in (values, values + 1)
        ]
    else:
        pictures = [
            scenes.images(with_value(factors, factor, value)) for value in range(SIZES[factor])
        ]
    for one, other in itertools.combinations(pictures, 2):
        assert torch.all(largest_change(one, other) > VISIBLE)


@pytest.mark.parametrize("camera", range(3))
def test_shapes_and_sizes_at_neighbouring_places_are_all_different(camera: int) -> None:
    """A small object here must not look like a larger or rounder one a step further: 108 scenes,
    every two of them.
    """
    (start,) = random_scenes(1, seed=20 + camera)
    grid = torch.tensor(list(itertools.product(range(6), range(2), range(3), range(3))))
    factors = with_value(start.repeat(len(grid), 1), CAMERA, camera)
    factors[:, [SHAPE, SIZE]] = grid[:, :2]
    factors[:, list(AXES)] = (start[list(AXES)] - 2).clamp(min=0) + grid[:, 2:]
    pictures = scenes.images(factors).flatten(1)
    assert torch.nn.functional.pdist(pictures, p=torch.inf).min() > VISIBLE


def test_random_scenes_are_all_different() -> None:
    factors = random_scenes(150, seed=30).unique(dim=0)
    assert torch.nn.functional.pdist(scenes.images(factors).flatten(1), p=torch.inf).min() > VISIBLE


def test_the_object_follows_the_axes_step_by_step() -> None:
    """Everywhere each step takes the object at least half a pixel further, by the same amount, and
    only along its own axis.
    """
    for camera, axis in itertools.product(range(3), AXES):
        factors = torch.tensor([[0, 5, 1, camera, 0, 31, 12]]).repeat(40, 1)
        factors[:, axis] = torch.arange(40)
        right, up = centres(factors)
        along, across = (right, up) if axis == HORIZONTAL else (up, right)
        steps = along.diff()
        assert steps.min() > 0.5
        assert steps.max() - steps.min() < 0.1
        assert across.max() - across.min() < 0.1


def test_the_whole_object_is_always_within_the_frame() -> None:
    corners = torch.tensor(
        list(itertools.product((0,), range(6), range(2), range(3), (0,), (0, 39), (0, 39)))
    )
    mask = object_mask(corners)
    border = torch.ones(PIXELS, PIXELS, dtype=torch.bool)
    border[1:-1, 1:-1] = False
    assert torch.all(mask[..., border] == 0)
    assert torch.all(mask.flatten(1).amax(1) > 0.4)


def test_nothing_hides_the_object() -> None:
    """Wherever it is, a shape has the same area, up to the antialiasing of its edges."""
    for shape, size in itertools.product(range(6), range(2)):
        factors = random_scenes(20, seed=40)
        factors[:, SHAPE], factors[:, SIZE], factors[:, BACKGROUND] = shape, size, 0
        areas = object_mask(factors).sum((-1, -2))
        assert areas.std() < 0.05 * areas.mean()


def test_the_large_object_is_larger_and_each_shape_has_its_own_outline() -> None:
    factors = torch.tensor(
        list(itertools.product((0,), range(6), range(2), (1,), (0,), (30,), (30,)))
    )
    masks = object_mask(factors).reshape(6, 2, PIXELS, PIXELS)
    small, large = masks.unbind(1)
    assert torch.all(large.sum((-1, -2)) > 1.8 * small.sum((-1, -2)))
    for outlines in (small, large):
        for one, other in itertools.combinations(outlines, 2):
            assert (one - other).abs().sum() > 0.15 * torch.maximum(one, other).sum()


def test_a_higher_camera_sees_more_of_the_floor() -> None:
    """The wall is brighter than the floor in every column; the left edge shows where one ends."""
    pictures = scenes.images(torch.tensor([[0, 0, 0, camera, 0, 30, 30] for camera in range(3)]))
    left = pictures[:, :, 0].sum(-1)
    horizon = left.diff(dim=-1).argmin(-1)
    assert torch.all(horizon.diff() > 5)


def test_edges_are_antialiased() -> None:
    """Around a disc there is a ring of pixels, about one wide, that belong to it in part, by many
    different shares.
    """
    mask = object_mask(torch.tensor([0, 5, 1, 2, 0, 35, 10]))
    mixed = mask[(mask > 0.02) & (mask < 0.3)]
    assert 10 < len(mixed) < 80
    assert len(mixed.unique()) > 5


def test_a_picture_does_not_depend_on_its_company() -> None:
    factors = random_scenes(24, seed=50)
    together = scenes.images(factors)
    assert torch.equal(scenes.images(factors), together)
    torch.testing.assert_close(
        scenes.images(factors.reshape(2, 3, 4, 7)).flatten(0, 2), together, rtol=0, atol=1e-6
    )
    for picture, own in zip(together[:4], factors, strict=False):
        torch.testing.assert_close(scenes.images(own), picture, rtol=0, atol=1e-6)
    assert scenes.images(factors[:0]).shape == (0, 64, 64, 3)


def test_pictures_are_the_same_on_every_device(device: torch.device) -> None:
    factors = random_scenes(20, seed=60)
    there = scenes.to(device).images(factors.to(device))
    assert there.device.type == device.type
    torch.testing.assert_close(there.cpu(), scenes.images(factors), rtol=0, atol=1e-4)


# torch itself, on first use of its compiler, calls functions that it has deprecated
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
@pytest.mark.parametrize(
    "backend",
    ["eager", pytest.param("inductor", marks=[pytest.mark.slow, pytest.mark.needs("C++")])],
)
def test_drawing_is_one_graph_without_a_look_at_values(backend: str, device: torch.device) -> None:
    factors, there = random_scenes(8, seed=70).to(device), scenes.to(device)
    torch.compiler.reset()
    compiled = torch.compile(there.images, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(factors), there.images(factors), rtol=0, atol=1e-4)


def test_the_contact_sheet_shows_every_factor(tmp_path: Path) -> None:
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "arm_scenes.py"))
    panels = example["contact_sheet"]().axes
    columns = len(panels) // len(SIZES)
    rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    assert [sum(len(panel.images) for panel in row) for row in rows] == [6, 6, 2, 3, 3, 8, 8]
    example["main"](tmp_path / "sheet.png")
    assert [path.name for path in tmp_path.iterdir()] == ["sheet.png"]
