"""NVRTC inside the worker: C++ with inline PTX becomes a cubin, without a device, headers or a driver.

Loaded by `worker.py` from this file, in a process of its own; it imports nothing of nkc. The library is called through
ctypes by its path in the `nvidia-cuda-nvrtc` wheel: its finder looks where an isolated interpreter has no folders.
Source of the calls and of CUDA 13's soname: nvrtc.h.
"""

import ctypes
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nkc.emit.toolchains.worker import Request

KERNEL_FILE = b"kernel.cu"
"""The file name that the compiler sees: the same for every kernel and machine."""

FOLDER = Path("nvidia", "cu13", "lib")
LIBRARY = "libnvrtc.so.13"

_LOADED: list[Any] = []


def environment(scratch: str) -> Mapping[str, str]:
    """Return what NVRTC reads from its environment: nothing."""
    del scratch
    return {}


def load() -> str:
    """Load NVRTC and return its version. Raises FileNotFoundError where the wheel is not installed."""
    for folder in sys.path:
        path = Path(folder) / FOLDER / LIBRARY
        if path.is_file():
            library = ctypes.CDLL(str(path))
            break
    else:
        raise FileNotFoundError(f"{FOLDER / LIBRARY} is on no module path")
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    _LOADED[:] = [library]
    return f"{major.value}.{minor.value}"


def flags(request: "Request") -> list[str]:
    """Return the compiler's options; what a source does not say is explicit here."""
    chosen = request.options
    return [
        f"--gpu-architecture={request.arch}",
        f"--std={chosen['std']}",
        f"--fmad={str(chosen['fmad']).lower()}",
        "--device-as-default-execution-space",
        "--ptxas-options=-v",
    ]


def compile_kernel(request: "Request") -> Mapping[str, Any]:
    """Compile one kernel; the log holds what ptxas says of registers, spills and serialised matrix instructions."""
    (library,) = _LOADED
    program = ctypes.c_void_p()
    options = [flag.encode() for flag in flags(request)]
    table = (ctypes.c_char_p * len(options))(*options)
    _call(library, "nvrtcCreateProgram", ctypes.byref(program), request.text.encode(), KERNEL_FILE, 0, None, None)
    try:
        status = library.nvrtcCompileProgram(program, len(options), table)
        log = _read(library, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status:
            return {"error": log or library.nvrtcGetErrorString(status).decode(), "log": log}
        return {
            "data": _read(library, program, "CUBIN"),
            "kind": "cubin",
            "symbol": request.symbol,
            "log": log,
        }
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _read(library: Any, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _call(library, f"nvrtcGet{what}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    _call(library, f"nvrtcGet{what}", program, buffer)
    return buffer.raw


def _call(library: Any, name: str, *arguments: Any) -> None:
    status = getattr(library, name)(*arguments)
    if status:
        raise RuntimeError(f"{name}: {library.nvrtcGetErrorString(status).decode()}")
