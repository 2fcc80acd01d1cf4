"""Running nkc as a user does: in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

EXAMPLES = Path(__file__).parents[2] / "examples"
GFX950 = EXAMPLES / "qwen3.6-35b.o_proj.m1.gfx950.json"
SM_90 = EXAMPLES / "qwen3.6-35b.o_proj.m1.sm_90.json"
SHUFFLED = EXAMPLES / "qwen3.6-27b.qkv_proj.m16.shuffled.gfx950.json"


class Done(NamedTuple):
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The lines on stderr."""
        return self.err.splitlines()


def nkc(*arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Done:
    """Run nkc and return its exit code and what it printed; a traceback is a failure whatever the test looks for."""
    done = subprocess.run(
        [sys.executable, "-m", "nkc", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def tree(root: Path) -> dict[str, bytes]:
    """Return every file below a folder, by relative name."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
