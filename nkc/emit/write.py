"""Writes directories whole: made in a temporary place, renamed into theirs; equal ones are kept as they are.

Several processes may write one output at a time: each renames a whole directory, and one that another process has put
there meanwhile is kept where it is equal, else replaced like any other.
"""

import contextlib
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from nkc.emit.interrupts import uninterrupted
from nkc.ir.errors import ToolError, UsageError

_PREFIX = ".nkc-"
_ABANDONED_SECONDS = 3600.0
"""A temporary directory this old is a killed writer's: a living one's is there for as long as its files are written."""

_ANOTHER_WRITER = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT, errno.EBUSY, errno.ESTALE})
"""What a rename meets where another process renames too, or a network file system has not caught up."""
_ATTEMPTS = 8
_FIRST_PAUSE_SECONDS = 0.002  # doubled each time: a quarter of a second in all


def make_output(out: Path) -> None:
    """Create the output directory, and clear it of what killed writers left. Raises UsageError for another thing."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"{out}: is not a directory (choose another output with -o)") from None
    except OSError as error:
        raise ToolError(f"{out}: cannot be made: {_reason(error)}") from None
    _clear_abandoned(out)


def _clear_abandoned(out: Path) -> None:
    """Remove what writers that were killed left in a directory long ago; what cannot be removed stays."""
    for left in out.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.lstat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


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
        _put(whole, place, files)
    except OSError as error:
        raise ToolError(f"{place}: cannot be written: {_reason(error)}") from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _put(whole: Path, place: Path, files: Mapping[str, bytes]) -> None:
    """Move a whole directory into its place, unless another writer has put an equal one there meanwhile."""
    for attempt in range(_ATTEMPTS):
        try:
            _exchange(whole, place, whole.with_name(f"old{attempt}"))
        except OSError as error:
            if error.errno not in _ANOTHER_WRITER or attempt == _ATTEMPTS - 1:
                raise
        else:
            return
        if _holds(place, files):
            return
        time.sleep(_FIRST_PAUSE_SECONDS * 2**attempt)


def _exchange(whole: Path, place: Path, old: Path) -> None:
    """Rename what is in the place out of the way and a whole directory into it; where that fails, put it back."""
    if place.is_symlink() or place.exists():
        os.rename(place, old)
    try:
        os.rename(whole, place)
    except OSError:
        if old.is_symlink() or old.exists():
            os.rename(old, place)  # fails in its turn where another writer's stands there, and may be tried again
        raise


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
        _replace(temporary, place)
        temporary = None
    except OSError as error:
        raise ToolError(f"{place}: cannot be written: {_reason(error)}") from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _replace(temporary: str, place: Path) -> None:
    """Rename a file over another, again where a network file system was busy with it."""
    for attempt in range(_ATTEMPTS):
        try:
            os.replace(temporary, place)
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ESTALE) or attempt == _ATTEMPTS - 1:
                raise
        else:
            return
        time.sleep(_FIRST_PAUSE_SECONDS * 2**attempt)


def _umask() -> int:
    """Return the process's umask; a temporary file is private until it is done."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _holds(place: Path, files: Mapping[str, bytes]) -> bool:
    """Return whether a directory holds exactly these files already; one that goes while it is read does not."""
    if place.is_symlink() or not place.is_dir():
        return False
    try:
        found = {path.relative_to(place).as_posix() for path in place.rglob("*") if not path.is_dir()}
        return found == set(files) and all((place / name).read_bytes() == data for name, data in files.items())
    except OSError:
        return False
