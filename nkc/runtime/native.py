"""The launch in one C call, where its extension was built: a record's guards and buffer as one row of integers.

`nkc/runtime/_launch.c` reads torch tensors through torch's DLPack exchange table (torch 2.10 and newer), evaluates
every guard as `nkc.runtime.guards` does, fills the argument buffer and calls the driver. It refuses nothing: what it
does not launch goes to the launch in Python, which words the refusal. Without the extension, without such a torch, or
for a record that is larger than its tables, the launch in Python serves alone.
"""

import importlib
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from nkc.ir.launch import Extent, Launch
from nkc.runtime.driver import NativeCall
from nkc.runtime.guards import WORKSPACE, GuardSet
from nkc.runtime.kernargs import KernargPlan
from nkc.runtime.tensor import DLPACK_TYPES

LAYOUT = 1
"""Of the row; the extension has the same number, and one that was built for another is not used."""

_MAX_TENSORS, _MAX_RANK, _MAX_DIMS, _MAX_FIELDS, _MAX_PARAMETERS, _MAX_PAIRS = 16, 4, 4, 32, 64, 64
_MAX_KERNARG_BYTES = 4096
_MAX_INT32 = (1 << 31) - 1
_POINTER, _DIM, _WORKSPACE, _MAP = range(4)
_ATTRIBUTE_BYTES = 72
_KDL_CPU = 1
_DLPACK = {dtype: code for code, dtype in DLPACK_TYPES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Callables:
    """What C asks of Python. makers: per tensor, (address, *dims) to the bytes of its map, None where it has none."""

    fallback: Callable[..., None]
    handle: Callable[[Any], int]
    workspace: Callable[[int], int] | None
    makers: tuple[Callable[..., bytes] | None, ...]
    failed: Callable[[int], object]


@cache
def extension() -> Any:
    """Return the extension module, None where it was not built or is of another version."""
    try:
        module = importlib.import_module("nkc.runtime._launch")
    except ImportError:
        return None
    return module if module.LAYOUT == LAYOUT else None


def exchange() -> tuple[Any, tuple[type, ...]] | None:
    """Return torch's exchange table and the types it is used for; a subclass may mean something else by its methods."""
    torch: Any = sys.modules.get("torch")
    table = getattr(getattr(torch, "Tensor", None), "__dlpack_c_exchange_api__", None)
    return None if table is None else (table, (torch.Tensor, torch.nn.Parameter))


def build(
    record: Launch, guards: GuardSet, plan: KernargPlan, call: NativeCall, device: int, callables: Callables
) -> Callable[..., None] | None:
    """Return the launch function of a kernel, or None where this machine or this record cannot have one."""
    module, tensors = extension(), exchange()
    lacking = WORKSPACE in plan.values and callables.workspace is None
    if module is None or tensors is None or lacking or not _fits(record, guards, plan):
        return None
    row = tuple(_row(record, guards, plan, call, device))
    packed = struct.pack(f"={len(row)}q", *map(_signed, row))
    launch = module.prepare(
        packed,
        plan.static,
        call.attributes,
        *tensors,
        callables.fallback,
        callables.handle,
        callables.workspace,
        callables.makers,
        callables.failed,
    )
    return cast("Callable[..., None]", launch)


def close(launch: Any) -> None:
    """Send every further launch to Python, if this is a launch function of ours."""
    if (shut := getattr(getattr(launch, "__self__", None), "close", None)) is not None and is_native(launch):
        shut()


def is_native(launch: Any) -> bool:
    """Return whether a launch function is the extension's."""
    return type(getattr(launch, "__self__", None)).__module__ == "nkc.runtime._launch"


def _fits(record: Launch, guards: GuardSet, plan: KernargPlan) -> bool:
    fields = sum(isinstance(value, str) for value in plan.values)
    pairs = sum(len(guard.others) for guard in guards.distinct)
    return (
        len(guards.tensors) <= _MAX_TENSORS
        and all(len(guard.shape) <= _MAX_RANK and guard.dtype in _DLPACK for guard in guards.tensors)
        and all(guard.alignment.bit_count() == 1 for guard in guards.tensors)
        and len(guards.ranges) <= _MAX_DIMS
        and all(guard.max <= _MAX_INT32 for guard in guards.ranges)
        and fields <= _MAX_FIELDS
        and len(record.arguments) <= _MAX_PARAMETERS
        and pairs <= _MAX_PAIRS
        and len(plan.static) <= _MAX_KERNARG_BYTES
    )


def _row(record: Launch, guards: GuardSet, plan: KernargPlan, call: NativeCall, device: int) -> Iterator[int]:
    """Yield the integers of `read_plan` in _launch.c, in its order."""
    names = {guard.argument: index for index, guard in enumerate(guards.tensors)}
    dims = {guard.dim: index for index, guard in enumerate(guards.ranges)}
    offsets = {argument.name: argument.offset for argument in record.arguments}
    yield from (LAYOUT, call.style, call.address, call.function)
    yield from (*record.grid, *record.block, record.lds.dynamic_bytes)
    # torch numbers the host -1, DLPack has it as the one device of its own type.
    yield from (call.device_type, device) if device >= 0 else (_KDL_CPU, 0)
    yield from (len(call.attributes) // _ATTRIBUTE_BYTES, int(WORKSPACE in plan.values), len(dims), len(names))
    for guard in guards.tensors:
        yield from (*_DLPACK[guard.dtype], guard.dtype.size_bytes, guard.alignment, len(guard.shape))
        for size, stride in zip(guard.shape, guard.strides, strict=True):
            yield from (*_extent(size, dims), *_extent(stride, dims))
    for bounded in guards.ranges:
        source = guards.sources[bounded.dim]
        yield from (names[source.argument], source.axis, bounded.min, bounded.max)
    fields = [
        (*field, argument.offset)
        for argument in record.arguments
        if (field := _field(argument.dim or argument.name, names, dims, plan)) is not None
    ]
    yield len(fields)
    for kind, index, offset in fields:
        yield from (kind, index, offset)
    yield from (len(offsets), *sorted(offsets.values()))
    pairs = [
        (names[guard.argument], names[other])
        for guard in guards.distinct
        if guard.argument in names
        for other in guard.others
        if other in names
    ]
    yield from (len(pairs), *(index for pair in pairs for index in pair))
    yield from (len(call.again), *sorted(call.again))


def _field(name: str, names: dict[str, int], dims: dict[str, int], plan: KernargPlan) -> tuple[int, int] | None:
    """Return what a launch writes into a parameter, by kind and index; None where its value was fixed at load."""
    if name in dims:
        return _DIM, dims[name]
    if name in names:
        return _MAP if name in plan.maps else _POINTER, names[name]
    return (_WORKSPACE, 0) if name == WORKSPACE and WORKSPACE in plan.values else None


def _extent(extent: Extent, dims: dict[str, int]) -> tuple[int, int, int, int]:
    """Return value, dim, divisor and multiple; a fixed extent has no dim and is worked out."""
    if extent.dim is None:
        return extent.of({}), -1, 1, 1
    return 0, dims[extent.dim], extent.divisor, extent.multiple_of


def _signed(value: int) -> int:
    """Return an address as the signed integer of the same 64 bits."""
    return value - (1 << 64) if value >= 1 << 63 else value
