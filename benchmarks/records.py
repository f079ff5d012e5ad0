"""Records of the grid as cases, and in groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from benchmarks.attempt import Record
from benchmarks.cells import Case


def case_of(record: Record) -> Case:
    return Case(**{field.name: record[field.name] for field in fields(Case)})


def grouped(records: Sequence[Record], *names: str) -> dict[tuple[Any, ...], list[Record]]:
    """Records with equal values under these names."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in names), []).append(record)
    return groups
