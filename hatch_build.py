"""The build hook: it compiles the C kernels, if the machine has a compiler.

Then the wheel holds libraries and a tag for this platform, otherwise it is pure Python. The
environment variable ``DIFFURN_NATIVE=0`` builds a wheel without them, and ``CC`` names a compiler.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src", "diffurn", "_kernels", "native")
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
MACOS = "11.0"  # the oldest macOS on which a library for it runs

FLAGS = ["-std=gnu99", "-O3", "-ffp-contract=fast", "-fno-math-errno"]
FLAGS += ["-shared", "-fvisibility=hidden", "-fno-sanitize=undefined", "-Wno-psabi"]
FLAGS += {"win32": [], "darwin": ["-fPIC", f"-mmacosx-version-min={MACOS}"]}.get(
    sys.platform, ["-fPIC", "-s"]
)
# One library for each set of vector instructions; `diffurn._kernels.native` chooses.
LIBRARIES = {"baseline": []}
if platform.machine().lower() in ("x86_64", "amd64"):
    LIBRARIES["avx2"] = ["-mavx2", "-mfma"]
    LIBRARIES["avx512"] = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"]


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        built, reason = compile_in(Path(self.root) / FOLDER)
        if not built:
            self.app.display_warning(f"diffurn is built without C kernels: {reason}")
            return
        self.app.display_info(f"C kernels: {', '.join(built)}")
        build_data["artifacts"] += [(FOLDER / name).as_posix() for name in built]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"


def compile_in(folder: Path) -> tuple[list[str], str]:
    """The names of the libraries that were built, and the reason if there are none."""
    if os.environ.get("DIFFURN_NATIVE") == "0":
        return [], "DIFFURN_NATIVE is 0"
    sources, reason = sorted(path.name for path in folder.glob("*.c")), "no C compiler was found"
    for compiler in compilers():
        built = []
        for name, flags in LIBRARIES.items():
            command = [*compiler, *FLAGS, *flags, *sources, "-o", name + SUFFIX]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if done.returncode == 0:
                built.append(name + SUFFIX)
            elif not built:
                reason = f"{shlex.join(compiler)} failed: {done.stderr.strip()[-500:]}"
                break
        if built:
            return built, ""
    return [], reason


def compilers() -> list[list[str]]:
    """The C compilers of this machine, as the beginning of a command."""
    found = [shlex.split(os.environ["CC"])] if os.environ.get("CC") else []
    # GCC on Windows does not align vectors on the stack.
    names = ["clang"] if sys.platform == "win32" else ["cc", "gcc", "clang"]
    found += [[name] for name in names if shutil.which(name)]
    if find_spec("ziglang"):
        found.append([sys.executable, "-m", "ziglang", "cc"])
    return found


def platform_tag() -> str:
    """The platforms on which the libraries run; they need no other library."""
    machine = platform.machine()
    if sys.platform == "darwin":
        return f"macosx_{MACOS.replace('.', '_')}_{machine}"
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        return f"manylinux_2_17_{machine}.manylinux2014_{machine}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
