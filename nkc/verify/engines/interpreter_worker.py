"""The child's side of the interpreter engine: runs Triton kernels on the CPU, one request after another.

Runs as a script in an isolated interpreter (`-I -S`) whose environment the parent made: `TRITON_INTERPRET=1` and a
scratch folder. It imports nothing of nkc. Arrays travel as bytes; every buffer stands between red zones.
"""

import sys

if __name__ == "__main__":
    sys.path.extend(path for path in sys.argv[2:] if path not in sys.path)

import os
import struct
from typing import IO, Any, TypeVar

import msgspec

RED_ZONE = 1 << 18  # bytes on both sides of every buffer: a stray tile lands here, not in the allocator
RED = 0xFF  # NaN in every floating-point type: a value read from here shows in the result


class Buffer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pointer argument. dtype: numpy's name. poison: filled with 0xFF before each run (an output)."""

    name: str
    dtype: str
    data: bytes
    poison: bool = False


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kernel to run `runs` times in a row, on the same buffers, over the chosen programs of its grid.

    Every second run walks the programs backwards: what depends on who arrives last shows as another result.
    arguments: names in the kernel's order, each a buffer or a scalar. returned: buffers whose bytes come back.
    """

    text: str
    symbol: str
    arguments: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    scalars: dict[str, int]
    returned: tuple[str, ...]
    grid: tuple[int, int, int]
    programs: tuple[int, ...]
    runs: int


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the first run left, whether later runs left the same, and whether anything else changed."""

    outputs: dict[str, bytes] = {}
    repeated: bool = True
    outside: tuple[str, ...] = ()
    error: str = ""


Message = TypeVar("Message", Request, Reply)


def write_frame(stream: IO[bytes], message: Request | Reply) -> None:
    """Write one message behind its length and flush."""
    body = msgspec.msgpack.encode(message)
    stream.write(struct.pack("<Q", len(body)) + body)
    stream.flush()


def read_frame(stream: IO[bytes], kind: type[Message]) -> Message | None:
    """Read one message, or None at the end of the stream."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    (size,) = struct.unpack("<Q", head)
    body = stream.read(size)
    return msgspec.msgpack.decode(body, type=kind) if len(body) == size else None


def run(request: Request, scratch: str) -> Reply:
    """Run one kernel. Raises whatever the interpreter raises."""
    import numpy as np
    import torch

    kernel = _load(request, scratch)
    wholes, views = {}, {}
    for buffer in request.buffers:
        raw = np.frombuffer(buffer.data, np.uint8)
        whole = np.full(raw.size + 2 * RED_ZONE, RED, np.uint8)
        whole[RED_ZONE : RED_ZONE + raw.size] = raw
        wholes[buffer.name] = whole
        views[buffer.name] = torch.from_numpy(whole[RED_ZONE : RED_ZONE + raw.size].view(buffer.dtype))
    arguments = [views.get(name, request.scalars.get(name)) for name in request.arguments]
    first: dict[str, bytes] = {}
    repeated = True
    for number in range(request.runs):
        _choose(request.grid, request.programs[:: -1 if number % 2 else 1])
        for buffer in request.buffers:
            if buffer.poison:
                wholes[buffer.name][RED_ZONE:-RED_ZONE] = RED
        with np.errstate(all="ignore"):
            kernel[(len(request.programs), 1, 1)](*arguments)
        left = {name: wholes[name][RED_ZONE:-RED_ZONE].tobytes() for name in request.returned}
        first = first or left
        repeated = repeated and left == first
    return Reply(outputs=first, repeated=repeated, outside=tuple(_changed(request, wholes)))


def _load(request: Request, scratch: str) -> Any:
    """Return the kernel; the interpreter reads its source back from a file."""
    import linecache

    path = os.path.join(scratch, f"{request.symbol}.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(request.text)
    linecache.clearcache()
    namespace: dict[str, Any] = {"__name__": "kernel"}
    exec(compile(request.text, path, "exec"), namespace)
    return namespace[request.symbol]


def _choose(grid: tuple[int, int, int], programs: tuple[int, ...]) -> None:
    """Make the interpreter walk the chosen programs (flat ids, x fastest) of a grid instead of a whole one."""
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    kind = type(builder)
    width, height, _ = grid

    def place(x: int, y: int, z: int) -> None:
        del y, z
        flat = programs[x]
        kind.set_grid_idx(builder, flat % width, flat // width % height, flat // (width * height))

    builder.set_grid_dim = lambda *_: kind.set_grid_dim(builder, *grid)
    builder.set_grid_idx = place


def _mend_casts() -> None:
    """Make fp32 to bf16 round to nearest, even, as both targets do, and the way back exact.

    The interpreter's own cast cuts bits off, and turns subnormal values into zeros.
    """
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    cast = builder.cast_impl

    def mended(source: Any, kind: Any) -> Any:
        if (source.dtype.scalar, kind.scalar) == (tl.bfloat16, tl.float32):
            return interpreter.TensorHandle((source.data.astype(np.uint32) << 16).view(np.float32), kind.scalar)
        if (source.dtype.scalar, kind.scalar) != (tl.float32, tl.bfloat16):
            return cast(source, kind)
        bits = np.array(source.data, order="C").view(np.uint32)
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        codes = np.where(np.isnan(source.data), bits >> 16 | 0x40, rounded)
        return interpreter.TensorHandle(codes.astype(np.uint16), kind.scalar)

    builder.cast_impl = mended


def _changed(request: Request, left: dict[str, Any]) -> list[str]:
    """Return what was written that may not be: inputs, and the red zones of any buffer."""
    import numpy as np

    changed = []
    for buffer in request.buffers:
        whole = left[buffer.name]
        given = np.frombuffer(buffer.data, np.uint8)
        if buffer.name not in request.returned and not np.array_equal(whole[RED_ZONE:-RED_ZONE], given):
            changed.append(f"{buffer.name} was written")
        if (whole[:RED_ZONE] != RED).any() or (whole[-RED_ZONE:] != RED).any():
            changed.append(f"the red zone around {buffer.name} was written")
    return changed


def main(scratch: str) -> None:
    """Serve requests until stdin ends. fd 1 is kept for frames; whatever prints goes to fd 2."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _mend_casts()
    while (request := read_frame(sys.stdin.buffer, Request)) is not None:
        try:
            reply = run(request, scratch)
        except BaseException as error:  # whatever a kernel or its interpreter raises becomes one kind of error
            reply = Reply(error=f"{type(error).__name__}: {error}")
        write_frame(replies, reply)


if __name__ == "__main__":
    main(sys.argv[1])
