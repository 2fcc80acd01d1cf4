"""The child's side of the Triton toolchain: compiles one source after another for targets that need no device.

Runs as a script in an isolated interpreter (`-I -S`) with an empty environment, so it imports nothing of nkc: the
parent hands over its module path, then msgpack frames on stdin. Files go to the scratch folder that the parent made.
The protocol: a `Hello` once, then one `Reply` per `Request`, each behind a 4-byte little-endian length.
"""

import os
import shutil
import sys

if __name__ == "__main__":
    sys.path.extend(path for path in sys.argv[2:] if path not in sys.path)

import struct
from typing import IO, Any, TypeVar

import msgspec

KERNEL_FILE = "<kernel>"
"""The file name that the compiler sees: the same for every kernel and machine."""


_SCRATCH = ("global_scratch_size", "profile_scratch_size")  # not every version says both for every target


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kernel to compile.

    signature: parameter name to Triton type, in order. attributes: per parameter, pairs that Triton takes as promises.
    backend, arch, wave: the explicit target. options: passed on as they are.
    """

    text: str
    symbol: str
    signature: tuple[tuple[str, str], ...]
    attributes: tuple[tuple[tuple[str, int], ...], ...]
    backend: str
    arch: str | int
    wave: int
    options: dict[str, bool | int | str]


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of a request: an object with its texts, or an error in the compiler's words."""

    data: bytes = b""
    kind: str = ""
    symbol: str = ""
    waves: int = 0
    lds_bytes: int = 0
    scratch_bytes: int = 0
    texts: dict[str, str] = {}
    error: str = ""


class Hello(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Said once when the compiler is loaded, or when it cannot be."""

    version: str = ""
    error: str = ""


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


def prepare(scratch: str) -> None:
    """Point everything that writes files at the scratch folder, and fix what Triton reads from its environment."""
    import tempfile

    tempfile.tempdir = scratch
    os.environ.update(
        HOME=scratch,  # Triton expands ~ while it is imported, and not every user has a home
        TRITON_HOME=scratch,
        TRITON_CACHE_DIR=os.path.join(scratch, "cache"),
        TRITON_DISABLE_LINE_INFO="1",  # line info puts paths into objects
        TRITON_DEFAULT_FP_FUSION="0",
    )


def spare_cache_key() -> None:
    """Spare Triton the hash over all its files, a third of a second: our cache is empty, private and thrown away.

    Where a version of Triton keeps its key elsewhere, it is computed as ever.
    """
    from triton.runtime import cache

    if hasattr(cache, "triton_key"):
        cache.triton_key = lambda: "nkc"


def compile_kernel(request: Request) -> Reply:
    """Compile one kernel for its explicit target."""
    import linecache

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    # Triton reads a kernel's source back through `inspect`; this is where that looks for text that has no file.
    lines = request.text.splitlines(keepends=True)
    linecache.cache[KERNEL_FILE] = (len(request.text), None, lines, KERNEL_FILE)
    namespace: dict[str, Any] = {"__name__": "kernel"}
    exec(compile(request.text, KERNEL_FILE, "exec"), namespace)
    source = ASTSource(
        namespace[request.symbol],
        dict(request.signature),
        {},
        {(index,): [list(pair) for pair in pairs] for index, pairs in enumerate(request.attributes) if pairs},
    )
    target = GPUTarget(request.backend, request.arch, request.wave)
    built = triton.compile(source, target=target, options=dict(request.options))
    kind = "hsaco" if request.backend == "hip" else "cubin"
    metadata = built.metadata
    return Reply(
        data=built.asm[kind],
        kind=kind,
        symbol=metadata.name,
        waves=metadata.num_warps,
        lds_bytes=metadata.shared,
        scratch_bytes=sum(getattr(metadata, name, None) or 0 for name in _SCRATCH),
        texts={name: text for name, text in built.asm.items() if isinstance(text, str) and name != "source"},
    )


def _explain(error: BaseException) -> str:
    """Return the error and its causes in one text; Triton hides the reason of a failure in `__cause__`."""
    words = []
    link: BaseException | None = error
    while link is not None:
        words.append(f"{type(link).__name__}: {link}")
        link = link.__cause__
    return "\n".join(words)


def main(scratch: str) -> None:
    """Serve requests until stdin ends. fd 1 is kept for frames; whatever prints goes to fd 2."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    prepare(scratch)
    try:
        import triton
        import triton.compiler

        spare_cache_key()
    except Exception as error:  # a toolchain that cannot be loaded has to say so, whatever it raises
        write_frame(replies, Hello(error=_explain(error)))
        return
    write_frame(replies, Hello(version=triton.__version__))
    while (request := read_frame(sys.stdin.buffer, Request)) is not None:
        try:
            reply = compile_kernel(request)
        except Exception as error:  # compilers raise anything; the parent turns it into one kind of error
            reply = Reply(error=_explain(error))
        write_frame(replies, reply)
    shutil.rmtree(scratch, ignore_errors=True)  # the parent does this too, unless it was killed


if __name__ == "__main__":
    main(sys.argv[1])
