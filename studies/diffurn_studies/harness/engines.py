"""Where units run: in this process (`local`), or as tasks of a Ray cluster (`Ray`).

An engine takes jobs and yields their outcomes as they arrive, in any order; it writes no records,
so nothing can be recorded twice. Both engines give the same bits, on CPUs of one kind: a job always
computes with one torch thread and float32 as the default dtype, and units seed themselves, so
neither the number of workers nor that of cores matters. Whoever has cores to spare uses them by
running more units at once, with Ray.
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
from diffurn_studies.harness.workspace import Workspace

# How often a unit whose worker died is tried again; with checkpoints it goes on from the last one.
RETRIES = 5


class Outcome(NamedTuple):
    unit: str
    record: dict[str, Any]
    seconds: float


@dataclass(frozen=True)
class Job:
    """One unit of one experiment, small enough to be sent anywhere.

    Args:
        experiment: import path of the experiment's module.
        options: its options.
        unit: the unit's name.
        run: the run directory; a cluster of several machines needs it on a shared file system for
            logs and checkpoints.
        device: where to compute.
    """

    experiment: str
    options: Any
    unit: str
    run: Path
    device: str

    def __call__(self) -> Outcome:
        experiment = importlib.import_module(self.experiment)
        with (
            same_everywhere(),
            closing(Workspace(self.run, self.unit, torch.device(self.device))) as workspace,
        ):
            record = experiment.run_unit(self.options, self.unit, workspace)
        return Outcome(
            self.unit, as_plain_json(record, f"the record of unit {self.unit}"), workspace.seconds
        )


@contextmanager
def same_everywhere() -> Iterator[None]:
    """One thread (sums of several depend on how many) and float32 by default; the caller's settings
    and generator come back afterwards.
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
    """One job after another, in this process."""
    for job in jobs:
        yield job()


@dataclass(frozen=True)
class Ray:
    """Every job a task of a Ray cluster, on one core (and one GPU, where the device is one); a job
    whose worker dies is tried again.

    Args:
        address: of a running cluster, such as ``auto`` or ``ray://host:10001``; None starts one on
            this machine for the time of the run. A cluster this process is already connected to is
            used, and left, as it is.
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
        raise RunError("the engine ray needs Ray: pip install 'diffurn[cluster]'") from None


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
    """Ray itself would try for minutes before it says that nobody is there."""
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
    _import_ray()  # what is missing is said before anything begins
    return Ray(address)
