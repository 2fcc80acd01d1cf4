"""What weighing a tactic's records came to, kept, and believed only for the very bytes that were weighed.

`evidence/proven.json` names the tactics whose proofs all hold, each behind one SHA-256 over everything that this hangs
on: the rules by which records are weighed, the proofs' code digests, and the file of records. Reading and hashing these
takes a fifth of decoding and weighing them. Where a byte is another one, the records are weighed again.
"""

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from nkc.ir.errors import ToolError
from nkc.ir.package import file_sha256

PROVEN_SCHEMA: Literal["nkc.proven/1"] = "nkc.proven/1"
PROVEN_FILE = "proven.json"
RULES = ("nkc/tactics/evidence.py", "nkc/tactics/proven.py")
"""The files that say which records count, and what they come to."""


class Proven(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tactic whose proofs all hold. seal: of what was weighed. engine: what ran its proofs. toolchains: compilers."""

    seal: str
    engine: str
    toolchains: tuple[str, ...]


class ProvenTactics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of them, by name."""

    schema: Literal["nkc.proven/1"] = PROVEN_SCHEMA
    tactics: dict[str, Proven]


@lru_cache(maxsize=4)
def read_proven(folder: Path) -> ProvenTactics:
    """Return what a folder of evidence keeps, nothing where there is no file. Raises ToolError for a damaged one."""
    path = folder / PROVEN_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=ProvenTactics)
    except FileNotFoundError:
        return ProvenTactics(tactics={})
    except (OSError, msgspec.DecodeError) as error:
        raise ToolError(f"{path.name}: not what this nkc keeps: {error} (nkc evidence index)") from None


def seal(digests: Mapping[str, str], records: Path) -> str | None:
    """Return the SHA-256 of the rules, the proofs' code digests and the records' bytes; None where one is missing."""
    rules = [file_sha256(name) for name in RULES]
    try:
        data = records.read_bytes()
    except OSError:
        return None
    if None in rules:
        return None
    told = hashlib.sha256("\n".join([*map(str, rules), *(f"{r} {d}" for r, d in sorted(digests.items())), ""]).encode())
    told.update(data)
    return told.hexdigest()
