"""The shared library of C kernels, which is compiled when the package is built.

There is one library for each set of vector instructions, and the fastest that the CPU can run is
loaded. Its functions are called by ctypes on the memory of tensors. Without a library, or with the
environment variable ``DIFFURN_NATIVE=0``, PyTorch's operations are used.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path

import torch

SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
# The libraries' names by torch's name of the CPU's capability, from the fastest on.
_NAMES = {"AVX512": "avx512", "AVX2": "avx2", "": "baseline"}


@cache
def library() -> ctypes.CDLL | None:
    """The library, or None if there is none for this machine or it is switched off."""
    if os.environ.get("DIFFURN_NATIVE") == "0":
        return None
    capability = torch.backends.cpu.get_cpu_capability()
    usable = [name for prefix, name in _NAMES.items() if _at_least(capability, prefix)]
    for name in usable:
        path = Path(__file__).parent / "native" / f"{name}{SUFFIX}"
        if path.exists():
            try:
                return ctypes.CDLL(str(path))
            except OSError:  # built for another machine
                return None
    return None


def _at_least(capability: str, prefix: str) -> bool:
    levels = list(_NAMES)[::-1]
    own = max(level for level in range(len(levels)) if capability.startswith(levels[level]))
    return levels.index(prefix) <= own
