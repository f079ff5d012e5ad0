"""Rows that are spread over processes: read in all of them, or refused in all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from torch import distributed

from diffurn.inference.reading.counts import Read
from diffurn.inference.solving.sample import Sample

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")


def described(sample: Sample) -> dict[str, Any]:
    """The properties of a sample that all processes must share, by the names of arguments."""
    shape = tuple(sample.batch_shape)
    return {"batch_shape": shape, "groups": sample.groups, "names": sample.names}


def read_together(
    process_group: ProcessGroup,
    read: Callable[[], T],
    describe: Callable[[T], Mapping[str, Any]],
    options: Mapping[str, Any],
) -> T:
    """read(), in every process. An error in one process is raised in all, so that no process waits
    for another one for ever.

    Args:
        process_group: the processes.
        read: reads the rows of this process.
        describe: the properties of these rows that must be the same in all processes, by name.
        options: arguments that must be the same in all processes, by name.
    """
    if distributed.get_rank(process_group) < 0:
        raise ValueError("this process does not belong to process_group; fit in its members only")
    failure: Exception | None = None
    try:
        found = read()
        message: Any = (None, {**describe(found), **options})
    except Exception as error:
        failure, message = error, (str(error), {})
    messages: list[Any] = [None] * distributed.get_world_size(process_group)
    distributed.all_gather_object(messages, message, group=process_group)
    if failure is not None:
        raise failure
    for rank, (wrong, _) in enumerate(messages):
        if wrong is not None:
            raise ValueError(f"process {rank} of process_group could not read its rows: {wrong}")
    for rank, (_, theirs) in enumerate(messages):
        for name, value in messages[0][1].items():
            if theirs[name] != value:
                values = f"{value!r} in process 0, {theirs[name]!r} in process {rank}"
                raise ValueError(
                    f"{name} must be the same in all processes of process_group, but is {values}"
                )
    return found


def spread(rows: Read, process_group: ProcessGroup) -> Read:
    """The rows of this process, as a part of those of all processes."""
    sample = replace(rows.sample, process_group=process_group)
    return rows._replace(sample=sample, left_out=sample.summed(rows.left_out)[0])
