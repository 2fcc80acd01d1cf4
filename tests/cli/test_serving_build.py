"""`examples/serving-build`: incremental, and right about contracts that change, come and go."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.running import EXAMPLES, GFX950, SHUFFLED, SM_90

pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.skipif(shutil.which("make") is None, reason="needs make"),
]


def make(place: Path) -> list[str]:
    """Run make and return the compile commands that it ran."""
    makefile = EXAMPLES / "serving-build" / "Makefile"
    variables = (f"NKC={sys.executable} -m nkc", f"CONTRACTS={place}", f"OUT={place / 'out'}")
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    done = subprocess.run(
        ["make", "-f", str(makefile), *variables], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if " compile " in line]


def test_it_builds_what_changed_and_nothing_else(tmp_path) -> None:
    for contract in (GFX950, SHUFFLED, SM_90):
        shutil.copy(contract, tmp_path)
    assert len(make(tmp_path)) == 2
    assert make(tmp_path) == []
    manifest = tmp_path / "out" / "sm_90" / "manifest.json"
    assert manifest.is_file()
    later = time.time() + 2
    os.utime(tmp_path / SM_90.name, (later, later))
    os.utime(manifest, (later - 1, later - 1))
    (command,) = make(tmp_path)
    assert SM_90.name in command
    os.utime(manifest, (later + 1, later + 1))
    assert make(tmp_path) == []
    (tmp_path / SHUFFLED.name).unlink()
    (command,) = make(tmp_path)
    assert SHUFFLED.name not in command
    assert make(tmp_path) == []
