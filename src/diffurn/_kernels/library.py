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

_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
# The libraries and torch's names of the CPUs that they are for, the fastest first.
_CAPABILITIES = {"avx512": "AVX512", "avx2": "AVX2", "baseline": ""}


def native_kernels() -> str | None:
    """The C kernels in use: "avx512", "avx2" or "baseline"; None if PyTorch's operations are used.

    They are compiled when the package is built, if there is a C compiler. The environment variable
    ``DIFFURN_NATIVE=0`` switches them off.
    """
    return _loaded()[0]


def library() -> ctypes.CDLL | None:
    """The library, or None if there is none for this machine or it is switched off."""
    return _loaded()[1]


@cache
def _loaded() -> tuple[str | None, ctypes.CDLL | None]:
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    suited = False
    for name, required in _CAPABILITIES.items():
        suited = suited or capability.startswith(required)
        path = _path(name)
        if suited and path.exists() and not is_switched_off():
            try:
                return name, ctypes.CDLL(str(path))
            except OSError:  # built for another machine
                break
    return None, None


def _path(name: str) -> Path:
    return Path(__file__).parent / "native" / f"{name}{_SUFFIX}"


def is_switched_off() -> bool:
    return os.environ.get("DIFFURN_NATIVE") == "0"


def described() -> str:
    """A few words on the C kernels of this installation, which do not wait for torch."""
    if not any(_path(name).exists() for name in _CAPABILITIES):
        return "without C kernels"
    return "C kernels switched off" if is_switched_off() else "with C kernels"
