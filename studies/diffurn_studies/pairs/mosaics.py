"""The figures that show images: reconstructions and traversals of a few models."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from diffurn_studies.harness.pictures import unpacked
from diffurn_studies.pairs.methods import Method
from diffurn_studies.pairs.records import Model, settings_of

PICTURED = 4  # methods in a figure
LARGEST = 2  # the traversals go from −2 to 2


def pictured_models(models: Sequence[Model]) -> list[Model]:
    """One model each of up to `PICTURED` methods, at the middle one of the s for which most methods
    have images.
    """
    by_shared: dict[int | None, dict[Method, Model]] = {}
    for model in models:
        if model.get("pictures") is not None:
            by_shared.setdefault(model["shared"], {}).setdefault(model["method"], model)
    if not by_shared:
        return []
    most = max(map(len, by_shared.values()))
    best = [shared for shared in settings_of(models) if len(by_shared.get(shared, {})) == most]
    own = by_shared[best[len(best) // 2]]
    chosen = sorted(own, key=lambda method: _rank(method, list(own)))[:PICTURED]
    return [model for method, model in own.items() if method in chosen]


def _rank(method: Method, methods: Sequence[Method]) -> tuple[bool, ...]:
    """Sorts the first method of each kind before the others, and the oracle last."""
    is_first = method == next(each for each in methods if each.kind == method.kind)
    return method.kind == "oracle", not is_first, method.kind != "hypergeometric"


def _mosaic(pictures: np.ndarray, gap: int = 3) -> np.ndarray:
    """Images (rows, columns, H, W, C) as one image on white."""
    rows, columns, height, width, channels = pictures.shape
    whole = np.full((rows, height + gap, columns, width + gap, channels), 255, dtype=np.uint8)
    whole[:, :height, :, :width] = pictures.transpose(0, 2, 1, 3, 4)
    flat = whole.reshape(rows * (height + gap), columns * (width + gap), channels)
    return flat[:-gap, :-gap]


def _decoded(model: Model, kind: str, *leading: int) -> np.ndarray:
    return unpacked(model["pictures"][kind], *model["shape"][:2]).reshape(*leading, *model["shape"])


def _show(
    panel: Any, pictures: np.ndarray, rows: Sequence[str], columns: Mapping[int, str]
) -> None:
    """A mosaic with a label for each row and for some columns."""
    gap, (height, width) = 3, pictures.shape[2:4]
    panel.imshow(_mosaic(pictures, gap), interpolation="nearest", cmap="gray")
    panel.set_yticks(
        [(height + gap) * place + height / 2 for place in range(len(rows))], rows, size=8
    )
    panel.set_xticks(
        [(width + gap) * place + width / 2 for place in columns], list(columns.values()), size=8
    )
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)


def reconstructions(models: Sequence[Model]) -> Figure:
    """Test pairs, the same for all models, and their reconstructions."""
    figure = Figure(figsize=(12.4, 0.86 * (len(models) + 1) + 0.9), layout="constrained", dpi=160)
    # axes: pairs, original or reconstruction, views
    found = [_decoded(model, "pairs", -1, 2, 2) for model in models]
    names = ["picture", *(textwrap.fill(model["method"].label, 28) for model in models)]
    for view, panel in enumerate(figure.subplots(1, 2)):
        rows = np.stack([found[0][:, 0, view], *(own[:, 1, view] for own in found)])
        _show(panel, rows, names if view == 0 else [], {})
        panel.set_title(f"view {view + 1}", size=10)
    figure.suptitle(f"test pairs and their reconstructions, {_about(models[0])}", size=11)
    return figure


def traversals(models: Sequence[Model], latents: int) -> Figure:
    """The effect of each latent on an image."""
    figure = Figure(
        figsize=(3.6 * len(models) + 0.4, 0.5 * latents + 0.9), layout="constrained", dpi=160
    )
    for number, (panel, model) in enumerate(
        zip(figure.subplots(1, len(models), squeeze=False)[0], models, strict=True)
    ):
        pictures = _decoded(model, "traversals", latents, -1)
        last = pictures.shape[1] - 1
        _show(
            panel,
            pictures,
            [str(latent + 1) for latent in range(latents)],
            {0: f"−{LARGEST}", last // 2: "0", last: f"{LARGEST}"},
        )
        panel.set_title(textwrap.fill(model["method"].label, 44), size=10)
        panel.set_xlabel("value of the latent", size=9)
        if number == 0:
            panel.set_ylabel("latent", size=9)
    figure.suptitle(f"one latent at a time, {_about(models[0])}", size=11)
    return figure


def _about(model: Model) -> str:
    return (
        f"{'random s' if model['shared'] is None else 's = ' + str(model['shared'])}, seed "
        f"{model['seed']}"
    )
