"""Triton inside the worker: one text becomes a module, its kernel a code object for an explicit target.

Loaded by `worker.py` from this file, in a process of its own; it imports nothing of nkc.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nkc.emit.toolchains.worker import Request

KERNEL_FILE = "<kernel>"
"""The file name that the compiler sees: the same for every kernel and machine."""

_SCRATCH = ("global_scratch_size", "profile_scratch_size")  # not every version says both for every target


def environment(scratch: str) -> Mapping[str, str]:
    """Return what Triton reads from its environment."""
    return {
        "TRITON_HOME": scratch,
        "TRITON_CACHE_DIR": os.path.join(scratch, "cache"),
        "TRITON_DISABLE_LINE_INFO": "1",  # line info puts paths into objects
        "TRITON_DEFAULT_FP_FUSION": "0",
    }


def load() -> str:
    """Load Triton and return its version."""
    import triton
    import triton.compiler

    spare_cache_key()
    return str(triton.__version__)


def spare_cache_key() -> None:
    """Spare Triton the hash over all its files, a third of a second: our cache is empty, private and thrown away.

    Where a version of Triton keeps its key elsewhere, it is computed as ever.
    """
    from triton.runtime import cache

    if hasattr(cache, "triton_key"):
        cache.triton_key = lambda: "nkc"


def compile_kernel(request: "Request") -> Mapping[str, Any]:
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
    return {
        "data": built.asm[kind],
        "kind": kind,
        "symbol": metadata.name,
        "waves": metadata.num_warps,
        "lds_bytes": metadata.shared,
        "scratch_bytes": sum(getattr(metadata, name, None) or 0 for name in _SCRATCH),
        "texts": {name: text for name, text in built.asm.items() if isinstance(text, str) and name != "source"},
    }
