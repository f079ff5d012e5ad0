"""Records of the pairs study whose answers can be worked out by hand."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from diffurn_studies.harness.pictures import packed
from diffurn_studies.harness.tables import Table, text
from diffurn_studies.pairs.methods import ADAPTIVE, HYPERGEOMETRIC, LABEL, Method
from diffurn_studies.pairs.options import Options

FACTORS = [
    "object colour",
    "shape",
    "size",
    "camera height",
    "background colour",
    "horizontal",
    "vertical",
]


SHAPE = (4, 5, 3)


STEPS = 1_000


ONCE = replace(HYPERGEOMETRIC, payment="once")


def options(**changes: Any) -> Options:
    usual = Options(shared=(0, 3), seeds=1, steps=STEPS, latent=10, sampler="exact")
    return replace(usual, **changes)


def counts(**pairs: int) -> list[int]:
    """counts(k4=10): ten pairs with k̂ = 4."""
    return [pairs.get(f"k{number}", 0) for number in range(11)]


def trained(
    method: Method,
    shared: int | None,
    found: dict[str, list[int]] | list[int] | None,
    seed: int = 0,
    **changes: Any,
) -> dict[str, Any]:
    """A model; found are its counts, None if it broke down."""
    steps = list(range(0, STEPS + 1, 100)) if found is not None else [0, 100]
    by_shared = {str(shared): found} if isinstance(found, list) else found
    final = {
        "loss": 2500.0 + seed,
        "reconstruction": 2470.0,
        "kl": 30.0,
        "active": 7,
        "counts": by_shared,
    }
    final["profile"] = [2500.0 + (number - 4) ** 2 for number in range(11)]
    return {
        "method": asdict(method),
        "label": method.label,
        "shared": shared,
        "seed": seed,
        "stopped_after": None if found is not None else 123,
        "curve": {
            name: [5000.0 / (1 + step) + seed for step in steps]
            for name in ("loss", "reconstruction", "kl", "independent")
        }
        | {"step": steps},
        "final": final if found is not None else None,
        "pictures": None,
        **changes,
    }


def scored(
    model: dict[str, Any],
    independent: float | None,
    shared: float | None = 0.3,
    unconverged: int = 0,
) -> dict[str, Any]:
    setting = {name: model[name] for name in ("method", "label", "shared", "seed")}
    scores = {
        "shared_accuracy": shared,
        "independent_accuracy": independent,
        "whole_accuracy": 0.5,
        "disentanglement": 0.25,
    }
    return {**setting, **scores, "by_factor": {}, "unconverged": unconverged}


def train_record(*models: dict[str, Any]) -> dict[str, Any]:
    return {
        "dataset": "arm",
        "factors": FACTORS,
        "shape": list(SHAPE),
        "steps": STEPS,
        "models": list(models),
    }


def with_pictures(model: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    pairs, values = (
        random.integers(0, 256, (*size, *SHAPE), dtype=np.uint8) for size in ((8, 2, 2), (10, 7))
    )
    return {**model, "pictures": {"pairs": packed(pairs), "traversals": packed(values)}}


SMALL = {
    "train-s0": train_record(
        trained(LABEL, 0, counts(k1=10)),
        trained(ADAPTIVE, 0, counts(k2=10)),
        trained(HYPERGEOMETRIC, 0, counts(k7=8, k6=2)),
    ),
    "train-s3": train_record(
        trained(LABEL, 3, counts(k1=10)),
        trained(ADAPTIVE, 3, counts(k1=5, k2=5)),
        trained(HYPERGEOMETRIC, 3, counts(k4=10)),
    ),
}


def scores_of(records: dict[str, Any], independent: dict[str, float]) -> dict[str, Any]:
    """The units that score these models, each method with its own I-accuracy."""
    return {
        unit.replace("train", "score"): {
            "models": [scored(model, independent[model["label"]]) for model in record["models"]]
        }
        for unit, record in records.items()
    }


def titled(found: list[Table], words: str) -> Table:
    (table,) = (table for table in found if words in table.title)
    return table


def row(table: Table, *start: Any) -> dict[str, str]:
    """The one row that starts so, by column; of columns that share a heading the last."""
    (cells,) = (cells for cells in table.rows if tuple(cells[: len(start)]) == start)
    return {column: text(cell) for column, cell in zip(table.columns, cells, strict=True)}


def with_urns(
    model: dict[str, Any],
    modes: dict[str, list[int]],
    means: dict[str, list[float]],
) -> dict[str, Any]:
    return {**model, "final": {**model["final"], "modes": modes, "means": means}}


def ablated() -> dict[str, Any]:
    """Two learning rates, one of them at s = 3 only; and a single value of everything else."""
    fast = replace(HYPERGEOMETRIC, learning_rate=1e-4)
    return {
        "train-s0": train_record(trained(HYPERGEOMETRIC, 0, counts(k7=1))),
        "train-s3": train_record(
            trained(HYPERGEOMETRIC, 3, counts(k4=1)),
            trained(HYPERGEOMETRIC, 3, counts(k2=1), seed=1),
            trained(fast, 3, counts(k5=1)),
            trained(fast, 3, None, seed=1),
            trained(ADAPTIVE, 3, counts(k4=1)),
        ),
    }
