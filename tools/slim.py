"""Makes folders of results small enough to commit: ``python tools/slim.py results/ks``.

Records are compressed, and figures get a palette of at most 256 colours. Options, environments,
tables and timings stay as they are.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

from PIL import Image, ImageChops, ImageStat

# Charts need few colours, since most of theirs come from smooth edges.
PALETTES = (64, 128, 256)
# The largest mean difference of a channel, of 255.
INVISIBLE = 0.5


def compress(path: Path, content: bytes) -> None:
    """Replaces a file by a gzip archive, which has the same bytes in every run."""
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(content, mtime=0))
    path.unlink()


def without_pictures(content: dict[str, Any]) -> dict[str, Any]:
    """A record without the pictures of its models, and with a new checksum."""
    record = content["record"]
    models = record.get("models")
    if not isinstance(models, list) or not any(model.get("pictures") for model in models):
        return content
    slimmer = [{**model, "pictures": None} for model in models]
    record = {**record, "models": slimmer}
    checksum = hashlib.sha256(json.dumps([content["unit"], record]).encode()).hexdigest()
    return {**content, "sha256": checksum, "record": record}


def slim_record(path: Path, has_pictures: bool) -> None:
    written = path.read_bytes()
    if not has_pictures:
        slimmer = without_pictures(json.loads(written))
        written = (json.dumps(slimmer, ensure_ascii=False) + "\n").encode()
    compress(path, written)


def slim_figure(path: Path) -> None:
    """Gives a figure the smallest palette that shows no difference.

    A picture that differs visibly with every palette gets the largest one and dithering. A figure
    with a palette is left alone, so a second run changes nothing.
    """
    with Image.open(path) as image:
        if image.mode == "P":
            return
        opaque = image.convert("RGB")
    copies = (as_chart(opaque, colours) for colours in PALETTES)
    chosen = next((copy for copy in copies if difference(copy, opaque) < INVISIBLE), None)
    content = io.BytesIO()
    (chosen or as_picture(opaque)).save(content, "PNG", optimize=True)
    if content.tell() < path.stat().st_size:
        path.write_bytes(content.getvalue())


def as_chart(image: Image.Image, colours: int) -> Image.Image:
    return image.quantize(
        colours, method=Image.Quantize.MEDIANCUT, kmeans=2, dither=Image.Dither.NONE
    )


def as_picture(image: Image.Image) -> Image.Image:
    palette = image.quantize(PALETTES[-1], method=Image.Quantize.MAXCOVERAGE, kmeans=10)
    return image.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG)


def difference(copy: Image.Image, image: Image.Image) -> float:
    """The mean difference of a channel, of 255."""
    return sum(ImageStat.Stat(ImageChops.difference(copy.convert("RGB"), image)).mean) / 3


def require_clean_commit(folder: Path) -> None:
    """Refuses a run of a checkout that differed from its commit, or of no checkout."""
    path = folder / "environment.json"
    if not path.exists():  # of the benchmarks
        return
    environments = json.loads(path.read_text(encoding="utf-8"))["environments"]
    commits = [environment.get("commit", "no commit") for environment in environments]
    for commit in commits or ["no commit"]:
        if not re.fullmatch("[0-9a-f]{40}", commit):
            raise SystemExit(
                f"{path} names {commit}, but a result must come from a clean commit: run it again, "
                "or slim it with --dirty"
            )


def slim(folder: Path, has_pictures: bool) -> None:
    for path in sorted(folder.glob("records/*.json")):
        slim_record(path, has_pictures)
    for path in sorted(folder.glob("bench.json")):
        compress(path, path.read_bytes())
    for path in sorted(folder.rglob("*.png")):
        slim_figure(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="such as results/ks")
    parser.add_argument(
        "--without-pictures",
        action="store_true",
        help="leave the pictures of models out of the records; the figures have shown them",
    )
    parser.add_argument(
        "--dirty", action="store_true", help="take runs that name no clean commit as well"
    )
    chosen = parser.parse_args()
    for folder in chosen.folders:
        if not chosen.dirty:
            require_clean_commit(folder)
        slim(folder, has_pictures=not chosen.without_pictures)


if __name__ == "__main__":
    main()
