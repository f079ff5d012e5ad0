"""A workspace: the device, folder, log and checkpoint that a unit uses while it runs."""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch

from diffurn_studies.harness.records import RunError, write_atomically

HAS_TENSORBOARD = find_spec("tensorboard") is not None
Logged = tuple[int, float, dict[str, float]]


class Workspace:
    """A unit's own place in the run directory.

    An interrupted unit starts again from its last checkpoint. The checkpoint holds the log so far,
    the state of torch's generators and the time used so far. So the log has every step once, the
    random numbers go on where they stopped, and the time is that of all attempts.

    Args:
        run: the run directory.
        unit: the name of the unit.
        device: where the unit computes.
        logs: whether scalars are logged, which needs TensorBoard.
        clock: the time in seconds.
    """

    def __init__(
        self,
        run: Path,
        unit: str,
        device: torch.device,
        logs: bool = HAS_TENSORBOARD,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.unit = unit
        self.device = device
        self._logs, self._clock = logs, clock
        self._directory = run / "files" / unit
        self._log = run / "logs" / unit
        self._checkpoint = run / "checkpoints" / f"{unit}.pt"
        self._logged: list[Logged] = []
        self._writer: Any = None
        self._started, self._seconds_before = clock(), 0.0
        # The log of an interrupted attempt comes back with its checkpoint.
        shutil.rmtree(self._log, ignore_errors=True)

    @property
    def directory(self) -> Path:
        """A folder for files of the unit; made when first asked for."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"{self._directory} cannot be made: {error.strerror or error}"
            ) from error
        return self._directory

    @property
    def seconds(self) -> float:
        """Time spent on the unit so far: in this attempt, and in earlier ones up to their last
        checkpoints.
        """
        return self._seconds_before + self._clock() - self._started

    def scalars(self, step: int, **values: Any) -> None:
        """Logs numbers for TensorBoard: ``workspace.scalars(step, loss=loss, accuracy=0.9)``."""
        entry = (step, time.time(), {name: float(value) for name, value in values.items()})
        self._logged.append(entry)
        self._write([entry])

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Saves `state` (tensors, numbers, strings, lists and dicts), torch's generators and the
        log, in place of the last checkpoint.
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
        """The last state saved; None if there is none. Sets torch's generators and the log back to
        that moment.
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
        """Writes the log to the disk."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            try:
                writer.close()
            except OSError as error:
                raise RunError(
                    f"{self._log} cannot be written: {error.strerror or error}"
                ) from error

    def _write(self, entries: list[Logged]) -> None:
        if not self._logs:
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
