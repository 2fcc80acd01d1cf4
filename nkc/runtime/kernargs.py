"""The argument buffer of a kernel: what is fixed at load, what a launch writes, and where.

HIP's implicit arguments are filled by name from the launch record. An unknown name is refused at load: a kernel that
reads what nobody wrote is a silent wrong answer.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from nkc.ir.launch import ArgumentKind, Launch, LaunchArgument
from nkc.runtime import tensor_map
from nkc.runtime.errors import BundleError
from nkc.runtime.tensor_map import MAP_BYTES, MAP_OFFSET

# AMDGPU code object metadata, `.value_kind` of hidden arguments (LLVM, AMDGPU usage, code object v5). What follows
# from the fixed launch is written here; handles of services (queue, hostcall, heap, apertures) are the runtime's to
# write, which HIP does from the object's metadata at every launch, and are null in our buffer.
_IMPLICIT: dict[str, Callable[[Launch], int]] = {
    "hidden_block_count_x": lambda launch: launch.grid[0],
    "hidden_block_count_y": lambda launch: launch.grid[1],
    "hidden_block_count_z": lambda launch: launch.grid[2],
    "hidden_group_size_x": lambda launch: launch.block[0],
    "hidden_group_size_y": lambda launch: launch.block[1],
    "hidden_group_size_z": lambda launch: launch.block[2],
    "hidden_remainder_x": lambda _: 0,  # the grid is whole workgroups
    "hidden_remainder_y": lambda _: 0,
    "hidden_remainder_z": lambda _: 0,
    "hidden_global_offset_x": lambda _: 0,
    "hidden_global_offset_y": lambda _: 0,
    "hidden_global_offset_z": lambda _: 0,
    "hidden_grid_dims": lambda launch: max([axis + 1 for axis in range(3) if launch.grid[axis] > 1], default=1),
    "hidden_dynamic_lds_size": lambda launch: launch.lds.dynamic_bytes,
    "hidden_printf_buffer": lambda _: 0,
    "hidden_hostcall_buffer": lambda _: 0,
    "hidden_multigrid_sync_arg": lambda _: 0,
    "hidden_heap_v1": lambda _: 0,
    "hidden_default_queue": lambda _: 0,
    "hidden_completion_action": lambda _: 0,
    "hidden_queue_ptr": lambda _: 0,
    "hidden_private_base": lambda _: 0,
    "hidden_shared_base": lambda _: 0,
    "hidden_none": lambda _: 0,
}
_MAX_THREADS = 1024
_SIZES = {
    ArgumentKind.POINTER: 8,
    ArgumentKind.SCRATCH: 8,
    ArgumentKind.INT32: 4,
    ArgumentKind.TENSOR_MAP: MAP_BYTES,
}
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernargPlan:
    """How the argument buffer is written.

    static: the whole buffer with its fixed fields filled in. format: of a `struct` that begins at `begin` and writes
    `values` in order, each a caller's argument (or `workspace`, or a bounded dim) by name or a fixed number. maps:
    those of them that are tensor maps.
    """

    static: bytes
    begin: int
    format: str
    values: tuple[str | int, ...]
    maps: tuple[str, ...] = ()


def plan(launch: Launch) -> KernargPlan:
    """Return the plan of a launch record. Errors: BundleError where its layout is not one a launcher can fill."""
    check(launch)
    static = bytearray(launch.kernarg_bytes)
    for argument in launch.arguments:
        if not _is_dynamic(argument):
            value = fixed_value(launch, argument)
            static[argument.offset : argument.offset + argument.size] = value.to_bytes(argument.size, "little")
    written = sorted(filter(_is_dynamic, launch.arguments), key=lambda argument: argument.offset)
    if not written:
        return KernargPlan(static=bytes(static), begin=0, format="", values=())
    begin, end = written[0].offset, written[-1].offset
    layout, values, at = "", [], begin
    for argument in sorted(launch.arguments, key=lambda argument: argument.offset):
        if not begin <= argument.offset <= end:
            continue
        layout += f"{argument.offset - at}x" if argument.offset > at else ""
        layout += _code(argument)
        values.append(_value_name(argument) if _is_dynamic(argument) else fixed_value(launch, argument))
        at = argument.offset + argument.size
    maps = tuple(argument.name for argument in written if argument.kind is ArgumentKind.TENSOR_MAP)
    return KernargPlan(static=bytes(static), begin=begin, format=layout, values=tuple(values), maps=maps)


def _code(argument: LaunchArgument) -> str:
    """Return the `struct` code of a parameter."""
    match argument.kind:
        case ArgumentKind.TENSOR_MAP:
            return f"{MAP_BYTES}s"
        case ArgumentKind.INT32:
            return _CODES[argument.size].lower()
        case _:
            return _CODES[argument.size]


def check(launch: Launch) -> None:
    """Hold a record against itself, before its object reaches a driver. Errors: BundleError."""
    _check_block(launch)
    _check_layout(launch)
    tensor_map.check(launch)


def fixed_value(launch: Launch, argument: LaunchArgument) -> int:
    """Return the value of an argument that no caller decides: null scratch pointers and implicit arguments."""
    if argument.kind is not ArgumentKind.IMPLICIT:
        return 0
    if argument.implicit not in _IMPLICIT:
        raise BundleError(f"{launch.id}: no value is known for the implicit argument `{argument.implicit}`")
    return _IMPLICIT[argument.implicit](launch)


def _is_dynamic(argument: LaunchArgument) -> bool:
    return argument.kind in (ArgumentKind.POINTER, ArgumentKind.INT32, ArgumentKind.TENSOR_MAP)


def _value_name(argument: LaunchArgument) -> str:
    return argument.name if argument.dim is None else argument.dim


def _check_block(launch: Launch) -> None:
    """Hold the block against the target's wave (whole waves, no more threads than any target runs), grid on cluster."""
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if threads > _MAX_THREADS:
        raise BundleError(f"{launch.id}: a block of {threads} threads, more than the {_MAX_THREADS} of any target")
    cluster = launch.attributes.cluster
    if min(cluster) < 1 or any(extent % along for extent, along in zip(launch.grid, cluster, strict=True)):
        raise BundleError(f"{launch.id}: a grid of {list(launch.grid)}, not whole clusters of {list(cluster)}")
    if threads % launch.target.wave or min(*launch.block, *launch.grid) < 1:
        raise BundleError(f"{launch.id}: a block of {threads} threads, not whole waves of {launch.target.wave}")


def _check_layout(launch: Launch) -> None:
    end = 0
    for argument in sorted(launch.arguments, key=lambda argument: argument.offset):
        wanted = _SIZES.get(argument.kind, argument.size)
        if argument.size != wanted or (wanted not in _CODES and wanted != MAP_BYTES):
            raise BundleError(f"{launch.id}: `{argument.name}` is {argument.size} bytes, not a {argument.kind}")
        if argument.offset < end or argument.offset % min(argument.size, MAP_OFFSET):
            raise BundleError(f"{launch.id}: `{argument.name}` at byte {argument.offset} overlaps or is misaligned")
        if argument.kind is ArgumentKind.INT32 and argument.dim is None:
            raise BundleError(f"{launch.id}: `{argument.name}` carries no dim, so nobody knows its value")
        end = argument.offset + argument.size
    if end > launch.kernarg_bytes:
        raise BundleError(f"{launch.id}: arguments end at byte {end}, the buffer at {launch.kernarg_bytes}")


def packer(plan: KernargPlan, prefix: str = "") -> struct.Struct:
    """Return the compiled writer: little endian, no padding of its own, `prefix` in front."""
    return struct.Struct("<" + prefix + plan.format)
