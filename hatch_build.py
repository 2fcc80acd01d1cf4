"""The build's one step of its own: compile the launch in C, where that can be done.

The extension is optional. Without a C compiler or without Python's headers the package is installed all the same, and
launches run in Python. It uses the limited API, so that one file serves every version from 3.11 on.
"""

import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = "nkc/runtime/_launch.c"
BINARY = "nkc/runtime/_launch.abi3.so"
FLAGS = ("-std=gnu11", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra")


def compile_extension(root: Path) -> str | None:
    """Write the extension beside its source, and return what kept it from that, None where nothing did."""
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    headers = sysconfig.get_path("include")
    if not Path(headers, "Python.h").is_file():
        return "Python's headers are not installed"
    made = root / f"{BINARY}.new"
    command = [*compiler, *FLAGS, f"-I{headers}", str(root / SOURCE), "-o", str(made)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"{compiler[0]}: {error.strerror}"
    if done.returncode:
        return f"{shlex.join(command)} failed:\n{done.stderr}"
    made.replace(root / BINARY)
    return None


class ExtensionHook(BuildHookInterface):
    """Hatchling's hook: before a wheel is put together, editable ones included."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; a wheel that then holds machine code says for which platform."""
        if self.target_name != "wheel":
            return
        if problem := compile_extension(Path(self.root)):
            self.app.display_warning(f"without the launch in C: {problem}")
            return
        if version != "editable":
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["artifacts"].append(BINARY)
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{platform}"


if __name__ == "__main__":
    if said := compile_extension(Path(__file__).parent):
        sys.exit(said)
