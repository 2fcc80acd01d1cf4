"""Writes directories whole: made in a temporary place, renamed into theirs; equal ones are kept as they are."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nkc.emit.interrupts import uninterrupted
from nkc.ir.errors import ToolError, UsageError

_PREFIX = ".nkc-"


def make_output(out: Path) -> None:
    """Create the output directory. Raises UsageError where something else is in its place."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"{out}: is not a directory (choose another output with -o)") from None
    except OSError as error:
        raise ToolError(f"{out}: cannot be made: {_reason(error)}") from None


@uninterrupted()
def write_directory(place: Path, files: Mapping[str, bytes]) -> None:
    """Make `place` hold exactly these files (relative names to bytes), at once or not at all."""
    if _holds(place, files):
        return
    temporary: str | None = None
    try:
        temporary = tempfile.mkdtemp(prefix=_PREFIX, dir=place.parent)
        whole = Path(temporary, "new")
        whole.mkdir()
        for name, data in files.items():
            path = whole / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        old = Path(temporary, "old")
        if place.is_symlink() or place.exists():
            os.rename(place, old)
        try:
            os.rename(whole, place)
        except OSError:
            if old.is_symlink() or old.exists():
                os.rename(old, place)
            raise
    except OSError as error:
        raise ToolError(f"{place}: cannot be written: {_reason(error)}") from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


@uninterrupted()
def write_file(place: Path, data: bytes) -> None:
    """Make `place` hold these bytes, at once or not at all."""
    with contextlib.suppress(OSError):
        if place.read_bytes() == data:
            return
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=_PREFIX, dir=place.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, place)
        temporary = None
    except OSError as error:
        raise ToolError(f"{place}: cannot be written: {_reason(error)}") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _umask() -> int:
    """Return the process's umask; a temporary file is private until it is done."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _holds(place: Path, files: Mapping[str, bytes]) -> bool:
    """Return whether a directory holds exactly these files already."""
    if place.is_symlink() or not place.is_dir():
        return False
    found = {path.relative_to(place).as_posix() for path in place.rglob("*") if not path.is_dir()}
    return found == set(files) and all((place / name).read_bytes() == data for name, data in files.items())
