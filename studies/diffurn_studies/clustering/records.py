"""Reads the records of the clustering study: its models and the sizes of its classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from diffurn_studies.clustering.priors import Prior

Model = dict[str, Any]
Records = Mapping[str, Mapping[str, Any]]


def version_name(share: float) -> str:
    """The name of a version in the paper's table."""
    return "uniform" if share == 1 else f"subsampled {100 * share:g} %"


def models_of(records: Records) -> list[Model]:
    return [model for record in records.values() for model in record["models"]]


def select(models: Iterable[Model], version: float, prior: Prior) -> list[Model]:
    """The models of one version and prior, by seed."""
    return [
        model for model in models if model["version"] == version and model["prior"] == str(prior)
    ]


def class_counts(records: Records) -> dict[str, list[int]]:
    """The sizes of the classes of the test part, by the name of the version."""
    return {
        name: parts["test"]
        for record in records.values()
        for name, parts in record["class_counts"].items()
    }
