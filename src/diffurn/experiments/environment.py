"""Where a figure came from."""

from __future__ import annotations

import platform

import torch

import diffurn


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
