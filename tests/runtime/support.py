"""Bundles and drivers to test the runtime with, no compiler and no GPU: a stand-in driver built by the C compiler."""

import ctypes
import hashlib
import struct
import subprocess
from pathlib import Path
from typing import ClassVar

import msgspec

from nkc.ir.contract import Access, DType, WorkspaceInit
from nkc.ir.launch import (
    ArgumentKind,
    DistinctGuard,
    Extent,
    Guard,
    Launch,
    LaunchArgument,
    LaunchAttributes,
    LaunchLds,
    LaunchTarget,
    LaunchWorkspace,
    RangeGuard,
    TensorGuard,
    TensorMap,
)
from nkc.ir.manifest import Binding, Disposition, Entry, Manifest

SOURCE = Path(__file__).parent / "standin" / "driver.c"


def build_standin(folder: Path, vendor: str) -> Path:
    """Compile the stand-in driver and return the library's path."""
    name = {"cuda": "libcuda.so.1", "hip": "libamdhip64.so"}[vendor]
    library = folder / name
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{name}"]
    subprocess.run(["cc", *flags, f"-DSTANDIN_{vendor.upper()}", str(SOURCE), "-o", str(library)], check=True)
    return library


class Standin:
    """The test's side of the stand-in driver."""

    def __init__(self, library: Path) -> None:
        self.path = library
        self._library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        self._library.standin_log.restype = ctypes.c_char_p

    def log(self) -> list[str]:
        """Return the calls so far, one line each."""
        return self._library.standin_log().decode().splitlines()

    def launches(self) -> list[str]:
        """Return the launches so far."""
        return [line for line in self.log() if line.startswith("launch ")]

    def reset(self) -> None:
        """Forget the calls and the planned failure."""
        self._library.standin_reset()

    def fail(self, name: str, code: int) -> None:
        """Let every call of a name fail."""
        self._library.standin_fail(name.encode(), code)

    def live(self) -> int:
        """Return how many modules (thousands) and allocations are alive."""
        return self._library.standin_live()

    def device(self, name: str) -> None:
        """Set the architecture name of the HIP device."""
        self._library.standin_device(name.encode())

    def use_context(self) -> None:
        """Make the context of device 0 current on this thread, as torch leaves it."""
        self._library.cuCtxSetCurrent(ctypes.c_void_p(0xC0))

    def lose_context(self) -> None:
        """Leave this thread without a current context."""
        self._library.standin_forget_context()


def number(value: int) -> Extent:
    """Return a fixed extent."""
    return Extent(value=value)


def dense_launch(
    *,
    arch: str = "sm_90",
    m: int | tuple[int, int] = 4,
    n: int = 256,
    k: int = 512,
    scales: str = "row_major",
    workspace: int = 0,
    init: WorkspaceInit = WorkspaceInit.NONE,
    dynamic_bytes: int = 65536,
    identity: str = "",
    fill: int | None = None,
    codes: bool = False,
) -> tuple[Launch, bytes]:
    """Return a launch record of a block-scaled dense kernel as the compiler writes it, and a stand-in object.

    codes: its result is fp8, with row-major scales.
    """
    cuda = arch.startswith("sm_")
    rows = Extent(dim="m") if isinstance(m, tuple) else number(m)
    groups = k // 128
    leading = Extent(dim="m", multiple_of=4) if isinstance(m, tuple) else number(-(-m // 4) * 4)
    by_rows = scales == "row_major"
    scale_strides = (number(groups), number(1)) if by_rows else (number(1), leading)
    tensors = (
        ("a", DType.FP8_E4M3, (rows, number(k)), (number(k), number(1)), 16, Access.READ),
        ("b", DType.FP8_E4M3, (number(n), number(k)), (number(k), number(1)), 16, Access.READ),
        ("a_scales", DType.FP32, (rows, number(groups)), scale_strides, 16, Access.READ),
        ("b_scales", DType.FP32, (number(-(-n // 128)), number(groups)), (number(groups), number(1)), 16, Access.READ),
        ("out", DType.FP8_E4M3 if codes else DType.BF16, (rows, number(n)), (number(n), number(1)), 16, Access.WRITE),
    )
    if codes:
        each = number(n // 128)
        tensors = (*tensors, ("out_scales", DType.FP32, (rows, each), (each, number(1)), 16, Access.WRITE))
    arguments: list[LaunchArgument] = []
    guards: list[Guard] = []
    offset = 0
    for name, dtype, shape, strides, alignment, access in tensors:
        arguments.append(
            LaunchArgument(name=name, kind=ArgumentKind.POINTER, offset=offset, size=8, dtype=dtype, access=access)
        )
        guards.append(TensorGuard(argument=name, dtype=dtype, shape=shape, strides=strides, alignment=alignment))
        offset += 8
    if workspace:
        arguments.append(
            LaunchArgument(
                name="workspace",
                kind=ArgumentKind.POINTER,
                offset=offset,
                size=8,
                dtype=DType.INT32,
                access=Access.READ_WRITE,
            )
        )
        offset += 8
    if isinstance(m, tuple):
        arguments.append(LaunchArgument(name="m", kind=ArgumentKind.INT32, offset=offset, size=4, dim="m"))
        guards.append(RangeGuard(dim="m", min=m[0], max=m[1]))
        offset += 8
    guards.append(DistinctGuard(argument="out", others=("a", "b", "a_scales", "b_scales")))
    for name in ("global_scratch", "profile_scratch"):
        arguments.append(LaunchArgument(name=name, kind=ArgumentKind.SCRATCH, offset=offset, size=8, hidden=True))
        offset += 8
    if not cuda:
        for implicit, size in (
            ("hidden_block_count_x", 4),
            ("hidden_block_count_y", 4),
            ("hidden_block_count_z", 4),
            ("hidden_group_size_x", 2),
            ("hidden_group_size_y", 2),
            ("hidden_group_size_z", 2),
        ):
            arguments.append(
                LaunchArgument(
                    name=implicit, kind=ArgumentKind.IMPLICIT, offset=offset, size=size, hidden=True, implicit=implicit
                )
            )
            offset += size
    rows_word = f"{m[0]}_{m[1]}" if isinstance(m, tuple) else str(m)
    symbol = f"dense_m{rows_word}_n{n}_k{k}"
    fixed = 0 if cuda else 1024
    parameters = "".join(f"param {each.offset} {each.size}\n" for each in arguments)
    if fill is not None and isinstance(m, int):
        parameters += f"fill 4 {m * n} {fill:x}\n"
    image = f"STANDIN\nsymbol {symbol}\nfixed {fixed}\nthreads 512\n{parameters}".encode() + b"\0"
    digest = hashlib.sha256(image).hexdigest()
    tag = hashlib.sha256(repr((arch, m, n, k, scales, workspace, identity)).encode()).hexdigest()[:24]
    launch = Launch(
        id=f"nk_{tag}",
        operation="dense",
        tactic=f"{arch}.dense.test",
        target=LaunchTarget(arch=arch, isa="sm_90a" if cuda else arch, wave=32 if cuda else 64),
        object="kernel.cubin" if cuda else "kernel.hsaco",
        sha256=digest,
        symbol=symbol,
        arguments=tuple(arguments),
        kernarg_bytes=offset,
        grid=(7, 2, 1),
        block=(256, 1, 1),
        lds=LaunchLds(fixed_bytes=fixed, dynamic_bytes=dynamic_bytes if cuda else 0),
        workspace=LaunchWorkspace(bytes=workspace, alignment=256, init=init),
        guards=tuple(guards),
        deterministic=True,
        graph_capture=True,
    )
    return launch, image


def write_bundle(
    root: Path, launches: list[tuple[Launch, bytes]], *, fallback: str | None = None, source: str | None = None
) -> Path:
    """Write a compile output directory with these kernels, and one entry without an object where asked."""
    entries = []
    for launch, image in launches:
        request = "nk_" + hashlib.sha256(launch.id.encode()).hexdigest()[:24]
        folder, explained = root / launch.id, root / request
        for each in (folder, explained):
            each.mkdir(parents=True, exist_ok=True)
        files = {
            launch.object: image,
            "launch.json": msgspec.json.encode(launch),
            "contract.json": msgspec.json.encode({"schema": "nkc.contract/1", "operation": launch.operation}),
        }
        for name, data in files.items():
            (folder / name).write_bytes(data)
        explain = b'{"schema":"nkc.explain/1"}'
        (explained / "explain.json").write_bytes(explain)
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in (*files.items(), ("explain.json", explain))}
        entries.append(
            Entry(
                id=launch.id,
                request=request,
                operation=launch.operation,
                target=launch.target.arch,
                disposition=Disposition.OPTIMIZED,
                tactic=launch.tactic,
                object=f"{launch.id}/{launch.object}",
                explain=f"{request}/explain.json",
                contract=f"{launch.id}/contract.json",
                launch=f"{launch.id}/launch.json",
                sha256=digests,
                bindings=(Binding(source=source or f"{launch.symbol}.json", provenance={"model": "test"}),),
            )
        )
    if fallback is not None:
        request = "nk_" + "f" * 24
        (root / request).mkdir()
        (root / request / "explain.json").write_bytes(b"{}")
        entries.append(
            Entry(
                id=None,
                request=request,
                operation="dense",
                target="sm_90",
                disposition=Disposition.FALLBACK,
                tactic=None,
                object=None,
                explain=f"{request}/explain.json",
                contract=None,
                launch=None,
                sha256={"explain.json": hashlib.sha256(b"{}").hexdigest()},
                bindings=(Binding(source="shuffled.json", fallback=fallback),),
            )
        )
    entries.sort(key=lambda entry: entry.request)
    (root / "manifest.json").write_bytes(msgspec.json.encode(Manifest(entries=tuple(entries))))
    return root


class Array:
    """A tensor of no library: `__cuda_array_interface__` over an address that is never read."""

    _typestrings: ClassVar = {"fp8_e4m3": "|u1", "bf16": "<u2", "fp32": "<f4", "int32": "<i4", "fp16": "<f2"}

    def __init__(
        self,
        dtype: DType | str,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        at: int = 0x7F0000000000,
    ) -> None:
        typestring = self._typestrings.get(str(dtype), str(dtype))
        item = int(typestring[2:])
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestring,
            "data": (at, False),
            "strides": None if strides is None else tuple(stride * item for stride in strides),
            "version": 3,
        }


def dense_arrays(launch: Launch, m: int, **changes: Array) -> dict[str, Array]:
    """Return arrays that meet every guard of a dense launch, with some replaced."""
    arrays = {}
    at = 0x7F0000000000
    for guard in launch.guards:
        if isinstance(guard, TensorGuard):
            shape = tuple(extent.of({"m": m}) for extent in guard.shape)
            strides = tuple(extent.of({"m": m}) for extent in guard.strides)
            arrays[guard.argument] = Array(guard.dtype, shape, strides, at)
            at += 1 << 24
    return {**arrays, **changes}


def pointer(array: Array) -> str:
    """Return an array's address as a launch log shows it: eight bytes, little endian."""
    return array.__cuda_array_interface__["data"][0].to_bytes(8, "little").hex()


def mapped(launch: Launch, *names: str, box: tuple[int, int] = (64, 128)) -> tuple[Launch, bytes]:
    """Return a dense launch record with some tensors passed as tensor maps, and its stand-in object."""
    arguments: list[LaunchArgument] = []
    offset = 0
    for argument in launch.arguments:
        if argument.name in names:
            offset = -(-(0x210 + offset) // 64) * 64 - 0x210  # as ptxas does: sm_90's bank has parameters from 0x210 on
            changes = {"kind": ArgumentKind.TENSOR_MAP, "size": 128, "offset": offset}
            made = TensorMap(box=box, swizzle_bytes=128, l2_promotion_bytes=256)
            arguments.append(msgspec.structs.replace(argument, tensor_map=made, **changes))
            offset += 128
        else:
            offset = -(-offset // argument.size) * argument.size
            arguments.append(msgspec.structs.replace(argument, offset=offset))
            offset += argument.size
    image = f"STANDIN\nsymbol {launch.symbol}\nfixed 0\nthreads 512\n".encode()
    image += "".join(f"param {each.offset} {each.size}\n" for each in arguments).encode() + b"\0"
    digest = hashlib.sha256(image).hexdigest()
    changed = msgspec.structs.replace(launch, arguments=tuple(arguments), kernarg_bytes=offset, sha256=digest)
    return changed, image


def dependent(launch: Launch, *early: str) -> Launch:
    """Return a launch record of a kernel that is launched dependent and reads some arguments before it waits."""
    arguments = tuple(msgspec.structs.replace(each, constant=each.name in early) for each in launch.arguments)
    attributes = LaunchAttributes(programmatic_dependent_launch=True)
    return msgspec.structs.replace(launch, arguments=arguments, attributes=attributes)


def read_map(text: str) -> dict[str, object]:
    """Return what a stand-in tensor map holds, from its bytes as a launch log shows them."""
    words = struct.unpack("<16Q", bytes.fromhex(text))
    rank = words[2]
    return {
        "address": words[0],
        "type": words[1],
        "extents": words[3 : 3 + rank],
        "strides": words[7 : 6 + rank],
        "box": words[9 : 9 + rank],
        "swizzle": words[12],
        "promotion": words[13],
    }
