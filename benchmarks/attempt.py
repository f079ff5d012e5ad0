"""Records of measurements that may fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.limits import CannotDoError
from benchmarks.measure import Timing

Record = dict[str, Any]
Progress = Callable[[int, int], None]


def attempt(measure: Callable[[], Record]) -> Record:
    """The record of a measurement, or the reason why there is none.

    An error of a contender is a result like any other, so it is recorded and the run goes on.
    """
    try:
        return {"status": "measured", **measure()}
    except CannotDoError as reason:
        return {"status": "skipped", "reason": str(reason)}
    except (MemoryError, torch.OutOfMemoryError):
        return {"status": "skipped", "reason": "out of memory"}
    except Exception as error:
        sentence = " ".join(str(error).split())[:200]
        return {"status": "failed", "reason": f"{type(error).__name__}: {sentence}"}


def is_measured(record: Record) -> bool:
    return bool(record["status"] == "measured")


def times_of(timing: Timing[Any], items: int) -> Record:
    """The times of a measurement for its record."""
    return {
        "measured_items": items,
        "seconds": list(timing.rounds),
        "repeats": timing.repeats,
        "median": timing.median,
        "spread": timing.spread,
        "per_item": timing.median / items,
    }
