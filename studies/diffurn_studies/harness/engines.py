"""Engines: units run in this process (`local`) or as tasks of a Ray cluster (`Ray`).

An engine takes jobs and yields their outcomes in any order. It writes no records, so no unit is
recorded twice. Both engines give the same bits on CPUs of one kind: a job computes with one torch
thread and float32 as the default dtype, and a unit seeds itself. With more cores, Ray runs more
units at once.
"""

from __future__ import annotations

import importlib
import re
import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from diffurn_studies.harness.records import RunError, as_plain_json
from diffurn_studies.harness.study import Study
from diffurn_studies.harness.workspace import Workspace

# A unit whose worker died is tried again so often, each time from its last checkpoint.
RETRIES = 5


class Outcome(NamedTuple):
    """The record of a finished unit, and the seconds that it took."""

    unit: str
    record: dict[str, Any]
    seconds: float


@dataclass(frozen=True)
class Job:
    """One unit of a study, ready to run here or on a worker.

    Args:
        study: the study; a worker imports it by its name.
        options: its options.
        unit: the unit's name.
        run: the run directory; a cluster of several machines needs it on a shared file system for
            logs and checkpoints.
        device: where to compute.
    """

    study: Study
    options: Any
    unit: str
    run: Path
    device: str

    def __call__(self) -> Outcome:
        return self.in_workspace(Workspace(self.run, self.unit, torch.device(self.device)))

    def in_workspace(self, workspace: Workspace) -> Outcome:
        with same_everywhere(), closing(workspace):
            record = self.study.run_unit(self.options, self.unit, workspace)
        record = as_plain_json(record, f"the record of unit {self.unit}")
        return Outcome(self.unit, record, workspace.seconds)


@contextmanager
def same_everywhere() -> Iterator[None]:
    """Computes with one thread, since sums depend on the number of threads, and with float32 by
    default. Afterwards the caller's settings and random state are restored.
    """
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float32)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)


Outcomes = Generator[Outcome, None, None]
Engine = Callable[[Sequence[Job]], Outcomes]


def local(jobs: Sequence[Job]) -> Outcomes:
    """Runs one job after another in this process."""
    for job in jobs:
        yield job()


@dataclass(frozen=True)
class Ray:
    """Runs every job as a task of a Ray cluster, on one core and, on a CUDA device, one GPU. A job
    whose worker dies is tried again.

    Args:
        address: of a running cluster, such as ``auto`` or ``ray://host:10001``; None starts one on
            this machine for the time of the run. If this process is already connected to a cluster,
            that one is used and stays connected.
    """

    address: str | None = None

    def __call__(self, jobs: Sequence[Job]) -> Outcomes:
        ray = _import_ray()
        connected_before = ray.is_initialized()
        try:
            if jobs and not connected_before:
                _connect(ray, self.address)
            yield from _outcomes(ray, jobs)
        finally:
            if not connected_before:
                ray.shutdown()


def _import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise RunError("the engine ray needs Ray: pip install 'diffurn-studies[cluster]'") from None


def _connect(ray: Any, address: str | None) -> None:
    quietly = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            ray.init(address="local", include_dashboard=False, **quietly)
        else:
            _require_an_answer(address)
            ray.init(address=address, **quietly)
    except (OSError, RuntimeError, ValueError) as error:  # ConnectionError is an OSError
        raise RunError(
            f"no Ray cluster at {address or 'this machine'}: {str(error).splitlines()[0]}"
        ) from error


def _require_an_answer(address: str) -> None:
    """Fails at once if nothing answers; Ray itself would try for minutes."""
    if place := re.fullmatch(r"(?:ray://)?\[?([^/\[\]]+)\]?:(\d+)", address):
        socket.create_connection((place[1], int(place[2])), timeout=10).close()


def _outcomes(ray: Any, jobs: Sequence[Job]) -> Outcomes:
    task = ray.remote(max_retries=RETRIES, num_cpus=1)(Job.__call__)
    running = {
        task.options(num_gpus=int(job.device.startswith("cuda"))).remote(job): job.unit
        for job in jobs
    }
    try:
        while running:
            [finished], _ = ray.wait(list(running))
            yield _outcome(ray, finished, running.pop(finished))
    finally:
        for unfinished in running:
            ray.cancel(unfinished, force=True)


def _outcome(ray: Any, finished: Any, unit: str) -> Outcome:
    try:
        outcome: Outcome = ray.get(finished)
        return outcome
    except ray.exceptions.WorkerCrashedError as error:
        raise RunError(
            f"the worker of unit {unit} died {RETRIES + 1} times: is there enough memory?"
        ) from error
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, RunError) else error) from None


def named(name: str, address: str | None = None) -> Engine:
    """The engine called `name`, as the command line spells it."""
    if name not in ("local", "ray"):
        raise RunError(f"there is no engine {name!r}: choose local or ray")
    if name == "local" and address is not None:
        raise RunError(
            "an address is for the ray engine: add --engine ray, or leave the address out"
        )
    if name == "local":
        return local
    _import_ray()  # a missing package is reported before the run begins
    return Ray(address)
