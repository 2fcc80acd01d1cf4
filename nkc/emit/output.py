"""What one run writes below a directory: all of it, or nothing that was not there before.

A full disk, an interrupt or a compiler that fails half way leaves no folder behind that reads like a result.
"""

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from nkc.emit import write
from nkc.ir import made
from nkc.ir.manifest import MANIFEST_FILE, Manifest


class Output:
    """A directory that is written to while the block runs; where the block fails, what is new in it is removed.

    What was there before stays: a directory that was replaced whole holds its old files or the new ones. What another
    process puts beside them is not touched, nor what another run relies on that finished here meanwhile: it found equal
    directories and kept them.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self._folders: list[Path] = []
        self._written: list[Path] = []

    def __enter__(self) -> Self:
        try:
            self._make(self.place)
        except BaseException:
            made.take_away(self._folders)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            return
        for path in reversed(self._written):  # a manifest of ours goes before what it names
            if path.name in _named_by(path.parent / MANIFEST_FILE):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
        made.take_away(self._folders)

    def below(self, name: str) -> "Output":
        """Return a folder inside, made if need be; what is written there is undone with everything else."""
        inside = Output(self.place / name)
        inside._folders, inside._written = self._folders, self._written
        inside._make(inside.place)
        return inside

    def directory(self, name: str, files: Mapping[str, bytes]) -> None:
        """Make a directory hold exactly these files (relative names to bytes). Raises ToolError."""
        self._note(self.place / name)
        write.write_directory(self.place / name, files)

    def file(self, name: str, data: bytes) -> None:
        """Make a file hold these bytes. Raises ToolError."""
        self._note(self.place / name)
        write.write_file(self.place / name, data)

    def _make(self, place: Path) -> None:
        self._folders += made.missing(place)  # noted before it is made: an interrupt may come in between
        write.make_output(place)

    def _note(self, path: Path) -> None:
        if not (path.exists() or path.is_symlink()):
            self._written.append(path)


def _named_by(manifest: Path) -> frozenset[str]:
    """Return the directories that a manifest names, none where there is none."""
    try:
        entries = msgspec.json.decode(manifest.read_bytes(), type=Manifest).entries
    except (OSError, msgspec.DecodeError):
        return frozenset()
    named = (path for entry in entries for path in (entry.explain, entry.contract) if path is not None)
    return frozenset(path.partition("/")[0] for path in named)
