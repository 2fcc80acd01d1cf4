"""`manifest.json`: what one build made of its inputs (`nkc.manifest/1`), and how a loader finds it.

Paths are relative to the directory that holds the manifest, with `/` between their parts. An entry without an object
has null for id, tactic, object, launch and contract. Provenance lives in the bindings and nowhere else.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

import msgspec

MANIFEST_SCHEMA: Literal["nkc.manifest/1"] = "nkc.manifest/1"
MANIFEST_FILE = "manifest.json"


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen, keyword-only, strict."""


class Disposition(StrEnum):
    """What became of a contract; there is no fourth."""

    OPTIMIZED = "optimized"
    FALLBACK = "fallback"
    UNSUPPORTED = "unsupported"


class Binding(_Record, frozen=True, kw_only=True):
    """One input that asked for an entry. source: the contract's file name, without its folder. fallback: its route."""

    source: str
    fallback: str | None = None
    provenance: Mapping[str, object] = msgspec.field(default_factory=dict)


class Entry(_Record, frozen=True, kw_only=True):
    """One request and what was built for it.

    id: of the sealed contract. request: id of the contract as written. target: the chip's name (`sm_90`).
    object, explain, contract, launch: paths. sha256: base name of each of those files to the digest of its bytes.
    """

    id: str | None
    request: str
    operation: str
    target: str
    disposition: Disposition
    tactic: str | None
    object: str | None
    explain: str
    contract: str | None
    launch: str | None
    sha256: Mapping[str, str]
    bindings: tuple[Binding, ...] = ()


class Manifest(_Record, frozen=True, kw_only=True):
    """All entries of one build, sorted by request id."""

    schema: Literal["nkc.manifest/1"] = MANIFEST_SCHEMA
    entries: tuple[Entry, ...]
