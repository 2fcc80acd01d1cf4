"""Finds and reads an explanation in what a build left."""

from pathlib import Path
from typing import TYPE_CHECKING

from nkc.ir.errors import UsageError
from nkc.ir.manifest import MANIFEST_FILE, Entry, Manifest

if TYPE_CHECKING:
    from nkc.emit.explain import Explain

EXPLAIN_FILE = "explain.json"


def read_manifest(out: Path) -> Manifest:
    """Read the manifest of an output directory. Raises UsageError for one that is missing or not ours."""
    import msgspec

    path = out / MANIFEST_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except OSError:
        raise UsageError(f"{out}: holds no {MANIFEST_FILE} (name what `nkc compile -o` wrote)") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a manifest that this nkc reads: {error} (build it again)") from None


def read_explain(directory: Path) -> "Explain":
    """Read the explanation that `locate_explain` finds. Raises UsageError for one that is missing or not ours."""
    import msgspec

    from nkc.emit.explain import Explain

    path = locate_explain(directory)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Explain)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not an explanation that this nkc reads: {error} (build it again)") from None


def locate_explain(directory: Path) -> Path:
    """Return the explain.json of a request's directory, an object's directory, or an output with one entry."""
    own = directory / EXPLAIN_FILE
    if own.is_file():
        return own
    if (directory / MANIFEST_FILE).is_file():
        out, entries = directory, read_manifest(directory).entries
    else:
        out = directory.parent
        entries = tuple(entry for entry in read_manifest(out).entries if entry.id == directory.name)
    if len(entries) == 1:
        return out / entries[0].explain
    if not entries:
        raise UsageError(f"{directory}: nothing here was built by this manifest (see {out / MANIFEST_FILE})")
    listed = ", ".join(f"{entry.request}{_asked_by(entry)}" for entry in entries[:3])
    rest = f", …; nkc bundle ls {out} lists all" if len(entries) > 3 else ""
    raise UsageError(f"{directory}: holds {len(entries)} explanations (name one below it: {listed}{rest})")


def _asked_by(entry: Entry) -> str:
    """Return the contract file that an entry is of, in words; nothing where the manifest names none."""
    return next((f" of {binding.source}" for binding in entry.bindings), "")
