"""What the records of the clustering study say: its models and classes, and names for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Model = dict[str, Any]
Records = Mapping[str, Mapping[str, Any]]
REDUCED = range(5)  # the classes of which a version keeps a share


def version_name(share: float) -> str:
    """As in the paper's table."""
    return "uniform" if share == 1 else f"subsampled {100 * share:g} %"


def models_of(records: Records) -> list[Model]:
    return [model for record in records.values() for model in record["models"]]


def select(models: Iterable[Model], version: float, prior: str) -> list[Model]:
    """By seed."""
    return [model for model in models if model["version"] == version and model["prior"] == prior]


def class_counts(records: Records) -> dict[str, list[int]]:
    """How many items of each class the test part has, by the name of the version."""
    return {
        name: parts["test"]
        for record in records.values()
        for name, parts in record["class_counts"].items()
    }
