"""The machine that computes: its devices, and the versions and the commit that a run records."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import torch

import diffurn


def device_named(name: str) -> torch.device:
    """A device by its name; a ValueError if torch knows no such name."""
    try:
        return torch.device(name)
    except RuntimeError:
        raise ValueError(f"there is no device {name!r}: choose cpu, cuda or cuda:0") from None


def usable_device(name: str) -> torch.device:
    """A device by its name; a ValueError if it does not work on this machine."""
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
    """Waits until the device has finished, so that a clock can be read."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def environment(device: torch.device) -> dict[str, str]:
    """Versions and hardware, as kept beside every committed result."""
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
    """Versions, device and, in a git checkout of diffurn, the commit.

    A CUDA device that this machine lacks belongs to the workers of a cluster.
    """
    elsewhere = device.type == "cuda" and not torch.cuda.is_available()
    here = environment(torch.device("cpu") if elsewhere else device)
    if elsewhere:
        here["device"] = f"{device} of a cluster's workers"
    commit = commit_of(Path(diffurn.__file__))
    return {**here, "commit": commit} if commit else here


def commit_of(source: Path) -> str | None:
    """The commit that a file belongs to, with "-dirty" if the checkout differs from it; None if git
    does not track the file.
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
