"""The proof sets as code: each proof's digest, the files that decide it, and the indexes that are committed."""

import os
import sys
from contextlib import suppress
from functools import cache

from nkc.emit import render
from nkc.emit.explain import encode
from nkc.ir import canonical, operations
from nkc.ir.package import PACKAGE, file_sha256
from nkc.tactics.catalogue import tactics_of
from nkc.tactics.evidence import FOLDER, Book, Index, IndexEntry, kept
from nkc.tactics.proven import PROVEN_FILE, ProvenTactics
from nkc.tactics.tactic import Lowered, Tactic

_EVERY_KERNEL = ("nkc/emit/render.py", "nkc/emit/digest.py", "nkc/emit/include.py", "nkc/emit/templates.py")
_EVERY_CUDA_KERNEL = ("nkc/tactics/cuda.py",)


def code_digests(tactic: Tactic) -> dict[str, str]:
    """Render the proof set and return request id to code digest."""
    return {
        canonical.contract_id(proof): render.render(Lowered.of(proof, tactic)).digest for proof in tactic.proofs(tactic)
    }


def book() -> Book:
    """Return what the evidence says, rendering proofs anew where files have changed since the index was made."""
    from nkc.emit.measured import tuning

    return Book(digests=code_digests, toolchain=installed_toolchain, tuning=tuning())


_PACKAGES = {"triton": ("triton", "triton"), "cuda": ("nvrtc", "nvidia-cuda-nvrtc")}
"""Language to its compiler's name in records, and the package that brings it."""


def installed_toolchain(tactic: Tactic) -> str | None:
    """Return the compiler that a build of this tactic would use here, as records name it; None where there is none."""
    return _installed(*_PACKAGES[tactic.kernel.language])


@cache
def _installed(name: str, package: str) -> str | None:
    """Return a compiler's name with its version. What is installed is looked up once a process.

    A wheel's folder says its version. `importlib.metadata`, whose import is a tenth of what explaining a contract
    takes, is asked where there is no such folder.
    """
    before, behind = f"{package.replace('-', '_')}-", ".dist-info"
    for folder in sys.path:
        with suppress(OSError):  # an archive, or nothing at all
            for found in os.listdir(folder or "."):
                if found.startswith(before) and found.endswith(behind):
                    return f"{name} {found.removeprefix(before).removesuffix(behind)}"

    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"{name} {version(package)}"
    except PackageNotFoundError:
        return None


def deciding_files(tactic: Tactic) -> tuple[str, ...]:
    """Return every file that can move one of the tactic's code digests, sorted by name."""
    names = {*_EVERY_KERNEL, *(_EVERY_CUDA_KERNEL if tactic.kernel.language == "cuda" else ())}
    names.update({f"nkc/ir/operations/{tactic.operation}.py", f"nkc/ir/targets/{tactic.target}.py"})
    names.update(f"nkc/ir/epilogues/{kind}.py" for kind in operations.get(tactic.operation).epilogues)
    names.update(tactic.kernel.decided_by)
    names.update(
        f"nkc/tactics/{tactic.operation}/{path.name}" for path in (PACKAGE / "tactics" / tactic.operation).glob("*.py")
    )
    for proof in tactic.proofs(tactic)[:1]:
        source = render.render(Lowered.of(proof, tactic))
        names.update(f"templates/{file.name}" for file in source.closure)
    return tuple(sorted(names))


def make_index() -> Index:
    """Render every proof of every tactic and return the index that ought to be committed."""
    tactics = [tactic for operation in operations.names() for tactic in tactics_of(operation)]
    entries = {
        tactic.name: IndexEntry(proofs=dict(sorted(code_digests(tactic).items())), files=deciding_files(tactic))
        for tactic in sorted(tactics, key=lambda tactic: tactic.name)
    }
    names = sorted({name for entry in entries.values() for name in entry.files})
    hashes = {name: digest for name in names if (digest := file_sha256(name)) is not None}
    return Index(files=hashes, tactics=entries)


def make_proven(index: Index) -> ProvenTactics:
    """Weigh every tactic's records at an index's digests and return what ought to be kept of those that are proven."""
    tactics = [tactic for operation in operations.names() for tactic in tactics_of(operation)]
    by_name = sorted(tactics, key=lambda tactic: tactic.name)
    found = ((tactic.name, kept(tactic, index.tactics[tactic.name].proofs)) for tactic in by_name)
    return ProvenTactics(tactics={name: proven for name, proven in found if proven is not None})


def write_index() -> None:
    """Write the index into the checkout, and what the records come to at its digests."""
    FOLDER.mkdir(exist_ok=True)
    index = make_index()
    (FOLDER / "index.json").write_bytes(encode(index))
    (FOLDER / PROVEN_FILE).write_bytes(encode(make_proven(index)))


__all__ = ["book", "code_digests", "deciding_files", "installed_toolchain", "make_index", "make_proven", "write_index"]
