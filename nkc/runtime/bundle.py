"""A bundle: what a build left, read whole and checked before any byte of it reaches a driver.

A bundle is the output directory of `nkc compile`, or the same files in one `.nkb` (`nkc.runtime.archive`: equal
directories pack to equal bytes, and nothing else is accepted). Several targets may live in one. Reading trusts nothing:
versions, digests, sizes and paths are checked, and whatever is wrong is named with its file.
"""

import contextlib
import hashlib
import io
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from nkc.ir.errors import UsageError
from nkc.ir.launch import LAUNCH_SCHEMA, Launch
from nkc.ir.made import missing, take_away
from nkc.ir.manifest import MANIFEST_FILE, MANIFEST_SCHEMA, Disposition, Entry, Manifest
from nkc.runtime import archive
from nkc.runtime.errors import BundleError, NoBundleError

SUFFIX = ".nkb"
MAX_FILE_BYTES = 256 << 20
MAX_BUNDLE_BYTES = archive.MAX_BYTES
MAX_FILES = archive.MAX_FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A checked bundle. files: path in the bundle to bytes. launches: entry id to its launch record."""

    name: str
    manifest: Manifest
    files: Mapping[str, bytes]
    launches: Mapping[str, Launch]

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the targets that have an object here, sorted."""
        return tuple(sorted({launch.target.arch for launch in self.launches.values()}))

    def entries(self) -> Iterator[tuple[Entry, Launch]]:
        """Yield every entry with an object, in the manifest's order, once per id."""
        seen: set[str] = set()
        for entry in self.manifest.entries:
            if entry.id is not None and entry.id not in seen:
                seen.add(entry.id)
                yield entry, self.launches[entry.id]

    def image(self, entry: Entry) -> bytes:
        """Return the code object of an entry."""
        assert entry.object is not None
        return self.files[entry.object]

    def plan_digest(self) -> str:
        """Return the SHA-256 of what this bundle decides: requests, dispositions, objects. Bindings do not matter."""
        plan = hashlib.sha256()
        for entry in sorted(self.manifest.entries, key=lambda entry: (entry.target, entry.request)):
            parts = (entry.request, entry.target, entry.disposition, entry.id or "", *map(":".join, _digests(entry)))
            plan.update("\n".join(parts).encode() + b"\n\n")
        return plan.hexdigest()


def _digests(entry: Entry) -> list[tuple[str, str]]:
    return sorted((name, digest) for name, digest in entry.sha256.items() if name != "explain.json")


def read(path: str | os.PathLike[str]) -> Bundle:
    """Return the bundle at `path`, a directory or a packed file, with everything checked.

    Errors: BundleError with all that is wrong, one line each, each naming the file; NoBundleError where there is none.
    """
    source = Path(path)
    name = source.name or str(source)
    try:
        contents = _read_directory(source) if source.is_dir() else _read_zip(source)
        manifest = _read_manifest(contents)
        wanted = _wanted(manifest)
    except BundleError as error:
        raise type(error)("\n".join(f"{name}: {line}" for line in error.lines())) from None
    except OSError as error:
        raise NoBundleError(f"{name}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    files: dict[str, bytes] = {MANIFEST_FILE: contents.get(MANIFEST_FILE)}
    launches: dict[str, Launch] = {}
    problems: list[str] = []
    for file, digest in wanted.items():
        try:
            files[file] = data = contents.get(file)
            if (found := hashlib.sha256(data).hexdigest()) != digest:
                problems.append(f"{file}: SHA-256 is {found[:16]}…, the manifest says {digest[:16]}…")
        except BundleError as error:
            problems.append(str(error))
        except OSError as error:
            problems.append(f"{file}: {error.strerror or error}")
    if not problems:
        for entry in manifest.entries:
            try:
                if entry.id is not None:
                    launches[entry.id] = _read_launch(entry, files)
            except BundleError as error:
                problems.append(str(error))
    if not problems:
        problems += contents.extra(files)
    if problems:
        raise BundleError("\n".join(f"{name}: {problem}" for problem in problems))
    return Bundle(name=name, manifest=manifest, files=files, launches=launches)


def examine(path: str | os.PathLike[str]) -> tuple[Bundle | None, tuple[str, ...]]:
    """Return the bundle and no problems, or None and every problem found."""
    try:
        return read(path), ()
    except BundleError as error:
        return None, error.lines()


def pack(directory: str | os.PathLike[str], out: str | os.PathLike[str]) -> Bundle:
    """Write the directory's bundle as one file, replaced whole, and return it. Equal input, equal bytes.

    Only what the manifest names goes in. Errors: BundleError as in `read`, or where the file cannot be written.
    """
    bundle = read(directory)
    try:
        packed = archive.write(bundle.files)
    except ValueError as error:
        raise BundleError(f"{bundle.name}: cannot be packed: {error}") from None
    _replace(Path(out), packed)
    return bundle


def unpack(file: str | os.PathLike[str], directory: str | os.PathLike[str]) -> Bundle:
    """Write a packed bundle's files into a new or empty directory; the manifest comes last, or nothing is left there.

    Errors: BundleError, and UsageError where the directory is not empty.
    """
    bundle = read(file)
    root = Path(directory)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise UsageError(f"{root}: is there already and not empty (unpack into a new directory)")
    target = root
    folders, files = list(missing(root)), []
    try:
        root.mkdir(parents=True, exist_ok=True)
        for name in sorted(bundle.files, key=lambda name: (name == MANIFEST_FILE, name)):
            target = root.joinpath(*PurePosixPath(name).parts)
            folders += missing(target.parent)
            target.parent.mkdir(parents=True, exist_ok=True)
            files.append(target)
            target.write_bytes(bundle.files[name])
    except BaseException as error:
        for file in files:
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)
        take_away(folders)
        if isinstance(error, OSError):
            raise BundleError(f"{target}: cannot be written: {(error.strerror or str(error)).lower()}") from None
        raise
    return bundle


def safe_path(path: str) -> bool:
    """Return whether a path in a bundle is relative, plain and stays inside."""
    if not path or "\\" in path or "\0" in path or path.startswith("/") or len(path) > 512:
        return False
    return all(part not in ("", ".", "..") for part in path.split("/")) and ":" not in path.split("/")[0]


class _Contents:
    """The files of a bundle, read on demand and once."""

    def __init__(self, files: Mapping[str, int]) -> None:
        self.files = files

    def get(self, path: str) -> bytes:
        """Return a file's bytes. Errors: BundleError where it is missing, too large or unreadable."""
        if path not in self.files:
            raise BundleError(f"{path}: missing")
        if self.files[path] > MAX_FILE_BYTES:
            raise BundleError(
                f"{path}: {self.files[path]} bytes, more than the {MAX_FILE_BYTES} that a bundle may hold"
            )
        data = self._read(path)
        if len(data) != self.files[path]:
            raise BundleError(f"{path}: {len(data)} bytes, {self.files[path]} announced")
        return data

    def extra(self, files: Mapping[str, bytes]) -> list[str]:
        """Return what should not be there beside these files. A directory may hold other things than its bundle."""
        return []

    def _read(self, path: str) -> bytes:
        raise NotImplementedError


class _Directory(_Contents):
    def __init__(self, root: Path, files: Mapping[str, int]) -> None:
        super().__init__(files)
        self._root = root

    def get(self, path: str) -> bytes:
        file = self._root.joinpath(*PurePosixPath(path).parts)
        if not file.resolve().is_relative_to(self._root.resolve()):
            raise BundleError(f"{path}: a link leads out of the bundle")
        self.files = {**self.files, path: file.stat().st_size} if file.is_file() else self.files
        return super().get(path)

    def _read(self, path: str) -> bytes:
        return self._root.joinpath(*PurePosixPath(path).parts).read_bytes()


class _Packed(_Contents):
    def __init__(self, packed: bytes, reader: zipfile.ZipFile, infos: Mapping[str, zipfile.ZipInfo]) -> None:
        super().__init__({name: info.file_size for name, info in infos.items()})
        self._packed = packed
        self._reader = reader
        self._infos = infos

    def extra(self, files: Mapping[str, bytes]) -> list[str]:
        if strangers := sorted(set(self.files) - set(files)):
            return [f"{file}: not in the manifest" for file in strangers]
        found = archive.departure(self._packed, files)
        return [] if found is None else [found]

    def _read(self, path: str) -> bytes:
        try:
            with self._reader.open(self._infos[path]) as member:
                return member.read(MAX_FILE_BYTES + 1)
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            OSError,
            ValueError,
            NotImplementedError,
            RuntimeError,
        ) as error:
            raise BundleError(f"{path}: cannot be read: {error}") from None


def _read_directory(root: Path) -> _Contents:
    if not (root / MANIFEST_FILE).is_file():
        raise NoBundleError(f"{MANIFEST_FILE}: missing (is this the output directory of `nkc compile`?)")
    return _Directory(root, {})


def _read_zip(file: Path) -> _Contents:
    if not file.exists():
        raise NoBundleError("cannot be read: no such file or directory")
    if file.stat().st_size > MAX_BUNDLE_BYTES:
        raise BundleError(f"{file.stat().st_size} bytes, more than the {MAX_BUNDLE_BYTES} that a bundle may hold")
    packed = file.read_bytes()
    try:
        reader = zipfile.ZipFile(io.BytesIO(packed))
        infos = reader.infolist()
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, UnicodeDecodeError, OverflowError) as error:
        raise _unreadable(packed, error) from None
    found: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        if not safe_path(info.filename):
            raise BundleError(f"`{info.filename!r}` leads out of the bundle")
        if info.filename in found:
            raise BundleError(f"{info.filename}: there twice")
        if info.flag_bits & 1 or info.compress_type != zipfile.ZIP_STORED:
            raise BundleError(
                f"{info.filename}: encrypted or compressed, and a packed bundle holds its files as they are"
            )
        if stat.S_ISLNK(info.external_attr >> 16):
            raise BundleError(f"{info.filename}: a link")
        found[info.filename] = info
    if len(found) > MAX_FILES or sum(info.file_size for info in infos) > MAX_BUNDLE_BYTES:
        raise BundleError(f"more than {MAX_FILES} files or {MAX_BUNDLE_BYTES} bytes once unpacked")
    return _Packed(packed, reader, found)


def _unreadable(data: bytes, error: Exception) -> BundleError:
    """Return what is wrong with what cannot be read as a zip file: a bundle cut short, or something else altogether."""
    if data.startswith(b"PK\3\4"):
        return BundleError(f"a packed bundle that is not whole: {error}")
    return NoBundleError(
        "not a bundle (a bundle is the output directory of `nkc compile`, or the file that `nkc pack` makes of it)"
    )


def _read_manifest(contents: _Contents) -> Manifest:
    data = contents.get(MANIFEST_FILE)
    _check_schema(MANIFEST_FILE, data, MANIFEST_SCHEMA)
    try:
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"{MANIFEST_FILE}: {error}") from None


class _Versioned(msgspec.Struct):
    schema: str


def _check_schema(file: str, data: bytes, wanted: str) -> None:
    """Refuse another version by its name, before its fields confuse anybody."""
    try:
        found = msgspec.json.decode(data, type=_Versioned).schema
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"{file}: {error}") from None
    if found != wanted:
        raise BundleError(f"{file}: schema `{found[:64]}`, this runtime reads `{wanted}`")


def _wanted(manifest: Manifest) -> dict[str, str]:
    """Return every file that the manifest names with its digest. Errors: BundleError."""
    wanted: dict[str, str] = {}
    requests: set[str] = set()
    for entry in manifest.entries:
        if entry.request in requests:
            raise BundleError(f"{MANIFEST_FILE}: {entry.request}: two entries, where a request ends in one disposition")
        requests.add(entry.request)
        named = [entry.explain, entry.object, entry.contract, entry.launch]
        built = [part is not None for part in (entry.id, entry.object, entry.contract, entry.launch, entry.tactic)]
        if any(built) != all(built) or any(built) != (entry.disposition is Disposition.OPTIMIZED):
            raise BundleError(f"{MANIFEST_FILE}: {entry.request}: `{entry.disposition}` with half of an object")
        for path in (each for each in named if each is not None):
            if not safe_path(path):
                raise BundleError(f"{MANIFEST_FILE}: {entry.request}: `{path}` leads out of the bundle")
            digest = entry.sha256.get(PurePosixPath(path).name)
            if digest is None or len(digest) != 64:
                raise BundleError(f"{MANIFEST_FILE}: {entry.request}: no SHA-256 for `{path}`")
            if wanted.setdefault(path, digest) != digest:
                raise BundleError(f"{MANIFEST_FILE}: two digests for `{path}`")
    return wanted


def _read_launch(entry: Entry, files: Mapping[str, bytes]) -> Launch:
    """Return an entry's launch record, held against the manifest. Errors: BundleError."""
    assert entry.launch is not None
    assert entry.object is not None
    _check_schema(entry.launch, files[entry.launch], LAUNCH_SCHEMA)
    try:
        launch = msgspec.json.decode(files[entry.launch], type=Launch)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"{entry.launch}: {error}") from None
    name = PurePosixPath(entry.object).name
    said = (launch.id, launch.operation, launch.target.arch, launch.tactic, launch.object, launch.sha256)
    wanted = (entry.id, entry.operation, entry.target, entry.tactic, name, entry.sha256[name])
    for field, here, there in zip(
        ("id", "operation", "target", "tactic", "object", "sha256"), said, wanted, strict=True
    ):
        if here != there:
            raise BundleError(f"{entry.launch}: {field} `{here}`, the manifest says `{there}`")
    return launch


def _replace(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        raise BundleError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
