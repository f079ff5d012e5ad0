"""What a unit of work may use while it runs: a device, a folder, a log and a checkpoint."""

from __future__ import annotations

import io
import shutil
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch

from diffurn_studies.harness.records import RunError, write_atomically

_HAS_TENSORBOARD = find_spec("tensorboard") is not None
Logged = tuple[int, float, dict[str, float]]


class Workspace:
    """A unit's own place in the run directory.

    A unit that was interrupted starts again from its last checkpoint, and its log with it: the
    checkpoint carries everything logged so
    far and the state of torch's generators, so the log holds every step once and the draws go on
    where they stopped. It carries the time they took as well.

    Args:
        run: the run directory.
        unit: the name of the unit.
        device: where the unit computes.
    """

    def __init__(self, run: Path, unit: str, device: torch.device) -> None:
        self.unit = unit
        self.device = device
        self._directory = run / "files" / unit
        self._log = run / "logs" / unit
        self._checkpoint = run / "checkpoints" / f"{unit}.pt"
        self._logged: list[Logged] = []
        self._writer: Any = None
        self._started, self._seconds_before = time.perf_counter(), 0.0
        shutil.rmtree(
            self._log, ignore_errors=True
        )  # what an interrupted attempt logged comes back with its checkpoint, or is void

    @property
    def directory(self) -> Path:
        """For files of the unit's own; made when first asked for."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"{self._directory} cannot be made: {error.strerror or error}"
            ) from error
        return self._directory

    @property
    def seconds(self) -> float:
        """Spent on the unit so far, in earlier attempts up to their last checkpoint and in this
        one.
        """
        return self._seconds_before + time.perf_counter() - self._started

    def scalars(self, step: int, **values: Any) -> None:
        """Logs numbers for TensorBoard, where it is installed: ``workspace.scalars(step, loss=loss,
        accuracy=0.9)``.
        """
        entry = (step, time.time(), {name: float(value) for name, value in values.items()})
        self._logged.append(entry)
        self._write([entry])

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Remembers `state` (tensors, numbers, strings, lists and dicts), with torch's generators
        and the log, in place of the last one.
        """
        generators = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            generators["cuda"] = torch.cuda.get_rng_state(self.device)
        content = io.BytesIO()
        torch.save(
            {
                "state": state,
                "generators": generators,
                "logged": self._logged,
                "seconds": self.seconds,
            },
            content,
        )
        write_atomically(self._checkpoint, content.getvalue())

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The last state saved, with torch's generators and the log set back to that moment; None
        where the unit starts afresh.
        """
        if not self._checkpoint.exists():
            return None
        try:
            saved = torch.load(self._checkpoint, map_location=self.device, weights_only=True)
            state, generators, logged, seconds = (
                saved[name] for name in ("state", "generators", "logged", "seconds")
            )
            torch.set_rng_state(generators["cpu"].cpu())
            if self.device.type == "cuda" and "cuda" in generators:
                torch.cuda.set_rng_state(generators["cuda"].cpu(), self.device)
        except Exception as error:
            raise RunError(
                f"{self._checkpoint} cannot be read: delete it to start the unit {self.unit} anew"
            ) from error
        self.close()
        shutil.rmtree(self._log, ignore_errors=True)
        self._logged, self._seconds_before = logged, seconds
        self._write(self._logged)
        return cast("dict[str, Any]", state)

    def close(self) -> None:
        """Brings the log to the disk."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            try:
                writer.close()
            except OSError as error:
                raise RunError(
                    f"{self._log} cannot be written: {error.strerror or error}"
                ) from error

    def _write(self, entries: list[Logged]) -> None:
        if not _HAS_TENSORBOARD:
            return
        try:
            for step, when, values in entries:
                for name, value in values.items():
                    self._summary_writer().add_scalar(name, value, step, walltime=when)
        except OSError as error:
            raise RunError(f"{self._log} cannot be written: {error.strerror or error}") from error

    def _summary_writer(self) -> Any:
        if self._writer is None:
            from torch.utils.tensorboard.writer import SummaryWriter

            self._writer = SummaryWriter(str(self._log), flush_secs=30)
        return self._writer
