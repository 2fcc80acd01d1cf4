"""The listing of a cubin by the disassembler that Triton's package brings. Half a second a kernel, so never in a build.

Triton is found, not imported.
"""

import importlib.util
import subprocess
import tempfile
from pathlib import Path

from nkc.ir.errors import ToolError

TIMEOUT_SECONDS = 120.0


def nvdisasm() -> Path:
    """Return the disassembler's path. Raises ToolError where the installed Triton brings none."""
    found = importlib.util.find_spec("triton")
    for root in (found.submodule_search_locations or ()) if found else ():
        path = Path(root, "backends", "nvidia", "bin", "nvdisasm")
        if path.is_file():
            return path
    raise ToolError("nvdisasm is not there (it comes with triton>=3.6,<3.10)")


def disassemble_cubin(data: bytes, *, name: str) -> str:
    """Return the listing of a cubin's code. Raises ToolError where the disassembler refuses it."""
    tool = nvdisasm()
    with tempfile.TemporaryDirectory(prefix="nkc-") as folder:
        Path(folder, "kernel.cubin").write_bytes(data)
        try:
            done = subprocess.run(
                [tool, "-c", "kernel.cubin"],
                cwd=folder,
                env={},
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolError(f"{name}: nvdisasm did not run: {error}") from None
    if done.returncode:
        raise ToolError(f"{name}: nvdisasm refused it: {' '.join(done.stderr.split())}")
    return done.stdout
