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
    """One input that asked for an entry.

    source: the contract's file name, without its folder.
    fallback: the route that this input named, or null.
    provenance: where the contract comes from, as its author wrote it: model, layer, anything.
    """

    source: str
    fallback: str | None = None
    provenance: Mapping[str, object] = msgspec.field(default_factory=dict)


class Entry(_Record, frozen=True, kw_only=True):
    """One request and what was built for it.

    id: of the sealed contract; null where nothing was built.
    request: id of the contract as written.
    operation: what is computed, `dense`.
    target: the chip's name, `sm_90`.
    disposition: what became of the request.
    tactic: the one that was built; null where none was.
    object: path of the code object, from the manifest's directory; null where nothing was built.
    explain: path of the explanation.
    contract: path of the sealed contract; null where nothing was built.
    launch: path of the launch record; null where nothing was built.
    sha256: base name of each of those files to the digest of its bytes, 64 hex digits.
    bindings: the inputs that asked for it, sorted.
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
    """What one build made of its inputs.

    schema: names this form of the document.
    entries: one a request, sorted by request id.
    """

    schema: Literal["nkc.manifest/1"] = MANIFEST_SCHEMA
    entries: tuple[Entry, ...]
