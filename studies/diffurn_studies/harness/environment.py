"""Where a figure comes from: the device it is computed on, versions and hardware, the commit."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import torch

import diffurn


def device_named(name: str) -> torch.device:
    """A device by its name; where torch knows none of that name, a ValueError says what to
    choose.
    """
    try:
        return torch.device(name)
    except RuntimeError:
        raise ValueError(f"there is no device {name!r}: choose cpu, cuda or cuda:0") from None


def usable_device(name: str) -> torch.device:
    """A device that computes here; where there is none of that name, a ValueError says what to
    do.
    """
    device = device_named(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        way_out = "choose cpu, or install a torch that was built for this machine's GPU"
        raise ValueError(
            f"the device {name} was asked for, but torch sees no CUDA device: {way_out}"
        )
    try:
        torch.zeros(1, dtype=torch.float64, device=device).item()
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as problem:
        raise ValueError(
            f"the device {name} cannot be used: {str(problem).splitlines()[0]}"
        ) from None
    return device


def wait_for(device: torch.device) -> None:
    """Until the device has done all that it was asked for, before a clock is read."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def environment(device: torch.device) -> dict[str, str]:
    """Versions and hardware, for the record beside every committed result."""
    threads = torch.get_num_threads()
    accelerator = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"{threads} CPU thread{'s' * (threads != 1)}"
    )
    return {
        "diffurn": diffurn.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "device": accelerator,
    }


def provenance(device: torch.device) -> dict[str, str]:
    """Versions, device and, in a git checkout of diffurn, its commit."""
    elsewhere = device.type == "cuda" and not torch.cuda.is_available()
    here = environment(torch.device("cpu") if elsewhere else device)
    if elsewhere:
        here["device"] = f"{device} of a cluster's workers"
    commit = _commit(Path(diffurn.__file__))
    return {**here, "commit": commit} if commit else here


def _commit(source: Path) -> str | None:
    """The commit `source` belongs to, marked where the checkout differs from it; None unless git
    tracks the file itself.
    """
    git = ["git", "-C", str(source.parent)]
    try:
        subprocess.run(
            [*git, "ls-files", "--error-unmatch", source.name], check=True, capture_output=True
        )
        described = subprocess.run(
            [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            check=True,
            capture_output=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()
