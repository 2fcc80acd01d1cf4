"""The repository's own files, found the way git finds them."""

import ast
import subprocess
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SKIPPED = {"__pycache__", "build", "dist"}


@lru_cache(maxsize=1)
def tracked() -> tuple[Path, ...]:
    """Return every file of the repository; of an unpacked archive, every file that is not made by a tool."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0 and done.stdout:
        found = [ROOT / name for name in done.stdout.split("\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if not any(p.startswith(".") or p in _SKIPPED for p in path.parts)]
    return tuple(sorted(path for path in found if path.is_file()))


def texts() -> dict[str, str]:
    """Return the text files by relative name."""
    found = {}
    for path in tracked():
        try:
            found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # objects and arrays that tests read
    return found


def modules() -> dict[str, ast.Module]:
    """Return the parsed modules of the package by relative name."""
    return {name: ast.parse(text) for name, text in texts().items() if name.startswith("nkc/") and name.endswith(".py")}
