"""Folders that are made for what is to be written into them, and go again where nothing was."""

import contextlib
from collections.abc import Iterable
from pathlib import Path


def missing(place: Path) -> tuple[Path, ...]:
    """Return which folders have to be made for one to be there, the outermost first."""
    return tuple(path for path in (*reversed(place.parents), place) if not path.exists())


def take_away(folders: Iterable[Path]) -> None:
    """Remove folders that hold nothing, the last first; what others have put into one stays, and so does that one."""
    for folder in reversed(tuple(folders)):
        with contextlib.suppress(OSError):
            folder.rmdir()
