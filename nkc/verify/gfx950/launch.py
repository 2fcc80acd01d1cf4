"""What one launch is: the arguments with their values, the grid, and the registers that the dispatcher fills.

Source of the initial state: LLVM's "User Guide for AMDGPU Backend", initial kernel execution state (gfx942 class,
architected flat scratch, packed work-item ids, kernarg preloading).
"""

import enum
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nkc.verify.gfx950.code_object import CodeObject
from nkc.verify.gfx950.memory import READABLE, WRITABLE, Arena
from nkc.verify.gfx950.waves import EXEC, LANES, Waves

Array = npt.NDArray[Any]


class LaunchError(ValueError):
    """The launch does not fit the code object."""


class Access(enum.Enum):
    """What a kernel may do with a buffer; an `OUT` buffer is undefined until it is written."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"

    @property
    def permissions(self) -> int:
        """The arena's permission bits at launch."""
        return {"in": READABLE, "out": WRITABLE, "inout": READABLE | WRITABLE}[self.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchArgument:
    """One visible kernel argument: a pointer to the buffer `name`, or an integer or float `value`."""

    name: str
    offset: int
    size: int
    access: Access = Access.IN
    value: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """A launch: what launch.json says, with the values of scalar arguments filled in."""

    symbol: str
    arguments: tuple[LaunchArgument, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_lds_bytes: int = 0
    preload: bool = True

    @property
    def workgroups(self) -> int:
        """How many workgroups the grid has."""
        x, y, z = self.grid
        return x * y * z

    @property
    def threads(self) -> int:
        """How many threads a workgroup has."""
        x, y, z = self.block
        return x * y * z

    @property
    def waves(self) -> int:
        """How many waves a workgroup has."""
        return (self.threads + LANES - 1) // LANES


def kernarg_segment(code: CodeObject, spec: LaunchSpec, addresses: Mapping[str, int]) -> bytes:
    """Return the kernarg segment: visible arguments, then what a HIP launch puts into the hidden ones.

    Errors: `LaunchError` when offsets or sizes disagree with the note, or an argument is missing.
    """
    out = bytearray(code.note.kernarg_segment_size)
    named = {argument.offset: argument for argument in spec.arguments}
    for entry in code.note.args:
        argument = named.pop(entry.offset, None)
        if argument is not None:
            if argument.size != entry.size or entry.value_kind not in ("global_buffer", "by_value"):
                raise LaunchError(
                    f"argument {argument.name} at offset {entry.offset}: {argument.size} bytes, "
                    f"but the object has {entry.size} bytes of {entry.value_kind}"
                )
            value = addresses[argument.name] if argument.value is None else argument.value
            out[entry.offset : entry.offset + entry.size] = (value & (1 << 8 * entry.size) - 1).to_bytes(
                entry.size, "little"
            )
        elif entry.value_kind.startswith("hidden_"):
            value = _hidden(entry.value_kind, spec)
            out[entry.offset : entry.offset + entry.size] = value.to_bytes(entry.size, "little")
        elif entry.value_kind != "global_buffer":  # Triton's unnamed scratch pointers stay null
            raise LaunchError(
                f"the object's argument at offset {entry.offset} ({entry.value_kind}) has no value in the launch"
            )
    if named:
        listed = ", ".join(f"{item.name} at offset {item.offset}" for item in named.values())
        raise LaunchError(f"the object has no such arguments: {listed}")
    return bytes(out)


def _hidden(kind: str, spec: LaunchSpec) -> int:
    axis = "xyz".find(kind[-1])
    if kind.startswith("hidden_block_count_"):
        return spec.grid[axis]
    if kind.startswith("hidden_group_size_"):
        return spec.block[axis]
    if kind == "hidden_grid_dims":
        return 3
    if kind == "hidden_dynamic_lds_size":
        return spec.dynamic_lds_bytes
    return 0  # remainders, offsets, and pointers that no kernel here may follow


def dispatch_packet(spec: LaunchSpec) -> bytes:
    """Return the AQL kernel dispatch packet (64 bytes) as far as a kernel may read it."""
    sizes = tuple(count * width for count, width in zip(spec.grid, spec.block, strict=True))
    head = struct.pack("<HHHHHH", 2, 3, *spec.block, 0)
    return (head + struct.pack("<III", *sizes) + struct.pack("<II", 0, spec.dynamic_lds_bytes)).ljust(64, b"\0")


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialState:
    """Scalar registers that every wave starts with, and where it starts."""

    entry: int
    scalars: tuple[tuple[int, int], ...]  # (register, value)
    defined: int
    workgroup_register: int
    workgroup_axes: tuple[int, ...]


def initial_state(code: CodeObject, spec: LaunchSpec, kernarg: bytes, kernarg_at: int, packet_at: int) -> InitialState:
    """Return the scalar registers at the start. Errors: `LaunchError` for features the launch cannot give."""
    d = code.descriptor
    scalars: list[tuple[int, int]] = []

    def pair(value: int) -> None:
        scalars.append((len(scalars), value & 0xFFFFFFFF))
        scalars.append((len(scalars), value >> 32))

    if d.properties & 1:
        raise LaunchError("the kernel asks for a private segment buffer (code object v2 style)")
    if d.properties & 2:
        pair(packet_at)
    if d.properties & 4:
        pair(0)
    if d.properties & 8:
        pair(kernarg_at)
    if d.properties & 16:
        pair(1)
    if d.properties & 32:
        pair(0)
    if d.properties & 64:
        scalars.append((len(scalars), d.private_segment_fixed_size))
    entry = code.entry
    if spec.preload and d.preload_length:
        start = 4 * d.preload_offset
        for word in range(d.preload_length):
            at = start + 4 * word
            scalars.append((len(scalars), int.from_bytes(kernarg[at : at + 4], "little")))
        entry += 256  # firmware that preloads starts behind the compatibility prologue
    axes = tuple(axis for axis in range(3) if d.rsrc2 >> (7 + axis) & 1)
    defined = 0
    for register, _ in scalars:
        defined |= 1 << (512 + register)
    for position in range(len(axes)):
        defined |= 1 << (512 + d.user_sgprs + position)
    defined |= 3 << (512 + EXEC)
    defined |= 3 << (512 + 102)  # flat_scratch: architected
    defined |= 1  # v0 holds the packed work-item ids
    return InitialState(
        entry=entry, scalars=tuple(scalars), defined=defined, workgroup_register=d.user_sgprs, workgroup_axes=axes
    )


def start(waves: Waves, spec: LaunchSpec, state: InitialState) -> None:
    """Fill the registers of fresh waves."""
    x, y, _ = spec.grid
    coordinates = (waves.workgroup % x, waves.workgroup // x % y, waves.workgroup // (x * y))
    for register, value in state.scalars:
        waves.S[:, register] = value
    for position, axis in enumerate(state.workgroup_axes):
        waves.S[:, state.workgroup_register + position] = coordinates[axis]
    flat = waves.wave_id[:, None] * LANES + np.arange(LANES)
    width, height, _ = spec.block
    waves.V[0] = flat % width | flat // width % height << 10 | flat // (width * height) << 20
    inside = flat < spec.threads
    if not inside.all():
        waves.S64[:, EXEC // 2] = np.packbits(inside, axis=1, bitorder="little").view(np.uint64)[:, 0]
        waves.exec_changed()
    waves.defined = state.defined
    waves.pc = state.entry


def build_arena(code: CodeObject, spec: LaunchSpec, buffers: Mapping[str, Array]) -> tuple[Arena, bytes, InitialState]:
    """Lay out buffers, kernargs and dispatch packet; return the arena, the kernargs and the initial state."""
    arena = Arena()
    addresses = {}
    pointers = [argument for argument in spec.arguments if argument.value is None]
    if absent := [argument.name for argument in pointers if argument.name not in buffers]:
        raise LaunchError(f"no buffer is given for argument {absent[0]}")
    for argument in sorted(pointers, key=lambda item: item.access is Access.IN):  # the shadow covers what is written
        raw = np.ascontiguousarray(buffers[argument.name]).reshape(-1).view(np.uint8)
        addresses[argument.name] = arena.add(argument.name, raw, argument.access.permissions)
    kernarg = kernarg_segment(code, spec, addresses)
    kernarg_at = arena.add("(kernel arguments)", np.frombuffer(kernarg, np.uint8), READABLE)
    packet_at = arena.add("(dispatch packet)", np.frombuffer(dispatch_packet(spec), np.uint8), READABLE)
    arena.seal()
    return arena, kernarg, initial_state(code, spec, kernarg, kernarg_at, packet_at)
