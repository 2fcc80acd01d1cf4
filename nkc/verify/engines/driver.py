"""The version of the GPU driver, as records name it."""

from pathlib import Path

_NVIDIA = Path("/proc/driver/nvidia/version")


def driver_version() -> str:
    """Return the driver's version, `unknown` where the system does not say."""
    import re
    import shutil
    import subprocess

    if _NVIDIA.is_file():
        found = re.search(r"Kernel Module(?: for \S+)?\s+(\S+)", _NVIDIA.read_text())
        if found:
            return found.group(1)
    program = shutil.which("nvidia-smi")
    if program is not None:
        asked = subprocess.run(
            [program, "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = asked.stdout.splitlines()
        if asked.returncode == 0 and lines:
            return lines[0].strip()
    return "unknown"
