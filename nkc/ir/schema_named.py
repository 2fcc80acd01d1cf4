"""Which kind of document a file is meant to be, told by the schema that it names."""

import re
from pathlib import Path

import msgspec

_NAMED = re.compile(rb'"schema"\s*:\s*"([^"\\]{1,64})"')


class _Versioned(msgspec.Struct):
    schema: str


def schema_named(file: Path) -> str | None:
    """Return the schema that a document names, also where it is cut short or damaged; None where none is named.

    Of a list, the schema of its first element: all of them have one.
    """
    try:
        data = file.read_bytes()
    except OSError:
        return None
    try:
        return msgspec.json.decode(data, type=_Versioned).schema
    except msgspec.DecodeError:
        named = _NAMED.search(data)  # documents of ours name it first
        return named[1].decode(errors="replace") if named else None
