"""Rows that are spread over processes: what is summed over rows is then summed over processes, and
nothing else is exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, distributed

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Result = TypeVar("Result")


def summed_over_processes(
    process_group: ProcessGroup, parts: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """The sum of each tensor over all processes, the same in all of them to the last bit."""
    message = torch.cat(
        [part.double().flatten() for part in parts]
    )  # one message is faster than many
    distributed.all_reduce(message, group=process_group)
    sums = message.split([part.numel() for part in parts])
    return tuple(
        total.reshape(part.shape).to(part.dtype) for total, part in zip(sums, parts, strict=True)
    )


def read_together(
    process_group: ProcessGroup | None,
    read: Callable[[], Result],
    described: Callable[[Result], Mapping[str, Any]],
) -> Result:
    """read(), in every process. What is wrong in one is raised in all, lest the others wait for it
    for ever.

    Args:
        process_group: None if there are no other processes.
        read: what this process has to say.
        described: its part that must be the same in all processes, by name.
    """
    if process_group is None:
        return read()
    if distributed.get_rank(process_group) < 0:
        raise ValueError("this process does not belong to process_group; fit in its members only")
    try:
        mine, failure = read(), None
    except Exception as error:
        failure = error
    news = (None, dict(described(mine))) if failure is None else (str(failure), {})
    everyone: list[Any] = [None] * distributed.get_world_size(process_group)
    distributed.all_gather_object(everyone, news, group=process_group)
    if failure is not None:
        raise failure
    for rank, (wrong, _) in enumerate(everyone):
        if wrong is not None:
            raise ValueError(f"process {rank} of process_group could not read its rows: {wrong}")
    for rank, (_, theirs) in enumerate(everyone):
        for name, value in everyone[0][1].items():
            if theirs[name] != value:
                found = f"{value!r} in process 0, {theirs[name]!r} in process {rank}"
                raise ValueError(
                    f"{name} must be the same in all processes of process_group, but is {found}"
                )
    return mine
