"""The child's side of every toolchain: compiles one source after another for targets that need no device.

Runs as a script in an isolated interpreter (`-I -S`) with an empty environment, so it imports nothing of nkc: the
parent names the compiler's module by its file and hands over its module path, then msgpack frames on stdin. Files go
to the scratch folder that the parent made. The protocol: a `Hello` once, then one `Reply` per `Request`, each behind a
4-byte little-endian length.
"""

import os
import shutil
import sys

if __name__ == "__main__":
    sys.path.extend(path for path in sys.argv[3:] if path not in sys.path)

import importlib.util
import struct
from collections.abc import Mapping
from typing import IO, Any, Protocol, TypeVar, cast

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kernel to compile.

    signature: parameter name to the language's type, in order. attributes: per parameter, pairs that Triton takes as
    promises. backend, arch, wave: the explicit target, as the compiler names it. options: those of the source.
    """

    text: str
    symbol: str
    arch: str | int
    options: dict[str, bool | int | str]
    signature: tuple[tuple[str, str], ...] = ()
    attributes: tuple[tuple[tuple[str, int], ...], ...] = ()
    backend: str = ""
    wave: int = 0


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of a request: an object with its texts and the compiler's log, or an error in its words."""

    data: bytes = b""
    kind: str = ""
    symbol: str = ""
    waves: int = 0
    lds_bytes: int = 0
    scratch_bytes: int = 0
    texts: dict[str, str] = {}
    log: str = ""
    error: str = ""


class Hello(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Said once when the compiler is loaded, or when it cannot be."""

    version: str = ""
    error: str = ""


class Compiler(Protocol):
    """What a compiler's module offers; it imports nothing of nkc either."""

    def environment(self, scratch: str) -> Mapping[str, str]:
        """Return the environment that the compiler is loaded in."""

    def load(self) -> str:
        """Load the compiler and return its version. May raise anything."""

    def compile_kernel(self, request: Request) -> Mapping[str, Any]:
        """Compile one kernel and return the fields of its `Reply`. May raise anything."""


Message = TypeVar("Message", Request, Reply, Hello)


def write_frame(stream: IO[bytes], message: Request | Reply | Hello) -> None:
    """Write one message behind its length and flush."""
    body = msgspec.msgpack.encode(message)
    stream.write(struct.pack("<I", len(body)) + body)
    stream.flush()


def read_frame(stream: IO[bytes], kind: type[Message]) -> Message | None:
    """Read one message, or None at the end of the stream."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    (size,) = struct.unpack("<I", head)
    body = stream.read(size)
    return msgspec.msgpack.decode(body, type=kind) if len(body) == size else None


def prepare(scratch: str, environment: Mapping[str, str]) -> None:
    """Point whatever writes files at the scratch folder, and fix what the compiler reads from its environment."""
    import tempfile

    tempfile.tempdir = scratch
    os.environ.update(HOME=scratch, **environment)  # some expand ~ while they are imported, and not every user has one


def _compiler(file: str) -> Compiler:
    """Return a compiler's module from its file. Its folder is not searched: a module there is named like Triton."""
    spec = importlib.util.spec_from_file_location("compiler", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Compiler", module)


def _explain(error: BaseException) -> str:
    """Return the error and its causes in one text; Triton hides the reason of a failure in `__cause__`."""
    words = []
    link: BaseException | None = error
    while link is not None:
        words.append(f"{type(link).__name__}: {link}")
        link = link.__cause__
    return "\n".join(words)


def main(scratch: str, file: str) -> None:
    """Serve requests until stdin ends. fd 1 is kept for frames; whatever prints goes to fd 2."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        compiler = _compiler(file)
        prepare(scratch, compiler.environment(scratch))
        version = compiler.load()
    except Exception as error:  # a toolchain that cannot be loaded has to say so, whatever it raises
        write_frame(replies, Hello(error=_explain(error)))
        return
    write_frame(replies, Hello(version=version))
    while (request := read_frame(sys.stdin.buffer, Request)) is not None:
        try:
            reply = Reply(**compiler.compile_kernel(request))
        except Exception as error:  # compilers raise anything; the parent turns it into one kind of error
            reply = Reply(error=_explain(error))
        write_frame(replies, reply)
    shutil.rmtree(scratch, ignore_errors=True)  # the parent does this too, unless it was killed


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
