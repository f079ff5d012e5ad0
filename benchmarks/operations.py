"""Counts the operations of torch in a job; on a GPU, each is about one kernel launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

# Views of tensors compute nothing.
VIEWS = frozenset(
    [
        "alias",
        "detach",
        "expand",
        "permute",
        "select",
        "slice",
        "squeeze",
        "t",
        "transpose",
        "unbind",
        "unsqueeze",
        "view",
    ]
)


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        self.number += function.name().removeprefix("aten::").partition(".")[0] not in VIEWS
        return function(*arguments, **(options or {}))


def operations_of(run: Callable[[], Any]) -> int:
    """How many operations a run takes, forward and backward; views are not counted.

    Example:
        >>> import torch
        >>> operations_of(lambda: torch.ones(3).unsqueeze(0) + 1)
        2
    """
    with _Counter() as counter:
        run()
    return int(counter.number)
