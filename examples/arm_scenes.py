"""The contact sheet of the arm scenes: a row for each factor, which runs through its values while
all others stay as they are.
"""

import os
from pathlib import Path
from typing import Annotated

import torch
import typer
from matplotlib.figure import Figure

from diffurn_studies.pairs import arm_scenes as arm
from diffurn_studies.pairs.arm_scenes import ArmScenes

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "arm-scenes.png"
FIXED = torch.tensor([2, 1, 1, 1, 1, 28, 20])
COLUMNS = 8
LABELS = [
    list(values)
    for values in (arm.OBJECT_COLOURS, arm.SHAPES, arm.RADII, arm.CAMERAS, arm.BACKGROUNDS)
]


def shown_values(size: int) -> list[int]:
    """All values of a factor, or as many evenly spaced ones as there are columns."""
    return torch.linspace(0, size - 1, min(size, COLUMNS)).round().long().tolist()


def contact_sheet() -> Figure:
    """One row of labelled pictures for each factor."""
    scenes = ArmScenes()
    figure = Figure(figsize=(10.2, 9.4), layout="constrained", dpi=140)
    grid = figure.subplots(len(scenes.sizes), COLUMNS + 1, width_ratios=[0.85] + [1.0] * COLUMNS)
    for panel in grid.flat:
        panel.axis("off")
    for factor, (name, size) in enumerate(zip(scenes.names, scenes.sizes, strict=True)):
        grid[factor, 0].text(1.0, 0.5, name.replace(" ", "\n"), ha="right", va="center", size=10)
        for panel, value in zip(grid[factor, 1:], shown_values(size), strict=False):
            factors = FIXED.clone()
            factors[factor] = value
            panel.imshow(scenes.images(factors).numpy(), interpolation="nearest")
            panel.set_title(
                LABELS[factor][value] if factor < len(LABELS) else str(value), size=8, pad=2
            )
    return figure


def main(picture: Annotated[Path, typer.Option(help="The file to write.")] = PICTURE) -> None:
    """Draw the contact sheet of the arm scenes."""
    unfinished = picture.with_name(f".{picture.name}")
    contact_sheet().savefig(unfinished, format="png")
    os.replace(unfinished, picture)
    print(f"wrote {picture}")


if __name__ == "__main__":
    typer.run(main)
