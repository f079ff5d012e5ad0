"""Where a figure came from."""

from __future__ import annotations

import platform

import torch

import diffurn


def device_named(name: str) -> torch.device:
    """A device by its name; where torch knows none of that name, a ValueError says what to choose."""
    try:
        return torch.device(name)
    except RuntimeError:
        raise ValueError(f"there is no device {name!r}: choose cpu, cuda or cuda:0") from None


def usable_device(name: str) -> torch.device:
    """A device that computes here; where there is none of that name, a ValueError says what to do."""
    device = device_named(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        way_out = "choose cpu, or install a torch that was built for this machine's GPU"
        raise ValueError(f"the device {name} was asked for, but torch sees no CUDA device: {way_out}")
    try:
        torch.zeros(1, dtype=torch.float64, device=device).item()
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as problem:
        raise ValueError(f"the device {name} cannot be used: {str(problem).splitlines()[0]}") from None
    return device


def environment(device: torch.device) -> dict[str, str]:
    """Versions and hardware, for the record beside every committed result."""
    threads = torch.get_num_threads()
    accelerator = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{threads} CPU thread{'s' * (threads != 1)}"
    return {
        "diffurn": diffurn.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "device": accelerator,
    }
