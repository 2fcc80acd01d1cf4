"""C11 for a bundle: one header and one source with typed launch functions, for programs without Python.

The source opens the driver with dlopen and needs no CUDA or HIP header. Guards are tables in it, the same that
launch.json holds, so that a C launch refuses what a Python launch refuses.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from nkc import __version__
from nkc.emit import templates
from nkc.ir.contract import Access, DType, WorkspaceInit
from nkc.ir.errors import UsageError
from nkc.ir.launch import (
    ArgumentKind,
    DistinctGuard,
    Extent,
    Launch,
    LaunchArgument,
    RangeGuard,
    TensorGuard,
    TensorMap,
)

ABI = 1
"""Version of the header's types and calling rules; a program built against another one is refused at open."""

WORKSPACE = "workspace"
MAX_RANK = 4
_IMAGE_COLUMNS = 24

# CUtensorMapDataType, CUtensorMapSwizzle and CUtensorMapL2promotion of cuda.h. e4m3 travels as bytes.
_MAP_TYPES = {DType.FP8_E4M3: 0, DType.INT32: 4, DType.FP16: 6, DType.FP32: 7, DType.BF16: 9}
_MAP_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_MAP_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}


class StatusText(NamedTuple):
    """One status of the generated enum."""

    name: str
    text: str


_STATUSES = (
    StatusText("OK", "success"),
    StatusText("ERROR_VERSION", "header and source are of different versions or bundles"),
    StatusText("ERROR_DRIVER_MISSING", "no GPU driver can be loaded"),
    StatusText("ERROR_DRIVER", "the driver refused a call"),
    StatusText("ERROR_NO_DEVICE", "no such device"),
    StatusText("ERROR_NO_OBJECT", "nothing in this bundle is for the device"),
    StatusText("ERROR_FILE", "an object cannot be read"),
    StatusText("ERROR_DIGEST", "an object is not the one that was built"),
    StatusText("ERROR_OBJECT", "an object disagrees with its launch record"),
    StatusText("ERROR_MEMORY", "out of host memory"),
    StatusText("ERROR_NOT_LOADED", "the kernel is for another target"),
    StatusText("ERROR_NULL", "a null pointer"),
    StatusText("ERROR_DTYPE", "a tensor of another element type"),
    StatusText("ERROR_DEVICE", "a tensor on another device"),
    StatusText("ERROR_SHAPE", "a tensor of another shape"),
    StatusText("ERROR_STRIDES", "a tensor of other strides"),
    StatusText("ERROR_ALIGNMENT", "an address that is not aligned as promised"),
    StatusText("ERROR_RANGE", "a dim out of its range"),
    StatusText("ERROR_WORKSPACE", "a workspace for a kernel that needs none"),
    StatusText("ERROR_ALIASING", "an output that overlaps another argument"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CKernel:
    """One kernel of a bundle. path: of its object in the bundle. kernargs: the argument buffer's fixed bytes.

    sources: the contract files that asked for it.
    """

    launch: Launch
    sources: tuple[str, ...]
    path: str
    image: bytes
    kernargs: bytes

    @property
    def aliases(self) -> tuple[str, ...]:
        """Return a C name per contract file, so that a caller need not know which tactic was chosen."""
        return tuple(sorted({re.sub(r"[^A-Za-z0-9]", "_", source.removesuffix(".json")) for source in self.sources}))


def disputed(kernels: Iterable[CKernel]) -> frozenset[str]:
    """Return the aliases that several kernels would have: such a name is nobody's."""
    asked = Counter(alias for kernel in kernels for alias in kernel.aliases)
    return frozenset(alias for alias, count in asked.items() if count > 1)


def emit(kernels: Sequence[CKernel], *, prefix: str, plan: str, embed: bool) -> Mapping[str, str]:
    """Return the header and the source by file name.

    prefix: of every name. plan: the bundle's plan digest. embed: the objects in the source, or read from a directory
    and held against their SHA-256. Errors: UsageError for a prefix that is no C identifier, or without any object.
    """
    if not (prefix.isidentifier() and prefix.isascii() and prefix == prefix.lower()):
        raise UsageError(f"`{prefix}` is no lower-case C identifier (choose another --prefix)")
    if not kernels:
        raise UsageError("the bundle has no object to launch (all its entries are fallback or unsupported)")
    names = _names([kernel.launch for kernel in kernels])
    nobodys = disputed(kernels)
    arches = sorted({kernel.launch.target.arch for kernel in kernels})
    values = {
        "prefix": prefix,
        "macro": prefix.upper(),
        "guard": f"{prefix.upper()}_H",
        "version": __version__,
        "abi": ABI,
        "plan": plan,
        "statuses": _STATUSES,
        "dtypes": [{"macro": dtype.value.upper()} for dtype in DType],
        "max_rank": MAX_RANK,
        "embedded": embed,
        "has_dependent": any(kernel.launch.attributes.programmatic_dependent_launch for kernel in kernels),
        "has_maps": any(argument.tensor_map for kernel in kernels for argument in kernel.launch.arguments),
        "cuda": any(arch.startswith("sm_") for arch in arches),
        "hip": any(arch.startswith("gfx") for arch in arches),
        "arches": ", ".join(arches),
        "max_kernarg_bytes": max(len(kernel.kernargs) for kernel in kernels),
        "max_parameters": max(len(kernel.launch.arguments) for kernel in kernels),
        "kernels": [_kernel(kernel, name, prefix, embed, nobodys) for kernel, name in zip(kernels, names, strict=True)],
    }
    return {f"{prefix}{suffix}": _render(f"c/bundle{suffix}.j2", values) for suffix in (".h", ".c")}


def _render(name: str, values: Mapping[str, object]) -> str:
    environment = templates.environment("c")
    return environment.from_string(templates.read(name, templates.root())).render(values)


def _names(launches: Sequence[Launch]) -> list[str]:
    """Return a function name per kernel: its symbol, and part of its id where two kernels share one."""
    seen = Counter(launch.symbol for launch in launches)
    return [
        launch.symbol if seen[launch.symbol] == 1 else f"{launch.symbol}_{launch.id.removeprefix('nk_')[:8]}"
        for launch in launches
    ]


def _kernel(kernel: CKernel, name: str, prefix: str, embed: bool, nobodys: Set[str]) -> dict[str, object]:
    """Return what the templates place for one kernel. nobodys: aliases that it must not have."""
    launch = kernel.launch
    _check_attributes(launch)
    ordered = sorted(launch.arguments, key=lambda argument: argument.offset)
    offsets = {argument.name: argument.offset for argument in launch.arguments}
    guards = {guard.argument: guard for guard in launch.guards if isinstance(guard, TensorGuard)}
    callers = [
        argument
        for argument in launch.arguments
        if argument.kind in (ArgumentKind.POINTER, ArgumentKind.TENSOR_MAP)
        and not argument.hidden
        and argument.name != WORKSPACE
    ]
    tensors = [guards[argument.name] for argument in callers]
    ranges = [guard for guard in launch.guards if isinstance(guard, RangeGuard)]
    dims = [guard.dim for guard in ranges]
    places = {guard.argument: index for index, guard in enumerate(tensors)}
    pairs = [
        (places[guard.argument], places[other])
        for guard in launch.guards
        if isinstance(guard, DistinctGuard) and guard.argument in places
        for other in guard.others
        if other in places
    ]
    has_workspace = launch.workspace.bytes > 0 and WORKSPACE in offsets
    pointers = [
        f"{'const ' if argument.access is Access.READ else ''}{_ctype(argument.dtype, prefix)} *{argument.name}"
        for argument in callers
    ]
    return {
        "name": name,
        "macro": f"{prefix}_{name}".upper(),
        "symbol": launch.symbol,
        "id": launch.id,
        "arch": launch.target.arch,
        "path": kernel.path,
        "sha256": launch.sha256,
        "comment": _comment(tensors, ranges, has_workspace, launch),
        "aliases": [alias for alias in kernel.aliases if alias not in nobodys],
        "pointer_parameters": [*pointers, *(f"int32_t {dim}" for dim in dims)],
        "pointer_names": ", ".join(guard.argument for guard in tensors),
        "dim_names": ", ".join(dims),
        "image": _bytes(kernel.image) if embed else "",
        "kernargs": ", ".join(map(str, kernel.kernargs)),
        "parameters": ", ".join(str(argument.offset) for argument in ordered),
        "parameter_count": len(ordered),
        "operands": [_operand(guard, dims, argument) for guard, argument in zip(tensors, callers, strict=True)],
        "dims": [_dim(guard, tensors) for guard in ranges],
        "scalars": [
            {"dim": dims.index(argument.dim), "offset": argument.offset}
            for argument in launch.arguments
            if argument.dim is not None
        ],
        "pairs": ", ".join(f"{{ {written}, {other} }}" for written, other in pairs),
        "pair_count": len(pairs),
        "grid": ", ".join(map(str, launch.grid)),
        "block": ", ".join(map(str, launch.block)),
        "dynamic_bytes": launch.lds.dynamic_bytes,
        "dependent": int(launch.attributes.programmatic_dependent_launch),
        "fixed_bytes": launch.lds.fixed_bytes,
        "kernarg_bytes": len(kernel.kernargs),
        "workspace_bytes": launch.workspace.bytes if has_workspace else 0,
        "workspace_alignment": launch.workspace.alignment,
        "workspace_offset": offsets.get(WORKSPACE, 0),
        "workspace_zero": int(launch.workspace.init is WorkspaceInit.ZERO),
    }


def _check_attributes(launch: Launch) -> None:
    """Refuse by name what a vendor cannot launch. Raises UsageError."""
    wanted = {
        "cluster": launch.attributes.cluster != (1, 1, 1),
        "programmatic_dependent_launch": launch.attributes.programmatic_dependent_launch,
    }
    for name in (name for name, asked in wanted.items() if asked and launch.target.arch.startswith("gfx")):
        raise UsageError(f"{launch.id}: the record wants `attributes.{name}`, which HIP does not have (build it again)")


def _ctype(dtype: DType | None, prefix: str) -> str:
    match dtype:
        case DType.FP32:
            return "float"
        case DType.INT32:
            return "int32_t"
        case None:
            return "void"
        case _:
            return f"{prefix}_{dtype.value}"


def _operand(guard: TensorGuard, dims: list[str], argument: LaunchArgument) -> dict[str, object]:
    if len(guard.shape) > MAX_RANK:
        raise UsageError(f"`{guard.argument}` has {len(guard.shape)} axes, more than the {MAX_RANK} of the C header")
    return {
        "name": guard.argument,
        "dtype": guard.dtype.value.upper(),
        "rank": len(guard.shape),
        "shape": ", ".join(_extent(extent, dims) for extent in guard.shape),
        "strides": ", ".join(_extent(extent, dims) for extent in guard.strides),
        "alignment": guard.alignment,
        "element_bytes": guard.dtype.size_bytes,
        "offset": argument.offset,
        "map": "0" if argument.tensor_map is None else _map(guard, argument.tensor_map),
    }


def _map(guard: TensorGuard, tensor_map: TensorMap) -> str:
    """Return the initialiser of a tensor map: axes from the contiguous one outwards, then cuda.h's numbers."""
    axes = range(len(guard.shape))
    contiguous = next(
        axis for axis in (axes[-1], *axes) if guard.strides[axis].dim is None and guard.strides[axis].value == 1
    )
    order = (contiguous, *(axis for axis in reversed(axes) if axis != contiguous))
    box = ", ".join(str(tensor_map.box[axis]) for axis in order)
    swizzle, promotion = _MAP_SWIZZLES[tensor_map.swizzle_bytes], _MAP_PROMOTIONS[tensor_map.l2_promotion_bytes]
    places = ", ".join(map(str, order))
    return f"{len(order)}, {{ {places} }}, {_MAP_TYPES[guard.dtype]}, {swizzle}, {promotion}, {{ {box} }}"


def _extent(extent: Extent, dims: list[str]) -> str:
    if extent.dim is None:
        return f"{{ {extent.of({})}, -1, 1, 1 }}"
    return f"{{ 0, {dims.index(extent.dim)}, {extent.divisor}, {extent.multiple_of} }}"


def _dim(guard: RangeGuard, tensors: Sequence[TensorGuard]) -> dict[str, object]:
    for index, tensor in enumerate(tensors):
        for axis, extent in enumerate(tensor.shape):
            if extent.dim == guard.dim and extent.divisor == extent.multiple_of == 1:
                return {"name": guard.dim, "min": guard.min, "max": guard.max, "operand": index, "axis": axis}
    raise UsageError(f"no tensor has `{guard.dim}` as an extent, so a launcher cannot read it")


def _comment(
    tensors: Sequence[TensorGuard], ranges: Sequence[RangeGuard], has_workspace: bool, launch: Launch
) -> tuple[str, ...]:
    """Return the lines that a caller reads: shapes, strides and alignment per argument, ranges, the workspace."""
    lines = [
        f"{guard.argument}: {guard.dtype} [{', '.join(map(_words, guard.shape))}], strides "
        f"[{', '.join(map(_words, guard.strides))}], {guard.alignment}-byte aligned"
        for guard in tensors
    ]
    lines += [f"{guard.dim}: {guard.min} to {guard.max}" for guard in ranges]
    if launch.attributes.programmatic_dependent_launch:
        early = ", ".join(argument.name for argument in launch.arguments if argument.constant)
        lines.append(
            f"launched dependent: {early} may be read before the kernels ahead in the stream have ended, so that none "
            "of them may write these"
        )
    if has_workspace:
        zeros = ", zeroed before the first launch" if launch.workspace.init is WorkspaceInit.ZERO else ""
        lines.append(
            f"workspace: {launch.workspace.bytes} bytes, {launch.workspace.alignment}-byte aligned{zeros}, "
            "for one stream at a time; NULL for the library's own"
        )
    return tuple(lines)


def _words(extent: Extent) -> str:
    if extent.dim is None:
        return str(extent.of({}))
    groups = extent.dim if extent.divisor == 1 else f"ceil({extent.dim} / {extent.divisor})"
    return groups if extent.multiple_of == 1 else f"{groups} up to a multiple of {extent.multiple_of}"


def _bytes(image: bytes) -> str:
    """Return an object as the inside of a C initialiser."""
    rows = (image[at : at + _IMAGE_COLUMNS] for at in range(0, len(image), _IMAGE_COLUMNS))
    return "\n".join(",".join(map(str, row)) + "," for row in rows)
