"""Arm scenes: a small robot holds an object above a floor. 1,036,800 images of seven known factors,
rendered on demand.

The factors and their values are those of mpi3d (Gondal et al., *On the Transfer of Inductive Bias
from Simulation to the Real World*, NeurIPS 2019). An arm with two links reaches from a turning base
to the position given by the two axes. Its hand holds an object of some colour, shape and size, seen
from one of three heights in front of one of three backgrounds. Every part is given by the signed
distance d to its outline and covers the fraction clamp(½ - d/pixel) of a pixel. Edges are therefore
smooth, and a step of an axis, which is at least half a pixel, is visible.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

NAMES = (
    "object colour",
    "object shape",
    "object size",
    "camera height",
    "background colour",
    "horizontal axis",
    "vertical axis",
)
SIZES = (6, 6, 2, 3, 3, 40, 40)
PIXELS = 64


class Outline(NamedTuple):
    """The parameters of a shape of radius one: the union of two rounded boxes, hollow behind a
    wall, cut off along a slope.

    Lengths are half widths and half heights; the slope keeps slope·(|x|, y) ≤ cut. Parameters that
    a shape does not need have values without effect, so one formula renders all shapes, and images
    of different shapes are rendered together.
    """

    box: tuple[float, float]
    other_box: tuple[float, float]
    rounding: float
    wall: float = 1.0
    slope: tuple[float, float] = (0.0, 0.0)
    cut: float = 1.0


OBJECT_COLOURS = {
    "white": (0.97, 0.97, 0.95),
    "green": (0.10, 0.72, 0.20),
    "red": (0.90, 0.10, 0.12),
    "blue": (0.12, 0.28, 0.95),
    "brown": (0.47, 0.24, 0.08),
    "olive": (0.66, 0.66, 0.05),
}
SHAPES = {
    "cone": Outline((0.95, 0.95), (0.95, 0.95), 0.05, slope=(0.894, 0.447), cut=0.447),
    "cube": Outline((0.82, 0.82), (0.82, 0.82), 0.04),
    "cylinder": Outline((0.10, 0.66), (0.10, 0.66), 0.34),
    "cross": Outline((0.96, 0.28), (0.28, 0.96), 0.04),
    "ring": Outline((0.0, 0.0), (0.0, 0.0), 1.0, wall=0.27),
    "sphere": Outline((0.0, 0.0), (0.0, 0.0), 1.0),
}
RADII = {"small": 0.15, "large": 0.23}
CAMERAS = {"top": 36.0, "centre": 20.0, "bottom": 5.0}  # degrees below the horizontal
BACKGROUNDS = {
    "purple": (0.62, 0.48, 0.80),
    "sea green": (0.42, 0.76, 0.66),
    "salmon": (0.98, 0.64, 0.55),
}

_PIXEL = 2 / PIXELS  # images have width and height 2
_STEEL = (0.93, 0.97, 1.0)
# The world: x to the right, z up from the floor, depth from the object's plane towards the wall.
_AT_ONCE = 16  # images per chunk on a CPU, so that intermediate results stay in its cache
_MIDDLE = 0.64  # the height z, at depth 0, of the middle of the image
_BASE_DEPTH, _WALL_DEPTH = 0.55, 1.05
_SHOULDER, _UPPER_ARM, _FOREARM = 0.42, 0.72, 0.82
_HAND = 0.15  # from the wrist down to the object
_ACROSS, _UPWARDS = (-0.72, 0.72), (0.50, 1.38)  # range of the object's top along the axes


class _Camera(NamedTuple):
    """A distant camera that looks down by an angle: depth moves things up in the image, and heights
    are foreshortened.
    """

    sine: Tensor
    cosine: Tensor

    def y(self, z: Tensor | float, depth: Tensor | float) -> Tensor:
        return (z - _MIDDLE) * self.cosine + depth * self.sine


class _Arm(NamedTuple):
    """Positions in the image; the base is at x = 0."""

    foot_y: Tensor
    shoulder_y: Tensor
    elbow_x: Tensor
    elbow_y: Tensor
    wrist_x: Tensor
    wrist_y: Tensor


class ArmScenes:
    """Images by their factors, rendered on the device. This is the default data set of the study;
    it needs no download.

    Args:
        device: where images are rendered.

    Example:
        >>> scenes = ArmScenes()
        >>> scenes.images(torch.tensor([[2, 4, 1, 0, 2, 10, 30], [0, 0, 0, 0, 0, 0, 0]])).shape
        torch.Size([2, 64, 64, 3])
    """

    name = "arm"
    names = NAMES
    sizes = SIZES
    shape = (PIXELS, PIXELS, 3)

    def __init__(self, device: torch.device | str = "cpu") -> None:
        def table(values: object) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=device)

        centres = (torch.arange(PIXELS, dtype=torch.float32, device=device) + 0.5) * _PIXEL - 1
        self._x, self._y = centres, -centres.unsqueeze(-1)
        self._object_colours, self._backgrounds = (
            table(list(OBJECT_COLOURS.values())),
            table(list(BACKGROUNDS.values())),
        )
        self._outlines = table(
            [[*o.box, *o.other_box, o.rounding, o.wall, *o.slope, o.cut] for o in SHAPES.values()]
        )
        self._radii, self._steel = table(list(RADII.values())), table(_STEEL)
        angles = [math.radians(degrees) for degrees in CAMERAS.values()]
        self._sines, self._cosines = (
            table([math.sin(angle) for angle in angles]),
            table([math.cos(angle) for angle in angles]),
        )

    def to(self, device: torch.device | str) -> ArmScenes:
        return ArmScenes(device)

    def images(self, factors: Tensor) -> Tensor:
        """Images (..., 64, 64, 3), float32 from 0 to 1, of factors (..., 7): integers below
        `sizes`, which are not checked.
        """
        if factors.is_cuda or torch.compiler.is_compiling():
            return self._drawn(factors)
        rows = factors.reshape(-1, len(SIZES)).split(_AT_ONCE)
        return torch.cat([self._drawn(some) for some in rows]).reshape(
            *factors.shape[:-1], *self.shape
        )

    def _drawn(self, factors: Tensor) -> Tensor:
        colour, shape, size, camera_height, background, horizontal, vertical = factors[
            ..., None, None
        ].unbind(-3)
        camera = _Camera(self._sines[camera_height], self._cosines[camera_height])
        x, z, radius = _placed(horizontal, _ACROSS), _placed(vertical, _UPWARDS), self._radii[size]
        arm = _reaching(x, z + _HAND, camera)
        picture = (
            self._backdrop(camera, x, radius, arm.foot_y).unsqueeze(-1)
            * self._backgrounds[background]
        )
        picture = _painted(picture, *self._machine(arm), self._steel)
        distance, light = self._object(self._outlines[shape], x, camera.y(z - radius, 0.0), radius)
        return _painted(picture, distance, light, self._object_colours[colour])

    def _backdrop(self, camera: _Camera, x: Tensor, radius: Tensor, foot_y: Tensor) -> Tensor:
        """The light on wall and floor, with the shadows of object and base."""
        horizon = camera.y(0.0, _WALL_DEPTH)
        light = (
            0.94
            + 0.06 * self._y
            - _coverage(self._y - horizon) * (0.30 + 0.12 * (horizon - self._y))
        )
        of_object = 0.38 * self._shadow(camera, x, camera.y(0.0, 0.0), 1.15 * radius)
        of_base = 0.30 * self._shadow(camera, 0.0, foot_y, 0.32)
        return light * (1 - torch.maximum(of_object, of_base))

    def _shadow(
        self, camera: _Camera, x: Tensor | float, y: Tensor, radius: Tensor | float
    ) -> Tensor:
        """A soft disc on the floor, which is an ellipse in the image."""
        flattened = radius * camera.sine + 0.02
        return (
            1.6 - 1.2 * (((self._x - x) / radius).square() + ((self._y - y) / flattened).square())
        ).clamp(0.0, 1.0)

    def _machine(self, arm: _Arm) -> tuple[Tensor, Tensor]:
        """The distance to the union of base, links and hand, and the light on it: dark outlines,
        bright joints.
        """
        base = _rounded_box(self._x, self._y - arm.foot_y, 0.20, 0.03, 0.03)
        base = torch.minimum(base, self._link(0.0, arm.foot_y + 0.10, 0.0, arm.shoulder_y, 0.14))
        upper_arm = self._link(0.0, arm.shoulder_y, arm.elbow_x, arm.elbow_y, 0.085)
        forearm = self._link(arm.elbow_x, arm.elbow_y, arm.wrist_x, arm.wrist_y, 0.062)
        aside, below = (self._x - arm.wrist_x).abs(), self._y - arm.wrist_y
        palm, finger = (
            _rounded_box(aside, below + 0.055, 0.10, 0.025, 0.012),
            _rounded_box(aside - 0.10, below + 0.12, 0.012, 0.08, 0.012),
        )
        distance = torch.minimum(
            torch.minimum(torch.minimum(base, upper_arm), torch.minimum(forearm, palm)), finger
        )
        joint = torch.minimum(
            self._disc(0.0, arm.shoulder_y, 0.06), self._disc(arm.elbow_x, arm.elbow_y, 0.05)
        )
        joint = torch.minimum(joint, self._disc(arm.wrist_x, arm.wrist_y, 0.035))
        light = 0.16 + 0.42 * _coverage(distance + 0.03)
        return distance, light + _coverage(joint) * (0.93 - light)

    def _object(
        self, outline: Tensor, x: Tensor, y: Tensor, radius: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The distance to the object's outline, and the light on the object from the upper left."""
        width, height, other_width, other_height, rounding, wall, aside, upwards, cut = (
            outline.unbind(-1)
        )
        right, up = (self._x - x) / radius, (self._y - y) / radius
        boxes = (
            _rounded_box(right, up, width, height, rounding),
            _rounded_box(right, up, other_width, other_height, rounding),
        )
        hollow = (torch.minimum(*boxes) + wall).abs() - wall
        distance = radius * torch.maximum(hollow, aside * right.abs() + upwards * up - cut)
        light = (0.86 + 0.1 * (up - right)).clamp(0.3, 1.0)
        return distance, light * (0.45 + 0.55 * _coverage(distance + 0.022))

    def _link(
        self, x: Tensor | float, y: Tensor, to_x: Tensor | float, to_y: Tensor, radius: float
    ) -> Tensor:
        """The distance to all points within `radius` of the line between two points."""
        along_x, along_y = to_x - x, to_y - y
        right, up = self._x - x, self._y - y
        length = along_x * along_x + along_y * along_y + 1e-6  # a link seen end-on is a point
        share = (right * (along_x / length) + up * (along_y / length)).clamp(0.0, 1.0)
        return _norm(right - share * along_x, up - share * along_y) - radius

    def _disc(self, x: Tensor | float, y: Tensor, radius: float) -> Tensor:
        return _norm(self._x - x, self._y - y) - radius


def _placed(value: Tensor, between: tuple[float, float]) -> Tensor:
    """The position of an axis' value. Positions are evenly spaced, so two of the 40 × 40 are at
    least one step apart.
    """
    first, last = between
    return first + (last - first) / (SIZES[-1] - 1) * value.to(torch.float32)


def _reaching(x: Tensor, z: Tensor, camera: _Camera) -> _Arm:
    """The arm with its wrist at (x, z), depth 0. The base turns towards the wrist, and the elbow
    points up in the vertical plane through base and wrist.
    """
    # from the shoulder to the wrist in that plane
    out, rise = (x * x + _BASE_DEPTH**2).sqrt(), z - _SHOULDER
    squared = out * out + rise * rise
    # law of cosines, in units of the distance from shoulder to wrist
    along = (squared + _UPPER_ARM**2 - _FOREARM**2) / (2 * squared)
    across = (_UPPER_ARM**2 / squared - along * along).sqrt()
    elbow_out, elbow_rise = along * out - across * rise, along * rise + across * out
    elbow_y = camera.y(_SHOULDER + elbow_rise, _BASE_DEPTH * (1 - elbow_out / out))
    return _Arm(
        camera.y(0.0, _BASE_DEPTH),
        camera.y(_SHOULDER, _BASE_DEPTH),
        elbow_out / out * x,
        elbow_y,
        x,
        camera.y(z, 0.0),
    )


def _norm(x: Tensor, y: Tensor) -> Tensor:
    return (x * x + y * y).sqrt()


def _rounded_box(
    x: Tensor, y: Tensor, width: Tensor | float, height: Tensor | float, rounding: Tensor | float
) -> Tensor:
    """The distance to all points within `rounding` of the box around the origin."""
    right, up = x.abs() - width, y.abs() - height
    return (
        _norm(right.clamp(min=0.0), up.clamp(min=0.0))
        + torch.maximum(right, up).clamp(max=0.0)
        - rounding
    )


def _coverage(distance: Tensor) -> Tensor:
    return (0.5 - distance / _PIXEL).clamp(0.0, 1.0)


def _painted(picture: Tensor, distance: Tensor, light: Tensor, colour: Tensor) -> Tensor:
    return picture + _coverage(distance).unsqueeze(-1) * (light.unsqueeze(-1) * colour - picture)
