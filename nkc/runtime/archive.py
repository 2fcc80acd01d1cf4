"""The packed form of a bundle: a zip file that is one function of the files in it, to the last byte.

Every file is stored as it is, the manifest first and the others by name, without times, comments or extra fields. So a
reader can say of each byte what it must be: `departure` names the first that is anything else, wherever it is, and what
`nkc pack` did not write is refused. Any zip tool can list and extract it.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from nkc.ir.manifest import MANIFEST_FILE

MAX_BYTES = (1 << 32) - 1
MAX_FILES = (1 << 16) - 2
"""What a zip file can say without its 64-bit extension, which would be a second way to write the same."""

# APPNOTE.TXT of PKWARE, 4.3.7, 4.3.12 and 4.3.16: each field in order with its `struct` code.
_LOCAL = (
    ("signature", "4s"), ("version", "H"), ("flags", "H"), ("method", "H"), ("time", "H"), ("date", "H"),
    ("CRC-32", "L"), ("packed size", "L"), ("size", "L"), ("length of the name", "H"),
    ("length of an extra field", "H"),
)  # fmt: skip
_CENTRAL = (
    ("signature", "4s"), ("writer", "H"), ("version", "H"), ("flags", "H"), ("method", "H"), ("time", "H"),
    ("date", "H"), ("CRC-32", "L"), ("packed size", "L"), ("size", "L"), ("length of the name", "H"),
    ("length of an extra field", "H"), ("length of a comment", "H"), ("disk", "H"), ("internal attributes", "H"),
    ("external attributes", "L"), ("offset", "L"),
)  # fmt: skip
_END = (
    ("signature", "4s"), ("disk", "H"), ("first disk", "H"), ("entries on this disk", "H"), ("entries", "H"),
    ("size of the directory", "L"), ("offset of the directory", "L"), ("length of a comment", "H"),
)  # fmt: skip
_VERSION = 20  # 2.0: the oldest that current tools write
_UNIX = 3 << 8
_DATE = 1 << 5 | 1  # 1980-01-01, the earliest that a zip file can say
_MODE = 0o100644 << 16  # a regular file that all may read
_UTF8 = 1 << 11

Fields = tuple[tuple[str, str], ...]


class Region(NamedTuple):
    """Some bytes of the file. where: in words. fields: of a header, which its file's name follows."""

    where: str
    content: bytes
    fields: Fields = ()


def write(files: Mapping[str, bytes]) -> bytes:
    """Return the packed form. Errors: ValueError where there is more than a plain zip file holds."""
    if len(files) > MAX_FILES or sum(map(len, files.values())) + 512 * len(files) > MAX_BYTES:
        raise ValueError(f"more than {MAX_FILES} files or {MAX_BYTES} bytes")
    return b"".join(region.content for region in regions(files))


def regions(files: Mapping[str, bytes]) -> Iterator[Region]:
    """Yield the packed form piece by piece, in order."""
    directory: list[Region] = []
    at = 0
    for path in sorted(files, key=lambda path: (path != MANIFEST_FILE, path)):
        data, name = files[path], path.encode()
        crc, flags = zlib.crc32(data), 0 if name.isascii() else _UTF8
        common = (_VERSION, flags, 0, 0, _DATE, crc, len(data), len(data), len(name), 0)
        local = _pack(_LOCAL, b"PK\3\4", *common) + name
        central = _pack(_CENTRAL, b"PK\1\2", _UNIX | _VERSION, *common, 0, 0, 0, _MODE, at) + name
        directory.append(Region(f"the directory entry of {path}", central, _CENTRAL))
        yield Region(f"the header of {path}", local, _LOCAL)
        yield Region(path, data)
        at += len(local) + len(data)
    yield from directory
    size = sum(len(region.content) for region in directory)
    yield Region("the end record", _pack(_END, b"PK\5\6", 0, 0, len(files), len(files), size, at, 0), _END)


def departure(packed: bytes, files: Mapping[str, bytes]) -> str | None:
    """Return where a packed file is not what `write` makes of its files, in words, or None where it is that."""
    seen = memoryview(packed)
    at = 0
    for region in regions(files):
        content = region.content
        if seen[at : at + len(content)] != content:
            offset = _first_difference(seen[at : at + len(content)], content)
            field = _field(region.fields, offset)
            return f"byte {at + offset}: {field}{region.where}: not what `nkc pack` writes (pack the directory again)"
        at += len(content)
    if at != len(packed):
        return f"byte {at}: {len(packed) - at} bytes after its end (pack the directory again)"
    return None


def _pack(fields: Fields, *values: bytes | int) -> bytes:
    return struct.pack("<" + "".join(code for _, code in fields), *values)


def _first_difference(found: memoryview, wanted: bytes) -> int:
    pairs = zip(found, wanted, strict=False)
    return next((offset for offset, (one, other) in enumerate(pairs) if one != other), min(len(found), len(wanted)))


def _field(fields: Fields, offset: int) -> str:
    """Return the name of a header's field at an offset, ready to stand before where the header is."""
    end = 0
    for name, code in fields:
        end += struct.calcsize("<" + code)
        if offset < end:
            return f"the {name} in "
    return "the name in " if fields else ""
