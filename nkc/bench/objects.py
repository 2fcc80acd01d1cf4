"""Objects compiled by an earlier run, so that a bench of many kernels compiles only what is new since.

One file a kernel, named by its build key: the source with its promises and options, the target, the compiler's own
bytes, and ours that drive it. Compilers' intermediate texts are not kept: a bench shows none. A folder that cannot be
written makes a bench slower and does not stop it.
"""

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from nkc.emit import build, source
from nkc.emit.inspect import inspect
from nkc.emit.inspect.elf import ObjectError
from nkc.emit.toolchains import nvrtc
from nkc.emit.toolchains.child import installed_digest
from nkc.emit.write import make_output, write_file
from nkc.ir.errors import ToolError
from nkc.ir.package import PACKAGE
from nkc.ir.target import Target


class _Compiler(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which compiler made a kept object."""

    name: str
    version: str
    digest: str


class _Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A code object as it is kept: without intermediate texts, and what is read from its bytes is read again."""

    kind: Literal["hsaco", "cubin"]
    data: bytes
    symbol: str
    waves: int
    lds_dynamic_bytes: int
    scratch_bytes: int
    toolchain: _Compiler


class KeptObjects:
    """A toolchain that asks its folder first, and the compiler for what is not there or cannot be read.

    reused: objects that were there. unkept: why nothing more is kept, in words; None while the folder can be written.
    """

    def __init__(self, toolchain: build.Toolchain, folder: Path) -> None:
        self._toolchain = toolchain
        self._folder = folder.absolute()
        self.reused = 0
        self.unkept: str | None = None
        try:
            make_output(folder)
        except ToolError as error:
            self.unkept = str(error)

    def compile(self, kernel: source.Source, target: Target) -> source.CodeObject:
        """Return the code object, an earlier one where the build key agrees. Raises ToolError."""
        file = self._folder / f"{build_key(kernel, target)}.msgpack"
        earlier = _read(file, kernel, target)
        if earlier is not None:
            self.reused += 1
            return earlier
        built = self._toolchain.compile(kernel, target)
        if self.unkept is None:
            try:
                write_file(file, msgspec.msgpack.encode(_kept(built)))
            except ToolError as error:
                self.unkept = str(error)
        return built


def _read(file: Path, kernel: source.Source, target: Target) -> source.CodeObject | None:
    """Return a kept object; None where there is none, or it is damaged, or its own note names another chip.

    That note is what a driver goes by, whatever name the file has.
    """
    try:
        kept = msgspec.msgpack.decode(file.read_bytes(), type=_Kept)
        resources = inspect(kept.data, name=f"{kernel.symbol}.{kept.kind}")
    except (OSError, msgspec.DecodeError, ObjectError):
        return None
    if resources.isa != target.isa:
        return None
    return source.CodeObject(
        kind=kept.kind,
        data=kept.data,
        symbol=kept.symbol,
        waves=kept.waves,
        lds_dynamic_bytes=kept.lds_dynamic_bytes,
        scratch_bytes=kept.scratch_bytes,
        resources=resources,
        intermediates=(),
        toolchain=source.Toolchain(
            name=kept.toolchain.name, version=kept.toolchain.version, digest=kept.toolchain.digest
        ),
    )


def _kept(built: source.CodeObject) -> _Kept:
    compiler = built.toolchain
    return _Kept(
        kind=built.kind,
        data=built.data,
        symbol=built.symbol,
        waves=built.waves,
        lds_dynamic_bytes=built.lds_dynamic_bytes,
        scratch_bytes=built.scratch_bytes,
        toolchain=_Compiler(name=compiler.name, version=compiler.version, digest=compiler.digest),
    )


def build_key(kernel: source.Source, target: Target) -> str:
    """Return the SHA-256 of everything that a code object depends on."""
    promised = tuple((p.name, p.type, p.divisible_by, p.range_bits) for p in kernel.parameters)
    compiler = _compiler_digest(kernel.language), _driver_digest()
    parts = kernel.language, kernel.text, kernel.symbol, promised, kernel.options, target.arch, target.isa, compiler
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


@lru_cache(maxsize=2)
def _compiler_digest(language: source.Language) -> str:
    """Return the digest of the installed compiler's files."""
    match language:
        case "triton":
            return installed_digest("triton", below="triton")
        case "cuda":
            return installed_digest(nvrtc.PACKAGE, below="nvidia")


@lru_cache(maxsize=1)
def _driver_digest() -> str:
    """Return the digest of our files that drive a compiler."""
    files = sorted((PACKAGE / "emit" / "toolchains").glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
